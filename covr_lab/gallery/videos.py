"""The media of a data set: clips by video id, and what identifies them."""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covr_lab.gallery.bundles import FrameBundles
    from covr_lab.video import Clip, FrameSampler, VideoReader

ENDS = 1 << 16  # bytes read at either end of a file to tell it from others


def media_identity(path: Path) -> str:
    """What tells a file, or a folder of frames, from another: names, sizes, first and last bytes; its place does not.

    >>> media_identity(Path("no/such/clip.mp4"))
    'missing'
    """
    try:
        if path.is_dir():
            frames = sorted(child for child in path.iterdir() if not child.name.startswith("."))
            return json.dumps([(child.name, media_identity(child)) for child in frames])
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return "not a file"  # reading a pipe would never end
        with path.open("rb") as file:
            read = hashlib.sha256(file.read(ENDS))
            file.seek(max(ENDS, status.st_size - ENDS))
            read.update(file.read(ENDS))
        return f"{status.st_size} {read.hexdigest()}"
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"unreadable: {error.strerror}"


class VideoStore:
    """Clips of gallery and reference videos.

    Args:
        paths: video id -> its file or folder of frames; need not exist.
        reader: what decodes them.
        references: ids of the reference videos, for encoders that need them beside the gallery.
        bundles: keeps what prompts show; by default the clips used last, in memory.

    Attributes:
        bundles: ``None`` keeps nothing.
    """

    bundles: FrameBundles | None = None

    def __init__(
        self,
        paths: Callable[[str], Path],
        reader: VideoReader,
        references: Iterable[str] = (),
        bundles: FrameBundles | None = None,
    ) -> None:
        from covr_lab.gallery.bundles import FrameBundles

        self.paths, self.reader = paths, reader
        self.references = tuple(sorted(set(references)))
        self.bundles = FrameBundles() if bundles is None else bundles
        self._identities: dict[str, str] = {}
        self._guests: dict[str, Path] = {}

    def path(self, video: str) -> Path:
        """Where the media of a video or guest lie; need not exist."""
        return self._guests.get(video) or self.paths(video)

    def identity(self, video: str) -> str:
        """What tells the media of a video from others."""
        return media_identity(self.path(video))

    def admit(self, video: str, path: Path) -> None:
        """Take in a guest: a video that the data set lacks, like a person's upload."""
        self._guests[video] = path

    def dismiss(self, video: str) -> None:
        """Forget a guest; frames of it that are held in memory go with the next ones."""
        self._guests.pop(video, None)
        self._identities.pop(video, None)

    def clip(self, video: str, sampler: FrameSampler) -> Clip:
        """The frames that ``sampler`` chooses.

        Raises:
            VideoError: the video cannot be read; the message names its id.
        """
        from covr_lab.video import VideoError

        try:
            return self.reader.read(self.path(video), sampler)
        except VideoError as error:
            raise VideoError(error.path, error.reason, f"id '{video}' {error.detail}") from error

    def shown(self, video: str, sampler: FrameSampler, *, side: int | None = None, timestamps: bool = False) -> Clip:
        """The frames that ``sampler`` chooses as a prompt shows them; they are kept for the next prompt.

        Args:
            video: id.
            sampler: which frames.
            side: pixels that the longer side may have, ``None`` for any.
            timestamps: print the time of each frame into it, after scaling.

        Raises:
            SessionError: the video is unknown or cannot be read.
        """

        def read() -> Clip:
            return finished(self.clip(video, sampler), side=side, timestamps=timestamps)

        def address() -> str:
            reader = f"{self.reader.fingerprint}, min_decodable {self.reader.min_decodable}"
            parts = [self.digest([video]), sampler.describe(), reader, *finish(side, timestamps)]
            return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

        key = (video, sampler.describe(), side, timestamps)
        return read() if self.bundles is None else self.bundles.clip(key, address, read)

    def digest(self, videos: Sequence[str]) -> str:
        """sha256 of ids and media, in order; each file is looked at once in the life of this store."""
        for video in videos:
            if video not in self._identities:
                self._identities[video] = self.identity(video)
        pairs = [(video, self._identities[video]) for video in videos]
        return hashlib.sha256(json.dumps(pairs).encode()).hexdigest()


def finish(side: int | None, timestamps: bool) -> list[str]:
    """What :func:`finished` does, in words for fingerprints; nothing where it does nothing.

    >>> finish(None, False), finish(256, True)
    ([], ['bicubic, longer side 256', 'timestamps', 'overlay 1'])
    """
    from covr_lab.video import overlay

    done = [f"bicubic, longer side {side}"] * (side is not None) + ["timestamps"] * timestamps
    return [*done, f"overlay {overlay.VERSION}"] if done else []


def finished(clip: Clip, *, side: int | None = None, timestamps: bool = False) -> Clip:
    """The clip with frames scaled down to a longer side of ``side`` pixels, then stamped with their times."""
    from covr_lab.video.overlay import fit, stamped, stamps

    frames = fit(clip.frames, side)
    return replace(clip, frames=stamped(frames, stamps(clip)) if timestamps else frames)
