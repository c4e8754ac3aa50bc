"""An engine that answers from a script: tests, and replays of recorded answers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Request, Response


class ScriptedEngine(Engine):
    """Answers by ``"<session>/<turn>/<role>"``, a repair by the same key with ``/2``; "" where the script is silent.

    Args:
        answers: key -> answer.
    """

    sampled = True  # an answer belongs to its session and turn

    def __init__(self, answers: Mapping[str, str]) -> None:
        super().__init__()
        self.answers = dict(answers)

    @property
    def fingerprint(self) -> str:
        """sha256 of the script."""
        return hashlib.sha256(json.dumps(self.answers, sort_keys=True).encode()).hexdigest()

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """Look every request up."""
        return [Response(self.answers.get(self._key(request), "")) for request in requests]

    @staticmethod
    def _key(request: Request) -> str:
        key = f"{request.session_id}/{request.turn}/{request.role}"
        return key if request.attempt == 1 else f"{key}/{request.attempt}"
