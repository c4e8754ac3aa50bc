from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from covr_lab.gallery.videos import ENDS, media_identity
from covr_lab.video import Middle, VideoError
from tests.gallery.toy import store, write_clip

SIZE = 3 * ENDS


def flipped(at: int) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[at] ^= 1
        path.write_bytes(content)

    return flip


@pytest.fixture
def media(tmp_path: Path) -> Path:
    """A file of three times what is read at each end."""
    (tmp_path / "v").mkdir()
    path = tmp_path / "v" / "a.mp4"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.mark.parametrize(
    "change",
    [flipped(0), flipped(ENDS - 1), flipped(-1), flipped(-ENDS), lambda path: path.write_bytes(path.read_bytes()[:-1])],
)
def test_other_bytes_are_another_file(change: Callable[[Path], None], media: Path) -> None:
    before = media_identity(media)
    change(media)
    assert media_identity(media) != before


@pytest.mark.parametrize("size", [0, 1, ENDS - 1, ENDS, ENDS + 1, 2 * ENDS - 1])
def test_short_files_are_read_whole(size: int, media: Path) -> None:
    seen = set()
    for at in {-1, size // 2, *({0} if size else ())} if size else {None}:
        media.write_bytes(b"x" * size)
        seen.add(media_identity(media))
        if at is not None:
            flipped(at)(media)
            seen.add(media_identity(media))
    assert len(seen) == 1 + len({-1 % size, size // 2, 0} if size else ())


def test_neither_place_nor_time_matters(media: Path) -> None:
    before = media_identity(media)
    os.utime(media, (1, 1))
    assert media_identity(media.rename(media.with_name("b.avi"))) == before


def test_a_folder_is_its_frames(tmp_path: Path) -> None:
    folder = tmp_path / "frames"
    folder.mkdir()
    for name in ("1.jpg", "2.jpg", "10.jpg"):
        (folder / name).write_bytes(name.encode())
    before = media_identity(folder)
    (folder / ".DS_Store").write_text("not a frame")
    assert media_identity(folder.rename(tmp_path / "elsewhere")) == before
    folder = tmp_path / "elsewhere"
    seen = {before}
    for change in (
        lambda: (folder / "1.jpg").write_bytes(b"2.jpg"),
        lambda: (folder / "1.jpg").rename(folder / "3.jpg"),
        lambda: (folder / "2.jpg").unlink(),
    ):
        change()
        seen.add(media_identity(folder))
    assert len(seen) == 4


def test_what_cannot_be_read_has_an_identity(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert media_identity(tmp_path / "gone") == "missing"
    assert media_identity(tmp_path / "pipe") == "not a file"
    assert media_identity(tmp_path / "loop").startswith("unreadable")


def test_the_digest_is_of_ids_and_media_in_order(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.mp4").write_text("the same")

    def digest(*videos: str) -> str:
        return store(tmp_path).digest(videos)

    assert digest("a", "b") == store(tmp_path).digest(["a", "b"])
    assert len({digest("a", "b"), digest("b", "a"), digest("a"), digest("b"), digest("c"), digest()}) == 6
    before = digest("a", "b")
    (tmp_path / "b.mp4").unlink()
    assert digest("a", "b") != before


def test_a_clip_is_what_the_reader_reads(tmp_path: Path) -> None:
    write_clip(tmp_path / "a.mp4", 0)
    videos = store(tmp_path)
    assert videos.clip("a", Middle()).indices.tolist() == [3]
    with pytest.raises(VideoError, match=r"id 'x/b'") as error:
        videos.clip("x/b", Middle())
    assert error.value.reason == "missing"
    assert error.value.path == tmp_path / "x" / "b.mp4"
