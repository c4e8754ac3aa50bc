"""Questions and answers as statements, and the text that grows by them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from covr_lab.reasoning import StatementHistory
from covr_lab.reasoning.statements import pieces, session_pieces, statement
from covr_lab.types import Context, Exchange, Feedback, Part, Probe, Query, RankedList, Reflection, Session, Turn

ROW = RankedList(np.array([0], dtype=np.int32))


@pytest.mark.parametrize(
    ("question", "answer", "made"),
    [
        # what does, did, do ... do: the answer in the place of "do"
        ("What does the man do?", "sings", "the man sings"),
        ("What did the girls do at night?", "dance", "the girls dance at night"),
        ("What do the dogs do?", "run", "the dogs run"),
        ("What does the man eat?", "rice", ""),
        # what ... is, are: doing, else the answer behind
        ("What is the man doing?", "cooking", "the man cooking"),
        ("What are the men doing in the car?", "singing", "the men singing in the car"),
        ("What color is the car?", "Red", "the car is red"),
        ("What are they?", "cats", "they are cats"),
        ("What is this, and where are they", "a zoo", "this, and where are they is a zoo"),
        ("What 's in the box?", "a toy", "a toy in the box"),
        ("What\u2019s the man doing", "cooking", "the man cooking"),
        ("What sport", "tennis", ""),
        ("What is?", "tennis", ""),
        ("What?", "tennis", ""),
        # how many
        ("How many people are there?", "0", "no people are"),
        ("How many people are there?", "1", "a people are"),
        ("How many people are there?", "2", "a few people are"),
        ("How many people are there?", "10", "a few people are"),
        ("How many people are there?", "11", "many people are"),
        ("How many people are there?", "two", ""),
        ("How many people are there?", "-1", ""),
        ("How old is he?", "2", ""),
        # who, where
        ("Who is singing?", "a girl", "a girl is singing"),
        ("Who sings?", "a girl", "a girl sings"),
        ("Where is the cat?", "on the sofa", "the cat is on the sofa"),
        ("Where are the cats?", "outside", "the cats are outside"),
        ("Where does it take place?", "park", "it take place are park"),  # as released: two words go, "are" comes
        ("Where is?", "park", ""),
        # anything else, and nothing said
        ("Is it night?", "yes", ""),
        ("Which dog runs?", "the black one", ""),
        ("", "yes", ""),
        ("?", "yes", ""),
        ("What is the man doing?", "  ", ""),
    ],
)
def test_statements(question: str, answer: str, made: str) -> None:
    assert statement(question, answer) == made


def said(*rounds: tuple[str | None, Feedback], query: str = "a dog", newest: tuple[str | None, Feedback]) -> Context:
    session = Session(Query("q", None, query), (Turn(0, ROW),))
    for question, feedback in rounds:
        session = session.then(Turn(len(session.turns), ROW, question, feedback))
    return Context(session, Reflection(query=query), feedback=newest[1], question=newest[0])


def words(text: str) -> Feedback:
    return Feedback("free", text, "human")


def exchanged(*pairs: tuple[str, Part, str]) -> Feedback:
    exchanges = tuple(Exchange(Probe(question, part), answer) for question, part, answer in pairs)
    return Feedback("answer", "side by side", exchanges=exchanges)


FIRST = exchanged(
    ("Where is the dog?", "whole", "beach"),
    ("Where is the dog?", "first half", "beach"),
    ("Where is the dog?", "second half", "sea"),
)
SECOND = exchanged(("What color is the dog?", "whole", "black"), ("Is it?", "first half", "yes"))


def test_pieces_are_joined_in_their_order_each_once_and_empty_ones_dropped() -> None:
    now = said(("Where is the dog?", FIRST), newest=("What color is the dog?", SECOND))
    wanted = ["a dog", "the dog is beach", "the dog is sea", "the dog is black"]
    assert StatementHistory().render(now).search == " [SEP] ".join(wanted)
    assert StatementHistory(separator=" and ").render(now).search == " and ".join(wanted)
    assert StatementHistory().render(now).edit == ""
    assert session_pieces(now.session) == wanted[:-1]
    assert StatementHistory().render(replace(now, feedback=FIRST)).search == " [SEP] ".join(wanted[:-1])


def test_words_of_a_person_answer_the_question_or_stand_for_themselves() -> None:
    now = said(("Where is the dog?", words("by the sea")), newest=("Is it night?", words("no, it is  noon")))
    assert StatementHistory().render(now).search == "a dog [SEP] the dog is by the sea [SEP] no, it is noon"
    unasked = said(newest=(None, words("it swims")))
    assert StatementHistory().render(unasked).search == "a dog [SEP] it swims"
    assert StatementHistory().render(said(newest=(None, words(" ")))).search == "a dog"


def test_what_does_not_fit_falls_off_at_the_end_or_before_the_newest() -> None:
    """Without a limit the encoder cuts; with one the oldest answers go, the first query and the newest piece stay."""
    now = said(("Where is the dog?", FIRST), newest=("What color is the dog?", SECOND))
    assert StatementHistory(max_words=10).render(now).search == "a dog [SEP] the dog is sea [SEP] the dog is black"
    assert StatementHistory(max_words=1).render(now).search == "a dog [SEP] the dog is black"


@pytest.mark.parametrize(
    ("place", "kept", "released"),
    [
        ("in snow", True, False),
        ("north pole", True, False),
        ("no", False, False),
        ("no where", False, False),
        ("nowhere", False, False),
        ("unknown", False, False),
        ("kitchen", True, True),
    ],
)
def test_a_place_is_dropped_for_its_word_and_as_released_for_its_letters(
    place: str, kept: bool, released: bool
) -> None:
    exchanges = [
        Exchange(Probe("What are the men doing?", slot="doing"), "skiing"),
        Exchange(Probe("Where are the men skiing?", slot="where"), place),
    ]
    with_place, without = [f"men are skiing {place}"], ["men are skiing"]
    assert pieces(exchanges) == (with_place if kept else without)
    assert pieces(exchanges, released=True) == (with_place if released else without)


def test_a_round_that_broke_off_leaves_the_pieces_that_have_something_to_say() -> None:
    doing, place = Probe("What is the man doing?", slot="doing"), Probe("Where is the man?", slot="where")
    assert pieces([Exchange(doing, "")]) == []
    assert pieces([Exchange(doing, ""), Exchange(place, "in a car")]) == ["man is in a car"]
    assert pieces([Exchange(Probe("What is the object?", slot="object"), "")]) == []
    assert pieces([Exchange(Probe("What is the object?", slot="object"), "cup")]) == []
    assert pieces([]) == []
