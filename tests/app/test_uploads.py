"""What people send: checked by decoding, kept apart by session, and a reference like any other."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

from covr_lab.app import uploads as uploads_module
from covr_lab.app.media import Media
from covr_lab.app.uploads import Upload, Uploads, admit, dismiss
from covr_lab.evaluate import prepare
from covr_lab.gallery.build import index
from covr_lab.gallery.gallery import Gallery
from covr_lab.recipe import Machine
from covr_lab.retrievers import BlipRetriever, DualEncoder, DualEncoderRetriever, QwenVLRetriever
from covr_lab.retrievers.blip import Blip
from covr_lab.retrievers.qwen_vl import QwenVLEmbedder
from covr_lab.retrievers.video import VideoRetriever
from covr_lab.types import Query, Refused, SessionError
from covr_lab.video import Clip, FrameSampler, PyAVReader, VideoReader
from tests.gallery.toy import clip_file, store, world, write_clip
from tests.tiny_blip import make_tiny_blip
from tests.tiny_clip import make_tiny_clip
from tests.tiny_vlm import make_tiny_vlm

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def clip(tmp_path: Path) -> bytes:
    return write_clip(tmp_path / "sent.mp4", 5).read_bytes()


def picture(path: Path, size: tuple[int, int] = (30, 20)) -> bytes:
    Image.new("RGB", size, "red").save(path)
    return path.read_bytes()


def files(uploads: Uploads) -> list[str]:
    return sorted(path.name for path in uploads.folder.rglob("*") if path.is_file())


def test_videos_and_pictures_are_kept_by_content(clip: bytes, tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "up")
    sent = [clip, picture(tmp_path / "x.png"), picture(tmp_path / "x.jpg"), picture(tmp_path / "x.webp"), clip]
    kept = [uploads.take("me", [data[:50], data[50:]]) for data in sent]
    assert [upload.path.suffix for upload in kept] == [".mp4", ".png", ".jpg", ".webp", ".mp4"]
    assert kept[0] == kept[4]
    for data, upload in zip(sent, kept, strict=True):
        assert upload.path.stem == hashlib.sha256(data).hexdigest()[:24]
        assert upload.path.read_bytes() == data
    assert len(files(uploads)) == 4


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"just text", "it is neither a video nor a picture that can be read here"),
        (b"<html><script>alert(1)</script>", "it is neither a video nor a picture that can be read here"),
        (b"#EXTM3U\nhttp://example.org/x.ts\n", "it is neither a video nor a picture that can be read here"),
        (b"\0\0\0\x1cftypheic" + bytes(99), "it is neither a video nor a picture that can be read here"),
        (b"\0\0\0\x18ftypisom" + bytes(99), "it is"),  # damaged, or no pictures: as FFmpeg sees it
        (b"\x89PNG\r\n\x1a\n" + bytes(99), "it is"),
    ],
)
def test_what_is_no_video_is_refused_in_a_sentence(data: bytes, why: str, tmp_path: Path) -> None:
    """Whatever it is called: no name is asked for."""
    uploads = Uploads(tmp_path / "up")
    with pytest.raises(Refused, match=f"^this file cannot be used: {why}"):
        uploads.take("me", [data])
    assert files(uploads) == []


def test_a_part_of_a_clip_is_refused(clip: bytes, tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "up")
    with pytest.raises(Refused, match="a part of it is missing: was the transfer cut off"):
        uploads.take("me", [clip[: clip.index(b"moov") - 99]])
    assert files(uploads) == []


def test_what_hangs_is_ended(clip: bytes, tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "up")
    uploads.reader.timeout = 1e-6
    with pytest.raises(Refused, match="it cannot be read within 20 seconds"):
        uploads.take("me", [clip])
    assert files(uploads) == []


def test_a_large_file_is_refused_while_it_arrives(tmp_path: Path) -> None:
    """Two gigabytes are never read: the first piece above the limit is the last one."""
    uploads, read = Uploads(tmp_path / "up", limit=1 << 20), []

    def endless() -> Iterator[bytes]:
        while True:
            read.append(1)
            yield bytes(1 << 18)

    with pytest.raises(Refused, match="the file is larger than 1 MB: cut it, or save it smaller"):
        uploads.take("me", endless())
    assert (len(read), files(uploads)) == (5, [])
    with pytest.raises(Refused, match="larger than 1 MB"):
        uploads.take("me", endless(), size=2 << 30)
    assert len(read) == 5


def test_an_aborted_transfer_leaves_nothing(clip: bytes, tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "up")
    with uploads.begin("me") as incoming:
        incoming.write(clip[:100])
        assert len(files(uploads)) == 1
    assert (files(uploads), uploads.held("me")) == ([], {})


def test_too_many_pixels_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads_module, "PICTURE_PIXELS", 599)
    with pytest.raises(Refused, match=r"30x20 pixels are too many \(599 are allowed\): save it smaller"):
        Uploads(tmp_path / "up").take("me", [picture(tmp_path / "x.png")])


def test_sessions_are_kept_apart_and_outlive_the_server(clip: bytes, tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "up")
    mine, yours = uploads.take("me", [clip]), uploads.take("you", [clip])
    assert mine.video != yours.video
    again = Uploads(tmp_path / "up")
    assert again.held("me") == {mine.video: mine.path}
    assert again.find("me", mine.video) == mine.path
    for video in (yours.video, "", "../x", mine.video[:-1]):
        with pytest.raises(SessionError, match=r"^there is no such video here$"):
            again.find("me", video)
    assert not any("me" in path.name or "you" in path.name for path in uploads.folder.iterdir())  # no token on disk
    assert again.forget("me") == [mine.video]
    assert (again.held("me"), again.held("you")) == ({}, {yours.video: yours.path})


def test_room_is_limited(clip: bytes, tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "up", each=1)
    uploads.take("me", [clip])
    with pytest.raises(Refused, match="you have 1 uploads already"):
        uploads.take("me", [clip])
    uploads.take("you", [clip])
    with pytest.raises(Refused, match="no room for uploads at the moment"):
        Uploads(tmp_path / "up", total=2 * len(clip)).take("them", [clip])


def test_what_a_kill_left_is_deleted(clip: bytes, tmp_path: Path) -> None:
    uploads = Uploads(tmp_path / "up")
    kept = uploads.take("me", [clip])
    uploads.begin("me").write(clip)
    (kept.path.parent / f"{'0' * 16}.mp4").write_bytes(clip)  # on trial
    assert len(files(uploads)) == 3
    uploads.sweep()
    assert files(uploads) == [kept.path.name]


def test_the_crowd_is_the_oldest_first(tmp_path: Path) -> None:
    """A session's own files where it has too many, those of all where all are too large."""
    sent = [picture(tmp_path / "x.png", (side, side)) for side in (10, 11, 12)]
    uploads = Uploads(tmp_path / "up", each=2)
    first, second, other = (uploads.take(who, [data]) for who, data in zip(("me", "me", "you"), sent, strict=True))
    for age, upload in enumerate((second, first, other)):
        os.utime(upload.path, (age, age))
    assert list(uploads.crowd("me").items()) == [(second.video, second.path), (first.video, first.path)]
    assert uploads.crowd("you") == {}
    uploads.total = sum(map(len, sent))
    assert list(uploads.crowd("you")) == [second.video, first.video, other.video]


def test_a_content_that_was_there_is_not_fresh(clip: bytes, tmp_path: Path) -> None:
    uploads, found = Uploads(tmp_path / "up"), []
    for who in ("me", "me", "you"):
        with uploads.begin(who) as incoming:
            incoming.write(clip)
            incoming.finish()
            found.append(incoming.fresh)
    assert found == [True, False, True]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[], VideoRetriever]]:
    folder = tmp_path_factory.mktemp("models")
    blip, clip = make_tiny_blip(folder / "blip"), make_tiny_clip(folder / "clip")
    vlm = make_tiny_vlm(folder / "vlm")
    return {
        "blip": lambda: BlipRetriever(blip=Blip(model=str(blip)), frames=3),
        "dual": lambda: DualEncoderRetriever(encoder=DualEncoder(model=str(clip)), frames=3),
        "qwen": lambda: QwenVLRetriever(embedder=QwenVLEmbedder(model=str(vlm)), frames=3, side=64),
    }


@pytest.mark.parametrize("name", ["blip", "dual", "qwen"])
def test_an_upload_is_a_reference_like_any_other(
    name: str, models: dict[str, Callable[[], VideoRetriever]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same vectors, to the bit, as those of a video of the data set; and unknown once it is dismissed."""
    gallery_ids, (reference, *_) = world(tmp_path / "v", 3, 1)
    gallery = Gallery.of(gallery_ids, {})

    def bound(references: list[str]) -> VideoRetriever:
        made, videos = models[name](), store(tmp_path / "v", references)
        index(nn.ModuleDict({"it": made}), gallery, videos, Machine("cpu"), workers=0)
        made.bind(gallery, videos)
        return made

    expected = bound([reference]).encode_queries(["make it red", ""], [reference, reference])
    retriever = bound([])
    system, guest = nn.ModuleDict({"it": retriever}), Upload("upload-1", clip_file(tmp_path / "v", reference))
    with pytest.raises(SessionError):
        retriever.encode_queries(["make it red"], [guest.video])
    held, alone, read = list[bool](), threading.Lock(), type(retriever._store.reader).read

    def reading(reader: VideoReader, path: Path, sampler: FrameSampler) -> Clip:
        held.append(alone.locked())
        return read(reader, path, sampler)

    with monkeypatch.context() as patch:
        patch.setattr(type(retriever._store.reader), "read", reading)
        admit(system, gallery, guest, alone=alone, reader=PyAVReader(min_decodable=0.5, timeout=1e-6))  # another's
    assert held == [False] * len(retriever.parts)  # while it is decoded, others search
    assert torch.equal(retriever.encode_queries(["make it red", ""], [guest.video, guest.video]), expected)
    with pytest.raises(SessionError, match="not read in time"):
        admit(system, gallery, guest, reader=PyAVReader(timeout=1e-6))
    dismiss(system, gallery, guest.video)
    with pytest.raises((SessionError, FileNotFoundError)):
        retriever.encode_queries(["now blue"], [guest.video])


def test_an_upload_has_a_caption_where_videos_have_one(tmp_path: Path) -> None:
    """On the demo world: a clip of the gallery, uploaded, finds what that clip finds."""
    overrides = ["--data.families", "2", "--trainer.accelerator", "cpu"]
    document, data, runner = prepare([ROOT / "recipes" / "recovr_demo.yaml"], overrides)
    index(runner.system, data.gallery, data.videos, Machine(**document["trainer"]), workers=0)
    system = runner.system
    system.load()
    system.bind(data.gallery, data.videos)
    known = data.gallery.ids[3]
    sent = Uploads().take("me", [data.media_path(known).read_bytes()])
    admit(system, system.gallery, sent)
    assert system.gallery.caption(sent.video) == system.gallery.caption(known) != ""
    assert data.user_gallery.caption(sent.video) == ""
    mine, theirs = system.start([Query("1", sent.video, "make it red"), Query("2", known, "make it red", False)])
    assert mine.result.rows.tolist() == theirs.result.rows.tolist()
    held = Uploads().held("me")
    assert Media(data.videos, held, [Uploads().place("me")]).poster(sent.video).read_bytes()[:2] == b"\xff\xd8"
    dismiss(system, system.gallery, sent.video)
    assert system.gallery.caption(sent.video) == ""
    broken = Upload("upload-2", tmp_path / "gone.mp4")
    with pytest.raises(SessionError, match="missing"):
        admit(system, system.gallery, broken)
    assert data.videos.path(sent.video) != sent.path


def test_a_system_that_sees_nothing_says_so(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="searches without seeing videos"):
        admit(nn.ModuleDict(), Gallery.of(["a"], {}), Upload("upload-1", tmp_path))
