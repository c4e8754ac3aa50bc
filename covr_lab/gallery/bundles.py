"""Clips as prompts show them: read, scaled and stamped once, the last used in memory and, if wanted, all on disk."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from covr_lab.gallery.cache import cache_dir
from covr_lab.video.base import Clip

FORMAT: Final = 1  # of the files
LIMIT: Final = 512 * 2**20  # 77 clips of 15 frames at 512 x 288 pixels
_log = logging.getLogger(__name__)


class FrameBundles:
    """The clips used last, within a bound of bytes; safe under threads. A copy in another process starts empty.

    Args:
        limit: bytes of frames in memory; a clip that alone is larger is not kept.
        keep: also store every clip, uncompressed and without a bound, in ``frames/`` of the cache. What cannot be read
            there is a miss; a folder that cannot be written is one warning.
    """

    def __init__(self, *, limit: int = LIMIT, keep: bool = False) -> None:
        if limit < 0:
            raise ValueError(f"limit is a number of bytes, not {limit}")
        self.limit, self.keep = limit, keep
        self._reset()

    def clip(self, key: Hashable, address: Callable[[], str], read: Callable[[], Clip]) -> Clip:
        """The clip of a key, or what ``read`` returns, which is kept; the caller may change its arrays.

        Args:
            key: names the clip in this process.
            address: hex digits that name it for good, by everything that can change it; asked for the disk only.
            read: makes the clip; its errors pass through, and nothing is kept.
        """
        with self._lock:
            if (held := self._held.get(key)) is not None:
                self._held.move_to_end(key)
                return copied(held)
        path = bundle_file(address()) if self.keep else None
        clip = load(path) if path is not None else None
        if clip is None:
            clip = read()
            if path is not None:
                self._store(path, clip)
        self._hold(key, clip)
        return clip

    def _hold(self, key: Hashable, clip: Clip) -> None:
        if clip.frames.nbytes > self.limit:
            return
        held = copied(clip)
        with self._lock:
            if (old := self._held.pop(key, None)) is not None:  # another thread read it meanwhile
                self.size -= old.frames.nbytes
            self._held[key] = held
            self.size += held.frames.nbytes
            while self.size > self.limit:
                self.size -= self._held.popitem(last=False)[1].frames.nbytes

    def _store(self, path: Path, clip: Clip) -> None:
        part = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(dump(clip))
            part.replace(path)
        except OSError as error:
            self.keep = False
            with suppress(OSError):
                part.unlink()
            mend = "set COVR_CACHE to a folder with room that can be written"
            _log.warning("%s: frames are not kept on disk (%s): going on without; %s", path, error, mend)

    def _reset(self) -> None:
        self.size, self._lock, self._held = 0, threading.Lock(), OrderedDict[Hashable, Clip]()

    def __getstate__(self) -> dict[str, Any]:
        return {"limit": self.limit, "keep": self.keep}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset()


def bundle_file(address: str) -> Path:
    """Where the clip of an address lies."""
    return cache_dir() / "frames" / address[:2] / f"{address}.safetensors"


def copied(clip: Clip) -> Clip:
    """The same clip with arrays of its own."""
    seconds = None if clip.seconds is None else clip.seconds.copy()
    return Clip(clip.frames.copy(), clip.indices.copy(), seconds, clip.total, clip.fps, clip.decodable)


def dump(clip: Clip) -> bytes:
    """A clip as the bytes of a safetensors file, with a sha256 of its arrays."""
    arrays: dict[str, npt.NDArray[Any]] = {"frames": np.ascontiguousarray(clip.frames), "indices": clip.indices}
    if clip.seconds is not None:
        arrays["seconds"] = clip.seconds
    numbers = {"total": repr(clip.total), "fps": repr(clip.fps), "decodable": repr(clip.decodable)}
    return save(arrays, {"format": str(FORMAT), **numbers, "sha256": _digest(arrays)})


def load(path: Path) -> Clip | None:
    """The clip that :func:`dump` made a file of; ``None`` where there is none, or one that is malformed."""
    try:
        with safe_open(path, "np") as file:
            said, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if said["format"] != str(FORMAT) or said["sha256"] != _digest(arrays):
            return None
        fps = None if said["fps"] == "None" else float(said["fps"])
        total, decodable = int(said["total"]), float(said["decodable"])
        return Clip(arrays["frames"], arrays["indices"], arrays.get("seconds"), total, fps, decodable)
    except (SafetensorError, OSError, KeyError, ValueError, TypeError):
        return None


def _digest(arrays: dict[str, npt.NDArray[Any]]) -> str:
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape} ".encode() + array.tobytes())
    return found.hexdigest()
