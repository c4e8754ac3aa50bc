from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from covr_lab.app.batching import Batcher
from covr_lab.app.desk import LONGEST, Search, Searches
from covr_lab.app.export import export
from covr_lab.app.journal import Journal
from covr_lab.app.limits import Unknown
from covr_lab.app.restore import standing
from covr_lab.chat import Conversation, Desk
from covr_lab.ranking import SimSum
from covr_lab.replay import differences, replay
from covr_lab.results.reader import read_rows, read_run
from covr_lab.results.rows import turn_row
from covr_lab.results.schema import SCHEMA
from covr_lab.types import Feedback, Query, Reflection, Refused, SessionError

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "recovr_words.yaml"
SAID = ["no, not this: it should be red", "make it huge", "it is in a garden", "almost, but in snow", "hmm"]


def ids(search: Search, desk: Desk) -> list[str]:
    return [desk.gallery.ids[row] for row in search.talk.session.turns[-1].result.rows]


def rows_of(search: Search, desk: Desk) -> list[dict[str, Any]]:
    session = search.talk.session
    return [turn_row(session, turn, desk.gallery, None, "optimistic") for turn in session.turns]


def test_not_this_demotes_that_card_and_leaves_the_others(searches: Searches, words: Desk) -> None:
    first = searches.start("me", words.references[0], "make it red")
    before = ids(first, words)
    after = searches.not_this("me", first.name, before[2])
    rest = [video for video in before if video != before[2]]
    assert ids(after, words) == [*rest[:10], before[2], *rest[10:]]  # place 11, as a rejected video on display
    turn = after.talk.session.turns[-1]
    assert [(words.gallery.ids[cap.row], cap.position, cap.reason, cap.fired) for cap in turn.caps] == [
        (before[2], 11, "rejected", True)
    ]
    assert (turn.feedback, turn.channels) == (Feedback("free", "", "human", rejected=(before[2],)), {})
    row = rows_of(after, words)[-1]
    assert (row["rejected"], [cap["video"] for cap in row["caps"]]) == ([before[2]], [before[2]])


def test_a_rejection_reaches_the_lists_that_later_turns_remember(searches: Searches, words: Desk) -> None:
    start = searches.start("me", words.references[0], "make it red")
    spoken = searches.say("me", start.name, "it is in a garden")
    video = ids(spoken, words)[1]
    both = searches.say("me", start.name, "make it huge", rejected=[video])
    turn = both.talk.session.turns[-1]
    [cap] = [cap for cap in turn.caps if words.gallery.ids[cap.row] == video]
    assert (cap.position, cap.reason, cap.scope) == (11, "rejected", "window")
    assert turn.channels
    for ranking in turn.channels.values():
        rank = ranking.rank(words.gallery.row[video])
        assert rank is None or rank >= 11
    alone = searches.say("me", searches.undo("me", start.name).name, "make it huge")
    plain = alone.talk.session.turns[-1].result.rank(words.gallery.row[video])
    capped = turn.result.rank(words.gallery.row[video])
    assert plain is not None
    assert capped is not None
    assert capped > plain


def test_edited_constraints_are_what_the_next_turn_reads(searches: Searches, words: Desk) -> None:
    start = searches.start("me", words.references[0], "make it red")
    said = searches.say("me", start.name, "make it huge, and in snow")
    state = said.talk.session.state
    assert state is not None
    assert "snow" in state.require
    assert "snow" in state.query
    kept = tuple(word for word in state.require if word != "snow")
    turn = searches.say("me", start.name, "", memory=Reflection(require=(*kept, "garden"), avoid=("boat",))).talk
    later = turn.session.turns[-1]
    assert later.state is not None
    assert later.intent is not None
    assert (later.state.require, later.state.avoid) == ((*kept, "garden"), ("boat",))
    assert "snow" not in later.state.query
    assert "garden" in later.state.query
    assert later.intent.search == later.state.query
    assert later.intent.edit == "add garden, remove boat"
    spoken = searches.say("me", start.name, "make it blue", memory=Reflection(query="a blue lamp")).talk.session.state
    assert spoken is not None
    assert "lamp" in spoken.query
    assert "garden" not in spoken.require


def test_a_recipe_without_a_policy_says_that_nothing_is_demoted(words: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(words.system._modules, "policies", torch.nn.ModuleList())
    talk = Conversation.start(words.system, Query("q", words.references[0], "make it red"))
    shown = talk.session.turns[-1].result.rows
    later = talk.say("", rejected=[words.gallery.ids[shown[1]]]).session.turns[-1]
    assert np.array_equal(later.result.rows, shown)
    assert [(event.kind, event.detail) for event in later.events] == [("not_demoted", words.gallery.ids[shown[1]])]


def test_a_fusion_of_similarities_demotes_in_the_order(words: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(words.system._modules, "fusion", SimSum(window=5, pool=100))
    talk = Conversation.start(words.system, Query("q", words.references[0], "make it red"))
    for text in ("", "make it huge"):
        shown = talk.session.turns[-1].result.rows
        talk = talk.say(text, rejected=[words.gallery.ids[shown[1]]])
        turn = talk.session.turns[-1]
        [cap] = [cap for cap in turn.caps if cap.row == shown[1]]
        assert (cap.scope, cap.position) == ("order", 11)
        rank = turn.result.rank(int(shown[1]))
        assert rank is not None
        assert rank >= 11


def test_more_like_this_is_a_search_of_its_own_with_a_parent(searches: Searches, words: Desk) -> None:
    start = searches.start("me", words.references[0], "make it red", participant="p1")
    video = ids(start, words)[3]
    child = searches.more_like("me", start.name, video)
    assert (child.parent, child.participant) == (start.name, "p1")
    assert child.talk.session.query == Query(child.name, video, "")
    assert video not in ids(child, words)
    said = searches.say("me", child.name, "make it huge")
    assert said.turn == 1
    assert searches.get("me", start.name).turn == 0
    assert sorted(searches.mine("me")) == sorted([start.name, child.name])


def test_undo_found_and_what_is_refused(searches: Searches, words: Desk) -> None:
    start = searches.start("me", None, "a red ball in snow")
    name = start.name
    with pytest.raises(SessionError, match="nothing to take back"):
        searches.undo("me", name)
    searches.say("me", name, SAID[0])
    with pytest.raises(SessionError, match="at turn 1, the page shows turn 0"):
        searches.say("me", name, SAID[1], turn=0)
    assert searches.undo("me", name).turn == 0
    with pytest.raises(SessionError, match="'nowhere' is not in the gallery"):
        searches.not_this("me", name, "nowhere")
    with pytest.raises(SessionError, match="nothing was said"):
        searches.say("me", name, "  ")
    with pytest.raises(Refused, match="2,001 characters"):
        searches.say("me", name, "x" * (LONGEST + 1))
    with pytest.raises(SessionError, match=r"no video '\.\./etc/passwd'"):
        searches.start("me", "../etc/passwd", "make it red")
    with pytest.raises(SessionError, match="needs words"):
        searches.start("me", None, " ")
    video = ids(start, words)[4]
    ended = searches.found("me", name, video)
    assert ended.over
    assert ended.talk.session.turns[-1].feedback == Feedback("stop", video, "human")
    with pytest.raises(SessionError, match="is over"):
        searches.say("me", name, SAID[0])
    assert searches.undo("me", name).turn == 0
    failures = [entry for entry in searches.journal.read(name) if entry["verb"] == "failed"]
    assert [entry["error"].split(":")[0] for entry in failures] == [f"session {name}", "nothing was said"]


def test_one_damaged_journal_stops_neither_listings_nor_the_export_of_others(
    searches: Searches, words: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    timing = {"shown": 1.0, "turn": 99, "session": "x", "participant": "y", "recorded": "never"}  # of an older server
    names = [searches.start("me", words.references[0], "make it red", participant=name).name for name in ("p1", "p2")]
    searches.say("me", names[0], "make it huge", timing=timing)
    journal = searches.journal
    with journal.path(names[1]).open("ab") as file:
        file.write(b"{\n")
    assert set(searches.mine("me")) == set(names)  # which reads no more than first lines
    run = tmp_path / "run"
    export(journal, words.folder.record, {}, run, participant="p1")
    [told] = json.loads((run / "people.json").read_text())["timings"]
    said = journal.read(names[0])[-1]
    assert told == {
        "session": names[0],
        "participant": "p1",
        "instance": None,
        "turn": 1,
        "shown": 1.0,
        "recorded": said["at"],
    }
    for keys in ({"participant": "p2"}, {"sessions": names}, {}):
        with pytest.raises(Refused, match=r":2: not a line of JSON"):
            export(journal, words.folder.record, {}, tmp_path / "none", **keys)  # type: ignore[arg-type]
    journal.path(names[1]).write_bytes(b"{\n")
    assert searches.mine("me") == names[:1]
    assert f"left out: {journal.path(names[1])}:1" in caplog.text


@pytest.mark.parametrize("name", ["mine", "nobody's"])
def test_nobody_sees_or_moves_a_search_of_another(searches: Searches, words: Desk, name: str) -> None:
    own = searches.start("me", words.references[0], "make it red")
    target = own.name if name == "mine" else "0" * 16
    for act in (
        lambda: searches.get("you", target),
        lambda: searches.say("you", target, "make it huge"),
        lambda: searches.undo("", target),
        lambda: searches.more_like("you", target, words.gallery.ids[0]),
        lambda: searches.found("you", target, words.gallery.ids[0]),
    ):
        with pytest.raises(Unknown, match=f"no search '{target}'"):
            act()
    assert searches.mine("you") == []
    assert searches.get("me", own.name).turn == 0


def dialogue(searches: Searches, words: Desk, user: int) -> str:
    """Five turns of one user, in which everything that a person can do happens."""
    reference = words.references[user % len(words.references)] if user % 3 else None
    search = searches.start(f"token {user}", reference, "a red ball in snow")
    for turn in range(5):
        rejected = [ids(search, words)[1 + user % 4]] if (turn + user) % 3 == 0 else []
        edited = Reflection(require=("red", "huge")) if (turn + user) % 5 == 4 else None
        text = "" if rejected and user % 2 else SAID[(turn + user) % len(SAID)]
        search = searches.say(f"token {user}", search.name, text, rejected=rejected, memory=edited)
    return search.name


def test_twenty_people_at_once_get_what_each_gets_alone(searches: Searches, words: Desk) -> None:
    """Also: restart, replay of rows, batches, time beside the model."""
    barrier = threading.Barrier(20)

    def user(number: int) -> str:
        barrier.wait()
        return dialogue(searches, words, number)

    with ThreadPoolExecutor(20) as pool:
        names = list(pool.map(user, range(20)))
    sizes = searches.verbs.sizes
    assert (
        sum(size * often for size, often in sizes.items()) == 20 * 6 * 2
    )  # a turn is a step (or start) and a question
    assert searches.verbs.batches < 120
    assert max(sizes) > 4
    assert len(searches.verbs.clock.outside) == 20 * 6
    assert 0 <= searches.verbs.clock.percentile(95) < 0.15

    again = Searches(searches.verbs, words.gallery, searches.journal)  # after a restart
    for number, name in enumerate(names):
        recorded = [entry["row"] for entry in standing(searches.journal.read(name))]
        (alone,) = replay(words.system, recorded)
        fresh = [turn_row(alone, turn, words.gallery, None, "optimistic") for turn in alone.turns]
        assert differences(recorded, fresh) == []
        live, revived = searches.get(f"token {number}", name).talk, again.get(f"token {number}", name).talk
        assert revived.question == live.question
        for turn, other, third in zip(live.session.turns, alone.turns, revived.session.turns, strict=True):
            for one in (other, third):
                assert np.array_equal(turn.result.rows, one.result.rows)
                assert (turn.caps, turn.state, turn.intent, turn.events) == (
                    one.caps,
                    one.state,
                    one.intent,
                    one.events,
                )
                assert (turn.feedback, turn.question) == (one.feedback, one.question)
        undone = again.undo(f"token {number}", name)
        assert undone.talk.question == live.before.question if live.before else False
    assert len({entry["owner"] for name in names for entry in searches.journal.read(name)[:1]}) == 20


def test_exported_rows_replay_to_the_same_rows(searches: Searches, words: Desk, tmp_path: Path) -> None:
    for number in range(3):
        dialogue(searches, words, number)
    name = searches.mine("token 1")[0]
    searches.undo("token 1", name)
    searches.found("token 1", name, words.gallery.ids[7])
    folder = export(searches.journal, words.folder.record, words.gallery.captions, tmp_path / "run")
    table = read_rows(folder.path)
    assert (read_run(folder.path)["n_sessions"], len(table)) == (3, 6 + 6 + 6)
    stored = table.to_pylist()
    sessions = replay(words.system, stored)
    again = [turn_row(s, turn, words.gallery, None, "optimistic") for s in sessions for turn in s.turns]
    assert differences(stored, pa.Table.from_pylist(again, schema=SCHEMA).to_pylist()) == []
    assert differences([{**stored[0], "shown": "another"}], again[:1]) == ["shown"]
    export(searches.journal, words.folder.record, {}, tmp_path / "run")  # brought up to date, not doubled
    assert read_rows(folder.path).equals(table)
    with pytest.raises(ValueError, match="no finished search of participant 'p9'"):
        export(searches.journal, words.folder.record, {}, tmp_path / "none", participant="p9")


def test_a_search_from_before_a_change_stays_on_record_and_does_not_go_on(
    searches: Searches, words: Desk, batcher: Batcher
) -> None:
    start = searches.start("me", words.references[0], "make it red")
    searches.say("me", start.name, "make it huge")
    journal = Journal(searches.journal.folder)
    ids_now = list(words.gallery.ids)
    moved = replace(words.gallery, ids=(*ids_now[1:], ids_now[0]))  # rows stand for other videos
    with pytest.raises(SessionError, match="stays on record and cannot go on"):
        Searches(batcher, moved, journal).get("me", start.name)
    assert len(standing(journal.read(start.name))) == 2
    assert Searches(batcher, words.gallery, journal).get("me", start.name).turn == 1


SERVER = """
import itertools, sys, threading
from pathlib import Path
from covr_lab.app.batching import Batcher
from covr_lab.app.desk import Searches
from covr_lab.app.journal import Journal
from covr_lab.chat import open_desk

recipe, folder, *keys = sys.argv[1:]
desk = open_desk([Path(recipe)], keys, run_dir=Path(folder) / "run", kind="app")
searches = Searches(Batcher(desk.system), desk.gallery, Journal(Path(folder) / "journal"))

def user(number):
    search = searches.start(f"token {number}", desk.references[number], "make it red")
    for turn in itertools.count(1):
        shown = desk.gallery.ids[search.talk.session.turns[-1].result.rows[0]]
        sys.stdout.write(f"{number} {search.name} {search.turn} {shown}\\n")
        sys.stdout.flush()
        search = searches.say(f"token {number}", search.name, ("make it huge", "in snow", "no, blue")[turn % 3])

for number in range(4):
    threading.Thread(target=user, args=(number,)).start()
"""


def test_after_kill_9_every_answered_turn_is_there(
    words: Desk, keys: list[str], batcher: Batcher, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", SERVER, str(RECIPE), str(tmp_path), *keys]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    answered = [process.stdout.readline().split() for _ in range(24)]
    process.kill()
    answered += [line.split() for line in process.stdout.read().splitlines()]
    process.wait()
    searches = Searches(batcher, words.gallery, Journal(tmp_path / "journal"))
    for number, name, turn, shown in answered:
        search = searches.get(f"token {number}", name)
        assert search.turn >= int(turn)
        assert words.gallery.ids[search.talk.session.turns[int(turn)].result.rows[0]] == shown
        later = searches.say(f"token {number}", name, "and in a garden")
        assert later.turn == search.turn + 1
        searches.undo(f"token {number}", name)
    assert len({name for _, name, *_ in answered}) == 4
