"""Answers in JSON: reading them out of prose, the grammar of those that fit, and how long they can become."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from covr_lab.engines.consult import ParseError

M = TypeVar("M", bound=BaseModel)

# One character of a string: no quote and no escape, no control character, no half of a surrogate pair. It has to stay a
# single class: with "or an escape" beside it, xgrammar 0.2.9 takes seconds for one token of a large vocabulary.
CHARACTER: Final = r'[^"\\\x00-\x1f\x7f-\x9f\ud800-\udfff]'
WIDEST: Final = 4  # bytes of a character in UTF-8
NOTHING: Final = "no complete JSON object"
INTEGERS: Final = 1000  # alternatives that a bounded integer may have


def read_json(text: str, schema: type[M]) -> M:
    """The first JSON object in ``text`` that fits ``schema``; prose and code fences around it do no harm.

    Raises:
        ParseError: there is none; says what is wrong with the first object, for the repair request.

    >>> class Answer(BaseModel):
    ...     edit: str
    >>> read_json('Sure! ```json {"edit": "make it red"} ``` Hope this helps {:', Answer)
    Answer(edit='make it red')
    >>> read_json('{"edit": "make it', Answer)
    Traceback (most recent call last):
    ...
    covr_lab.engines.consult.ParseError: no complete JSON object
    """
    decoder, at, reason = json.JSONDecoder(), text.find("{"), NOTHING
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError):
            at = text.find("{", at + 1)
            continue
        try:
            return schema.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            if reason == NOTHING:
                reason = f"{'.'.join(map(str, first['loc'])) or 'object'}: {first['msg']}"
        at = text.find("{", end)
    raise ParseError(reason)


def grammar(schema: type[BaseModel]) -> str:
    r"""EBNF of the JSON objects that fit ``schema``: compact, keys in the order of their fields, every bound kept.

    Strings have no escapes: an answer holds no double quote and no backslash inside of a string.

    Raises:
        ValueError: a field has no bound or is of a kind that has no grammar here; names the field.

    >>> class Answer(BaseModel):
    ...     sure: bool
    >>> print(grammar(Answer))
    root ::= "{" "\"sure\":" ("true" | "false") "}"
    """
    return f"root ::= {_compiled(schema)[0]}"


def longest(schema: type[BaseModel]) -> int:
    """Tokens that always suffice for an answer in compact JSON and its end, whatever the tokenizer.

    A token is at least one byte of UTF-8, so this is the length in bytes of the longest answer, plus one.

    Raises:
        ValueError: see :func:`grammar`.

    >>> class Answer(BaseModel):
    ...     sure: bool
    >>> longest(Answer) == len('{"sure":false}') + 1
    True
    """
    return _compiled(schema)[1] + 1


@lru_cache(maxsize=256)
def _compiled(schema: type[BaseModel]) -> tuple[str, int]:
    """Right side of the grammar's root, and the most bytes that it matches."""
    node = schema.model_json_schema()
    return _piece(node, node.get("$defs", {}), schema.__name__)


def _piece(node: Mapping[str, Any], named: Mapping[str, Any], where: str) -> tuple[str, int]:
    """The same of one node of a JSON schema; ``where`` is its path, for the message."""
    if "$ref" in node:
        return _piece(named[node["$ref"].rpartition("/")[2]], named, where)
    if "anyOf" in node:
        return _either(_piece(option, named, where) for option in node["anyOf"])
    if "enum" in node or "const" in node:
        return _either(_text(json.dumps(value, ensure_ascii=False)) for value in node.get("enum", [node.get("const")]))
    match node:
        case {"type": "boolean"}:
            return _either(map(_text, ("true", "false")))
        case {"type": "null"}:
            return _text("null")
        case {"type": "integer", "minimum": int(low), "maximum": int(high)} if high - low < INTEGERS:
            return _either(_text(str(value)) for value in range(low, high + 1))
        case {"type": "string", "maxLength": int(most)} if "pattern" not in node and "format" not in node:
            return f'"\\"" {CHARACTER}{{{node.get("minLength", 0)},{most}}} "\\""', WIDEST * most + 2
        case {"type": "array", "maxItems": int(most), "items": dict(items)} if not node.get("uniqueItems"):
            return _list(*_piece(items, named, f"{where}[]"), node.get("minItems", 0), most)
        case {"type": "object", "properties": dict(fields)} if not node.get("additionalProperties"):
            return _object({name: _piece(field, named, f"{where}.{name}") for name, field in fields.items()})
    raise ValueError(
        f"{where} has no bounded form ({node.get('type', 'any type')}): a string or list needs Field(max_length=...), "
        f"an integer ge and le less than {INTEGERS} apart"
    )


def _text(text: str) -> tuple[str, int]:
    return json.dumps(text, ensure_ascii=False), len(text.encode())


def _either(options: Iterable[tuple[str, int]]) -> tuple[str, int]:
    rules, sizes = zip(*options, strict=True)
    return f"({' | '.join(rules)})", max(sizes)


def _list(item: str, size: int, least: int, most: int) -> tuple[str, int]:
    if not most:
        return _text("[]")
    some = f'{item} ("," {item}){{{max(least, 1) - 1},{most - 1}}}'
    return f'"[" {some if least else f"({some})?"} "]"', most * (size + 1) + 1


def _object(fields: Mapping[str, tuple[str, int]]) -> tuple[str, int]:
    keys = {name: _text(f"{json.dumps(name, ensure_ascii=False)}:") for name in fields}
    rule = ' "," '.join(f"{keys[name][0]} {piece}" for name, (piece, _) in fields.items())
    commas = max(len(fields) - 1, 0)
    return f'"{{" {rule} "}}"', 2 + commas + sum(keys[name][1] + size for name, (_, size) in fields.items())
