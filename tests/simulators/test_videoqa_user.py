"""Answers and captions by BLIP: the same as plain transformers, whatever the batch; and what cannot be loaded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from covr_lab.engines.base import Engine
from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Request, Response
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.prompts import SUITES, Prompt
from covr_lab.retrievers.blip.images import Frames, preprocess
from covr_lab.simulators import CaptionQAUser, VideoQAUser
from covr_lab.simulators.answering import Asked
from covr_lab.simulators.blip import BlipVQA
from covr_lab.simulators.caption_qa import FIELDS, read_reply
from covr_lab.types import Probe, Query, Refused, Session, SessionError, Target
from covr_lab.video import Clip, FrameSampler, VideoError, VideoReader
from tests.tiny_vqa import make_tiny_writer

QUESTIONS = ("What is the man doing?", "Where is it?", "Is the dog red?", "What color is the boat on the beach?")
EIGHT = [1, 3, 5, 7, 9, 11, 13, 15]  # middles of eight segments of 16 frames
PARTS = ("whole", "first half", "second half")


class Noise(VideoReader):
    """16 frames of noise that differ by video; "bad" cannot be read."""

    reads = 0

    @property
    def fingerprint(self) -> str:
        return "noise"

    def probe(self, path: Path) -> None:  # type: ignore[override]
        raise NotImplementedError

    def read(self, path: Path, sampler: FrameSampler) -> Clip:
        if path.stem == "bad":
            raise VideoError(path, "truncated")
        self.reads += 1
        at = sampler.indices(16)
        return Clip(clip(path.stem)[at], at, None, 16, None, 1.0)


def clip(video: str) -> Frames:
    rng = np.random.default_rng(sum(map(ord, video)))
    frames: Frames = (rng.integers(0, 255, (16, 40, 60, 3)) * rng.uniform(0, 1, (16, 1, 1, 3))).astype(np.uint8)
    return frames


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_writer(tmp_path_factory.mktemp("vqa"))


@pytest.fixture(scope="module")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_writer(tmp_path_factory.mktemp("captions"), "BlipForConditionalGeneration")


@pytest.fixture(scope="module")
def user(folder: Path) -> VideoQAUser:
    found = VideoQAUser(model=str(folder), tile=4, memory=2)
    found.load()
    return found


@pytest.fixture
def bound(user: VideoQAUser) -> VideoQAUser:
    user.bind(Gallery.of("abc", {}), VideoStore(Path, Noise()))
    return user


def asked(video: str, text: str, part: Any = "whole") -> Asked:
    return Asked("q", 1, video, Probe(text, part))


EVERYTHING = [asked(video, text, part) for text in QUESTIONS for video in "abc" for part in PARTS]


def plain_states(module: Any, frames: Frames, side: int) -> torch.Tensor:
    """Visual tokens of frames, one after another."""
    seen: torch.Tensor = module.vision_model(pixel_values=preprocess(frames, side)).last_hidden_state
    return torch.cat(list(seen))[None]


def test_answers_are_those_of_transformers(bound: VideoQAUser, folder: Path) -> None:
    """A single frame by ``generate`` of the whole model; several by its parts, their tokens laid out by hand."""
    from transformers import BlipForQuestionAnswering

    module: Any = BlipForQuestionAnswering.from_pretrained(folder).eval()
    told = {"num_beams": 3, "min_length": 1, "max_length": 10}
    tokenizer, side, enc = bound.blip.tokenizer, bound.blip.side, bound.blip.reader.enc_token
    assert enc == module.config.text_config.vocab_size - 1
    many = dict(zip(((e.video, e.probe) for e in EVERYTHING), bound.answer(EVERYTHING), strict=True))
    eight, found = {video: clip(video)[EIGHT] for video in "abc"}, set()
    with torch.inference_mode():
        for text in QUESTIONS:
            ids = tokenizer(text.lower(), return_tensors="pt").input_ids
            ids[:, 0] = enc
            for video in "abc":
                pixels = preprocess(eight[video][:1], side)
                expected = tokenizer.decode(module.generate(ids, pixels, **told)[0], skip_special_tokens=True)
                one = bound.blip.see(eight[video][:1])
                assert bound.blip.answers([text], [1], lambda place, one=one: one) == [expected.strip()]
                for part, taken in zip(PARTS, (slice(8), slice(4), slice(4, 8)), strict=True):
                    states = plain_states(module, eight[video][taken], side)
                    read = module.text_encoder(input_ids=ids, encoder_hidden_states=states, return_dict=False)[0]
                    start = torch.full((1, 1), module.config.text_config.bos_token_id)
                    ends = {"eos_token_id": 3, "pad_token_id": 0, "encoder_hidden_states": read}
                    row = module.text_decoder.generate(input_ids=start, **ends, **told)[0]
                    expected = tokenizer.decode(row, skip_special_tokens=True).strip()
                    assert many[video, Probe(text, part)].text == expected  # type: ignore[arg-type]
                    found.add(expected)
    assert len(found) > 10  # the tiny model does look and listen


def test_neither_batch_nor_order_nor_memory_changes_an_answer(bound: VideoQAUser) -> None:
    together = bound.answer(EVERYTHING)
    assert [bound.answer([each])[0] for each in EVERYTHING] == together
    assert bound.answer(EVERYTHING[::-1])[::-1] == together
    assert bound.answer([*EVERYTHING, *EVERYTHING]) == [*together, *together]
    bound.bind(Gallery.of("abc", {}), VideoStore(Path, reader := Noise()))
    assert bound.answer([asked("a", text, part) for text in QUESTIONS for part in PARTS]) == [
        answer for each, answer in zip(EVERYTHING, together, strict=True) if each.video == "a"
    ]
    assert reader.reads == 1


def test_a_video_that_cannot_be_read_and_none_at_all(bound: VideoQAUser) -> None:
    with pytest.raises(SessionError, match="bad"):
        bound.answer([asked("a", "Where?"), asked("bad", "Where?")])
    with pytest.raises(Refused, match=r"set data\.videos_dir"):
        bound.bind(Gallery.of("abc", {}), None)
    with pytest.raises(ValueError, match="even frames"):
        VideoQAUser(model="x", frames=7)
    with pytest.raises(ValueError, match="revision must be a commit"):
        VideoQAUser(model="Salesforce/blip-vqa-base", revision="main")


def test_what_is_no_such_model_is_refused_in_one_line(folder: Path, captioner: Path, tmp_path: Path) -> None:
    def refusal(model: Path) -> str:
        with pytest.raises(Refused) as caught:
            BlipVQA(model=str(model), lengths=(1, 10)).load()
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "no such folder" in refusal(tmp_path / "absent")
    assert "has missing weights" in refusal(captioner)  # it cannot read a question
    broken = Path(shutil.copytree(folder, tmp_path / "broken"))
    config = json.loads((broken / "config.json").read_text())
    config["text_config"]["vocab_size"] -= 1
    (broken / "config.json").write_text(json.dumps(config))
    assert "has mismatched weights" in refusal(broken)


def test_weights_are_frozen_and_part_of_the_fingerprint(user: VideoQAUser, folder: Path, tmp_path: Path) -> None:
    assert not any(parameter.requires_grad for parameter in user.parameters())
    assert not user.train().blip.network.training
    same = Path(shutil.copytree(folder, tmp_path / "same"))
    others = [VideoQAUser(model=str(same)), VideoQAUser(model=str(same), beams=2)]
    others.append(VideoQAUser(model=str(make_tiny_writer(tmp_path / "other", seed=1))))
    prints = [VideoQAUser(model=str(folder)).blip.fingerprint, *(other.blip.fingerprint for other in others)]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3
    assert user.fingerprint == user.blip.fingerprint


# Caption and language model


class Parrot(Engine):
    """Says the same to everybody but to the sessions that it is told about."""

    def __init__(self, says: Mapping[str, Response] | None = None) -> None:
        super().__init__()
        self.says, self.asked = says or {}, list[Request]()

    @property
    def fingerprint(self) -> str:
        return "parrot"

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        self.asked += requests
        return [self.says.get(request.session_id, Response("Answer: a dog")) for request in requests]


def listener(engine: Engine, known: Mapping[str, str] | None = None, **options: Any) -> CaptionQAUser:
    user = CaptionQAUser(engine="lm", **options)
    assert user.connect({"lm": engine}) == {"lm"}
    user.load()
    user.bind(Gallery.of("abc", known or {}), VideoStore(Path, Noise()))
    return user


def test_an_engine_answers_from_the_caption_of_the_part(captioner: Path) -> None:
    from transformers import BlipForConditionalGeneration

    engine = Parrot()
    user = listener(engine, model=str(captioner))
    answers = user.answer(EVERYTHING)
    module: Any = BlipForConditionalGeneration.from_pretrained(captioner).eval()
    assert user.describer is not None
    tokenizer, start = user.describer.tokenizer, torch.full((1, 1), module.config.text_config.bos_token_id)
    told = {"num_beams": 3, "min_length": 5, "max_length": 20, "repetition_penalty": 1.1}
    expected = {}
    with torch.inference_mode():
        for video in "abc":
            for part, taken in zip(PARTS, (slice(8), slice(4), slice(4, 8)), strict=True):
                states = plain_states(module, clip(video)[EIGHT][taken], user.describer.side)
                ends = {"eos_token_id": 3, "pad_token_id": 0, "encoder_hidden_states": states}
                row = module.text_decoder.generate(input_ids=start, **ends, **told)[0]
                expected[video, part] = tokenizer.decode(row, skip_special_tokens=True).strip()
    assert len(set(expected.values())) > 4
    for each, answer, request in zip(EVERYTHING, answers, engine.asked, strict=True):
        caption = expected[each.video, each.probe.part]
        assert request.content == (f"Context: {caption} Question: {each.probe.text} Answer:",)
        assert (request.role, request.session_id, request.turn, request.schema) == ("user_answer", "q", 1, None)
        assert [one.request for one in answer.calls] == [request]
        assert answer.text == "a dog"


def test_what_the_engine_cannot_answer_is_blank_and_recorded() -> None:
    says = {"dumb": Response(" \n"), "down": Response("", error="timed out"), "long": Response("word " * 21)}
    user = listener(Parrot(says), dict.fromkeys("abc", "a dog\nin snow"), captions="annotation")
    answers = user.answer([Asked(name, 1, "a", Probe("Where?")) for name in (*says, "fine")])
    assert [(one.text == "", [each.valid for each in one.calls]) for one in answers] == [(True, [False])] * 3 + [
        (False, [True])
    ]
    assert "Context: a dog in snow Question: Where? Answer:" in answers[3].calls[0].request.text
    rehearsed = user.rehearse(Session(Query("q", None, "x")), Target("q", "a"))
    assert [request.role for request in rehearsed.turn] == ["user_answer"]


def test_a_wrong_recipe_or_target_is_one_line(captioner: Path) -> None:
    for options in ({"captions": "annotation", "model": "x"}, {"captions": "model"}):
        with pytest.raises(ValueError, match="name a captioner in `model`"):
            CaptionQAUser(engine="lm", **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"simulator\.engine names engine 'lm'"):
        CaptionQAUser(engine="lm", captions="annotation").connect({})
    user = listener(Parrot(), captions="annotation")
    with pytest.raises(SessionError, match="video a: no caption with a content word"):
        user.answer([asked("a", "Where?")])
    seeing = CaptionQAUser(engine="lm", model=str(captioner))
    with pytest.raises(Refused, match=r"simulator\.captions to annotation"):
        seeing.bind(Gallery.of("a", {}))


def test_packaged_prompts_show_caption_and_question_and_nothing_else() -> None:
    found = [CaptionQAUser(engine="lm", captions="annotation", prompts=suite) for suite in SUITES]
    assert len({user.fingerprint for user in found}) == len(SUITES)
    for user in found:
        assert user.prompt.used == {"caption", "question"}
        assert not Prompt(user.prompt.system, "", FIELDS).used
        assert read_reply(user.prompt.system.splitlines()[-1])  # the example is one that can be read


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("a dog", "a dog"),
        ('\n "a dog"\nbecause', "a dog"),
        ("Answer: in  snow.", "in snow."),
        ("no\nit is not", "no"),
        ("", None),
    ],
)
def test_read_reply(text: str, reply: str | None) -> None:
    if reply is None:
        with pytest.raises(ParseError, match="no answer of 1 to 20 words"):
            read_reply(text)
    else:
        assert read_reply(text) == reply
