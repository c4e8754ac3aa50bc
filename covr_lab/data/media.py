"""Where the media of a data set lie and what reads them. Nothing is opened before it is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath

from lightning import LightningDataModule

from covr_lab.gallery.bundles import FrameBundles
from covr_lab.types import SessionError
from covr_lab.video import DecordReader, Probe, VideoReader


def media_file(folder: Path, pattern: str, video: str, **parts: str) -> Path:
    """The file (or folder of frames) of a video below ``folder``.

    Args:
        folder: where the media lie.
        pattern: path below ``folder``; ``{id}`` stands for the id, ``{name}`` for what follows its last slash.
        video: id of the video.
        parts: what else stands for what in ``pattern``: parts of the id.

    Raises:
        SessionError: the id leads out of ``folder``.

    >>> media_file(Path("media"), "{id}.mp4", "01/007").as_posix()
    'media/01/007.mp4'
    >>> media_file(Path("media"), "{name}.mp4", "01/007").as_posix()
    'media/007.mp4'
    """
    name = PurePosixPath(video)
    if name.is_absolute() or ".." in name.parts or not name.name:
        raise SessionError(f"video {video!r}: its id leads out of {folder} (ids are names of files below that folder)")
    values = {"id": video, "name": name.name, **parts}
    return folder / re.sub(rf"\{{({'|'.join(values)})\}}", lambda part: values[part[1]], pattern)


class MediaDataModule(LightningDataModule):
    """A data set whose videos have ids.

    Args:
        videos_dir: folder of the media, ``None`` for a set without media.
        video_name: where a video lies below ``videos_dir``: ``{id}`` is its id, ``{name}`` what follows the last slash
            of its id. ``WebVid/8M/train/{id}.mp4`` is the official place of WebVid.
        reader: decodes the media, by default a :class:`~covr_lab.video.DecordReader`. Frames are read when they are
            needed.
        bundles: frames of prompts that are kept once read; by default 512 MiB of them in memory.

    Attributes:
        videos_dir: folder of the media, ``None`` when there is none.
    """

    def __init__(
        self,
        *,
        videos_dir: str | None = None,
        video_name: str = "{id}.mp4",
        reader: VideoReader | None = None,
        bundles: FrameBundles | None = None,
    ) -> None:
        super().__init__()
        if "{id}" not in video_name and "{name}" not in video_name:
            raise ValueError(f"data.video_name ({video_name}) is one file for all videos (put in {{id}} or {{name}})")
        self.videos_dir = None if videos_dir is None else Path(videos_dir)
        self.video_name = video_name
        self._reader, self.bundles = reader, bundles

    @property
    def media_folders(self) -> dict[str, Path]:
        """Recipe key -> folder, of the folders that hold media; empty for a set without media."""
        return {} if self.videos_dir is None else {"videos_dir": self.videos_dir}

    @property
    def names(self) -> Mapping[str, str]:
        """Video id -> name, for people, of the videos whose ids tell them nothing."""
        return {}

    def media_path(self, video: str) -> Path:
        """Where the media of a video lie, whether or not they are there.

        Raises:
            ValueError: there is no media folder.
            SessionError: the id leads out of the media folder.
        """
        if self.videos_dir is None:
            raise ValueError("data.videos_dir is not set (name the folder of the videos)")
        return media_file(self.videos_dir, self.video_name, video)

    @cached_property
    def reader(self) -> VideoReader:
        """What decodes the media."""
        return self._reader or DecordReader()

    def defect(self, probe: Probe) -> str:
        """What is wrong with a video that can be read but does not fit the set, "" for nothing."""
        del probe  # most sets hold clips of any length and size
        return ""

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Name -> reason, of media that are no videos of the set because they cannot be read."""
        return {}

    def news(self) -> list[str]:
        """Lines about the media to print before they are indexed; an annotated set has none."""
        return []

    def indexed(self, artifacts: Sequence[Path]) -> None:
        """Called when the media have been indexed, with the folders of the artifacts."""
        del artifacts  # most sets have nothing to note

    def check_places(self, videos: Iterable[str]) -> None:
        """Refuse folders that are not there, ids that lead out of them, and two videos with one file.

        Raises:
            FileNotFoundError: no such folder.
            ValueError: an id has no place of its own in it.
        """
        for key, folder in self.media_folders.items():
            if not folder.is_dir():
                raise FileNotFoundError(f"{folder}: no such folder (check data.{key})")
        owner: dict[Path, str] = {}
        for video in videos if self.media_folders else ():
            path = self.media_path(video)
            if (first := owner.setdefault(path, video)) != video:
                raise ValueError(f"{path}: the file of both {first!r} and {video!r} (check data.video_name)")
