"""Views: which frames a prompt shows. The toy embedder sees the mean colour of a frame, so a cut is all there is."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import normalize

from covr_lab.engines.request import Media, Request
from covr_lab.functional.novelty import novelty, probe_positions, select
from covr_lab.gallery.build import Indexed, index
from covr_lab.gallery.cache import VectorCache
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.recipe import Machine
from covr_lab.retrievers.blip import Blip
from covr_lab.types import Refused, SessionError
from covr_lab.video import All, Clip, PyAVReader, Uniform
from covr_lab.video.base import Frames
from covr_lab.video.overlay import fit, stamped, stamps
from covr_lab.video.samplers import Listed, Probes
from covr_lab.views import BlipFrameEmbedder, FrameEmbedder, FrameView, NoveltyView, UniformView

IDS = ["cut", "dark", "folder", "gone", "one", "short", "still"]


class Colours(FrameEmbedder):
    """Mean colour of each frame, and a constant."""

    def __init__(self, *, name: str = "colours", lost: str = "", blind: bool = False) -> None:
        super().__init__()
        self.name, self.lost, self.blind = name, lost, blind
        self.loads, self.shapes = 0, list[tuple[int, ...]]()

    @property
    def fingerprint(self) -> str:
        assert self.loads, "the fingerprint of weights that are not loaded"
        return self.name

    def load(self) -> None:
        self.loads += 1

    def embed_frames(self, frames: Frames) -> Tensor:
        assert frames.dtype == np.uint8
        self.shapes.append(frames.shape)
        if self.lost:
            raise SessionError(self.lost)
        means = torch.from_numpy(frames).float().mean((1, 2)) / 255
        return normalize(torch.cat([means, torch.full((len(means), 1), 0.1)], 1), dim=1) * (not self.blind)


def write(path: Path, colours: list[tuple[int, int, int]], fps: int = 10, width: int = 320, height: int = 160) -> None:
    """A clip with one frame a colour."""
    with av.open(str(path), "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=fps, options={"crf": "8"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for colour in colours:
            image = np.full((height, width, 3), colour, dtype=np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(image, "rgb24")))
        file.mux(stream.encode())


RED, BLUE, BLACK = (220, 30, 30), (30, 30, 220), (0, 0, 0)


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``cut``: two colours; ``dark``: colours that go over into each other; ``gone`` is no video."""
    folder = tmp_path_factory.mktemp("media")
    write(folder / "cut", [RED] * 30 + [BLUE] * 30)
    write(folder / "dark", [(min(255, 4 * k), 60, 255 - 4 * k) for k in range(60)])
    write(folder / "still", [BLUE] * 60)
    write(folder / "short", [RED, BLUE, RED, BLACK])
    write(folder / "one", [RED])
    (folder / "folder").mkdir()
    for number in range(6):
        Image.fromarray(np.full((40, 60, 3), BLUE if number < 4 else RED, np.uint8)).save(
            folder / "folder" / f"{number}.png"
        )
    (folder / "gone").write_text("<html>")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def store(folder: Path, references: tuple[str, ...] = ()) -> VideoStore:
    return VideoStore(Where(folder), PyAVReader(), references)


class Where:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, video: str) -> Path:
        return self.folder / video


def run(view: NoveltyView, videos: VideoStore, ids: list[str] = IDS, **options: Any) -> list[Indexed]:
    options = {"batch_size": 3, "workers": 0, **options}
    found = index(nn.ModuleDict({"view": view}), Gallery.of(ids, {}), videos, Machine(accelerator="cpu"), **options)
    assert found is not None
    return found


def bound(media: Path, ids: list[str] = IDS, **settings: Any) -> NoveltyView:
    """A view over the made-up clips, indexed and bound as a recipe's would be."""
    view, videos = NoveltyView(**{"embedder": Colours(), "frames": 4, **settings}), store(media)
    run(view, videos, ids)
    view.load()
    view.bind(Gallery.of(ids, {}), videos)
    return view


def test_every_clip_is_shown_where_it_is_new(media: Path) -> None:
    view = bound(media)
    expected = {}
    for video in set(IDS) - {"gone"}:
        whole = PyAVReader().read(media / video, All())
        positions = probe_positions(whole.total, None if whole.seconds is None else whole.total / 10)
        vectors = Colours().embed_frames(fit(whole.frames, 256)[positions])
        expected[video] = select(novelty(vectors.numpy()), positions, 4).tolist()
    assert {video: view.selection(video).tolist() for video in expected} == expected
    # By hand: the cut lies between frames 29 and 30; 48 probes of its 60 frames are 0, 1, 3, 4, ..., 29, 30, ...
    assert 30 in expected["cut"]
    assert expected["short"] == [0, 2, 3]  # 0.4 s at 8 a second are 3.2 probes
    assert expected["one"] == [0]
    assert expected["folder"] == [0, 1, 2, 4]  # no clock: every frame is probed; the cut, then what is left, in order
    assert len(expected["still"]) == len(expected["dark"]) == 4


def test_a_row_is_indices_and_then_minus_one(media: Path) -> None:
    row = bound(media).artifacts["selection"].row("one")
    assert row.dtype == torch.float32
    assert row.tolist() == [0, -1, -1, -1]


def test_probes_are_small_and_unmarked_and_embedded_clip_by_clip(media: Path) -> None:
    view = bound(media, ["cut", "one"], timestamps=True, side=64)
    embedder = view.embedder
    assert isinstance(embedder, Colours)
    assert embedder.shapes == [(48, 128, 256, 3), (1, 128, 256, 3)]
    whole = PyAVReader().read(media / "one", All())  # from a reader that does not scale
    assert view.prepare("selection", whole).frames.shape == (1, 128, 256, 3)


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": 7, "workers": 2}])
def test_batches_workers_and_other_videos_change_no_selection(
    options: dict[str, Any], media: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = bound(media)
    chosen = {video: view.selection(video).tolist() for video in view.artifacts["selection"].ids}
    monkeypatch.setenv("COVR_CACHE", str(media.parent / f"cache-{options['batch_size']}"))
    again, videos = NoveltyView(embedder=Colours(), frames=4), store(media)
    run(again, videos, IDS[::-1], **options)
    again.bind(Gallery.of(IDS, {}), videos)
    assert again.addresses == view.addresses
    alone = bound(media, ["cut"])
    assert alone.selection("cut").tolist() == chosen["cut"]


def test_references_are_indexed_too(media: Path) -> None:
    view, videos = NoveltyView(embedder=Colours(), frames=4), store(media, ("cut",))
    (report,) = run(view, videos, ["one"])
    view.bind(Gallery.of(["one"], {}), videos)
    assert (report.clips, len(view.selection("cut"))) == (2, 4)


def test_whatever_can_change_a_selection_changes_its_address_and_nothing_else_does(media: Path, tmp_path: Path) -> None:
    def address(videos: VideoStore | None = None, **settings: Any) -> str:
        view = NoveltyView(**{"embedder": Colours(), **settings})
        view.load()
        return view.locate(Gallery.of(["cut"], {}), videos or store(media))["selection"].digest

    same = [{}, {"side": 512}, {"timestamps": True}, {"side": None}]
    other: list[dict[str, Any]] = [
        {"embedder": Colours(name="others")},
        {"frames": 14},
        {"mixing": 0.9},
        {"probe_side": 128},
        {"rates": ((0, 8.0), (10, 4.0))},
        {"rates": ((0, 8.0), (10, 4.0), (30, 1.0))},
    ]
    assert len({address(**settings) for settings in same}) == 1
    (tmp_path / "cut").write_bytes((media / "still").read_bytes())
    found = [address(), *(address(**settings) for settings in other), address(store(tmp_path))]
    assert len(set(found)) == len(found)
    fingerprints = []
    for settings in [*same, *other]:
        view = NoveltyView(**{"embedder": Colours(), **settings})
        view.load()
        fingerprints.append(view.fingerprint)
    assert len(set(fingerprints)) == len(fingerprints)


def test_a_video_that_cannot_be_read_or_embedded_is_listed_and_never_shown(media: Path) -> None:
    view = bound(media)
    assert list(view.unusable) == ["gone"]
    with pytest.raises(SessionError, match=r"video 'gone' could not be read: .* is no video"):
        view.media("gone")
    with pytest.raises(SessionError, match="video 'who' is not in the index"):
        view.media("who")
    blind = Colours(name="blind", blind=True)
    for embedder, reason in ((Colours(name="lost", lost="no answer"), "no answer"), (blind, "finite and not zero")):
        lost, videos = NoveltyView(embedder=embedder, frames=3), store(media)
        (report,) = run(lost, videos, ["cut", "one"])
        assert sorted(report.failed) == ["cut", "one"]
        assert all("its probes cannot be embedded" in why and reason in why for why in report.failed.values())
        with pytest.raises(Refused, match=r"none of 2 videos.*--retry"):
            lost.bind(Gallery.of(["cut", "one"], {}), videos)


def test_memory_that_runs_out_fails_one_video(media: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def embed(self: Colours, frames: Frames) -> Tensor:
        if len(frames) > 40:
            raise torch.cuda.OutOfMemoryError
        return torch.ones(len(frames), 2)

    monkeypatch.setattr(Colours, "embed_frames", embed)
    view = bound(media, ["cut", "short"])
    assert "48 probes do not fit into memory: lower rates" in view.unusable["cut"]
    assert view.selection("short").tolist() == [0, 2, 3]


def test_a_frame_that_stands_for_several_probes_is_one() -> None:
    """In a damaged clip, a frame that does not decode is replaced by the next one that does."""
    frames = np.zeros((6, 8, 8, 3), np.uint8)
    frames[3:] = 200
    clip = Clip(frames, np.array([0, 4, 4, 9, 9, 9]), None, 10, None, 0.95)
    view = NoveltyView(embedder=Colours(), frames=4)
    view.load()
    (row,) = view.encode_clips("selection", {"v": clip}).values()
    assert isinstance(row, Tensor)
    assert row.tolist() == [0, 4, 9, -1]
    (late,) = view.encode_clips("selection", {"v": replace(clip, indices=clip.indices + 2**24)}).values()
    assert late == "it has frames beyond the 16777216th: cut it"


def test_other_selections_of_the_same_probes_embed_nothing_again(media: Path, cache: Path) -> None:
    bound(media, ["cut", "dark", "one"])
    for settings in ({"frames": 6}, {"mixing": 0.5}, {"frames": 3, "side": 128}):
        view = bound(media, ["cut", "dark", "one"], **settings)
        assert isinstance(view.embedder, Colours)
        assert view.embedder.shapes == []
        fresh = NoveltyView(**{"embedder": Colours(), "frames": 4, **settings})
        fresh.load()
        fresh.cache = VectorCache(cache / "nothing.sqlite", "", 0)
        whole = PyAVReader().read(media / "dark", fresh.parts["selection"].sampler)
        (row,) = fresh.encode_clips("selection", {"dark": whole}).values()
        assert isinstance(row, Tensor)
        assert row.tolist() == view.artifacts["selection"].row("dark").tolist()
    for settings in ({"embedder": Colours(name="others")}, {"probe_side": 64}, {"rates": ((0, 4.0),)}):
        view = bound(media, ["cut", "dark"], **settings)
        assert isinstance(view.embedder, Colours)
        assert len(view.embedder.shapes) == 2


@pytest.mark.parametrize(
    "blob", [b"", b"1234", *(np.full(48, x, np.float32).tobytes() for x in (np.nan, -1)), None, "text"]
)
def test_a_damaged_entry_of_the_probes_is_a_miss_and_mended(blob: object, media: Path, cache: Path) -> None:
    chosen = bound(media, ["dark"]).selection("dark").tolist()
    with closing(sqlite3.connect(cache / "probes.sqlite")) as db, db:
        assert db.execute("UPDATE vectors SET data = ?", (blob,)).rowcount == 1
    shutil.rmtree(cache / "galleries")
    for embedded in (1, 0):
        view = bound(media, ["dark"])
        assert isinstance(view.embedder, Colours)
        assert len(view.embedder.shapes) == embedded
        assert view.selection("dark").tolist() == chosen
        shutil.rmtree(cache / "galleries")


def test_media_show_the_selection_at_its_size_with_times(media: Path) -> None:
    view = bound(media, ["cut", "one", "still"], side=64, timestamps=True)
    whole = view.videos.clip("cut", All()) if view.videos else None
    assert whole is not None
    for video in ("cut", "one"):
        shown, chosen = view.media(video), view.selection(video).tolist()
        assert (shown.frames, shown.chosen) == (len(chosen), Listed(chosen))
        clip = shown.clip()
        assert clip.indices.tolist() == chosen
        assert clip.frames.shape == (len(chosen), 32, 64, 3)
    cut = view.media("cut").clip()
    assert stamps(cut) == [f"{at / 10:.2f}s" for at in view.selection("cut")]
    expected = stamped(fit(whole.frames[view.selection("cut")], 64), stamps(cut))
    assert (cut.frames == expected).all()


def test_what_a_prompt_shows_is_in_its_digest(media: Path) -> None:
    videos = store(media)
    shown = [
        Media("cut", 4, videos),
        Media("cut", 5, videos),
        Media("still", 4, videos),
        Media("cut", 4, videos, sampler=Listed([1, 2, 3, 4])),
        Media("cut", 4, videos, sampler=Listed([1, 2, 3, 5])),
        Media("cut", 4, videos, side=64),
        Media("cut", 4, videos, side=65),
        Media("cut", 4, videos, timestamps=True),
        Media("cut", 4, videos, side=64, timestamps=True),
    ]
    digests = [Request("verify", ("Look: ", media), "s", 0).digest for media in shown]
    assert len(set(digests)) == len(set(shown)) == len(shown)
    assert Media("cut", 4, videos, sampler=Uniform(4)).digest == shown[0].digest


def test_answers_that_are_kept_about_plain_frames_stay_valid(media: Path) -> None:
    """The digest of frames without size and stamps is the one of releases that knew neither."""
    videos = store(media)
    parts = [videos.digest(["cut"]), "uniform:4", videos.reader.fingerprint]
    assert Media("cut", 4, videos).digest == hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def test_a_uniform_view_needs_no_index(media: Path) -> None:
    view = UniformView(frames=6, side=100, timestamps=True)
    view.load()
    view.bind(Gallery.of(IDS, {}), store(media))
    clip = view.media("cut").clip()
    assert clip.indices.tolist() == [5, 15, 25, 35, 45, 55]
    assert clip.frames.shape == (6, 50, 100, 3)
    assert (UniformView(frames=6).side, UniformView().frames) == (512, 15)


def test_views_without_videos_are_refused(media: Path) -> None:
    for view in (UniformView(), NoveltyView(embedder=Colours())):
        with pytest.raises(Refused, match=r"needs videos: set data\.videos_dir"):
            view.bind(Gallery.of(IDS, {}), None)
    view = NoveltyView(embedder=Colours())
    view.load()
    with pytest.raises(Refused, match=r"no index for this recipe \(run tools/index\.py"):
        view.bind(Gallery.of(IDS, {}), store(media))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UniformView(frames=0), "frames of a view"),
        (lambda: UniformView(side=0), "side of a view"),
        (lambda: NoveltyView(embedder=Colours(), frames=0), "frames of a view"),
        (lambda: NoveltyView(embedder=Colours(), probe_side=0), "side of a view"),
        (lambda: NoveltyView(embedder=Colours(), mixing=1.1), "share between 0 and 1"),
        (lambda: NoveltyView(embedder=Colours(), rates=((1, 8.0),)), "ascending from 0"),
        (lambda: BlipFrameEmbedder(blip=Blip(model="demo", storyboard=2)), "storyboard to 1"),
    ],
)
def test_settings_without_a_meaning_are_refused(make: Callable[[], FrameView], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_blip_embeds_single_frames_whatever_stands_beside_them() -> None:
    embedder = BlipFrameEmbedder(blip=Blip(model="demo", tile=4))
    embedder.load()
    frames = np.random.default_rng(0).integers(0, 256, (9, 48, 64, 3), dtype=np.uint8)
    vectors = embedder.embed_frames(frames)
    assert vectors.shape == (9, embedder.blip.width)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(9))
    for place in (0, 3, 8):
        assert torch.equal(embedder.embed_frames(frames[place : place + 1])[0], vectors[place])
    assert torch.equal(vectors, embedder.blip.images(embedder.blip.pixels(frames))[0])


def test_a_recipe_can_name_views() -> None:
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(FrameView, "view")
    blip = {"class_path": "covr_lab.retrievers.blip.Blip", "init_args": {"model": "demo"}}
    settings = {
        "embedder": {"class_path": "covr_lab.views.BlipFrameEmbedder", "init_args": {"blip": blip}},
        "rates": [[0, 6], [20, 3]],
    }
    config = parser.parse_object({"view": {"class_path": "covr_lab.views.NoveltyView", "init_args": settings}})
    view = parser.instantiate(config).view
    assert isinstance(view, NoveltyView)
    assert view.parts["selection"].sampler == Probes(((0, 6), (20, 3)))
    assert (view.frames, view.side, view.timestamps, view.mixing) == (15, 256, False, 1.0)


def test_real_clips_of_all_kinds_have_selections(videos: Path) -> None:
    ids = ["decord_video_90.mov", "torchcodec_h265_video.mp4", "msrvtt_video9770.mp4", "torchcodec_av1_video.mkv"]
    view = NoveltyView(embedder=BlipFrameEmbedder(blip=Blip(model="demo", tile=16)), timestamps=True)
    media = store(videos)
    (report,) = run(view, media, ids)
    assert not report.failed
    view.bind(Gallery.of(ids, {}), media)
    assert [len(view.selection(video)) for video in ids] == [1, 8, 15, 15]
    for video in ids:
        clip = view.media(video).clip()
        assert max(clip.frames.shape[1:3]) <= 256
        assert (np.diff(clip.indices) > 0).all()
        assert clip.indices[-1] < clip.total
