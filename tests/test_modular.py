"""The slot assembly: what reasoners see of a ranking, what a turn records of its question and its lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from covr_lab.gallery.gallery import Gallery
from covr_lab.modular import ModularSystem
from covr_lab.ranking import Fusion, SimSum, SlerpFold, StaticRRF
from covr_lab.ranking.channels import Channel
from covr_lab.reasoning import NewestFeedback
from covr_lab.reasoning.base import Questioner
from covr_lab.reasoning.context import CANDIDATES
from covr_lab.types import Context, Event, Feedback, Query, Question, Session
from tests.ranking.test_fold import IDS, Dice

CAPTIONS = {video: f"caption of {video}" for video in IDS[:8]}  # of four videos nothing is known in words
QUERIES = [Query("a", "v3", "edit a"), Query("b", None, "edit b"), Query("c", "v9", "edit c")]


class Curious(Questioner):
    """Keeps what it sees, and asks about the best candidate."""

    def __init__(self, *, reads_captions: bool) -> None:
        super().__init__()
        self.reads_captions, self.seen = reads_captions, list[Context]()

    def render(self, context: Context) -> str:
        self.seen.append(context)
        return f"Why {context.shown}?"

    def fallback(self, context: Context) -> str:
        raise NotImplementedError

    def events(self, context: Context) -> tuple[Event, ...]:
        return (Event("seen", str(len(context.candidates))),)


def build(questioner: Questioner | None = None, fusion: Fusion | None = None, **channels: Channel) -> ModularSystem:
    system = ModularSystem(
        retrievers={"dice": Dice()},
        opening="dice",
        channels={**channels} or {"text": Channel("dice", "search")},
        intent=NewestFeedback(),
        fusion=fusion or StaticRRF(pool=7),
        questioner=questioner,
        rm0="covr",
    )
    system.load()
    system.bind(Gallery(IDS, CAPTIONS))
    return system


def started(system: ModularSystem, queries: Sequence[Query] = QUERIES) -> list[Session]:
    return [Session(query).then(turn) for query, turn in zip(queries, system.start(queries), strict=True)]


def stepped(
    system: ModularSystem, sessions: Sequence[Session], text: str, questions: Sequence[Question | None] = ()
) -> list[Session]:
    said = [Feedback("free", f"{text} {session.query.session_id}") for session in sessions]
    turns = system.step(sessions, said, questions or [None] * len(sessions))
    return [session.then(turn) for session, turn in zip(sessions, turns, strict=True)]


def test_candidates_have_their_similarity_to_the_newest_query() -> None:
    """At turn 0 from the result, later from the list of the first channel: a pool of three knows three of five."""
    asked = Curious(reads_captions=False)
    system = build(asked, StaticRRF(pool=3))
    sessions = started(system)
    system.ask(sessions)
    later = stepped(system, sessions, "say")
    system.ask(later)
    dice = system.retrievers["dice"]
    assert isinstance(dice, Dice)
    for context, session, texts in zip(
        asked.seen,
        [*sessions, *later],
        ["edit a|v3", "edit b|None", "edit c|v9", *(f"say {name}|None" for name in "abc")],
        strict=True,
    ):
        rows = session.turns[-1].result.rows[:CANDIDATES].tolist()
        expected = [float(dice.vector(texts) @ dice.vector(IDS[row])) for row in rows]
        assert len(context.scores) == CANDIDATES
        if len(session.turns) == 2:
            assert np.isnan(context.scores[3:]).all()
            expected[3:] = [float("nan")] * 2
        assert context.scores == pytest.approx(tuple(expected), abs=1e-6, nan_ok=True)
        assert context.candidates == tuple(CAPTIONS.get(IDS[row], "") for row in rows)
        assert context.caption_vectors is None
    assert any("" in context.candidates for context in asked.seen)


def test_a_turn_that_searched_for_nothing_has_no_similarities() -> None:
    asked = Curious(reads_captions=False)
    system = build(asked)
    sessions = started(system, QUERIES[:1])
    turn = system.step(sessions, [Feedback("free", "")], [None])[0]
    assert turn.channels == {}
    system.ask([sessions[0].then(turn)])
    assert np.isnan(asked.seen[0].scores).all()


def test_caption_vectors_are_those_of_the_opening_retriever() -> None:
    asked = Curious(reads_captions=True)
    system = build(asked)
    dice = system.retrievers["dice"]
    assert isinstance(dice, Dice)
    sessions = stepped(system, started(system), "say")
    system.ask(sessions)
    together = asked.seen.copy()
    for session in sessions:
        system.ask([session])
    for context, alone in zip(together, asked.seen[3:], strict=True):
        vectors = [dice.vector(f"{text}|None").numpy() if text else np.zeros(6) for text in context.candidates]
        assert context.caption_vectors is not None
        assert alone.caption_vectors is not None
        assert context.caption_vectors.dtype == np.float32
        np.testing.assert_allclose(context.caption_vectors, vectors, atol=1e-7)
        np.testing.assert_array_equal(context.caption_vectors, alone.caption_vectors)


def test_without_a_single_caption_the_vectors_are_zero() -> None:
    asked = Curious(reads_captions=True)
    system = build(asked)
    system.bind(Gallery(IDS, {}))
    system.ask(started(system, QUERIES[:1]))
    np.testing.assert_array_equal(asked.seen[0].caption_vectors, np.zeros((CANDIDATES, 6)))


def test_a_turn_records_its_question_and_what_led_to_it() -> None:
    system = build(Curious(reads_captions=False))
    sessions = started(system)
    first, second, _ = system.ask(sessions)
    assert first is not None
    shown = sessions[0].shown
    assert shown is not None
    assert first == Question(f"Why {IDS[shown]}?", (), (Event("seen", "5"),))
    turns = [session.turns[-1] for session in stepped(system, sessions, "say", [first, second, None])]
    assert [turn.question for turn in turns] == [first.text, second and second.text, None]
    assert [[event for event in turn.events if event.kind == "seen"] for turn in turns] == [
        [Event("seen", "5")],
        [Event("seen", "5")],
        [],
    ]


@pytest.mark.parametrize("fold", [None, SlerpFold()])
def test_stored_lists_keep_their_similarities(fold: SlerpFold | None) -> None:
    """Of turn 0, too, where a composed channel is remembered; so that sums over turns can be made of them."""
    channels = {"text": Channel("dice", "search", fold=fold), "composed": Channel("dice", "search", "reference")}
    system = build(None, SimSum(pool=7), **channels)
    sessions = stepped(system, stepped(system, started(system), "say"), "more")
    for session in sessions:
        opening, *later = session.turns
        assert set(opening.channels) == {"composed"}
        for ranking in (*opening.channels.values(), *(found for turn in later for found in turn.channels.values())):
            assert len(ranking.rows) == 7
            assert ranking.scores is not None
            assert (np.diff(ranking.scores) <= 0).all()
        kept = opening.channels["composed"]
        assert kept.scores is not None
        assert opening.result.scores is not None
        np.testing.assert_array_equal(kept.scores, opening.result.scores[:7])
