from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import xgrammar
from pydantic import BaseModel, ConfigDict, Field, create_model

from covr_lab.engines.schema import grammar, longest, read_json

Word = Annotated[str, Field(max_length=5)]


class Thing(BaseModel):
    name: Word
    count: Annotated[int, Field(ge=-12, le=30)]


class Everything(BaseModel):
    model_config = ConfigDict(extra="forbid")

    mood: Literal["good", "très 😀"]
    sure: bool
    note: Annotated[str, Field(min_length=2, max_length=7)] | None
    words: Annotated[list[Word], Field(max_length=3)]
    things: Annotated[list[Thing], Field(min_length=1, max_length=2)]
    none: Annotated[list[Word], Field(max_length=0)]
    only: Literal["one"]


THING = {"name": "😀" * 5, "count": -12}
LONGEST = {
    "mood": "très 😀",
    "sure": False,
    "note": "😀" * 7,
    "words": ["😀" * 5] * 3,
    "things": [THING] * 2,
    "none": [],
    "only": "one",
}
SHORTEST = LONGEST | {"mood": "good", "note": None, "words": [], "things": [{"name": "", "count": 5}]}


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@pytest.fixture(scope="module")
def compiler() -> xgrammar.GrammarCompiler:
    """For a vocabulary of the 256 bytes and an end."""
    tokens = xgrammar.TokenizerInfo([bytes([byte]) for byte in range(256)] + [b""], stop_token_ids=[256])
    return xgrammar.GrammarCompiler(tokens)


def accepts(compiler: xgrammar.GrammarCompiler, schema: type[BaseModel], text: str | bytes) -> bool:
    matcher = xgrammar.GrammarMatcher(compiler.compile_grammar(grammar(schema)))
    return bool(matcher.accept_string(text)) and matcher.accept_token(256)


def test_the_longest_answer_is_as_long_as_said(compiler: xgrammar.GrammarCompiler) -> None:
    text = compact(LONGEST)
    assert longest(Everything) == len(text.encode()) + 1
    assert read_json(text, Everything) == Everything.model_validate(LONGEST)
    assert accepts(compiler, Everything, text)
    assert accepts(compiler, Everything, compact(SHORTEST))
    read_json(compact(SHORTEST), Everything)


@pytest.mark.parametrize(
    "change",
    [
        {"mood": "bad"}, {"sure": "maybe"}, {"sure": None}, {"note": "x"}, {"note": "x" * 8}, {"note": 7},
        {"words": ["a"] * 4}, {"words": ["123456"]}, {"words": "a"}, {"none": [""]}, {"only": "two"},
        {"things": []}, {"things": [THING] * 3}, {"things": [THING | {"count": 31}]}, {"things": [{"name": "x"}]},
        {"things": [THING | {"count": 1.5}]}, {"things": [THING | {"name": None}]},
    ],
)  # fmt: skip
def test_what_pydantic_refuses_is_not_in_the_grammar(
    compiler: xgrammar.GrammarCompiler, change: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        read_json(compact(LONGEST | change), Everything)
    assert not accepts(compiler, Everything, compact(LONGEST | change))


@pytest.mark.parametrize(
    "inside",
    [b"\t", b"\n", b"\0", b"\x7f", b'"', b"\\", b"\\n", b"\\ud83d", b"\xed\xa0\x80", b"\xc0\x80", b"\xff", b"\xf0\x9f"],
)
def test_strings_hold_characters_only(compiler: xgrammar.GrammarCompiler, inside: bytes) -> None:
    """Also no half of a surrogate pair: xgrammar's own strings let them, and control characters, pass."""
    one = create_model("One", text=(Word, ...))
    assert accepts(compiler, one, b'{"text":"' + "né😀".encode() + b'"}')
    assert not accepts(compiler, one, b'{"text":"' + inside + b'"}')


def test_an_answer_is_compact_and_in_order(compiler: xgrammar.GrammarCompiler) -> None:
    pair = create_model("Pair", one=(bool, ...), two=(bool, True))
    assert accepts(compiler, pair, '{"one":true,"two":false}')
    for text in ('{"two":false,"one":true}', '{"one": true,"two":false}', '{"one":true}', '{"one":true,"two":false} '):
        assert not accepts(compiler, pair, text)


def test_any_path_through_the_grammar_ends_in_time_and_can_be_read(compiler: xgrammar.GrammarCompiler) -> None:
    compiled, mask = compiler.compile_grammar(grammar(Everything)), xgrammar.allocate_token_bitmask(1, 257)
    random, texts = np.random.default_rng(0), set[str]()
    for _ in range(200):
        matcher, path = xgrammar.GrammarMatcher(compiled), list[int]()
        while not matcher.is_terminated():
            matcher.fill_next_token_bitmask(mask)
            allowed = np.flatnonzero(np.unpackbits(mask.numpy().view(np.uint8), bitorder="little"))
            path.append(int(random.choice(allowed)))
            assert matcher.accept_token(path[-1])
        assert len(path) <= longest(Everything)
        text = bytes(path[:-1]).decode()
        texts.add(text)
        read_json(text, Everything)
    assert len(texts) == 200


@pytest.mark.parametrize(
    "kind",
    [str, list[Word], list[str], int, float, dict[str, int], tuple[int, str], Any, Annotated[int, Field(ge=0)],
     Annotated[int, Field(ge=0, le=10**6)], Annotated[str, Field(max_length=9, pattern="a+")], str | None],
)  # fmt: skip
def test_what_has_no_bound_is_refused(kind: Any) -> None:
    class Inner(BaseModel):
        free: kind

    class Outer(BaseModel):
        inner: Annotated[list[Inner], Field(max_length=2)]

    for limit in (grammar, longest):
        with pytest.raises(ValueError, match=r"Outer\.inner\[\]\.free.* has no bounded form"):
            limit(Outer)
