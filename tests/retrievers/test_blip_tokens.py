from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covr_lab.retrievers.blip.tokens import LENGTHS, TextReader, clean, load_tokenizer, tiles
from covr_lab.types import Refused
from tests.tiny_blip import vocabulary

ROWS = len(vocabulary()) + 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Turn it into NIGHT.", "turn it into night"),
        ('a "red" car; (no: *two*) #1 ~ really!', "a red car no two 1 really"),
        ("  as\n\n they\tare ", "as they are"),
        ("it's a, b? - 50% & c/d", "it's a, b? - 50% & c/d"),
        ("...", ""),
        ("\u00dcber-Stra\u00dfe", "\u00fcber-stra\u00dfe"),
    ],
)
def test_cleaning(text: str, expected: str) -> None:
    assert clean(text) == expected


@settings(max_examples=50, deadline=None)
@given(st.text(), st.integers(1, 5))
def test_cleaning_twice_changes_nothing(text: str, words: int) -> None:
    once = clean(text, words)
    assert len(once.split()) <= words
    assert not set(once) & set('.!"()*#:;~\n')
    if once.isascii():
        assert clean(once) == once


def reader(folder: Path, max_words: int | None = None, max_length: int = 16, separators: bool = False) -> TextReader:
    tokenizer, enc = load_tokenizer(folder, ROWS)
    return TextReader(tokenizer, enc, max_words, max_length, separators)


def test_the_first_token_says_whether_an_image_is_read(tiny_blip: Path) -> None:
    """Pitfall E1: [ENC] is the last of the two tokens that BLIP adds to BERT's."""
    words = vocabulary()
    small = reader(tiny_blip)
    expected = [words.index(word) for word in ("a", "red", "car", "[SEP]")]
    assert small.ids(["A red car!"], grounded=False) == [[words.index("[CLS]"), *expected]]
    assert small.ids(["A red car!"], grounded=True) == [[len(words) + 1, *expected]]
    assert small.ids(["..."], grounded=False) == [[words.index("[CLS]"), words.index("[SEP]")]]
    assert small.ids([], grounded=True) == []


def test_a_vocabulary_file_and_a_folder_are_the_same_tokenizer(tiny_blip: Path) -> None:
    texts = ["a red car", "xylophone 50%"]
    assert reader(tiny_blip / "vocab.txt").ids(texts, True) == reader(tiny_blip).ids(texts, True)


def test_what_is_cut_is_counted(tiny_blip: Path) -> None:
    """Fourteen letters and two special tokens fill sixteen places."""
    fits, cut = "z" * 14, "z" * 15
    assert reader(tiny_blip).truncated([fits, cut, fits + " ...", ""]) == [False, True, False, False]
    assert reader(tiny_blip, max_words=2).truncated(["a car", "a red car", "a . car"]) == [False, True, False]
    red, blue = ("a car " * 20 + colour for colour in ("red", "blue"))
    assert reader(tiny_blip, max_length=64).ids([red], True) != reader(tiny_blip, max_length=64).ids([blue], True)
    assert reader(tiny_blip).truncated([red, blue]) == [True, True]
    words = reader(tiny_blip, max_words=30, max_length=64)
    assert words.ids([red], True) == words.ids([blue], True)
    assert words.truncated([red, blue]) == [True, True]


def test_a_separator_is_one_token_or_its_letters(tiny_blip: Path) -> None:
    """The plain tokenizer reads [SEP] as a token; cleaned texts are in lower case."""
    text, (tokenizer, _) = "a man [SEP] a dog", load_tokenizer(tiny_blip, ROWS)
    assert reader(tiny_blip, separators=True).ids([text], False) == [tokenizer(text).input_ids]
    assert reader(tiny_blip).ids([text], False) == [tokenizer("a man [ sep ] a dog").input_ids]
    assert reader(tiny_blip, max_length=7).truncated([text]) == [True]
    assert reader(tiny_blip, max_length=7, separators=True).truncated([text]) == [False]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("\n".join(string.ascii_lowercase), "cannot be loaded"),
        ("\n".join(vocabulary()[:-1]), f"{ROWS - 3} entries for {ROWS} word embeddings"),
        ("\n".join([*vocabulary(), "[DEC]", "[ENC]", "zebra"]), f"{ROWS + 1} entries for {ROWS} word embeddings"),
        (None, "cannot be loaded"),
    ],
)
def test_a_tokenizer_of_another_checkpoint_is_refused(tmp_path: Path, content: str | None, match: str) -> None:
    path = tmp_path / "vocab.txt"
    if content is not None:
        path.write_text(content + "\n", encoding="utf-8")
    with pytest.raises(Refused, match=match) as error:
        load_tokenizer(path, ROWS)
    assert "\n" not in str(error.value)


def test_a_vocabulary_that_has_the_token_says_which_it_is(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*vocabulary()[:5], "[ENC]", *vocabulary()[5:]]) + "\n", encoding="utf-8")
    assert load_tokenizer(path, ROWS)[1] == 5


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(1, 99), min_size=2, max_size=40), max_size=12), st.integers(1, 5))
def test_tiles_hold_every_text_once(texts: list[list[int]], rows: int) -> None:
    seen = []
    for places, ids, mask in tiles(texts, rows, 0):
        assert ids.shape == mask.shape
        assert ids.shape[0] == rows
        assert ids.shape[1] in LENGTHS
        assert mask.sum(1).min() >= 1
        for row, place in enumerate(places):
            assert ids[row][mask[row].bool()].tolist() == texts[place]
        seen += places
    assert sorted(seen) == list(range(len(texts)))
