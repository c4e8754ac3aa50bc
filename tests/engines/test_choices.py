"""Requests with choices: the answer is how probable each of them is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from covr_lab.engines.base import EngineError, seed_of
from covr_lab.engines.cached import CachedEngine, address
from covr_lab.engines.hf import HFEngine
from covr_lab.engines.openai import OpenAIEngine
from covr_lab.engines.request import Request
from covr_lab.types import Refused
from tests.openai_server import OpenAIServer
from tests.tiny_vlm import make_tiny_lm

TEXTS = ["A red ball or a blue one?", "Which?", "a much longer prompt about a dog that runs on a beach and a cat"]


def ask(text: str = "which?", choices: tuple[str, ...] = ("A", "B")) -> Request:
    return Request("choose", (text,), "s", 1, choices=choices)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> HFEngine:
    folder = make_tiny_lm(tmp_path_factory.mktemp("lm"), texts=[*TEXTS, "A B yes no"])
    made = HFEngine(model=str(folder), dtype="float32", max_new_tokens=8, batch_tokens=200)
    made.load()
    return made


def test_a_local_model_tells_the_softmax_over_the_first_tokens(engine: HFEngine) -> None:
    """Against the scores that transformers' own generation gives back."""
    responses = engine.generate([ask(text) for text in TEXTS])
    for text, response in zip(TEXTS, responses, strict=True):
        inputs = {key: value for key, value in engine.chat.prompt(ask(text)).tensors.items()}
        out = engine.network.generate(**inputs, max_new_tokens=1, output_logits=True, return_dict_in_generate=True)
        tokens = [engine.chat.tokenizer.encode(choice, add_special_tokens=False)[0] for choice in "AB"]
        expected = torch.softmax(out.logits[0][0, tokens], 0).tolist()
        assert json.loads(response.text) == pytest.approx(dict(zip("AB", expected, strict=True)), abs=1e-5)
        assert response.tokens_out == 1
    assert len({response.text for response in responses}) == 3


def test_it_does_not_matter_what_else_is_asked(engine: HFEngine) -> None:
    mixed = [ask(TEXTS[0]), Request("intent", ("say something",), "s", 1), ask(TEXTS[2], ("yes", "no"))]
    together = engine.generate(mixed)
    for request, response in zip(mixed, together, strict=True):
        (alone,) = engine.generate([request])
        if request.choices:
            assert json.loads(alone.text) == pytest.approx(json.loads(response.text), abs=1e-5)
            assert list(json.loads(response.text)) == list(request.choices)
        else:
            assert alone.text == response.text


def test_choices_that_begin_alike_are_refused(engine: HFEngine) -> None:
    with pytest.raises(Refused, match=r"begins two of \['A', 'A'\] alike"):
        engine.generate([ask(choices=("A", "A"))])


def test_a_server_tells_them_by_its_logprobs() -> None:
    """Forms of one letter count together, other tokens not at all."""
    with OpenAIServer(answer=lambda body: '{"A": 0.5, " A": 0.1, "The": 0.2, "B": 0.2}') as server:
        (response,) = OpenAIEngine(model="tiny", base_url=server.url).generate([ask()])
        (body,) = server.requests
    assert json.loads(response.text) == pytest.approx({"A": 0.75, "B": 0.25})
    assert (body["logprobs"], body["top_logprobs"], body["max_tokens"]) == (True, 20, 1)
    with OpenAIServer(answer=lambda body: '{"The": 1.0}') as server:
        (response,) = OpenAIEngine(model="tiny", base_url=server.url).generate([ask()])
    assert json.loads(response.text) == {"A": 0.0, "B": 0.0}


def test_a_server_without_logprobs_answers_in_words_or_ends_the_run() -> None:
    with OpenAIServer(answer=lambda body: "A") as server:
        (response,) = OpenAIEngine(model="tiny", base_url=server.url).generate([ask()])
    assert response.text == "A"
    with (
        OpenAIServer(faults=["400:logprobs"]) as server,
        pytest.raises(EngineError, match=r"tells no probabilities \(400 .*\): set `soft: false`"),
    ):
        OpenAIEngine(model="tiny", base_url=server.url).generate([ask()])


def test_choices_and_draws_have_addresses_of_their_own() -> None:
    """And a request without them keeps the address and the seed that it had."""
    plain = replace(ask(), choices=())
    assert len({address("e", one, False) for one in (plain, ask(), ask(choices=("B", "A")))}) == 3
    again = replace(plain, draw=3)
    assert address("e", plain, False) == address("e", again, False)  # a greedy answer does not depend on it
    assert address("e", plain, True) != address("e", again, True)
    assert seed_of(0, plain) != seed_of(0, again)
    expected = "706a64c4ddbc41892870f6d04663fc24dedbea5a"
    assert plain.digest[:40] == expected


def test_a_kept_answer_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path))
    with OpenAIServer(answer=lambda body: '{"A": 0.6, "B": 0.4}') as server:
        engine = CachedEngine(engine=OpenAIEngine(model="tiny", base_url=server.url))
        first, second = (engine.generate([ask()])[0] for _ in range(2))
        assert len(server.requests) == 1
    assert first.text == second.text
    assert second.cached
