"""Intents of the adapted baselines."""

from __future__ import annotations

import random

import numpy as np
import pytest

from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Request
from covr_lab.engines.scripted import ScriptedEngine
from covr_lab.reasoning import ActionSatisfaction, IgnoreFeedback, MergedQuery, NewestFeedback
from covr_lab.reasoning.base import think
from covr_lab.types import Action, Context, Feedback, Intent, Query, RankedList, Reflection, Satisfaction, Session, Turn

ROW = RankedList(np.array([0], dtype=np.int32))


def context(session: Session, text: str, *, action: Action = "free", state: Reflection | None = None) -> Context:
    return Context(session, state or Reflection(query="a dog"), feedback=Feedback(action, text))


def play(reasoner: MergedQuery, edit: str, *said: str) -> list[str]:
    """Merged texts of a dialogue, one a turn."""
    session = Session(Query("s", "r", edit), (Turn(0, ROW),))
    for text in said:
        (thought,) = think([(reasoner, context(session, text))], {})
        assert not thought.fell_back
        session = session.then(Turn(len(session.turns), ROW, feedback=Feedback("free", text), intent=thought.answer))
    assert all(turn.intent and not turn.intent.search for turn in session.turns[1:])
    return [turn.intent.edit for turn in session.turns[1:] if turn.intent]


def test_the_newest_words_stand_behind_the_edit_and_before_the_older_ones() -> None:
    assert play(MergedQuery(), "make it night", "add  snow\n", "no people", "", "at sea") == [
        "make it night and add snow",
        "make it night and no people and add snow",
        "make it night and no people and add snow",
        "make it night and at sea and no people and add snow",
    ]
    assert play(MergedQuery(), "", "add snow", "no people") == ["add snow", "no people and add snow"]
    assert play(MergedQuery(), "at night and", "and snow", "and and") == [
        "at night and and and snow",
        "at night and and and and and and snow",
    ]


def test_older_words_are_compressed_when_fewer_than_ten_are_left() -> None:
    said = ("I would like to see a white cat in it", "with a hat")
    # 3 words of the edit, 9 said before, one "and" each way: 10 are left of 24, 9 of 23
    whole = "make it night and with a hat and I would like to see a white cat in it"
    assert play(MergedQuery(max_words=25), "make it night", *said)[-1] == whole
    short = "make it night and with a hat and like see white cat"
    assert play(MergedQuery(max_words=24), "make it night", *said)[-1] == short
    # A long feedback needs more than ten.
    long = "a black cat that sleeps on a red sofa in a house by the sea"
    assert play(MergedQuery(max_words=29), "make it night", said[0], long)[-1].endswith(
        " by the sea and like see white cat"
    )


def test_what_does_not_fit_loses_its_oldest_words_and_never_edit_or_newest() -> None:
    texts = play(MergedQuery(max_words=12), "make it night", "white cat", "red sofa", "blue house", "green tree")
    assert texts[-1] == "make it night and green tree and blue house red sofa white"
    assert play(MergedQuery(max_words=3), "make it night", "white cat", "red sofa") == [
        "make it night and white cat",
        "make it night and red sofa",
    ]
    draw = random.Random(0)
    for _ in range(200):
        edit, *said = (" ".join(draw.choices("abcdefgh", k=draw.randint(1, 12))) for _ in range(7))
        limit = draw.randint(1, 40)
        for text, newest in zip(play(MergedQuery(max_words=limit), edit, *said), said, strict=True):
            assert text.startswith(f"{edit} and {newest}")
            assert len(text.split()) <= max(limit, len(edit.split()) + 1 + len(newest.split()))
            assert not text.endswith(" and")


def test_a_model_compresses_only_what_does_not_fit() -> None:
    session = Session(Query("s", "r", "make it night"), (Turn(0, ROW),))
    older = "I would like to see a white cat in it"
    later = session.then(
        Turn(1, ROW, feedback=Feedback("free", older), intent=Intent(edit=f"make it night and {older}"))
    )
    now, wide, narrow = context(later, "with a hat"), MergedQuery(engine="e"), MergedQuery(engine="e", max_words=24)
    assert narrow.fingerprint
    assert not MergedQuery().fingerprint
    assert wide.render(now) == MergedQuery().render(now)
    assert isinstance(narrow.render(context(session, "a " * 40)), Intent)  # nothing has been said before
    request = narrow.render(now)
    assert isinstance(request, Request)
    assert (request.role, request.turn) == ("compress", 2)
    assert f"Said so far: {older}\n" in request.text
    assert "with a hat" not in request.text
    engine = ScriptedEngine({"s/2/compress": '{"query": " white\\n cat "}'})
    (thought,) = think([(narrow, now)], {"e": engine})
    assert thought.answer == Intent(edit="make it night and with a hat and white cat")
    (thought,) = think([(narrow, now)], {"e": ScriptedEngine({})})
    assert (thought.answer, thought.fell_back) == (MergedQuery(max_words=24).render(now), True)
    with pytest.raises(ParseError, match="query: must not be empty"):
        narrow.parse('{"query": " "}', now)


def test_a_rehearsal_is_of_the_turn_that_asks() -> None:
    now = context(Session(Query("s", "r", "make it night"), (Turn(0, ROW),)), "make it night")
    request = MergedQuery(engine="e").rehearse(now)
    assert (request.role, "Said so far: make it night\n" in request.text) == ("compress", True)
    for rule in (MergedQuery(), NewestFeedback()):
        with pytest.raises(TypeError, match=f"{type(rule).__name__} asks nothing"):
            rule.rehearse(now)


def test_newest_feedback_and_silence() -> None:
    session = Session(Query("s", "r", "make it night"), (Turn(0, ROW), Turn(1, ROW, feedback=Feedback("free", "old"))))
    now = context(session, " add\n snow ")
    for reasoner in (NewestFeedback(), IgnoreFeedback()):
        assert reasoner.render(now) == reasoner.fallback(now)
    assert NewestFeedback().render(now) == Intent(search="add snow")
    assert IgnoreFeedback().render(now) == Intent()


@pytest.mark.parametrize(
    ("action", "text", "signal"),
    [
        ("rewrite", "perfect", "negative"),
        ("answer", "perfect", "negative"),
        ("modify", "no, this is wrong", "neutral"),
        ("free", "no, this is wrong", "negative"),
        ("free", "perfect", "positive"),
        ("free", "...", "neutral"),
        ("free", "replace the dog with a cat", "neutral"),
    ],
)
def test_the_signal_follows_the_action_and_a_person_is_read(action: Action, text: str, signal: Satisfaction) -> None:
    state = Reflection("positive", ("beach",), ("dog",), ("snow",), "a dog on a beach")
    now = context(Session(Query("s", "r", "make it night"), (Turn(0, ROW),)), text, action=action, state=state)
    found = ActionSatisfaction().render(now)
    assert found == Reflection(signal, ("beach",), ("dog",), ("snow",), "a dog on a beach")  # the memory stays
    assert ActionSatisfaction().fallback(now).satisfaction == "neutral"
