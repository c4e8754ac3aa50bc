"""Anyone's own videos: a folder tree of videos and pictures, without annotations."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from tqdm import tqdm

from covr_lab.data.base import Triplet, TripletDataModule
from covr_lab.data.catalogue import catalogue, identify, keep_artifacts, last_index, look, set_last_index
from covr_lab.data.tree import Tree, shown, walk
from covr_lab.gallery.bundles import FrameBundles
from covr_lab.gallery.thumbnails import thumbnail
from covr_lab.gallery.videos import VideoStore
from covr_lab.types import SessionError
from covr_lab.video import Probe, PyAVReader, VideoError, VideoReader

LISTED: Final = 10  # names printed of those that are left out for one reason


class ContentStore(VideoStore):
    """Videos whose ids are made of their bytes: the id is all that identifies one."""

    def identity(self, video: str) -> str:
        """The id."""
        return f"content {video}"


@dataclass(frozen=True)
class Library:
    """The videos of a folder.

    Attributes:
        tree: what lies in the folder.
        paths: content id -> names below the folder; equal files are one video with several names.
        facts: content id -> what its container says.
        unreadable: name -> what is wrong with a video or picture that cannot be read.
    """

    tree: Tree
    paths: dict[str, list[str]] = field(default_factory=dict)
    facts: dict[str, Probe] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)


def take_stock(folder: Path, reader: VideoReader) -> Library:
    """What a folder holds; only files that are new or have changed are read.

    Raises:
        OSError: there is no such folder.
        Refused: the catalogue cannot be written.
    """
    found, by = Library(walk(folder)), f"{reader.fingerprint}, min_decodable {reader.min_decodable}"
    with catalogue() as db:
        for name in tqdm(found.tree.files, desc="looking at files", unit=" files", delay=1, dynamic_ncols=True):
            path = found.tree.root / name
            try:
                video = identify(db, path)
                if video not in found.paths:
                    found.facts[video] = look(db, video, path, reader, by)
            except VideoError as error:
                found.unreadable[name] = str(VideoError(Path(shown(name)), error.reason, error.detail))
            except (OSError, ValueError) as error:
                why = f"cannot be opened ({error.strerror})" if isinstance(error, OSError) else str(error)
                found.unreadable[name] = f"video {shown(name)} {why}"
            else:
                found.paths.setdefault(video, []).append(name)
    return found


class VideoFolder(TripletDataModule):
    """All videos and pictures of a folder tree, to be searched by people; a picture is a video of one frame.

    The id of a video is made of its bytes, so a renamed or moved file is the same video, and equal files are one. What
    cannot be searched is listed with its reason. There are no queries and no captions; a system's captioner describes.

    Args:
        folder: where the files lie. Links are followed to files inside it and never out of it.
        reader: decodes the media, by default a :class:`~covr_lab.video.PyAVReader`, which reads every usual codec.
        bundles: frames of prompts that are kept once read.
    """

    def __init__(self, *, folder: str, reader: VideoReader | None = None, bundles: FrameBundles | None = None) -> None:
        super().__init__(videos_dir=folder, reader=reader or PyAVReader(), bundles=bundles)

    @property
    def media_folders(self) -> dict[str, Path]:
        """The folder."""
        assert self.videos_dir is not None
        return {"folder": self.videos_dir}

    @cached_property
    def stock(self) -> Library:
        """What the folder held when it was first asked for.

        Raises:
            FileNotFoundError: there is no such folder.
            ValueError: nothing in it can be searched.
        """
        assert self.videos_dir is not None
        if not self.videos_dir.is_dir():
            raise FileNotFoundError(f"{self.videos_dir}: no such folder (check data.folder)")
        found = take_stock(self.videos_dir, self.reader)
        if not found.paths:
            faults = [*found.unreadable.values(), *(f"{shown(n)} {why}" for n, why in found.tree.left_out.items())]
            first = f", the first of {len(faults)} other entries: {faults[0]}" if faults else ""
            raise ValueError(f"{self.videos_dir}: no video or picture that can be read{first} (check data.folder)")
        return found

    @cached_property
    def names(self) -> dict[str, str]:
        """Content id -> name below the folder, for people."""
        return {video: shown(names[0]) for video, names in self.stock.paths.items()}

    @cached_property
    def videos(self) -> VideoStore:
        """The media by id."""
        return ContentStore(self.media_path, self.reader, (), self.bundles)

    @property
    def gallery_name(self) -> str:
        """Which videos are searched, for the record."""
        return "folder"

    def gallery_ids(self) -> set[str]:
        """Every video that can be read."""
        return set(self.stock.paths)

    def read(self) -> list[Triplet]:
        """No queries."""
        return []

    def media_path(self, video: str) -> Path:
        """Where a video lies.

        Raises:
            SessionError: no video of the folder has this id.
        """
        if video not in self.stock.paths:
            raise SessionError(f"video {video!r} is not in {self.videos_dir} (it was removed or changed: index again)")
        return self.stock.tree.root / self.stock.paths[video][0]

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Name -> what is wrong with it."""
        return self.stock.unreadable

    def news(self) -> list[str]:
        """What has changed since the folder was indexed last, and what is left out."""
        found = self.stock
        now = {video: names[0] for video, names in found.paths.items()}
        with catalogue() as db:
            then = last_index(db, found.tree.root)
        moved = [video for video in now if video in then and then[video] not in found.paths[video]]
        counts = {
            "new": len(now.keys() - then.keys()),
            "removed": len(then.keys() - now.keys()),
            "moved": len(moved),
            "unchanged": len(now.keys() & then.keys()) - len(moved),
            "unreadable": len(found.unreadable),
        }
        lines = [f"{self.videos_dir}: " + ", ".join(f"{count} {what}" for what, count in counts.items())]
        lines += [f"  moved: {shown(then[video])} -> {shown(now[video])}" for video in moved]
        lines += [f"  removed: {shown(then[video])}" for video in then if video not in now]
        lines += [
            f"  equal files, one video: {', '.join(map(shown, names))}" for names in found.paths.values() if names[1:]
        ]
        lines += [f"  unreadable: {why}" for why in found.unreadable.values()]
        for why in dict.fromkeys(found.tree.left_out.values()):
            names = [shown(name) for name, said in found.tree.left_out.items() if said == why]
            more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
            lines.append(f"  left out, {why}: {', '.join(names[:LISTED])}{more}")
        return lines

    def indexed(self, artifacts: Sequence[Path]) -> None:
        """Make the thumbnails, remember the videos for the next :meth:`news`, delete artifacts that were replaced."""
        for video in tqdm(self.gallery.ids, desc="thumbnails", unit=" videos", delay=1, dynamic_ncols=True):
            try:
                thumbnail(self.videos, video)
            except VideoError:
                continue  # its frames do not decode: the index says so
        root = self.stock.tree.root
        with catalogue() as db:
            set_last_index(db, root, {video: names[0] for video, names in self.stock.paths.items()})
            for folder in keep_artifacts(db, root, artifacts):
                shutil.rmtree(folder, ignore_errors=True)
