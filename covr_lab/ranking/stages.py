"""Stages refine the order of retrieval: what one gets, what it gives back, what it has to be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from covr_lab.engines.base import Engine
from covr_lab.engines.request import Call, Request
from covr_lab.frozen import Frozen
from covr_lab.gallery.gallery import Gallery
from covr_lab.reasoning.base import Reasoner
from covr_lab.types import Comparison, Context, Event, RankedList, Refused
from covr_lab.views.base import FrameView

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Work:
    """One query at one turn, as a stage gets it.

    Attributes:
        context: session so far (at turn 0 without a turn), feedback, captions, media.
        source: id of the video that the text changes: the reference at turn 0, later the composed channel's anchor.
        text: modification: the edit at turn 0, later the intent's edit, or its search text when that is empty. Without
            a source there is nothing to change: the query at turn 0, later the search text first.
        ranking: full order so far.
        scored: its head by final relevance scores, float32, from a reranking stage; ``None`` when nothing was scored.
        failed: whether an earlier stage of the turn failed for this query; nothing is then judged by its order.
    """

    context: Context
    source: str | None
    text: str
    ranking: RankedList
    scored: RankedList | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Refined:
    """What a stage made of one :class:`Work`.

    Attributes:
        ranking: full order, a permutation of the work's rows.
        scored: see :class:`Work`.
        events: fallbacks and failures.
        calls: requests to engines.
        routing: numbers of the routing report; flags are 0 and 1.
        busy: seconds of scoring, of requests in flight at once each its own.
        comparisons: judgements between candidates.
    """

    ranking: RankedList
    scored: RankedList | None = None
    events: tuple[Event, ...] = ()
    calls: tuple[Call, ...] = ()
    routing: Mapping[str, float] = field(default_factory=dict)
    busy: float = 0.0
    comparisons: tuple[Comparison, ...] = ()


class Stage(Frozen, ABC):
    """Refines the orders of a batch of queries; what it does for one does not depend on the others.

    Attributes:
        name: key of its snapshots and times, unique in a system.
        gallery: ids and captions that the system knows, after :meth:`bind`.
    """

    name: ClassVar[str]
    gallery: Gallery

    def reasoners(self) -> Mapping[str, Reasoner[Any]]:
        """Slot -> reasoner that may name an engine."""
        return {}

    @property
    def proxy(self) -> str | None:
        """What stands for videos that the stage did not see, ``None`` when it saw them."""
        return None

    @property
    def fingerprints(self) -> dict[str, str]:
        """Component -> sha256 of its weights and settings; reasoners report their own."""
        return {}

    def load(self) -> None:
        """Bring the weights into memory: here, those of the views that reasoners have."""
        for view in self._views():
            view.load()

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Take the gallery and the media; called once, after :meth:`load`."""
        self.gallery = gallery
        for view in self._views():
            view.bind(gallery, videos)

    def context(self, work: Work, candidate: str | None = None) -> Context:
        """What a reasoner sees of ``work``, and of one candidate."""
        return replace(
            work.context,
            source=work.source,
            text=work.text,
            candidate=candidate,
            source_caption=self.gallery.caption(work.source),
            candidate_caption=self.gallery.caption(candidate),
        )

    def rehearse(self, work: Work) -> tuple[Request, ...]:
        """The requests that ``work`` may take at most; nothing is sent."""
        return tuple(slot.rehearse(self.context(work)) for slot in self.reasoners().values() if slot.engine)

    @abstractmethod
    def forward(self, works: Sequence[Work], engines: Mapping[str, Engine]) -> list[Refined]:
        """One result a work, in order.

        Raises:
            Exception: of any kind; each work is then tried alone, and the one that fails keeps its order.
        """

    def _views(self) -> list[FrameView]:
        modules = (module for slot in self.reasoners().values() for module in slot.modules())
        return list(dict.fromkeys(module for module in modules if isinstance(module, FrameView)))


def isolated(call: Callable[[Sequence[Item]], Sequence[Result]], items: Sequence[Item]) -> list[Result | Exception]:
    """Results of ``call`` on all ``items`` at once; if that fails, of each alone, and the one that fails has its error.

    Raises:
        Refused: nothing can go on (an engine is gone, a recipe asks for what there is not).

    >>> isolated(lambda some: [1 // item for item in some], [1, 0])
    [1, ZeroDivisionError('integer division or modulo by zero')]
    """
    if not items:
        return []
    try:
        found = call(items)
        if len(found) != len(items):
            raise ValueError(f"{len(found)} results for {len(items)} items")
    except Refused:
        raise
    except Exception as error:  # whatever a model or a server does, the other queries go on
        return [error] if len(items) == 1 else [isolated(call, [item])[0] for item in items]
    return list(found)


def reason(error: Exception) -> str:
    r"""What went wrong, on one line.

    >>> reason(ValueError("two\nlines")), reason(KeyError())
    ('ValueError: two lines', 'KeyError')
    """
    return " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
