"""Encoders that see videos: what they make of clips is computed once and lies in artifacts on disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from covr_lab.frozen import Frozen
from covr_lab.functional.pooling import pool_mean
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.store import Address, Artifact
from covr_lab.gallery.videos import VideoStore
from covr_lab.retrievers.base import Retriever
from covr_lab.types import Refused, SessionError

if TYPE_CHECKING:
    from covr_lab.video import Clip, FrameSampler, VideoReader


@dataclass(frozen=True)
class Part:
    """One thing that is computed of videos.

    Attributes:
        videos: of which: the ``gallery``, or ``all``, gallery and references.
        sampler: from which frames.
    """

    videos: Literal["gallery", "all"]
    sampler: FrameSampler


class VideoEncoder(Frozen, ABC):
    """Frozen weights that turn clips into rows of artifacts.

    Attributes:
        parts: name -> what is computed.
        artifacts: name -> its rows; empty before :meth:`open`.
    """

    parts: Mapping[str, Part]
    artifacts: Mapping[str, Artifact] = MappingProxyType({})

    @abstractmethod
    def load(self) -> None:
        """Bring the weights into memory."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """sha256 of the weights and of how clips are prepared."""

    @property
    def row_fingerprint(self) -> str:
        """sha256 of what can change a row; narrower than :attr:`fingerprint` where other settings cannot."""
        return self.fingerprint

    def encode_part(self, name: str, clips: Sequence[Clip]) -> list[Tensor]:
        """One tensor a clip, float32 or uint8, of one shape for the part; its bits do not depend on the other clips."""
        raise NotImplementedError(f"{type(self).__name__} has neither encode_part nor encode_clips")

    def encode_clips(self, name: str, clips: Mapping[str, Clip]) -> Mapping[str, Tensor | str]:
        """Video id -> its row, or the reason why it has none; by default the rows of :meth:`encode_part`."""
        return dict(zip(clips, self.encode_part(name, list(clips.values())), strict=True))

    def prepare(self, name: str, clip: Clip) -> Clip:
        """What :meth:`encode_part` needs of a clip. Runs on the CPU, in the processes that decode: no weights here."""
        del name
        return clip

    def locate(self, gallery: Gallery, videos: VideoStore) -> dict[str, Address]:
        """Where the artifact of each part lies; the weights must be loaded."""
        ids = {"gallery": gallery.ids, "all": tuple(sorted({*gallery.ids, *videos.references}))}
        reader = f"{videos.reader.fingerprint}, min_decodable {videos.reader.min_decodable}"  # decides what fails
        return {
            name: Address(
                self.row_fingerprint,
                name,
                part.sampler.describe(),
                reader,
                videos.digest(ids[part.videos]),
                ids[part.videos],
            )
            for name, part in self.parts.items()
        }

    def open(self, gallery: Gallery, videos: VideoStore | None) -> None:
        """Open the artifacts of all parts.

        Raises:
            Refused: one is missing or damaged, or there are no videos.
        """
        if videos is None:
            raise Refused(f"{type(self).__name__} needs videos: set data.videos_dir")
        self._store = videos
        self.artifacts = {name: Artifact.open(address) for name, address in self.locate(gallery, videos).items()}

    @torch.inference_mode()
    def read_guest(self, video: str, path: Path, reader: VideoReader | None = None) -> dict[str, Clip]:
        """Part -> the clip that it needs of a guest; without weights, so that others may use them in the meantime.

        Args:
            video: id, for messages.
            path: its file.
            reader: decodes it where it gives the same frames as the one of the data, which does so otherwise.

        Raises:
            SessionError: it cannot be read.
        """
        own = self._store.reader
        same = reader is not None and (reader.fingerprint, reader.min_decodable) == (own.fingerprint, own.min_decodable)
        guest = VideoStore({video: path}.__getitem__, reader if reader is not None and same else own)
        return {name: self.prepare(name, guest.clip(video, part.sampler)) for name, part in self.parts.items()}

    def admit(self, video: str, path: Path, clips: Mapping[str, Clip] | None = None) -> None:
        """Encode a guest, a video that the data set lacks, into memory: it can then be a reference like any other.

        Args:
            video: id, unlike all others.
            path: its file.
            clips: of :meth:`read_guest`; by default it is read now.

        Raises:
            SessionError: it cannot be read or encoded: :meth:`dismiss` it.
        """
        clips = self.read_guest(video, path) if clips is None else clips
        self._store.admit(video, path)
        rows = {name: self._guest_row(name, video, clip) for name, clip in clips.items()}
        for name, row in rows.items():
            self.artifacts[name].admit(video, row)

    def dismiss(self, video: str) -> None:
        """Forget a guest."""
        self._store.dismiss(video)
        for artifact in self.artifacts.values():
            artifact.dismiss(video)

    @torch.inference_mode()
    def _guest_row(self, name: str, video: str, clip: Clip) -> Tensor:
        row = self.encode_clips(name, {video: clip})[video]
        if isinstance(row, str):
            raise SessionError(f"video '{video}': {row}")
        if not bool(row.isfinite().all()):
            raise SessionError(f"video '{video}': {type(self).__name__}.{name} made NaN or infinity of it")
        return row.cpu()

    @property
    def addresses(self) -> dict[str, str]:
        """Name -> content address of each opened artifact: the sha256 of its rows, of those that could be read."""
        return {name: artifact.digest for name, artifact in self.artifacts.items()}

    @property
    def unusable(self) -> dict[str, str]:
        """Video id -> why it could not be encoded, of all parts."""
        return {video: why for artifact in self.artifacts.values() for video, why in artifact.failed.items()}


class VideoRetriever(VideoEncoder, Retriever):
    """A retriever whose gallery vectors come from the part ``gallery`` of its artifacts."""

    def pool(self, rows: Tensor, ids: Sequence[str]) -> Tensor:
        """Unit vectors ``(N, D)`` of rows ``(N, D)`` or ``(N, F, D)``, in the second case the mean over frames."""
        del ids
        return pool_mean(rows if rows.dim() == 3 else rows.unsqueeze(1))

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Read the gallery's vectors; a video that could not be encoded keeps its row but is never ranked.

        Raises:
            Refused: an artifact is missing or damaged, or not a single video could be encoded.
        """
        self.gallery = gallery
        self.open(gallery, videos)
        artifact = self.artifacts["gallery"]
        usable = [video for video in gallery.ids if video not in artifact.failed]
        if not usable:
            raise Refused(
                f"{artifact.folder}: none of {len(gallery)} videos could be read, the first because: "
                f"{next(iter(artifact.failed.values()))} (check data.videos_dir)"
            )
        vectors = self.encode_videos(usable)
        self.unusable_rows = tuple(gallery.row[video] for video in gallery.ids if video in artifact.failed)
        features = torch.zeros(len(gallery), vectors.shape[1])
        features[[gallery.row[video] for video in usable]] = vectors
        self.features = features.T.contiguous()

    def encode_videos(self, videos: Sequence[str]) -> Tensor:
        """Unit vectors ``(B, D)`` of gallery videos."""
        return self.pool(self.artifacts["gallery"].rows(videos), videos).float()
