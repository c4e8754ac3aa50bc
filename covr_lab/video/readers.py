"""Readers by decord and by PyAV. One is never replaced by the other without a word."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from covr_lab.types import Refused
from covr_lab.video.base import Clip, Probe, Reason, VideoError, VideoReader
from covr_lab.video.overlay import fit, fitted
from covr_lab.video.process import Backend, DecodeProcess
from covr_lab.video.samplers import FrameSampler

RECYCLE = 1000  # clips after which a decoding process is replaced, whatever its library may have leaked


class IsolatedReader(VideoReader):
    """Decodes in a process of its own, which is killed when a clip takes too long.

    The process starts with the first clip and serves many. Each process that reads (a worker of a DataLoader, say) has
    its own; threads take turns. Frames come back through a socket, so no shared memory is needed.
    """

    backend: ClassVar[Backend]
    _process: DecodeProcess | None

    def __init__(self, *, min_decodable: float = 0.9, timeout: float = 60.0) -> None:
        super().__init__(min_decodable=min_decodable, timeout=timeout)
        self._reset()

    def probe(self, path: Path) -> Probe:
        """Size, length and codec, after one pass over the packets; only the first frame is decoded."""
        with self._clip(path) as process:
            return self._open(process, path)

    def read(self, path: Path, sampler: FrameSampler) -> Clip:
        """The frames that ``sampler`` chooses; only these cross the process border, one after the other."""
        with self._clip(path) as process:
            probe = self._open(process, path)
            chosen = sampler.choose(probe.total, probe.seconds)
            wanted, place = np.unique(chosen, return_inverse=True)
            if not len(wanted) or wanted[0] < 0 or wanted[-1] >= probe.total:
                raise ValueError(f"{sampler.describe()} chose {wanted.tolist()} of {probe.total} frames")
            width, height = fitted(probe.width, probe.height, sampler.side)
            frames = np.empty((len(wanted), height, width, 3), dtype=np.uint8)
            whole = np.empty((1, probe.height, probe.width, 3), dtype=np.uint8)
            indices, seconds = np.empty(len(wanted), dtype=np.int64), np.empty(len(wanted))
            process.send({"wanted": wanted.tolist()})
            for row in range(len(wanted)):
                answer = self._answer(process, path)
                indices[row], seconds[row] = answer["index"], answer["second"] or 0.0
                process.fill(whole.data.cast("B"))
                frames[row] = fit(whole, sampler.side)[0]
            decodable = self._enough(path, "corrupt", self._answer(process, path)["decodable"])
        if len(place) != len(wanted) or (np.diff(place) < 0).any():
            frames, indices, seconds = frames[place], indices[place], seconds[place]
        return Clip(frames, indices, None if probe.seconds is None else seconds, probe.total, probe.fps, decodable)

    def close(self) -> None:
        """End the decoding process; the next clip starts another."""
        if self._process is not None:
            self._process.kill()
        self._process = None

    def _open(self, process: DecodeProcess, path: Path) -> Probe:
        process.send({"open": str(Path(path).absolute())})
        answer = self._answer(process, path)
        self._enough(path, "truncated", answer["decodable"])
        return Probe(**answer["probe"])

    def _answer(self, process: DecodeProcess, path: Path) -> dict[str, Any]:
        answer = process.receive()
        if "reason" in answer:
            raise VideoError(path, answer["reason"], answer["detail"])
        return answer

    def _enough(self, path: Path, reason: Reason, decodable: float) -> float:
        if decodable < self.min_decodable:
            verb = "are there" if reason == "truncated" else "decode"
            raise VideoError(path, reason, f"{decodable:.1%} of the promised frames {verb}")
        return decodable

    @contextmanager
    def _clip(self, path: Path) -> Iterator[DecodeProcess]:
        """The decoding process for one clip; it is killed unless it is ready for the next one afterwards."""
        if self._owner != os.getpid():  # a forked copy: the lock and the process belong to another
            self.close()
            self._reset()
        with self._lock:
            if self._process is None or not self._process.alive() or self._process.served >= RECYCLE:
                self.close()
                self._process = DecodeProcess(self.backend)
            process = self._process
            process.limit(self.timeout)
            try:
                yield process
            except VideoError:
                raise
            except TimeoutError as error:
                process.kill()
                raise VideoError(path, "timeout", f"limit {self.timeout:g} s") from error
            except (EOFError, ConnectionError) as error:
                raise VideoError(path, "crashed", process.autopsy()) from error
            except BaseException:
                process.kill()
                raise

    def _reset(self) -> None:
        self._owner, self._lock = os.getpid(), threading.Lock()
        self._process = None

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key not in ("_owner", "_lock", "_process")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset()


class DecordReader(IsolatedReader):
    """Pixels by decord (extra ``decord``), index and time stamps by PyAV.

    decord opens no AV1. A clip with a chosen frame that does not decode fails; :class:`PyAVReader` takes the next one.

    Args:
        min_decodable: share of the promised frames below which a clip fails.
        timeout: seconds that one clip may take.

    Raises:
        Refused: decord is not installed.
    """

    backend = "decord"

    def __init__(self, *, min_decodable: float = 0.9, timeout: float = 60.0) -> None:
        super().__init__(min_decodable=min_decodable, timeout=timeout)
        if find_spec("decord") is None:
            raise Refused(
                "DecordReader needs the extra `decord`: pip install 'covr_lab[decord]' (x86-64 only), or "
                "set `reader: PyAVReader`"
            )

    @property
    def fingerprint(self) -> str:
        """Versions of decord, PyAV (index) and Pillow (image folders)."""
        return f"decord-{version('decord')} av-{version('av')} pillow-{version('pillow')} rgb-1"


class PyAVReader(IsolatedReader):
    """Index and pixels by PyAV (FFmpeg): all usual codecs, what is left of damaged clips.

    Packets that no chosen frame needs are not decoded; the frames are the same bits as after decoding everything.

    Args:
        min_decodable: share of the promised frames below which a clip fails.
        timeout: seconds that one clip may take.
    """

    backend = "pyav"

    @property
    def fingerprint(self) -> str:
        """Versions of PyAV and Pillow (image folders)."""
        return f"av-{version('av')} pillow-{version('pillow')} rgb-1"
