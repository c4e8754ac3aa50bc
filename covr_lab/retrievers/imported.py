"""Features that were computed elsewhere: an evaluation without videos, weights or GPU."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from covr_lab.gallery.gallery import Gallery
from covr_lab.hub import local_path
from covr_lab.retrievers.base import Ask, Retriever
from covr_lab.types import Refused, SessionError

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore

TINY = 1e-30  # a shorter vector has no direction that float32 could keep
_log = logging.getLogger(__name__)


class ImportedFeatures(Retriever):
    """Gallery vectors by video id and composed queries by session id, scored by inner product in fp32.

    There is no encoder here: a session has one query, that of turn 0 (``protocol.turns: 0`` asks no other).

    A file is ``.safetensors``, ``.npy`` or ``.pt`` and holds one matrix ``(N, D)``, its ids in a text file beside it,
    or (not ``.npy``) one vector by id. A folder holds ``<id>.pth``, one vector or one a frame ``(F, D)``, of which
    the mean is taken, as the released CoVR code writes them. (That code decodes to BGR, so vectors that it made of a
    gallery and vectors that others made of queries do not fit each other well.) Any name may be ``hf://``
    (:func:`~covr_lab.hub.local_path`).

    Args:
        gallery: file or folder with gallery vectors.
        queries: file or folder with query vectors.
        gallery_ids: text file with one video id a line, for a gallery file that holds one matrix.
        query_ids: text file with one session id a line, for a query file that holds one matrix.
    """

    def __init__(
        self, *, gallery: str, queries: str, gallery_ids: str | None = None, query_ids: str | None = None
    ) -> None:
        super().__init__()
        self.files = {"gallery": (gallery, gallery_ids), "queries": (queries, query_ids)}

    def load(self) -> None:
        """Read and check both files.

        Raises:
            Refused: one cannot be read or holds what no vector may hold, or their widths differ.
        """
        vectors = {
            name: read_vectors(local_path(file), None if ids is None else local_path(ids))
            for name, (file, ids) in self.files.items()
        }
        self.videos, self.queries = vectors["gallery"], vectors["queries"]
        video, query = (len(next(iter(found.values()))) for found in vectors.values())
        if video != query:
            raise Refused(
                f"{self.files['queries'][0]}: vectors of {query} entries, those of {self.files['gallery'][0]} "
                f"have {video} (both must come from one model)"
            )

    @property
    def fingerprint(self) -> str:
        """sha256 of all ids and unit vectors, whatever the form of the files."""
        digest = hashlib.sha256()
        for vectors in (self.videos, self.queries):
            for name, vector in sorted(vectors.items()):
                digest.update(f"{name}\n".encode())
                digest.update(vector.numpy().data)
        return digest.hexdigest()

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Take the vectors of the gallery; those of other videos are counted and not used.

        Raises:
            Refused: a gallery video has none.
        """
        del videos
        file = self.files["gallery"][0]
        missing = [video for video in gallery.ids if video not in self.videos]
        if missing:
            raise Refused(
                f"{file}: no vector for {len(missing)} of {len(gallery)} gallery videos: {_first(missing)} "
                "(add them, or name the gallery that was encoded in data.gallery_file)"
            )
        self.extra = len(self.videos) - len(gallery)
        if self.extra:
            _log.info("%s: %d vectors are of no gallery video and not used", file, self.extra)
        super().bind(gallery)

    def encode_videos(self, videos: Sequence[str]) -> Tensor:
        """Unit vectors ``(B, D)`` as they were given."""
        return torch.stack([_lookup(self.videos, video, f"video '{video}'") for video in videos])

    def encode(self, asks: Sequence[Ask]) -> Tensor:
        """Unit vectors ``(B, D)`` of sessions at turn 0.

        Raises:
            SessionError: a session has no vector, or is beyond turn 0.
        """
        for ask in asks:
            if ask.turn:
                raise SessionError(f"session '{ask.session}': imported features have no query for turn {ask.turn}")
        return torch.stack([_lookup(self.queries, ask.session, f"session '{ask.session}'") for ask in asks])

    def encode_queries(self, texts: Sequence[str], anchors: Sequence[str | None]) -> Tensor:
        """There is no encoder."""
        raise SessionError("imported features cannot encode a text: only sessions at turn 0 have a query")


def _lookup(vectors: Mapping[str, Tensor], name: str, what: str) -> Tensor:
    if name not in vectors:
        raise SessionError(f"{what} has no imported vector (add it to the file)")
    return vectors[name]


def read_vectors(path: Path, ids: Path | None = None) -> dict[str, Tensor]:
    """Id -> unit vector float32 ``(D,)`` of a file or folder that :class:`ImportedFeatures` takes.

    Raises:
        Refused: it cannot be read, or ids and vectors do not fit each other or hold what no vector may hold.
    """
    found = _folder(path) if path.is_dir() else _content(path)
    if ids is not None:
        found = _named(path, found, ids)
    if isinstance(found, Tensor) or any(vector.dim() != 1 for vector in found.values()):
        raise Refused(f"{path}: a matrix without ids (name a text file with one id a line beside it)")
    if not found:
        raise Refused(f"{path}: no vectors in it (check the name)")
    exact = {name: vector.double() for name, vector in found.items()}
    usual = Counter(map(len, exact.values())).most_common(1)[0][0]
    for problem, names in (
        ("no floating-point numbers", [name for name, vector in found.items() if not vector.is_floating_point()]),
        (f"not the {usual} entries of the others", [name for name, vector in exact.items() if len(vector) != usual]),
        ("NaN or infinity", [name for name, vector in exact.items() if not bool(vector.isfinite().all())]),
        ("zeros only", [name for name, vector in exact.items() if float(vector.norm()) < TINY]),
    ):
        if names:
            raise Refused(f"{path}: {len(names)} vectors hold {problem}: {_first(names)} (encode these again)")
    return {name: normalize(vector, dim=0, eps=TINY).float() for name, vector in exact.items()}


def _folder(path: Path) -> dict[str, Tensor]:
    """One vector for each ``<id>.pth`` below ``path``, the mean of its frames; ids may have slashes."""
    found = {}
    for file in sorted(path.rglob("*.pth")):
        content = _content(file)
        if not isinstance(content, Tensor) or content.dim() not in (1, 2) or not len(content):
            raise Refused(f"{file}: not a vector, nor one for each frame (save a tensor (D,) or (F, D))")
        vector = content if content.dim() == 1 else content.float().mean(0)
        found[file.relative_to(path).as_posix().removesuffix(".pth")] = vector
    return found


def _content(path: Path) -> Tensor | dict[str, Tensor]:
    """The matrix, or the vectors by id, of one file."""
    try:
        found: object
        if path.suffix == ".npy":
            found = torch.from_numpy(np.load(path, allow_pickle=False))
        elif path.suffix in (".pt", ".pth"):
            found = torch.load(path, map_location="cpu", weights_only=True)
        elif path.suffix == ".safetensors":
            from safetensors.torch import load_file

            found = load_file(path)
        else:
            raise ValueError("unknown kind of file (give .safetensors, .npy, .pt, or a folder of .pth)")
    except Exception as error:  # four libraries, without a common base
        raise Refused(
            f"{path}: cannot be read: {' '.join(str(error).split())[:200] or type(error).__name__}"
        ) from error
    if isinstance(found, Tensor):
        return found
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise Refused(f"{path}: neither one tensor nor tensors by id (save one of these)")
    return {str(name): value for name, value in found.items()}


def _named(path: Path, found: Tensor | dict[str, Tensor], ids: Path) -> dict[str, Tensor]:
    """The rows of one matrix by the ids of a text file."""
    matrices = [found] if isinstance(found, Tensor) else list(found.values())
    if len(matrices) != 1 or matrices[0].dim() != 2:
        raise Refused(f"{path}: not one matrix (N, D), so {ids} names nothing in it (leave the ids file out)")
    try:
        names = [line for line in ids.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{ids}: cannot be read: {error} (write one id a line, UTF-8)") from error
    if len(names) != len(matrices[0]):
        raise Refused(f"{ids}: {len(names)} ids for the {len(matrices[0])} rows of {path} (one a line, in row order)")
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise Refused(f"{ids}: {len(repeated)} ids occur twice: {_first(repeated)} (each video has one vector)")
    return dict(zip(names, matrices[0], strict=True))


def _first(names: Iterable[str], count: int = 5) -> str:
    listed = list(names)
    return ", ".join(map(repr, listed[:count])) + (", ..." if len(listed) > count else "")
