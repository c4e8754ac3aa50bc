"""Direct ranking: one answer orders the pool, or the order stands and the record says why."""

from __future__ import annotations

import json

import pytest

from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Request, Response
from covr_lab.engines.schema import read_json
from covr_lab.gallery.gallery import Gallery
from covr_lab.prompts import SUITES, load_prompt
from covr_lab.ranking import DirectRank
from covr_lab.ranking.refine import Staged, refine
from covr_lab.reasoning import ModelRanker
from covr_lab.reasoning.listwise import FIELDS, OrderAnswer, whole_order
from tests.ranking.toy import Model, work_of

IDS = ("a", "b", "c", "d", "e")
CAPTIONS = {"a": "a dog", "b": "a cat", "c": "a cow", "d": "a hen"}


def answer(request: Request) -> str | Response:
    """Numbers from the last candidate to the first, except where the query says otherwise."""
    said = request.text
    if "Query: gone" in said:
        return Response("", error="no answer")
    if "Query: short" in said:
        return json.dumps({"order": [1]})
    size = said.count("\n- ", said.rindex("Candidates:"))
    return json.dumps({"order": list(range(size, 0, -1))})


def ranked(*texts: str, pool: int = 3) -> tuple[list[Staged], Model]:
    stage, model = DirectRank(ranker=ModelRanker(engine="model"), pool=pool), Model(answer)
    stage.load()
    stage.bind(Gallery(IDS, CAPTIONS))
    works = [work_of(f"s{number}", text, range(5), [0.9, 0.8, 0.7, 0.6, 0.5]) for number, text in enumerate(texts)]
    return refine([stage], works, {"model": model}), model


def order(staged: Staged) -> str:
    return "".join(IDS[row] for row in staged.work.ranking.rows)


def test_the_pool_takes_the_order_of_the_answer_and_the_tail_stays() -> None:
    (one, other), model = ranked("any", "more")
    assert (order(one), order(other)) == ("cbade", "cbade")
    assert [len(requests) for requests in model.lists] == [2]  # all queries together
    assert "- 1: a dog\n- 2: a cat\n- 3: a cow\n" in model.lists[0][0].text
    (whole,), model = ranked("any", pool=20)
    assert order(whole) == "edcba"
    assert "- 5: (unknown)" in model.lists[0][0].text


def test_what_cannot_be_read_leaves_the_order_and_is_on_record() -> None:
    staged, model = ranked("short", "any", "gone")
    assert [order(one) for one in staged] == ["abcde", "cbade", "abcde"]
    assert [[event.kind for event in one.events] for one in staged] == [
        ["direct_unparseable"],
        [],
        ["direct_unparseable"],
    ]
    assert [one.routing["direct_unparseable"] for one in staged] == [1.0, 0.0, 1.0]
    assert [len(requests) for requests in model.lists] == [3, 1]  # a short list is asked for once more
    assert [len(one.calls) for one in staged] == [2, 1, 1]


@pytest.mark.parametrize("numbers", [[1, 2], [1, 2, 2], [1, 2, 4], [], [1, 2, 3, 3]])
def test_an_order_names_every_candidate_once(numbers: list[int]) -> None:
    with pytest.raises(ParseError, match="each number from 1 to 3 once"):
        whole_order(numbers, 3)


def test_settings_and_prompts() -> None:
    with pytest.raises(ValueError, match=r"direct\.pool must be from 2 to 50, not 51"):
        DirectRank(ranker=ModelRanker(engine="model"), pool=51)
    for suite in SUITES:
        prompt = load_prompt(suite, "direct", FIELDS, tuple(FIELDS))
        assert read_json(prompt.system, OrderAnswer).order == [2, 1, 3]
