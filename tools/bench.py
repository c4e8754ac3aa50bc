"""Speed as ratios to peers on the same work, one thread: ``python tools/bench.py [--rounds 5] [--only NAME]``.

Both sides run in turns (A B A B ...) and each round gives one ratio; the table has the median and the range. A ratio
under a bound ``>=`` is peer / ours (times faster), under ``<=`` it is ours / peer. Seconds are CPU seconds; start-up
is wall time. A peer that would take minutes runs on a part of the work and is scaled up, as its line says.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import statistics
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from subprocess import DEVNULL, run
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torchmetrics.retrieval import RetrievalRecall

from covr_lab.data import DemoWorld
from covr_lab.functional.bootstrap import bootstrap_means
from covr_lab.functional.caps import rank_cap
from covr_lab.functional.fusion import reciprocal_rank_fusion
from covr_lab.functional.ranks import target_rank
from covr_lab.modular import Channel, ModularSystem
from covr_lab.protocol import EvalProtocol
from covr_lab.ranking import RankCap, TimeWeightedRRF
from covr_lab.reasoning import ConstraintQuestion, DualChannelIntent, InitialQuery, StateReflector
from covr_lab.retrievers.base import Retriever, similarities
from covr_lab.runner import SessionRunner
from covr_lab.simulators import RuleUser

SESSIONS, POOL, TURNS = 2556, 100, 6  # WebVid-CoVR-Test; entries of a list; turn 0 and five more
WEIGHTS = [age / 5 for age in range(1, 6) for _ in range(2)]  # five turns of two channels
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
Call = Callable[[], object]


class Row(NamedTuple):
    """One line of the table; no ratios when the peer is missing, no bound when nothing is promised."""

    work: str
    ours: str
    peer: str
    ratios: list[float]
    must: str = ""

    def cells(self) -> tuple[str, ...]:
        """The cells, with the verdict on the median ratio."""
        if not self.ratios:
            return (self.work, self.ours, self.peer, "-", self.must, "skipped")
        middle = statistics.median(self.ratios)
        sign, _, bound = self.must.partition(" ")
        holds = not sign or (middle >= float(bound) if sign == ">=" else middle <= float(bound))
        ratio = f"{middle:.3g} ({min(self.ratios):.3g}..{max(self.ratios):.3g})"
        return (self.work, self.ours, self.peer, ratio, self.must, ("holds" if holds else "misses") if sign else "")


def compare(
    work: str, ours: Call, name: str, peer: Call, rounds: int, must: str = "", *, scale: float = 1, wall: bool = False
) -> Row:
    """Time ``ours`` and ``peer`` in turns after one untimed call each; ``peer`` does ``1 / scale`` of the work."""
    clock = time.perf_counter if wall else time.process_time
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 1):
        for call, spent, factor in zip((ours, peer), seconds, (1, scale), strict=True):
            start = clock()
            call()
            if turn:
                spent.append((clock() - start) * factor)
    pairs = zip(*(seconds if must.startswith("<=") else seconds[::-1]), strict=True)
    mine, theirs = (f"{statistics.median(spent) * 1000:.4g} ms" for spent in seconds)
    return Row(work, mine, f"{name}: {theirs}", [above / below for above, below in pairs], must)


def memory(work: str, call: Callable[[], Sequence[npt.NDArray[Any]]], limit: float) -> Row:
    """Peak of what ``call`` allocates beyond what it returns, against ``limit`` MB."""
    tracemalloc.start()
    kept = sum(result.nbytes for result in call())
    extra = (tracemalloc.get_traced_memory()[1] - kept) / 1e6
    tracemalloc.stop()
    return Row(f"{work}, extra memory", f"{extra:.3g} MB", f"allowed: {limit:g} MB", [extra / limit], "<= 1")


def optional(name: str) -> Any:
    """The module of a peer that may be missing, ``None`` then."""
    return importlib.import_module(name) if importlib.util.find_spec(name) else None


def random_lists(count: int, gallery: int) -> npt.NDArray[np.int32]:
    """Lists of distinct random rows, int32 ``(count, POOL)``."""
    rng = np.random.default_rng(0)
    rising = np.sort(rng.integers(0, gallery - POOL + 1, (count, POOL)), axis=1) + np.arange(POOL)
    return rng.permuted(rising, axis=1).astype(np.int32)


def fusion(rounds: int) -> Iterator[Row]:
    """Reciprocal-rank fusion of ten lists a session."""
    work = f"fusion, {SESSIONS} sessions x {len(WEIGHTS)} lists of {POOL}"
    near, far = (random_lists(SESSIONS * len(WEIGHTS), n).reshape(SESSIONS, -1, POOL) for n in (10_000, 100_000))
    plain = near.tolist()

    def dict_loop() -> list[list[int]]:
        orders = []
        for lists in plain:
            sums: dict[int, float] = {}
            for rows, weight in zip(lists, WEIGHTS, strict=True):
                for rank, row in enumerate(rows, 1):
                    sums[row] = sums.get(row, 0.0) + weight / (60 + rank)
            orders.append(sorted(sums, key=sums.__getitem__, reverse=True))
        return orders

    def ours(lists: npt.NDArray[np.int32] = near) -> tuple[npt.NDArray[Any], ...]:
        return reciprocal_rank_fusion(lists, WEIGHTS, current=2)

    yield compare(work, ours, "dict loop", dict_loop, rounds, ">= 5")
    if ranx := optional("ranx"):
        part = 256
        warnings.simplefilter("ignore")  # its compiler warns of its own types
        tables = [
            ranx.Run({str(s): {str(row): -rank for rank, row in enumerate(lists[at], 1)} for s, lists in enumerate(plain[:part])})
            for at in range(len(WEIGHTS))
        ]
        yield compare(
            work,
            ours,
            f"ranx.fuse without weights (x {part} sessions)",
            lambda: ranx.fuse(runs=tables, norm=None, method="rrf", params={"k": 60}),
            rounds,
            ">= 30",
            scale=SESSIONS / part,
        )
    else:
        yield Row(work, "", "ranx: not installed", [], ">= 30")
    yield compare(f"{work}, N = 100k", lambda: ours(far), "ours, N = 10k", ours, rounds, "<= 1.5")
    yield memory(work, ours, 16)


def caps(rounds: int) -> Iterator[Row]:
    """Rank-cap of one video of the top ten to position 11."""
    lists = random_lists(SESSIONS, 10_000)
    at = np.random.default_rng(0).integers(0, 10, (SESSIONS, 1))
    videos, positions = np.take_along_axis(lists, at, 1), np.full((SESSIONS, 1), 11)
    plain = list(zip(lists.tolist(), videos[:, 0].tolist(), strict=True))

    def loop() -> list[list[int]]:
        capped = []
        for rows, video in plain:
            moved = rows.copy()
            place = moved.index(video)
            if place < 10:
                moved.insert(min(11, len(rows)) - 1, moved.pop(place))
            capped.append(moved)
        return capped

    work = f"rank-cap, {SESSIONS} lists of {POOL}"
    yield compare(work, lambda: rank_cap(lists, videos, positions), "python lists", loop, rounds, ">= 5")


def ranks(rounds: int) -> Iterator[Row]:
    """Ranks of targets in full score rows."""
    count, gallery, part = 10_043, 10_000, 50
    work = f"target ranks, {count} x {gallery}"
    scores = torch.rand(count, gallery, generator=torch.Generator().manual_seed(0))
    target = torch.arange(count) % gallery
    relevant = torch.zeros(part, gallery, dtype=torch.bool).scatter_(1, target[:part, None], True).flatten()
    query = torch.arange(part).repeat_interleave(gallery)

    def recall() -> Tensor:
        metric = RetrievalRecall(top_k=10)
        metric.update(scores[:part].flatten(), relevant, indexes=query)
        return metric.compute()  # type: ignore[no-any-return]

    def ours() -> object:
        return target_rank(scores, target)

    name = f"torchmetrics RetrievalRecall (x {part} rows)"
    yield compare(work, ours, name, recall, rounds, ">= 50", scale=count / part)
    yield compare(
        work,
        ours,
        "unchunked counting",
        lambda: (scores > scores.gather(1, target[:, None])).sum(1) + 1,
        rounds,
    )


def bootstrap(rounds: int) -> Iterator[Row]:
    """Paired bootstrap of two systems at every turn."""
