"""What a file is by its first bytes, and which of them browsers play."""

from __future__ import annotations

from typing import Final

SUFFIXES: Final = {  # content type -> suffix that our readers know the kind by
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/webp": ".webp",
    "image/gif": ".gif",
    "video/mp4": ".mp4",
    "video/quicktime": ".mov",
    "video/webm": ".webm",
    "video/x-matroska": ".mkv",
    "video/x-msvideo": ".avi",
    "video/x-flv": ".flv",
    "video/ogg": ".ogv",
    "video/mpeg": ".mpg",
    "video/mp2t": ".ts",
    "video/x-ms-asf": ".asf",
}
HEAD: Final = 200  # bytes that tell the kind of a file
MAGIC: Final = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF8", "image/gif"),
    (b"FLV", "video/x-flv"),
    (b"OggS", "video/ogg"),
    (b"\0\0\1\xba", "video/mpeg"),
    (b"0&\xb2u", "video/x-ms-asf"),
)
PLAYED: Final = {"video/mp4": ("h264", "av1", "vp9"), "video/webm": ("vp8", "vp9", "av1")}
PICTURES: Final = (b"heic", b"heix", b"mif1", b"msf1", b"avif", b"avis")  # brands of MP4 boxes that hold still pictures


def sniff(head: bytes) -> str:
    r"""Content type of a file that starts with ``head`` (``HEAD`` bytes are enough), "" for one that is not known.

    >>> sniff(b"\0\0\0\x20ftypisom"), sniff(b"<html>"), sniff(b"RIFF\0\0\0\0WEBPVP8 ")
    ('video/mp4', '', 'image/webp')
    """
    for start, kind in MAGIC:
        if head.startswith(start):
            return kind
    if head.startswith(b"RIFF"):
        return {b"WEBP": "image/webp", b"AVI ": "video/x-msvideo"}.get(head[8:12], "")
    if head.startswith(b"\x1aE\xdf\xa3"):
        return "video/webm" if b"webm" in head[:64] else "video/x-matroska"
    if head[4:8] == b"ftyp":
        brand = head[8:12]
        return "" if brand in PICTURES else "video/quicktime" if brand == b"qt  " else "video/mp4"
    if head[4:8] in (b"moov", b"mdat", b"wide", b"free", b"skip"):
        return "video/quicktime"
    packets = head[:1] + head[188:189], head[4:5] + head[196:197]  # those of a disc have 4 bytes in front
    return "video/mp2t" if b"GG" in packets else ""


def is_played(kind: str, codec: str, pixels: str) -> bool:
    """Whether today's browsers play a video as it is.

    Args:
        kind: content type.
        codec: FFmpeg's name of the codec.
        pixels: FFmpeg's name of the pixel format.

    >>> is_played("video/mp4", "h264", "yuv420p"), is_played("video/mp4", "hevc", "yuv420p")
    (True, False)
    """
    return codec in PLAYED.get(kind, ()) and pixels in ("yuv420p", "yuvj420p")
