"""What is searched: an ordered list of video ids, and the captions that are known of videos."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Gallery:
    """Gallery ids in row order, and captions of gallery and reference videos (long-term progress memory).

    Rows are sorted by id, so that nothing (ties least of all) depends on the order of a file.

    Attributes:
        ids: one id a row, unique.
        captions: video id -> caption, for gallery videos and references; ids without a caption are absent.
        edits: target id -> edit of its annotation row, for CoVR's query-pooled galleries; empty in any other protocol.
        dialogues: video id -> (question, answer) pairs that people once exchanged about it, in order; in the gallery of
            user and scorer alone.

    >>> gallery = Gallery.of(["b", "a", "b"], {"a": "a dog"})
    >>> gallery.ids, gallery.row["b"], gallery.caption("b")
    (('a', 'b'), 1, '')
    """

    ids: tuple[str, ...]
    captions: Mapping[str, str]
    edits: Mapping[str, str] = field(default_factory=dict)
    dialogues: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, ids: Iterable[str], captions: Mapping[str, str]) -> Gallery:
        """A gallery of the distinct ``ids``."""
        return cls(tuple(sorted(set(ids))), dict(captions))

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def row(self) -> dict[str, int]:
        """Video id -> row."""
        return {video: row for row, video in enumerate(self.ids)}

    def caption(self, video: str | None) -> str:
        """Caption of a gallery or reference video, "" when none is known."""
        return "" if video is None else self.captions.get(video, "")

    @cached_property
    def digest(self) -> str:
        """sha256 of the ordered ids: two runs with equal digests ranked the same videos."""
        return hashlib.sha256(json.dumps(self.ids).encode()).hexdigest()
