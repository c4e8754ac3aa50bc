"""FineCVR-1M (Wu et al., ICLR 2025): edits of fine detail over clips of several video sets, published as frames."""

from __future__ import annotations

from typing import Any

from covr_lab.data.base import GalleryRule
from covr_lab.data.triplets import Columns, TripletFile
from covr_lab.video import Probe

FRAMES = 8


class FineCVR(TripletFile):
    """FineCVR as released: ids ``dataset/clip``, each a folder of eight frames without times.

    The paper evaluates 10,043 queries, a harness release has 2,000 over 2,165 videos: ``tools/check_data.py`` says
    what a file holds. No paper states the gallery; the default here is the harder one, targets and references, each
    query's own reference masked by the protocol.

    Args:
        annotations: ``test.json``, a list of ``{source, target, instruct}``; also a name on the Hub. A session id is
            the 0-based row number.
        gallery: what is searched.
        gallery_file: text file with one id a line that replaces the gallery rule; also a name on the Hub.
        options: see :class:`~covr_lab.data.base.TripletDataModule`.
    """

    def __init__(
        self, *, annotations: str, gallery: GalleryRule = "union", gallery_file: str | None = None, **options: Any
    ) -> None:
        super().__init__(
            annotations=annotations,
            columns=Columns("source", "target", "instruct"),
            gallery=gallery if gallery_file is None else "targets",
            gallery_file=gallery_file,
            video_name="{id}",
            **options,
        )

    def defect(self, probe: Probe) -> str:
        """A clip of the release has eight frames."""
        return "" if probe.total == FRAMES else f"{probe.total} frames instead of {FRAMES}"
