"""WebVid-CoVR (Ventura et al., arXiv 2308.14746) and Dense-WebVid-CoVR (Thawakar et al., arXiv 2508.14039)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from covr_lab.data.base import Triplet
from covr_lab.data.records import Record, identifier
from covr_lab.data.triplets import Columns, TripletFile

RELEASED = Columns("pth1", "pth2", "edit", reference_caption="txt1", target_caption="txt2")


class WebVidCoVR(TripletFile):
    """WebVid-CoVR as released; a session id is the 0-based row number.

    Args:
        annotations: ``webvid8m-covr_test.csv``, or a file of the train or validation split.
        options: see :class:`~covr_lab.data.base.TripletDataModule`.
    """

    def __init__(self, *, annotations: str, **options: Any) -> None:
        super().__init__(annotations=annotations, columns=RELEASED, **options)


class DenseWebVidCoVR(TripletFile):
    """Dense-WebVid-CoVR: the same videos with long edits.

    Args:
        annotations: the released ``.csv`` (columns of WebVid-CoVR, long captions; a session id is the row number), or
            the ``.jsonl`` that joins the challenge files to WebVid-CoVR (a session id is ``<split>-<id>``).
        captions: the joined file has ``short`` captions of all videos and ``dense`` ones of few targets; the released
            file has ``dense`` ones only.
        options: see :class:`~covr_lab.data.base.TripletDataModule`.
    """

    def __init__(
        self,
        *,
        annotations: str,
        captions: Literal["short", "dense"] = "short",
        **options: Any,
    ) -> None:
        self.released = Path(annotations).suffix == ".csv"
        if self.released and captions == "short":
            raise ValueError(f"{annotations}: the released file has no short captions (set data.captions to dense)")
        joined = Columns(
            "ref", "target", "edit_dense", "session", f"ref_caption_{captions}", f"target_caption_{captions}"
        )
        columns = RELEASED if self.released else joined
        super().__init__(annotations=annotations, columns=columns, **options)

    def records(self) -> Iterator[tuple[str, Record]]:
        """Rows of the file; those of the joined one get their session id."""
        for place, record in super().records():
            if self.released:
                yield place, record
            else:
                parts = (identifier(place, record, name) for name in ("split", "id"))
                yield place, {**record, "session": "-".join(parts)}

    def read(self) -> list[Triplet]:
        """All rows, each with a caption of its target.

        Raises:
            ValueError: a target has no caption of the chosen kind.
        """
        rows = super().read()
        for row in rows:
            if not row.target_caption:
                raise ValueError(
                    f"{row.place}: no {self.columns.target_caption} for target {row.target!r} "
                    "(fill it in, or set data.captions to short)"
                )
        return rows
