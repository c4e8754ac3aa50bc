"""FashionIQ (Wu et al., CVPR 2021): pictures of clothes and two relative captions of each pair."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from covr_lab.data.base import Triplet, TripletDataModule
from covr_lab.data.records import Record, identifier, parse_json, read_text, records, value
from covr_lab.hub import local_path

Category = Literal["dress", "shirt", "toptee"]
Searched = Literal["split", "union"]


def joined(place: str, record: Record) -> str:
    """The two relative captions as one edit: joined by "and" in the file's order; one of them may be blank.

    >>> joined("f.json: entry 0", {"captions": ["is shiny ", "fit and flare"]})
    'is shiny and fit and flare'
    >>> joined("f.json: entry 1", {"captions": ["", "fades to orange"]})
    'fades to orange'
    """
    said = value(place, record, "captions")
    if not isinstance(said, list) or len(said) != 2 or not all(isinstance(one, str) for one in said):
        raise ValueError(
            f"{place}: 'captions' must be two texts, not {json.dumps(said)} (write both; one may be blank)"
        )
    return " and ".join(one.strip() for one in said if one.strip())


class FashionIQ(TripletDataModule):
    """One category of FashionIQ's validation split; pictures are videos of one frame.

    A session id is ``<category>-<row number>``. The edit is both captions joined by "and" in the file's order, as most
    evaluations have it; some average over both orders. Papers report R@10 and R@50 of each category, and their mean
    over the three; with one run a category that mean is left to the reader.

    Two galleries are in use, and numbers on one say nothing about the other: ``split``, all pictures of the
    category's split file (3,817, 6,346 and 5,373), and ``union``, those of the pairs alone (2,628, 3,089 and 2,902).
    Not every paper masks the reference: ``protocol.mask_source`` says.

    Args:
        annotations: ``cap.{category}.val.json``; also a name on the Hub. ``{category}`` stands for the category.
        category: dress, shirt or toptee.
        gallery: what is searched.
        split_file: ``split.{category}.val.json``, for the split's gallery; also a name on the Hub.
        video_name: where a picture lies below ``videos_dir``.
        options: see :class:`~covr_lab.data.base.TripletDataModule`.
    """

    def __init__(
        self,
        *,
        annotations: str,
        category: Category,
        gallery: Searched = "split",
        split_file: str | None = None,
        video_name: str = "{id}.jpg",
        **options: Any,
    ) -> None:
        super().__init__(gallery="union", gallery_file=None, video_name=video_name, **options)
        if gallery == "split" and split_file is None:
            raise ValueError("data.split_file is not set (name the split's file, or set data.gallery to union)")
        self.category, self.searched = category, gallery
        self.annotations = annotations.replace("{category}", category)
        self.split_file = None if split_file is None else split_file.replace("{category}", category)

    def read(self) -> list[Triplet]:
        """All pairs of the category.

        Raises:
            ValueError: a row has not two captions; the message starts with the file.
        """
        rows = []
        for number, (place, record) in enumerate(records(local_path(self.annotations))):
            reference, target = (identifier(place, record, column) for column in ("candidate", "target"))
            rows.append(Triplet(f"{self.category}-{number}", reference, target, joined(place, record), place=place))
        return rows

    @cached_property
    def split(self) -> list[str]:
        """Pictures of the split file."""
        return id_list(local_path(self.split_file)) if self.split_file is not None else []

    def gallery_ids(self) -> set[str]:
        """Pictures of the split file, or of all pairs."""
        return set(self.split) if self.searched == "split" else super().gallery_ids()

    @property
    def gallery_source(self) -> str:
        """The split file, where it is the gallery."""
        return str(self.split_file) if self.searched == "split" else super().gallery_source

    @property
    def gallery_name(self) -> str:
        """The protocol and the category."""
        return f"{self.searched}, {self.category}"

    @property
    def quirks(self) -> dict[str, Any]:
        """Pairs of which one of the two captions is blank."""
        rows = (record for _, record in records(local_path(self.annotations)))
        return {"rows_with_a_blank_caption": sum(not one.strip() for row in rows for one in row["captions"])}


def id_list(path: Path) -> list[str]:
    """The ids of a split file, a JSON list.

    Raises:
        ValueError: it is none, or an entry is no id.
    """
    content = parse_json(read_text(path, "data.split_file"), path)
    if not isinstance(content, list) or not content or not all(isinstance(one, str) and one for one in content):
        raise ValueError(f"{path}: no list of ids (check data.split_file)")
    return content
