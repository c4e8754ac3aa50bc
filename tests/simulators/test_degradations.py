"""Each degradation on its own: what it does to a text, how often, and that it gives nothing away."""

from __future__ import annotations

import math
import random
import string
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import pytest

from covr_lab.data.words import world
from covr_lab.functional.text import WORD, content_words
from covr_lab.gallery.gallery import Gallery
from covr_lab.reasoning.language import parse_feedback
from covr_lab.simulators import CharacterNoise, Degradation, DropConstraints, Inconsistent, Policy, Terse, Verbose
from covr_lab.simulators import WordNoise as Words
from covr_lab.simulators.noise import NEIGHBOURS, jumble, lengthened, misspell, mistyped, shortened, swapped
from covr_lab.simulators.speech import AFTER, BEFORE, RECANTATIONS, clauses, drop_clauses, wanted_words

CAPTIONS = [triplet.target_caption for triplet in world(300, 250, seed=5)]


def assert_share(hits: int, trials: int, rate: float) -> None:
    """Within five standard deviations of a binomial share: a right rate fails once in a million times."""
    assert trials > 1000
    assert abs(hits - trials * rate) < 5 * math.sqrt(trials * rate * (1 - rate)), (hits / trials, rate)


def draws(count: int) -> Iterable[random.Random]:
    return (random.Random(f"draw {number}") for number in range(count))


# Noise in words


def slips(word: str) -> dict[str, set[str]]:
    """All words one slip away, by brute force."""
    letters, cuts = string.ascii_lowercase, range(len(word))

    def case(old: str, new: str) -> str:
        return new.upper() if old.isupper() else new

    return {
        "swap": {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in cuts[:-1]} - {word},
        "delete": {word[:i] + word[i + 1 :] for i in cuts},
        "insert": {word[:i] + x + word[i:] for i in range(len(word) + 1) for x in letters},
        "key": {word[:i] + case(word[i], x) + word[i + 1 :] for i in cuts for x in NEIGHBOURS.get(word[i].lower(), "")},
    }


@pytest.mark.parametrize("rate", [0.2, 0.7])
def test_one_slip_in_the_given_share_of_longer_words_and_none_in_others(rate: float) -> None:
    text, changed, trials, kinds = " ".join(CAPTIONS[:40]), 0, 0, Counter[str]()
    assert CharacterNoise().rate == 0.2
    for draw in draws(25):
        noisy = CharacterNoise(rate=rate).degrade(text, [], draw)
        for old, new in zip(WORD.findall(text), WORD.findall(noisy), strict=True):
            if len(old) < 4:
                assert old == new
                continue
            trials, changed = trials + 1, changed + (old != new)
            if old != new:
                assert any(new in words for words in slips(old).values()), (old, new)
                kinds[{1: "insert", -1: "delete"}.get(len(new) - len(old), "swap or key")] += 1
    assert_share(changed, trials, rate)
    for kind, share in (("insert", 0.25), ("delete", 0.25), ("swap or key", 0.5)):
        assert_share(kinds[kind], sum(kinds.values()), share)


def test_keys_touch_as_on_a_keyboard() -> None:
    for key, others in {"g": "tyfhvb", "q": "wa", "p": "ol", "m": "njk", "a": "qwsz", "l": "opk"}.items():
        assert set(NEIGHBOURS[key]) == set(others)
    assert all(key in NEIGHBOURS[other] for key, others in NEIGHBOURS.items() for other in others)


@pytest.mark.parametrize(
    ("slip", "kind"),
    [(swapped, "swap"), (shortened, "delete"), (lengthened, "insert"), (mistyped, "key")],
)
def test_every_slip_of_a_kind_happens_and_no_other(slip: Callable[[str, random.Random], str | None], kind: str) -> None:
    assert {slip("Kayak", draw) for draw in draws(5000)} == slips("Kayak")[kind]


def test_words_that_allow_few_slips_still_change() -> None:
    draw = random.Random(0)
    assert swapped("aaaa", draw) is None
    assert mistyped("1920", draw) is None
    assert all(misspell("aaaa 1111 \u00e9\u00e9\u00e9\u00e9", 1.0, one).split()[0] != "aaaa" for one in draws(50))
    assert misspell("a tea, an ice - no?", 1.0, draw) == "a tea, an ice - no?"
    assert misspell("", 1.0, draw) == ""


# Noise of words


@pytest.mark.parametrize("rate", [0.1, 0.6])
def test_words_are_lost_doubled_and_swapped_at_the_given_rate(rate: float) -> None:
    words = [f"w{number}" for number in range(20)]
    lost = doubled = turned = 0
    assert Words().rate == 0.1
    for draw in draws(1500):
        found = Words(rate=rate).degrade(" ".join(words), [], draw).split()
        count = Counter(found)
        lost += sum(count[word] == 0 for word in words[:-1])
        doubled += sum(count[word] == 2 for word in words[:-1])
        pairs = [(found.index(a), found.index(b)) for a, b in pairwise(words[:-1]) if count[a] and count[b]]
        turned += sum(a > b for a, b in pairs)
    each = rate / 3
    assert_share(lost, 1500 * 19, each)
    assert_share(doubled, 1500 * 19, each)
    assert_share(turned, 1500 * 18, each * (1 - 2 * each))  # seen where the next one is neither lost nor swapped too


def test_a_text_never_loses_its_last_word() -> None:
    for text in ("snow", "more snow", "a b c"):
        found = {jumble(text, 1.0, draw) for draw in draws(400)}
        assert "" not in found
        assert set().union(*(set(one.split()) for one in found)) == set(text.split())
    assert {jumble("snow", 1.0, draw) for draw in draws(20)} == {"snow snow"}
    assert {jumble("a b", 1.0, draw) for draw in draws(400)} == {
        *("a a b b", "a a", "b b", "a", "b b a"),
        "a b",  # both lost: nothing happens
    }
    assert jumble("", 1.0, random.Random(0)) == ""


# Constraints that are left out


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("replace the dog with a cat", ["replace the dog", "a cat"]),
        ("red, tiny and wet; but not old", ["red", "tiny", "wet", "not old"]),
        ("With snow, and 1,000 sandy hands", ["snow", "1,000 sandy hands"]),
        ("without butter", ["without butter"]),
        ("It should have snow.", ["It should have snow."]),
        ("", []),
    ],
)
def test_clauses(text: str, parts: list[str]) -> None:
    assert [words for _, words in clauses(text)] == parts
    assert "".join(joint + words for joint, words in clauses(text)) == text


@pytest.mark.parametrize("rate", [0.3, 0.8])
def test_clauses_are_dropped_at_the_given_rate(rate: float) -> None:
    text = ", ".join(f"wish{number}" for number in range(30))
    left = [len(DropConstraints(rate=rate).degrade(text, [], draw).split(", ")) for draw in draws(400)]
    assert_share(400 * 30 - sum(left), 400 * 30, rate)
    assert DropConstraints().rate == 0.3


def test_one_constraint_stays_and_any_may_be_it() -> None:
    text = "keep the dog, but with snow and a red hat"
    assert {drop_clauses(text, 1.0, draw) for draw in draws(100)} == {"keep the dog", "with snow", "a red hat"}
    assert {drop_clauses(text, 0.5, draw) for draw in draws(200)} == {
        *("keep the dog", "with snow", "a red hat"),
        *("keep the dog, but with snow", "keep the dog and a red hat", "with snow and a red hat"),
        text,
    }
    assert {drop_clauses("No, snow.", 1.0, draw) for draw in draws(50)} == {"No, snow."}  # "no" is no constraint
    for only in ("", "not this", "and but with"):
        assert drop_clauses(only, 1.0, random.Random(0)) == only


# Contradictions


def test_wishes_are_known_until_they_are_taken_back() -> None:
    assert wanted_words(["make it a red car", "keep the beach", "no car", "replace the dog with a cat"]) == [
        *("red", "beach", "cat"),
    ]
    assert wanted_words([]) == []


def test_a_wish_is_taken_back_at_the_given_rate_and_read_as_unwanted() -> None:
    said = ["make it a red car", "add snow and a lighthouse"]
    taken, texts = Counter[str](), 4000
    for draw in draws(texts):
        text = Inconsistent().degrade("a bit more snow please", said, draw)
        assert text.startswith("a bit more snow please")
        if text != "a bit more snow please":
            before = set(parse_feedback("a bit more snow please").avoid)
            (word,) = set(parse_feedback(text).avoid) - before
            taken[word] += 1
    assert set(taken) == {"red", "car", "lighthouse"}  # snow is asked for in the same breath
    assert_share(sum(taken.values()), texts, 0.3)
    for count in taken.values():
        assert_share(count, sum(taken.values()), 1 / 3)


def test_who_asked_for_nothing_contradicts_nothing() -> None:
    always = Inconsistent(rate=1.0)
    assert always.degrade("add snow", [], random.Random(0)) == "add snow"
    assert always.degrade("add snow", ["no dogs", "snow"], random.Random(0)) == "add snow"
    assert {always.degrade("add snow!", ["a dog"], draw) for draw in draws(99)} == {
        f"add snow! {line.format(word='dog')}" for line in RECANTATIONS
    }
    assert not any(content_words(line.format(word="")) for line in RECANTATIONS)


# Few words, many words


@pytest.mark.parametrize(
    ("text", "count", "left"),
    [
        ("Replace the dog with a big red cat, please", 4, "replace dog big red"),
        ("Replace the dog with a cat", 1, "replace"),
        ("snow", 4, "snow"),
        ("not this", 4, "not this"),
        ("", 4, ""),
    ],
)
def test_terse(text: str, count: int, left: str) -> None:
    assert Terse(words=count).degrade(text, [], random.Random(0)) == left


def test_talk_gives_no_word_of_a_caption_away() -> None:
    said = "I certainly hope somebody has a camera ready at the moment, patience"  # bans some wordings
    gallery = Gallery.of(["a", "b"], {"a": said, "b": "a tiny lamp"})
    talk = Verbose()
    talk.bind(gallery)
    texts = {talk.degrade("{snow}.", [], draw) for draw in draws(500)}
    for text in texts:
        before, after = text.split("{snow}.")
        assert before
        assert after
        assert not set(content_words(before + after)) & {*content_words(said), "tiny", "lamp"}
    fit = [
        [line for line in lines if not set(content_words(line)) & set(content_words(said))] for lines in (BEFORE, AFTER)
    ]
    assert [len(lines) for lines in fit] < [len(BEFORE), len(AFTER)]
    assert len(texts) == len(fit[0]) * len(fit[1]) > 8  # all of the others come up


def test_talk_is_left_where_captions_have_all_its_words() -> None:
    talk = Verbose()
    talk.bind(Gallery.of(["a"], {"a": " ".join((*BEFORE, *AFTER))}))
    texts = {talk.degrade("", [], draw) for draw in draws(100)}
    assert len(texts) == 4
    assert not any(content_words(text) for text in texts)


# All of them


@pytest.mark.parametrize("rate", [-0.1, 1.1, float("nan")])
@pytest.mark.parametrize("kind", [CharacterNoise, Words, DropConstraints, Inconsistent])
def test_a_rate_is_a_probability(kind: Callable[..., Degradation], rate: float) -> None:
    with pytest.raises(ValueError, match=rf"{kind.__name__}\.rate must lie in \[0, 1\], not {rate}"):
        kind(rate=rate)


def test_terse_needs_a_word() -> None:
    with pytest.raises(ValueError, match=r"Terse\.words must be 1 or more, not 0"):
        Terse(words=0)


@pytest.mark.parametrize(
    "degradation",
    [CharacterNoise(rate=0), Words(rate=0), DropConstraints(rate=0), Inconsistent(rate=0), Policy(policy="no_answers")],
    ids=lambda each: type(each).__name__,
)
def test_a_rate_of_zero_changes_no_text(degradation: Degradation) -> None:
    said: Sequence[str] = ["make it red"]
    for caption, draw in zip(CAPTIONS, draws(len(CAPTIONS)), strict=False):
        assert degradation.degrade(caption, said, draw) == caption
