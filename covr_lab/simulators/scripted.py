"""A user who reads lines from a script: the same words whatever the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from covr_lab.simulators.base import Choice, UserSimulator
from covr_lab.types import Feedback, Session, Target


class ScriptedUser(UserSimulator):
    """Says the next line of each session's script, then stops; never looks at a target or a question."""

    def __init__(self, script: Mapping[str, Sequence[str]]) -> None:
        """Keep the script.

        Args:
            script: session id -> texts, the first for turn 1.
        """
        super().__init__()
        self.script = script

    def restrict(self, allowed: frozenset[Choice]) -> None:
        """Refused: lines of a script have no action to choose.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "a ScriptedUser reads lines that are there: it cannot be kept to " + ", ".join(sorted(allowed))
        )

    def respond(
        self, sessions: Sequence[Session], targets: Sequence[Target], questions: Sequence[str | None]
    ) -> list[Feedback]:
        """Next line of each session (see :meth:`UserSimulator.respond`).

        Raises:
            ValueError: a session has no script.
        """
        return [self._next(session) for session in sessions]

    def _next(self, session: Session) -> Feedback:
        name = session.query.session_id
        if name not in self.script:
            raise ValueError(f"session {name}: no script; add the id to the scripted user's `script` (may be empty)")
        said = len(session.turns) - 1  # turn 0 has no feedback
        lines = self.script[name]
        return Feedback("free", lines[said], "scripted") if said < len(lines) else Feedback("stop", "", "scripted")
