"""A person's own folder: what is found in it, what is read again, and what an index makes of it."""

from __future__ import annotations

import hashlib
import os
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from covr_lab.data import VideoFolder, catalogue
from covr_lab.data.tree import shown, walk
from covr_lab.evaluate import prepare
from covr_lab.gallery.thumbnails import thumbnail
from covr_lab.types import Query, Refused, SessionError
from covr_lab.video import Probe, PyAVReader

Video = Callable[..., Path]
ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes" / "my_videos.yaml"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def picture(path: Path, colour: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (64, 48), colour).save(path)
    return path


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:24]


def tool(name: str, *arguments: str) -> int:
    main: Callable[[list[str]], int] = runpy.run_path(str(ROOT / "tools" / f"{name}.py"))["main"]
    return main([str(RECIPE), *arguments, "--trainer.accelerator", "cpu"])


@pytest.fixture
def odd(tmp_path: Path, make_video: Video) -> Path:
    """A folder with everything that people's folders hold, and more."""
    folder = tmp_path / "odd"
    make_video(folder / "a.mp4")
    shutil.copy(folder / "a.mp4", folder / "the same.mp4")
    make_video(folder / "Urlaub ö 日本" / "b `$(x)` <i>.webm", frames=9)
    make_video(folder / "c.mp4", frames=8).rename(os.fsdecode(os.fsencode(folder) + b"/c\xff\n.MP4"))
    picture(folder / "pic.png", "red")
    make_video(folder / ".hidden" / "d.mp4", frames=7)
    (folder / "notes.txt").write_text("words")
    (folder / "text.mp4").write_text("hello")
    (folder / "empty.mov").touch()
    large = make_video(folder / ".hidden" / "large.mp4", frames=30, size=(320, 160))
    (folder / "cut.mp4").write_bytes(large.read_bytes()[:900])
    os.mkfifo(folder / "pipe.mp4")
    make_video(tmp_path / "outside" / "e.mp4", frames=5)
    (folder / "loop").symlink_to(folder)
    (folder / "out").symlink_to(tmp_path / "outside")
    (folder / "out.mp4").symlink_to(tmp_path / "outside" / "e.mp4")
    (folder / "in.mp4").symlink_to("a.mp4")
    (folder / "self.mp4").symlink_to("self.mp4")
    (folder / "gone.mp4").symlink_to("nowhere.mp4")
    return folder


def test_what_a_folder_holds(odd: Path) -> None:
    """Ids are what coreutils' sha256sum prints; everything else is named with its reason."""
    data = VideoFolder(folder=str(odd))
    data.setup("predict")
    assert {frozenset(names) for names in data.stock.paths.values()} == {
        frozenset({"a.mp4", "in.mp4", "the same.mp4"}),
        frozenset({"Urlaub ö 日本/b `$(x)` <i>.webm"}),
        frozenset({"c\udcff\n.MP4"}),
        frozenset({"pic.png"}),
    }
    assert data.gallery.ids == tuple(sorted(data.names))
    for video in data.gallery.ids:
        assert sha(data.media_path(video)) == video
    assert sorted(data.names.values()) == ["Urlaub ö 日本/b `$(x)` <i>.webm", "a.mp4", "c� .MP4", "pic.png"]
    large = (odd / ".hidden" / "large.mp4").read_bytes()
    promised = large.index(b"moov") - 4
    assert {name: why.split(":")[0] for name, why in data.unreadable.items()} == {
        "cut.mp4": f"video cut.mp4 is truncated (900 of at least {promised} bytes are there, its index (moov) is not)",
        "empty.mov": "video empty.mov is empty",
        "text.mp4": "video text.mp4 is no video (it starts with 'hello')",
    }
    assert {name: why.split(" (")[0] for name, why in data.stock.tree.left_out.items()} == {
        ".hidden": "is hidden",
        "notes.txt": "is neither a video nor a picture by its name",
        "pipe.mp4": "is neither a file nor a folder",
        "loop": "is a link to a folder that is looked at in its own place",
        "out": "is a link that leads out of the folder",
        "out.mp4": "is a link that leads out of the folder",
        "self.mp4": "is a link to nothing, or cannot be opened",
        "gone.mp4": "is a link to nothing, or cannot be opened",
    }
    with pytest.raises(SessionError, match=r"'../a.mp4' is not in .*odd \(it was removed or changed: index again\)"):
        data.media_path("../a.mp4")


class Counting(PyAVReader):
    """Counts what is opened."""

    probed = 0

    def probe(self, path: Path) -> Probe:
        self.probed += 1
        return super().probe(path)


def test_only_what_changed_is_read(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    content_id = catalogue.content_id

    def counted(path: Path) -> str:
        read.append(path.name)
        return content_id(path)

    monkeypatch.setattr(catalogue, "content_id", counted)
    reader = Counting()

    def scan() -> tuple[list[str], int]:
        read.clear()
        reader.probed = 0
        VideoFolder(folder=str(odd), reader=reader).setup("predict")
        return sorted(read), reader.probed

    assert len(scan()[0]) == 8  # three names of a.mp4 are three files to the system
    assert scan() == ([], 0)
    picture(odd / "pic.png", "blue")
    (odd / "a.mp4").rename(odd / "z.mp4")
    (odd / "in.mp4").unlink()
    assert scan() == (["pic.png", "z.mp4"], 1)
    os.utime(odd / "z.mp4", ns=(0, 0))
    assert scan() == (["z.mp4"], 0)


def test_a_file_that_is_still_written_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, content_id = picture(tmp_path / "v" / "x.png", "red"), catalogue.content_id
    picture(tmp_path / "v" / "y.png", "blue")

    def growing(path: Path) -> str:
        found = content_id(path)
        if path.name == "x.png":
            path.write_bytes(path.read_bytes() + b"more")
        return found

    monkeypatch.setattr(catalogue, "content_id", growing)
    data = VideoFolder(folder=str(file.parent))
    assert data.unreadable == {"x.png": "video x.png changes while it is read: index again when it is finished"}
    assert list(data.names.values()) == ["y.png"]


def test_a_damaged_catalogue_is_one_line(tmp_path: Path, cache: Path) -> None:
    picture(tmp_path / "v" / "x.png", "red")
    cache.mkdir()
    (cache / "library.sqlite").write_text("no database" * 100)
    with pytest.raises(Refused, match=r"library.sqlite: file is not a database \(delete it, or set COVR_CACHE"):
        VideoFolder(folder=str(tmp_path / "v")).setup("predict")


def test_thousands_of_files_in_deep_folders(tmp_path: Path) -> None:
    """The same files as os.walk finds."""
    for number in range(3000):
        folder = tmp_path / "v" / f"{number % 7}" / "/".join("x" * (number % 40))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.mp4").touch()
    found = walk(tmp_path / "v")
    expected = {os.path.relpath(Path(at, name), tmp_path / "v") for at, _, names in os.walk(tmp_path) for name in names}
    assert (set(found.files), len(found.files), found.left_out) == (expected, 3000, {})


@given(st.binary(max_size=20))
def test_names_can_always_be_sent(name: bytes) -> None:
    text = shown(os.fsdecode(name))
    assert text.encode("utf-8").decode() == text
    assert not any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in text)


def test_the_index_follows_the_folder(
    odd: Path, tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two new files are two encodings; a renamed folder is none; what was replaced is deleted."""
    options = ["--workers", "0", "--data.folder", str(odd)]
    assert tool("index", *options) == 3
    said = capsys.readouterr().out
    assert f"{odd}: 4 new, 0 removed, 0 moved, 0 unchanged, 3 unreadable\n" in said
    assert "note: the packaged BLIP has learnt coloured shapes" in said
    assert said.count("4 clips, 4 encoded now") == 2
    first = set((cache / "galleries").iterdir())
    for file in ("text.mp4", "empty.mov", "cut.mp4"):
        (odd / file).unlink()
    picture(odd / "new" / "1.png", "green")
    picture(odd / "new" / "2.png", "blue")
    assert tool("index", *options) == 0
    said = capsys.readouterr().out
    assert ": 2 new, 0 removed, 0 moved, 4 unchanged, 0 unreadable\n" in said
    assert said.count("6 clips, 2 encoded now") == 2
    assert said.count("4 taken over") == 2
    assert not first & set((cache / "galleries").iterdir())
    (odd / "new").rename(odd / "old")
    (odd / "pic.png").unlink()
    assert tool("index", *options) == 0
    said = capsys.readouterr().out
    assert ": 0 new, 1 removed, 2 moved, 3 unchanged, 0 unreadable\n" in said
    assert "  moved: new/1.png -> old/1.png\n" in said
    assert "  removed: pic.png\n" in said
    assert said.count("5 clips, 0 encoded now, 5 taken over") == 2
    odd.rename(tmp_path / "elsewhere")
    assert tool("index", "--data.folder", str(tmp_path / "elsewhere")) == 0
    assert "everything was encoded before: nothing to do" in capsys.readouterr().out


def test_the_recipe_searches_it(odd: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Words, and a video with an edit; an evaluation is refused in one line."""
    overrides = ["--data.folder", str(odd)]
    tool("index", *overrides, "--workers", "0")
    _, data, runner = prepare([RECIPE], overrides)
    runner.system.load()
    runner.system.bind(data.gallery, data.videos)
    by_words, by_video = runner.system.start([Query("1", None, "a red star"), Query("2", data.gallery.ids[0], "bluer")])
    assert sorted(by_words.result.rows) == [0, 1, 2, 3]
    assert sorted(by_video.result.rows) == [1, 2, 3]
    capsys.readouterr()
    for folder, why in (
        (odd, "VideoFolder has no annotated queries to evaluate: search it with tools/app.py or tools/chat.py"),
        (odd / "none", f"{odd / 'none'}: no such folder (check data.folder)"),
        (odd / ".hidden" / "..", "VideoFolder has no annotated queries"),
    ):
        assert tool("eval", "--data.folder", str(folder)) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {why}")


def test_a_folder_without_videos_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v").mkdir()
    with pytest.raises(ValueError, match=r"v: no video or picture that can be read \(check data.folder\)"):
        VideoFolder(folder=str(tmp_path / "v")).setup("predict")
    (tmp_path / "v" / "x.mp4").touch()
    with pytest.raises(ValueError, match=r"the first of 1 other entries: video x.mp4 is empty \(check data.folder\)"):
        VideoFolder(folder=str(tmp_path / "v")).setup("predict")


def test_a_thumbnail_shows_the_middle(tmp_path: Path, make_video: Video) -> None:
    """The clip goes from black to white in 11 shades."""
    make_video(tmp_path / "v" / "x.mp4", frames=11, size=(640, 320))
    data = VideoFolder(folder=str(tmp_path / "v"))
    (video,) = data.gallery.ids
    with Image.open(thumbnail(data.videos, video)) as image:
        assert image.size == (320, 160)
        assert abs(np.asarray(image).mean() - 127) < 6
    facts = data.stock.facts[video]
    assert (facts.total, facts.seconds) == (11, pytest.approx(2.2))


def test_real_clips() -> None:
    """All 39 public test clips can be searched; the other files of the folder are named."""
    if not (folder := os.environ.get("COVR_VIDEOS")):
        pytest.skip("set COVR_VIDEOS to the folder of real clips")
    data = VideoFolder(folder=folder)
    assert len(data.gallery) == 39
    assert (dict(data.unreadable), sorted(data.stock.tree.left_out)) == ({}, ["README.md", "manifest.csv"])
    assert data.videos.digest(data.gallery.ids) == VideoFolder(folder=folder).videos.digest(data.gallery.ids)
    assert all(probe.total for probe in data.stock.facts.values())
