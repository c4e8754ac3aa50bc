"""What a run will ask of its engines, said before it starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lightning import Callback, LightningModule, Trainer

from covr_lab.engines.request import Rehearsal, Request
from covr_lab.runner import SessionRunner
from covr_lab.types import Query, SessionError, Target

# ReCoVR's run on WebVid-CoVR-Test: 1,168 of 2,556 sessions went on after turn 0, 3,010 turns were played after it.
ENTERED, TURNS = 1168 / 2556, 3010 / 2556
LETTERS, FRAME = 4, 100  # letters of a token, tokens of a frame: rules of thumb


def tokens(requests: Sequence[Request]) -> int:
    """About how many tokens the prompts have.

    >>> tokens([Request("intent", ("a prompt of thirty-two letters..",), "s", 1)])
    8
    """
    parts = [part for request in requests for part in (request.system, *request.content)]
    letters = sum(len(part) for part in parts if isinstance(part, str))
    return letters // LETTERS + FRAME * sum(part.frames for part in parts if not isinstance(part, str))


def estimate(rehearsals: Sequence[Rehearsal], sessions: int, turns: int) -> str:
    """One line for people: calls at most, and about how many calls and tokens if sessions end as early as published.

    Args:
        rehearsals: of the system and of its user.
        sessions: to be played.
        turns: feedback turns at most.
    """
    opening = [request for one in rehearsals for request in one.opening]
    once = [request for one in rehearsals for request in one.once]
    turn = [request for one in rehearsals for request in one.turn]
    most = sessions * (len(opening) + len(once) + turns * len(turn))
    entered, played = ENTERED * sessions, min(TURNS, turns) * sessions
    likely = round(sessions * len(opening) + entered * len(once) + played * len(turn))
    prompts = round(sessions * tokens(opening) + entered * tokens(once) + played * tokens(turn))
    return (
        f"at most {most:,} model calls; about {likely:,} with {prompts:,} prompt tokens, if sessions end as early as "
        f"in ReCoVR's paper ({TURNS:.2f} turns each)"
    )


class CallEstimate(Callback):
    """Says what is to come, on rank 0, once system and user are bound; silent where no engine is asked.

    Args:
        query: one that the estimate is rendered with.
        target: its answer, for the user's prompts.
        sessions: to be played, over all processes.
        turns: feedback turns at most.
    """

    def __init__(self, query: Query, target: Target, sessions: int, turns: int) -> None:
        self.query, self.target, self.sessions, self.turns = query, target, sessions, turns

    def on_predict_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """One line on stderr."""
        if not isinstance(pl_module, SessionRunner) or not trainer.is_global_zero:
            return
        try:
            found = pl_module.rehearse(self.query, self.target)
        except SessionError:
            return  # this session will fail and say why; the others are as dear as nobody knows
        if any(one.once or one.turn or one.opening for one in found):
            sys.stderr.write(f"{estimate(found, self.sessions, self.turns)}\n")
