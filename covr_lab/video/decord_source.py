"""Frames by decord; the index, and with it every time stamp and every diagnosis, is that of PyAV."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from covr_lab.video.av_source import AVSource
from covr_lab.video.base import Frames, Reason, VideoError


class DecordSource(AVSource):
    """A video file that decord decodes.

    decord patches damaged frames together from others. Where it complains on the standard error stream, PyAV decodes
    the file as well and counts what is intact.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        decord = import_module("decord")
        decord.logging.set_level(decord.logging.ERROR)
        self._written = _written()
        try:
            # The lowest limit there is on frames that are copies of others (0 switches it off).
            self._reader: Any = decord.VideoReader(str(path), num_threads=1, fault_tol=1)
        except Exception as error:  # decord raises RuntimeError for all that it cannot open
            raise self._refused(f"{self.probe.codec}, which PyAV opens and decord does not") from error
        self._keys: list[int] = [] if self.index.seekable else self._reader.get_key_indices()
        if len(self._reader) != self.probe.total:
            raise self._refused(f"decord counts {len(self._reader)} frames, PyAV {self.probe.total}")

    def frames(self, wanted: Sequence[int]) -> Iterator[tuple[int, Frames]]:
        """Upright RGB frames, all of them intact.

        Raises:
            VideoError: one of them is not.
        """
        position = 0
        for index in wanted:
            try:
                self._skip(position, index)
                frame: Frames = self._reader.next().asnumpy()
            except Exception as error:  # decord.DECORDError is raised under several names
                reason: Reason = "corrupt" if self.decodable == 1 else "truncated"
                raise self.failed(reason, f"decord: {_plain(str(error))}") from error
            shape = (self.probe.height, self.probe.width, 3)
            if frame.shape != shape:  # decord errs for some widths below 64
                raise self._refused(f"frames of shape {frame.shape}, expected {shape}")
            yield index, frame
            position = index + 1
        if _written() > self._written and [index for index, _ in self.intact(wanted)] != list(wanted):
            raise self.failed("corrupt", "some of the chosen frames do not decode")

    def _skip(self, position: int, target: int) -> None:
        """Go on to a frame.

        decord jumps to the key frame before it, and starts there even if frames refer to what lies before. Where they
        may, it is led across each key frame by hand. It tells frames apart by their stamps: without, all are shown.
        """
        steps = range(position + 1, target + 1) if self.index.stamps is None else self._keys
        for step in steps:
            if position < step <= target:
                if position < step - 1:
                    self._reader.skip_frames(step - 1 - position)
                self._reader.next()
                position = step
        if position < target:
            self._reader.skip_frames(target - position)

    def _refused(self, detail: str) -> VideoError:
        return self.failed("codec" if self.decodable == 1 else "truncated", detail)


def _plain(message: str) -> str:
    r"""The first line of a message of decord, without clock and source file.

    >>> _plain("[17:35:57] /src/video/reader.cc:486: Error: av_read_frame failed\nStack trace")
    'Error: av_read_frame failed'
    """
    return re.sub(r"\[[\d:]+\] \S+:\d+: ", "", message).partition("\n")[0]


def _written() -> int:
    """Bytes on the standard error stream, which the main process has made a file."""
    return os.fstat(2).st_size
