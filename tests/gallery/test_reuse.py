"""Rows of earlier galleries: taken over where they are proven to be the same, encoded anew everywhere else."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.reuse import is_superseded
from covr_lab.gallery.store import FEATURES
from covr_lab.types import SessionError
from covr_lab.video import Clip, PyAVReader
from tests.gallery.toy import MeanColour, clip_file, run, store, world, write_clip


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def media(tmp_path: Path) -> Path:
    world(tmp_path / "media", 8, 0)
    return tmp_path / "media"


def index(media: Path, ids: Sequence[str], encoder: MeanColour | None = None, **options: Any) -> tuple[int, list[int]]:
    """Clips that went through the encoder, and the rows that each part took over."""
    encoder = encoder or MeanColour()
    reports = run(encoder, ids, store(media, reader=options.pop("reader", None)), **options)
    assert reports is not None
    return sum(encoder.seen), [report.taken for report in reports]


def ids_of(media: Path) -> list[str]:
    return sorted(path.relative_to(media).as_posix().removesuffix(".mp4") for path in media.rglob("*.mp4"))


def rows(media: Path, ids: Sequence[str]) -> dict[str, Tensor]:
    encoder = MeanColour()
    encoder.load()
    encoder.open(Gallery.of(ids, {}), store(media))
    return {name: artifact.rows(ids) for name, artifact in encoder.artifacts.items()}


def test_a_gallery_that_grew_encodes_what_is_new(media: Path, cache: Path) -> None:
    """And has the bytes of one that was encoded at once."""
    ids = ids_of(media)
    assert index(media, ids[:6]) == (12, [0, 0])
    assert index(media, ids) == (4, [6, 6])
    found = rows(media, ids)
    shutil.rmtree(cache)
    assert index(media, ids) == (16, [0, 0])
    fresh = rows(media, ids)
    assert all(torch.equal(found[name], fresh[name]) for name in ("gallery", "anchors"))


def test_a_gallery_that_shrank_encodes_nothing(media: Path) -> None:
    ids = ids_of(media)
    index(media, ids)
    assert index(media, ids[2:5]) == (0, [3, 3])
    assert index(media, ids[2:5]) == (0, [0, 0])  # it is there now


def test_other_vectors_are_never_taken(media: Path) -> None:
    """Another encoder, another reader, and a data set in which one clip has changed: its proof covers all or none."""
    ids = ids_of(media)
    index(media, ids[:6])
    assert index(media, ids, MeanColour(seed=1))[1] == [0, 0]
    assert index(media, ids, reader=PyAVReader(min_decodable=0.5))[1] == [0, 0]
    write_clip(media / f"{ids[0]}.mp4", 99)
    assert index(media, ids) == (16, [0, 0])


def test_ids_alone_prove_nothing(media: Path, tmp_path: Path) -> None:
    """Two folders with equal names and other clips."""
    ids = ids_of(media)
    index(media, ids[:6])
    for number, video in enumerate(ids):
        write_clip(tmp_path / "other" / f"{video}.mp4", 50 + number)
    assert index(tmp_path / "other", ids) == (16, [0, 0])


def test_failures_are_tried_again(media: Path) -> None:
    ids = ids_of(media)
    (media / f"{ids[1]}.mp4").write_text("<html>")
    index(media, ids[:6])
    encoder = MeanColour()
    reports = run(encoder, ids, store(media))
    assert reports is not None
    assert [(report.taken, report.encoded, list(report.failed)) for report in reports] == [(5, 3, [ids[1]])] * 2


def test_a_damaged_row_is_encoded_again(media: Path, caplog: pytest.LogCaptureFixture) -> None:
    ids = ids_of(media)
    reports = run(MeanColour(), ids[:6], store(media))
    assert reports is not None
    expected = rows(media, ids[:6])
    for report in reports:
        file = report.folder / FEATURES
        data = bytearray(file.read_bytes())
        data[-1] ^= 1  # the row of the last video
        file.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        encoded, taken = index(media, ids)
    assert (encoded, taken) == (16, [0, 0])
    assert f"another row for video '{ids[5]}'" in caplog.text
    assert torch.equal(rows(media, ids)["gallery"][:6], expected["gallery"])


class Dies(MeanColour):
    """Interrupted in its third batch."""

    def encode_part(self, name: str, clips: Sequence[Clip]) -> list[Tensor]:
        if len(self.seen) == 2:
            raise KeyboardInterrupt
        return super().encode_part(name, clips)


def test_an_interrupted_index_serves_another_gallery(media: Path) -> None:
    ids = ids_of(media)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        run(Dies(), ids[:7], store(media))
    assert index(media, ids) == (10, [6, 0])


def test_only_relatives_are_superseded(media: Path) -> None:
    ids = ids_of(media)
    old, new = run(MeanColour(), ids[:6], store(media)), run(MeanColour(), ids, store(media))
    assert old is not None
    assert new is not None
    assert is_superseded(old[0].folder, new[0].folder)
    assert not is_superseded(old[0].folder, new[1].folder)
    assert not is_superseded(new[0].folder, new[0].folder)
    assert not is_superseded(media, new[0].folder)


def test_a_guest_is_encoded_in_memory(media: Path, cache: Path) -> None:
    """It has the row that an index would give it, changes no file, and is unknown once it is dismissed."""
    ids = ids_of(media)
    run(MeanColour(), ids, store(media))
    expected = rows(media, ids)
    run(MeanColour(), ids[:-1], store(media))
    encoder = MeanColour()
    encoder.load()
    encoder.bind(Gallery.of(ids[:-1], {}), store(media))
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    digests = encoder.addresses
    encoder.admit("guest", clip_file(media, ids[-1]))
    assert torch.equal(encoder.encode_videos(["guest"]), encoder.pool(expected["gallery"][-1:], ids[-1:]))
    assert torch.equal(encoder.encode_queries([""], ["guest"]), expected["anchors"][-1:])
    assert ({path: path.stat().st_mtime_ns for path in cache.rglob("*")}, encoder.addresses) == (before, digests)
    encoder.dismiss("guest")
    with pytest.raises(SessionError, match="'guest' is not in the index"):
        encoder.encode_videos(["guest"])
    (media / "bad.mp4").write_text("no video")
    with pytest.raises(SessionError, match=r"bad\.mp4 is no video"):
        encoder.admit("bad", media / "bad.mp4")
