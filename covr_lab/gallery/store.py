"""What was encoded of videos, on disk, addressed by everything that can change a vector.

An artifact is a folder. ``features.safetensors`` holds the rows of all videos that could be read, in the order of their
ids, and in its header the sha256 of every row. ``manifest.json`` is written last and says what the rows were made from,
and which videos failed and why (``failed.tsv`` says so to people). While an artifact is made, each batch is a shard: a
file of the same form as the features, under ``shards/``.

A row is checked against its sha256 when it is first read, so a start does not read gigabytes of visual tokens.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from covr_lab.gallery.cache import cache_dir
from covr_lab.results.folder import write_json
from covr_lab.types import Refused, SessionError

FORMAT = 1
LIBRARIES = ("torch", "torchvision", "transformers")
DTYPES = {torch.float32: "F32", torch.uint8: "U8"}  # of rows: vectors, and text as bytes
ROWS, OUTCOMES = "rows", "outcomes"  # the tensor of a shard, and what its header says of each video
MANIFEST, FEATURES, FAILED, SHARDS = "manifest.json", "features.safetensors", "failed.tsv", "shards"
ADDRESS = "address.json"  # of an artifact that has been begun


def library_versions() -> dict[str, str]:
    """Versions of the libraries that compute vectors, as far as they are installed."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class Address:
    """Everything that can change a vector. Batch size, workers, devices and the place of the files cannot.

    Attributes:
        encoder: fingerprint of weights and preprocessing.
        part: which of the encoder's outputs.
        frames: which frames it sees, in words.
        reader: fingerprint of what decodes them.
        media: digest of the files (:meth:`~covr_lab.gallery.videos.VideoStore.digest`).
        ids: the videos, in row order.
        libraries: versions of the libraries that compute.
        format: version of this module's files.
    """

    encoder: str
    part: str
    frames: str
    reader: str
    media: str
    ids: tuple[str, ...]
    libraries: Mapping[str, str] = field(default_factory=library_versions)
    format: int = FORMAT

    @property
    def digest(self) -> str:
        """32 hex digits."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:32]

    @property
    def folder(self) -> Path:
        """Where the artifact lies."""
        return cache_dir() / "galleries" / self.digest


@dataclass(frozen=True)
class Outcome:
    """What became of one video.

    Attributes:
        file: the shard that says so.
        row: position of its row there, ``None`` for a failure.
        content: sha256 of the row, or the reason of the failure.
    """

    file: Path
    row: int | None
    content: str


def row_digest(row: Tensor) -> str:
    """sha256 of the bytes of one row."""
    return hashlib.sha256(row.contiguous().numpy().data).hexdigest()


def write_shard(folder: Path, rows: Mapping[str, Tensor], failed: Mapping[str, str]) -> Path:
    """Store what became of some videos, whole or not at all; the name follows from the ids.

    Args:
        folder: the artifact.
        rows: video id -> CPU tensor, float32 or uint8, all of one shape.
        failed: video id -> reason.
    """
    ids = "\n".join([*rows, *failed])
    path = folder / SHARDS / f"part-{hashlib.sha256(ids.encode()).hexdigest()[:16]}.safetensors"
    part = path.with_suffix(f".{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    outcomes = {"rows": {video: row_digest(row) for video, row in rows.items()}, "failed": dict(failed)}
    tensors = {ROWS: torch.stack(list(rows.values()))} if rows else {}
    part.write_bytes(save(tensors, metadata={OUTCOMES: json.dumps(outcomes)}))
    part.replace(path)
    return path


def read_outcomes(path: Path) -> dict[str, Outcome]:
    """What a shard or a features file says of each video; no row is read.

    Raises:
        Refused: it is damaged.
    """
    try:
        with safe_open(path, "pt") as file:
            said: dict[str, dict[str, str]] = json.loads(file.metadata()[OUTCOMES])
            count = file.get_slice(ROWS).get_shape()[0] if said["rows"] else 0
    except (SafetensorError, OSError, TypeError, KeyError, ValueError) as error:
        raise _damaged(path, f"cannot be read ({error})") from error
    if count != len(said["rows"]):
        raise _damaged(path, f"has {count} rows for {len(said['rows'])} videos")
    found = {video: Outcome(path, row, content) for row, (video, content) in enumerate(said["rows"].items())}
    return found | {video: Outcome(path, None, reason) for video, reason in said["failed"].items()}


def outcomes(folder: Path) -> dict[str, Outcome]:
    """What is known so far of each video of an unfinished artifact.

    Raises:
        Refused: a shard is damaged, or two of them disagree about a video.
    """
    found: dict[str, Outcome] = {}
    # Features without a manifest: the last step was interrupted, or failed videos are to be tried again.
    for path in [*sorted((folder / SHARDS).glob("*.safetensors")), *folder.glob(FEATURES)]:
        for video, outcome in read_outcomes(path).items():
            first = found.setdefault(video, outcome)
            if (first.row is None, first.content) != (outcome.row is None, outcome.content):
                raise Refused(
                    f"{folder}: {first.file.name} and {path.name} disagree about video '{video}' "
                    "(delete the folder and index again)"
                )
    return found


def begin(address: Address) -> None:
    """Say what an artifact is to be made from: rows of an interrupted one can then serve another gallery."""
    address.folder.mkdir(parents=True, exist_ok=True)
    write_json(address.folder / ADDRESS, asdict(address))


def is_finished(address: Address) -> bool:
    """Whether the artifact is there; reading it checks it."""
    return all((address.folder / name).exists() for name in (MANIFEST, FEATURES))


def finish(address: Address) -> None:
    """Make the artifact of its shards, one row in memory at a time; the manifest comes last.

    Raises:
        Refused: a video is missing or unexpected, or the rows have different shapes.
    """
    folder, found = address.folder, outcomes(address.folder)
    for problem, videos in (
        ("was not encoded", [video for video in address.ids if video not in found]),
        ("does not belong here", sorted(found.keys() - set(address.ids))),
    ):
        if videos:
            raise Refused(f"{folder}: video '{videos[0]}' {problem} ({len(videos)} in all): index again")
    rows = {video: found[video] for video in address.ids if found[video].row is not None}
    failed = {video: found[video].content for video in address.ids if video not in rows}
    part = folder / f"{FEATURES}.tmp"
    shape, header = _write_features(part, rows)
    part.replace(folder / FEATURES)
    lines = (f"{video}\t{' '.join(reason.split())}\n" for video, reason in failed.items())
    (folder / FAILED).write_text("".join(lines), encoding="utf-8")
    manifest = {
        **asdict(address),
        "failed": failed,
        "shape": [len(rows), *shape],
        "sha256": header,
        "complete": True,
    }
    write_json(folder / MANIFEST, manifest)
    (folder / ADDRESS).unlink(missing_ok=True)
    shutil.rmtree(folder / SHARDS, ignore_errors=True)


def forget_failures(address: Address) -> None:
    """Make a finished artifact an unfinished one that lacks the videos that failed."""
    shutil.rmtree(address.folder / SHARDS, ignore_errors=True)
    (address.folder / MANIFEST).unlink(missing_ok=True)


def _write_features(path: Path, rows: Mapping[str, Outcome]) -> tuple[list[int], str]:
    """Stream rows into one safetensors file, whose library would want them all in memory; returns shape, sha256."""
    first = read_row(*next(iter(rows.items()))) if rows else torch.empty(())
    shape, dtype = list(first.shape), first.dtype
    size = len(rows) * first.nbytes
    said = json.dumps({"rows": {video: outcome.content for video, outcome in rows.items()}, "failed": {}})
    tensor = {"dtype": DTYPES[dtype], "shape": [len(rows), *shape], "data_offsets": [0, size]}
    text = json.dumps({"__metadata__": {OUTCOMES: said}, ROWS: tensor}).encode()
    header = text.ljust(-(-len(text) // 8) * 8)  # the data starts at a multiple of eight
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for video, outcome in rows.items():
            row = read_row(video, outcome)
            if (list(row.shape), row.dtype) != (shape, dtype):
                raise Refused(
                    f"{path.parent}: video '{video}' has a row of shape {list(row.shape)}, others {shape} "
                    f"({row.dtype}, {dtype})"
                )
            file.write(row.numpy().tobytes())
        file.flush()
        os.fsync(file.fileno())  # a manifest must not outlive its features when the power goes
    return shape, hashlib.sha256(header).hexdigest()


def read_row(video: str, outcome: Outcome) -> Tensor:
    """The row of a video that did not fail.

    Raises:
        Refused: it is another one than was written.
    """
    with safe_open(outcome.file, "pt") as file:
        row: Tensor = file.get_slice(ROWS)[outcome.row]
    if row_digest(row) != outcome.content:
        raise _damaged(outcome.file, f"has another row for video '{video}' than was written")
    return row


def _damaged(path: Path, why: str) -> Refused:
    return Refused(f"{path} {why}: delete it and index again")


class Artifact:
    """A finished artifact, read row by row from a memory-mapped file.

    Args:
        folder: where it lies.
        shape: of all rows together.
        rows: video id -> what the features file says, in row order.
        failed: video id -> reason.

    Attributes:
        digest: sha256 of ids and rows, of those that could be read.
    """

    def __init__(
        self, folder: Path, shape: tuple[int, ...], rows: Mapping[str, Outcome], failed: Mapping[str, str]
    ) -> None:
        self.digest = _header_digest(folder / FEATURES)
        self.folder, self.shape, self.failed, self._rows = folder, shape, failed, rows
        self._slice = safe_open(folder / FEATURES, "pt").get_slice(ROWS)  # type: ignore[no-untyped-call]
        self._checked: set[str] = set()
        self._guests: dict[str, Tensor] = {}

    @classmethod
    def open(cls, address: Address) -> Self:
        """The artifact at an address.

        Raises:
            Refused: it is not there, not finished, or damaged.
        """
        folder, path = address.folder, address.folder / MANIFEST
        if not is_finished(address):
            count = f"an unfinished index ({len(outcomes(folder))} of {len(address.ids)} videos)"
            state = count if (folder / SHARDS).exists() else "no index"
            raise Refused(f"{state} for this recipe (run tools/index.py RECIPE, or add --build): {folder}")
        try:
            manifest = json.loads(path.read_text(encoding="utf-8"))
            failed = dict(manifest["failed"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise _broken(folder, f"{MANIFEST} cannot be read ({error!r})") from error
        rows, shape = read_outcomes(folder / FEATURES), _shape(folder / FEATURES)
        expected = {**json.loads(json.dumps(asdict(address))), "shape": list(shape), "complete": True}
        expected["sha256"] = _header_digest(folder / FEATURES)
        different = [key for key, value in expected.items() if manifest.get(key) != value]
        if different:
            raise _broken(folder, f"{MANIFEST} does not fit its address and {FEATURES} ({', '.join(different)})")
        if [*rows] != [video for video in address.ids if video not in failed] or not failed.keys() <= {*address.ids}:
            raise _broken(folder, f"{len(rows)} rows and {len(failed)} failures for {len(address.ids)} videos")
        return cls(folder, shape, rows, failed)

    @property
    def ids(self) -> tuple[str, ...]:
        """The videos that could be read, in row order."""
        return tuple(self._rows)

    def admit(self, video: str, row: Tensor) -> None:
        """Hold the row of a guest in memory; the files stay as they are."""
        self._guests[video] = row

    def dismiss(self, video: str) -> None:
        """Forget a guest."""
        self._guests.pop(video, None)

    def row(self, video: str) -> Tensor:
        """``(...)`` of one video or guest, float32 or uint8.

        Raises:
            SessionError: the video could not be read when the index was made, or is not in it.
            Refused: the file changed since it was written.
        """
        if (guest := self._guests.get(video)) is not None:
            return guest
        if video in self.failed:
            raise SessionError(f"video '{video}' could not be read: {self.failed[video]}")
        if video not in self._rows:
            raise SessionError(f"video '{video}' is not in the index {self.folder}: is it in the annotations?")
        row: Tensor = self._slice[self._rows[video].row]
        if video not in self._checked and row_digest(row) != self._rows[video].content:
            raise _broken(self.folder, f"the row of video '{video}' has changed since it was written")
        self._checked.add(video)
        return row

    def rows(self, videos: Sequence[str]) -> Tensor:
        """``(B, ...)`` of some videos, float32 or uint8."""
        return torch.stack([self.row(video) for video in videos]) if videos else self._slice[:0]


def _shape(path: Path) -> tuple[int, ...]:
    with safe_open(path, "pt") as file:
        return tuple(file.get_slice(ROWS).get_shape())


def _header_digest(path: Path) -> str:
    """sha256 of a safetensors header, which holds the sha256 of every row."""
    with path.open("rb") as file:
        return hashlib.sha256(file.read(int.from_bytes(file.read(8), "little"))).hexdigest()


def _broken(folder: Path, why: str) -> Refused:
    return Refused(f"{folder}: {why}: delete the folder and run tools/index.py RECIPE again")
