"""The rule-based user gives away exactly what it should; the scripted user knows no target."""

from __future__ import annotations

import csv
import os
import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from covr_lab.functional.text import content_words
from covr_lab.gallery.gallery import Gallery
from covr_lab.simulators.rules import TEMPLATES, RuleUser
from covr_lab.simulators.scripted import ScriptedUser
from covr_lab.types import Feedback, Query, RankedList, Session, Target, Turn

ASK = "What is in it?"


def show(session: Session, row: int, feedback: Feedback | None = None) -> Session:
    return session.then(Turn(len(session.turns), RankedList(np.array([row], dtype=np.int32)), feedback=feedback))


def user_of(captions: dict[str, str], **rules: float) -> RuleUser:
    user = RuleUser(**rules)  # type: ignore[arg-type]
    user.bind(Gallery.of(captions, captions))
    return user


def one(user: RuleUser, shown: str, target: str, edit: str = "", name: str = "q", ask: str | None = None) -> Feedback:
    session = show(Session(Query(name, None, edit)), user.gallery.row[shown])
    return user.respond([session], [Target(name, target)], [ask])[0]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    if "COVR_DATA" not in os.environ:
        pytest.skip("COVR_DATA is unset: the folder that holds webvid-covr/webvid8m-covr_test.csv")
    with (Path(os.environ["COVR_DATA"]) / "webvid-covr" / "webvid8m-covr_test.csv").open(newline="") as file:
        return random.Random(1).sample(list(csv.DictReader(file)), 300)


def template_of(feedback: Feedback) -> str:
    """The template with the most literal text that fits."""
    fits = [
        text
        for text in TEMPLATES[feedback.action]  # type: ignore[index]
        if re.fullmatch("(.+)".join(map(re.escape, re.split(r"{\w+}", text))), feedback.text)
    ]
    return max(fits, key=lambda text: len(re.sub(r"{\w+}", "", text)))


def play(user: RuleUser, rows: list[dict[str, str]], reverse: bool = False) -> dict[tuple[str, int], Feedback]:
    """Five turns; shown is now the reference, now a random video; every other turn has a question."""
    sessions = {row["pth2"]: Session(Query(row["pth2"], row["pth1"], row["edit"])) for row in rows}
    log: dict[tuple[str, int], Feedback] = {}
    for turn in range(1, 6):
        for row in rows:
            name = row["pth2"]
            other = random.Random(f"{name} {turn}").choice(rows)["pth1"]
            shown = user.gallery.row[row["pth1"] if turn % 2 else other]
            sessions[name] = show(sessions[name], shown, log.get((name, turn - 1)))
        order = sorted(sessions, reverse=reverse)
        ask = ASK if turn > 2 else None
        said = user.respond([sessions[n] for n in order], [Target(n, n) for n in order], [ask] * len(order))
        log |= {(name, turn): feedback for name, feedback in zip(order, said, strict=True)}
    return log


@pytest.mark.parametrize("count", [1, 2, 4])
def test_discloses_exactly_count_words_on_real_captions(rows: list[dict[str, str]], count: int) -> None:
    captions = {row[path]: row[text] for row in rows for path, text in (("pth1", "txt1"), ("pth2", "txt2"))}
    user = user_of(captions, words_per_turn=count)
    log = play(user, rows)
    for row in rows:
        known = set(content_words(row["edit"]))
        for turn in range(1, 6):
            wanted = [word for word in content_words(row["txt2"]) if word not in known]
            feedback = log[row["pth2"], turn]
            told = [word for word in wanted if word in content_words(feedback.text)]
            assert len(told) == min(count, len(wanted)), (row, feedback)
            shown = row["txt1"] if turn % 2 else None
            if shown:  # what the shown caption lacks goes first
                absent = [word for word in wanted if word not in content_words(shown)]
                assert set(absent[:count]) <= set(told)
            assert feedback.text.strip()
            known |= set(told)
    kinds = Counter((turn > 2, feedback.action) for (_, turn), feedback in log.items())
    assert kinds[False, "answer"] == 0
    assert min(kinds[True, "answer"], kinds[False, "rewrite"], kinds[True, "rewrite"], kinds[True, "modify"]) > 50
    assert play(user, rows, reverse=True) == log
    assert play(user_of(captions, words_per_turn=count, seed=1), rows) != log


def test_every_template_is_used(rows: list[dict[str, str]]) -> None:
    captions = {row[path]: row[text] for row in rows for path, text in (("pth1", "txt1"), ("pth2", "txt2"))}
    used = Counter((said.action, template_of(said)) for said in play(user_of(captions), rows).values())
    assert set(used) == {(kind, text) for kind, texts in TEMPLATES.items() for text in texts}
    assert len(set(TEMPLATES["modify"])) >= 14
    assert len(set(TEMPLATES["rewrite"])) >= 10
    assert len(set(TEMPLATES["answer"])) >= 5


def test_template_words_never_give_a_caption_word_away() -> None:
    # every template that is not made of function words alone has a word in this caption
    every = " ".join(text for texts in TEMPLATES.values() for text in texts)
    words = sorted(set(content_words(every)) - {"new", "old"})
    captions = {"t": " ".join(words), "s": "dog", "near": " ".join([*words[1:], "dog"])}
    user = user_of(captions, words_per_turn=1)
    for shown, ask in (("s", None), ("s", ASK), ("near", None)):
        for name in map(str, range(60)):
            said = one(user, shown, "t", name=name, ask=ask)
            assert len(set(words) & set(content_words(said.text))) == 1, said


def test_action_follows_overlap_question_and_target() -> None:
    captions = {"t": "red car in snow", "quarter": "red bus on road", "none": "a dog", "twin": "red car in snow"}
    user = user_of(captions, similarity=0.2, answer_rate=1.0)  # Jaccard of t and quarter: 1 / 5
    assert one(user, "quarter", "t", ask=ASK).action == "modify"
    assert one(user, "none", "t", ask=ASK).action == "answer"
    assert one(user, "none", "t").action == "rewrite"
    assert one(user_of(captions, similarity=0.21), "quarter", "t").action == "rewrite"
    assert one(user_of(captions, answer_rate=0.0), "none", "t", ask=ASK).action == "rewrite"
    assert one(user, "t", "t") == Feedback("stop", "")
    assert one(user, "twin", "t").action == "modify"  # identity stops, a like caption does not
    assert one(user_of(captions, stop=False), "t", "t").action == "modify"
    # only the caption of the target matters, not its id
    assert one(user, "none", "t") == one(user, "none", "twin")


def test_nothing_new_left_repeats_the_difference() -> None:
    user = user_of({"t": "red car in deep snow", "s": "red car in deep sand", "twin": "red car in deep snow"})
    for name in map(str, range(40)):
        assert "snow" in one(user, "s", "t", edit="red car, deep snow", name=name).text
        assert "deep snow" in one(user, "twin", "t", edit="red car, deep snow", name=name).text


def test_wrong_word_stands_where_the_right_one_should() -> None:
    user = user_of({"t": "Young woman cooking rice at home", "s": "Old woman cooking rice at school"}, words_per_turn=1)
    texts = {one(user, "s", "t", edit="young woman cooking rice", name=str(name)).text for name in range(300)}
    assert "replace the school with home" in texts
    assert not any("old" in text for text in texts)


def test_bad_input_names_the_mend() -> None:
    user = user_of({"t": "a dog", "s": " "})
    with pytest.raises(ValueError, match=r"video s: .*annotation file"):
        one(user, "s", "t")
    with pytest.raises(ValueError, match="video gone: "):
        one(user, "t", "gone")
    with pytest.raises(ValueError, match="words_per_turn"):
        RuleUser(words_per_turn=0)
    with pytest.raises(ValueError, match="answer_rate"):
        RuleUser(answer_rate=1.5)


def test_scripted_user_reads_lines_whatever_the_target() -> None:
    user = ScriptedUser({"a": ["first", "second"], "b": []})
    start = [show(Session(Query(name, None, "")), 0) for name in "ab"]
    for targets in ([Target("a", "x"), Target("b", "y")], [Target("a", "y"), Target("b", "x")]):
        said = user.respond(start, targets, [None, ASK])
        assert said == [Feedback("free", "first", "scripted"), Feedback("stop", "", "scripted")]
    later = show(start[0], 0, said[0])
    last = show(later, 0, Feedback("free", "second", "scripted"))
    assert [said.text for said in user.respond([later, last], [], [])] == ["second", ""]
    with pytest.raises(ValueError, match="session c: "):
        user.respond([show(Session(Query("c", None, "")), 0)], [], [])
