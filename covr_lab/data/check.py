"""What a data set holds, counted from annotations and media: the facts that a result has to be read with."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tqdm import tqdm

from covr_lab.data.base import TripletDataModule, missing_targets
from covr_lab.video import Probe, VideoError

BOUNDS = (0, 5, 10, 20, 40, 80)  # words; the histogram counts lengths above one bound up to the next


def spread(values: Sequence[float]) -> dict[str, float]:
    """Smallest, median and largest value; nothing of nothing.

    >>> spread([4, 1, 2]), spread([])
    ({'min': 1, 'median': 2, 'max': 4}, {})
    """
    return {"min": min(values), "median": median(values), "max": max(values)} if values else {}


def word_counts(texts: Iterable[str]) -> dict[str, float]:
    """Smallest, median and largest number of blank-separated words.

    >>> word_counts(["make it red", "bluer"])
    {'min': 1, 'median': 2.0, 'max': 3}
    """
    return spread([len(text.split()) for text in texts]) or spread([0])


def histogram(texts: Sequence[str]) -> dict[str, int]:
    """Texts by number of words.

    >>> histogram(["", "make it red", " ".join("x" * 81)])
    {'0': 1, '1-5': 1, '6-10': 0, '11-20': 0, '21-40': 0, '41-80': 0, '81+': 1}
    """
    counts = [len(text.split()) for text in texts]
    inner = {f"{low + 1}-{high}": sum(low < count <= high for count in counts) for low, high in pairwise(BOUNDS)}
    return {"0": counts.count(0), **inner, f"{BOUNDS[-1] + 1}+": sum(count > BOUNDS[-1] for count in counts)}


def probe_all(data: TripletDataModule) -> tuple[list[Probe], dict[str, str]]:
    """Open every video of a set with the reader of the recipe: what can be read, and id -> reason of the others."""
    probes: list[Probe] = []
    failed: dict[str, str] = {}
    for video in tqdm(data.video_ids, unit=" videos", disable=None, dynamic_ncols=True):
        try:
            probe = data.reader.probe(data.media_path(video))
        except VideoError as error:
            failed[video] = error.reason
            continue
        if defect := data.defect(probe):
            failed[video] = defect
        else:
            probes.append(probe)
    return probes, failed


def extra_files(data: TripletDataModule) -> int:
    """Files in the media folders that no id refers to; hidden ones do not count."""
    known = {data.media_path(video) for video in data.video_ids}
    folders = set(data.media_folders.values())
    outer = [folder for folder in folders if folders.isdisjoint(folder.parents)]
    walked = (item for folder in outer for item in os.walk(folder))
    return sum(
        not name.startswith(".") and Path(place, name) not in known
        for place, _, files in walked
        if Path(place) not in known  # such a folder is a video, and its files are the frames
        for name in files
    )


def media(data: TripletDataModule, failed_file: Path) -> dict[str, Any]:
    """What is there of the media of a set; the ids of what cannot be read go to ``failed_file``, with the reasons."""
    probes, failed = probe_all(data)
    if failed:
        failed_file.write_text("".join(f"{video}\t{reason}\n" for video, reason in failed.items()), encoding="utf-8")
    reasons = Counter(failed.values())
    return {
        "referenced": len(probes) + len(failed),
        "found": len(probes) + len(failed) - reasons["missing"],
        "readable": len(probes),
        "failed": dict(reasons.most_common()),
        "failed_list": str(failed_file.resolve()) if failed else None,
        "extra_files": extra_files(data),
        "codecs": dict(Counter(probe.codec for probe in probes).most_common()),
        "frames": spread([probe.total for probe in probes]),
        "seconds": spread([probe.seconds for probe in probes if probe.seconds is not None]),
        "fps": spread([probe.fps for probe in probes if probe.fps is not None]),
        "width": spread([probe.width for probe in probes]),
        "height": spread([probe.height for probe in probes]),
    }


def describe(data: TripletDataModule, failed_file: Path = Path("failed_videos.tsv")) -> dict[str, Any]:
    """Facts about a data set: all annotation rows, whatever ``limit`` says.

    Args:
        data: a data module; everything is read and checked first.
        failed_file: where the ids of videos that cannot be read are written, ``id<TAB>reason``, if there are any.
    """
    data.setup("predict")
    rows, gallery = data.triplets, data.user_gallery
    references = {row.reference for row in rows if row.reference is not None}
    targets = {target for row in rows for target in row.targets}
    videos = data.video_ids
    missing = missing_targets(rows, gallery)
    shared = Counter(gallery.caption(video) for video in targets if gallery.caption(video))
    edits = [row.edit for row in rows]
    return {
        "data": type(data).__name__,
        "rows": len(rows),
        "sessions": len(data.queries()),
        "references": len(references),
        "targets": len(targets),
        "gallery": len(gallery),
        "videos": len(videos),
        "rows_with_reference_in_gallery": sum(row.reference in gallery.row for row in rows),
        "rows_with_reference_as_target": sum(row.reference in row.targets for row in rows),
        "rows_with_several_targets": sum(bool(row.others) for row in rows),
        "rows_with_a_subset": sum(bool(row.subset) for row in rows),
        "targets_not_in_gallery": len(missing),
        "first_targets_not_in_gallery": missing[:5],
        "targets_sharing_a_caption": sum(count for count in shared.values() if count > 1),
        "empty_edits": edits.count(""),
        "edit_words": word_counts(edits),
        "edit_words_histogram": histogram(edits),
        "videos_without_caption": sum(not gallery.caption(video) for video in videos),
        "caption_words": word_counts(gallery.captions.values()),
        **data.quirks,
        "protocol": {"gallery": data.gallery_name, **data.terms},
        "proxy": data.proxy,
        "annotation_digest": data.digest,
        "gallery_digest": gallery.digest,
        "media": media(data, failed_file) if data.media_folders else None,
    }


def report(facts: dict[str, Any]) -> str:
    """The facts of :func:`describe` as lines to print."""
    lines = {name: value for name, value in facts.items() if name != "media"}
    found = facts["media"]
    lines |= {"media": "no media folder given"} if found is None else {f"media {key}": found[key] for key in found}
    return "\n".join(f"{name.replace('_', ' '):32} {_shown(value)}" for name, value in lines.items())


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_shown(entry)}" for name, entry in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return f"{value:g}" if isinstance(value, float) else "none" if value is None else str(value)
