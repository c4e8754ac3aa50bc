"""A stored turn as its engines saw it: every prompt with its frames, and every answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covr_lab.results.strips import strip
from covr_lab.types import Refused, SessionError

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore


@dataclass(frozen=True, slots=True)
class Shown:
    """A video as a prompt showed it.

    Attributes:
        video: id.
        frames: how many.
        places: native indices of the frames, ``None`` for uniform ones.
        side: pixels that the longer side could have, ``None`` for any.
        timestamps: whether each frame had its time in it.
    """

    video: str
    frames: int
    places: tuple[int, ...] | None = None
    side: int | None = None
    timestamps: bool = False

    @classmethod
    def of(cls, part: Mapping[str, Any]) -> Shown:
        """What a stored piece of a prompt says."""
        places = None if part["places"] is None else tuple(part["places"])
        return cls(part["video"], part["frames"], places, part["side"], bool(part["timestamps"]))

    @property
    def stem(self) -> str:
        """Name of its strip."""
        name = hashlib.sha256(self.video.encode()).hexdigest()[:16]
        if self == Shown(self.video, self.frames):
            return f"{name}-{self.frames}"
        return f"{name}-{self.frames}-{hashlib.sha256(repr(self).encode()).hexdigest()[:8]}"


def calls_text(row: Mapping[str, Any], frames: Mapping[Shown, str]) -> str:
    """The calls of one row in the order of asking.

    Args:
        row: of :data:`~covr_lab.results.schema.SCHEMA`.
        frames: what was shown -> where its pictures lie, or why there are none.
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


def _part(part: Mapping[str, Any], frames: Mapping[Shown, str]) -> str:
    if part["video"] is None:
        return str(part["text"])
    return f"[{part['frames']} frames of {part['video']}: {frames[Shown.of(part)]}]"


def wanted(rows: Sequence[Mapping[str, Any]]) -> list[Shown]:
    """What the prompts of ``rows`` show of videos, each once."""
    parts = [part for row in rows for call in row["prompts"] or () for part in call["content"]]
    return list(dict.fromkeys(Shown.of(part) for part in parts if part["video"] is not None))


def write_frames(run_dir: Path, videos: VideoStore | None, shown: Sequence[Shown]) -> dict[Shown, str]:
    """Store the frames that prompts showed as film strips in ``run_dir/frames``, read again from the media.

    Returns:
        What was shown -> path of its strip and the times of its frames, or why it cannot be read.
    """
    from covr_lab.video.samplers import Listed, Uniform

    found = {}
    for one in shown:
        path = run_dir / "frames" / f"{one.stem}.jpg"
        sampler = Uniform(one.frames) if one.places is None else Listed(one.places)
        try:
            if videos is None:
                raise SessionError("the recipe names no videos")
            clip = videos.shown(one.video, sampler, side=one.side, timestamps=one.timestamps)
        except SessionError as error:
            found[one] = str(error)
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(strip(clip.frames))
        times = "no clock" if clip.seconds is None else " ".join(f"{second:.2f}" for second in clip.seconds) + " s"
        found[one] = f"{path}, {times}"
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
