"""Film strips of the videos in a report's example sessions, stored with the run so that the report needs no media."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covr_lab.results.examples import choose
from covr_lab.results.reader import densify, read_rows, read_run
from covr_lab.types import SessionError

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore

FRAMES, HEIGHT, GAP = 3, 72, 3  # frames of a strip; pixels


def strip_file(run_dir: Path, video: str) -> Path:
    """Where the strip of a video lies; its name does not depend on what file systems make of the id."""
    return run_dir / "strips" / f"{hashlib.sha256(video.encode()).hexdigest()[:16]}.jpg"


def strip(frames: npt.NDArray[np.uint8]) -> bytes:
    """Frames side by side as one JPEG.

    Args:
        frames: uint8 ``(F, H, W, 3)``, RGB.

    >>> strip(np.zeros((3, 20, 30, 3), np.uint8))[:2] == bytes([0xFF, 0xD8])
    True
    """
    from PIL import Image

    width = max(1, round(frames.shape[2] * HEIGHT / frames.shape[1]))
    sheet = Image.new("RGB", (len(frames) * (width + GAP) - GAP, HEIGHT), "white")
    for number, frame in enumerate(frames):
        picture = Image.fromarray(frame).resize((width, HEIGHT), Image.Resampling.BICUBIC)
        sheet.paste(picture, (number * (width + GAP), 0))
    target = io.BytesIO()
    sheet.save(target, "JPEG", quality=85)
    return target.getvalue()


def pictured(run_dir: Path) -> list[str]:
    """Ids of the reference, shown and target videos of a report's sessions, each once, but no unreadable ones."""
    rows, run = read_rows(run_dir), read_run(run_dir)
    chosen = {session for ids in choose(densify(rows, run["protocol"]["turns"])).values() for session in ids}
    table = rows.select(["session_id", "reference", "shown", "target"]).to_pylist()
    found = [row[key] for row in table if row["session_id"] in chosen for key in ("reference", "shown", "target")]
    unreadable = run.get("unreadable_videos", {})  # a file that hangs would cost its time limit once more
    return list(dict.fromkeys(video for video in found if video is not None and video not in unreadable))


def write_strips(run_dir: Path, videos: VideoStore, wanted: Iterable[str]) -> None:
    """Store the strips that are not there yet; a video that cannot be read has none."""
    from covr_lab.video import Uniform

    for video in wanted:
        path = strip_file(run_dir, video)
        if path.exists():
            continue
        try:
            clip = videos.clip(video, Uniform(FRAMES))
        except SessionError:
            continue  # it is in the run's list of unreadable videos
        path.parent.mkdir(exist_ok=True)
        part = path.with_suffix(".tmp")
        part.write_bytes(strip(clip.frames))
        part.replace(path)
