"""A preview that browsers play: ``python -m covr_lab.app.preview SOURCE TARGET``, in a process that can be killed.

Nothing is written where browsers play the source itself. Sound is left out, as nothing here hears it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final

from covr_lab.app.formats import HEAD, is_played, sniff
from covr_lab.video.overlay import fitted
from covr_lab.video.worker import explain, open_source

if TYPE_CHECKING:
    from covr_lab.video.base import Frames
    from covr_lab.video.source import Source

SIDE: Final = 960  # pixels of the longer side
SECONDS: Final = 120.0  # of the source, from its start
STILLS: Final = 8.0  # frames a second of a folder of frames, which has no clock
MEMORY: Final = 4 << 30  # bytes that the process may map
BASE: Final = Fraction(1, 1000)  # seconds


def plays(path: Path) -> bool:
    """Whether browsers play a file as it is."""
    from covr_lab.video.container import open_container

    if path.is_dir():
        return False
    with path.open("rb") as file:
        kind = sniff(file.read(HEAD))
    with open_container(path) as container:
        context = container.streams.video[0].codec_context
        return is_played(kind, context.codec.canonical_name, context.pix_fmt or "")


def timed(source: Source) -> Iterator[tuple[int, Frames]]:
    """Milliseconds, strictly ascending, and frames uint8 ``(H, W, 3)``."""
    rate, last = source.probe.fps or STILLS, -1
    count = min(source.probe.total, max(1, round(SECONDS * rate)))
    for number, (index, frame) in enumerate(source.frames(range(count))):
        seconds = source.seconds([index])
        last = max(last + 1, round(1000 * (number / rate if seconds is None else float(seconds[0]))))
        yield last, frame


def write_preview(source: Source, target: Path) -> None:
    """H.264 in MP4, index first, so that a browser can start at once."""
    import av

    with av.open(str(target), "w", format="mp4", options={"movflags": "faststart"}) as file:
        stream = None
        for stamp, picture in timed(source):
            if stream is None:
                rate = Fraction(source.probe.fps or STILLS).limit_denominator(1000)
                stream = file.add_stream("libx264", rate=rate, options={"crf": "24", "preset": "veryfast"})
                width, height = fitted(picture.shape[1], picture.shape[0], SIDE)
                stream.width, stream.height = max(2, width // 2 * 2), max(2, height // 2 * 2)
                stream.pix_fmt, stream.codec_context.time_base = "yuv420p", BASE
                stream.codec_context.thread_count = 1
            frame = av.VideoFrame.from_ndarray(picture, "rgb24").reformat(stream.width, stream.height, "yuv420p")
            frame.pts, frame.time_base = stamp, BASE
            file.mux(stream.encode(frame))
        if stream is not None:
            file.mux(stream.encode())


def main() -> int:
    """Write the preview; returns the exit status."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    source, target = map(Path, sys.argv[1:])
    try:
        if not plays(source):
            write_preview(open_source(source, "pyav"), target)
    except Exception as error:  # whatever a decoder raises is one sentence
        sys.stderr.write(": ".join(filter(None, explain(error))) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
