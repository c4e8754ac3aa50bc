from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from covr_lab.chat import Conversation, Desk, cap_text, open_desk
from covr_lab.data import WordWorld
from covr_lab.protocol import EvalProtocol
from covr_lab.reasoning.interview import Interview
from covr_lab.results.folder import RunRefused
from covr_lab.results.reader import densify, read_rows, read_run
from covr_lab.runner import SessionRunner
from covr_lab.simulators import ScriptedUser
from covr_lab.types import Cap, Context, Event, Exchange, Feedback, Probe, Query, Question, Session, SessionError, Turn

ROOT = Path(__file__).resolve().parents[1]
RECIPE, TOOL = ROOT / "recipes" / "recovr_words.yaml", ROOT / "tools" / "chat.py"
WORLD = ["--data.videos", "60", "--data.queries", "30", "--data.gallery", "union", "--trainer.accelerator", "cpu"]
SAID = [
    "no, I do not want this one: it should be red",
    "make it huge",
    "it is in a garden",
    "hmm",
    "almost, but in snow",
]
Talk = Callable[..., str]


@pytest.fixture(scope="module")
def keys(tiny_encoder: Path) -> list[str]:
    return [*WORLD, "--system.retrievers.captions.model", str(tiny_encoder)]


@pytest.fixture(scope="module")
def bound(keys: list[str], tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return open_desk([RECIPE], keys, run_dir=tmp_path_factory.mktemp("chat") / "run", participant="p7")


@pytest.fixture
def desk(bound: Desk) -> Iterator[Desk]:
    """The bound desk, with no dialogues in its folder."""
    yield bound
    for part in bound.folder.turns.glob("*"):
        part.unlink()


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("chat_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def talk(desk: Desk, tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Talk:
    """Type lines, then Ctrl-D; returns what was printed."""

    def run(*lines: str, desk: Desk = desk, columns: int = 100, top: int = 5) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        tool.Terminal(desk, top).run()
        return capsys.readouterr().out

    return run


def stored(desk: Desk) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = read_rows(desk.folder.path).to_pylist()
    return rows


def after(text: str, start: str, lines: int) -> list[str]:
    """The ``lines`` lines that follow the last line ``start``."""
    all_lines = text.splitlines()
    at = len(all_lines) - 1 - all_lines[::-1].index(start)
    return all_lines[at + 1 : at + 1 + lines]


def test_the_same_texts_give_the_rankings_of_evaluation(desk: Desk) -> None:
    data = WordWorld(videos=60, queries=30, gallery="union")
    queries = [*data.queries()[:4], Query("words", None, "a red ball in snow")]
    targets = [replace(data.targets()[0], session_id=query.session_id) for query in queries]
    script = {query.session_id: SAID[shift:] + SAID[:shift] for shift, query in enumerate(queries)}
    runner = SessionRunner(desk.system, ScriptedUser(script), EvalProtocol(turns=9))
    runner.bind(data)
    evaluated = runner.play(queries, targets)
    for query, expected in zip(queries, evaluated, strict=True):
        talk = Conversation.start(desk.system, query)
        for text in script[query.session_id]:
            talk = talk.say("something else").undo().say(text)  # an undone turn leaves no trace
        assert len(talk.session.turns) == len(expected.turns) == 1 + len(SAID)
        for turn, other in zip(talk.session.turns, expected.turns, strict=True):
            assert np.array_equal(turn.result.rows, other.result.rows)
            assert (turn.question, turn.intent, turn.state, turn.caps) == (
                other.question,
                other.intent,
                other.state,
                other.caps,
            )
    assert any(turn.caps for session in evaluated for turn in session.turns)
    assert talk.session.turns[1].feedback == Feedback("free", script["words"][0], "human")


def test_a_dialogue_is_shown_and_stored(talk: Talk, desk: Desk) -> None:
    reference = desk.references[0]
    text = talk(reference, "make it red", *SAID[:2], "/found 3", "", "a ball", "/new", "random", "", "/quit", top=4)
    rows = stored(desk)
    assert [(row["turn"], row["action"]) for row in rows] == [
        (0, None),
        (1, "free"),
        (2, "free"),
        (3, "stop"),
        (0, None),
        (0, None),
    ]
    solved, (words, drawn) = rows[:4], rows[4:]
    assert (solved[0]["reference"], solved[0]["edit"], words["reference"], drawn["edit"]) == (
        reference,
        "make it red",
        None,
        "",
    )
    assert drawn["reference"] in desk.references
    assert [row["feedback"] for row in solved] == [None, *SAID[:2], solved[2]["top_ids"][2]]
    assert {row["participant"] for row in rows} == {"p7"}
    assert {row["source"] for row in rows if row["turn"]} == {"human"}
    assert solved[3]["top_ids"] == solved[2]["top_ids"]
    assert {row["target"] for row in rows} == {None}
    assert reference not in solved[0]["top_ids"]
    assert len({row["session_id"] for row in rows}) == 3
    run = read_run(desk.folder.path)
    assert (run["n_sessions"], run["protocol"]["user"]) == (3, "a person")
    with pytest.raises(ValueError, match="no target rank"):
        densify(read_rows(desk.folder.path), 5)

    # What was printed of turn 2 follows from the stored rows alone.
    before, now = solved[1:3]
    expected = []
    for rank, video in enumerate(now["top_ids"][:4], 1):
        was = before["top_ids"].index(video) + 1
        moved = f"new, was {was}" if was > 4 else "=" if was == rank else f"{was - rank:+d}"
        lists = [f"{name} {ids.index(video) + 1}" for name, ids in now["channel_top_ids"]]
        expected += [f"  {rank}  {desk.gallery.caption(video)}", f"     {video} | {moved} | {', '.join(lists)}"]
    assert after(text, "turn 2", 8) == expected
    [cap] = [cap for cap in before["caps"] if cap["reason"] == "rejected"]
    assert cap["video"] == solved[0]["shown"]
    place = before["top_ids"].index(cap["video"]) + 1
    assert (
        f"rank-cap: {cap['video']} down to 11 in all remembered lists, because you rejected it; now at {place}" in text
    )
    assert f"question: {now['question']}" in text

    talk("", "a ball")
    assert [row["session_id"] for row in stored(desk)][:-1] == [row["session_id"] for row in rows]


def test_undo_why_and_state(talk: Talk, desk: Desk) -> None:
    text = talk(
        desk.references[1], "make it red", SAID[0], "make it blue", "/undo", "/why 2", "/state", "/undo", "/undo"
    )
    [row] = stored(desk)
    assert (row["turn"], row["edit"]) == (0, "make it red")
    assert "nothing to take back" in text

    twin = Conversation.start(desk.system, Query("twin", desk.references[1], "make it red")).say(SAID[0])
    first, second = twin.session.turns
    video = second.result.rows[1]
    at = [int(np.flatnonzero(turn.result.rows == video)[0]) + 1 for turn in (first, second)]
    lists = {name: int(np.flatnonzero(found.rows == video)[0]) + 1 for name, found in second.channels.items()}
    assert set(lists) == {"t2v", "covr"}
    assert second.intent is not None
    assert second.state is not None
    why = [f"turn 0 | rank {at[0]} | covr {at[0]}", f"     reference: {desk.references[1]}", "     edit: make it red"]
    why += [f"turn 1 | rank 2 | t2v {lists['t2v']}, covr {lists['covr']}"]
    why += [f"     search: {second.intent.search}", f"     edit: {second.intent.edit}"]
    assert after(text, f"{desk.gallery.ids[video]}: {desk.gallery.caption(desk.gallery.ids[video])}", 6) == why
    state = [f"running query: {second.state.query}", f"feedback read as: {second.state.satisfaction}"]
    state += [f"{name}: {', '.join(getattr(second.state, name)) or '-'}" for name in ("keep", "require", "avoid")]
    assert after(text, "feedback> /state", 5) == state


def test_undo_brings_back_the_question_and_what_led_to_it(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def events(context: Context) -> tuple[Event, ...]:
        return (Event("asked after", str(len(context.session.turns))),)

    monkeypatch.setattr(desk.system.questioner, "events", events)
    opening = Conversation.start(desk.system, Query("again", desk.references[1], "make it red"))
    assert opening.undo() is opening
    straight = opening.say(SAID[0]).say(SAID[1])
    undone = opening.say(SAID[2]).undo().say(SAID[0]).say(SAID[3]).say(SAID[4]).undo().undo().say(SAID[1])
    for turn, other in zip(straight.session.turns, undone.session.turns, strict=True):
        assert (turn.question, turn.events) == (other.question, other.events)
        assert np.array_equal(turn.result.rows, other.result.rows)
    for number, turn in enumerate(straight.session.turns[1:], 1):
        assert Event("asked after", str(number)) in turn.events


@dataclass(frozen=True)
class Round(Interview):
    """Two questions together, then one about the first answer, if there was one."""

    def following(self, said: Sequence[Exchange]) -> tuple[Probe, ...]:
        if not said:
            return Probe("what is it?", slot="object"), Probe("where is it?", "second half")
        return (Probe(f"what colour is the {said[0].answer}?"),) if len(said) == 2 and said[0].answer else ()


def test_a_round_is_asked_question_by_question(talk: Talk, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    heard, ask, step = list[Feedback](), desk.system.ask, desk.system.step

    def rounds(sessions: Sequence[Session]) -> list[Question | None]:
        asked = ask(sessions)
        return [
            Question("what is it?", interview=Round()) if len(s.turns) < 3 else q
            for s, q in zip(sessions, asked, strict=True)
        ]

    def noting(sessions: list[Session], said: list[Feedback], questions: list[Question | None]) -> list[Turn]:
        heard.extend(said)
        return step(sessions, said, questions)

    monkeypatch.setattr(desk.system, "ask", rounds)
    monkeypatch.setattr(desk.system, "step", noting)
    start = [desk.references[0], "make it red"]
    # A command between two questions changes nothing; a turn that is taken back begins its round anew; a round without
    # an answer is asked again.
    first, again = ["ball", "/state", "in snow", "green"], ["cat", "/undo", "", "", "", "in a garden"]
    text = talk(*start, *first, *again, "dog", "", "huge", "and at night")
    rows = stored(desk)
    assert [row["feedback"] for row in rows] == [None, "in a garden", "dog; huge", "and at night"]
    assert [[tuple(each.values()) for each in row["exchanges"]] for row in rows[1:]] == [
        [("what is it?", "whole", "object", ""), ("where is it?", "second half", "", "in a garden")],
        [
            ("what is it?", "whole", "object", "dog"),
            ("where is it?", "second half", "", ""),
            ("what colour is the dog?", "whole", "", "huge"),
        ],
        [],
    ]
    assert [row["question"] for row in rows[1:3]] == ["what is it?"] * 2
    assert "question, about the second half: where is it?\nanswer> /state\n" in text
    assert text.count("say what should change") == 1
    assert text.count("a round of questions") == 4  # turn 0, turn 1, turn 0 again, turn 1 again
    exchanges = [each.exchanges for each in heard]
    assert [len(each) for each in exchanges] == [3, 2, 3, 0]
    assert heard[0] == Feedback("free", "ball; in snow; green", "human", exchanges=exchanges[0])


def test_a_cap_of_the_order_says_so() -> None:
    cap = Cap(3, 11, "rejected", "order", guard=False, fired=True)
    assert cap_text(cap, "v") == "rank-cap: v down to 11 in the order on display, because you rejected it"


def test_words_find_a_reference(talk: Talk, desk: Desk) -> None:
    captions = desk.gallery.captions
    text = talk("the huge RED robot!", "2", "make it blue")
    listed = [line.split(maxsplit=1)[1] for line in after(text, "reference> the huge RED robot!", 10)]
    shared = {
        video: len({"huge", "red", "robot"} & set(captions[video].lower().strip(".").split())) for video in captions
    }
    best = sorted(shared.values(), reverse=True)[:10]
    videos = [line.split(": ")[0] for line in listed]
    assert [shared[video] for video in videos] == best
    assert stored(desk)[0]["reference"] == videos[1]


def test_refusals_are_sentences_and_the_conversation_goes_on(
    talk: Talk, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, step = desk.system.start, desk.system.step

    def broken_start(queries: list[Query]) -> list[Turn]:
        if "BAD" in queries[0].text:
            raise SessionError("video 'x' cannot be read")
        return start(queries)

    def broken_step(sessions: list[Session], said: list[Feedback], questions: list[Question | None]) -> list[Turn]:
        if "BAD" in said[0].text:
            raise SessionError("video 'y' cannot be read")
        return step(sessions, said, questions)

    monkeypatch.setattr(desk.system, "start", broken_start)
    monkeypatch.setattr(desk.system, "step", broken_step)
    opening = ["words/9999", "/found", "/dance", "", "", "BAD", "random", "red"]
    text = talk(*opening, "BAD", "", "/why 0", "/why", "/why 1000", "/found x", "make it huge")
    for sentence in (
        "no video has the id 'words/9999'",
        "/found needs a dialogue",
        "no command /dance",
        "without a reference the query needs words",
        "this query cannot be answered: video 'x' cannot be read",
        "this feedback cannot be answered: video 'y' cannot be read",
        "say what should change, or /found",
        "/found takes the number of a result, 1 to 59",
    ):
        assert text.count(sentence) == 1, sentence
    assert text.count("/why takes the number of a result") == 3
    assert [row["feedback"] for row in stored(desk)] == [None, "make it huge"]


def test_ctrl_c_keeps_the_turns_that_were_finished(talk: Talk, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*parts: object) -> list[Turn]:
        raise KeyboardInterrupt

    monkeypatch.setattr(desk.system, "step", interrupted)
    assert "stored as" in talk("random", "make it red", "make it huge")
    assert [row["turn"] for row in stored(desk)] == [0]


def test_lines_fit_a_narrow_terminal(talk: Talk, desk: Desk) -> None:
    text = talk("red", "1", "make it blue", *SAID, "/why 3", "/state", columns=40)
    printed = [
        line for line in text.splitlines() if "> " not in line and "stored as" not in line and ".parquet" not in line
    ]
    assert len(printed) > 60
    assert max(map(len, printed)) <= 40


def test_neither_another_recipe_nor_an_evaluation_is_mixed_in(desk: Desk, keys: list[str]) -> None:
    with pytest.raises(RunRefused, match="another recipe"):
        open_desk([RECIPE], [*keys, "--system.fusion.window", "2"], run_dir=desk.folder.path)
    from covr_lab.evaluate import evaluate

    with pytest.raises(RunRefused, match="another recipe"):
        evaluate([RECIPE], keys, run_dir=desk.folder.path)


def test_command_line(keys: list[str], tmp_path: Path) -> None:
    command = [sys.executable, str(TOOL), str(RECIPE), *keys]
    lines = "random\nmake it red\nno, make it b\xe9ige\n/found\n".encode("latin-1")  # not UTF-8: replaced, no end
    done = subprocess.run(command, input=lines, capture_output=True, cwd=tmp_path, timeout=300, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
    assert b"PROXY: caption proxies" in done.stdout
    rows = read_rows(tmp_path / "runs" / "chat-recovr_words").to_pylist()
    assert [row["action"] for row in rows] == [None, "free", "stop"]
    assert rows[1]["feedback"] == "no, make it b\ufffdige"


def test_a_wrong_recipe_is_one_line(tool: ModuleType, keys: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main([str(RECIPE), *keys, "--system.rm0", "all"]) == 1
    error = capsys.readouterr().err
    assert "rm0" in error
    assert error.count("\n") == 1
