"""Frame folders and single images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from covr_lab.video import All, Middle, Probe, Uniform, VideoReader
from covr_lab.video.images import natural


def shade(value: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
    return Image.new("RGB", size, (value, 20, 40))


def test_natural_order() -> None:
    names = ["frame10.jpg", "frame2.jpg", "Frame.jpg", "9.jpg", "10a.jpg", "10.jpg", "frame02.jpg", "1.jpg", "a.jpg"]
    assert natural(names) == natural(names[::-1])
    assert natural(f"{index}.jpg" for index in range(10, 0, -1)) == [f"{index}.jpg" for index in range(1, 11)]
    assert natural(["f1_10", "f1_9", "f01_2"]) == ["f01_2", "f1_9", "f1_10"]


def test_a_folder_of_ten_frames(tmp_path: Path, reader: VideoReader) -> None:
    """Pitfall D4: 1, 2, ..., 10 and not 1, 10, 2; and no time is made up."""
    for index in range(1, 11):
        shade(20 * index).save(tmp_path / f"{index}.{'webp' if index == 4 else 'png'}", lossless=True)
    (tmp_path / "._1.png").write_bytes(b"resource fork")
    (tmp_path / "labels.csv").write_text("1,2")
    (tmp_path / "0").mkdir()
    clip = reader.read(tmp_path, All())
    assert clip.frames[:, 0, 0, 0].tolist() == [20 * index for index in range(1, 11)]
    assert (clip.total, clip.seconds, clip.fps, clip.decodable) == (10, None, None, 1.0)
    assert reader.probe(tmp_path) == Probe(10, None, 40, 30, "images", None, 0)
    assert reader.read(tmp_path, Uniform(2)).frames[:, 0, 0, 0].tolist() == [60, 160]


def test_an_image_is_a_video_of_one_frame(tmp_path: Path, reader: VideoReader) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # stored lying on its side: turn clockwise
    stored = np.zeros((30, 40, 3), dtype=np.uint8)
    stored[:, :8, 0] = 255  # the left columns are the top rows
    Image.fromarray(stored).save(tmp_path / "phone.JPG", exif=exif, quality=95)
    clip = reader.read(tmp_path / "phone.JPG", Uniform(3))
    assert clip.frames.shape == (3, 40, 30, 3)
    assert clip.frames[0, :6, :, 0].min() > 200
    assert clip.frames[0, 12:, :, 0].max() < 50
    assert (clip.total, clip.seconds) == (1, None)
    for mode in ("L", "RGBA", "P"):
        shade(200).convert(mode).save(tmp_path / f"{mode}.png")
        assert reader.read(tmp_path / f"{mode}.png", Middle()).frames.shape == (1, 30, 40, 3)
