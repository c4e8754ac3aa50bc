"""EgoCVR on a made-up world of two films: several targets, two galleries, and every oddity of the released files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from covr_lab.data import EgoCVR, describe
from covr_lab.evaluate import evaluate
from covr_lab.results.compare_page import write_comparison
from covr_lab.results.reader import read_rows
from covr_lab.results.report import write_report
from covr_lab.results.schema import TIMING

HEAD = "video_clip_id,target_clip_ids,video_clip_narration,target_clip_narration,instruction,modified_captions\n"
FILMS = {
    "f1-a": ("takes the sieve", "shakes the sieve", "drops it", "takes the sieve"),
    "f2-b": ("walks", "runs", "sits"),
}
CLIPS = [(f"{film}_{10 * at}_{10 * at + 9}", said) for film, line in FILMS.items() for at, said in enumerate(line)]
IDS = [clip for clip, _ in CLIPS]
ROWS: list[tuple[str, list[str], str]] = [  # reference, targets as listed, instruction
    (IDS[0], [IDS[1]], "Shake it."),
    (IDS[1], [IDS[3], IDS[0], IDS[3]], "Take it instead."),
    (IDS[2], [IDS[2], IDS[0], IDS[3]], "Take it, then stop."),  # lists its reference
    (IDS[4], [IDS[4]], "Walk on."),  # lists nothing else
    (IDS[5], [IDS[6], IDS[1]], "Sit down."),  # one of the targets is of the other film
]


def write(folder: Path, rows: Any = ROWS) -> dict[str, str]:
    """The two files: the list of clips has a clip twice, one with another narration, one narration on two lines."""

    def quoted(text: str) -> str:
        return '"' + text.replace('"', '""') + '"'

    lines = [f"{ref},{quoted(str(targets))},#C C x,#C C y,{quoted(edit)},no" for ref, targets, edit in rows]
    (folder / "annotations.csv").write_text(HEAD + "\n".join(lines) + "\n")
    listed = [*CLIPS, CLIPS[0], (IDS[1], "another narration")]
    listed = [(clip, said.replace(" ", "\n", 1) if clip == IDS[2] else said) for clip, said in listed]
    body = [f"{clip},{quoted('#C C ' + said)},{clip.rsplit('_', 2)[0]}" for clip, said in listed]
    (folder / "data.csv").write_text("clip_name,narration_text,video_uid\n" + "\n".join(body) + "\n")
    return {"annotations": str(folder / "annotations.csv"), "clips": str(folder / "data.csv")}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    return write(tmp_path)


def test_rows_targets_and_galleries(files: dict[str, str]) -> None:
    data = EgoCVR(**files, videos_dir=".")
    data.setup("predict")
    assert [target.videos for target in data.targets()] == [
        (IDS[1],),
        (IDS[3], IDS[0]),
        (IDS[0], IDS[3]),
        (IDS[4],),  # masked, so a miss
        (IDS[6], IDS[1]),
    ]
    assert all(query.mask_reference and query.within is None for query in data.queries())
    assert data.gallery.ids == tuple(sorted(IDS))
    assert data.media_path(IDS[0]) == Path("f1-a") / f"{IDS[0]}.mp4"
    assert data.gallery.caption(IDS[2]) == "#C C drops it"
    assert data.gallery.caption(IDS[1]) == "#C C shakes the sieve"  # its first one
    local = EgoCVR(**files, protocol="local")
    assert [query.within for query in local.queries()] == [
        (IDS[1], IDS[2], IDS[3]),
        (IDS[0], IDS[2], IDS[3]),
        (IDS[0], IDS[1], IDS[3]),
        (IDS[5], IDS[6]),
        (IDS[4], IDS[6]),
    ]
    assert (data.gallery_name, data.terms) == ("global", {"relevant": "any"})
    assert (local.gallery_name, local.terms) == ("local", {"relevant": "any", "recalls": [1, 2, 3]})


def test_oddities_are_counted(files: dict[str, str]) -> None:
    facts = describe(EgoCVR(**files, protocol="local"))
    expected = {
        "rows": 5,
        "gallery": 7,
        "rows_with_several_targets": 3,
        "rows_with_reference_as_target": 1,
        "rows_that_list_their_reference_as_target": 2,
        "rows_with_no_other_target": 1,
        "rows_of_the_list_of_clips": 9,
        "clips_with_several_narrations": 1,
        "fewest_clips_searched": 2,
    }
    assert {key: facts[key] for key in expected} == expected


def test_what_shapes_a_run_is_in_the_digest(files: dict[str, str], tmp_path: Path) -> None:
    digest = EgoCVR(**files).digest
    for change in (ROWS[:-1], [*ROWS[:-1], (IDS[5], [IDS[6]], "Sit down.")], [(*ROWS[0][:2], "Shake."), *ROWS[1:]]):
        (tmp_path / "other").mkdir(exist_ok=True)
        assert EgoCVR(**write(tmp_path / "other", change)).digest != digest
    clips = Path(files["clips"])
    clips.write_text(clips.read_text().replace("runs", "races"))
    assert EgoCVR(**files).digest != digest


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("[]", r"annotations.csv:2: 'target_clip_ids' must be a list of ids, not \"\[\]\" \("),
        ("f1-a_0_9", "must be a list of ids"),
        ("[1]", "must be a list of ids"),
        ("['gone_0_9']", r"data.csv: 1 targets are not in the gallery: gone_0_9 \("),
        ("['f1-a_0_9', 'gone_0_9']", "1 targets are not in the gallery: gone_0_9"),
    ],
)
def test_bad_targets_are_refused_in_one_line(listed: str, message: str, files: dict[str, str]) -> None:
    Path(files["annotations"]).write_text(f'{HEAD}{IDS[4]},"{listed}",x,y,Run.,z\n')
    with pytest.raises(ValueError, match=message) as error:
        EgoCVR(**files).setup("predict")
    assert "\n" not in str(error.value)


Play = Callable[..., Path]


@pytest.fixture(scope="module")
def play(tiny_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """A run over the made-up world, captions for videos, one feedback turn."""
    folder = tmp_path_factory.mktemp("egocvr")
    retriever = {
        "class_path": "covr_lab.retrievers.CaptionProxy",
        "init_args": {"model": str(tiny_encoder), "noise": 0},
    }
    done: dict[str, Path] = {}

    def run(protocol: str, name: str = "run", *options: str) -> Path:
        recipe = {
            "data": {"class_path": "covr_lab.data.EgoCVR", "init_args": {**write(folder), "protocol": protocol}},
            "system": {
                "class_path": "covr_lab.modular.ModularSystem",
                "init_args": {
                    "retrievers": {"words": retriever},
                    "opening": "words",
                    "channels": {"t2v": {"retriever": "words", "query": "search"}},
                    "intent": {
                        "class_path": "covr_lab.reasoning.ConcatHistory",
                        "init_args": {"query": "search", "caption": True},
                    },
                    "fusion": {"class_path": "covr_lab.ranking.StaticRRF"},
                },
            },
            "simulator": {"class_path": "covr_lab.simulators.RuleUser"},
            "protocol": {"turns": 1},
        }
        (folder / f"{protocol}.yaml").write_text(yaml.safe_dump(recipe))
        key = f"{protocol}-{name}"
        if key not in done:
            options = ("--trainer.accelerator", "cpu", *options)
            outcome = evaluate([folder / f"{protocol}.yaml"], options, run_dir=folder / key)
            assert outcome is not None
            assert outcome.failed == {}
            done[key] = outcome.folder
        return done[key]

    return run


def opening(folder: Path) -> list[dict[str, Any]]:
    return [row for row in read_rows(folder).to_pylist() if row["turn"] == 0]


def test_global_and_local_ranks_are_those_of_brute_force(play: Play) -> None:
    everywhere, nearby = opening(play("global")), opening(play("local"))
    for number, (whole, local) in enumerate(zip(everywhere, nearby, strict=True)):
        reference, listed, _ = ROWS[number]
        targets = set(listed) - {reference}
        scores = dict(zip(whole["top_ids"], whole["top_scores"], strict=True))
        film = [clip for clip in IDS if clip.rsplit("_", 2)[0] == reference.rsplit("_", 2)[0] and clip != reference]
        assert set(scores) == set(IDS) - {reference}
        assert set(local["top_ids"]) == set(film)
        for row, searched in ((whole, [*scores]), (local, film)):
            found = [scores[target] for target in targets if target in searched]
            best = 1 + sum(scores[clip] > max(found) for clip in searched) if found else len(IDS) + 1
            assert row["target_rank"] == best, (number, row["target"])
        assert local["top_ids"] == [clip for clip in whole["top_ids"] if clip in film]
        assert {whole["target"], *whole["other_targets"]} == (targets or {reference})
    assert everywhere[3]["target_rank"] == nearby[3]["target_rank"] == len(IDS) + 1
    assert [row["n_gallery"] for row in nearby] == [7] * 5


def test_the_loop_stays_in_the_local_gallery_and_stops_at_any_target(play: Play) -> None:
    rows = read_rows(play("local")).to_pylist()
    later = [row for row in rows if row["turn"] == 1]
    assert {row["session_id"] for row in later} >= {"3"}  # its target can never be shown
    for row in later:
        film = ROWS[int(row["session_id"])][0].rsplit("_", 2)[0]
        assert all(clip.startswith(film) and clip != row["reference"] for clip in row["top_ids"])
        assert len(row["top_ids"]) == len(FILMS[film]) - 1
    for first in opening(play("local")):
        solved = first["shown"] in (first["target"], *first["other_targets"])
        assert solved == all(row["session_id"] != first["session_id"] for row in later)


def test_names_say_any_relevant_wherever_they_stand(play: Play, tmp_path: Path) -> None:
    local = play("local")
    metrics = json.loads((local / "metrics.json").read_text())
    ranks = np.array([row["target_rank"] for row in opening(local)])
    assert {f"R@{k} (any relevant)" for k in (1, 2, 3, 5, 10, 50)} <= metrics["per_turn"].keys()
    for k in (1, 2, 3):
        assert metrics["per_turn"][f"R@{k} (any relevant)"][0] == 100 * (ranks <= k).mean()
    assert not [name for name in metrics["per_turn"] if name.startswith(("R@", "M", "BRI")) and "relevant" not in name]
    assert metrics["protocol"]["relevant"] == "any"
    assert json.loads((local / "run.json").read_text())["protocol"]["recalls"] == [1, 2, 3]
    text, paths = write_report([local, play("local", "again", "--data.batch_size", "2")], tmp_path)
    page = next(path for path in paths if path.suffix == ".html").read_text()
    figure = next(path for path in paths if path.suffix == ".svg").read_text()
    for shown in (text, page, figure):
        assert "R@1 (any relevant)" in shown
        assert not [part for part in shown.split("R@1")[1:] if part[:2] not in (" (", "0 ")]
    assert " or <code>" in page  # the further targets of an example session
    assert "chance" not in text  # several targets, and galleries of several sizes
    compared, _ = write_comparison(local, play("local", "again", "--data.batch_size", "2"), tmp_path / "compare")
    assert "BRI (any relevant)" in compared


def test_runs_of_the_two_protocols_are_not_compared(play: Play, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"runs differ in protocol.gallery, protocol.recalls: they do not share a"):
        write_report([play("global"), play("local")], tmp_path)


def test_rows_do_not_depend_on_batches(play: Play) -> None:
    def plain(folder: Path) -> list[dict[str, Any]]:
        return read_rows(folder).drop_columns([*TIMING, "top_scores"]).to_pylist()

    assert plain(play("local")) == plain(play("local", "again", "--data.batch_size", "2"))
