"""The slot assembly behind every recipe."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import torch
from torch import nn

from covr_lab.captioners.base import Captioner
from covr_lab.engines.base import Engine, borrow
from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Rehearsal
from covr_lab.gallery.gallery import Gallery
from covr_lab.ranking.channels import Channel, opening_ask, retrieve
from covr_lab.ranking.correct import Found, correct
from covr_lab.ranking.dismiss import dismiss, rejected_rows, unheeded
from covr_lab.ranking.fusion import Fusion
from covr_lab.ranking.policies import RankPolicy
from covr_lab.ranking.record import turn_of
from covr_lab.ranking.refine import record, refine
from covr_lab.ranking.retrieve import rank_gallery
from covr_lab.ranking.stages import Stage, Work
from covr_lab.reasoning.base import Initialiser, IntentReasoner, Questioner, Reasoner, Reflector, think
from covr_lab.reasoning.context import context_of, with_caption_vectors
from covr_lab.reasoning.edited import edited
from covr_lab.reasoning.turn import decide, snapshots
from covr_lab.retrievers.base import Ask, Retriever
from covr_lab.retrievers.video import VideoEncoder
from covr_lab.system import System
from covr_lab.types import (
    Context,
    Event,
    Feedback,
    Intent,
    Query,
    Question,
    RankedList,
    Reflection,
    Session,
    SessionError,
    Turn,
)

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore


class ModularSystem(System):
    """A system made of slots: retrievers, channels, reasoners, rank policies, a fusion rule, refining stages.

    Turn 0 is the composed query (reference, edit) on the ``opening`` retriever. A later turn thinks (all reasoners read
    the same snapshot), retrieves, corrects (rank policies and fusion), and records. Stages refine the order of a turn;
    they see what it asked, and result memory keeps the lists of the channels as they were. A turn that asked nothing
    keeps the order on display.

    Args:
        retrievers: name -> retriever.
        opening: retriever of turn 0.
        channels: name -> channel; ``null`` switches one off. The first that runs also orders what no list holds.
        intent: what to search for.
        fusion: how the remembered lists become one order.
        reflection: satisfaction and constraints; without it the signal is neutral and only the search text is kept.
        initial: standalone description of the target before the first feedback; without it, the edit.
        policies: rank policies, in order.
        questioner: what to ask before feedback; without it nothing is asked.
        ask_from: memory that a question reads: the ``snapshot`` the last turn started from, or the ``fresh`` one.
        captions: what the system knows of videos in words (long-term progress memory): what the captioner made of
            their frames (``model``), what the data gives to systems (``annotation``), or nothing (``none``). A recipe
            with a captioner has to say which; without one ``null`` is ``annotation``.
        captioner: describes videos for ``captions: model``.
        rm0: turn-0 lists that the fusion remembers: none, the composed one, or that and the initial search.
        stages: name -> refining stage, in their order; ``null`` switches one off. What the turn's rank policies demoted
            is not theirs to show first again: the plan's guards act on the order of the last stage as they do on the
            fused one.
        stage_turns: turns that they refine: ``all``, the ``opening`` one, or the ``later`` ones.
    """

    def __init__(
        self,
        *,
        retrievers: dict[str, Retriever],
        opening: str,
        channels: dict[str, Channel | None],
        intent: IntentReasoner,
        fusion: Fusion,
        reflection: Reflector | None = None,
        initial: Initialiser | None = None,
        policies: list[RankPolicy] | None = None,
        questioner: Questioner | None = None,
        ask_from: Literal["snapshot", "fresh"] = "snapshot",
        captions: Literal["model", "annotation", "none"] | None = None,
        captioner: Captioner | None = None,
        rm0: Literal["none", "covr", "both"] = "none",
        stages: dict[str, Stage | None] | None = None,
        stage_turns: Literal["opening", "later", "all"] = "all",
    ) -> None:
        super().__init__()
        self.channels = {name: channel for name, channel in channels.items() if channel is not None}
        if not self.channels:
            raise ValueError("system.channels has no channel that is switched on")
        named = {"opening": opening, **{f"channels.{n}": c.retriever for n, c in self.channels.items()}}
        for key, name in named.items():
            if name not in retrievers:
                raise ValueError(f"system.{key} names retriever '{name}', the recipe has {sorted(retrievers)}")
        for name, channel in self.channels.items():
            if channel.fold is not None and channel.retriever != opening:
                raise ValueError(
                    f"system.channels.{name}.fold starts from the query of turn 0: its retriever must be that of "
                    f"system.opening, '{opening}', not '{channel.retriever}'"
                )
        if captions == "model" and captioner is None:
            raise ValueError("system.captions is `model`: name a system.captioner, or set it to annotation or none")
        if captions is None and captioner is not None:
            raise ValueError(
                "system.captioner is named: set system.captions to model, or to annotation or none without it"
            )
        self.retrievers, self.engines = nn.ModuleDict(retrievers), nn.ModuleDict()
        self.policies = nn.ModuleList(policies or [])
        self.intent, self.reflection, self.initial, self.questioner = intent, reflection, initial, questioner
        self.captions, self.captioner = captions, captioner if captions == "model" else None
        self.fusion, self.opening, self.ask_from, self.rm0 = fusion, opening, ask_from, rm0
        kept = {name: stage for name, stage in (stages or {}).items() if stage is not None}
        if len({stage.name for stage in kept.values()}) < len(kept):
            kinds = ", ".join(f"{name} ({stage.name})" for name, stage in kept.items())
            raise ValueError(f"system.stages has two of a kind, switch one off (null): {kinds}")
        self.stages, self.stage_turns = nn.ModuleDict(kept), stage_turns
        proxies = [part.proxy for part in (*retrievers.values(), *kept.values(), self.captioner) if part is not None]
        self.proxy = "; ".join(dict.fromkeys(filter(None, proxies))) or None

    def connect(self, engines: Mapping[str, Engine]) -> frozenset[str]:
        """Hand reasoners and captioner the engines that they name."""
        wanted = {f"system.{name}.engine": slot.engine for name, slot in self._reasoners().items()}
        if self.captioner is not None:
            wanted["system.captioner.engine"] = self.captioner.engine
        found = borrow(engines, wanted)
        self.engines = nn.ModuleDict(found)
        if self.captioner is not None and self.captioner.engine is not None:
            self.captioner.connect(found[self.captioner.engine])
        return frozenset(found)

    def load(self) -> None:
        """Load retrievers, captioner, stages and engines."""
        for name in self.retrievers:
            self._retriever(name).load()
        for engine in self._engines().values():
            engine.load()
        if self.captioner is not None:
            self.captioner.load()
        for stage in self._stages().values():
            stage.load()
        self.freeze()

    @property
    def fingerprints(self) -> dict[str, str]:
        """Those of the video encoders' weights and galleries, of the other retrievers, of reasoners and stages."""
        found = {f"retrievers.{name}": self._retriever(name).fingerprint for name in self.retrievers}
        found |= {f"engines.{name}": engine.fingerprint for name, engine in self._engines().items()}
        found |= {name: slot.fingerprint for name, slot in self._reasoners().items() if slot.fingerprint}
        for name, stage in self._stages().items():
            found |= {f"stages.{name}.{part}": value for part, value in stage.fingerprints.items()}
        for name, encoder in self._encoders().items():
            found |= {name: encoder.fingerprint, **{f"{name}.{key}": at for key, at in encoder.addresses.items()}}
        return found

    @property
    def unreadable(self) -> dict[str, str]:
        """Those of all retrievers."""
        retrievers = [encoder for name, encoder in self._encoders().items() if name.startswith("retrievers.")]
        return {video: why for encoder in retrievers for video, why in encoder.unusable.items()}

    @property
    def undescribed(self) -> dict[str, str]:
        """Those that the captioner failed on: nothing is known of them in words."""
        return {} if self.captioner is None else self.captioner.unusable

    def _encoders(self) -> dict[str, VideoEncoder]:
        return {name: module for name, module in self.named_modules() if isinstance(module, VideoEncoder)}

    def bind(self, gallery: Gallery, videos: VideoStore | None = None, *, mask_source: bool = True) -> None:
        """Bind every retriever to the gallery."""
        if self.captioner is not None:
            gallery = replace(gallery, captions=self.captioner.describe(gallery, videos))
        elif self.captions == "none":
            gallery = replace(gallery, captions={})
        self.gallery, self.videos, self.mask_source = gallery, videos, mask_source
        for name in self.retrievers:
            self._retriever(name).bind(gallery, videos)
        for stage in self._stages().values():
            stage.bind(gallery, videos)

    def rehearse(self, query: Query) -> Rehearsal:
        """The requests of a first turn with a feedback as long as the edit."""
        session = Session(query, (Turn(0, RankedList(np.zeros(1, np.int32))),))
        context = replace(self._context(session, None), feedback=Feedback("free", query.text))
        asking = [slot for slot in (self.intent, self.reflection, self.questioner) if slot is not None and slot.engine]
        once = [self.initial] if self.initial is not None and self.initial.engine else []
        first, every = (tuple(slot.rehearse(context) for slot in slots) for slots in (once, asking))
        result = session.turns[0].result
        works = (self._opening_work(query, result), Work(context, context.shown, query.text, result))
        stages = list(self._stages().values())
        try:
            opening, later = (
                tuple(request for stage in stages for request in stage.rehearse(work)) if self._refines(turn) else ()
                for turn, work in enumerate(works)
            )
        except ParseError as error:  # its video cannot be shown
            raise SessionError(f"session {query.session_id}: {error}") from error
        return Rehearsal(first, (*every, *later), opening)

    @torch.inference_mode()
    def start(self, queries: Sequence[Query]) -> list[Turn]:
        """Turn 0: the composed query over the whole gallery, refined; the fusion may remember its list."""
        begin, retriever = time.perf_counter(), self._retriever(self.opening)
        asks = [self._opening(query) for query in queries]
        composed = [name for name, channel in self.channels.items() if channel.anchor != "none"]
        turns = []
        for ask, result in zip(asks, rank_gallery(retriever, asks), strict=True):
            if not len(result.rows):
                raise SessionError(f"session {ask.session}: all gallery videos are unreadable or masked")
            stored = dict.fromkeys(composed, result.head(self.fusion.pool))
            turns.append(Turn(0, result, channels=stored, events=_cut(retriever, ask.text)))
        if self.rm0 == "both":
            turns = self._with_search(queries, turns)
        works = [self._opening_work(query, turn.result) for query, turn in zip(queries, turns, strict=True)]
        return self._refined(turns, works, begin)

    def _with_search(self, queries: Sequence[Query], turns: Sequence[Turn]) -> list[Turn]:
        """Turn 0 with the lists of the channels that the initial search asks, too."""
        sessions = [Session(query, (turn,)) for query, turn in zip(queries, turns, strict=True)]
        states = snapshots(self.initial, [self._context(session, None) for session in sessions], self._engines())
        searches = self._retrieve(sessions, [Intent(search=state.answer.query) for state in states])
        lists = [{**turn.channels, **found.lists} for turn, found in zip(turns, searches, strict=True)]
        pooled = [{name: ranking.head(self.fusion.pool) for name, ranking in found.items()} for found in lists]
        return [
            replace(turn, channels=channels, state=state.answer, calls=state.calls)
            for turn, channels, state in zip(turns, pooled, states, strict=True)
        ]

    @torch.inference_mode()
    def ask(self, sessions: Sequence[Session]) -> list[Question | None]:
        """One question a session, or none at all."""
        questioner = self.questioner
        if questioner is None:
            return [None] * len(sessions)
        back = -1 if self.ask_from == "snapshot" else None
        contexts = [self._context(s, Session(s.query, s.turns[:back]).state) for s in sessions]
        if questioner.reads_captions:
            contexts = with_caption_vectors(contexts, self._retriever(self.opening))
        thoughts = think([(questioner, context) for context in contexts], self._engines())
        return [
            Question(
                thought.answer,
                thought.calls,
                questioner.events(context),
                questioner.interview(context, thought.answer),
            )
            for thought, context in zip(thoughts, contexts, strict=True)
        ]

    @torch.inference_mode()
    def step(
        self, sessions: Sequence[Session], feedback: Sequence[Feedback], questions: Sequence[Question | None]
    ) -> list[Turn]:
        """One turn for every session; rejections without words move what is on display and ask nothing."""
        rows = [rejected_rows(*one, self.gallery) for one in zip(sessions, feedback, strict=True)]
        spoken = [at for at, words in enumerate(feedback) if not words.wordless or words.memory is not None]
        turns: dict[int, Turn] = {}
        if spoken:
            parts = ([values[at] for at in spoken] for values in (sessions, feedback, questions, rows))
            turns = dict(zip(spoken, self._answer(*parts), strict=True))  # type: ignore[arg-type]  # four kinds of values
        policies = cast("Sequence[RankPolicy]", self.policies)
        for at, (session, words, question) in enumerate(zip(sessions, feedback, questions, strict=True)):
            if at not in turns:
                turns[at] = dismiss(session, words, question, rows[at], policies, self.fusion.caps, self.gallery)
        return [turns[at] for at in range(len(sessions))]

    def _answer(
        self,
        sessions: Sequence[Session],
        feedback: Sequence[Feedback],
        questions: Sequence[Question | None],
        rejected: Sequence[tuple[int, ...]],
    ) -> list[Turn]:
        """Think, retrieve, correct, record, refine."""
        contexts = [self._context(session, session.state) for session in sessions]
        states = [
            replace(state, answer=edited(state.answer, words.memory)) if words.memory else state
            for state, words in zip(snapshots(self.initial, contexts, self._engines()), feedback, strict=True)
        ]
        contexts = [
            replace(context, state=state.answer, feedback=words, question=question.text if question else None)
            for context, state, words, question in zip(contexts, states, feedback, questions, strict=True)
        ]
        intents, reflections = decide(self.intent, self.reflection, contexts, self._engines())
        begin = time.perf_counter()
        found = self._retrieve(sessions, [intent.answer for intent in intents])
        found = [replace(one, rejected=rows) for one, rows in zip(found, rejected, strict=True)]
        signals = [reflection.answer.satisfaction for reflection in reflections]
        corrected = correct(
            sessions,
            signals,
            found,
            channels=list(self.channels),
            fusion=self.fusion,
            policies=cast("Sequence[RankPolicy]", self.policies),
            opening=self.rm0 != "none",
        )
        noted = [
            [
                *(question.events if question else ()),
                *self._cuts(intent.answer),
                *unheeded(rows, fused.caps, self.gallery),
            ]
            for question, intent, rows, fused in zip(questions, intents, rejected, corrected, strict=True)
        ]
        turns = [
            turn_of(context, (state, intent, reflection), fused, events)
            for context, state, intent, reflection, fused, events in zip(
                contexts, states, intents, reflections, corrected, noted, strict=True
            )
        ]
        return self._refined(turns, list(map(self._later_work, contexts, turns)), begin)

    def _refined(self, turns: list[Turn], works: Sequence[Work], begin: float) -> list[Turn]:
        """``turns`` of one index as the stages leave them; ``begin`` is when their retrieval did."""
        active = [at for at, work in enumerate(works) if work.text and self._refines(turns[at].index)]
        if not active:
            return turns
        retrieval, refined = (time.perf_counter() - begin) / len(turns), turns.copy()
        staged = refine(list(self._stages().values()), [works[at] for at in active], self._engines())
        for at, one in zip(active, staged, strict=True):
            refined[at] = record(turns[at], one, self.gallery, retrieval, cast("Sequence[RankPolicy]", self.policies))
        return refined

    def _opening_work(self, query: Query, ranking: RankedList) -> Work:
        context = Context(
            Session(query),
            Reflection(query=query.text),
            reference_caption=self.gallery.caption(query.reference),
            videos=self.videos,
        )
        return Work(context, query.reference, query.text, ranking)

    def _later_work(self, context: Context, turn: Turn) -> Work:
        """What the turn asked, of the video that its composed channel started from; a description where none did."""
        intent, session = turn.intent or Intent(), context.session
        composed = next((channel for channel in self.channels.values() if channel.anchor != "none"), None)
        opening = self._opening(session.query)
        source = None if composed is None else composed.ask(session, intent.edit, opening, self.gallery).anchor
        text = intent.search or intent.edit if source is None else intent.edit or intent.search
        return Work(context, source, text, turn.result)

    def _refines(self, turn: int) -> bool:
        return bool(self.stages) and self.stage_turns in ("all", "later" if turn else "opening")

    def _retrieve(self, sessions: Sequence[Session], intents: Sequence[Intent]) -> list[Found]:
        retrievers = {name: self._retriever(name) for name in self.retrievers}
        openings = [self._opening(session.query) for session in sessions]
        return retrieve(self.channels, retrievers, sessions, intents, openings, self.gallery)

    def _opening(self, query: Query) -> Ask:
        return opening_ask(query, self.gallery, mask_source=self.mask_source)

    def _context(self, session: Session, state: Reflection | None) -> Context:
        return context_of(session, state, self.gallery, self.videos)

    def _cuts(self, intent: Intent) -> list[Event]:
        sent = [_cut(self._retriever(channel.retriever), channel.text(intent)) for channel in self.channels.values()]
        return list(dict.fromkeys(event for events in sent for event in events))

    def _retriever(self, name: str) -> Retriever:
        return cast(Retriever, self.retrievers[name])

    def _reasoners(self) -> dict[str, Reasoner[Any]]:
        slots = {name: getattr(self, name) for name in ("initial", "intent", "reflection", "questioner")}
        found = {name: slot for name, slot in slots.items() if slot is not None}
        for name, stage in self._stages().items():
            found |= {f"stages.{name}.{part}": slot for part, slot in stage.reasoners().items()}
        return found

    def _stages(self) -> Mapping[str, Stage]:
        return cast("Mapping[str, Stage]", self.stages)

    def _engines(self) -> Mapping[str, Engine]:
        return cast("Mapping[str, Engine]", self.engines)


def _cut(retriever: Retriever, text: str) -> tuple[Event, ...]:
    """An event if the encoder does not read ``text`` to its end."""
    return (Event("truncated", text),) if retriever.truncated([text])[0] else ()
