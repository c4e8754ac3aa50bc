"""Where the frames of a container lie: one pass over its packets, nothing but the first frame decoded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from covr_lab.video.base import Probe, VideoError
from covr_lab.video.container import mp4_boxes, open_container, packets

if TYPE_CHECKING:
    from av import Packet
    from av.container import InputContainer
    from av.stream import Stream
    from av.video.stream import VideoStream

Stamps = npt.NDArray[np.int64]
DROP, REFERENCE, DECODE = 0, 1, 2  # a packet: not needed, needed where other frames refer to it, wanted
SLACK = 3  # frames by which the duration in a header may be off


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """Packets of the video stream in decoding order, and the frames they stand for.

    Attributes:
        probe: size, length and codec.
        stream: number of the stream.
        packets: how many there are.
        pts: int64 ``(packets,)`` presentation stamps, ``None`` where the container has none (AVI).
        starts: packets at which decoding can start, see :func:`find_starts`.
        seekable: whether that is true of every packet that the container calls a key frame.
        stamps: int64 ``(total,)`` stamps of the frames in order, ``None`` like ``pts``.
        seconds: float64 ``(total,)`` presentation times, the first frame at 0.
        promised: frames that the container promises.
    """

    probe: Probe
    stream: int
    packets: int
    pts: Stamps | None
    starts: npt.NDArray[np.int64]
    seekable: bool
    stamps: Stamps | None
    seconds: npt.NDArray[np.float64]
    promised: int


def find_starts(pts: Stamps, entry: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Packets where decoding can start: nothing before is shown later, and nothing after is shown earlier.

    A key frame is not enough: frames of an open group refer to the group before.

    Args:
        pts: int64 ``(P,)`` stamps in decoding order.
        entry: bool ``(P,)``, key frames.

    >>> find_starts(np.array([0, 2, 1, 3, 6, 5, 7]), np.array([1, 0, 0, 1, 1, 0, 0], dtype=bool)).tolist()
    [0, 3]
    """
    before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(pts)[:-1]))
    after = np.minimum.accumulate(pts[::-1])[::-1]
    return np.flatnonzero(entry & (before < pts) & (after == pts))


def plan(pts: Stamps, starts: npt.NDArray[np.int64], wanted: Stamps) -> npt.NDArray[np.int8]:
    """What to do with each packet so that the wanted frames come out as if all had been decoded.

    From one start to the next, packets after the last wanted one are dropped: all of them where there is none.

    Args:
        pts: int64 ``(P,)`` stamps in decoding order.
        starts: packets where decoding can start.
        wanted: int64 stamps.

    Returns:
        int8 ``(P,)`` of ``DROP``, ``REFERENCE``, ``DECODE``.

    >>> plan(np.array([0, 2, 1, 3, 5, 4]), np.array([0, 3]), np.array([5])).tolist()
    [0, 0, 0, 1, 2, 0]
    """
    is_wanted = np.isin(pts, wanted)
    actions = np.where(is_wanted, DECODE, REFERENCE).astype(np.int8)
    for start, stop in zip(starts, [*starts[1:], len(pts)], strict=True):
        last = np.flatnonzero(is_wanted[start:stop])
        actions[start + last[-1] + 1 if len(last) else start : stop] = DROP
    return actions


def is_idr(packet: bytes) -> bool:
    """Whether a packet of H.264 holds an IDR slice; at other key frames decoding starts with a flawed picture.

    NAL units of type 5 (ITU-T H.264, table 7-1), behind start codes or behind their lengths.
    """
    if packet.startswith((b"\0\0\1", b"\0\0\0\1")):
        return any(b"\0\0\1" + kind in packet for kind in (b"\x25", b"\x45", b"\x65"))
    position = 0
    while position + 5 <= len(packet):
        if packet[position + 4] & 31 == 5:
            return True
        position += 4 + int.from_bytes(packet[position : position + 4])
    return False


def read_index(path: Path) -> Index:
    """Index a video file.

    Raises:
        VideoError: it holds no video that FFmpeg can decode.
        OSError: the operating system refuses it.
    """
    if path.is_file() and not path.stat().st_size:
        raise VideoError(path, "empty", "it has no bytes")
    with open_container(path) as container:
        stream = cast("VideoStream | None", container.streams.best("video"))
        if stream is None or stream.disposition & stream.disposition.attached_pic:  # cover art
            kinds = ", ".join(sorted({str(stream.type) for stream in container.streams}))
            raise VideoError(path, "no_video_stream", f"its streams: {kinds or 'none'}")
        if stream.codec_context is None:
            raise VideoError(path, "codec", "FFmpeg has no decoder for it")
        return _Scan(path, container, stream).index()


class _Scan:
    """One pass over the packets of a container."""

    def __init__(self, path: Path, container: InputContainer, stream: VideoStream) -> None:
        self.path, self.container, self.stream = path, container, stream
        self.pts: list[int | None] = []
        self.key: list[bool] = []
        self.entry: list[bool] = []
        self.shown: list[bool] = []  # an edit list hides packets
        self.end = 0.0  # seconds: where sound and pictures end
        self.size: tuple[int, int] | None = None  # of a frame as stored
        self.rotation = 0
        # Packets listed up front, 0 where there is no list; in the MP4 family the edit list takes some out of it.
        self.mp4 = container.format.name.startswith("mov")
        self.listed = len(stream.index_entries) if self.mp4 and stream.frames else stream.frames

    def index(self) -> Index:
        self.stream.codec_context.thread_count = 1
        codec = self.stream.codec_context.codec.canonical_name
        for packet in packets(self.container):
            if packet.stream.type not in ("video", "audio"):
                continue
            stamp = packet.dts if packet.pts is None else packet.pts
            if stamp is not None:
                self.end = max(self.end, float((stamp + (packet.duration or 0)) * packet.time_base))
            if packet.stream_index == self.stream.index:
                self.pts.append(packet.pts)
                self.key.append(packet.is_keyframe)
                self.entry.append(packet.is_keyframe and (codec != "h264" or is_idr(bytes(packet))))
                self.shown.append(not packet.is_discard)
                self._look(packet)
        self._look(None)
        return self._result(codec)

    def _result(self, codec: str) -> Index:
        total, missing = sum(self.shown), self._missing()
        if not total:
            raise VideoError(self.path, "truncated" if missing else "empty", f"no {codec} frame is there")
        if self.size is None:
            raise VideoError(self.path, "corrupt", f"none of its {total} {codec} frames decodes")
        stamps, rate = self._stamps(), float(self.stream.average_rate or self.stream.guessed_rate or 0)
        if stamps is not None:
            base = self.stream.time_base or self.stream.codec_context.time_base
            seconds = (stamps - stamps[0]) * (base.numerator / base.denominator)
            rate = rate or (total - 1) / max(seconds[-1], 1e-6)
        elif rate:
            seconds = np.arange(total) / rate
        else:
            raise VideoError(self.path, "corrupt", "it has neither time stamps nor a frame rate")
        width, height = self.size[::-1] if self.rotation % 180 else self.size
        duration = float(seconds[-1] + (1 / rate if rate else 0))  # a single frame may have no rate
        pts = None if stamps is None else np.array(self.pts, dtype=np.int64)
        starts = np.zeros(1, dtype=np.int64) if pts is None else find_starts(pts, np.array(self.entry))
        return Index(
            probe=Probe(total, rate or None, width, height, codec, duration, self.rotation),
            stream=self.stream.index,
            packets=len(self.pts),
            pts=pts,
            starts=starts,
            seekable=set(np.flatnonzero(self.key)) <= set(starts),
            stamps=stamps,
            seconds=seconds,
            promised=total + missing,
        )

    def _look(self, packet: Packet[Stream] | None) -> None:
        """Decode until the first frame comes out; only that shows the rotation."""
        from av.error import FFmpegError

        if self.size is not None:
            return
        try:
            for frame in self.stream.codec_context.decode(cast("Packet[VideoStream] | None", packet))[:1]:
                self.size, self.rotation = (frame.width, frame.height), frame.rotation % 360
        except FFmpegError:
            return

    def _stamps(self) -> Stamps | None:
        """Stamps of the shown frames in order; ``None`` without a full set of distinct ones."""
        if self.container.format.name == "avi" or None in self.pts:  # FFmpeg makes up those of AVI
            return None
        stamps = np.unique(np.array(self.pts, dtype=np.int64)[np.array(self.shown)])
        return stamps if len(stamps) == sum(self.shown) else None

    def _missing(self) -> int:
        """Frames that the container promises and that are not there."""
        if self.listed:
            return max(0, self.listed - len(self.pts))
        if self.mp4 and mp4_boxes(self.path)[-1][1] > self.path.stat().st_size:
            raise VideoError(self.path, "truncated", "its last fragment is cut off")  # of nobody knows how many
        rate, duration = self.stream.average_rate, self.container.duration
        if not rate or duration is None:
            return 0
        gap = int((duration / 1e6 - self.end) * float(rate))  # a whole file ends where its header says
        return gap if gap > SLACK else 0
