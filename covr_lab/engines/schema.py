"""Answers in JSON: reading them out of prose, and how long they can become."""

from __future__ import annotations

import json
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from covr_lab.engines.consult import ParseError

M = TypeVar("M", bound=BaseModel)


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
    decoder, at, reason = json.JSONDecoder(), text.find("{"), "no complete JSON object"
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
            if reason == "no complete JSON object":
                reason = f"{'.'.join(map(str, first['loc'])) or 'object'}: {first['msg']}"
        at = text.find("{", end)
    raise ParseError(reason)
