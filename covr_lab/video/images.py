"""Frame folders and single images as videos without a clock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from covr_lab.video.base import Frames, Probe, Reason, VideoError
from covr_lab.video.source import Source

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


def natural(names: Iterable[str]) -> list[str]:
    """Names in the order a person counts: whole numbers inside a name compare as numbers.

    >>> natural(["10.jpg", "2.jpg", "1.jpg"])
    ['1.jpg', '2.jpg', '10.jpg']
    """
    # Splitting at the digits puts words at even and numbers at odd places: like always meets like.
    return sorted(names, key=lambda name: ([int(x) if x.isdecimal() else x for x in re.split(r"(\d+)", name)], name))


def is_image(path: Path) -> bool:
    """Whether the suffix says image; hidden files (resource forks of other systems) are none."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


class ImageSource(Source):
    """The images of a folder in natural order, or one image.

    Args:
        path: the folder or image.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        names = natural(file.name for file in path.iterdir() if is_image(file)) if path.is_dir() else [path.name]
        folder = path if path.is_dir() else path.parent
        self.files = [folder / name for name in names]
        if not self.files:
            raise self.failed("empty", f"the folder holds none of {', '.join(SUFFIXES)}")
        height, width, _ = self._load(0).shape
        self.probe = Probe(len(self.files), None, width, height, "images", None, 0)

    def seconds(self, indices: Sequence[int]) -> None:
        """Images claim no time."""

    def frames(self, wanted: Sequence[int]) -> Iterator[tuple[int, Frames]]:
        """The images, all of one size."""
        for index in wanted:
            frame = self._load(index)
            height, width, _ = frame.shape
            if (width, height) != (self.probe.width, self.probe.height):
                first = f"{self.files[0].name} {self.probe.width}x{self.probe.height}"
                raise self.failed("corrupt", f"{self.files[index].name} is {width}x{height}, {first}")
            yield index, frame

    def _load(self, index: int) -> Frames:
        from PIL import Image, ImageOps, UnidentifiedImageError

        file = self.files[index]
        try:
            if not file.stat().st_size:
                raise self.failed("empty", f"{file.name} has no bytes")
            with Image.open(file) as image:
                return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
        except VideoError:
            raise
        except UnidentifiedImageError as error:
            raise self.failed("not_a_video", f"{file.name} is no image") from error
        except (FileNotFoundError, PermissionError):
            raise
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # Pillow raises many kinds
            reason: Reason = "truncated" if "truncated" in str(error) else "corrupt"
            raise self.failed(reason, f"{file.name}: {error}") from error
