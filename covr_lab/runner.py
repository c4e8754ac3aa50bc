"""The loop: a batch of sessions played in lockstep against a user."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from lightning import LightningModule

from covr_lab.data.base import SessionBatch, TripletDataModule
from covr_lab.protocol import EvalProtocol
from covr_lab.results.rows import turn_row
from covr_lab.simulators.base import UserSimulator
from covr_lab.system import System
from covr_lab.types import Query, RankedList, Session, SessionError, Target, Turn


class SessionRunner(LightningModule):
    """Plays sessions under ``trainer.predict``; no collective happens inside, ranks may differ in turns.

    Args:
        system: the system under test; it never sees a target.
        simulator: the user, who does.
        protocol: turns, ties, masking.
    """

    def __init__(self, system: System, simulator: UserSimulator, protocol: EvalProtocol) -> None:
        super().__init__()
        self.system, self.simulator, self.protocol = system, simulator, protocol

    def setup(self, stage: str) -> None:
        """Load weights, before the trainer moves them to its device."""
        del stage
        self.system.load()

    def on_predict_start(self) -> None:
        """Bring in gallery and media, on the device."""
        self.bind(self.trainer.datamodule)  # type: ignore[attr-defined]  # Lightning's Trainer has no stub for it

    def bind(self, data: TripletDataModule) -> None:
        """Give the system its gallery and media, and the user the gallery with the captions that a user knows."""
        self.gallery = data.gallery
        self.system.bind(data.gallery, data.videos, mask_source=self.protocol.mask_source)
        self.simulator.bind(data.user_gallery)

    def predict_step(self, batch: SessionBatch, batch_idx: int = 0) -> list[dict[str, Any]]:
        """Rows of one batch, one per executed session-turn."""
        sessions = self.play(batch.queries, batch.targets)
        return [
            turn_row(session, turn, self.gallery, target, self.protocol.ties)
            for session, target in zip(sessions, batch.targets, strict=True)
            for turn in session.turns
        ]

    def play(self, queries: Sequence[Query], targets: Sequence[Target]) -> list[Session]:
        """Whole dialogues. A session that fails ends with a turn that says why; the others go on."""
        sessions = [Session(query) for query in queries]
        active = self._advance(sessions, range(len(queries)), lambda at: self.system.start([queries[i] for i in at]))
        for _ in range(self.protocol.turns):
            active = self._advance(
                sessions, active, lambda at: self._exchange([sessions[i] for i in at], [targets[i] for i in at])
            )
        return sessions

    def _exchange(self, sessions: Sequence[Session], targets: Sequence[Target]) -> list[Turn | None]:
        """Ask, hear the users, and let the system answer those who go on; ``None`` for those who stop."""
        questions = self.system.ask(sessions)
        said = self.simulator.respond(sessions, targets, questions)
        turns: list[Turn | None] = [None] * len(sessions)
        going = [index for index, feedback in enumerate(said) if feedback.action != "stop"]
        if going:
            answers = self.system.step(
                [sessions[i] for i in going], [said[i] for i in going], [questions[i] for i in going]
            )
            for index, turn in zip(going, answers, strict=True):
                turns[index] = turn
        return turns

    @staticmethod
    def _advance(
        sessions: list[Session], active: Sequence[int], call: Callable[[Sequence[int]], Sequence[Turn | None]]
    ) -> list[int]:
        """Append the turns that ``call`` brings; returns the sessions that go on."""
        start = time.perf_counter()
        turns = isolate(call, active)
        share = (time.perf_counter() - start) / max(len(active), 1)
        going = []
        for index, turn in zip(active, turns, strict=True):
            if isinstance(turn, SessionError):
                last = sessions[index].turns[-1].result if sessions[index].turns else RankedList(np.empty(0, np.int32))
                sessions[index] = sessions[index].then(Turn(len(sessions[index].turns), last, error=str(turn)))
            elif turn is not None:
                sessions[index] = sessions[index].then(replace(turn, cost=replace(turn.cost, seconds=share)))
                going.append(index)
        return going


def isolate(
    call: Callable[[Sequence[int]], Sequence[Turn | None]], items: Sequence[int]
) -> list[Turn | SessionError | None]:
    """Results of ``call`` on all ``items`` at once; if one of them fails, each is tried alone and keeps its error."""
    if not items:
        return []
    try:
        return list(call(items))
    except SessionError as error:
        return [error] if len(items) == 1 else [isolate(call, [item])[0] for item in items]
