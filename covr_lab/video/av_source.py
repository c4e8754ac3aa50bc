"""Frames by PyAV: what no wanted frame needs is never decoded, and no decoded frame is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from covr_lab.video.base import Frames
from covr_lab.video.container import open_container, packets
from covr_lab.video.index import DECODE, DROP, REFERENCE, Index, plan, read_index
from covr_lab.video.source import Source

if TYPE_CHECKING:
    from av import Packet, VideoCodecContext, VideoFrame
    from av.stream import Stream
    from av.video.stream import VideoStream


class AVSource(Source):
    """A video file that PyAV decodes.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = read_index(path)
        self.probe = self.index.probe
        self.decodable = self.probe.total / self.index.promised

    def seconds(self, indices: Sequence[int]) -> npt.NDArray[np.float64]:
        """Presentation stamps, the first frame at 0."""
        return self.index.seconds.take(indices)

    def frames(self, wanted: Sequence[int]) -> Iterator[tuple[int, Frames]]:
        """Upright RGB frames."""
        size = (self.probe.width, self.probe.height)
        width, height = size[::-1] if self.probe.rotation % 180 else size
        for index, frame in self.intact(wanted):
            rgb = frame.to_ndarray(format="rgb24", width=width, height=height, threads=1)
            yield index, np.rot90(rgb, self.probe.rotation // 90)

    def intact(self, wanted: Sequence[int]) -> Iterator[tuple[int, VideoFrame]]:
        """The wanted frames; one that does not decode is replaced by the next that does (by the last at the end).

        The short way comes first. At the first sign of damage everything is decoded and counted.
        """
        done = 0
        for index, frame in decode(self.path, self.index, wanted):
            if frame is None or index > wanted[done]:
                break
            if index == wanted[done]:
                yield index, frame
                done += 1
                if done == len(wanted):
                    return
        yield from self._count(wanted[done:])

    def _count(self, wanted: Sequence[int]) -> Iterator[tuple[int, VideoFrame]]:
        done, count, last = 0, 0, None
        for index, frame in decode(self.path, self.index):
            if frame is None:
                continue
            count, last = count + 1, (index, frame)
            while done < len(wanted) and index >= wanted[done]:
                yield last
                done += 1
        self.decodable = min(1.0, count / self.index.promised)
        if last is None:
            raise self.failed("corrupt", f"none of its {self.probe.total} {self.probe.codec} frames decodes")
        for _ in wanted[done:]:
            yield last


def decode(path: Path, index: Index, wanted: Sequence[int] | None = None) -> Iterator[tuple[int, VideoFrame | None]]:
    """Decoded frames with their indices, in order; ``None`` in place of a frame that is not intact.

    After an error, frames may be patched together from others without a word: they count as damaged up to the next
    key frame.

    Args:
        path: the file.
        index: its index.
        wanted: frames that have to be among them, ``None`` for all.
    """
    actions = np.full(index.packets, DECODE, dtype=np.int8)
    if wanted is not None and index.pts is not None and index.stamps is not None:
        actions = plan(index.pts, index.starts, index.stamps.take(wanted))
    with open_container(path) as container:
        stream = next(stream for stream in container.streams.video if stream.index == index.stream)
        damaged, count = False, 0
        for frame in _run(stream.codec_context, zip(packets(container, stream), actions, strict=False)):
            if frame is None or frame.is_corrupt:
                damaged = True
            elif frame.key_frame:
                damaged = False
            at = count
            if index.stamps is not None and frame is not None:
                at = -1 if frame.pts is None else int(np.searchsorted(index.stamps, frame.pts))
            count += frame is not None
            yield at, None if damaged or at < 0 else frame


def _run(context: VideoCodecContext, work: Iterable[tuple[Packet[Stream], np.int8]]) -> Iterator[VideoFrame | None]:
    """What comes out of the decoder; ``None`` for a packet that it refuses."""
    from av.error import FFmpegError

    context.thread_count = 1
    context.open(strict=False)  # before `skip_frame` is set: AV1 decoders would keep the first value for good
    fresh = True  # nothing is inside the decoder
    for packet, action in work:
        if action != DROP:
            fresh = False
            context.skip_frame = "NONREF" if action == REFERENCE else "DEFAULT"
            try:
                yield from context.decode(cast("Packet[VideoStream]", packet))
            except FFmpegError:
                yield None
        elif not fresh:
            fresh = True
            yield from context.decode(None)
            context.flush_buffers()
    if not fresh:
        yield from context.decode(None)
