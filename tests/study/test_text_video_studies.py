"""The studies of systems that start from words alone: what is compared may be compared."""

from __future__ import annotations

from pathlib import Path

from covr_lab.recipe import load
from covr_lab.study.spec import Study, read_study

STUDIES = Path(__file__).resolve().parents[2] / "recipes" / "studies"


def study(name: str) -> Study:
    return read_study([STUDIES / f"{name}.yaml"])


def test_a_published_number_stands_beside_the_metric_set_and_turn_it_is_of() -> None:
    paper = study("ivr_paper")
    turns = {(run.system, run.condition): load(run.recipes)["protocol"]["turns"] for run in paper.plan()}
    assert len(paper.published) > 100
    for label, scalar in paper.published.items():
        ours = scalar["ours"]
        place = ours.get("condition", paper.main)
        assert label.endswith(f", {ours['metric']}")
        assert place == paper.main or label.startswith(place.split(",")[0].split(" ")[0]), label
        assert 0 <= ours["turn"] <= turns[ours["system"], place], label
        if "turn" in label:
            assert f"turn {ours['turn']}," in label


def test_no_table_claim_or_number_mixes_the_two_sets_of_avsd() -> None:
    paper = study("ivr_paper")
    sources = {scalar["ours"].get("condition"): scalar["source"] for scalar in paper.published.values()}
    assert sources["AVSD (IVR)"].startswith("IVR")
    assert sources["AVSD (UMIVR)"].startswith("UMIVR")
    for item in (*paper.tables, *paper.figures):
        assert not {"AVSD (IVR)", "AVSD (UMIVR)"} <= set(item.conditions), item.name
    played = {condition: load(run.recipes)["data"] for run in paper.plan() if "AVSD" in (condition := run.condition)}
    subsets = {condition: data["init_args"]["subset"] for condition, data in played.items()}
    assert subsets == {"AVSD (IVR)": "ivr", "AVSD (UMIVR)": "umivr", "AVSD (UMIVR), stops": "umivr"}


def test_a_rank_cap_meets_users_who_stop_alone() -> None:
    """One who goes on with the target on display is taken to reject it."""
    for name in ("msvd_captions", "ivr_paper"):
        for run in study(name).plan():
            document = load(run.recipes)
            stops = document["simulator"].get("init_args", {}).get("stop", False)
            if "--simulator.stop" in run.overrides:
                stops = run.overrides[run.overrides.index("--simulator.stop") + 1] == "true"
            assert stops or not document["system"]["init_args"].get("policies"), str(run)
