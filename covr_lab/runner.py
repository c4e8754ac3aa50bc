"""The loop: a batch of sessions played in lockstep against a user."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from lightning import LightningModule
from torch import nn

from covr_lab.data.base import SessionBatch, TripletDataModule
from covr_lab.engines.base import Engine
from covr_lab.engines.request import Call, Rehearsal
from covr_lab.protocol import EvalProtocol
from covr_lab.results.rows import turn_row
from covr_lab.simulators.base import UserSimulator
from covr_lab.system import System
from covr_lab.types import Event, Query, RankedList, Session, SessionError, Target, Turn


@dataclass(frozen=True, slots=True)
class Aside:
    """What an exchange leaves that no system may see: a user's calls speak of the target, its clean words as well."""

    calls: tuple[Call, ...]
    clean: str | None


Asides = dict[int, Aside]  # turn that is to follow -> what its question and its user left


class SessionRunner(LightningModule):
    """Plays sessions under ``trainer.predict``; no collective happens inside, ranks may differ in turns.

    Args:
        system: the system under test; it never sees a target.
        simulator: the user, who does.
        protocol: turns, ties, masking.
        engines: name -> generator that system or user borrow; never the same one, even where the weights are equal.

    Raises:
        ValueError: a component names an engine that is not there, or system and user the same one.
    """

    def __init__(
        self,
        system: System,
        simulator: UserSimulator,
        protocol: EvalProtocol,
        engines: Mapping[str, Engine] | None = None,
    ) -> None:
        super().__init__()
        self.system, self.simulator, self.protocol = system, simulator, protocol
        engines = engines or {}
        for name, engine in engines.items():
            engine.name = name
        theirs, users = system.connect(engines), simulator.connect(engines)
        if both := sorted(theirs & users):
            raise ValueError(
                f"system and simulator both name engine '{both[0]}': give the simulator an engine of its own name "
                "(equal weights are loaded once)"
            )
        self.engines = nn.ModuleDict({name: engines[name] for name in sorted(theirs | users)})

    @property
    def fingerprints(self) -> dict[str, str]:
        """Those of the system, of the user, and of all engines."""
        found = {f"engines.{name}": cast(Engine, engine).fingerprint for name, engine in self.engines.items()}
        user = {"simulator": self.simulator.fingerprint} if self.simulator.fingerprint else {}
        return {**found, **user, **self.system.fingerprints}

    def setup(self, stage: str) -> None:
        """Load weights, before the trainer moves them to its device."""
        del stage
        self.system.load()
        self.simulator.load()
        for engine in self.engines.values():
            cast(Engine, engine).load()

    def on_predict_start(self) -> None:
        """Bring in gallery and media, on the device."""
        self.bind(self.trainer.datamodule)  # type: ignore[attr-defined]  # Lightning's Trainer has no stub for it

    def bind(self, data: TripletDataModule) -> None:
        """Give the system its gallery and media, and the user the gallery with the captions that a user knows."""
        self.gallery = data.gallery
        self.system.bind(data.gallery, data.videos, mask_source=self.protocol.mask_source)
        self.simulator.bind(data.user_gallery, data.videos)

    def rehearse(self, query: Query, target: Target) -> list[Rehearsal]:
        """What a session would ask of the system's engines and of its user's; nothing is sent."""
        session = Session(query, (Turn(0, RankedList(np.zeros(1, np.int32))),))
        return [self.system.rehearse(query), self.simulator.rehearse(session, target)]

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
        asides: list[Asides] = [{} for _ in queries]
        active = self._advance(sessions, range(len(queries)), lambda at: self.system.start([queries[i] for i in at]))
        for _ in range(self.protocol.turns):
            active = self._advance(sessions, active, lambda at: self._exchange(sessions, targets, at, asides))
        return [completed(session, each) for session, each in zip(sessions, asides, strict=True)]

    def _exchange(
        self, sessions: Sequence[Session], targets: Sequence[Target], active: Sequence[int], asides: list[Asides]
    ) -> list[Turn | None]:
        """Ask, hear the users, and let the system answer those who go on; ``None`` for those who stop."""
        happy = self.simulator.satisfied([sessions[index] for index in active], [targets[index] for index in active])
        turns: dict[int, Turn | None] = dict.fromkeys(active)
        talking = [index for index, done in zip(active, happy, strict=True) if not done]
        if not talking:
            return list(turns.values())
        shown = [sessions[index] for index in talking]
        questions = self.system.ask(shown)
        said = self.simulator.converse(shown, [targets[index] for index in talking], questions)
        for index, question, words in zip(talking, questions, said, strict=True):
            calls = (*(question.calls if question else ()), *words.calls)
            asides[index][len(sessions[index].turns)] = Aside(calls, words.clean)
        going = [at for at, words in enumerate(said) if words.action != "stop"]
        if going:
            heard = [replace(said[at], calls=(), clean=None) for at in going]
            asked = [question and replace(question, calls=()) for question in (questions[at] for at in going)]
            answers = self.system.step([shown[at] for at in going], heard, asked)
            turns |= {talking[at]: turn for at, turn in zip(going, answers, strict=True)}
        return list(turns.values())

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
                sessions[index] = sessions[index].then(replace(turn, seconds=share))
                going.append(index)
        return going


def completed(session: Session, asides: Asides) -> Session:
    """The session with what no system saw of it.

    Calls of question and user go to the turn that they led to, or to the last one if to none. Words that a degradation
    changed are an event of their turn.
    """
    turns = list(session.turns)
    for index, aside in asides.items():
        at = min(index, len(turns) - 1)
        own, events = turns[at].calls, turns[at].events
        calls = (*aside.calls, *own) if at == index else (*own, *aside.calls)
        clean = (Event("clean_feedback", aside.clean),) if aside.clean is not None and at == index else ()
        turns[at] = replace(turns[at], calls=calls, events=(*clean, *events))
    return replace(session, turns=tuple(turns))


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
