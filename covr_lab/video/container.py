"""Containers by FFmpeg: opening, packets, and what a file is that does not open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from covr_lab.video.base import Reason, VideoError

if TYPE_CHECKING:
    from av import Packet
    from av.container import InputContainer
    from av.stream import Stream

# Containers that hold videos. Everything else that FFmpeg opens (playlists, text, subtitles) is no video here.
FORMATS = "mov,matroska,webm,avi,mpegts,mpeg,flv,asf,ogg,gif,ivf,mxf,rm"
MP4_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide")
MAGIC = (b"\x1aE\xdf\xa3", b"RIFF", b"FLV", b"OggS", b"\0\0\1\xba", b"0&\xb2u")  # of the other containers


def open_container(path: Path) -> InputContainer:
    """Open a file with FFmpeg.

    Raises:
        VideoError: it is no container.
        OSError: the operating system refuses it.
    """
    import av

    # Only local files of known kinds: a downloaded playlist must not fetch what it names.
    options = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
    try:
        return av.open(f"file:{path}", options=options, metadata_errors="replace")
    except (av.error.FFmpegError, ValueError) as error:
        raise VideoError(path, *diagnose(path)) from error


def packets(container: InputContainer, *streams: Stream) -> Iterator[Packet[Stream]]:
    """The sound packets of the given streams (all by default), up to the first error."""
    from av.error import FFmpegError

    try:
        for packet in container.demux(*streams):
            if packet.size and not packet.is_corrupt:
                yield packet
    except FFmpegError:
        return  # what follows is not there: it is missing from what the container promises


def diagnose(path: Path) -> tuple[Reason, str]:
    """What a file is that FFmpeg does not open."""
    with path.open("rb") as file:
        head = file.read(16)
    if head[4:8] in MP4_BOXES:
        boxes, size = mp4_boxes(path), path.stat().st_size
        if boxes[-1][1] > size and boxes[-1][0] != b"moov":
            return "truncated", f"{size} of at least {boxes[-1][1]} bytes are there, its index (moov) is not"
        return "corrupt", "FFmpeg cannot use its index (moov)"
    if head.startswith(MAGIC):
        return "corrupt", "FFmpeg does not find its streams"
    if head.isascii() and head.strip():
        return "not_a_video", f"it starts with {head.decode()!r}"
    return "not_a_video", "FFmpeg knows no such format"


def mp4_boxes(path: Path) -> list[tuple[bytes, int]]:
    """Kinds and ends of the outermost boxes of an MP4 file (ISO 14496-12, section 4.2), up to a garbled one.

    The end of the last one lies behind the end of a file that is cut off.
    """
    found, position, size = [], 0, path.stat().st_size
    with path.open("rb") as file:
        while position + 8 <= size:
            file.seek(position)
            head = file.read(16)
            length = int.from_bytes(head[:4])
            if length == 1:  # the real length follows
                length = int.from_bytes(head[8:])
            if 0 < length < 8:
                break
            position += length or size - position  # 0: up to the end of the file
            found.append((head[4:8], position))
    return found
