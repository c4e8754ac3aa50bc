"""Whatever a scorer, a describer or a verifier does wrong: the preceding order stands, and the record says why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from covr_lab.engines.base import Engine, EngineError
from covr_lab.engines.request import Request, Response
from covr_lab.gallery.gallery import Gallery
from covr_lab.ranking.refine import Staged, refine
from covr_lab.ranking.rerank import GatedRerank
from covr_lab.ranking.stages import Refined, Stage, Work
from covr_lab.ranking.verify import VerifyCluster
from covr_lab.scorers.base import Pair
from covr_lab.types import Event, RankedList
from tests.ranking.toy import HashScorer, Judge, Model, Says, TableScorer, work_of

IDS = ("a", "b", "c", "d", "e", "f", "stumble")
SCORES = {"a": 0.1, "b": 0.5, "c": 0.8, "d": 0.75, "e": 0.2, "f": 0.9, "stumble": 0.78}
LONG = "keep the same dog but put it on a beach at night"
Answer = Callable[[Request], str | Response]


def run(
    works: Sequence[Work], scorer: TableScorer, answer: Answer = lambda request: "no", *, more: Sequence[Stage] = ()
) -> list[Staged]:
    stages = [GatedRerank(scorer=scorer, describer=Says()), VerifyCluster(verifier=Judge()), *more]
    for stage in stages:
        stage.load()
        stage.bind(Gallery(IDS, {}))
    return refine(stages, works, {"model": Model(answer)})


def order(staged: Staged) -> str:
    return "".join(IDS[row][0] for row in staged.work.ranking.rows)


def table(pair: Pair) -> float:
    return SCORES[pair.candidate]


def work(name: str, text: str = LONG, rows: Sequence[int] = range(6)) -> Work:
    return work_of(name, text, list(rows), [0.5 - 0.01 * n for n in range(len(rows))])


def test_without_a_fault_the_five_read_are_sorted() -> None:
    (one,) = run([work("q")], TableScorer(table))
    assert order(one) == "cdbeaf"  # f is best, but was never read: c is good enough
    assert one.work.scored is not None
    assert one.work.scored.scores is not None
    np.testing.assert_array_equal(one.work.scored.scores, np.array([0.8, 0.75, 0.5, 0.2, 0.1], np.float32))
    assert one.work.ranking.scores is None  # similarities say nothing of the new order
    assert one.events == ()


def failing(what: str) -> TableScorer:
    """Scores session "bad" wrongly, alone and in company, or everybody ("all")."""

    class Failing(TableScorer):
        def score(self, pairs: Sequence[Pair]) -> list[float]:
            scores, bad = super().score(pairs), [pair.session == "bad" for pair in pairs]
            if any(bad) and what == "raises":
                raise ConnectionError("server\nis gone")
            if any(bad) and what == "loses":
                del scores[bad.index(True)]
            return scores

    def value(pair: Pair) -> float:
        found = {"nan": math.nan, "inf": math.inf}.get(what, 0.1)
        return found if pair.session == "bad" and pair.candidate == "d" else table(pair)

    return Failing(value)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("raises", "ConnectionError: server is gone"),
        ("loses", "ValueError: Failing gave 4 scores for 5 pairs"),
        ("nan", "no score for 'd' (1 of 5 pairs)"),
        ("inf", "no score for 'd' (1 of 5 pairs)"),
    ],
)
def test_a_query_without_all_its_scores_keeps_the_order_of_retrieval(fault: str, why: str) -> None:
    """No late description, no verification; the queries beside it are none the worse."""
    model = Model(lambda request: "yes")
    stages = [GatedRerank(scorer=failing(fault), describer=Says()), VerifyCluster(verifier=Judge())]
    for stage in stages:
        stage.bind(Gallery(IDS, {}))
    good, bad, other = refine(stages, [work("good"), work("bad"), work("other")], {"model": model})
    assert order(bad) == "abcdef"
    assert bad.work.ranking.scores is not None
    assert bad.events == (Event("stage_failed", f"reranking: {why}"),)
    assert (bad.routing["failed"], bad.routing["reranked"], bad.routing["verify_entered"]) == (1, 0, 0)
    assert "bad" not in {request.session_id for asked in model.lists for request in asked}
    assert order(good) == order(other) == "cdbeaf"
    assert good.events == other.events == ()
    (alone,) = refine(stages, [work("bad")], {"model": model})
    assert (alone.events, alone.routing) == (bad.events, bad.routing)


def test_a_failure_in_the_last_pass_gives_the_order_of_retrieval_too() -> None:
    def value(pair: Pair) -> float:
        return table(pair) if pair.text == LONG else math.nan

    (one,) = run([work("q")], TableScorer(value), lambda request: "a dog at night")
    assert order(one) == "abcdef"
    assert one.events == (Event("stage_failed", "reranking: no score for 'a' (5 of 5 pairs)"),)
    assert one.routing["late_description"] == one.routing["failed"] == 1
    assert len(one.calls) == 1


def test_an_ungated_verifier_looks_at_bypassed_queries_and_not_at_failed_ones() -> None:
    clear = work_of("clear", LONG, range(6), [0.9, 0.5, 0.4, 0.3, 0.2, 0.1])
    stages = [GatedRerank(scorer=failing("nan")), VerifyCluster(verifier=Judge(), gated=False, head=3)]
    for stage in stages:
        stage.bind(Gallery(IDS, {}))
    model = Model(lambda request: "yes" if str(request.content[0]).endswith("|c") else "no")
    skipped, bad = refine(stages, [clear, work("bad")], {"model": model})
    assert order(skipped) == "cabdef"
    assert (skipped.routing["gap_skip"], skipped.routing["promoted"]) == (1, 3)
    assert order(bad) == "abcdef"
    assert bad.routing["verify_entered"] == 0
    skipped = run([clear], TableScorer(table))[0]
    assert (order(skipped), skipped.routing["verify_entered"]) == ("abcdef", 0)  # the gate finds no relevance


SHORT = "on a beach"


@pytest.mark.parametrize(
    "answer", ["", "  \n ", "garbled", Response("", error="time-out")], ids=["empty", "blank", "garbled", "error"]
)
def test_without_a_description_the_raw_edit_is_scored(answer: str | Response) -> None:
    """Asked for early, and once more because the two best are close."""
    scorer = TableScorer(table)
    (one,) = run([work("q", SHORT)], scorer, lambda request: answer if request.role == "describe" else "no")
    assert {pair.text for call in scorer.calls for pair in call} == {SHORT}
    assert len(scorer.calls) == 1
    assert order(one) == "cdbeaf"
    assert [event.kind for event in one.events] == ["description_failed"] * 2
    assert [call.request.role for call in one.calls] == ["describe", "describe", "verify", "verify"]


def test_a_description_may_succeed_when_it_is_asked_for_again() -> None:
    said, scorer = iter(["", ' a dog on "a beach" ']), TableScorer(table)
    (one,) = run([work("q", SHORT)], scorer, lambda request: next(said) if request.role == "describe" else "no")
    assert [{pair.text for pair in call} for call in scorer.calls] == [{SHORT}, {'a dog on "a beach"'}]
    assert (one.routing["early_description"], one.routing["late_description"]) == (0, 1)
    assert one.routing["pairs_scored"] == 10


def test_a_description_in_the_words_of_the_edit_scores_nothing_again() -> None:
    scorer = TableScorer(table)
    (one,) = run([work("q")], scorer, lambda request: LONG if request.role == "describe" else "no")
    assert len(scorer.calls) == 1
    assert (one.routing["late_description"], one.routing["pairs_scored"]) == (1, 5)


def test_a_describer_that_raises_is_one_that_says_nothing() -> None:
    scorer = TableScorer(table)
    bad, good = run([work("bad", "stumble"), work("good", SHORT)], scorer, lambda request: "a dog on a beach")
    assert {(pair.session, pair.text) for call in scorer.calls for pair in call} == {
        ("bad", "stumble"),
        ("good", "a dog on a beach"),
    }
    failed = [Event("description_failed", f"{when}: RuntimeError: stumbled") for when in ("early", "late")]
    assert [event for event in bad.events if event.kind == "description_failed"] == failed
    assert order(bad) == order(good) == "cdbeaf"


@pytest.mark.parametrize(
    ("answers", "expected", "kinds", "place"),
    [
        ({"d": "yes"}, "dcsbaef", [], 3),
        ({"c": "yes"}, "csdbaef", [], 1),
        ({"c": "maybe", "stumble": "?", "d": "yes"}, "dcsbaef", ["verification_unclear"] * 2, 3),
        ({"c": "maybe", "stumble": "", "d": "perhaps"}, "csdbaef", ["verification_unclear"] * 3, 0),
        ({"b": "yes"}, "csdbaef", [], 0),  # outside the cluster
        ({"c": Response("", error="time-out"), "stumble": "yes"}, "scdbaef", ["verification_unclear"], 2),
    ],
)
def test_the_first_clear_yes_moves_up(
    answers: Mapping[str, str | Response], expected: str, kinds: list[str], place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Judge, "render", lambda self, context: Request("verify", (str(context.candidate),), "q", 0))
    query = work("q", rows=(0, 1, 2, 3, 6, 4, 5))
    (one,) = run([query], TableScorer(table), lambda request: answers.get(str(request.content[0]), "no"))
    assert order(one) == expected
    assert [event.kind for event in one.events if event.kind != "description_failed"] == kinds
    assert one.routing["promoted"] == place
    assert one.routing["cluster"] == 3


def test_a_verifier_that_raises_is_unclear_and_the_scan_goes_on() -> None:
    """The one beside it, asked in the same list, hears its answer."""
    answer = lambda request: "yes" if str(request.content[0]).endswith("|d") else "no"  # noqa: E731
    bad, good = run([work("bad", rows=(0, 1, 2, 3, 6)), work("good")], TableScorer(table), answer)
    assert order(bad) == "dcsba"
    assert bad.events == (Event("verification_failed", "stumble: RuntimeError: stumbled"),)
    assert bad.routing["verify_calls"] == 3
    assert order(good) == "dcbeaf"
    assert good.events == ()


def test_an_engine_that_is_gone_ends_the_run() -> None:
    def gone(request: Request) -> str:
        raise EngineError("the server is gone")

    with pytest.raises(EngineError, match="gone"):
        run([work("q", SHORT)], TableScorer(table), gone)


class Odd(Stage):
    """Does something wrong to the query "bad"."""

    name = "odd"

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, works: Sequence[Work], engines: Mapping[str, Engine]) -> list[Refined]:
        found = []
        for work in works:
            rows = work.ranking.rows[::-1].copy()
            if work.context.session.query.session_id == "bad":
                if self.what == "raises":
                    raise RuntimeError("out of memory")
                rows = {"repeats": rows[[0, 0, *range(2, len(rows))]], "drops": rows[:-1], "adds": rows + 1}[self.what]
            found.append(Refined(RankedList(rows), routing={"odd": 1.0}))
        return found


@pytest.mark.parametrize("what", ["raises", "repeats", "drops", "adds"])
def test_a_stage_that_breaks_an_order_leaves_the_one_before(what: str) -> None:
    good, bad = run([work("good"), work("bad")], TableScorer(table), more=[Odd(what)])
    assert order(good) == "cdbeaf"[::-1]
    assert order(bad) == "cdbeaf"
    reason = "RuntimeError: out of memory"
    if what != "raises":
        reason = "ValueError: the order that it gave back is no permutation of the one that it got"
    assert bad.events == (Event("stage_failed", f"odd: {reason}"),)
    assert (good.routing["odd"], good.routing["failed"], bad.routing["failed"]) == (1, 0, 1)
    assert list(bad.stages) == ["retrieval", "reranking", "verification", "odd"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 0}, "seed >= 1, page >= 1 and limit >= seed, not 0, 5 and 50"),
        ({"page": 0}, "not 5, 0 and 50"),
        ({"limit": 4}, "not 5, 5 and 4"),
    ],
)
def test_impossible_pages_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GatedRerank(scorer=HashScorer(), **options)


def test_a_head_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"verification\.head must be 2 or more, not 1"):
        VerifyCluster(verifier=Judge(), head=1)


def test_equal_scores_keep_the_order_of_retrieval() -> None:
    (one,) = run([work("q", rows=(5, 3, 1, 0, 2, 4))], TableScorer(lambda pair: 0.75 if pair.candidate != "b" else 0.9))
    assert order(one) == "bfdace"


def test_a_fused_order_without_similarities_is_always_scored() -> None:
    stage = GatedRerank(scorer=TableScorer(table))
    stage.bind(Gallery(IDS, {}))
    fused, single, clear = (work_of("q", LONG, *lists) for lists in ([range(6)], [[0], [0.9]], [[0, 1], [0.9, 0.1]]))
    found = stage([fused, single, clear], {})
    assert [one.routing["gap_skip"] for one in found] == [0, 0, 1]
    assert [one.routing["pool"] for one in found] == [5, 1, 0]
