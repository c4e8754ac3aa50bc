"""Stages inside the slot assembly: what they get at each turn, what they leave alone, what acts on their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from covr_lab.engines.base import Engine
from covr_lab.gallery.gallery import Gallery
from covr_lab.modular import ModularSystem
from covr_lab.ranking import GatedRerank, RankCap, StaticRRF, VerifyCluster
from covr_lab.ranking.channels import Channel
from covr_lab.ranking.stages import Refined, Stage, Work
from covr_lab.reasoning import IgnoreFeedback
from covr_lab.reasoning.base import IntentReasoner, Questioner, Reflector
from covr_lab.scorers.base import Pair
from covr_lab.types import Context, Event, Feedback, Intent, Query, RankedList, Reflection, Session
from tests.ranking.test_fold import IDS, Dice
from tests.ranking.toy import HashScorer, Judge, Model, Says

QUERIES = [Query("a", "v3", "edit a"), Query("b", None, "edit b"), Query("c", "v9", "edit c")]
CHANNELS = {"t2v": Channel("dice", "search"), "covr": Channel("dice", "edit", "shown")}


class Both(IntentReasoner):
    """Searches for what was said, and edits by it, too, unless it begins with "search"."""

    def render(self, context: Context) -> Intent:
        said = context.feedback.text if context.feedback else ""
        return Intent(search=said, edit="" if said.startswith("search") else f"now {said}")

    fallback = render


class Reject(Reflector):
    """Nothing pleases."""

    def render(self, context: Context) -> Reflection:
        return Reflection("negative", query=context.session.query.text)

    fallback = render


class Backwards(Stage):
    """Turns every order around, last video first."""

    name = "backwards"

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Work] = []

    def forward(self, works: Sequence[Work], engines: Mapping[str, Engine]) -> list[Refined]:
        self.seen += works
        return [Refined(RankedList(work.ranking.rows[::-1].copy()), routing={"seen": 1.0}) for work in works]


class Favourite(Stage):
    """Puts what is on display first again, whatever the user said of it."""

    name = "favourite"

    def forward(self, works: Sequence[Work], engines: Mapping[str, Engine]) -> list[Refined]:
        found = []
        for work in works:
            rows, turns = work.ranking.rows, work.context.session.turns
            first = turns[-1].result.rows[0] if turns else rows[0]
            found.append(Refined(RankedList(np.concatenate(([first], rows[rows != first])).astype(np.int32))))
        return found


def build(*stages: Stage, intent: IntentReasoner | None = None, **options: Any) -> ModularSystem:
    options = {"channels": dict(CHANNELS), **options}
    system = ModularSystem(
        retrievers={"dice": Dice()},
        opening="dice",
        intent=intent or Both(),
        fusion=StaticRRF(pool=7),
        stages={stage.name: stage for stage in stages},
        **options,
    )
    system.connect({"model": Model(lambda request: "yes")})
    system.load()
    system.bind(Gallery(IDS, {video: f"caption of {video}" for video in IDS}))
    return system


def play(system: ModularSystem, *said: str, queries: Sequence[Query] = QUERIES) -> list[Session]:
    sessions = [Session(query).then(turn) for query, turn in zip(queries, system.start(queries), strict=True)]
    for text in said:
        words = [Feedback("free", text) for _ in sessions]
        turns = system.step(sessions, words, [None] * len(sessions))
        sessions = [session.then(turn) for session, turn in zip(sessions, turns, strict=True)]
    return sessions


def lists(turn: Any) -> dict[str, list[int]]:
    return {name: ranking.rows.tolist() for name, ranking in turn.channels.items()}


def test_turn_zero_is_refined_and_memory_keeps_the_lists_of_retrieval() -> None:
    for plain, staged in zip(play(build(rm0="covr")), play(build(Backwards(), rm0="covr")), strict=True):
        before, after = plain.turns[0], staged.turns[0]
        assert after.result.rows.tolist() == before.result.rows.tolist()[::-1]
        assert after.result.scores is None
        assert lists(after) == lists(before)
        assert list(after.stages) == ["retrieval", "backwards"]
        assert after.stages["retrieval"] is not after.result
        np.testing.assert_array_equal(after.stages["retrieval"].scores, before.result.scores)
        assert after.routing == {"seen": 1, "failed": 0}
        assert list(after.stage_seconds) == ["retrieval", "backwards"]
        assert min(after.stage_seconds.values()) > 0
        assert (before.stages, before.routing, before.stage_seconds) == ({}, {}, {})


def test_a_later_turn_starts_from_the_refined_display_and_says_what_it_asked() -> None:
    stage = Backwards()
    sessions = play(build(stage), "said", "search this")
    first, second, third = (stage.seen[at : at + 3] for at in (0, 3, 6))
    assert [(work.source, work.text) for work in first] == [("v3", "edit a"), (None, "edit b"), ("v9", "edit c")]
    for turn, works, text in ((0, second, "now said"), (1, third, "search this")):
        shown = [IDS[session.turns[turn].result.rows[0]] for session in sessions]
        assert [(work.source, work.text) for work in works] == [(video, text) for video in shown]
        assert [len(work.context.session.turns) for work in works] == [turn + 1] * 3
        assert [work.context.feedback for work in works] == [Feedback("free", text.removeprefix("now "))] * 3


def test_the_reference_is_the_source_of_a_channel_that_starts_from_it() -> None:
    stage = Backwards()
    play(build(stage, channels={"covr": Channel("dice", "edit", "reference")}), "said")
    assert [work.source for work in stage.seen[3:]] == ["v3", None, "v9"]
    stage = Backwards()
    play(build(stage, channels={"t2v": Channel("dice", "search")}), "said")
    assert [work.source for work in stage.seen[3:]] == [None] * 3


def test_a_turn_that_asks_nothing_keeps_the_order_on_display() -> None:
    stage = Backwards()
    for session in play(build(stage, intent=IgnoreFeedback()), "said", "more"):
        orders = [turn.result.rows.tolist() for turn in session.turns]
        assert orders[0] == orders[1] == orders[2]
        assert [list(turn.stages) for turn in session.turns] == [["retrieval", "backwards"], [], []]
    assert len(stage.seen) == 3


@pytest.mark.parametrize(("turns", "expected"), [("opening", [1, 0, 0]), ("later", [0, 1, 1]), ("all", [1, 1, 1])])
def test_a_recipe_says_which_turns_are_refined(turns: str, expected: list[int]) -> None:
    for session in play(build(Backwards(), stage_turns=turns), "said", "more"):
        assert [len(turn.stages) > 0 for turn in session.turns] == expected


@pytest.mark.parametrize("scope", ["window", "current"])
def test_a_rejected_video_does_not_come_first_again(scope: str) -> None:
    """Guards act on the last order as on the fused one; a plan without a guard leaves the stage alone."""
    policy = RankCap(negative=5, scope=scope)  # type: ignore[arg-type]
    for session in play(build(Favourite(), policies=[policy], reflection=Reject()), "said"):
        opening, turn = session.turns
        rejected = int(opening.result.rows[0])
        assert sorted(turn.result.rows) == sorted(opening.result.rows)
        assert turn.stages["favourite"] is turn.result
        if scope == "window":
            assert turn.result.rank(rejected) == 5
            assert turn.events[-1] == Event("stage_guarded", IDS[rejected])
            rest = [row for row in turn.stages["retrieval"].rows.tolist() if row != rejected]
            assert [row for row in turn.result.rows.tolist() if row != rejected] == rest
        else:
            assert turn.result.rank(rejected) == 1


def test_a_stage_does_not_show_again_what_the_user_went_on_from() -> None:
    """The policy did not plan for it, for retrieval alone would have shown another video."""
    for session in play(build(Favourite(), policies=[RankCap(neutral=4)]), "said"):
        opening, turn = session.turns
        before = int(opening.result.rows[0])
        assert turn.stages["retrieval"].rows[0] != before
        assert turn.result.rank(before) == 4
        assert [(cap.row, cap.position, cap.reason, cap.scope, cap.fired) for cap in turn.caps] == [
            (before, 4, "stagnant", "order", True)
        ]
        assert lists(turn) == lists(
            play(build(policies=[RankCap(neutral=4)]), "said")[QUERIES.index(session.query)].turns[1]
        )


class Remote(HashScorer):
    """Each call keeps four requests in flight, of a second each."""

    busy = 0.0

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        self.busy += 4.0
        return super().score(pairs)


def test_the_seconds_of_scoring_are_shared_out_over_the_queries() -> None:
    scorer = Remote()
    turns = [session.turns[0] for session in play(build(GatedRerank(scorer=scorer, gap=2.0)))]
    assert sum(turn.stage_seconds["scoring"] for turn in turns) == pytest.approx(scorer.busy)
    assert scorer.busy >= 4
    assert all(turn.stage_seconds["reranking"] < 4 for turn in turns)


def cascade() -> list[Stage]:
    return [GatedRerank(scorer=HashScorer(), describer=Says(), gap=2.0), VerifyCluster(verifier=Judge())]


def test_a_cascade_gives_the_same_turns_in_any_batch() -> None:
    queries = [Query(f"q{n}", f"v{n % 12}", f"edit {n}") for n in range(20)]
    whole = play(build(*cascade()), "said", "more", queries=queries)
    alone = [play(build(*cascade()), "said", "more", queries=[query])[0] for query in queries]
    for one, same in zip(whole, alone, strict=True):
        for turn, other in zip(one.turns, same.turns, strict=True):
            assert turn.result.rows.tolist() == other.result.rows.tolist()
            assert (turn.routing, turn.events, turn.calls) == (other.routing, other.events, other.calls)
            assert sorted(turn.result.rows) == sorted(one.turns[0].result.rows)
    assert any(turn.routing["promoted"] > 0 for session in whole for turn in session.turns)


def test_engines_and_fingerprints_of_stages_are_the_systems() -> None:
    system = ModularSystem(
        retrievers={"dice": Dice()},
        opening="dice",
        channels=dict(CHANNELS),
        intent=Both(),
        fusion=StaticRRF(),
        stages={"rerank": cascade()[0], "off": None, "verify": cascade()[1]},
    )
    with pytest.raises(ValueError, match=r"system\.stages\.rerank\.describer\.engine names engine 'model'"):
        system.connect({})
    assert system.connect({"model": Model(lambda request: "no")}) == {"model"}
    system.bind(Gallery(IDS, {}))
    assert system.fingerprints == {
        "retrievers.dice": "dice",
        "engines.model": "model",
        "stages.rerank.scorer": "table",
    }
    assert system.proxy is None
    rehearsal = system.rehearse(QUERIES[0])
    assert [request.role for request in rehearsal.opening] == ["describe", *["verify"] * 10]
    assert [(request.role, request.turn) for request in rehearsal.turn] == [("describe", 1), *[("verify", 1)] * 10]


def test_an_oracle_is_named_beside_the_proxy_of_the_retriever() -> None:
    retriever, stage = Dice(), cascade()[0]
    retriever.proxy = "captions"
    assert isinstance(stage, GatedRerank)
    stage.scorer.proxy = "an oracle"
    assert build(stage).proxy == "an oracle"
    system = ModularSystem(
        retrievers={"dice": retriever},
        opening="dice",
        channels=dict(CHANNELS),
        intent=Both(),
        fusion=StaticRRF(),
        stages={"rerank": stage},
    )
    assert system.proxy == "captions; an oracle"


def test_two_stages_of_a_kind_are_refused() -> None:
    stages: dict[str, Stage | None] = {"one": Backwards(), "two": Backwards()}
    with pytest.raises(ValueError, match=r"two of a kind, .*: one \(backwards\), two \(backwards\)"):
        ModularSystem(
            retrievers={"dice": Dice()},
            opening="dice",
            channels=dict(CHANNELS),
            intent=Both(),
            fusion=StaticRRF(),
            stages=stages,
        )


def test_candidates_of_a_refined_turn_keep_their_similarities() -> None:
    """They are known from the order of retrieval, which stands beside the refined one."""

    class Curious(Questioner):
        def render(self, context: Context) -> str:
            seen.append(context)
            return "Why?"

        fallback = render

    seen: list[Context] = []
    system = build(Backwards(), questioner=Curious())
    sessions = play(system)
    system.ask(sessions)
    for context, session in zip(seen, sessions, strict=True):
        known = session.turns[0].stages["retrieval"].scores
        assert known is not None
        assert context.scores == pytest.approx(known[::-1][:5].tolist())
