"""What a browser gets: known videos and no other file, in parts, in a format that it plays."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from covr_lab.app import media as media_module
from covr_lab.app.formats import HEAD, SUFFIXES, is_played, sniff
from covr_lab.app.media import Media, MediaApp, Unsatisfiable, make_preview, ranges
from covr_lab.data import VideoFolder
from covr_lab.gallery.thumbnails import thumbnail
from covr_lab.gallery.videos import VideoStore
from covr_lab.types import SessionError
from covr_lab.video import Probe, PyAVReader
from tests.gallery.toy import write_clip

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write(path: Path, codec: str, pixels: str = "yuv420p", frames: int = 12, rate: int = 6) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = 66, 50, pixels
        for shade in np.linspace(0, 255, frames).astype(np.uint8):
            picture = np.full((50, 66, 3), shade, dtype=np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        file.mux(stream.encode())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    at = tmp_path / "v"
    write_clip(at / "plays.mp4", 0)
    write(at / "sub" / "old.avi", "mpeg4")
    Image.new("RGB", (400, 100), "red").save(at / "pic.png")
    (tmp_path / "secret.mp4").write_text("secret")
    return at


def loaded(folder: Path) -> tuple[Media, dict[str, str]]:
    """The media, and name -> id."""
    data = VideoFolder(folder=str(folder))
    return Media.of(data), {name: video for video, name in data.names.items()}


def get(app: MediaApp, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One request as a server passes it on."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(dict(message))

    asked = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": f"/media{path}", "root_path": "/media", "headers": asked}
    asyncio.run(app(scope, asyncio.Event().wait, send))  # nobody hangs up
    assert [message["type"] for message in sent] == ["http.response.start", *["http.response.body"] * (len(sent) - 1)]
    assert not sent[-1].get("more_body")
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answered, b"".join(message.get("body", b"") for message in sent[1:])


def reference(header: str, size: int) -> Sequence[int] | None:
    """RFC 9110, section 14.1.2, read byte by byte; ``None`` where there is nothing to send."""
    first, last = header.removeprefix("bytes=").split("-")
    if not first:
        return range(size)[max(0, size - int(last)) :] or None
    return [at for at in range(size) if int(first) <= at and (not last or at <= int(last))] or None


@given(st.integers(0, 30), st.integers(0, 40) | st.none(), st.integers(0, 40) | st.none())
def test_ranges_are_those_of_the_rfc(size: int, first: int | None, last: int | None) -> None:
    header = f"bytes={'' if first is None else first}-{'' if last is None else last}"
    if (first is None and last is None) or (first is not None and last is not None and last < first):
        assert ranges(header, size) is None  # malformed: ignored
        return
    expected = reference(header, size)
    try:
        found = ranges(header, size)
    except Unsatisfiable:
        assert expected is None
    else:
        assert found is not None
        assert list(range(*found)) == list(expected or ())


@pytest.mark.parametrize("header", [None, "", "bytes=", "bytes=-", "bytes=a-b", "items=0-1", "bytes=0-1,3-4", "0-1"])
def test_other_range_headers_mean_the_whole(header: str | None) -> None:
    assert ranges(header, 10) is None


@pytest.mark.parametrize("kind", SUFFIXES)
def test_kinds_are_told_by_their_bytes(kind: str, tmp_path: Path) -> None:
    """As FFmpeg and Pillow write them."""
    path = tmp_path / f"x{SUFFIXES[kind]}"
    if kind.startswith("image/"):
        Image.new("RGB", (16, 16), "red").save(path)
    else:
        codecs = {".webm": "libvpx", ".ogv": "libtheora", ".flv": "flv", ".mpg": "mpeg1video", ".asf": "wmv2"}
        try:
            write(path, codecs.get(path.suffix, "mpeg4"), rate=25)
        except (av.error.FFmpegError, ValueError) as error:
            pytest.skip(f"this FFmpeg does not write it: {error}")
    assert sniff(path.read_bytes()[:HEAD]) == kind


@pytest.mark.parametrize(
    "head", [b"", b"hello", b"<!doctype html>", b"#EXTM3U", b"\0\0\0\x1cftypheic", b"RIFF0000WAVE", b"GG", b"%PDF-1.7"]
)
def test_other_files_are_no_kind(head: bytes) -> None:
    assert sniff(head) == ""


def test_only_known_ids_lead_to_a_file(folder: Path, tmp_path: Path) -> None:
    media, ids = loaded(folder)
    assert media.find(ids["sub/old.avi"]) == folder / "sub" / "old.avi"
    for video in (
        "",
        "plays.mp4",
        "../secret.mp4",
        str(tmp_path / "secret.mp4"),
        "..%2fsecret.mp4",
        "\0",
        ids["pic.png"][:-1],
    ):
        with pytest.raises(SessionError, match=r"^there is no such video here$"):
            media.find(video)
    (folder / "plays.mp4").unlink()
    with pytest.raises(SessionError, match="is gone: index the folder again"):
        media.find(ids["plays.mp4"])
    (folder / "plays.mp4").symlink_to(tmp_path / "secret.mp4")  # after the folder was looked at
    (folder / "sub").rename(tmp_path / "sub")
    (folder / "sub").symlink_to(tmp_path / "sub")
    for name in ("plays.mp4", "sub/old.avi"):
        for ask in (media.find, media.playable, media.poster):
            with pytest.raises(SessionError, match="leads out of the folder"):
                ask(ids[name])


def test_the_application(folder: Path) -> None:
    media, ids = loaded(folder)
    app, video, data = MediaApp(lambda scope: media), ids["plays.mp4"], (folder / "plays.mp4").read_bytes()
    status, headers, body = get(app, f"/video/{video}")
    assert (status, body, headers["content-type"], headers["accept-ranges"]) == (200, data, "video/mp4", "bytes")
    assert (headers["content-length"], headers["x-content-type-options"]) == (str(len(data)), "nosniff")
    assert "sandbox" in headers["content-security-policy"]
    status, headers, body = get(app, f"/video/{video}", range="bytes=100-199")
    assert (status, body, headers["content-range"]) == (206, data[100:200], f"bytes 100-199/{len(data)}")
    assert get(app, f"/video/{video}", range="bytes=-10")[2] == data[-10:]
    status, headers, _ = get(app, f"/video/{video}", range=f"bytes={len(data)}-")
    assert (status, headers["content-range"]) == (416, f"bytes */{len(data)}")
    tag = get(app, f"/video/{video}")[1]["etag"]
    assert get(app, f"/video/{video}", range="bytes=0-0", if_range=tag)[0] == 206
    assert get(app, f"/video/{video}", range="bytes=0-0", if_range='"other"')[0] == 200
    assert get(app, f"/video/{video}", if_none_match=tag)[0] == 304
    status, headers, body = get(app, f"/video/{video}", "HEAD")
    assert (status, headers["content-length"], body) == (200, str(len(data)), b"")
    assert get(app, f"/video/{video}", "POST")[0] == 405
    status, headers, body = get(app, f"/poster/{ids['pic.png']}")
    assert (status, headers["content-type"]) == (200, "image/jpeg")
    for path in (f"/other/{video}", "/video/../../etc/passwd", "/video/", "/", f"/video/{video}/x"):
        assert get(app, path)[::2] == (404, b"there is no such video here")


def test_a_large_file_is_sent_in_pieces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    media, ids = loaded(folder)
    monkeypatch.setattr(media_module, "CHUNK", 7)
    data = (folder / "plays.mp4").read_bytes()
    app = MediaApp(lambda scope: media)
    assert get(app, f"/video/{ids['plays.mp4']}")[2] == data
    assert get(app, f"/video/{ids['plays.mp4']}", range="bytes=5-30")[2] == data[5:31]


def test_nothing_is_read_for_a_client_that_hangs_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    media, ids = loaded(folder)
    monkeypatch.setattr(media_module, "CHUNK", 7)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.disconnect" if len(sent) else "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": f"/video/{ids['plays.mp4']}", "headers": []}
    asyncio.run(MediaApp(lambda _: media)(scope, receive, send))
    assert sent[0]["type"] == "http.response.start"
    assert len(sent) < 10 < (folder / "plays.mp4").stat().st_size / 7


def looked_at(path: Path) -> tuple[Probe, str]:
    with av.open(str(path)) as file:
        return PyAVReader().probe(path), str(file.streams.video[0].pix_fmt)


@pytest.mark.parametrize(
    ("name", "codec", "pixels"),
    [
        ("x.avi", "mpeg4", "yuv420p"),
        ("x.mp4", "mpeg4", "yuv420p"),
        ("x.mp4", "libx264", "yuv444p"),
        ("x.mp4", "libx265", "yuv420p"),
        ("x.mkv", "libx264", "yuv420p"),
        ("x.mov", "libx264", "yuv420p"),
        ("x.gif", "gif", "rgb8"),
    ],
)
def test_what_browsers_do_not_play_gets_a_preview(name: str, codec: str, pixels: str, tmp_path: Path) -> None:
    """As long as the video, with its frames."""
    source, target = write(tmp_path / name, codec, pixels), tmp_path / "preview.mp4"
    assert make_preview(source, target)
    probe, found = looked_at(target)
    assert (probe.codec, found, probe.total, probe.width, probe.height) == ("h264", "yuv420p", 12, 66, 50)
    assert probe.seconds == pytest.approx(2.0, abs=0.2)
    assert is_played(sniff(target.read_bytes()[:HEAD]), probe.codec, found)
    assert not make_preview(target, tmp_path / "again.mp4")
    assert target.read_bytes().index(b"moov") < target.read_bytes().index(b"mdat")  # a browser starts at once


@pytest.mark.parametrize(("name", "codec"), [("x.mp4", "libx264"), ("x.webm", "libvpx"), ("x.webm", "libvpx-vp9")])
def test_what_browsers_play_is_left_alone(name: str, codec: str, tmp_path: Path) -> None:
    assert not make_preview(write(tmp_path / name, codec), tmp_path / "preview.mp4")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [name]


def test_a_folder_of_frames_becomes_a_video(tmp_path: Path) -> None:
    for number in range(5):
        path = tmp_path / "frames" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (1201, 300), "red").save(path)
    assert make_preview(tmp_path / "frames", tmp_path / "preview.mp4")
    probe, _ = looked_at(tmp_path / "preview.mp4")
    assert (probe.total, probe.width, probe.height) == (5, 960, 240)


def test_the_process_of_previews_starts_fast() -> None:
    """No torch in it: it would cost seconds a video, and does not fit into the memory that it may map."""
    code = "import sys, covr_lab.app.preview; print([name for name in ('torch', 'lightning') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_a_preview_is_made_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask for it at once; the next server finds it."""
    media, ids = loaded(folder)
    made: list[Path] = []

    def counted(source: Path, target: Path) -> bool:
        made.append(source)
        return make_preview(source, target)

    monkeypatch.setattr(media_module, "make_preview", counted)
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(media.playable, [ids["sub/old.avi"]] * 8))
    assert (len(paths), len(made)) == (1, 1)
    assert loaded(folder)[0].ready(ids["sub/old.avi"]) == paths.pop()
    assert media.playable(ids["plays.mp4"]) == folder / "plays.mp4"
    assert media.playable(ids["pic.png"]) == folder / "pic.png"
    assert len(made) == 2  # a picture needs no look


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    """And leaves nothing, no process either."""
    source = write(tmp_path / "x.avi", "mpeg4", frames=2000)
    begun = time.monotonic()
    with pytest.raises(SessionError, match=r"no preview of this video was made within 0\.2 seconds"):
        make_preview(source, tmp_path / "preview.mp4", seconds=0.2)
    assert time.monotonic() - begun < 5
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["x.avi"]


def test_a_video_without_preview_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not tried again and again."""
    media, ids = loaded(folder)
    (folder / "sub" / "old.avi").write_text("<html>")
    tries: list[Path] = []

    def counted(source: Path, target: Path) -> bool:
        tries.append(source)
        return make_preview(source, target)

    monkeypatch.setattr(media_module, "make_preview", counted)
    for _ in range(3):
        status, _, body = get(MediaApp(lambda scope: media), f"/video/{ids['sub/old.avi']}")
        assert (status, body[:43]) == (404, b"no preview of this video can be made (not_a")
    assert len(tries) == 1
    read: list[str] = []

    def counted_picture(videos: VideoStore, video: str) -> Path:
        read.append(video)
        return thumbnail(videos, video)

    monkeypatch.setattr(media_module, "thumbnail", counted_picture)
    for _ in range(3):
        status, _, said = get(MediaApp(lambda scope: media), f"/poster/{ids['sub/old.avi']}")
        assert (status, said) == (404, b"this video cannot be shown (not a video)")
    assert len(read) == 1
    assert str(folder) not in body.decode()
