"""The interface of video reading: a path and a sampler in, an upright RGB clip or a typed error out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from covr_lab.types import SessionError
from covr_lab.video.samplers import FrameSampler

Frames = npt.NDArray[np.uint8]
Reason = Literal[
    "missing",  # no such file
    "unreadable",  # the operating system refuses it
    "empty",  # no bytes, no frames, or a folder without images
    "not_a_video",  # text, a web page, anything that is no container
    "no_video_stream",  # a container without pictures
    "codec",  # sound, but this reader's library cannot decode it
    "truncated",  # frames that the container promises are not in the file
    "corrupt",  # frames are there and do not decode
    "timeout",  # not done within the time limit; the decoding process was killed
    "crashed",  # the decoding process died
]
# What is wrong, and the mend.
_TEXTS: dict[Reason, tuple[str, str]] = {
    "missing": ("is missing", "restore the file or correct the folder of the videos"),
    "unreadable": ("cannot be opened", "give this user the right to read it"),
    "empty": ("is empty", "fetch it again"),
    "not_a_video": ("is no video", "fetch it again, a web page may have been saved in its place"),
    "no_video_stream": ("has no video stream", "replace the file by one with pictures"),
    "codec": (
        "is in a format that this reader cannot decode",
        "set `reader: PyAVReader`, or re-encode it: ffmpeg -i IN -c:v libx264 -pix_fmt yuv420p -crf 18 OUT.mp4",
    ),
    "truncated": ("is truncated", "fetch it again, or lower `min_decodable`"),
    "corrupt": ("is damaged", "fetch it again, or set `reader: PyAVReader` with a lower `min_decodable`"),
    "timeout": ("was not read in time", "re-encode it with ffmpeg, or raise `timeout`"),
    "crashed": ("crashed the decoder", "re-encode it with ffmpeg, or set another `reader`"),
}


class VideoError(SessionError):
    """One video cannot be read: recorded and counted, never replaced by a black frame.

    Args:
        path: the file or folder.
        reason: kind of failure.
        detail: what was seen, without a full stop.
    """

    def __init__(self, path: Path, reason: Reason, detail: str = "") -> None:
        assert reason in get_args(Reason)
        self.path, self.reason, self.detail = path, reason, " ".join(detail.split())
        what, mend = _TEXTS[reason]
        super().__init__(f"video {path} {what}{f' ({self.detail})' if self.detail else ''}: {mend}")

    def __reduce__(self) -> tuple[type[VideoError], tuple[Path, Reason, str]]:
        return type(self), (self.path, self.reason, self.detail)  # crosses process borders in one piece


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """Frames of one video.

    Attributes:
        frames: uint8 ``(F, H, W, 3)``, RGB, upright. Pixels are not stretched to the sample aspect ratio.
        indices: int64 ``(F,)`` native indices of ``frames``. In a damaged clip that is still above ``min_decodable``,
            a chosen frame that does not decode is replaced by the next one that does, and its index stands here.
        seconds: float64 ``(F,)`` presentation times from the stamps of the container, the first frame of the clip at
            0; ``None`` for frame folders and images, which have no clock.
        total: native frames in the file.
        fps: native average frames per second, ``None`` without a clock.
        decodable: share of the frames promised by the container that are there and, as far as they were decoded,
            decode without an error. Codecs without checks (VP8) hide damage.
    """

    frames: Frames
    indices: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64] | None
    total: int
    fps: float | None
    decodable: float


@dataclass(frozen=True, slots=True)
class Probe:
    """What a container says about its video.

    Attributes:
        total: native frames in the file.
        fps: native average frames per second, ``None`` without a clock.
        width: pixels, as shown upright.
        height: pixels, as shown upright.
        codec: name of the codec, ``images`` for frame folders and single images.
        seconds: duration, ``None`` without a clock.
        rotation: degrees counter-clockwise, below 360, that turn the stored frames upright.
    """

    total: int
    fps: float | None
    width: int
    height: int
    codec: str
    seconds: float | None
    rotation: int


class VideoReader(ABC):
    """Reads videos, frame folders (natural order) and single images.

    Args:
        min_decodable: share of the promised frames below which a clip fails.
        timeout: seconds that one clip may take.
    """

    def __init__(self, *, min_decodable: float = 0.9, timeout: float = 60.0) -> None:
        if not 0 <= min_decodable <= 1:
            raise ValueError(f"min_decodable is a share between 0 and 1, not {min_decodable}")
        if not timeout > 0:
            raise ValueError(f"timeout must be above 0 seconds, not {timeout}")
        self.min_decodable, self.timeout = min_decodable, timeout

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Name and version of everything that can change a pixel or an index."""

    @abstractmethod
    def probe(self, path: Path) -> Probe:
        """Size, length and codec of a video.

        Raises:
            VideoError: it cannot be read.
        """

    @abstractmethod
    def read(self, path: Path, sampler: FrameSampler) -> Clip:
        """The frames that ``sampler`` chooses.

        Raises:
            VideoError: it cannot be read.
        """
