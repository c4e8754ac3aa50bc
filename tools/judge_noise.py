"""How far a judge that errs brings a ranking by comparisons: ``python tools/judge_noise.py [--error 0.2]``.

Each query has its own order of the same candidates, as retrieval leaves them: the best one stands first with
probability ``--recall``, and where it does not, at a later rank drawn in proportion to 1 / rank; the others are
shuffled. The judge knows the true order and errs on a share of its judgements: ``fresh``, every encounter of two
candidates by itself (a sampled judge), or ``fixed``, a pair that is misjudged stays so (a greedy judge, or a cache).
The table has the mean rank of the best candidate, and its R@1, after each pass of the odd-even schedule: in the order
that the schedule left, in that of the Bradley-Terry strengths, and in that of strengths with a prior from the start.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from covr_lab.types import Comparison

Orders = list[list[int]]
Records = list[tuple["Comparison", ...]]
NOISES = ("fresh", "fixed")


def retrieved(queries: int, size: int, recall: float, seed: int) -> Orders:
    """Candidates in the order of retrieval, one list a query; candidate 0 is the best."""
    rng, ranks = np.random.default_rng(seed), np.arange(2, size + 1)
    orders = Orders()
    for _ in range(queries):
        first, later = rng.random() < recall, int(rng.choice(ranks, p=(1 / ranks) / (1 / ranks).sum()))
        others = rng.permutation(np.arange(1, size)).tolist()
        others.insert(0 if first else later - 1, 0)
        orders.append(others)
    return orders


def judged(orders: Orders, noise: str, error: float, passes: int, seed: int) -> Records:
    """All comparisons of the stage, one tuple a query."""
    from covr_lab.demo.judges import NoisyJudge, OrderJudge
    from covr_lab.gallery.gallery import Gallery
    from covr_lab.ranking import PairwiseRank
    from covr_lab.ranking.stages import Work
    from covr_lab.types import Context, Query, RankedList, Reflection, Session

    size = len(orders[0])
    gallery = Gallery.of((f"{candidate:04}" for candidate in range(size)), {})
    judge = NoisyJudge(judge=OrderJudge(order=gallery.ids), error=error, seed=seed, noise=noise)  # type: ignore[arg-type]
    stage = PairwiseRank(judge=judge, pool=size, passes=passes, aggregate="order")
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


def fitted(orders: Orders, records: Records, passes: int, prior: float) -> Orders:
    """The orders of the strengths after ``passes``."""
    import torch

    from covr_lab.functional.bradley_terry import bradley_terry, by_strength, rank_prior
    from covr_lab.functional.pairwise import win_matrix

    size, wins = len(orders[0]), []
    for order, found in zip(orders, records, strict=True):
        place = {candidate: item for item, candidate in enumerate(order)}
        kept = [(place[one.first], place[one.second], one.probability) for one in found if one.encounter < passes]
        wins.append(win_matrix(size, kept, "all"))
    strengths = bradley_terry(torch.stack(wins), prior=prior * rank_prior(size).expand(len(orders), -1))
    items = map(by_strength, strengths.tolist())
    return [[order[item] for item in some] for order, some in zip(orders, items, strict=True)]


def cell(orders: Orders) -> str:
    """Mean rank of the best candidate, and R@1 in percent."""
    ranks = np.array([order.index(0) + 1 for order in orders])
    return f"{ranks.mean():.2f} ({100 * (ranks == 1).mean():.0f})"


def main(argv: Sequence[str]) -> None:
    """Print the table line by line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--passes", type=int, default=10)
    parser.add_argument("--error", type=float, default=0.2, help="share of judgements that are wrong")
    parser.add_argument("--recall", type=float, default=0.4, help="share of queries whose best candidate starts first")
    parser.add_argument("--prior", type=float, default=1.0, help="strength of the prior, as in a recipe")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)
    orders = retrieved(options.queries, options.candidates, options.recall, options.seed)
    records = {noise: judged(orders, noise, options.error, options.passes, options.seed) for noise in NOISES}
    kinds = ("schedule", "Bradley-Terry", f"with prior {options.prior:g}")
    print(f"mean rank of the best of {options.candidates} candidates (R@1 in %), {options.queries} queries, the judge")
    print(f"errs on {100 * options.error:g} % of its judgements\n")
    print(f"| pass | {' | '.join(f'{noise}: {kind}' for noise in NOISES for kind in kinds)} |")
    print(f"|---|{'---|' * len(NOISES) * len(kinds)}")
    for passes in range(options.passes + 1):
        cells = list[str]()
        for found in records.values():
            swept = [left(order, some, passes) for order, some in zip(orders, found, strict=True)]
            cells += [cell(swept), *(cell(fitted(orders, found, passes, prior)) for prior in (0.0, options.prior))]
        print(f"| {passes} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
