"""What scorers that read videos in frames have in common: a view, and what it shows of a pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from covr_lab.engines.request import Media
from covr_lab.gallery.gallery import Gallery
from covr_lab.scorers.base import Pair, PairScorer
from covr_lab.types import SessionError
from covr_lab.views.base import FrameView

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore

Parts = tuple[str | Media, ...]


class SeeingScorer(PairScorer):
    """A scorer that reads source and candidate in the frames of a view, or in the words of their captions.

    Args:
        view: which frames, ``None`` for captions alone.
    """

    def __init__(self, *, view: FrameView | None = None) -> None:
        super().__init__()
        self.view = view

    def load(self) -> None:
        """Load what the view needs."""
        if self.view is not None:
            self.view.load()

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Take gallery and media, also for the view."""
        super().bind(gallery, videos)
        if self.view is not None:
            self.view.bind(gallery, videos)

    def reads(self, video: str) -> str:
        """Digest of the frames that are shown, or the caption."""
        return super().reads(video) if self.view is None else self.view.media(video).digest

    def query(self, pair: Pair) -> Parts:
        """The composed query: source, then text.

        Raises:
            SessionError: nothing is known of the source, or there is neither source nor text.
        """
        source = self.shown(pair.source, "\n" if pair.text else "") if pair.source is not None else ()
        if not source and not pair.text:
            raise SessionError("the query has neither a source nor a text")
        return (*source, pair.text) if pair.text else source

    def shown(self, video: str, after: str = "") -> Parts:
        """What stands for one video; a caption is followed by ``after``.

        Raises:
            SessionError: nothing is known of it.
        """
        if self.view is not None:
            return (self.view.media(video),)
        if caption := self.gallery.caption(video):
            return (f"{caption}{after}",)
        raise SessionError(f"video '{video}' has no caption (name a `view`, or captions in the recipe)")
