from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Call, Request, Response
from covr_lab.engines.scripted import ScriptedEngine
from covr_lab.reasoning.base import IntentReasoner, Reasoner, Reflector, think
from covr_lab.reasoning.intent import ConcatHistory, DualChannelIntent, InitialQuery, fit_words, initial_query
from covr_lab.reasoning.questions import ATTRIBUTES, FALLBACK, ConstraintQuestion, open_question
from covr_lab.reasoning.reflection import LIMIT, StateReflector, merge_constraints
from covr_lab.types import Context, Feedback, Intent, Query, RankedList, Reflection, Session, Turn

ROW = RankedList(np.array([0], dtype=np.int32))
UNREADABLE = "..."


def context(*said: str, edit: str = "make it night", name: str = "q", caption: str = "", **more: Any) -> Context:
    """Feedback of each turn, the last one newest; the running query is ``query``."""
    session = Session(Query(name, "r", edit), (Turn(0, ROW),))
    for text in said[:-1]:
        session = session.then(Turn(len(session.turns), ROW, feedback=Feedback("free", text)))
    state = more.pop("state", Reflection(query=str(more.pop("query", ""))))
    newest = Feedback("free", said[-1]) if said else None
    return Context(session, state, feedback=newest, reference_caption=caption, **more)


@pytest.mark.parametrize(
    ("caption", "edit", "expected"),
    [
        ("Woman eating carrot in garden", "replace the carrot with a banana", "Woman eating banana in garden"),
        ("A dog on the beach", "add snow", "A dog on the beach, snow"),
        ("", "replace the dog with a cat", "replace the dog with a cat"),
        ("A dog on the beach", "", "A dog on the beach"),
        ("", UNREADABLE, UNREADABLE),
    ],
)
def test_initial_query(caption: str, edit: str, expected: str) -> None:
    assert initial_query(caption, edit) == expected
    (thought,) = think([(InitialQuery(), context(edit=edit, caption=caption))], {})
    assert thought.answer == expected


def test_initial_query_of_an_edit_that_is_not_understood() -> None:
    """Dossier, section 1.2: caption and edit side by side; 11 of the 2,556 edits of WebVid-CoVR-Test need it."""
    (thought,) = think([(InitialQuery(), context(edit="make her", caption="A dog"))], {})
    assert (thought.answer, thought.fell_back) == ("A dog, but make her", True)


def test_dual_channel_intent() -> None:
    said = ("replace the dog with a cat", "no people", "add snow")
    now = context(*said, edit="a dog on the beach", query="a bird")
    assert DualChannelIntent().render(now) == Intent("a bird, snow", "add snow")
    # The composed channel alone: the edit and every change since, the newest last.
    assert DualChannelIntent(edit="rolling").render(now) == Intent("a bird, snow", "a cat on the beach, snow")
    swapped = context("replace the dog with a cat", query="a dog on the beach")
    assert DualChannelIntent().render(swapped) == Intent("a cat on the beach", "replace dog with cat")


def test_a_new_description_leaves_the_composed_channel_silent() -> None:
    intent = DualChannelIntent().render(context("I want a parrot in a cage", query="a dog"))
    assert intent.edit == ""
    assert "parrot" in intent.search


def test_an_unreadable_feedback_falls_back_and_says_so() -> None:
    now = context("add snow", UNREADABLE, query="a dog on the beach")
    for reasoner in (DualChannelIntent(), DualChannelIntent(edit="rolling")):
        with pytest.raises(ParseError, match="nothing understood"):
            reasoner.render(now)
        (thought,) = think([(reasoner, now)], {})
        assert thought.fell_back
        assert thought.answer == Intent(f"a dog on the beach; {UNREADABLE}", "")
        assert thought.calls == ()
    # A bare verdict is understood: there is nothing to add to the query, and the signal is the reflector's.
    for verdict in ("no, this is wrong", "perfect"):
        (thought,) = think([(DualChannelIntent(), context(verdict, query="a dog"))], {})
        assert (thought.answer, thought.fell_back) == (Intent("a dog", ""), False)


def test_concat_history() -> None:
    now = context("add snow", "no people", edit="make it night", caption="A dog")
    assert ConcatHistory().render(now) == Intent(edit="make it night [SEP] add snow [SEP] no people")
    text = ConcatHistory(query="search", separator=". ", caption=True)
    assert text.render(now) == Intent(search="A dog. make it night. add snow. no people")
    assert text.render(context("add snow", edit="")) == Intent(search="add snow")
    # Ten turns of twenty words: the edit and the newest feedback reach the encoder (pitfall F6).
    turns = [f"turn{turn} " + "word " * 19 for turn in range(10)]
    kept = ConcatHistory(max_words=160).render(context(*turns)).edit
    assert len(kept.replace("[SEP]", "").split()) <= 160
    assert [piece.split()[0] for piece in kept.split(" [SEP] ")] == ["make", *(f"turn{turn}" for turn in range(3, 10))]


@pytest.mark.parametrize(
    ("limit", "kept"),
    [(99, [0, 1, 2, 3]), (8, [0, 1, 2, 3]), (7, [0, 2, 3]), (5, [0, 2, 3]), (4, [0, 3]), (3, [0, 3]), (1, [0, 3])],
)
def test_fit_words(limit: int, kept: list[int]) -> None:
    pieces = ["the edit", "three old words", "w", "w w"]
    assert fit_words(pieces, limit) == [pieces[index] for index in kept]
    assert fit_words([], limit) == []
    assert fit_words(["a caption", *pieces], limit + 2, keep=2) == ["a caption", *(pieces[index] for index in kept)]


def test_merge_constraints() -> None:
    state = Reflection("negative", keep=("beach",), require=("dog", "snow"), avoid=("people",), query="a dog")
    merged = merge_constraints(state, [], ["People", "night"], ["SNOW"])
    assert merged == Reflection("negative", ("beach",), ("dog", "People", "night"), ("SNOW",), "a dog")
    assert merge_constraints(state, ["dog"], [], []).require == ("snow",)
    assert merge_constraints(state, [], ["DOG"], []).require == ("snow", "DOG")  # said again: the newest


def test_only_the_newest_dozen_constraints_stay() -> None:
    state = Reflection()
    for number in range(20):
        state = merge_constraints(state, [], [f"thing{number}"], [f"other{number}"])
    assert LIMIT == 12
    assert state.require == tuple(f"thing{number}" for number in range(8, 20))
    assert state.avoid == tuple(f"other{number}" for number in range(8, 20))


def test_state_reflector() -> None:
    state = Reflection(require=("dog",), avoid=("snow",), query="a dog on the beach")
    reflect = StateReflector().render
    assert reflect(context("replace the dog with a cat", state=state)) == Reflection(
        "neutral", (), ("cat",), ("snow", "dog"), "a cat on the beach"
    )
    unchanged = replace(state, satisfaction="negative")
    assert reflect(context("no, this is wrong", state=state)) == unchanged
    assert reflect(context("perfect", state=state)) == replace(unchanged, satisfaction="positive")
    assert reflect(context(UNREADABLE, state=unchanged)) == state
    # "No" rejects the video, unless it answers a question.
    assert reflect(context("no", state=state)).satisfaction == "negative"
    assert reflect(context("no", state=state, question="Is it winter?")).satisfaction == "neutral"


def test_open_question() -> None:
    questions = list(ATTRIBUTES.values())
    first_words = [words.split()[0] for words in ATTRIBUTES]
    for number, question in enumerate(questions):
        assert open_question(Reflection(query=" ".join(first_words[:number]))) == question
        assert open_question(Reflection(require=tuple(first_words[:number]))) == question
    assert open_question(Reflection(keep=(first_words[0],), avoid=(first_words[1],))) == questions[2]
    assert open_question(Reflection(query=" ".join(first_words))) == FALLBACK
    for question in (*questions, FALLBACK):
        assert len(question.split()) <= 20
        assert question.split()[0] in {"Who", "What", "Where", "Which", "How"}
    (thought,) = think([(ConstraintQuestion(), context(query="a man walking"))], {})
    assert thought.answer == questions[2]


class Counting(ScriptedEngine):
    """Counts its calls and charges for them."""

    def __init__(self, answers: dict[str, str]) -> None:
        super().__init__(answers)
        self.asked: list[list[str]] = []

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        self.asked.append([f"{item.session_id}/{item.turn}/{item.role}" for item in requests])
        return [Response(answer.text, 10, len(answer.text)) for answer in super().generate(requests)]


class AskedIntent(IntentReasoner):
    engine = "small"

    def render(self, context: Context) -> Request:
        query = context.session.query
        return Request("intent", (f"{query.text}?",), query.session_id, len(context.session.turns))

    def parse(self, text: str, context: Context) -> Intent:
        if not text.startswith("search: "):
            raise ParseError("no search line")
        return Intent(f"{context.session.query.session_id} {text.removeprefix('search: ')}")

    def fallback(self, context: Context) -> Intent:
        return Intent(f"fallback {context.session.query.session_id}")


class AskedReflection(Reflector):
    engine = "large"

    def render(self, context: Context) -> Request:
        return Request("reflection", (), context.session.query.session_id, len(context.session.turns))

    def parse(self, text: str, context: Context) -> Reflection:
        return Reflection("negative", query=text)

    def fallback(self, context: Context) -> Reflection:
        raise AssertionError("not needed")


class SameEngine(AskedReflection):
    engine = "small"


def test_think_asks_each_engine_once_and_keeps_the_order() -> None:
    small = Counting({"a/1/intent": "search: red", "c/1/intent": "what?", "b/1/reflection": "calm"})
    large = Counting({"a/1/reflection": "angry"})
    a, b, c = (context("add snow", name=name, query="a dog") for name in "abc")
    rule, asked = DualChannelIntent(), AskedIntent()
    jobs: list[tuple[Reasoner[Any], Context]] = [
        (asked, c),
        (rule, a),
        (AskedReflection(), a),
        (asked, a),
        (SameEngine(), b),
        (rule, b),
        (asked, b),
    ]
    thoughts = think(jobs, {"small": small, "large": large})
    assert small.asked == [["c/1/intent", "a/1/intent", "b/1/reflection", "b/1/intent"]]
    assert large.asked == [["a/1/reflection"]]
    assert [thought.answer for thought in thoughts] == [
        Intent("fallback c"),  # an answer that cannot be read
        Intent("a dog, snow", "add snow"),
        Reflection("negative", query="angry"),
        Intent("a red"),
        Reflection("negative", query="calm"),
        Intent("a dog, snow", "add snow"),
        Intent("fallback b"),  # no answer in the script
    ]
    assert [thought.fell_back for thought in thoughts] == [True, False, False, False, False, False, True]
    # What could not be read was paid for all the same; a rule costs nothing.
    spent = [[(call.valid, call.response.tokens_out) for call in thought.calls] for thought in thoughts]
    assert spent == [[(False, 5)], [], [(True, 5)], [(True, 11)], [(True, 4)], [], [(False, 0)]]
    assert think([], {}) == []
    assert think([(rule, a)], {"small": small})[0].answer == Intent("a dog, snow", "add snow")
    assert len(small.asked) == 1  # nothing to ask, no call


def test_a_reasoner_that_asks_must_read_the_answer() -> None:
    class Forgetful(AskedIntent):
        parse = IntentReasoner.parse

    (thought,) = think([(Forgetful(), context("add snow", name="s7"))], {"small": Counting({"s7/1/intent": "hello"})})
    request = Request("intent", ("make it night?",), "s7", 1)
    calls = (Call(request, Response("hello", 10, 5), False),)
    assert (thought.answer, thought.fell_back, thought.calls) == (Intent("fallback s7"), True, calls)
