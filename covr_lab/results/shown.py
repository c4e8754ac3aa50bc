"""A stored turn as its engines saw it: every prompt with its frames, and every answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covr_lab.results.strips import strip
from covr_lab.types import Refused, SessionError

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore


def calls_text(row: Mapping[str, Any], frames: Mapping[tuple[str, int], str]) -> str:
    """The calls of one row in the order of asking.

    Args:
        row: of :data:`~covr_lab.results.schema.SCHEMA`.
        frames: (video, number of frames) -> where its pictures lie, or why there are none.
    """
    blocks = [f"session {row['session_id']}, turn {row['turn']}: {len(row['prompts'] or ())} calls"]
    for call in row["prompts"] or ():
        verdict = "could be read" if call["valid"] else "could not be read"
        blocks.append(f"=== {call['module']}, attempt {call['attempt']}: the answer {verdict}")
        if call["system"]:
            blocks.append(f"--- system\n{call['system']}")
        blocks.append(f"--- user\n{''.join(_part(part, frames) for part in call['content'])}")
        blocks.append(f"--- answer\n{call['error'] or call['answer']}")
    return "\n\n".join(blocks)


def _part(part: Mapping[str, Any], frames: Mapping[tuple[str, int], str]) -> str:
    if part["video"] is None:
        return str(part["text"])
    return f"[{part['frames']} frames of {part['video']}: {frames[part['video'], part['frames']]}]"


def wanted(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Videos and numbers of frames that the prompts of ``rows`` show, each once."""
    parts = [part for row in rows for call in row["prompts"] or () for part in call["content"]]
    return list(dict.fromkeys((part["video"], part["frames"]) for part in parts if part["video"] is not None))


def write_frames(
    run_dir: Path, videos: VideoStore | None, shown: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], str]:
    """Store the frames that prompts showed as film strips in ``run_dir/frames``, read again from the media.

    Returns:
        (video, number of frames) -> path of its strip and the times of its frames, or why it cannot be read.
    """
    from covr_lab.video import Uniform

    found = {}
    for video, count in shown:
        path = run_dir / "frames" / f"{hashlib.sha256(video.encode()).hexdigest()[:16]}-{count}.jpg"
        try:
            if videos is None:
                raise SessionError("the recipe names no videos")
            clip = videos.clip(video, Uniform(count))
        except SessionError as error:
            found[video, count] = str(error)
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(strip(clip.frames))
        times = "no clock" if clip.seconds is None else " ".join(f"{second:.2f}" for second in clip.seconds) + " s"
        found[video, count] = f"{path}, {times}"
    return found


def videos_of(run: Mapping[str, Any]) -> VideoStore | None:
    """The media of a run, as its recipe names them.

    Raises:
        Refused: the data of the recipe cannot be opened any more.
    """
    from covr_lab.recipe import build_parser, explain

    parser = build_parser()
    try:
        videos: VideoStore | None = parser.instantiate(parser.parse_object(run["recipe"])).data.videos
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise Refused(f"run {run['name']}: {explain(str(error))}") from error
    return videos
