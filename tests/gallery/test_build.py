"""Indexing: interrupted, repeated, shared out, with broken clips."""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covr_lab.gallery.build import claim, index
from covr_lab.gallery.gallery import Gallery
from covr_lab.ranking.retrieve import rank_gallery
from covr_lab.recipe import Machine
from covr_lab.retrievers.base import Ask
from covr_lab.types import Refused, SessionError
from covr_lab.video import Clip, FrameSampler, Middle, PyAVReader, Uniform, VideoError, VideoReader
from tests.gallery.toy import MeanColour, index_known, known, run, store, world, write_clip

ROOT = Path(__file__).resolve().parents[2]
FILES = ("failed.tsv", "features.safetensors", "manifest.json")


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight gallery videos and three references."""
    folder = tmp_path_factory.mktemp("media")
    world(folder)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def content(cache: Path) -> dict[str, bytes]:
    """All artifacts, byte for byte."""
    return {
        path.relative_to(cache).as_posix(): path.read_bytes()
        for path in sorted(cache.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.fixture(scope="module")
def whole(media: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a run writes that nobody interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    gallery, references = known(media)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COVR_CACHE", str(folder))
        run(MeanColour(), gallery, store(media, references))
    found = content(folder)
    assert sorted({Path(name).name for name in found}) == sorted(FILES)
    assert len(found) == 6
    return found


@pytest.fixture(scope="module")
def context() -> multiprocessing.context.ForkServerContext:
    """Starts processes without importing everything again, from a process without threads."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tests.gallery.toy"])
    return found


class Broken(VideoReader):
    """Reads all but the videos in ``bad``, whose stems it knows."""

    def __init__(self, bad: Sequence[str] = ()) -> None:
        super().__init__()
        self.bad = bad
        self.read_now: list[str] = []

    @property
    def fingerprint(self) -> str:
        return "broken"

    def probe(self, path: Path) -> None:  # type: ignore[override]
        raise NotImplementedError

    def read(self, path: Path, sampler: FrameSampler) -> Clip:
        self.read_now.append(path.stem)
        if path.stem in self.bad:
            raise VideoError(path, "timeout")
        frames = np.full((len(sampler.indices(9)), 4, 4, 3), int(path.stem), np.uint8)
        return Clip(frames, sampler.indices(9), None, 9, None, 1.0)


def numbers(count: int) -> list[str]:
    return [f"{number:03d}" for number in range(count)]


def test_rows_are_what_the_encoder_makes_of_each_clip(media: Path) -> None:
    gallery, references = known(media)
    videos, retriever = store(media, references), MeanColour()
    reports = run(retriever, gallery, videos, workers=2)
    assert reports is not None
    assert [(r.name, r.clips, r.encoded, dict(r.failed)) for r in reports] == [
        ("colour.gallery", 8, 8, {}),
        ("colour.anchors", 11, 11, {}),
    ]
    retriever.bind(Gallery.of(gallery, {}), videos)
    assert retriever.unusable_rows == ()
    for row, video in enumerate(gallery):
        (frames,) = retriever.encode_part("gallery", [videos.clip(video, Uniform(3))])
        expected = frames.double().mean(0)
        np.testing.assert_allclose(retriever.features[:, row], expected / expected.norm(), atol=1e-6)
    for video in [*gallery, *references]:
        (anchor,) = retriever.encode_part("anchors", [videos.clip(video, Middle())])
        assert torch.equal(retriever.artifacts["anchors"].row(video), anchor)
    asks = [Ask("", anchor) for anchor in references]
    assert all(len(ranking.rows) == 8 for ranking in rank_gallery(retriever, asks))
    with pytest.raises(SessionError, match="'new' is not in the index"):
        retriever.encode_queries([""], ["new"])
    assert set(retriever.addresses) == {"gallery", "anchors"}


@pytest.mark.parametrize(
    "options", [{"batch_size": 1}, {"batch_size": 64, "workers": 1}, {"batch_size": 5, "workers": 2}]
)
def test_batches_and_workers_change_no_byte(
    options: dict[str, int], media: Path, whole: dict[str, bytes], cache: Path
) -> None:
    gallery, references = known(media)
    run(MeanColour(), gallery[::-1], store(media, references[::-1]), **options)
    assert content(cache) == whole


def test_a_second_run_encodes_nothing(media: Path, whole: dict[str, bytes], cache: Path) -> None:
    gallery, references = known(media)
    run(MeanColour(), gallery, store(media, references))
    times = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    retriever = MeanColour()
    reports = run(retriever, gallery, store(media, references))
    assert reports is not None
    assert [report.encoded for report in reports] == [0, 0]
    assert "8 clips, 0 encoded now" in str(reports[0])
    assert retriever.seen == []
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == times


@pytest.mark.parametrize("shards", [1, 3, 6])
def test_a_killed_run_goes_on_where_it_stopped(
    shards: int, media: Path, whole: dict[str, bytes], cache: Path, context: multiprocessing.context.ForkServerContext
) -> None:
    """The seven batches of three are eight shards, as one has clips of both parts."""
    gallery, references = known(media)
    process = context.Process(target=index_known, args=(media, cache), kwargs={"pause": 0.1})
    process.start()
    try:
        end = time.monotonic() + 120
        while len(list(cache.rglob("part-*.safetensors"))) < shards:
            assert process.is_alive()
            assert time.monotonic() < end, "no shard in two minutes"
            time.sleep(0.002)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(Refused, match="another process is indexing these videos"):
            run(MeanColour(), gallery, store(media, references))
    finally:
        process.kill()
        process.join()
    assert process.exitcode == -signal.SIGKILL
    unbound = MeanColour()
    unbound.load()
    with pytest.raises(Refused, match="an unfinished index"):
        unbound.bind(Gallery.of(gallery, {}), store(media, references))
    (next(cache.rglob("shards")) / "part-0.123.tmp").write_bytes(b"half a file")
    retriever = MeanColour()
    reports = run(retriever, gallery, store(media, references))
    assert reports is not None
    assert sum(retriever.seen) == sum(report.encoded for report in reports) < 19
    assert content(cache) == whole


@pytest.mark.timeout(300)
def test_two_processes_equal_one(media: Path, whole: dict[str, bytes], cache: Path) -> None:
    command = [sys.executable, "-m", "tests.gallery.toy", str(media), str(cache), "--devices", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert content(cache) == whole
    assert done.stdout.count("colour.gallery: 8 clips, 8 encoded now") == 1  # one process reports


def test_more_processes_than_clips(tmp_path: Path) -> None:
    class OnePart(MeanColour):
        def __init__(self) -> None:
            super().__init__()
            del self.parts["anchors"]

    reports = run(OnePart(), ["000"], store(tmp_path, reader=Broken()), devices=4)
    assert reports is not None
    assert [report.encoded for report in reports] == [1]


def test_broken_clips_are_named_and_the_good_one_is_indexed(tmp_path: Path) -> None:
    folder = tmp_path / "media"
    good = write_clip(folder / "good.mp4", 0, frames=60)
    (folder / "empty.mp4").touch()
    (folder / "text.mp4").write_text("<html>403 Forbidden</html>")
    (folder / "cut.mp4").write_bytes(good.read_bytes()[: good.stat().st_size * 6 // 10])
    os.mkfifo(folder / "hangs.mp4")  # whoever opens it waits for ever
    ids = [*sorted(path.stem for path in folder.iterdir()), "gone"]
    videos, retriever = store(folder, reader=PyAVReader(timeout=2)), MeanColour()
    start = time.monotonic()
    reports = run(retriever, ids, videos, workers=1)
    assert time.monotonic() - start < 60
    assert reports is not None
    for report in reports:
        assert sorted(report.failed) == ["cut", "empty", "gone", "hangs", "text"]
        assert all(f"{video}.mp4" in reason for video, reason in report.failed.items())
        listed = (report.folder / "failed.tsv").read_text().splitlines()
        assert [line.split("\t")[0] for line in listed] == sorted(report.failed)
        assert "5 failed, see failed.tsv there: cut: video " in str(report)
    retriever.bind(Gallery.of(ids, {}), videos)
    rows = {video: row for row, video in enumerate(sorted(ids))}
    assert retriever.unusable_rows == tuple(row for video, row in rows.items() if video != "good")
    assert sorted(retriever.unusable) == sorted({*ids} - {"good"})
    assert rank_gallery(retriever, [Ask("", "good")])[0].rows.tolist() == [rows["good"]]
    with pytest.raises(SessionError, match="'cut' could not be read"):
        rank_gallery(retriever, [Ask("", "cut")])
    before = reports[0].folder
    write_clip(folder / "cut.mp4", 1)  # a repaired file is another artifact
    (folder / "hangs.mp4").unlink()
    reports = run(retriever, ids, store(folder))
    assert reports is not None
    assert reports[0].folder != before
    assert sorted(reports[0].failed) == ["empty", "gone", "hangs", "text"]


def test_failed_videos_are_read_again_on_request(tmp_path: Path, cache: Path) -> None:
    ids = numbers(7)
    run(MeanColour(), ids, store(tmp_path, reader=Broken()))
    whole = content(cache)
    for path in cache.rglob("*.safetensors"):
        path.unlink()
    contents = set()
    for bad, retry, expected in (
        (("002", "005"), False, ids),
        ((), False, []),
        (("005",), True, ["002", "005"]),
        ((), True, ["005"]),
    ):
        reader = Broken(bad)
        reports = run(MeanColour(), ids, store(tmp_path, reader=reader), retry=retry)
        assert reports is not None
        assert reader.read_now == expected * 2  # both parts
        retriever = MeanColour()
        retriever.load()
        retriever.bind(Gallery.of(ids, {}), store(tmp_path, reader=Broken()))
        contents.add(retriever.addresses["gallery"])
    assert [report.failed for report in reports] == [{}, {}]
    assert content(cache) == whole
    assert len(contents) == 3  # a run that began before cannot go on with other rows unnoticed


def test_a_gallery_without_a_readable_video_is_refused(tmp_path: Path) -> None:
    videos, retriever = store(tmp_path, reader=Broken(numbers(3))), MeanColour()
    assert run(retriever, numbers(3), videos) is not None
    with pytest.raises(Refused, match=r"none of 3 videos could be read.*data.videos_dir"):
        retriever.bind(Gallery.of(numbers(3), {}), videos)


def test_rows_that_are_no_numbers_are_failures(tmp_path: Path) -> None:
    class Overflowing(MeanColour):
        def encode_part(self, name: str, clips: Sequence[Clip]) -> list[Tensor]:
            rows = super().encode_part(name, clips)
            return [
                row / 0 if int(clip.frames[0, 0, 0, 0]) == 2 else row for row, clip in zip(rows, clips, strict=True)
            ]

    reports = run(Overflowing(), numbers(5), store(tmp_path, reader=Broken()))
    assert reports is not None
    assert [report.failed for report in reports] == [
        {"002": f"colour.{part} made NaN or infinity of it"} for part in ("gallery", "anchors")
    ]


def address(tmp_path: Path, **changes: object) -> dict[str, str]:
    """Addresses of a small gallery, with one thing that is different."""
    media = tmp_path / "media"
    if not media.exists():
        write_clip(media / "a.mp4", 0)
        write_clip(media / "b.mp4", 1)
    retriever = MeanColour(seed=int(str(changes.get("seed", 0))))
    retriever.load()
    retriever.parts = {"gallery": retriever.parts["gallery"], **changes.get("parts", {})}  # type: ignore[dict-item]
    ids = changes.get("ids", ["a", "b"])
    reader = changes.get("reader", PyAVReader())
    folder = changes.get("folder", media)
    found = retriever.locate(Gallery.of(ids, {}), store(folder, reader=reader))  # type: ignore[arg-type]
    return {name: place.digest for name, place in found.items()}


def test_what_can_change_a_vector_changes_the_address(tmp_path: Path) -> None:
    """Pitfall G2, from the settings to the folder."""
    from covr_lab.retrievers.video import Part

    first = address(tmp_path)["gallery"]
    seen = {
        first,
        address(tmp_path, seed=1)["gallery"],
        address(tmp_path, ids=["a"])["gallery"],
        address(tmp_path, parts={"gallery": Part("gallery", Uniform(4))})["gallery"],
        address(tmp_path, parts={"gallery": Part("gallery", Middle())})["gallery"],
        address(tmp_path, parts={"other": Part("gallery", Uniform(3))})["other"],
        address(tmp_path, reader=Broken())["gallery"],
        address(tmp_path, reader=PyAVReader(min_decodable=0.5))["gallery"],
    }
    copy = tmp_path / "copy"
    (tmp_path / "media").rename(copy)
    assert address(tmp_path, folder=copy, reader=PyAVReader(timeout=5))["gallery"] == first  # place and patience
    write_clip(copy / "b.mp4", 2)
    seen.add(address(tmp_path, folder=copy)["gallery"])
    (copy / "b.mp4").unlink()
    seen.add(address(tmp_path, folder=copy)["gallery"])
    assert len(seen) == 10


def test_a_disk_that_is_full_is_one_line(tmp_path: Path, cache: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))  # no file may grow beyond 64 bytes
    try:
        with pytest.raises(Refused, match="COVR_CACHE") as error:
            run(MeanColour(), numbers(3), store(tmp_path, reader=Broken()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert str(error.value).startswith(str(cache))
    assert "File too large" in str(error.value)
    assert "\n" not in str(error.value)
    assert run(MeanColour(), numbers(3), store(tmp_path, reader=Broken())) is not None


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "file"))
    with pytest.raises(Refused, match=rf"{tmp_path / 'file'}.*COVR_CACHE"):
        run(MeanColour(), numbers(3), store(tmp_path, reader=Broken()))


def test_a_worker_that_dies_is_one_line_and_loses_nothing(tmp_path: Path, cache: Path) -> None:
    class Killed(MeanColour):
        def prepare(self, name: str, clip: Clip) -> Clip:
            if int(clip.frames[0, 0, 0, 0]) == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            return clip

    with pytest.raises(Refused, match=r"a process that reads videos died .*--workers") as error:
        run(Killed(), numbers(6), store(tmp_path, reader=Broken()), batch_size=2, workers=1)
    assert "\n" not in str(error.value)
    assert len(list(cache.rglob("part-*.safetensors"))) >= 1
    reports = run(MeanColour(), numbers(6), store(tmp_path, reader=Broken()), batch_size=2)
    assert reports is not None
    assert reports[0].encoded < 6


def test_an_error_in_preparing_is_not_hidden(tmp_path: Path) -> None:
    class Faulty(MeanColour):
        def prepare(self, name: str, clip: Clip) -> Clip:
            raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        run(Faulty(), numbers(6), store(tmp_path, reader=Broken()), workers=1)


def test_what_cannot_be_indexed_is_refused(tmp_path: Path) -> None:
    machine = Machine(accelerator="cpu")
    gallery = Gallery.of(["a"], {})
    with pytest.raises(Refused, match="no retriever of this recipe sees videos"):
        index(nn.Linear(1, 1), gallery, store(tmp_path), machine)
    with pytest.raises(Refused, match=r"set data\.videos_dir"):
        index(MeanColour(), gallery, None, machine)
    retriever = MeanColour()
    retriever.load()
    with pytest.raises(Refused, match=r"MeanColour needs videos: set data\.videos_dir"):
        retriever.bind(gallery, None)
    with pytest.raises(Refused, match=r"no index for this recipe \(run tools/index.py RECIPE, or add --build\)"):
        retriever.bind(gallery, store(tmp_path))


def test_encoders_with_the_same_address_share_an_artifact(tmp_path: Path) -> None:
    system = nn.ModuleDict({"one": MeanColour(), "two": MeanColour()})
    videos = store(tmp_path, reader=Broken())
    reports = index(system, Gallery.of(numbers(3), {}), videos, Machine(accelerator="cpu"), workers=0)
    assert reports is not None
    assert [report.name for report in reports] == ["one.gallery", "one.anchors"]


def test_memory_does_not_grow_with_the_number_of_clips(tmp_path: Path) -> None:

    class Wide(MeanColour):
        def encode_part(self, name: str, clips: Sequence[Clip]) -> list[Tensor]:
            return [torch.zeros(1 << 18) + row.flatten()[0] for row in super().encode_part(name, clips)]  # 1 MiB

    run(Wide(), numbers(8), store(tmp_path, reader=Broken()))
    before = _private()
    reports = run(Wide(), numbers(100), store(tmp_path, reader=Broken()), batch_size=5)
    assert _private() - before < 50
    assert reports is not None
    assert (reports[0].folder / "features.safetensors").stat().st_size > 100 << 20


def _private() -> float:
    """MiB of this process that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def test_a_lock_is_let_go_of(tmp_path: Path) -> None:
    with claim(tmp_path), pytest.raises(Refused, match="another process"), claim(tmp_path):
        pass
    with claim(tmp_path):
        pass
