"""What must hold of the loop as a whole, whatever the system: no leak of the target, no effect of batches or order."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml

from covr_lab.data import Columns, SessionBatch, Triplet, TripletFile
from covr_lab.data.base import TripletDataModule
from covr_lab.data.words import world
from covr_lab.evaluate import Outcome, evaluate, prepare
from covr_lab.results.reader import read_rows
from covr_lab.results.rows import turn_row
from covr_lab.results.schema import SCHEMA, TIMING
from covr_lab.runner import SessionRunner
from covr_lab.simulators import ScriptedUser, UserSimulator
from covr_lab.types import Action, Feedback, Query, Session, SessionError, Target, Turn

Row = dict[str, Any]
RECIPES = Path(__file__).resolve().parents[2] / "recipes"
SYSTEMS = {  # what differs in how a turn is made: its texts, its query vectors, its fusion, where its caps act
    "recovr": ("recovr_words",),
    "ivr": ("ivr_words",),
    "umivr": ("umivr_words",),  # questions from similarities and caption vectors, answers merged
    "merlin": ("merlin_words",),  # folded query vectors
    "penalty": ("recovr_words", "ablations/penalty_rrf"),
    "cascade": ("recovr_words", "../tests/properties/cascade"),  # orders refined at every turn
    "pairwise": ("recovr_words", "../tests/properties/pairwise"),  # the head of every order by comparisons
    "sim_sum": ("recovr_words", "ablations/sim_sum", "ablations/rm0_both"),  # caps on the order; turn 0 fused, too
}
FIELDS = ("session_id", "reference", "target", "edit", "reference_caption", "target_caption")
COLUMNS = Columns(**{name: name for name in FIELDS})
ANSWER = ("target", "target_rank", "target_ties", "channel_target_rank", "stage_target_rank")
WORLD = world(40, 30, seed=3)  # 30 sessions; the last 10 undo the first 10: 20 references are in the gallery


def recipe_of(system: str) -> list[Path]:
    if system == "umivr":
        pytest.importorskip("HanTa", reason="the extra `tagger`")
    return [RECIPES / f"{name}.yaml" for name in SYSTEMS[system]]


def overrides(encoder: Path, *more: str) -> list[str]:
    return ["--system.retrievers.captions.model", str(encoder), "--trainer.accelerator", "cpu", *more]


def write(path: Path, triplets: Sequence[Triplet]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(asdict(triplet) for triplet in triplets)
    return path


def on_file(annotations: Path, **options: Any) -> Path:
    """An overlay that puts a triplet file in the place of a recipe's data."""
    init = {"annotations": str(annotations), "columns": asdict(COLUMNS), **options}
    path = annotations.with_suffix(".yaml")
    path.write_text(yaml.safe_dump({"data": {"class_path": "covr_lab.data.TripletFile", "init_args": init}}))
    return path


def metrics_of(outcome: Outcome | None) -> dict[str, Any]:
    assert outcome is not None
    found: dict[str, Any] = json.loads((outcome.folder / "metrics.json").read_text())
    return found


def table_of(outcome: Outcome | None) -> pa.Table:
    assert outcome is not None
    return read_rows(outcome.folder).drop_columns(list(TIMING))


def without(rows: Sequence[Row], *columns: str) -> list[Row]:
    return [{key: value for key, value in row.items() if key not in (*TIMING, *columns)} for row in rows]


def play(runner: SessionRunner, data: TripletDataModule, user: UserSimulator | None = None) -> list[Row]:
    """Rows of all sessions of ``data`` in one batch."""
    runner = SessionRunner(runner.system, user or runner.simulator, runner.protocol)
    runner.bind(data)
    return runner.predict_step(SessionBatch(data.queries(), data.targets()))


def script_of(rows: Sequence[Row]) -> dict[str, list[str]]:
    script: dict[str, list[str]] = {}
    for row in rows:
        script.setdefault(row["session_id"], []).extend([row["feedback"]] if row["turn"] else [])
    return script


@pytest.fixture(scope="module", params=SYSTEMS)
def runner(request: pytest.FixtureRequest, tiny_encoder: Path) -> SessionRunner:
    _, _, built = prepare(recipe_of(request.param), overrides(tiny_encoder))
    built.system.load()
    return built


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TripletFile:
    path = write(tmp_path_factory.mktemp("world") / "world.csv", WORLD)
    return TripletFile(annotations=str(path), columns=COLUMNS)


@pytest.mark.parametrize("system", SYSTEMS)
def test_batch_size_changes_no_row(
    system: str, tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = []
    for size in (1, 7, 64):
        monkeypatch.setenv("COVR_CACHE", str(tmp_path / f"cache{size}"))  # every run encodes its own batches
        small = ("--data.videos", "40", "--data.queries", "20", "--data.limit", "8", "--protocol.turns", "2")
        options = overrides(tiny_encoder, *small, "--data.batch_size", str(size))
        tables.append(table_of(evaluate(recipe_of(system), options, run_dir=tmp_path / str(size))))
    assert len(tables[0]) > 8 * 2
    assert tables[0].equals(tables[1])
    assert tables[0].equals(tables[2])


def test_nothing_but_the_score_depends_on_the_targets(runner: SessionRunner, data: TripletFile, tmp_path: Path) -> None:
    """Another target in every annotation row, and a user who says the same: the same dialogue, row by row."""
    script = script_of(play(runner, data))
    assert sum(map(len, script.values())) > len(WORLD)
    moved = WORLD[7:] + WORLD[:7]
    swapped = [
        replace(row, target=other.target, target_caption=other.target_caption)
        for row, other in zip(WORLD, moved, strict=True)
    ]
    assert all(row.target not in (row.reference, old.target) for row, old in zip(swapped, WORLD, strict=True))
    other = TripletFile(annotations=str(write(tmp_path / "swapped.csv", swapped)), columns=COLUMNS)
    rows, again = (play(runner, each, ScriptedUser(script)) for each in (data, other))
    assert without(rows, *ANSWER) == without(again, *ANSWER)
    assert [row["target_rank"] for row in rows] != [row["target_rank"] for row in again]


class Relabelled(ScriptedUser):
    """Reads its script, but calls every utterance by one action."""

    def __init__(self, script: Mapping[str, Sequence[str]], action: Action) -> None:
        super().__init__(script)
        self.action: Action = action

    def respond(
        self, sessions: Sequence[Session], targets: Sequence[Target], questions: Sequence[str | None]
    ) -> list[Feedback]:
        said = super().respond(sessions, targets, questions)
        return [words if words.action == "stop" else replace(words, action=self.action) for words in said]


def test_a_system_reads_words_and_no_labels(runner: SessionRunner, data: TripletFile) -> None:
    script = script_of(play(runner, data))
    labels: tuple[Action, ...] = ("free", "modify", "rewrite", "answer")
    runs = [without(play(runner, data, Relabelled(script, label)), "action") for label in labels]
    assert all(rows == runs[0] for rows in runs[1:])


def test_stored_rows_replay_the_run(runner: SessionRunner, data: TripletFile) -> None:
    """The stored feedback and questions are all that a session needs, one session at a time and without a target."""
    stored = play(runner, data)
    targets = {target.session_id: target for target in data.targets()}
    for query in data.queries():
        rows = [row for row in stored if row["session_id"] == query.session_id]
        session = Session(query).then(runner.system.start([query])[0])
        for row in rows[1:]:
            feedback = Feedback(row["action"], row["feedback"], row["source"])
            (asked,) = runner.system.ask([session])
            assert (asked.text if asked else None) == row["question"]
            session = session.then(runner.system.step([session], [feedback], [asked])[0])
        target, ties = targets[query.session_id], runner.protocol.ties
        again = [turn_row(session, turn, data.gallery, target, ties) for turn in session.turns]
        assert without(again) == without(rows)


def test_rows_survive_the_file_format(runner: SessionRunner, data: TripletFile, tmp_path: Path) -> None:
    """What the parquet parts give back is what the loop made: no value is lost to a column type."""
    rows = play(runner, data)
    back = pa.Table.from_pylist(rows, schema=SCHEMA).to_pylist()
    maps = {field.name for field in SCHEMA if pa.types.is_map(field.type)}
    assert [{key: dict(value) if key in maps else value for key, value in row.items()} for row in back] == rows


def test_order_of_the_annotation_file_changes_no_number(tiny_encoder: Path, tmp_path: Path) -> None:
    shuffled = random.Random(0).sample(WORLD, len(WORLD))
    outcomes = []
    for name, triplets in (("ordered", WORLD), ("shuffled", shuffled)):
        overlay = on_file(write(tmp_path / f"{name}.csv", triplets))
        options = overrides(tiny_encoder, "--data.batch_size", "7")
        outcomes.append(evaluate([RECIPES / "recovr_words.yaml", overlay], options, run_dir=tmp_path / name))
    first, second = map(metrics_of, outcomes)
    assert first == second
    assert table_of(outcomes[0]).equals(table_of(outcomes[1]))


def test_a_run_without_feedback_is_turn_zero(tiny_encoder: Path, tmp_path: Path) -> None:
    recipe = RECIPES / "recovr_words.yaml"
    small = overrides(tiny_encoder, "--data.videos", "40", "--data.queries", "20", "--data.limit", "4")
    none, one = (
        table_of(evaluate([recipe], [*small, "--protocol.turns", str(turns)], run_dir=tmp_path / str(turns)))
        for turns in (0, 1)
    )
    assert none.equals(one.filter(pc.equal(one["turn"], 0)))


def test_a_session_that_cannot_start_is_a_miss(tiny_encoder: Path, tmp_path: Path) -> None:
    """A reference without a caption: one row that says why, the others untouched, the denominator as it was."""
    broken = [replace(row, reference_caption="") if row.session_id == "4" else row for row in WORLD[:20]]
    whole = on_file(write(tmp_path / "whole.csv", WORLD[:20]))
    overlay = on_file(write(tmp_path / "broken.csv", broken))
    recipe = RECIPES / "recovr_words.yaml"
    good = table_of(evaluate([recipe, whole], overrides(tiny_encoder), run_dir=tmp_path / "good"))
    tables = []
    for size in ("1", "64"):
        options = overrides(tiny_encoder, "--data.batch_size", size)
        outcome = evaluate([recipe, overlay], options, run_dir=tmp_path / size)
        tables.append(table_of(outcome))
        assert outcome is not None
        assert list(outcome.failed) == ["4"]
        assert WORLD[4].reference is not None
        assert WORLD[4].reference in outcome.failed["4"]
    assert tables[0].equals(tables[1])
    rows = tables[0].to_pylist()
    (failed,) = [row for row in rows if row["session_id"] == "4"]
    assert (failed["turn"], failed["target_rank"], failed["top_ids"]) == (0, failed["n_gallery"] + 1, [])
    assert [row for row in rows if row["session_id"] != "4"] == [
        row for row in good.to_pylist() if row["session_id"] != "4"
    ]
    metrics = metrics_of(outcome)
    hits = sum(row["target_rank"] == 1 for row in rows if row["turn"] == 0)
    assert metrics["n"] == 20
    assert metrics["per_turn"]["R@10"][0] == pytest.approx(
        100 * sum(row["target_rank"] <= 10 for row in rows if row["turn"] == 0) / 20
    )
    assert metrics["per_turn"]["R@1"][0] == pytest.approx(100 * hits / 20)
    assert metrics["failures"]["rows_with_error"] == 1


def test_a_failure_in_a_later_turn_keeps_the_ranking(
    runner: SessionRunner, data: TripletFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = play(runner, data)
    bad = next(row["session_id"] for row in before if row["turn"] == 3)
    step: Callable[..., list[Turn]] = runner.system.step

    def stumble(sessions: Sequence[Session], *rest: Any) -> list[Turn]:
        if any(session.query.session_id == bad and len(session.turns) == 2 for session in sessions):
            raise SessionError("the third turn failed")
        return step(sessions, *rest)

    monkeypatch.setattr(runner.system, "step", stumble)
    after = play(runner, data)
    assert [row for row in without(after) if row["session_id"] != bad] == [
        row for row in without(before) if row["session_id"] != bad
    ]
    rows = [row for row in after if row["session_id"] == bad]
    assert [row["error"] for row in rows] == [None, None, "the third turn failed"]
    for column in ("top_ids", "target_rank", "shown"):
        assert rows[2][column] == rows[1][column]


def test_a_target_outside_the_gallery_is_a_miss_at_every_turn(tiny_encoder: Path, tmp_path: Path) -> None:
    lost = WORLD[2].target
    ids = sorted({row.target for row in WORLD} - {lost})
    (tmp_path / "ids.txt").write_text("\n".join(ids) + "\n")
    overlay = on_file(write(tmp_path / "world.csv", WORLD), gallery_file=str(tmp_path / "ids.txt"), allow_missing=True)
    outcome = evaluate([RECIPES / "recovr_words.yaml", overlay], overrides(tiny_encoder), run_dir=tmp_path / "run")
    rows = table_of(outcome).to_pylist()
    turns = metrics_of(outcome)["protocol"]["turns"] + 1
    assert [row["target_rank"] for row in rows if row["target"] == lost] == [len(ids) + 1] * turns
    assert all(row["target_rank"] <= len(ids) for row in rows if row["target"] != lost)
    assert metrics_of(outcome)["n"] == len(WORLD)
    assert metrics_of(outcome)["failures"]["sessions_missing_target"] == 1


def test_masking_hides_the_reference_and_never_a_target(
    runner: SessionRunner, data: TripletFile, tmp_path: Path
) -> None:
    edge = WORLD[0]
    same = replace(edge, session_id="same", reference=edge.target, reference_caption=edge.target_caption)
    file = write(tmp_path / "same.csv", [*WORLD, same])
    extended = TripletFile(annotations=str(file), columns=COLUMNS)
    assert Query("same", edge.target, edge.edit, mask_reference=False) in extended.queries()
    user = ScriptedUser({query.session_id: ["make it red", "no, a boat", "closer"] for query in extended.queries()})
    rows = play(runner, extended, user)
    assert len(rows) == 4 * 31
    kept = [row for row in rows if row["session_id"] == "same"]
    assert all(edge.target in row["top_ids"] and row["target_rank"] <= len(extended.gallery) for row in kept)
    masked = [row for row in rows if row["reference"] in extended.gallery.row and row["session_id"] != "same"]
    assert len(masked) == 4 * 20
    assert not any(row["reference"] in row["top_ids"] for row in masked)
    assert all(len(row["top_ids"]) == len(extended.gallery) - 1 for row in masked)


def test_refined_turns_are_permutations_and_say_which_way_they_took(tiny_encoder: Path, tmp_path: Path) -> None:
    """Turn 0 starts from the order of a run without stages, whose videos beyond the scored head keep their places."""
    small = overrides(tiny_encoder, "--data.videos", "80", "--data.queries", "40", "--protocol.turns", "2")
    tables = {
        name: table_of(evaluate(recipe_of(name), small, run_dir=tmp_path / name)) for name in ("recovr", "cascade")
    }
    plain, staged = (
        {row["session_id"]: row for row in table.to_pylist(maps_as_pydicts="strict") if row["turn"] == 0}
        for table in tables.values()
    )
    assert plain.keys() == staged.keys()
    for name, row in staged.items():
        before, pool = plain[name], int(row["routing"]["pool"])
        assert list(row["stage_target_rank"]) == ["retrieval", "reranking", "verification"]
        assert row["stage_target_rank"]["retrieval"] == before["target_rank"]
        assert row["stage_target_rank"]["verification"] == row["target_rank"]
        assert sorted(row["top_ids"]) == sorted(before["top_ids"])
        assert row["top_ids"][pool:] == before["top_ids"][pool:]
        assert (row["top_scores"] is None) == (row["routing"]["reranked"] == 1 or row["routing"]["promoted"] > 1)
    later = [row for row in tables["cascade"].to_pylist(maps_as_pydicts="strict") if row["turn"]]
    assert later
    assert all(row["routing"]["gap_skip"] == 0 and row["routing"]["reranked"] == 1 for row in later)
    flags = ("gap_skip", "expanded", "early_description", "verify_entered")
    assert all(0 < sum(row["routing"][flag] for row in staged.values()) < len(staged) for flag in flags)
