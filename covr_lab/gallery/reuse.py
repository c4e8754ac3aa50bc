"""Rows that another artifact holds already: a gallery that has grown or shrunk is not encoded again.

A row depends on its encoder, part, frames, reader, libraries and media alone, and on no other video. So it can be taken
from any artifact that is equal in these, finished or not, once the media of its videos are proven to be those of today:
their digest, computed anew, must be that in the artifact's address.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from covr_lab.gallery.cache import cache_dir
from covr_lab.gallery.store import ADDRESS, MANIFEST, Address, outcomes, read_row, write_shard
from covr_lab.types import Refused, SessionError

if TYPE_CHECKING:
    from pathlib import Path

    from covr_lab.gallery.videos import VideoStore

BATCH = 16  # rows of a shard; visual tokens of one video take megabytes
_log = logging.getLogger(__name__)


def take_over(address: Address, wanted: Sequence[str], videos: VideoStore) -> list[str]:
    """Copy the rows of ``wanted`` videos that other artifacts hold into shards of the one at ``address``.

    Failures are not taken over: those videos are tried again. A row is checked against its sha256 on the way, and a
    damaged artifact is one warning.

    Returns:
        The videos whose rows were found, in the order of ``wanted``.
    """
    taken: set[str] = set()
    for other in _relatives(address) if wanted else ():
        useful = {*other.ids}.intersection(wanted) - taken
        if not useful or not _same_media(other, videos):
            continue
        try:
            known = outcomes(other.folder)
            held = [video for video in wanted if video in useful and video in known and known[video].row is not None]
            for start in range(0, len(held), BATCH):
                rows = {video: read_row(video, known[video]) for video in held[start : start + BATCH]}
                write_shard(address.folder, rows, {})
                taken.update(rows)
        except Refused as error:
            _log.warning("not all rows are taken over: %s", error)
    return [video for video in wanted if video in taken]


def is_superseded(old: Path, new: Path) -> bool:
    """Whether the artifact in folder ``new`` is that in ``old`` of other videos."""
    before, after = _address_of(old), _address_of(new)
    return before is not None and after is not None and _kin(before, after)


def _kin(one: Address, other: Address) -> bool:
    return one != other and replace(other, media=one.media, ids=one.ids) == one


def _relatives(address: Address) -> list[Address]:
    """Addresses of the artifacts on disk that differ in their videos alone, largest first."""
    found = [_address_of(folder) for folder in sorted((cache_dir() / "galleries").glob("*"))]
    return sorted((other for other in found if other and _kin(address, other)), key=lambda other: -len(other.ids))


def _address_of(folder: Path) -> Address | None:
    """What an artifact says it is made from; ``None`` where it does not fit its folder."""
    for name in (MANIFEST, ADDRESS):
        try:
            said = json.loads((folder / name).read_text(encoding="utf-8"))
            address = Address(**{each.name: said[each.name] for each in fields(Address)} | {"ids": tuple(said["ids"])})
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if address.digest == folder.name:
            return address
    return None


def _same_media(other: Address, videos: VideoStore) -> bool:
    try:
        return videos.digest(other.ids) == other.media
    except (SessionError, ValueError):  # ids of another data set, that cannot be names here
        return False
