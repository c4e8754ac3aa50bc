"""An engine without weights: the shortest JSON that fits a schema, named by its fields; it counts what it was asked."""

from __future__ import annotations

import json
from collections.abc import Sequence

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Request, Response
from tests.openai_server import example


class ToyEngine(Engine):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[Request]] = []

    @property
    def fingerprint(self) -> str:
        return "toy"

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        self.asked.append(list(requests))
        return [Response(self.answer(request), len(request.text), 3) for request in requests]

    def answer(self, request: Request) -> str:
        schema = request.schema
        return "What happens next?" if schema is None else json.dumps(example(schema.model_json_schema()))
