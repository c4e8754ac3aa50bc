"""The cascade's routing beside a slow reading of the rules with exact fractions, page by page (dossier, 2.3-2.5)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest

from covr_lab.engines.request import Request
from covr_lab.ranking.refine import Staged, refine
from covr_lab.ranking.rerank import GatedRerank
from covr_lab.ranking.stages import Work
from covr_lab.ranking.verify import VerifyCluster
from covr_lab.scorers.base import Pair
from tests.ranking.toy import Judge, Model, Says, TableScorer, dice, gallery_of, work_of

QUERIES, GALLERY = 200, 90


def relevance(session: str, text: str, row: int) -> Fraction | None:
    """Twentieths; how high they go is a matter of session and text; now and then there is none."""
    ceiling = int(dice("ceiling", session, text).choice([2, 4, 6, 10, 14, 15, 17, 20]))
    roll = dice("score", session, text, row)
    if session.endswith("7") and roll.random() < 0.06:
        return None
    return Fraction(int(ceiling * roll.random() ** 0.5 + 0.3), 20)


def description(session: str, ask: int) -> str:
    """What the model says when it is asked for the ``ask``-th time: some sessions fail once, some always."""
    mood = dice("mood", session).integers(6)
    return "" if mood == 0 or (mood == 1 and ask == 0) else "garbled" if mood == 2 else f"description for {session}"


def verdict(session: str, row: int) -> str:
    return str(dice("verdict", session, row).choice(["yes", "no", "maybe"], p=[0.25, 0.5, 0.25]))


@dataclass
class Told:
    """One query as the rules see it, and what they make of it."""

    name: str
    edit: str
    order: list[int]
    similarities: list[Fraction]
    scored: list[list[tuple[str, int]]] = field(default_factory=list)  # what each call of the scorer holds of it
    descriptions: int = 0
    judged: list[int] = field(default_factory=list)
    result: list[int] = field(default_factory=list)
    routing: dict[str, float] = field(default_factory=dict)


def queries() -> list[Told]:
    found = []
    for number in range(QUERIES):
        name, roll = f"q{number}", dice("query", number)
        size = int(roll.choice([1, 2, 4, 5, 7, 30, 54, 55, 80]))
        order = [int(row) for row in roll.permutation(GALLERY)[:size]]
        steps = sorted((int(step) for step in roll.integers(0, 9, size)), reverse=True)
        # The best two are often exactly a quarter apart, or a bit more.
        steps[0] = steps[min(1, size - 1)] + int(roll.choice([0, 2, 4, 5, 6, 9]))
        edit = " ".join(["don't"] + [f"word{number}"] * int(roll.integers(7, 11)))
        found.append(Told(name, edit, order, [Fraction(step, 20) for step in steps]))
    return found


def read(
    told: Told, *, limit: int, page: int, bypass: bool, early: bool, late: bool, rescore: str, gated: bool
) -> Told:
    """The rules, word by word."""
    told.result = list(told.order)
    told.routing = dict.fromkeys(
        [
            *("gap_skip", "pages", "pool", "expanded", "early_description", "late_description", "reranked"),
            *("pairs_scored", "verify_entered", "cluster", "verify_calls", "promoted", "failed"),
        ],
        0,
    ) | {"seed": min(5, len(told.order))}
    route, ranked = told.routing, None
    if bypass and len(told.order) > 1 and told.similarities[0] - told.similarities[1] > Fraction(1, 4):
        route["gap_skip"] = 1
    else:
        ranked = _rerank(told, limit, page, early, late, rescore)
    if not route["failed"]:
        _verify(told, ranked, gated)
    return told


def _rerank(
    told: Told, limit: int, page: int, early: bool, late: bool, rescore: str
) -> list[tuple[int, Fraction]] | None:
    memory: dict[tuple[str, int], Fraction] = {}
    route, text = told.routing, told.edit

    def ask() -> str | None:
        answer = description(told.name, told.descriptions)
        told.descriptions += 1
        return None if answer in ("", "garbled") else answer

    def score(pool: list[int]) -> bool:
        new = [(text, row) for row in pool if (text, row) not in memory]
        if new:
            told.scored.append(new)
        route["pairs_scored"] += len(new)
        for key in new:
            value = relevance(told.name, *key)
            if value is None:
                route["failed"] = 1
            else:
                memory[key] = value
        return not route["failed"]

    def one_pass() -> list[int] | None:
        pool, pages, whole = told.order[:5], 0, told.order[:limit]
        while True:
            route["pages"], route["pool"], route["expanded"] = pages, len(pool), int(pages > 0)
            if not score(pool):
                return None
            if max(memory[text, row] for row in pool) >= Fraction(7, 10) or pool == whole:
                return pool
            pool, pages = pool + whole[len(pool) : len(pool) + page], pages + 1

    if early and len(re.findall("[a-zA-Z0-9']+", told.edit)) < 10 and (said := ask()):
        text, route["early_description"] = said, 1
    pool = one_pass()
    if pool is None:
        return None
    if late and not route["early_description"]:
        best = [*sorted((memory[text, row] for row in pool), reverse=True), Fraction(0)]
        if best[0] >= Fraction(1, 4) and (best[0] - best[1]) / best[0] < Fraction(1, 2) and (said := ask()):
            text, route["late_description"] = said, 1
            if rescore == "expand":
                pool = one_pass()
            elif not score(pool):
                pool = None
    if pool is None:
        return None
    route["reranked"] = 1
    ranked = sorted(pool, key=lambda row: (-memory[text, row], told.order.index(row)))
    told.result = ranked + [row for row in told.order if row not in ranked]
    return [(row, memory[text, row]) for row in ranked]


def _verify(told: Told, ranked: list[tuple[int, Fraction]] | None, gated: bool) -> None:
    if gated:
        if not ranked or ranked[0][1] < Fraction(15, 100):
            return
        cluster = []
        for row, score in ranked[:10]:
            if (ranked[0][1] - score) / ranked[0][1] >= Fraction(1, 4):
                break
            cluster.append(row)
    else:
        cluster = told.result[:10]
    if len(cluster) < 2:
        return
    told.routing |= {"verify_entered": 1, "cluster": len(cluster)}
    for row in cluster:
        told.judged.append(row)
        if verdict(told.name, row) == "yes":
            told.routing["promoted"] = 1 + told.result.index(row)
            told.result.remove(row)
            told.result.insert(0, row)
            break
    told.routing["verify_calls"] = len(told.judged)


class Lab:
    """The real stages over scripted parts."""

    def __init__(self, gated: bool = True, **options: Any) -> None:
        self.asks: dict[str, int] = {}
        self.scorer, self.model = TableScorer(self._score), Model(self._answer)
        self.stages = [
            GatedRerank(scorer=self.scorer, describer=Says(), **options),
            VerifyCluster(verifier=Judge(), gated=gated),
        ]
        self.gallery = gallery_of(GALLERY)
        for stage in self.stages:
            stage.load()
            stage.bind(self.gallery)

    def run(self, works: list[Work]) -> list[Staged]:
        self.asks.clear()
        return refine(self.stages, works, {"model": self.model})

    def _score(self, pair: Pair) -> float:
        found = relevance(pair.session, pair.text, self.gallery.row[pair.candidate])
        return math.nan if found is None else float(found)

    def _answer(self, request: Request) -> str:
        name = request.session_id
        if request.role == "describe":
            self.asks[name] = self.asks.get(name, -1) + 1
            return description(name, self.asks[name])
        return verdict(name, self.gallery.row[str(request.content[0]).split("|")[-1]])


def works_of(told: list[Told]) -> list[Work]:
    return [work_of(one.name, one.edit, one.order, [float(value) for value in one.similarities]) for one in told]


OPTIONS: Mapping[str, dict[str, Any]] = {
    "paper": {},
    "same pool": {"rescore": "pool"},
    "late alone": {"early": False},
    "early alone": {"late": False},
    "always scored": {"bypass": False},
    "cut page": {"limit": 12, "page": 5},
    "one by one": {"limit": 9, "page": 1},
    "seed alone": {"limit": 5},
    "all verified": {"gated": False},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_routing_of_200_queries_is_that_of_the_rules(options: dict[str, Any]) -> None:
    rules = {"limit": 50, "page": 5, "bypass": True, "early": True, "late": True, "rescore": "expand", "gated": True}
    expected = [read(told, **{**rules, **options}) for told in queries()]
    lab = Lab(**options)
    staged = lab.run(works_of(expected))
    for told, one in zip(expected, staged, strict=True):
        calls = [[pair for pair in call if pair.session == told.name] for call in lab.scorer.calls]
        scored = [[(pair.text, lab.gallery.row[pair.candidate]) for pair in call] for call in calls if call]
        assert scored == told.scored, told.name
        assert one.routing == told.routing, told.name
        assert one.work.ranking.rows.tolist() == told.result, told.name
        requests = [request for asked in lab.model.lists for request in asked if request.session_id == told.name]
        assert [request.role for request in requests] == ["describe"] * told.descriptions + ["verify"] * len(
            told.judged
        )
        judged = [str(request.content[0]) for request in requests if request.role == "verify"]
        assert judged == [f"source|{told.edit}|v{row:03}" for row in told.judged]  # the raw edit, never the description
        assert len(one.calls) == len(requests)


def test_the_200_queries_take_every_way() -> None:
    """Otherwise their agreement would say little."""
    rules = {"limit": 50, "page": 5, "bypass": True, "early": True, "late": True, "rescore": "expand", "gated": True}
    found = [read(told, **rules).routing for told in queries()]
    flags = ("gap_skip", "expanded", "early_description", "late_description", "reranked", "verify_entered", "failed")
    assert all(5 <= sum(route[flag] for route in found) <= 195 for flag in flags)
    assert {route["pages"] for route in found} >= {0, 1, 2, 9}
    assert {route["promoted"] for route in found} >= {0, 1, 2, 3}
    assert {route["pool"] for route in found} >= {0, 1, 2, 4, 5, 50}


def test_the_order_is_a_permutation_and_its_tail_is_untouched() -> None:
    told = queries()
    for work, one in zip(works_of(told), Lab().run(works_of(told)), strict=True):
        before, after = work.ranking.rows.tolist(), one.work.ranking.rows.tolist()
        pool = int(one.routing["pool"])
        assert sorted(after) == sorted(before)
        assert after[pool:] == before[pool:]
        assert list(one.stages) == ["retrieval", "reranking", "verification"]
        assert one.stages["retrieval"].rows.tolist() == before
        assert one.stages["verification"].rows.tolist() == after


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_query_goes_its_way_in_any_batch(size: int) -> None:
    works = works_of(queries())[:100]
    whole = Lab().run(works)
    parts = [one for start in range(0, 100, size) for one in Lab().run(works[start : start + size])]
    backwards = Lab().run(works[::-1])[::-1]
    for other in (parts, backwards):
        for one, same in zip(whole, other, strict=True):
            assert (one.routing, one.events, one.calls) == (same.routing, same.events, same.calls)
            assert [(n, r.rows.tolist()) for n, r in one.stages.items()] == [
                (n, r.rows.tolist()) for n, r in same.stages.items()
            ]


def test_a_batch_of_64_takes_a_call_a_round() -> None:
    """Ten for seed and pages, as many again for those that are described late, one for each look at a candidate."""
    lab = Lab()
    works = works_of([told for told in queries() if not told.name.endswith("7")])[:64]
    staged = lab.run(works)
    assert max(one.routing["pages"] for one in staged) == 9
    final = max(one.routing["pages"] for one in staged if one.routing["late_description"])
    assert len(lab.scorer.calls) <= 10 + 1 + final
    roles = [{request.role for request in asked} for asked in lab.model.lists]
    assert roles[:2] == [{"describe"}, {"describe"}]
    assert len(roles) - 2 == max(one.routing["verify_calls"] for one in staged)
    alone = Lab()
    for work in works:
        alone.run([work])
    assert len(alone.scorer.calls) > 5 * len(lab.scorer.calls)


def test_the_last_pass_over_the_same_pool_is_one_call() -> None:
    lab = Lab(rescore="pool")
    staged = lab.run(works_of([told for told in queries() if not told.name.endswith("7")])[:64])
    assert sum(one.routing["late_description"] for one in staged) > 3
    assert len(lab.scorer.calls) == 11
