"""Frames by quality in a view, a gallery and a captioner: folders of images whose one sharp frame a scene is known."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import normalize

from covr_lab.captioners import VLMCaptioner
from covr_lab.engines.base import Engine
from covr_lab.engines.request import Media, Request, Response
from covr_lab.gallery.build import index
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.recipe import Machine
from covr_lab.retrievers import BlipRetriever
from covr_lab.retrievers.blip import Blip
from covr_lab.types import SessionError
from covr_lab.video import All, Clip, PyAVReader
from covr_lab.video.base import Frames
from covr_lab.video.samplers import Listed
from covr_lab.views import FrameEmbedder, QualityFrames, QualityView

SCENES, LENGTH, SIDE = 8, 6, 32
SHARP = [scene * LENGTH + (2, 3, 1, 4, 0, 2, 5, 3)[scene] for scene in range(SCENES)]
GALLERY = Gallery.of(["few", "one", "scenes"], {})


class Colours(FrameEmbedder):
    """Mean colour of each frame."""

    def __init__(self, *, name: str = "colours", lost: str = "") -> None:
        super().__init__()
        self.name, self.lost, self.loaded = name, lost, False

    @property
    def fingerprint(self) -> str:
        assert self.loaded, "the fingerprint of weights that are not loaded"
        return self.name

    def load(self) -> None:
        self.loaded = True

    def embed_frames(self, frames: Frames) -> Tensor:
        if self.lost:
            raise SessionError(self.lost)
        return normalize(torch.from_numpy(frames.astype(np.float32)).mean((1, 2)), dim=1)


class Listener(Engine):
    """Describes a clip by its id, and keeps what it was asked."""

    fingerprint = "listener"

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Request] = []

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        self.asked += requests
        said = [{"caption": f"clip {request.session_id}", "main_objects": [], "scene": ""} for request in requests]
        return [Response(json.dumps(one)) for one in said]


def colour(scene: int) -> np.ndarray:
    return np.array([200 if scene & 4 else 20, 200 if scene & 2 else 20, 200 if scene & 1 else 60])


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``scenes``: eight scenes of six frames, one of them a chequered one; ``few`` and ``one``: their first frames."""
    folder = tmp_path_factory.mktemp("media")
    board = (np.indices((SIDE, SIDE)).sum(0) // 2 % 2)[..., None]
    for place in range(SCENES * LENGTH):
        plain = np.full((SIDE, SIDE, 3), colour(place // LENGTH))
        frame = np.clip(plain + (board * 40 - 20 if place in SHARP else board * 4), 0, 255).astype(np.uint8)
        for name, most in (("scenes", 99), ("few", 5), ("one", 1)):
            if place < most:
                (folder / name).mkdir(exist_ok=True)
                Image.fromarray(frame).save(folder / name / f"{place:03}.png")
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))


class Where:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, video: str) -> Path:
        return self.folder / video


def store(media: Path) -> VideoStore:
    return VideoStore(Where(media), PyAVReader())


def indexed(encoder: Any, media: Path, **options: Any) -> VideoStore:
    """The media, after the artifacts of an encoder were made."""
    videos = store(media)
    options = {"batch_size": 2, "workers": 0, **options}
    assert index(nn.ModuleDict({"x": encoder}), GALLERY, videos, Machine(accelerator="cpu"), **options) is not None
    return videos


def clip(media: Path, video: str) -> Clip:
    return PyAVReader().read(media / video, All())


def test_a_view_shows_the_sharp_frame_of_each_scene(media: Path) -> None:
    view = QualityView(choice=QualityFrames(embedder=Colours()), frames=SCENES, side=16)
    videos = indexed(view, media)
    view.bind(GALLERY, videos)
    assert view.selection("scenes").tolist() == SHARP
    shown = view.media("scenes")
    assert (shown.frames, shown.chosen, shown.side) == (SCENES, Listed(SHARP), 16)
    assert shown.clip().frames.shape == (SCENES, 16, 16, 3)
    # The last of five frames lies in no bin; the others are candidates, and of one scene that is one or two clusters.
    assert set(view.selection("few").tolist()) <= {0, 1, 2, 3}
    assert view.selection("one").tolist() == [0]


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"batch_size": 3, "workers": 2}])
def test_batches_and_workers_change_no_selection(options: dict[str, Any], media: Path) -> None:
    view = QualityView(choice=QualityFrames(embedder=Colours()), frames=4)
    alone = view.choice.choose("scenes", clip(media, "scenes"), 4).tolist()
    view.bind(GALLERY, indexed(view, media, **options))
    assert view.selection("scenes").tolist() == alone
    assert set(alone) <= set(SHARP)


def test_a_gallery_is_made_of_the_chosen_frames(media: Path) -> None:
    blip = Blip(model="demo", tile=4)
    retriever = BlipRetriever(blip=blip, frames=SCENES, choice=QualityFrames(embedder=Colours()))
    retriever.bind(GALLERY, indexed(retriever, media))
    for video, chosen in (("scenes", SHARP), ("one", [0] * SCENES)):  # a short clip repeats its frames
        frames = clip(media, video).frames[chosen]
        expected, _ = blip.images(blip.pixels(blip.resized(frames)))
        assert torch.equal(retriever.artifacts["gallery"].row(video), expected)
    uniform = BlipRetriever(blip=blip, frames=SCENES)
    uniform.bind(GALLERY, indexed(uniform, media))
    assert not torch.equal(retriever.features, uniform.features)
    assert torch.equal(retriever.artifacts["anchors"].row("scenes"), uniform.artifacts["anchors"].row("scenes"))


def test_a_captioner_shows_the_chosen_frames(media: Path) -> None:
    captioner, engine = VLMCaptioner(engine="e", frames=SCENES, choice=QualityFrames(embedder=Colours())), Listener()
    captioner.connect(engine)
    videos = indexed(captioner, media)
    assert captioner.describe(GALLERY, videos)["scenes"] == "clip scenes."
    shown = {
        request.session_id: part for request in engine.asked for part in request.content if isinstance(part, Media)
    }
    assert shown["one"].frames == 1
    assert shown["scenes"].clip().indices.tolist() == SHARP
    # The digest of what was shown is that of the same frames read when they are asked for.
    later = Media("scenes", SCENES, videos, sampler=Listed(SHARP), side=640)
    assert shown["scenes"].digest == later.digest
    assert (later.clip().frames == shown["scenes"].clip().frames).all()


def test_whatever_changes_the_choice_changes_the_addresses_of_what_is_made_of_it(media: Path) -> None:
    blip = Blip(model="demo")

    def addresses(choice: QualityFrames | None, frames: int = 8) -> dict[str, str]:
        found = {}
        view = [QualityView(choice=choice, frames=frames)] if choice is not None else []
        captioner = VLMCaptioner(engine="e", frames=frames, choice=choice)
        captioner.connect(Listener())
        for encoder in (*view, captioner, BlipRetriever(blip=blip, frames=frames, choice=choice)):
            encoder.load()
            found |= {part: at.digest for part, at in encoder.locate(GALLERY, store(media)).items()}
        return found

    made = [
        addresses(None),
        addresses(QualityFrames(embedder=Colours())),
        addresses(QualityFrames(embedder=Colours(name="others"))),
        addresses(QualityFrames(embedder=Colours(), rate=2.5)),
        addresses(QualityFrames(embedder=Colours(), side=320)),
        addresses(QualityFrames(embedder=Colours()), frames=4),
    ]
    for part in ("gallery", "descriptions"):
        assert len({found[part] for found in made}) == len(made)
    assert len({found["selection"] for found in made[1:]}) == len(made) - 1
    assert len({found["anchors"] for found in made}) == 1  # a reference is its middle frame
    shown = [QualityView(choice=QualityFrames(embedder=Colours()), side=side) for side in (16, 16, None)]
    for view in shown:
        view.load()
    assert shown[0].fingerprint == shown[1].fingerprint != shown[2].fingerprint
    assert len({view.row_fingerprint for view in shown}) == 1


def test_frames_that_cannot_be_told_apart_are_taken_evenly_and_a_warning_says_so(
    media: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = clip(media, "scenes")
    with caplog.at_level(logging.WARNING):
        lost = QualityFrames(embedder=Colours(lost="no answer"))
        assert lost.choose("scenes", whole, 4).tolist() == [6, 18, 30, 42]
        assert "video 'scenes'" in caplog.text
        assert "no answer" in caplog.text
        caplog.clear()
        still = replace(whole, seconds=np.zeros(len(whole.frames)))  # no time passes: no bins
        assert QualityFrames(embedder=Colours()).choose("stuck", still, 4).tolist() == [6, 18, 30, 42]
        assert "only 0 of its 48" in caplog.text
        caplog.clear()

        def full(self: Colours, frames: Frames) -> Tensor:
            raise torch.cuda.OutOfMemoryError

        monkeypatch.setattr(Colours, "embed_frames", full)
        assert QualityFrames(embedder=Colours()).choose("scenes", whole, 4).tolist() == [6, 18, 30, 42]
        assert "do not fit into memory" in caplog.text
        caplog.clear()
        assert QualityFrames(embedder=Colours()).choose("one", clip(media, "one"), 4).tolist() == [0]
        assert not caplog.text  # there is nothing to choose


def test_a_frame_that_stands_for_several_places_is_one(media: Path) -> None:
    """In a damaged clip, a frame that does not decode is replaced by the next one that does."""
    whole = clip(media, "scenes")
    damaged = replace(whole, indices=np.maximum(whole.indices, 12))
    chosen = QualityFrames(embedder=Colours()).choose("scenes", damaged, 6).tolist()
    assert len(set(damaged.indices[chosen].tolist())) == len(chosen)


@pytest.mark.parametrize("settings", [{"rate": 0.0}, {"side": 0}])
def test_settings_without_a_meaning_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"rates|side"):
        QualityFrames(embedder=Colours(), **settings)
    with pytest.raises(ValueError, match="frames of a view"):
        QualityView(choice=QualityFrames(embedder=Colours()), frames=0)
