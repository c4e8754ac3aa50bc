"""An engine that answers from a script: tests, and replays of recorded answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from covr_lab.engines.base import Engine, Request, Response


class ScriptedEngine(Engine):
    """Answers by ``"<session>/<turn>/<role>"``; what the script does not hold is answered with "".

    Args:
        answers: key -> answer.
    """

    def __init__(self, answers: Mapping[str, str]) -> None:
        super().__init__()
        self.answers = dict(answers)

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """Look every request up."""
        return [Response(self.answers.get(f"{item.session_id}/{item.turn}/{item.role}", "")) for item in requests]
