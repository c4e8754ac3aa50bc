"""The parser against what a reader of English expects, and against the real edits of WebVid-CoVR."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covr_lab.functional.text import content_words
from covr_lab.reasoning.english import RULES, Rule
from covr_lab.reasoning.language import Clause, _read, _segments, apply_clauses, parse_feedback, relative_edit

# text | words to require | to avoid | to keep | satisfaction: + positive, - negative, 0 neutral
FEEDBACK = """
replace the dog with a cat | cat | dog | | 0
Could you please swap the apple for a pear? | pear | apple | | 0
change the man into a woman | woman | man | | 0
turn it into a fountain | fountain | | | 0
The dog should become a wolf | wolf | dog | | 0
the oranges are replaced by cherries | cherries | oranges | | 0
substitute milk for water | milk | water | | 0
change from day to night | night | day | | 0
make the woman a man | man | woman | | 0
make the tree lit | tree lit | | | 0
make the pencil blue | blue pencil | | | 0
make it night | night | | | 0
make them run | run | | | 0
change the color of the car to red | red color car | | | 0
change the red car to a blue car | blue car | red | | 0
change the background to a beach | background beach | | | 0
the sky should be darker | sky darker | | | 0
I want the dog to be black | black dog | | | 0
a cat instead of a dog | cat | dog | | 0
instead of a dog, show a cat | cat | dog | | 0
have her express anger rather than boredom | anger express | boredom | | 0
not a cat but a dog | dog | cat | | 0
It's not a cat, it's a dog | dog | cat | | 0
wiping a knife, not a plate | wiping knife | plate | | 0
This is a cat, I want a dog | dog | cat | | 0
replace the cat with a dog and the car with a bike | dog bike | cat car | | 0
the street is no longer wet | | wet | | 0
please add some trees | trees | | | 0
there should be more people in the scene | people | | | 0
it needs more light | light | | | 0
needs more snow and fewer people | snow | people | | 0
I don't see a dog | dog | | | 0
it's not dark enough | dark | | | 0
with a red umbrella | red umbrella | | | 0
make it more colorful and less busy | colorful | busy | | 0
remove the hat, the scarf and the glasses | | hat scarf glasses | | 0
get rid of the people in the background | | people | | 0
take the hat off | | hat | | 0
lose the glasses | | glasses | | 0
a street without people | street | people | | 0
no dogs, cats or birds | | dogs cats birds | | 0
no people, blue sky | blue sky | people | | 0
no more rain | | rain | | 0
the man doesn't have a hat | | hat | | 0
she is not wearing glasses | | glasses | | 0
it should not be night | | night | | 0
the dog shouldn't be there | | dog | | 0
I don't want any people in it | | people | | 0
the hat is wrong | | hat | | 0
the colour is wrong, it should be blue | blue | | | 0
there are too many people | | people | | 0
keep the beach but change the dog to a cat | cat | dog | beach | 0
don't remove the dog, just add snow | snow | | dog | 0
same woman but with a hat | hat | | woman | 0
still in the city, but at night | night | | city | 0
the background should stay the same | | | background | 0
keep everything else the same | | | | 0
only the car | car | | | 0
blue pencil | blue pencil | | | 0
orbiting the sun | orbiting sun | | | 0
it's a pill | pill | | | 0
where people are dancing | people dancing | | | 0
I want a dog on a beach | dog beach | | | -
I'm looking for a video of a man cooking | man cooking | | | -
the video shows a woman dancing in the rain | woman dancing rain | | | -
A train passes through a snowy forest. | train passes snowy forest | | | -
two kids in the park, no adults | two kids park | adults | | -
a dog and no dog | | dog | | 0
no | | | | -
Not this one. | | | | -
wrong video | | | | -
that's not what I'm looking for | | | | -
completely different | | | | -
nothing like it, I want a cat | cat | | | -
No, the car should be red | red car | | | -
not even close | | | | -
show me another one | | | | -
closer! | | | | +
yes that's it | | | | +
not bad, but add snow | snow | | | +
good, but no people | | people | | +
Much better. Make the car blue and remove the driver | blue car | driver | | +
almost, except that the hat should be red | red hat | | | +
closer to the dog | closer dog | | | 0
not quite | | | | 0
no, keep the dog | | | dog | 0
wihtout people, chnage the dog to a cat | cat | people dog | | 0
i dont want snow | | snow | | 0
REPLACE THE DOG WITH A CAT | cat | dog | | 0
"""
ANSWERS = """
red | red | | | 0
yes | | | | 0
no | | | | 0
not sure | | | | 0
I don't know, maybe a dog | dog | | | 0
yes, there is a dog | dog | | | 0
no, it isn't | | | | 0
No, a cat | cat | | | 0
mostly red | red | | | 0
I think it's a woman in a kitchen | woman kitchen | | | 0
no people, only a dog | dog | people | | 0
yes that's it | | | | +
wrong video | | | | -
"""
SIGNS = {"+": "positive", "0": "neutral", "-": "negative"}


def rows(table: str) -> list[tuple[str, list[set[str]], str]]:
    parts = [[part.strip() for part in line.split("|")] for line in table.strip().splitlines()]
    return [(text, [set(words.split()) for words in wanted], SIGNS[sign]) for text, *wanted, sign in parts]


@pytest.mark.parametrize(
    ("text", "words", "satisfaction", "question"),
    [(*row, None) for row in rows(FEEDBACK)] + [(*row, "What do you see?") for row in rows(ANSWERS)],
)
def test_phrases(text: str, words: list[set[str]], satisfaction: str, question: str | None) -> None:
    parsed = parse_feedback(text, question)
    assert [set(parsed.require), set(parsed.avoid), set(parsed.keep)] == words
    assert parsed.satisfaction == satisfaction


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.tag}: {rule.example}")
def test_each_rule_claims_its_own_example(rule: Rule) -> None:
    assert rule in [used for segment in _segments(rule.example) for used in _read(segment)[3]]


def test_varied_feedback_is_read_as_labelled() -> None:
    lines = (Path(__file__).parents[1] / "fixtures" / "dev_feedback.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    parsed = [parse_feedback(row["text"], row["question"]) for row in rows]
    missed = [
        (row, one)
        for row, one in zip(rows, parsed, strict=True)
        if set(one.require) != set(row["require"]) or set(one.avoid) != set(row["avoid"])
    ]
    assert len(rows) > 250
    assert len(missed) <= 0.04 * len(rows), missed  # 10 of 391 when written


@pytest.mark.parametrize(
    ("query", "feedback", "expected"),
    [
        ("A young woman reading on a bed", ["replace the woman with an old man"], "A young old man reading on a bed"),
        (
            "White lines and dots on black",
            ["change the white lines and dots to green"],
            "green lines and dots on black",
        ),
        ("orange pencil on red paper", ["make the pencil blue"], "blue pencil on red paper"),
        ("Growing green diagram", ["make it red"], "Growing red diagram"),
        ("woman with a hat on the beach", ["no hat"], "woman on the beach"),
        ("Two dogs in the city at night", ["not in the city"], "Two dogs at night"),
        ("a dog", ["an owl, not a dog"], "an owl"),
        ("Woman use of smart phone", ["change to a man"], "Woman use of smart phone, man"),
        (
            "a dog",
            ["keep the dog", "add a red ball", "no, at night", "the ball should be blue"],
            "a dog, blue ball, at night",
        ),
        ("a dog on grass.", ["a brown dog running on the beach"], "a dog on grass, brown running beach"),
    ],
)
def test_queries_add_up(query: str, feedback: list[str], expected: str) -> None:
    for text in feedback:
        query = apply_clauses(query, parse_feedback(text).clauses)
    assert query == expected


WORDS = (
    "replace change make turn the a dog dogs cat red blue car with to into not no without but and , ; instead of keep "
    "it rather than is should be still remove add more less i want don't video of where snow on beach yes almost people"
)
texts = st.lists(st.sampled_from(WORDS.split(" ")), max_size=14).map(" ".join)


@settings(max_examples=400, deadline=None)
@given(query=texts, feedback=st.one_of(texts, st.text(max_size=30)))
def test_invariants(query: str, feedback: str) -> None:
    parsed = parse_feedback(feedback)
    once = apply_clauses(query, parsed.clauses)
    assert apply_clauses(once, parsed.clauses) == once
    assert set(parsed.avoid).isdisjoint({*content_words(once), *parsed.require, *parsed.keep})


def test_relative_edit_holds_the_changes_only() -> None:
    text = "Good, but replace the dog with a cat, add snow, no people and keep the beach"
    assert relative_edit(parse_feedback(text).clauses) == "replace dog with cat, add snow, remove people, keep beach"
    assert relative_edit(parse_feedback("make the car red").clauses) == "change to red car"
    assert relative_edit(parse_feedback("I want a dog on a beach").clauses) == ""
    assert parse_feedback("a lake").clauses == (Clause("describe", "lake"),)


def word_f1(text: str, target: str) -> float:
    mine, theirs = set(content_words(text)), set(content_words(target))
    return 2 * len(mine & theirs) / (len(mine) + len(theirs)) if mine & theirs else 0.0


@pytest.mark.skipif("COVR_DATA" not in os.environ, reason="COVR_DATA is not set")
def test_rewriting_moves_the_reference_caption_toward_the_target() -> None:
    path = Path(os.environ["COVR_DATA"]) / "webvid-covr" / "webvid8m-covr_test.csv"
    with path.open(encoding="utf-8", newline="") as file:
        triplets = [(row["txt1"], row["edit"], row["txt2"]) for row in csv.DictReader(file)]
    reference = fmean(word_f1(one, two) for one, _, two in triplets)
    joined = fmean(word_f1(f"{one}, {edit}", two) for one, edit, two in triplets)
    rewritten = fmean(word_f1(apply_clauses(one, parse_feedback(edit).clauses), two) for one, edit, two in triplets)
    assert len(triplets) == 2556
    assert rewritten > joined + 0.05 > reference + 0.05  # 0.84, 0.76 and 0.73 when written
