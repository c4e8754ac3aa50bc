"""UMIVR's questioner: its level is a fold over the record, its question follows from the level."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from covr_lab.engines.request import Request
from covr_lab.evaluate import evaluate
from covr_lab.functional.uncertainty import next_level, vagueness
from covr_lab.reasoning import UncertaintyQuestion
from covr_lab.reasoning.asking import read_question
from covr_lab.reasoning.questions import ATTRIBUTES, FALLBACK
from covr_lab.reasoning.tagging import tagged
from covr_lab.reasoning.uncertainty import AIMS, OPEN, facets, last_level, measure, running_text, telling_questions
from covr_lab.results.reader import read_rows
from covr_lab.results.schema import TIMING
from covr_lab.types import Context, Event, Feedback, Intent, Query, RankedList, Reflection, Session, Turn

ROOT = Path(__file__).resolve().parents[2]
ROW = RankedList(np.array([0], dtype=np.int32))
WHO, WHAT, WHERE, *_ = ATTRIBUTES.values()
CAPTIONS = ("A man cooks in a kitchen", "A man cooks on a beach", "A dog sleeps", "A car drives", "Rain")
FAR = np.eye(5, dtype=np.float32)
CLEAR = (0.9, 0.1, 0.1, 0.1, 0.1)  # mapping uncertainty 0
CLOSE = (0.5, 0.5, 0.1, 0.1, 0.1)
# Specific enough to be no ambiguous text, and silent about the place.
RICH = (
    "tiny bright red old wooden rusty shiny boat slowly happily quickly moving, tall young blond elegant woman dancing"
)


def context(*levels: int, text: str = RICH, scores: tuple[float, ...] = CLOSE, asked: str | None = None) -> Context:
    """A session whose earlier questions had these levels."""
    session = Session(Query("q", "r", "make it night"), (Turn(0, ROW),))
    for level in levels:
        event = Event("uncertainty", f"level={level} text=0.100 mapping=0.900")
        feedback, at = Feedback("free", "words"), len(session.turns)
        session = session.then(Turn(at, ROW, asked, feedback, Intent(edit=text), events=(Event("truncated"), event)))
    return Context(session, Reflection(query="make it night"), candidates=CAPTIONS, scores=scores, caption_vectors=FAR)


def question(now: Context) -> str:
    answer = UncertaintyQuestion().render(now)
    assert isinstance(answer, str)
    return answer


def test_the_running_text_is_the_newest_intent_and_at_first_the_edit() -> None:
    assert running_text(context().session) == "make it night"
    assert running_text(context(0, 1).session) == RICH
    session = context(0).session
    for intent, text in ((Intent("a dog"), "a dog"), (Intent(), RICH), (None, RICH)):
        assert running_text(session.then(Turn(2, ROW, intent=intent))) == text


def test_the_level_is_a_fold_over_the_record() -> None:
    assert last_level(context().session) is None
    assert last_level(context(0, 1).session) == 1
    assert last_level(context(0, 1).session.then(Turn(3, ROW))) == 1
    levels = {(): 0, (0,): 1, (0, 0): 1, (0, 1): 2, (0, 2): 2}
    for before, level in levels.items():
        assert measure(context(*before)).level == level, before
    assert measure(context(0, scores=CLEAR)).level == 2  # nothing to tell apart
    assert measure(context(0, text="a boat")).level == 0  # says too little


def test_scores_and_event() -> None:
    found = measure(context(0))
    kinds = [kind for _, kind in tagged(RICH)]
    # The best two weigh the same and nobody else counts; five meanings, 2.3 bits.
    assert found.weights == pytest.approx((0.5, 0.5, 0, 0, 0))
    odds = np.exp(np.array(CLOSE))
    bits = float(-(odds / odds.sum() * np.log2(odds / odds.sum())).sum())
    assert found.text == pytest.approx(0.2 / (1 + np.exp(-3 * (bits - 2))) + 0.8 * vagueness(kinds))
    assert measure(context(0), enhanced=False).text == pytest.approx(bits / np.log2(5))
    (event,) = UncertaintyQuestion().events(context(0))
    assert event == Event("uncertainty", f"level=1 text={found.text:.3f} mapping={found.mapping:.3f}")
    (plain,) = UncertaintyQuestion(enhanced=False).events(context(0))
    assert plain.detail.startswith("level=0 text=0.9")


def test_what_no_list_holds_and_what_has_no_caption() -> None:
    nan = float("nan")
    now = context(0)
    some = measure(replace(now, scores=(0.5, nan, 0.5, 0.1, nan)))
    less = measure(
        replace(now, candidates=CAPTIONS[::2], scores=(0.5, 0.5, nan), caption_vectors=FAR[[0, 2, 4]]),
    )
    assert some.weights == pytest.approx((0.5, 0, 0.5, 0, 0))
    assert less.weights == pytest.approx((0.5, 0.5, 0))
    # Without a caption a video has no meaning, and is a candidate all the same.
    mute = measure(replace(now, candidates=("", *CAPTIONS[1:])))
    assert mute.mapping == measure(now).mapping
    assert mute.text is not None
    assert mute.text < (measure(now).text or 0)
    # Nothing known at all: the level stays, and the record says no more than that.
    for scores in ((), (nan,) * 5):
        for before in ((), (0,), (0, 1), (0, 2)):
            silent = measure(replace(context(*before), scores=scores))
            assert (silent.level, silent.text, silent.mapping) == (before[-1] if before else 0, None, None)
            assert silent.event().detail == f"level={silent.level}"
            assert last_level(context(silent.level).session) == silent.level
    assert question(replace(context(0, 1), scores=())).endswith("?")
    with pytest.raises(ValueError, match="caption_vectors is missing"):
        measure(replace(now, caption_vectors=None))


def test_questions_of_the_three_levels() -> None:
    assert question(context()) == OPEN
    assert question(context(0)) == WHERE  # kitchen or beach
    assert question(context(0, asked=WHERE)) == "What time of day, season or weather does the video you want show?"
    assert question(context(0, 1)) == WHERE  # what the text lacks
    assert question(context(0, 2, text="man walking, beach, red, night, closeup")) == FALLBACK
    assert question(context(0, text="a boat", asked=OPEN)) == FALLBACK


def test_only_plausible_candidates_are_told_apart() -> None:
    now = context(0, scores=(0.5, 0.5, 0.29, 0.1, 0.1))  # the third lies below the mean
    assert question(now) == WHERE
    assert telling_questions(CAPTIONS[:3], [0.4, 0.4, 0.2]) != [WHERE]
    assert telling_questions(["A dog", "A dog"], [0.5, 0.5]) == []
    assert telling_questions(["A dog runs", "A cat runs", "A cat sits"], [0.8, 0.1, 0.1]) == [WHO, WHAT]
    assert telling_questions(["A dog runs", "A cat runs", "A cat sits"], [0.1, 0.1, 0.8]) == [WHAT, WHO]


def test_facets_of_a_caption() -> None:
    assert facets("Young woman in a red coat") == {
        "who": frozenset({"young", "woman"}),
        "what": frozenset(),
        "where": frozenset({"red", "coat"}),
    }


def test_every_question_by_rule_keeps_the_contract() -> None:
    for text in (OPEN, FALLBACK, *ATTRIBUTES.values()):
        assert read_question(text) == text


def test_by_a_model_the_prompt_says_the_aim() -> None:
    asker = UncertaintyQuestion(engine="small")
    assert asker.fingerprint
    assert asker.engine == "small"
    assert not UncertaintyQuestion().fingerprint
    for before, level in (((), 0), ((0,), 1), ((0, 1), 2)):
        request = asker.render(context(*before))
        assert isinstance(request, Request)
        assert (request.role, request.schema, request.turn) == ("question_umivr", None, len(before) + 1)
        assert f"Aim: {AIMS[level]}\n" in request.text
        shown = [caption for caption in CAPTIONS if f"- {caption}\n" in request.text]
        assert shown == list(CAPTIONS[:2] if level == 1 else CAPTIONS)
    assert asker.parse('"Where is it?"', context()) == "Where is it?"
    assert asker.fallback(context()) == FALLBACK
    assert asker.events(context(0)) == UncertaintyQuestion().events(context(0))
    no_caption = replace(context(0, 1), candidates=("", *CAPTIONS[1:]))
    assert "- \n" not in asker.rehearse(no_caption).text


def test_batches_and_their_order_change_no_score(tiny_encoder: Path, tmp_path: Path) -> None:
    """Captions of all sessions are encoded together: no session may notice the others."""
    options = ["--system.retrievers.captions.model", str(tiny_encoder), "--trainer.accelerator", "cpu"]
    options += ["--data.limit", "7", "--protocol.turns", "3"]
    tables = []
    for size in ("1", "3", "7"):
        more = ["--data.batch_size", size]
        outcome = evaluate([ROOT / "recipes" / "umivr_words.yaml"], [*options, *more], run_dir=tmp_path / size)
        assert outcome is not None
        tables.append(read_rows(outcome.folder).drop_columns(list(TIMING)))
    assert all(table.equals(tables[0]) for table in tables)


def test_a_run_records_level_and_scores_in_the_turn_that_the_question_led_to(
    tiny_encoder: Path, tmp_path: Path
) -> None:
    options = ["--system.retrievers.captions.model", str(tiny_encoder), "--trainer.accelerator", "cpu"]
    outcome = evaluate([ROOT / "recipes" / "umivr_words.yaml"], [*options, "--data.limit", "8"], run_dir=tmp_path / "r")
    assert outcome is not None
    level, seen = None, set[int]()
    for row in read_rows(outcome.folder).to_pylist():
        found = [event["detail"] for event in row["events"] if event["kind"] == "uncertainty"]
        assert len(found) == min(row["turn"], 1)
        if not found:
            level = None
            continue
        match = re.fullmatch(r"level=(\d) text=(\d\.\d{3}) mapping=(\d\.\d{3})", found[0])
        assert match, found
        text, mapping = float(match[2]), float(match[3])
        if min(abs(text - 0.5), abs(mapping - 0.2)) > 0.001:  # not decided by what the record rounds off
            assert int(match[1]) == next_level(level or 0, first=row["turn"] == 1, text=text, mapping=mapping)
        level = int(match[1])
        seen.add(level)
        assert (row["question"] in (OPEN, FALLBACK)) or level > 0
    assert 0 in seen
    assert len(seen) > 1
