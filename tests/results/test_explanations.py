"""Why one video stands above another, and whom the comparisons doubt: from rows made by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from covr_lab.results.compare import Run, load_runs
from covr_lab.results.explained import similarities, similarity_text
from covr_lab.results.explanations import comparisons_table, doubts, doubts_table, explain, explanation, wins
from covr_lab.results.report import write_report
from covr_lab.retrievers.base import Retriever
from covr_lab.types import Refused

Row = dict[str, Any]
EVIL = '<script>alert("x")</script>'


def compared(*said: str) -> list[Row]:
    """``a>b`` reads: "a", shown first, won against "b"; ``a<b``: "b" did; ``a=b``: a tie; ``a?b``: unreadable."""
    outcomes = {">": ("first", 1.0), "<": ("second", 0.0), "=": ("tie", 0.5), "?": ("unparseable", 0.5)}
    found = []
    for number, (first, sign, second) in enumerate(said):
        outcome, probability = outcomes[sign]
        reason = f"reason {number}" if sign in "<>" else ""
        found.append(
            {
                "first": first,
                "second": second,
                "outcome": outcome,
                "probability": probability,
                "reason": reason,
                "encounter": number,
            }
        )
    return found


def row(top: str, *said: str, **more: Any) -> Row:
    return {
        "session_id": "s",
        "turn": 0,
        "top_ids": list(top),
        "comparisons": compared(*said),
        "target": top[0],
        **more,
    }


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        (["a>b"], "direct", "a above b: a beat b 1 to 0 (as the first: reason 0)"),
        (["b<a", "a>b", "b>a"], "direct", "a above b: a beat b 2 to 1 (as the first: reason 1)"),
        (
            ["b>a", "a<b", "a>b"],
            "against",
            "a above b by all comparisons together, though b beat a 2 to 1 (as the second",
        ),
        (["a=b"], "tie", "a above b: they tied, and all comparisons or the order before decided"),
        (["a=b", "a>c", "c>b"], "tie", "a above b: they tied"),
        (
            ["a>c", "d>b", "c>d"],
            "chain",
            "a above b by way of others: a beat c 1 to 0 (as the first: reason 0); "
            "c beat d 1 to 0 (as the first: reason 2); d beat b 1 to 0 (as the first: reason 1)",
        ),
        (["a>c", "c>d", "d>b", "a>e", "e>b"], "chain", "a above b by way of others: a beat e 1 to 0"),
        (["a>c", "c>a", "c>b"], "none", "a above b: no comparison decides between them"),  # a did not win against c
        (["b>c", "c>a"], "none", "a above b: no comparison decides between them"),
        (["a?b", "a?c"], "tie", "a above b: they tied"),
    ],
)
def test_why(said: list[str], kind: str, text: str) -> None:
    (why,) = explain(row("ab", *said))
    assert (why.above, why.below, why.kind) == ("a", "b", kind)
    assert why.text.startswith(text)


LETTERS = "abcdef"
SAID = st.lists(st.tuples(st.permutations(LETTERS).map(lambda some: some[:2]), st.sampled_from("<>=?")), max_size=25)


@settings(max_examples=80, deadline=None)
@given(SAID, st.permutations(LETTERS))
def test_every_pair_has_one_explanation_and_chains_are_shortest_paths_of_wins(
    said: list[tuple[Sequence[str], str]], order: list[str]
) -> None:
    found = row("".join(order), *(f"{a}{sign}{b}" for (a, b), sign in said))
    whys = explain(found, 6)
    if not said:
        assert whys == []
        return
    assert [(why.above, why.below) for why in whys] == list(itertools.pairwise(order))
    known = wins(found["comparisons"])
    steps = {pair: 1.0 for pair, win in known.items() if win.won > win.lost}
    for middle, start, end in itertools.product(LETTERS, repeat=3):  # Floyd and Warshall
        around = steps.get((start, middle), inf) + steps.get((middle, end), inf)
        steps[start, end] = min(steps.get((start, end), inf), around)
    met = {frozenset(pair) for pair, _ in said}
    for why in whys:
        assert all(known[step.winner, step.loser] == step for step in why.steps)
        together = frozenset((why.above, why.below)) in met
        assert (why.kind in ("direct", "against", "tie")) == together
        if not together:
            shortest = steps[why.above, why.below]
            assert (why.kind, len(why.steps)) == (("chain", shortest) if shortest < inf else ("none", 0))


def test_an_explanation_is_all_reasons_of_the_winner_once() -> None:
    found = row("abc", "a>b", "c<a", "b>c", "a>b")
    assert explanation(found, "a") == "reason 0; reason 1; reason 3"
    assert explanation({"comparisons": None}, "a") == ""
    assert explain({"comparisons": None, "top_ids": ["a", "b"]}) == []


def test_doubted_is_who_loses_more_than_half_of_the_decided_comparisons() -> None:
    rows = [
        row("abc", "a>b", "a<b", "a=c", session_id="even"),
        row("abc", "a>b", "b>a", "a<c", session_id="beaten"),
        row("abc", "a<b", "a<c", session_id="always"),
        row("abc", "b>c", "a?b", session_id="outside"),
        row("abc", "a>b", session_id="fine"),
    ]
    found = doubts(rows)
    assert [(one.row["session_id"], one.won, one.lost) for one in found] == [("always", 0, 2), ("beaten", 1, 2)]
    one = row("abc", "a<b", "c>b", session_id="several", other_targets=["b"])  # a right one beats it, c another
    assert [(doubt.won, doubt.lost) for doubt in doubts([one])] == [(0, 1)]
    assert doubts([one | {"other_targets": ["b", "c"]}]) == []
    assert found[0].reasons == ("b as the second: reason 0", "c as the second: reason 1")


@pytest.fixture
def run(make_run: Callable[..., Path], hand: list[Row]) -> Run:
    for one in hand:
        if one["turn"] == 0:
            lost = one["session_id"] == "s3"
            one["top_ids"] = [one["target"], "v1", "v2"]
            one["edit"] = f"{EVIL} {one['session_id']}"
            one["stage_target_rank"] = {"retrieval": 9, "pairwise": one["target_rank"]}
            one["stage_timing"] = {"retrieval": 0.1, "pairwise": 0.2}
            one["routing"] = {"comparisons": 2.0, "compared_anew": 1.0, "swaps": 1.0}
            sides = (one["target"], "v1") if not lost else ("v1", one["target"])
            first = compared("a>b")[0] | {"first": sides[0], "second": sides[1], "reason": EVIL}
            one["comparisons"] = [first, compared("a=b")[0] | {"first": "v1", "second": "v2"}]
    (found,) = load_runs([make_run(rows=hand)])
    return found


def test_tables_of_a_run(run: Run) -> None:
    table = comparisons_table([run])
    assert table.records == (
        {
            "run": "toy",
            "queries": 8,
            "comparisons": 2.0,
            "compared_anew": 1.0,
            "swaps": 1.0,
            "first": 50.0,
            "second": 0.0,
            "tie": 50.0,
            "unparseable": 0.0,
            "doubtful": 1,
        },
    )
    (record,) = doubts_table([run]).records
    assert (record["session_id"], record["won"], record["lost"], record["before"], record["after"]) == (
        "s3",
        0,
        1,
        9,
        8,
    )
    assert doubts_table([run], size=0).rows == ()


def test_the_report_shows_reasons_and_nothing_gets_out_of_them(run: Run) -> None:
    text, (page, *_) = write_report([run.folder])
    html = page.read_text(encoding="utf-8")
    assert "Doubtful queries" in text
    assert "Routing" not in text  # a ranking by comparisons has no gates
    assert EVIL not in html
    assert html.count("Why: ") == html.count("<details>") > 4  # at turn 0 of each example session
    assert "beat v1 1 to 0 (as the first: &lt;script&gt;" in html


class Letters(Retriever):
    """A video or text is how often it has "a" and "b"; an anchor adds its own."""

    fingerprint = "letters"

    def load(self) -> None:
        return

    def encode_videos(self, videos: Sequence[str]) -> Tensor:
        return self.encode_queries(videos, [None] * len(videos))

    def encode_queries(self, texts: Sequence[str], anchors: Sequence[str | None]) -> Tensor:
        both = [f"{text}{anchor or ''}" for text, anchor in zip(texts, anchors, strict=True)]
        counts = torch.tensor([[float(text.count("a")), float(text.count("b"))] for text in both])
        return torch.nn.functional.normalize(counts, dim=1)


def test_similarity_of_explanations_and_queries() -> None:
    won = [compared("a>b")[0] | {"first": "aaa", "second": "bbb", "reason": "a"}]
    base = {"turn": 0, "shown": "aaa", "edit": "b", "reference": None, "comparisons": won}
    rows = [
        {**base, "session_id": "1"},
        {**base, "session_id": "2", "edit": "", "reference": "aabb"},
        {**base, "session_id": "3", "turn": 1},
        {**base, "session_id": "4", "comparisons": None},
        {**base, "session_id": "5", "shown": "bbb"},  # never won: not explained
    ]
    found = similarities(rows, Letters())
    assert [session for session, _, _ in found] == ["1", "2"]
    assert torch.tensor([values[1:] for values in found]).allclose(torch.tensor([[1.0, 0.0], [1.0, 0.5**0.5]]))
    text = similarity_text(found, 4)
    assert "2 of 4 turns 0: explanation 1.000, query 0.354, difference +0.646" in text
    with pytest.raises(Refused, match="no reasons were given"):
        similarity_text([], 4)
