"""A user who says what the rows of another run say: people's feedback, played to any system."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from covr_lab.replay import feedback_of
from covr_lab.results.reader import read_rows
from covr_lab.simulators.base import Choice, UserSimulator
from covr_lab.types import Feedback, Session, SessionError, Target


class RecordedUser(UserSimulator):
    """Says, turn by turn, what was said in a run folder; stops where its rows end, whatever is shown.

    A session finds its rows by its id, or as the instance of a study's participant. It never looks at a target.

    Args:
        run: run folder with the rows.

    Raises:
        ValueError: an instance was given to several participants, so that nobody knows whose words to say.
        FileNotFoundError: the folder holds no rows.
    """

    def __init__(self, run: str) -> None:
        super().__init__()
        said: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        columns = ("session_id", "instance", "turn", "action", "feedback", "source", "exchanges", "rejected", "memory")
        for row in read_rows(Path(run)).select(columns).to_pylist():
            said[row["instance"] or row["session_id"]].append(row)
        for name, rows in said.items():
            if (several := len({row["session_id"] for row in rows})) > 1:
                raise ValueError(
                    f"{run}: {several} participants had instance {name!r}: export the run of one and play that"
                )
        self.run, self.said = run, {name: [row for row in rows if row["action"]] for name, rows in said.items()}

    def restrict(self, allowed: frozenset[Choice]) -> None:
        """Refused: recorded words have no action to choose.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"a RecordedUser says what was recorded: it cannot be kept to {', '.join(sorted(allowed))}")

    def respond(
        self, sessions: Sequence[Session], targets: Sequence[Target], questions: Sequence[str | None]
    ) -> list[Feedback]:
        """What was said at this turn (see :meth:`UserSimulator.respond`).

        Raises:
            SessionError: the run has no rows of a session.
        """
        return [self._next(session) for session in sessions]

    def _next(self, session: Session) -> Feedback:
        name, said = session.query.session_id, len(session.turns) - 1  # turn 0 has no feedback
        if name not in self.said:
            raise SessionError(f"session {name}: {self.run} has no rows of it: play the data that it was made with")
        rows = self.said[name]
        if said >= len(rows) or rows[said]["action"] == "stop":
            return Feedback("stop", "", "scripted")
        return replace(feedback_of(rows[said]), source="scripted")
