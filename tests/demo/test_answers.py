"""A user who sees the demo clips: what it answers to whom, from pixels."""

from __future__ import annotations

from pathlib import Path

import pytest

from covr_lab.data import DemoWorld
from covr_lab.demo.answers import DemoUser, reply, words_of
from covr_lab.demo.wording import Claims
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.reasoning.questions import ATTRIBUTES, FALLBACK
from covr_lab.retrievers.blip import Blip
from covr_lab.scorers.attributes import attributes
from covr_lab.simulators.answering import Asked
from covr_lab.types import Part, Probe, Refused, SessionError
from covr_lab.video import PyAVReader

WORDS = words_of(Claims((("red", "star", "left"),)), "brick", "fading")
QUESTIONS = {
    "colour": "What color is the object?",
    "shape": "What is the object?",
    "motion": "What is the object doing?",
    "background": "Where is the object?",
    "light": "What time of day does it show?",
}
PARTS: tuple[Part, ...] = ("whole", "first half", "second half")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (FALLBACK, "a red star moving left"),
        ("Tell me more.", "a red star moving left"),
        ("what is the star doing", "moving left"),
        ("Where is the star moving left?", "moving left"),
        ("where is the star", "in front of a brick wall"),
        ("What COLOUR is the thing?", "red"),
        ("what object is in the video?", "star"),
        ("is the video a cartoon?", "no"),
        ("is there any animal in the video?", "no"),
        ("Is the star red?", "yes"),
        ("is the star blue?", "no"),
        ("does the light fade on a brick wall?", "yes"),
        *zip(
            ATTRIBUTES.values(),
            ("star", "moving left", "in front of a brick wall", "red", "as the light fades", "as the light fades"),
            strict=True,
        ),
    ],
)
def test_reply(question: str, answer: str) -> None:
    assert reply(question, WORDS) == answer


@pytest.fixture(scope="module")
def data() -> DemoWorld:
    found = DemoWorld(families=6, reader=PyAVReader())
    found.setup("predict")
    return found


@pytest.fixture(scope="module")
def user(data: DemoWorld) -> DemoUser:
    found = DemoUser(blip=Blip(model="demo", storyboard=2, tile=32))
    found.load()
    found.bind(data.user_gallery, data.videos)
    return found


def test_answers_are_seen_in_the_pixels(data: DemoWorld, user: DemoUser) -> None:
    """The user is bound to true captions and reads none: a gallery without them changes no answer."""
    videos = sorted({target.video for target in data.targets()})
    asked = [Asked("q", 1, v, Probe(text, part)) for v in videos for part in PARTS for text in QUESTIONS.values()]
    answers = user.answer(asked)
    right = dict.fromkeys(((part, kind) for part in PARTS for kind in QUESTIONS), 0)
    for number, (each, answer) in enumerate(zip(asked, answers, strict=True)):
        kind = list(QUESTIONS)[number % len(QUESTIONS)]
        scene = data.world.clips[each.video]
        shown = {getattr(place, kind) for place in (*scene.things, scene) if hasattr(place, kind)}
        right[each.probe.part, kind] += attributes(answer.text).get(kind) in shown
    assert min(right["whole", kind] for kind in QUESTIONS) >= 0.9 * len(videos)
    assert right["first half", "colour"] >= 0.9 * len(videos)
    assert right["first half", "motion"] < right["whole", "motion"]  # a half shows half of the way
    blind = DemoUser(blip=user.blip)
    blind.load()
    blind.bind(Gallery.of(data.gallery.ids, {}), data.videos)
    assert blind.answer(asked[::-1])[::-1] == answers
    blind.bind(Gallery.of(data.gallery.ids, {}), data.videos)
    assert [blind.answer([each])[0] for each in asked[:7]] == answers[:7]
    assert blind.fingerprint == user.fingerprint != DemoUser(blip=user.blip).fingerprint


def test_no_video_no_answer(data: DemoWorld, tmp_path: Path) -> None:
    user = DemoUser(blip=Blip(model="demo", storyboard=2, tile=32))
    user.load()
    with pytest.raises(Refused, match="simulator DemoUser looks at videos"):
        user.bind(data.gallery)
    user.bind(data.gallery, VideoStore(lambda video: tmp_path / video, PyAVReader()))
    with pytest.raises(SessionError, match="lost"):
        user.answer([Asked("q", 1, "lost", Probe("Where is it?"))])
