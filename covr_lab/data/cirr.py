"""CIRR (Liu et al., ICCV 2021): pictures of everyday scenes; a pair comes from a set of six alike."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from covr_lab.data.base import Triplet, TripletDataModule
from covr_lab.data.media import media_file
from covr_lab.data.records import Record, identifier, parse_json, read_text, records, text, value
from covr_lab.hub import local_path


def rivals(place: str, record: Record, reference: str, target: str) -> tuple[str, ...]:
    """The pictures of the pair's set but the reference: among them the target is ranked for the subset recall.

    >>> rivals("f.json: entry 0", {"img_set": {"members": ["a", "b", "c"]}}, "b", "c")
    ('a', 'c')
    """
    found = value(place, record, "img_set")
    members = found.get("members") if isinstance(found, dict) else None
    if not isinstance(members, list) or not {reference, target} <= set(members):
        raise ValueError(f"{place}: img_set.members lacks reference or target: {json.dumps(members)} (add them)")
    return tuple(dict.fromkeys(member for member in members if member != reference))


class CIRR(TripletDataModule):
    """CIRR's validation split; pictures are videos of one frame.

    The target is ``target_hard``, a session id the ``pairid``. The gallery is every picture of the split file, each
    query's reference masked by the protocol. Beside the rank in the gallery there is one among the five others of the
    pair's set: subset recall, ``Rs@K``.

    Args:
        annotations: ``cap.rc2.val.json``; also a name on the Hub.
        split_file: ``split.rc2.val.json``, which names the pictures and where each lies below ``videos_dir``; also a
            name on the Hub.
        options: see :class:`~covr_lab.data.base.TripletDataModule`.
    """

    def __init__(self, *, annotations: str, split_file: str, **options: Any) -> None:
        super().__init__(gallery="targets", gallery_file=None, video_name="{id}", **options)
        self.annotations, self.split_file = annotations, split_file

    def read(self) -> list[Triplet]:
        """All pairs.

        Raises:
            ValueError: a field is missing, or the target is not in its set; the message starts with the file.
        """
        rows = []
        for place, record in records(local_path(self.annotations)):
            reference, target = (identifier(place, record, column) for column in ("reference", "target_hard"))
            edit, subset = text(place, record, "caption"), rivals(place, record, reference, target)
            name = identifier(place, record, "pairid")
            rows.append(Triplet(name, reference, target, edit, place=place, subset=subset))
        return rows

    @cached_property
    def places(self) -> dict[str, str]:
        """Picture -> path below ``videos_dir``.

        Raises:
            ValueError: the split file is no object of paths.
        """
        path = local_path(self.split_file)
        content = parse_json(read_text(path, "data.split_file"), path)
        if not isinstance(content, dict) or not all(isinstance(place, str) for place in content.values()):
            raise ValueError(f"{path}: no object from ids to paths (check data.split_file)")
        return content

    def media_path(self, video: str) -> Path:
        """Where the split file says that a picture lies."""
        if self.videos_dir is None or video not in self.places:
            return super().media_path(video)
        return media_file(self.videos_dir, "{id}", self.places[video])

    def gallery_ids(self) -> set[str]:
        """Every picture of the split."""
        return set(self.places)

    @property
    def gallery_source(self) -> str:
        """The split file."""
        return self.split_file

    @property
    def gallery_name(self) -> str:
        """The split file is the gallery."""
        return "split"
