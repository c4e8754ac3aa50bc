"""How far a judge that errs brings a ranking by comparisons: ``python tools/judge_noise.py [--error 0.2]``.

Each query has its own order of the same candidates, as retrieval leaves them: their relevance falls evenly with their
true place, and retrieval sees it with normal noise of ``--blur`` places. The clearer it sees, the less is left to gain.
The judge knows the true order and errs on a share of its judgements: ``fresh``, every encounter of two
candidates by itself (a sampled judge), or ``fixed``, a pair that is misjudged stays so (a greedy judge, or a cache).
The table has the mean rank of the best candidate, and its R@1, after each pass of the odd-even schedule: in the order
that the schedule left, in that of the Bradley-Terry strengths, and in that of strengths with a prior from the start,
which needs a larger ridge to have a say.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from covr_lab.types import Comparison

Orders = list[list[int]]
Records = list[tuple["Comparison", ...]]
Noise = Literal["fresh", "fixed"]
NOISES: tuple[Noise, ...] = ("fresh", "fixed")


def retrieved(queries: int, size: int, blur: float, seed: int) -> Orders:
    """Candidates in the order of retrieval, one list a query; candidate 0 is the best, the last one the worst."""
    rng = np.random.default_rng(seed)
    seen = np.arange(size) + blur * rng.standard_normal((queries, size))
    return [list(map(int, order)) for order in seen.argsort(axis=1)]


def judged(orders: Orders, noise: Noise, error: float, passes: int, seed: int) -> Records:
    """All comparisons of the stage, one tuple a query."""
    from covr_lab.demo.judges import NoisyJudge, OrderJudge
    from covr_lab.gallery.gallery import Gallery
    from covr_lab.ranking import PairwiseRank
    from covr_lab.ranking.stages import Work
    from covr_lab.types import Context, Query, RankedList, Reflection, Session

    size = len(orders[0])
    gallery = Gallery.of((f"{candidate:04}" for candidate in range(size)), {})
    judge = NoisyJudge(judge=OrderJudge(order=gallery.ids), error=error, seed=seed, noise=noise)
    repeat: Literal["ask", "remember"] = "ask" if noise == "fresh" else "remember"
    stage = PairwiseRank(judge=judge, pool=size, passes=passes, aggregate="order", repeat=repeat)
    stage.bind(gallery)
    contexts = (Context(Session(Query(str(at), None, "best")), Reflection()) for at in range(len(orders)))
    lists = (RankedList(np.array(order, np.int32)) for order in orders)
    works = [Work(context, None, "best", ranking) for context, ranking in zip(contexts, lists, strict=True)]
    return [refined.comparisons for refined in stage(works, {})]


def left(order: Sequence[int], records: Sequence[Comparison], passes: int) -> list[int]:
    """The order that the schedule left after ``passes``."""
    from covr_lab.functional.pairwise import odd_even

    schedule, said = odd_even(len(order), passes), iter(records)
    try:
        phase = next(schedule)
        while True:
            phase = schedule.send([next(said).outcome == "second" for _ in phase.pairs])
    except StopIteration as end:
        return [order[item] for item in end.value]


def pass_wins(orders: Orders, records: Records, encounter: int) -> Tensor:
    """Wins of one pass ``(queries, n, n)``, items in the order of retrieval."""
    import torch

    from covr_lab.functional.pairwise import win_matrix

    wins = []
    for order, found in zip(orders, records, strict=True):
        place = {candidate: item for item, candidate in enumerate(order)}
        met = [(place[one.first], place[one.second], one.probability) for one in found if one.encounter == encounter]
        wins.append(win_matrix(len(order), met, "all"))
    return torch.stack(wins)


def fitted(orders: Orders, wins: Tensor, ridge: float, prior: float) -> Orders:
    """The orders of the strengths."""
    from covr_lab.functional.bradley_terry import bradley_terry, by_strength, rank_prior

    means = prior * rank_prior(wins.shape[-1]).expand(len(wins), -1)
    items = map(by_strength, bradley_terry(wins, ridge=ridge, prior=means).tolist())
    return [[order[item] for item in some] for order, some in zip(orders, items, strict=True)]


def mean_rank(orders: Orders) -> float:
    """Mean 1-based rank of the best candidate."""
    return sum(order.index(0) + 1 for order in orders) / len(orders)


def cell(orders: Orders) -> str:
    """Mean rank of the best candidate, and R@1 in percent."""
    first = sum(order[0] == 0 for order in orders) / len(orders)
    return f"{mean_rank(orders):.2f} ({100 * first:.0f})"


def main(argv: Sequence[str]) -> None:
    """Print the table line by line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--error", type=float, default=0.2, help="share of judgements that are wrong")
    parser.add_argument("--blur", type=float, default=8.0, help="places by which retrieval errs about a candidate")
    parser.add_argument("--prior", type=float, default=1.0, help="strength of the prior in the last column")
    parser.add_argument("--ridge", type=float, default=1.0, help="ridge in the last column; the other one has 0.001")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    orders = retrieved(options.queries, options.candidates, options.blur, options.seed)
    records = {noise: judged(orders, noise, options.error, options.passes, options.seed) for noise in NOISES}
    weighted = f"prior {options.prior:g}, ridge {options.ridge:g}"
    fits = {"Bradley-Terry": (1e-3, 0.0), weighted: (options.ridge, options.prior)}
    heads = ["pass", *(f"{noise}: {kind}" for noise in NOISES for kind in ("schedule", *fits))]
    wrong = f"{100 * options.error:g} % of judgements wrong"
    print(f"mean rank (R@1 in %) of the best of {options.candidates} candidates, {options.queries} queries, {wrong}\n")
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    wins = {noise: 0 * pass_wins(orders, found, 0) for noise, found in records.items()}
    for passes in range(options.passes + 1):
        ranked = list[Orders]()
        for noise, found in records.items():
            wins[noise] += pass_wins(orders, found, passes - 1)
            ranked.append([left(order, some, passes) for order, some in zip(orders, found, strict=True)])
            ranked += [fitted(orders, wins[noise], *fit) for fit in fits.values()]
        print(f"| {passes} | {' | '.join(map(cell, ranked))} |", flush=True)
    shares = (f"{mean_rank(some) / mean_rank(orders):.2f}" for some in ranked)
    print(f"| of the start | {' | '.join(shares)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
