"""Run as a script, this file is one process of the two-process test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torchmetrics import MetricCollection

import covr_lab
from covr_lab.functional import metrics as F
from covr_lab.metrics import TurnBRI, TurnHits, TurnMedianRank, TurnMetric, TurnMRR, TurnRecall

TURNS, GALLERY = 3, 30
RANKS = np.random.default_rng(0).integers(1, GALLERY + 2, (25, TURNS + 1))


def metrics() -> dict[str, TurnMetric]:
    return {
        "recall": TurnRecall(TURNS, GALLERY, k=5),
        "hits": TurnHits(TURNS, GALLERY, k=5),
        "bri": TurnBRI(TURNS, GALLERY),
        "median": TurnMedianRank(TURNS, GALLERY),
        "mrr": TurnMRR(TURNS, GALLERY),
    }


def expected(ranks: F.Ranks) -> dict[str, F.Floats]:
    return {
        "recall": F.recall_at(ranks, 5),
        "hits": F.hits_at(ranks, 5),
        "bri": F.bri_per_turn(ranks),
        "median": F.median_rank(ranks),
        "mrr": F.mean_reciprocal_rank(ranks, GALLERY),
    }


@pytest.mark.parametrize("name", sorted(metrics()))
def test_class_equals_function_in_any_batches(name: str) -> None:
    values = []
    for sizes in ([25], [1, 0, 9, 15], [5] * 5):
        metric = metrics()[name]
        for batch in np.split(RANKS, np.cumsum(sizes)[:-1]):
            metric.update(torch.from_numpy(batch))
        values.append(metric.compute().numpy())
    np.testing.assert_allclose(values[0], expected(RANKS)[name], rtol=1e-12)
    for value in values[1:]:
        np.testing.assert_array_equal(value, values[0])


def test_a_collection_shares_only_what_may_be_shared() -> None:
    """In a first batch of rank 1 every metric agrees with every other; later ones must not inherit that."""
    collection = MetricCollection({**metrics(), "recall1": TurnRecall(TURNS, GALLERY, k=1)})
    first = np.ones((2, TURNS + 1), dtype=np.int64)
    collection.update(torch.from_numpy(first))
    collection.update(torch.from_numpy(RANKS))
    ranks = np.concatenate([first, RANKS])
    values = collection.compute()
    for name, value in {**expected(ranks), "recall1": F.recall_at(ranks, 1)}.items():
        np.testing.assert_allclose(values[name].numpy(), value, rtol=1e-12, err_msg=name)


def test_wrong_turns_and_ranks_are_refused() -> None:
    metric = TurnRecall(TURNS, GALLERY)
    for bad in (RANKS[:, :2], np.zeros_like(RANKS), np.full_like(RANKS, GALLERY + 2)):
        with pytest.raises(ValueError, match="ranks must be"):
            metric.update(torch.from_numpy(bad))


def test_two_processes_equal_one(tmp_path: Path) -> None:
    """The second process has fewer sessions, then none at all."""
    environment = os.environ | {"PYTHONPATH": str(Path(covr_lab.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(2)]
    try:
        assert [process.wait(timeout=120) for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
    for case in ("fewer", "none"):
        for rank in range(2):
            values = json.loads((tmp_path / f"{case}{rank}.json").read_text())
            for name, metric in metrics().items():
                metric.update(torch.from_numpy(RANKS))
                np.testing.assert_array_equal(values[name], metric.compute().numpy(), err_msg=f"{case} {rank} {name}")


def one_process(folder: Path, rank: int) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    for case, split in (("fewer", 18), ("none", 25)):
        values = {}
        for name, metric in metrics().items():
            part = RANKS[:split] if rank == 0 else RANKS[split:]
            if len(part):
                metric.update(torch.from_numpy(part))
            values[name] = metric.compute().tolist()
        (folder / f"{case}{rank}.json").write_text(json.dumps(values))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    one_process(Path(sys.argv[1]), int(sys.argv[2]))
