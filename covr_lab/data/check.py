"""What an annotation set holds, counted from the data: the facts that a result has to be read with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from covr_lab.data.base import TripletDataModule, missing_targets

BOUNDS = (0, 5, 10, 20, 40, 80)  # words; the histogram counts lengths above one bound up to the next


def word_counts(texts: Iterable[str]) -> dict[str, float]:
    """Smallest, median and largest number of blank-separated words.

    >>> word_counts(["make it red", "bluer"])
    {'min': 1, 'median': 2.0, 'max': 3}
    """
    counts = [len(text.split()) for text in texts] or [0]
    return {"min": min(counts), "median": median(counts), "max": max(counts)}


def histogram(texts: Sequence[str]) -> dict[str, int]:
    """Texts by number of words.

    >>> histogram(["", "make it red", " ".join("x" * 81)])
    {'0': 1, '1-5': 1, '6-10': 0, '11-20': 0, '21-40': 0, '41-80': 0, '81+': 1}
    """
    counts = [len(text.split()) for text in texts]
    inner = {f"{low + 1}-{high}": sum(low < count <= high for count in counts) for low, high in pairwise(BOUNDS)}
    return {"0": counts.count(0), **inner, f"{BOUNDS[-1] + 1}+": sum(count > BOUNDS[-1] for count in counts)}


def media(folder: Path, videos: Sequence[str], missing_file: Path) -> dict[str, Any]:
    """How many videos have a file ``<id>.mp4`` that is not empty; the ids of the others go to ``missing_file``.

    Raises:
        FileNotFoundError: ``folder`` is not a folder.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder (check data.videos_dir)")
    files = {video: folder / f"{video}.mp4" for video in videos}
    missing = [video for video, file in files.items() if not file.is_file() or file.stat().st_size == 0]
    if missing:
        missing_file.write_text("".join(f"{video}\n" for video in missing), encoding="utf-8")
    return {
        "found": len(files) - len(missing),
        "missing": len(missing),
        "missing_list": str(missing_file.resolve()) if missing else None,
    }


def describe(data: TripletDataModule, missing_file: Path = Path("missing_videos.txt")) -> dict[str, Any]:
    """Facts about a data set: all annotation rows, whatever ``limit`` says.

    Args:
        data: a data module; everything is read and checked first.
        missing_file: where the ids without media are written, one a line, if there are any.
    """
    rows, gallery = data.triplets, data.gallery
    references = {row.reference for row in rows if row.reference is not None}
    targets = {row.target for row in rows}
    videos = sorted(references | targets | set(gallery.ids))
    missing = missing_targets(rows, gallery)
    shared = Counter(gallery.caption(video) for video in targets if gallery.caption(video))
    edits = [row.edit for row in rows]
    return {
        "rows": len(rows),
        "sessions": len(data.queries()),
        "references": len(references),
        "targets": len(targets),
        "gallery": len(gallery),
        "videos": len(videos),
        "rows_with_reference_in_gallery": sum(row.reference in gallery.row for row in rows),
        "rows_with_reference_as_target": sum(row.reference == row.target for row in rows),
        "targets_not_in_gallery": len(missing),
        "first_targets_not_in_gallery": missing[:5],
        "targets_sharing_a_caption": sum(count for count in shared.values() if count > 1),
        "empty_edits": edits.count(""),
        "edit_words": word_counts(edits),
        "edit_words_histogram": histogram(edits),
        "videos_without_caption": sum(not gallery.caption(video) for video in videos),
        "caption_words": word_counts(gallery.captions.values()),
        "annotation_digest": data.digest,
        "gallery_digest": gallery.digest,
        "media": None if data.videos_dir is None else media(data.videos_dir, videos, missing_file),
    }


def report(data: TripletDataModule, missing_file: Path = Path("missing_videos.txt")) -> str:
    """:func:`describe` as lines to print."""
    facts = describe(data, missing_file)
    found = facts.pop("media") or "no media folder given"
    lines = [f"{name.replace('_', ' '):32} {_shown(value)}" for name, value in {**facts, "media": found}.items()]
    return "\n".join([type(data).__name__, *lines])


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_shown(entry)}" for name, entry in value.items())
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
