"""Ranking by comparisons: orders by hand, what counts, what fails, and what must not matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from covr_lab.demo.judges import NoisyJudge, OrderJudge
from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Request, Response
from covr_lab.functional.pairwise import most
from covr_lab.gallery.gallery import Gallery
from covr_lab.modular import ModularSystem
from covr_lab.ranking import PairwiseRank, StaticRRF
from covr_lab.ranking.channels import Channel
from covr_lab.ranking.refine import Staged, refine
from covr_lab.ranking.stages import Work
from covr_lab.reasoning import Explainer, ModelJudge, PairJudge, Verdict
from covr_lab.types import Context, Event, Feedback, Query, Session
from tests.ranking.test_fold import IDS, Dice
from tests.ranking.test_stages_in_a_system import Both
from tests.ranking.toy import DiceJudge, Model, dice, gallery_of, work_of

FIRST, SECOND, TIE = Verdict("first", 1.0), Verdict("second", 0.0), Verdict("tie", 0.5)


class Says(PairJudge):
    """By a function of both ids; it cannot read where that is ``None``, and writes down whom it was asked about."""

    def __init__(self, says: Callable[[str, str], Verdict | None]) -> None:
        super().__init__()
        self.says, self.seen = says, list[tuple[str, str, int]]()

    def render(self, context: Context) -> Verdict:
        pair = str(context.candidate), str(context.rival)
        self.seen.append((*pair, context.encounter))
        found = self.says(*pair)
        if found is None:
            raise ParseError("unreadable")
        return found


def better(order: str) -> Callable[[str, str], Verdict]:
    return lambda one, two: FIRST if order.index(one) < order.index(two) else SECOND


def letters(count: int) -> Gallery:
    return Gallery.of("abcdefghijklmnopqrstuvwxyz"[:count], {})


def ranked(
    judge: PairJudge, works: Sequence[Work], gallery: Gallery, engine: Any = None, **settings: Any
) -> list[Staged]:
    stage = PairwiseRank(judge=judge, **settings)
    stage.load()
    stage.bind(gallery)
    return refine([stage], works, {"model": engine} if engine else {})


def one(judge: PairJudge, rows: Sequence[int] = range(4), **settings: Any) -> Staged:
    return ranked(judge, [work_of("q", "text", rows)], letters(len(rows)), **settings)[0]


def order(staged: Staged) -> list[int]:
    return staged.work.ranking.rows.tolist()


@pytest.mark.parametrize("schedule", ["odd_even", "sliding", "merge"])
@pytest.mark.parametrize("aggregate", ["order", "bradley_terry"])
def test_a_consistent_judge_gets_its_order_and_the_tail_stays(schedule: str, aggregate: str) -> None:
    rows = [3, 7, 1, 0, 5, 2, 6, 4]
    staged = one(Says(better("fdbahgec")), rows, pool=5, passes=5, schedule=schedule, aggregate=aggregate)
    assert order(staged) == [5, 3, 1, 0, 7, 2, 6, 4]  # f d b a h; then as before
    assert staged.routing["comparisons"] == len(staged.comparisons) <= most(schedule, 5, 5)  # type: ignore[arg-type]


def test_the_record_of_a_pass_by_hand() -> None:
    judge = Says(lambda first, second: SECOND if (first, second) in {("b", "a"), ("b", "c")} else FIRST)
    staged = one(judge, [1, 0, 2, 3], passes=1)
    assert judge.seen == [("b", "a", 0), ("c", "d", 0), ("b", "c", 0)]
    rows = [(c.first, c.second, c.outcome, c.probability, c.encounter) for c in staged.comparisons]
    assert rows == [(1, 0, "second", 0.0, 0), (2, 3, "first", 1.0, 0), (1, 2, "second", 0.0, 0)]
    numbers = {"comparisons": 3, "compared_anew": 3, "swaps": 2, "ties": 0, "unparseable": 0, "passes": 1, "failed": 0}
    assert staged.routing == numbers
    assert order(staged) == [2, 0, 3, 1]  # c won twice, a once, d lost to the best, b lost twice
    assert order(one(judge, [1, 0, 2, 3], passes=1, aggregate="order")) == [0, 2, 1, 3]


@pytest.mark.parametrize("settings", [{"passes": 0}, {"ties": "first"}, {"ties": "keep"}, {"ties": "half"}])
def test_without_a_decision_the_order_stays(settings: dict[str, Any]) -> None:
    rows = [2, 0, 3, 1]
    staged = one(Says(lambda first, second: TIE), rows, **settings)
    assert order(staged) == rows
    assert staged.routing["ties"] == staged.routing["comparisons"] == 3 * settings.get("passes", 10)


def test_one_win_among_ties_sinks_nobody_else() -> None:
    """All tie but for one pair: those who stood higher stay so, which strengths over fewer wins do not grant."""
    judge = Says(lambda first, second: TIE if {first, second} != {"f", "g"} else better("gf")(first, second))
    assert order(one(judge, list(range(8)))) == [0, 1, 2, 3, 4, 6, 5, 7]
    assert order(one(judge, list(range(8)), ties="half")) != [0, 1, 2, 3, 4, 6, 5, 7]


def test_one_candidate_or_none_needs_no_judge() -> None:
    judge = Says(lambda first, second: None)
    for rows in ([], [0]):
        assert order(one(judge, rows)) == rows
    assert judge.seen == []


@pytest.mark.parametrize(("rule", "wins"), [("first", [1.0, 0.0]), ("half", [0.5, 0.5]), ("drop", [0.0, 0.0])])
def test_what_an_unreadable_answer_counts(rule: str, wins: list[float]) -> None:
    """Two candidates, one meeting: the strengths tell what was counted."""
    staged = one(Says(lambda first, second: None), [0, 1], passes=1, unparseable=rule)
    assert order(staged) == [0, 1]
    assert staged.routing["unparseable"] == 1
    assert [(c.outcome, c.probability) for c in staged.comparisons] == [("unparseable", 0.5)]
    stage = PairwiseRank(judge=Says(lambda first, second: None), passes=1, unparseable=rule)  # type: ignore[arg-type]
    stage.bind(letters(2))
    contest = stage._contest(work_of("q", "text", [0, 1]))
    stage._judge([contest], {})
    contest.settle()
    shares = [share for _, _, share in stage._results(contest)]
    assert [sum(shares), len(shares) - sum(shares)] == wins


def test_the_released_rule_favours_who_stands_higher() -> None:
    """The judge never speaks of b and c: as wins of the higher one they hide what a and d say."""
    said = better("dcba")
    judge = Says(lambda first, second: None if {first, second} & {"b", "c"} else said(first, second))
    assert order(one(judge, unparseable="first")) == [0, 1, 2, 3]
    assert order(one(judge, unparseable="first", aggregate="order")) == [0, 1, 2, 3]


def test_meetings_count_all_or_once() -> None:
    """a beats b at once, and loses to it in all later passes."""
    answers = iter([FIRST, *[SECOND] * 20])
    assert order(one(Says(lambda first, second: next(answers)), [0, 1], passes=2, counts="unique")) == [0, 1]
    answers = iter([FIRST, SECOND, FIRST, FIRST])
    assert order(one(Says(lambda first, second: next(answers)), [0, 1], passes=4, counts="all")) == [1, 0]


def test_probabilities_are_soft_wins() -> None:
    """One sure win of a against two narrow ones of b: 1 to 2 in hard wins, 1.85 to 1.15 in soft ones."""
    for shares, expected in (((0.95, 0.45, 0.55), [0, 1]), ((1.0, 0.0, 1.0), [1, 0])):
        said = iter([Verdict("first" if share > 0.5 else "second", share) for share in shares])
        staged = one(Says(lambda first, second, said=said: next(said)), [0, 1], passes=3)  # type: ignore[misc]
        assert [c.outcome for c in staged.comparisons] == ["first", "second", "first"]
        assert order(staged) == expected


def test_a_prior_decides_where_the_judge_contradicts_itself() -> None:
    """One meeting each way says nothing: the rank before does, and it yields to one clear judgement."""
    staged = one(Says(lambda first, second: SECOND), [1, 0], passes=2, ridge=1.0, prior=1.0)
    assert [c.outcome for c in staged.comparisons] == ["second", "second"]
    assert order(staged) == [1, 0]
    assert order(one(Says(lambda first, second: SECOND), [1, 0], passes=1, ridge=1.0, prior=0.1)) == [0, 1]
    assert order(one(Says(lambda first, second: SECOND), [1, 0], passes=1, ridge=1.0, prior=9.0)) == [1, 0]


@pytest.mark.parametrize("counts", ["all", "unique"])
def test_a_remembered_pair_is_not_asked_again_and_counts_again(counts: str) -> None:
    asked, remembered = Says(better("abcd")), Says(better("abcd"))
    one_by_one = one(asked, [2, 3, 0, 1], passes=6, counts=counts)
    cached = one(remembered, [2, 3, 0, 1], passes=6, counts=counts, repeat="remember")
    assert order(cached) == order(one_by_one) == [0, 1, 2, 3]
    assert cached.comparisons == one_by_one.comparisons
    assert len(remembered.seen) == len({pair[:2] for pair in asked.seen}) < len(asked.seen)
    assert cached.routing["compared_anew"] == len(remembered.seen)
    assert cached.routing["comparisons"] == one_by_one.routing["comparisons"] == 18


def test_a_pair_in_other_places_is_asked_again() -> None:
    """As in the released cache, whose key is the ordered pair: a judge that always takes the second one shows it."""
    judge = Says(lambda first, second: SECOND)
    one(judge, [0, 1], passes=4, repeat="remember")
    assert [pair[:2] for pair in judge.seen] == [("a", "b"), ("b", "a")]


def batch(count: int, size: int = 9) -> list[Work]:
    return [work_of(f"q{n}", f"text {n % 3}", dice("rows", n).permutation(size).tolist()) for n in range(count)]


@pytest.mark.parametrize("schedule", ["odd_even", "sliding", "merge"])
@pytest.mark.parametrize("aggregate", ["order", "bradley_terry"])
def test_a_query_gives_the_same_in_any_batch_and_order(schedule: str, aggregate: str) -> None:
    works = [*batch(12), *(replace(work, ranking=work.ranking.head(4)) for work in batch(3))]
    settings = {"pool": 6, "passes": 3, "schedule": schedule, "aggregate": aggregate}
    whole = ranked(DiceJudge(), works, gallery_of(9), **settings)
    turned = ranked(DiceJudge(), works[::-1], gallery_of(9), **settings)[::-1]
    for work, here, there in zip(works, whole, turned, strict=True):
        (alone,) = ranked(DiceJudge(), [work], gallery_of(9), **settings)
        assert order(here) == order(there) == order(alone)
        assert here.comparisons == there.comparisons == alone.comparisons
        assert sorted(order(here)) == sorted(work.ranking.rows.tolist())
        assert order(here)[6:] == work.ranking.rows.tolist()[6:]
    assert any(order(here) != work.ranking.rows.tolist() for work, here in zip(works, whole, strict=True))


def test_new_names_for_the_videos_give_the_same_order() -> None:
    """A judge that knows a true order, and errs by pair: rows and ids are names, only places and answers count."""
    size = 12
    for seed in range(5):
        rename = dice("names", seed).permutation(size)
        wrong = {(a, b) for a in range(size) for b in range(size) if dice(seed, min(a, b), max(a, b)).random() < 0.3}
        start = dice("start", seed).permutation(size).tolist()

        def says(first: int, second: int, wrong: set[tuple[int, int]] = wrong) -> Verdict:
            return FIRST if (first < second) != ((first, second) in wrong) else SECOND

        back = np.argsort(rename)
        plain = Says(lambda one, two: says(int(one[1:]), int(two[1:])))
        named = Says(lambda one, two, back=back: says(int(back[int(one[1:])]), int(back[int(two[1:])])))  # type: ignore[misc]
        (before,) = ranked(plain, [work_of("q", "t", start)], gallery_of(size), pool=size)
        (after,) = ranked(named, [work_of("q", "t", rename[start].tolist())], gallery_of(size), pool=size)
        assert order(after) == rename[order(before)].tolist()


class Breaks(Says):
    """Breaks at the sight of the video "c"; a broken server, a bug, whatever."""

    def render(self, context: Context) -> Verdict:
        if "c" in (context.candidate, context.rival) and context.session.query.session_id == "bad":
            raise RuntimeError("two\nlines")
        return super().render(context)


def test_a_judge_that_fails_keeps_the_order_of_its_query_alone() -> None:
    rows = [0, 1, 3, 2]
    works = [work_of(name, "text", rows) for name in ("good", "bad", "fine")]
    good, bad, fine = ranked(Breaks(better("dcba")), works, letters(4))
    assert order(good) == order(fine) == [3, 2, 1, 0]
    assert order(bad) == rows
    assert bad.events == (Event("stage_failed", "pairwise: RuntimeError: two lines"),)
    assert (bad.routing["failed"], good.routing["failed"]) == (1, 0)
    assert good.events == ()


def test_a_fit_that_does_not_settle_keeps_the_order_of_the_schedule() -> None:
    (staged,) = ranked(Says(better("ba")), [work_of("q", "text", [0, 1])], letters(2), ridge=1e-300)
    assert order(staged) == [1, 0]
    assert (staged.events[0].kind, staged.routing["failed"]) == ("strengths_failed", 0)
    assert "raise the ridge of 1e-300" in staged.events[0].detail


def test_a_query_that_failed_before_is_left_alone() -> None:
    judge = Says(better("ba"))
    staged = ranked(judge, [replace(work_of("q", "text", [0, 1]), failed=True)], letters(2))[0]
    assert (order(staged), judge.seen) == ([0, 1], [])


def test_a_phase_of_all_queries_is_one_list_for_the_engine() -> None:
    def answer(request: Request) -> str | Response:
        if request.session_id == "gone":
            return Response("", error="no answer in 1 s")
        return '{"winner": "B", "reason": "so"}'

    engine, works = Model(answer), [work_of(name, "text", range(4)) for name in ("a", "b", "gone")]
    first, _, gone = ranked(ModelJudge(engine="model"), works, letters(4), engine, passes=2)
    assert [len(some) for some in engine.lists] == [6, 3, 6, 3]
    assert [request.draw for request in engine.lists[2]] == [1] * 6
    assert len(first.calls) == 6
    assert {comparison.reason for comparison in first.comparisons} == {"so"}
    assert order(gone) == [0, 1, 2, 3]  # the higher one wins where nothing is answered
    assert gone.routing["unparseable"] == 6
    assert not any(call.valid for call in gone.calls)


class Because(Explainer):
    """All reasons; nothing to say of "silent", and it breaks at "broken"."""

    def render(self, context: Context) -> str:
        name = context.session.query.session_id
        if name == "broken":
            raise RuntimeError("no words")
        if name == "silent":
            raise ParseError("nothing")
        return f"{context.candidate}: {', '.join(context.reasons)}"


def test_the_best_is_explained_by_the_reasons_for_which_it_won() -> None:
    judge = Says(lambda one, two: replace(better("dcba")(one, two), reason=f"{max(one, two)} beats {min(one, two)}"))
    works = [work_of(name, "text", range(3)) for name in ("good", "silent", "broken")]
    good, silent, broken = ranked(judge, works, letters(3), passes=2, explainer=Because())
    assert order(good) == order(silent) == order(broken) == [2, 1, 0]
    assert good.events == (Event("explained", "c: c beats a, c beats b"),)
    assert silent.events == (Event("explanation_failed", "c beats a c beats b"),)
    assert broken.events == (Event("explanation_failed", "RuntimeError: no words"),)


def test_an_estimate_counts_every_comparison() -> None:
    stage = PairwiseRank(judge=ModelJudge(engine="model"), pool=20, passes=10)
    stage.bind(gallery_of(50))
    assert len(stage.rehearse(work_of("q", "text", [0]))) == 190
    stage.bind(gallery_of(3))
    assert len(stage.rehearse(work_of("q", "text", [0]))) == 20
    rule = PairwiseRank(judge=DiceJudge())
    rule.bind(gallery_of(3))
    assert rule.rehearse(work_of("q", "text", [0])) == ()


@pytest.mark.parametrize("settings", [{"pool": 1}, {"passes": -1}, {"ridge": 0.0}, {"prior": -1.0}])
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="pairwise needs pool >= 2, passes >= 0, ridge > 0 and prior >= 0, not "):
        PairwiseRank(judge=DiceJudge(), **settings)


def system(judge: PairJudge, **channels: Channel) -> ModularSystem:
    found = ModularSystem(
        retrievers={"dice": Dice()},
        opening="dice",
        intent=Both(),
        fusion=StaticRRF(pool=7),
        channels=dict(channels),
        stages={"pairs": PairwiseRank(judge=judge, pool=5, passes=2)},
    )
    found.connect({})
    found.load()
    found.bind(Gallery(IDS, {video: f"caption of {video}" for video in IDS}))
    return found


class Reads(DiceJudge):
    """Writes down text and source."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = set[tuple[str, str | None, str]]()

    def render(self, context: Context) -> Verdict:
        self.seen.add((context.text, context.source, context.source_caption))
        return super().render(context)


def test_a_text_query_is_compared_by_what_it_searches_for() -> None:
    """Without a source there is nothing that an edit could change."""
    judge = Reads()
    built = system(judge, t2v=Channel("dice", "search"))
    session = Session(Query("q", None, "a dog")).then(built.start([Query("q", None, "a dog")])[0])
    assert judge.seen == {("a dog", None, "")}
    judge.seen.clear()
    (turn,) = built.step([session], [Feedback("free", "it barks")], [None])
    assert judge.seen == {("it barks", None, "")}  # not "now it barks", its edit
    assert len(turn.comparisons) == turn.routing["comparisons"] == 8
    assert set(turn.stages) == {"retrieval", "pairwise"}


def test_a_composed_query_is_compared_by_its_change_of_the_source() -> None:
    judge = Reads()
    built = system(judge, covr=Channel("dice", "edit", "shown"))
    query = Query("q", "v3", "make it night")
    session = Session(query).then(built.start([query])[0])
    assert judge.seen == {("make it night", "v3", "caption of v3")}
    judge.seen.clear()
    built.step([session], [Feedback("free", "it barks")], [None])
    shown = IDS[int(session.turns[0].result.rows[0])]
    assert judge.seen == {("now it barks", shown, f"caption of {shown}")}


def test_more_passes_help_a_judge_whose_errors_are_fresh() -> None:
    """The best of twelve candidates, from the middle of the pool, over fifty queries."""
    gallery, start = gallery_of(12), [6, 1, 2, 3, 4, 5, 0, 7, 8, 9, 10, 11]
    works = [work_of(f"q{n}", "text", start) for n in range(50)]

    def mean_rank(passes: int, noise: Any) -> float:
        judge = NoisyJudge(judge=OrderJudge(order=gallery.ids), error=0.2, noise=noise)
        return float(np.mean([s.work.ranking.rank(0) for s in ranked(judge, works, gallery, passes=passes)]))

    assert 7 > mean_rank(3, "fresh") > mean_rank(10, "fresh")
    assert mean_rank(10, "fresh") < mean_rank(10, "fixed")
