"""Values that flow through the loop: frozen, comparable by content, free of ``torch``.

Ids are strings exactly as the annotation file gives them; *rows* are positions in the gallery. A system sees a
:class:`Query`, :class:`Feedback` and earlier :class:`Turn` values. A :class:`Target` is for the simulator and the
scorer only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from covr_lab.engines.request import Call
    from covr_lab.gallery.videos import VideoStore
    from covr_lab.reasoning.interview import Interview

Action = Literal["modify", "rewrite", "answer", "free", "stop"]
Source = Literal["simulated", "human", "scripted"]
Satisfaction = Literal["positive", "neutral", "negative"]
RETRIEVAL = "retrieval"  # in the records of refining stages: the order before the first of them
SCORING = "scoring"  # beside their wall times: what pair scorers were busy for
Part = Literal["whole", "first half", "second half"]
Outcome = Literal["first", "second", "tie", "unparseable"]
Rows = npt.NDArray[np.int32]
Scores = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Query:
    """All that a system knows at turn 0.

    Attributes:
        session_id: unique id of the annotation row.
        reference: id of the reference video, ``None`` for a text-only query.
        text: the edit (modification text), as released.
        mask_reference: whether the reference may be removed from the ranking. The data module says ``False`` for the
            rows whose reference is also their target, so that self-masking never hides a target.
        within: ids of the videos that this query searches, ``None`` for the whole gallery (EgoCVR's local galleries).
    """

    session_id: str
    reference: str | None
    text: str
    mask_reference: bool = True
    within: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The answer of one session. Never reaches a system.

    Attributes:
        session_id: whose answer it is.
        video: id of the target.
        others: further targets; whichever is ranked first counts ("any relevant").
        subset: ids among which the target is ranked once more (CIRR's subset recall), empty for no such rank.
    """

    session_id: str
    video: str
    others: tuple[str, ...] = ()
    subset: tuple[str, ...] = ()

    @property
    def videos(self) -> tuple[str, ...]:
        """All targets."""
        return (self.video, *self.others)


@dataclass(frozen=True, slots=True)
class Probe:
    """One question of a round (IVR; dossier, section 3.4).

    Attributes:
        text: the question.
        part: the part of the wanted video that it is about.
        slot: which blank of a statement its answer fills ("doing", "colour", ...), "" for a question of its own.
    """

    text: str
    part: Part = "whole"
    slot: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question of a round and what the user answered."""

    probe: Probe
    answer: str


@dataclass(frozen=True, slots=True)
class Feedback:
    """What the user said about the shown video.

    A system reads ``text``; ``action`` is for the record and for the action-derived signal of the rank-cap transplant
    (a person types text, not a label). ``exchanges`` are the questions of a round with their answers, where there was
    more than one; ``text`` then holds the answers side by side. ``rejected`` are ids of videos that the user said no to
    one by one, wherever they stood. ``memory`` holds the constraints as the user left them, to be read instead of the
    stored ones. Out of the system's sight stay ``calls``, what a simulated user asked an engine for it, and ``clean``,
    what it would have said without a degradation.
    """

    action: Action
    text: str
    source: Source = "simulated"
    calls: tuple[Call, ...] = ()
    clean: str | None = None
    exchanges: tuple[Exchange, ...] = ()
    rejected: tuple[str, ...] = ()
    memory: Reflection | None = None

    @property
    def wordless(self) -> bool:
        """Whether it is buttons alone: rejections or an edited memory, and no text."""
        return not self.text.strip() and (bool(self.rejected) or self.memory is not None)


@dataclass(frozen=True, slots=True)
class Question:
    """What a system asks before the feedback, the calls that it took, and what led to it (``events``).

    A round of several questions has an ``interview``, and ``text`` is its first one.
    """

    text: str
    calls: tuple[Call, ...] = ()
    events: tuple[Event, ...] = ()
    interview: Interview | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """Query texts of one turn; an empty text leaves the channels that read it silent.

    Attributes:
        search: standalone description of the target.
        edit: change relative to the anchor video.
        parse_ok: ``False`` when the reasoner fell back to its deterministic answer.
    """

    search: str = ""
    edit: str = ""
    parse_ok: bool = True


@dataclass(frozen=True, slots=True)
class Reflection:
    """Short-term progress memory after a turn: the signal, the accumulated constraints and the running query."""

    satisfaction: Satisfaction = "neutral"
    keep: tuple[str, ...] = ()
    require: tuple[str, ...] = ()
    avoid: tuple[str, ...] = ()
    query: str = ""
    parse_ok: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class RankedList:
    """Gallery rows, best first, without repeats.

    Attributes:
        rows: int32 ``(K,)``.
        scores: float32 ``(K,)`` aligned with ``rows``, not descending after a cap; ``None`` for a fused order.
    """

    rows: Rows
    scores: Scores | None = None

    def rank(self, row: int) -> int | None:
        """1-based position of a gallery row, ``None`` where the list lacks it.

        >>> RankedList(np.array([4, 2], dtype=np.int32)).rank(2)
        2
        """
        at = np.flatnonzero(self.rows == row)
        return int(at[0]) + 1 if at.size else None

    def head(self, size: int) -> RankedList:
        """The best ``size`` entries."""
        return RankedList(self.rows[:size], None if self.scores is None else self.scores[:size])


@dataclass(frozen=True, slots=True)
class Cap:
    """One planned demotion (rank-cap).

    Attributes:
        row: gallery row of the demoted video.
        position: 1-based position it may not be ranked above.
        reason: why: the user rejected it, or it would have stayed first.
        scope: ``window`` lists of all remembered turns, ``current`` those of this turn, ``order`` the fused order alone
            (fusion rules that read scores are blind to positions in lists).
        guard: move the video down in the fused order as well, should it still come first.
        fired: whether at least one list changed.
    """

    row: int
    position: int
    reason: Literal["rejected", "stagnant"]
    scope: Literal["window", "current", "order"] = "window"
    guard: bool = True
    fired: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth a line in the record: a fallback, a guard, a truncated text."""

    kind: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One judgement between two candidates (X-CoT; dossier, section 4).

    Attributes:
        first: gallery row of the candidate that was shown first, the one that stood higher.
        second: gallery row of the other one.
        outcome: who fits the query better, as the judge said.
        probability: that the first one does: 1, 0.5 or 0 for a hard judgement.
        reason: why, in one line; "" where the judge gave none.
        encounter: 0-based pass of the schedule.
    """

    first: int
    second: int
    outcome: Outcome
    probability: float
    reason: str = ""
    encounter: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One executed turn; turn 0 has no feedback.

    Attributes:
        index: 0-based turn number.
        question: what the system asked before the feedback.
        feedback: what the user answered, ``None`` at turn 0.
        intent: query texts, ``None`` where nothing was asked.
        state: progress memory after the turn, ``None`` before the first reflection.
        channels: result memory: channel -> its list after the caps (at most ``pool`` rows), with the scores it had.
        result: the full ranking, every gallery row that is not masked.
        caps: the plan of the rank policies for this turn.
        calls: every request to an engine that the turn took, those of its question and its simulated user included.
        stages: order before the first refining stage ("retrieval") and after each stage; empty where none ran.
        routing: which way the stages took, as numbers (flags are 0 and 1).
        stage_seconds: wall time of retrieval and of each stage, its share of the batch; and the time of pair scoring.
        comparisons: judgements between candidates, in the order in which they were made.
        seconds: wall time, its share of the batch.
        error: why the turn failed; the ranking is then that of the turn before (empty at turn 0).
    """

    index: int
    result: RankedList
    question: str | None = None
    feedback: Feedback | None = None
    intent: Intent | None = None
    state: Reflection | None = None
    channels: Mapping[str, RankedList] = field(default_factory=dict)
    caps: tuple[Cap, ...] = ()
    events: tuple[Event, ...] = ()
    calls: tuple[Call, ...] = ()
    stages: Mapping[str, RankedList] = field(default_factory=dict)
    routing: Mapping[str, float] = field(default_factory=dict)
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    comparisons: tuple[Comparison, ...] = ()
    seconds: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """A dialogue as a value: its state is a fold over its turns.

    >>> session = Session(Query("q1", "v1", "make it night"))
    >>> later = session.then(Turn(0, RankedList(np.array([4, 2], dtype=np.int32))))
    >>> len(session.turns), later.shown
    (0, 4)
    """

    query: Query
    turns: tuple[Turn, ...] = ()

    def then(self, turn: Turn) -> Session:
        """This session with one more turn."""
        if turn.index != len(self.turns):
            raise ValueError(
                f"session {self.query.session_id}: turn {turn.index} cannot follow {len(self.turns)} turns"
            )
        return replace(self, turns=(*self.turns, turn))

    @property
    def shown(self) -> int | None:
        """Gallery row of the video on display, ``None`` when turn 0 failed."""
        rows = self.turns[-1].result.rows
        return int(rows[0]) if len(rows) else None

    @property
    def state(self) -> Reflection | None:
        """Newest progress memory, ``None`` before the first reflection."""
        return next((turn.state for turn in reversed(self.turns) if turn.state is not None), None)

    @property
    def rejected(self) -> tuple[int, ...]:
        """Rows whose rejection earlier turns recorded, oldest first, each once."""
        rows = (cap.row for turn in self.turns for cap in turn.caps if cap.reason == "rejected")
        return tuple(dict.fromkeys(rows))


@dataclass(frozen=True, slots=True)
class Context:
    """What a reasoner may see of one session: never a target.

    Attributes:
        session: query and turns so far.
        state: snapshot of the progress memory before this turn; every reasoner of a turn gets the same one.
        feedback: the newest feedback, ``None`` when a question is asked or the session starts.
        question: the open question that the feedback may answer.
        reference_caption: caption of the reference video, "" when there is none.
        shown_caption: caption of the video on display, "" when there is none.
        shown: id of the video on display, ``None`` when turn 0 failed.
        candidates: captions of the best videos on display, the first one's first, "" where there is none.
        scores: similarity of each candidate to the newest query, NaN where no list of the turn holds it.
        caption_vectors: float32 ``(candidates, D)`` unit vectors of their captions, for reasoners that ask for them.
        displayed: caption of the video on display after each turn, "" where there is none, oldest first.
        videos: the media, for prompts that show frames.
        source: id of the video that ``text`` changes, ``None`` when there is none; set by a refining stage.
        text: the modification that a stage weighs, as the user or the intent gave it.
        candidate: id of the one video that is judged, ``None`` where none is.
        source_caption: caption of the source, "" when there is none.
        candidate_caption: caption of the candidate, "" when there is none.
        rival: id of the video that the candidate is compared with, ``None`` where it is not compared.
        rival_caption: caption of the rival, "" when there is none.
        encounter: 0-based pass of the schedule of comparisons.
        reasons: why the candidate won its comparisons, for who explains a ranking.
    """

    session: Session
    state: Reflection
    feedback: Feedback | None = None
    question: str | None = None
    reference_caption: str = ""
    shown_caption: str = ""
    shown: str | None = None
    candidates: tuple[str, ...] = ()
    scores: tuple[float, ...] = ()
    caption_vectors: Scores | None = field(default=None, repr=False, compare=False)
    displayed: tuple[str, ...] = ()
    videos: VideoStore | None = field(default=None, repr=False, compare=False)
    source: str | None = None
    text: str = ""
    candidate: str | None = None
    source_caption: str = ""
    candidate_caption: str = ""
    rival: str | None = None
    rival_caption: str = ""
    encounter: int = 0
    reasons: tuple[str, ...] = ()


class Refused(ValueError):
    """A request that cannot be carried out: one line that names the place and the mend."""


class SessionError(ValueError):
    """One session cannot go on (unreadable video, unknown id): a recorded failure, never the end of a run."""
