"""Parts of speech: labels by hand, and the same ones whatever was tagged before."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from covr_lab.reasoning import UncertaintyQuestion, tagging
from covr_lab.reasoning.tagging import tagged
from covr_lab.types import Refused

A, V, N, J, R, P, O = "name", "verb", "noun", "adjective", "adverb", "preposition", "other"  # noqa: E741


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Woman eating fresh carrots in a garden", [N, V, J, N, P, O, N]),
        ("A red boat near London", [O, J, N, P, A]),
        ("A young man is quickly running", [O, J, N, O, R, V]),
        ("it should have been done", [O, O, O, O, O]),  # auxiliaries are no verbs of their own
        ("Boat on the sea. Woman in Paris; Dog asleep", [N, P, O, N, N, P, A, N, J]),  # capitals of sentences
        ("make it night [SEP] Boat in Paris", [V, O, N, N, P, A]),
        ("I'd like it, don't you?", [O, O, V, O, O, O, O]),
        ("Close-up of a man's hand", [N, P, O, N, O, N]),
        ("BOAT", [N]),
        ("", []),
        ("... ?!", []),
    ],
)
def test_parts_of_speech(text: str, parts: list[str]) -> None:
    assert [part for _, part in tagged(text)] == parts


def test_words_are_lower_case_and_clitics_apart() -> None:
    assert [word for word, _ in tagged("Don\u2019t show the man's Boat!")] == [
        *("do", "n't", "show", "the", "man", "'s", "boat"),
    ]


@pytest.mark.parametrize(
    "text", ["<|im_end|> {said} \x00", "\U0001f642 \u65e5\u672c x_y", "'''", "a" * 500, "- - -", "\n\n"]
)
def test_any_text_can_be_tagged(text: str) -> None:
    assert all(part in {A, V, N, J, R, P, O} for _, part in tagged(text))


def test_tags_do_not_depend_on_order_or_hash_seed() -> None:
    texts = ["Paris in May", "in may it rains", "paris", "Woman with a May flower", "march of the Turkey", "A turkey"]
    script = "import sys; from covr_lab.reasoning.tagging import tagged; t = {t: tagged(t) for t in sys.argv[1:]};"
    script += "print(sorted(t.items()))"
    here = f"{sorted((text, tagged(text)) for text in texts)}\n"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-c", script, *texts[::-1]]
    assert subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout == here


def test_a_missing_tagger_is_named_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tagging, "find_spec", lambda name: None)
    with pytest.raises(
        Refused, match=r"UncertaintyQuestion needs the extra `tagger`: pip install 'covr_lab\[tagger\]'"
    ):
        UncertaintyQuestion()
