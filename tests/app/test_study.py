from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from covr_lab.app.batching import Overloaded
from covr_lab.app.desk import Search, Searches
from covr_lab.app.export import export
from covr_lab.app.journal import Journal
from covr_lab.app.limits import Unknown
from covr_lab.app.study import Study, Task, choose, drawn
from covr_lab.chat import Desk
from covr_lab.evaluate import evaluate
from covr_lab.replay import differences
from covr_lab.results.compare import load_runs
from covr_lab.results.people import write_people
from covr_lab.results.reader import read_rows
from covr_lab.types import Query, Refused, SessionError

ROOT = Path(__file__).resolve().parents[2]
TYPED = [  # what people wrote, turn by turn; a person who sees the target stops
    ["no, I want a red one", "it should be huge", "and in a garden"],
    ["make it blue", "", "almost, but it should be bouncing"],
    ["somewhere with snow please", "not this at all, a lamp", "bigger"],
]
MakeStudy = Callable[..., Study]


@pytest.fixture
def make_study(searches: Searches, words: Desk, tmp_path: Path) -> MakeStudy:
    """A study as a server finds it when it starts: only the disk is shared with the one before."""

    def make(size: int = 10, **settings: object) -> Study:
        fresh = Searches(searches.verbs, words.gallery, Journal(searches.journal.folder), targets=searches.targets)
        journal = Journal(tmp_path / "study")
        return Study(fresh, drawn(words.pairs, size), journal, **settings)  # type: ignore[arg-type]

    return make


def test_every_instance_is_given_equally_often() -> None:
    instances = [f"i{number}" for number in range(100)]
    load, had = Counter[str](), {f"p{number}": list[str]() for number in range(5)}
    for _ in range(20):
        for participant, own in had.items():
            name = choose(instances, load, own, 0, participant)
            assert name is not None
            own.append(name)
            load[name] += 1
    assert sorted(load) == sorted(instances)  # 5 people x 20 of 100 instances: each exactly once (ReCoVR, D.3)
    assert set(load.values()) == {1}

    few, load, people = instances[:7], Counter[str](), {f"p{number}": list[str]() for number in range(9)}
    rng = random.Random(0)
    while open_to := [name for name, own in people.items() if len(own) < len(few)]:
        participant = rng.choice(open_to)
        name = choose(few, load, people[participant], 3, participant)
        assert name is not None
        assert load[name] == min(load[one] for one in few if one not in people[participant])
        people[participant].append(name)
        load[name] += 1
    assert all(sorted(own) == sorted(few) for own in people.values())
    assert choose(few, load, few, 3, "p1") is None
    assert {choose(few, {}, [], seed, "p1") for seed in range(30)} == set(few)


def test_two_instances_with_a_reload_and_a_restart_in_between(make_study: MakeStudy, words: Desk) -> None:
    study = make_study(each=2)
    with pytest.raises(Unknown, match="has not agreed in this browser"):
        study.task("t", "p1")
    study.consent("t", "p1")
    study.consent("t", "p1")
    with pytest.raises(Unknown, match="'p1' has not agreed"):
        study.consent("another browser", "p1")
    first = study.task("t", "p1")
    assert first is not None
    query, target = study.pairs[first.instance]
    assert (first.target, first.number, first.left) == (target.video, 1, 3)
    assert (first.search.talk.session.query.reference, first.search.talk.session.query.text) == (
        query.reference,
        query.text,
    )
    study.say("t", "p1", first.instance, "make it red", timing={"shown": 1.0, "first_key": 3.5, "sent": 6.0})
    study = make_study(each=2)  # the server was killed
    again = study.task("t", "p1")
    assert again is not None
    assert (again.instance, again.left, again.search.turn) == (first.instance, 2, 1)
    with pytest.raises(SessionError, match="at turn 1, the page shows turn 0"):
        study.say("t", "p1", first.instance, "a click that came twice", turn=0)
    shown = words.gallery.ids[again.search.talk.session.turns[-1].result.rows[0]]
    second = study.found("t", "p1", first.instance, shown)
    assert second is not None
    assert second.instance != first.instance
    with pytest.raises(SessionError, match="not open any more"):
        study.found("t", "p1", first.instance, shown)
    for left, text in ((2, "make it huge"), (1, "in snow"), (0, "no")):
        assert study.say("t", "p1", second.instance, text).left == left
    with pytest.raises(SessionError, match="the 3 turns are over"):
        study.say("t", "p1", second.instance, "one more")
    assert study.leave("t", "p1", second.instance) is None
    assert make_study(each=2).task("t", "p1") is None
    assert study.finished() == sorted(f"{task.instance}@p1" for task in (first, second))
    said = study.searches.journal.read(first.search.name)
    assert [entry.get("timing") for entry in said[1:]] == [{"shown": 1.0, "first_key": 3.5, "sent": 6.0}, {}]
    verbs = [entry["verb"] for entry in study.journal.read("p1")]
    assert verbs == ["consent", "assigned", "ended", "assigned", "ended"]


def test_the_target_changes_what_is_recorded_and_nothing_that_is_shown(
    searches: Searches, words: Desk, tmp_path: Path
) -> None:
    query, target = words.pairs[0]
    name, other = query.session_id, words.pairs[1][1]
    stored = []
    for wanted in (target, other):
        journal = Journal(tmp_path / wanted.video.replace("/", "-"))
        mine = Searches(searches.verbs, words.gallery, journal, targets={name: wanted})
        mine.begin("t", query, participant="p1", instance=name)
        for text in ("make it huge", "no, a lamp"):
            mine.say("t", name, text)
        stored.append([entry["row"] for entry in journal.read(name)])
    changed = differences(*stored)
    assert {"target", "target_rank"} <= set(changed) <= {"target", "target_rank", "channel_target_rank"}


def test_a_kill_between_found_and_its_record_loses_nothing(make_study: MakeStudy, words: Desk) -> None:
    study = make_study(each=2)
    study.consent("t", "p1")
    first = study.task("t", "p1")
    assert first is not None
    study.searches.found("t", first.search.name, first.target)  # and here it died
    second = make_study(each=2).task("t", "p1")
    assert second is not None
    assert (second.instance != first.instance, second.number) == (True, 2)
    assert study.finished() == [first.search.name]


def test_an_instance_whose_search_cannot_begin_or_go_on_makes_way_for_the_next(
    make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = make_study(size=4, each=2)
    study.consent("t", "p1")
    begin, tried = study.searches.begin, list[str]()

    def once(token: str, query: Query, *, participant: str, instance: str) -> Search:
        tried.append(instance)
        if len(tried) == 1:
            raise SessionError("its video is gone")
        return begin(token, query, participant=participant, instance=instance)

    monkeypatch.setattr(study.searches, "begin", once)
    task = study.task("t", "p1")
    assert task is not None
    assert (task.instance, task.number, task.instance != tried[0]) == (tried[1], 1, True)
    study.say("t", "p1", task.instance, "make it red")

    again = make_study(size=4, each=2)  # with other videos: what was begun cannot go on
    gallery = again.searches.gallery
    again.searches.gallery = replace(gallery, ids=(*gallery.ids[1:], gallery.ids[0]))
    later = again.task("t", "p1")
    assert later is not None
    assert (later.number, later.instance in tried) == (1, False)
    ended = [entry for entry in study.journal.read("p1") if entry["verb"] == "ended"]
    assert [(entry["instance"], entry["outcome"]) for entry in ended] == [(name, "failed") for name in tried]
    assert ended[0]["error"] == "its video is gone"
    assert "cannot go on" in ended[1]["error"]
    assert again._load() == {later.instance: 1}
    last = again.leave("t", "p1", later.instance)
    assert last is not None
    assert (last.number, again.leave("t", "p1", last.instance)) == (2, None)
    assert again.finished() == sorted(f"{one.instance}@p1" for one in (later, last))


def test_an_instance_can_be_left_without_its_search(make_study: MakeStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    study = make_study(each=2)
    study.consent("t", "p1")
    task = study.task("t", "p1")
    assert task is not None

    def busy(*_: object) -> Search:
        raise Overloaded("too many people ask at once")

    monkeypatch.setattr(study.searches, "get", busy)
    with pytest.raises(Overloaded):
        study.task("t", "p1")
    assert [entry["verb"] for entry in study.journal.read("p1")] == ["consent", "assigned"]
    with pytest.raises(Unknown):
        study.leave("another browser", "p1", task.instance)
    following = study.leave("t", "p1", task.instance)
    assert following is not None
    assert following.number == 2
    with pytest.raises(SessionError, match="not open any more"):
        study.leave("t", "p1", task.instance)


def test_one_answer_more_than_the_turns_is_neither_taken_nor_exported(
    make_study: MakeStudy, words: Desk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    study = make_study(each=2, turns=1)
    study.consent("t", "p1")
    first = study.task("t", "p1")
    assert first is not None
    for turn in (1, -1):
        with pytest.raises(SessionError, match=f"at turn 0, the page shows turn {turn}: reload it"):
            study.say("t", "p1", first.instance, "make it red", turn=turn)
        with pytest.raises(SessionError, match=f"the page shows turn {turn}"):
            study.found("t", "p1", first.instance, first.target, turn=turn)
    assert study.say("t", "p1", first.instance, "make it red", turn=0).left == 0
    second = study.leave("t", "p1", first.instance)
    assert second is not None
    study.leave("t", "p1", second.instance)
    study.searches.say("t", first.search.name, "one more")  # as a server did that did not check
    journal, record = study.searches.journal, words.folder.record
    folder = export(journal, record, {}, tmp_path / "run", sessions=study.finished(), turns=1).path
    assert {row["session_id"] for row in read_rows(folder).to_pylist()} == {second.search.name}
    why = f"session {first.search.name}: turn 2 lies beyond the 1 of the study"
    assert json.loads((folder / "people.json").read_text())["skipped"] == [why]
    assert f"left out: {why}" in caplog.text
    with pytest.raises(ValueError, match="no finished search within 1 turns"):
        export(journal, record, {}, tmp_path / "none", sessions=[first.search.name], turns=1)


def test_a_damaged_participant_is_left_out_of_the_balance_and_stops_an_export(make_study: MakeStudy) -> None:
    study = make_study(size=2)
    for name in ("p1", "p2"):
        study.consent(name, name)
        assert study.task(name, name) is not None
    study.journal.path("p1").write_bytes(b"{\n")
    assert sorted(study._load().values()) == [1]
    assert study.task("p2", "p2") is not None
    with pytest.raises(Refused, match=":1: not a line"):
        study.finished()


def test_what_a_drop_out_left_goes_to_others_after_a_while(make_study: MakeStudy) -> None:
    now = [0.0]
    study = make_study(size=2, patience=100.0, clock=lambda: now[0])
    taken = {}
    for person in ("p1", "p2"):
        study.consent(person, person)
        task = study.task(person, person)
        assert task is not None
        taken[person] = task.instance
    assert taken["p1"] != taken["p2"]
    study.leave("p2", "p2", taken["p2"])  # p1 never comes back; p2 goes on with the other instance
    now[0] = 1000.0
    study.consent("p3", "p3")
    third = study.task("p3", "p3")
    assert third is not None
    assert third.instance in taken.values()
    loads = study._load()
    assert loads[taken["p2"]] == 1 + (third.instance == taken["p2"])
    back = study.task("p1", "p1")
    assert back is not None
    assert back.instance == taken["p1"]  # who comes back finds it as it was


def person(study: Study, name: str, words: Desk) -> None:
    """Someone who types a script, sees the target among ten cards, and once in a while marks the second as wrong."""
    study.consent(name, name)
    task: Task | None = study.task(name, name)
    while task is not None:
        lines = TYPED[(task.number + len(name)) % len(TYPED)]
        while True:
            top = [words.gallery.ids[row] for row in task.search.talk.session.turns[-1].result.rows[:10]]
            at = 10.0 * task.search.turn
            times = {"shown": at, "first_key": at + 2.0, "sent": at + 5.0}
            if task.target in top:
                task = study.found(name, name, task.instance, task.target, timing=times)
                break
            if not task.left:
                task = study.leave(name, name, task.instance)
                break
            text = lines[task.search.turn]
            rejected = [] if text else [top[1]]
            task = study.say(name, name, task.instance, text, rejected=rejected, timing=times)


def test_ten_instances_typed_by_two_people_become_a_report(
    make_study: MakeStudy, words: Desk, keys: list[str], tmp_path: Path
) -> None:
    study = make_study(size=10, each=5)
    for name in ("ann", "bo"):
        person(study, name, words)
    folder = export(
        study.searches.journal,
        words.folder.record,
        words.gallery.captions,
        tmp_path / "people",
        sessions=study.finished(),
        turns=3,
    ).path
    [human] = load_runs([folder])
    assert (human.summary["n"], human.run["protocol"]["turns"]) == (10, 3)
    rows = read_rows(folder).to_pylist()
    assert {row["instance"] for row in rows} == {query.session_id for query, _ in drawn(words.pairs, 10)}
    assert {(row["source"], row["participant"]) for row in rows if row["turn"]} == {("human", "ann"), ("human", "bo")}
    assert any(row["rejected"] for row in rows)

    found = {task for row in rows for task in [row["instance"]] if row["action"] == "stop" and row["feedback"]}
    found |= {row["instance"] for row in rows for event in row["events"] or () if event["kind"] == "found"}
    assert 0 < len(found) < 10

    keys = [*keys, "--wandb.mode", "disabled"]
    spoken = ["--simulator", "covr_lab.simulators.RecordedUser", "--simulator.run", str(folder)]
    replayed = evaluate([ROOT / "recipes" / "recovr_words.yaml"], [*keys, *spoken], run_dir=tmp_path / "again")
    assert replayed is not None
    assert len(replayed.failed) == 20  # of these instances the people had none
    again = {(row["session_id"], row["turn"]): row for row in read_rows(replayed.folder).to_pylist()}
    for row in rows:
        if row["action"] != "stop":
            other = again[row["instance"], row["turn"]]
            personal = {"session_id", "participant", "instance", "source", "events"}
            assert set(differences([row], [other])) <= personal
    others = []
    for recipe in ("recovr_words", "ivr_words"):
        outcome = evaluate([ROOT / "recipes" / f"{recipe}.yaml"], keys, run_dir=tmp_path / recipe)
        assert outcome is not None
        others.append(outcome.folder)
    text, (page, png, svg) = write_people([folder, *others], tmp_path / "report")
    lines = [line.split() for line in text.splitlines()]
    [first] = [line for line in lines if line[:2] == ["R@1", "people"]]
    ranks = {row["instance"]: row["target_rank"] for row in rows}  # rows come in turns: the last one stays
    assert first[-4] == f"{10.0 * sum(rank == 1 for rank in ranks.values()):.1f}"
    for path, name in ((others[0], "recovr_words"), (others[1], "ivr_words")):
        [line] = [line for line in lines if line[:2] == ["R@1", name]]
        opening = [row for row in read_rows(path).to_pylist() if row["session_id"] in ranks and row["turn"] == 0]
        assert len(opening) == 10
        assert line[2] == f"{10.0 * sum(row['target_rank'] == 1 for row in opening):.1f}"
    [said] = [line for line in lines if line[:2] == ["people", "10"]]
    assert said[-2:] == [f"{10.0 * len(found):.1f}", "100.0"]
    written = [row["feedback"].split() for row in rows if row["action"] == "free" and row["feedback"]]
    assert said[3] == f"{sum(map(len, written)) / len(written):.1f}"
    assert [line[3:] for line in lines if line[:2] == ["people", "ann"]] == [["2.0", "3.0"]]
    assert min(path.stat().st_size for path in (page, png, svg)) > 5000
    assert "bootstrap of instances" in svg.read_text(encoding="utf-8")

    tool = [
        sys.executable,
        str(ROOT / "tools" / "report.py"),
        str(folder),
        str(others[0]),
        "--out",
        str(tmp_path / "r"),
    ]
    done = subprocess.run(tool, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "People and others by turn" in done.stdout) == (0, True)
