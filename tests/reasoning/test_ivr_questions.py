"""IVR's rounds: which questions a query leads to, in which order, against tables written by hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Request
from covr_lab.reasoning import AutoTextQuestion, HeuristicQuestions
from covr_lab.reasoning.auto_text import QUESTIONS
from covr_lab.reasoning.base import Questioner
from covr_lab.reasoning.heuristic import PEOPLE, first_question
from covr_lab.reasoning.interview import Interview
from covr_lab.reasoning.statements import pieces
from covr_lab.types import Context, Exchange, Feedback, Probe, Query, RankedList, Reflection, Session, Turn

ROW = RankedList(np.array([0], dtype=np.int32))
SHORT = {"whole": "W", "first half": "1", "second half": "2"}


def context(query: str, *turns: tuple[str, str], candidates: tuple[str, ...] = ()) -> Context:
    session = Session(Query("q", None, query), (Turn(0, ROW),))
    for question, answer in turns:
        turn = Turn(len(session.turns), ROW, question, Feedback("answer", answer))
        session = session.then(turn)
    return Context(session, Reflection(query=query), candidates=candidates)


def round_of(questioner: Questioner, now: Context) -> Interview:
    question = questioner.render(now)
    assert isinstance(question, str)
    interview = questioner.interview(now, question)
    assert interview is not None
    assert interview.following(())[0].text == question  # what a user hears who hears one question
    return interview


def played(interview: Interview, answers: Mapping[str, str]) -> tuple[list[list[str]], list[Exchange]]:
    """Questions of each step, as part and text; an answer is looked up by both, by the text alone, or is "thing"."""
    said, steps = list[Exchange](), list[list[str]]()
    while probes := interview.following(said):
        names = [f"{SHORT[probe.part]} {probe.text}" for probe in probes]
        steps.append(names)
        found = [answers.get(name) or answers.get(name[2:], "thing") for name in names]
        said += [Exchange(probe, answer) for probe, answer in zip(probes, found, strict=True)]
        assert len(steps) < 10
    return steps, said


@pytest.mark.parametrize(
    ("query", "question"),
    [
        ("a man is cooking", "What is the man doing?"),
        ("a woman and a man", "What is the man doing?"),  # earlier in the list, later in the query
        ("Two Girls dance", "What are the girls doing?"),
        ("a family of people", "What are the people doing?"),
        ("the family eats", "What is the family doing?"),
        ("models walk", "What are the models doing?"),
        ("a manx cat", "Is this cartoon?"),  # whole words
        ("a man, cooking", "Is this cartoon?"),  # between blanks: the comma belongs to the word
        ("", "Is this cartoon?"),
    ],
)
def test_the_first_question_follows_from_the_first_person_of_the_list(query: str, question: str) -> None:
    assert first_question(query).text == question


def test_the_list_of_people_has_seventeen_words_and_their_verbs() -> None:
    plural = {"people", "men", "women", "girls", "boys", "children", "models"}
    assert len(PEOPLE) == 17
    assert {word for word, verb in PEOPLE.items() if verb == "are"} == plural
    assert set(PEOPLE.values()) == {"is", "are"}


def test_a_round_about_a_person() -> None:
    """Twelve questions in three steps, six pieces with the query (Liang and Albanie, ICCV 2023)."""
    answers = {
        "W What is the man doing?": "cooking",
        "W Where is the man cooking?": "in kitchen",
        "1 What is the man doing?": "cutting",
        "1 Where is the man cutting?": "table",
        "1 What is the object?": "knife",
        "1 What color is the knife?": "silver",
        "1 Where is the silver knife?": "on board",
        "2 What is the man doing?": "eating",
        "2 Where is the man eating?": "in the snow",
        "2 What is the object?": "spoon",
        "2 What color is the spoon?": "red",
        "2 Where is the red spoon?": "in hand",
    }
    steps, said = played(round_of(HeuristicQuestions(), context("a man makes food")), answers)
    assert steps == [
        [
            "W What is the man doing?",
            "1 What is the man doing?",
            "1 What is the object?",
            "2 What is the man doing?",
            "2 What is the object?",
        ],
        [
            "W Where is the man cooking?",
            "1 Where is the man cutting?",
            "1 What color is the knife?",
            "2 Where is the man eating?",
            "2 What color is the spoon?",
        ],
        ["1 Where is the silver knife?", "2 Where is the red spoon?"],
    ]
    assert pieces(said) == [
        "man is cooking in kitchen",
        "man is cutting table",
        "silver knife is on board",
        "man is eating in the snow",
        "red spoon is in hand",
    ]
    assert pieces(said, released=True)[3] == "man is eating"  # "snow" has a "no" in it


CASES: list[tuple[dict[str, str], list[str], list[str]]] = [
    (
        {"Is this cartoon?": "yes", "What is the character?": "bear", "What is the bear doing?": "dancing"},
        ["W Is this cartoon?", "W What is the character?", "W What is the bear doing?"],
        ["bear is dancing"],
    ),
    (
        {
            "Is this cartoon?": "no",
            "Is there any animal?": "Yes, a cat",
            "What is the animal?": "cat",
            "What is the cat doing?": "sleeping",
            "Where is the cat?": "on sofa",
        },
        [
            "W Is this cartoon?",
            "W Is there any animal?",
            "W What is the animal?",
            "W What is the cat doing?",
            "W Where is the cat?",
        ],
        ["cat is sleeping on sofa"],
    ),
    (
        {
            "Is this cartoon?": "no",
            "Is there any animal?": "no",
            "What is the object?": "car",
            "What color is the car?": "blue",
            "Where is the blue car?": "on road",
        },
        [
            "W Is this cartoon?",
            "W Is there any animal?",
            "W What is the object?",
            "W What color is the car?",
            "W Where is the blue car?",
        ],
        ["blue car is on road"],
    ),
]


@pytest.mark.parametrize(("answers", "asked", "made"), CASES, ids=["cartoon", "animal", "object"])
def test_a_round_without_a_person(answers: dict[str, str], asked: list[str], made: list[str]) -> None:
    questioner = HeuristicQuestions(segments=False, objects=False)
    steps, said = played(round_of(questioner, context("fast and loud")), answers)
    assert steps == [[question] for question in asked]
    assert pieces(said) == made


def test_an_object_that_both_chains_of_a_half_ask_for_is_asked_for_once() -> None:
    """Without person, cartoon or animal all goes the way of the object: five questions about each part."""
    answers = {"Is this cartoon?": "no", "Is there any animal?": "no", "W What is the object?": "road"}
    steps, said = played(round_of(HeuristicQuestions(), context("traffic")), answers)
    assert len(said) == len(set(said)) == 15
    assert len(steps) == 5
    assert pieces(said) == ["thing road is thing", "thing thing is thing"]


@pytest.mark.parametrize(
    ("options", "count"), [((True, True), 12), ((True, False), 6), ((False, True), 8), ((False, False), 2)]
)
def test_segments_and_objects_can_be_left_out(options: tuple[bool, bool], count: int) -> None:
    questioner = HeuristicQuestions(segments=options[0], objects=options[1])
    _, said = played(round_of(questioner, context("a girl sings")), {})
    assert len(said) == count


def test_the_released_code_asks_what_the_yes_of_a_cartoon_is_doing() -> None:
    questioner = HeuristicQuestions(segments=False, objects=False, released=True)
    steps, _ = played(round_of(questioner, context("traffic")), {"Is this cartoon?": "yes"})
    assert steps[-1] == ["W What is the yes doing?"]


def test_a_round_is_a_value() -> None:
    one, same = (round_of(HeuristicQuestions(), context(query)) for query in ("a man runs", "the man"))
    assert one == same
    assert one != round_of(HeuristicQuestions(objects=False), context("a man runs"))


def test_auto_text_asks_its_question_three_times_and_for_two_objects() -> None:
    steps, said = played(round_of(AutoTextQuestion(), context("a dog")), {"1 What is the main subject?": "a dog"})
    assert steps[0] == [
        "W What is the main subject?",
        "1 What is the main subject?",
        "2 What is the main subject?",
        "1 What is the object?",
        "2 What is the object?",
    ]
    assert len(said) == 3 + 2 * 3
    assert pieces(said) == ["the main subject is thing", "the main subject is a dog", "thing thing is thing"]
    assert [len(step) for step in steps] == [5, 2, 2]


def test_the_rule_goes_through_its_list_and_begins_again() -> None:
    turns, asked = list[tuple[str, str]](), list[str]()
    for _ in range(7):
        question = AutoTextQuestion().render(context("a dog", *turns))
        assert isinstance(question, str)
        asked.append(question)
        turns.append((question, "two"))
    assert asked == [*QUESTIONS, QUESTIONS[0]]


def test_an_engine_reads_the_pieces_and_of_text_vid_the_best_captions() -> None:
    now = context("a dog", ("Where is the dog?", "a beach"), candidates=("a cat in snow", "a dog by the sea"))
    for source, seen in (("text", False), ("text_vid", True)):
        questioner = AutoTextQuestion(source=source, engine="llm")  # type: ignore[arg-type]
        request = questioner.render(now)
        assert isinstance(request, Request)
        (content,) = request.content
        assert isinstance(content, str)
        assert "a dog, the dog is a beach" in content
        assert ("a dog by the sea" in content) is seen
        assert questioner.parse("What is the dog doing?\n", now) == "What is the dog doing?"
        with pytest.raises(ParseError):
            questioner.parse("Is it a dog?", now)
    assert len({AutoTextQuestion(source=s, engine="llm").fingerprint for s in ("text", "text_vid")}) == 2  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prompt suite"):
        AutoTextQuestion(engine="llm", prompts="nowhere")


def test_an_opening_that_is_no_person_question_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="Who is it"):
        pieces([Exchange(Probe("Who is it?", slot="doing"), "a man")])
