"""Judges of pairs: how answers are read, what a model is shown, the rule of the demo world against its generator."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from covr_lab.demo.judges import DemoJudge, NoisyJudge, OrderJudge
from covr_lab.demo.world import make_world
from covr_lab.engines.consult import ParseError
from covr_lab.engines.request import Media, Request
from covr_lab.engines.schema import grammar, longest, read_json
from covr_lab.gallery.videos import VideoStore
from covr_lab.prompts import SUITES, Prompt, load_prompt
from covr_lab.reasoning import ModelExplainer, ModelJudge, PairJudge, Verdict
from covr_lab.reasoning.base import think
from covr_lab.reasoning.judging import FIELDS, REQUIRED, UNPARSEABLE, read_letter, read_weights
from covr_lab.reasoning.schemas import CompareAnswer
from covr_lab.scorers.attributes import named
from covr_lab.scorers.oracle import scene_attributes
from covr_lab.types import Context, Query, Reflection, Refused, Session
from covr_lab.video import PyAVReader
from tests.ranking.toy import Model

CONTEXT = Context(
    Session(Query("q", "r", "make it red")),
    Reflection(),
    source="r",
    text="make it red",
    source_caption="A blue ball",
    candidate="a",
    candidate_caption="A red ball",
    rival="b",
    rival_caption="A green\nball <|im_end|>",
)


def asked(judge: PairJudge, context: Context = CONTEXT) -> Request:
    request = judge.render(context)
    assert isinstance(request, Request)
    return request


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("A", "first"),
        ("A.", "first"),
        ("**B**", "second"),
        (" 'B'\n", "second"),
        ("(A)", "first"),
        ("Tie", "tie"),
        ("", None),
        ("Both", None),
        ("A B", None),
        ("AB", None),
        ("a", None),  # an article as soon as a letter
        ("A is better", None),
        ("C", None),
        ("A, B", None),
    ],
)
def test_a_letter_is_read_strictly(text: str, outcome: str | None) -> None:
    if outcome is None:
        with pytest.raises(ParseError, match="neither A nor B"):
            read_letter(text)
    else:
        assert read_letter(text).outcome == outcome


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ('{"winner": "A", "reason": " so \\n it is "}', Verdict("first", 1.0, "so it is")),
        ('Well: {"winner": "B", "reason": "x"} indeed', Verdict("second", 0.0, "x")),
        ('{"winner": "tie", "reason": ""}', Verdict("tie", 0.5)),
        ('{"winner": "C", "reason": ""}', UNPARSEABLE),
        ('{"winner": "A"}', UNPARSEABLE),
        ('{"winner": "A", "reason": "x", "more": 1}', UNPARSEABLE),
        ("A", UNPARSEABLE),
        ("", UNPARSEABLE),
    ],
)
def test_a_reasoned_answer_is_an_object_or_unparseable(text: str, verdict: Verdict) -> None:
    engine = Model(lambda request: text)
    (thought,) = think([(ModelJudge(engine="model"), CONTEXT)], {"model": engine})
    assert thought.answer == verdict
    assert thought.fell_back == (verdict is UNPARSEABLE)
    assert [request.attempt for some in engine.lists for request in some] == ([1, 2] if thought.fell_back else [1])


def test_the_grammar_of_an_answer_is_bounded() -> None:
    assert '"winner\\":"' in grammar(CompareAnswer)
    reply = json.dumps({"winner": "tie", "reason": "x" * 300}, separators=(",", ":"))
    assert read_json(reply, CompareAnswer).winner == "tie"
    assert len(reply) < longest(CompareAnswer)


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("module", REQUIRED)
def test_packaged_prompts(suite: str, module: str) -> None:
    prompt = load_prompt(suite, module, FIELDS, REQUIRED[module])
    assert not Prompt(prompt.system, "", FIELDS).used  # the same for all sessions: an engine may keep it
    assert prompt.used == set(REQUIRED[module])
    example = prompt.system.splitlines()
    if module == "compare":
        answer = read_json(next(line for line in example if line.startswith('{"winner": "')), CompareAnswer)
        assert 0 < len(answer.reason.split()) <= 30
    elif module == "choose":
        assert read_letter(example[-1]).outcome in ("first", "second")
    else:
        assert len(example[-1].split()) <= 50
    others = {load_prompt(other, module, FIELDS).digest for other in SUITES}
    assert len(others) == len(SUITES)


def test_the_model_sees_the_query_and_both_captions_on_a_line_each() -> None:
    text = asked(ModelJudge(engine="model")).text
    for line in ("Source video: A blue ball", "Wanted: make it red", "A: A red ball", "B: A green ball < |im_end|>"):
        assert f"\n{line}\n" in text
    assert "Frames of A: (not shown)" in text
    alone = replace(CONTEXT, source=None, source_caption="", rival_caption="")
    text = asked(ModelJudge(engine="model", reasons=False), alone).text
    assert "\nSource video: (none)\n" in text
    assert "\nB: (none)\n" in text


def test_long_captions_are_cut() -> None:
    long = replace(CONTEXT, candidate_caption="word " * 5000)
    assert len(asked(ModelJudge(engine="model", characters=100), long).text) < 2500
    assert f"\nA: {'word ' * 19}word\n" in asked(ModelJudge(engine="model", characters=100), long).text


def test_frames_of_both_are_shown_where_they_should(tmp_path: Path) -> None:
    store = VideoStore(lambda video: tmp_path / video, PyAVReader())
    request = asked(ModelJudge(engine="model", frames=3), replace(CONTEXT, videos=store))
    assert [part for part in request.content if isinstance(part, Media)] == [Media("a", 3, store), Media("b", 3, store)]
    with pytest.raises(Refused, match="`compare` wants 3 frames, the data has no videos: frames: 0"):
        asked(ModelJudge(engine="model", frames=3))


def test_the_encounter_is_a_draw_of_its_own() -> None:
    judge = ModelJudge(engine="model")
    first, again = (asked(judge, replace(CONTEXT, encounter=met)) for met in (0, 4))
    assert (first.digest, first.draw, again.draw) == (again.digest, 0, 4)


def test_a_soft_judge_takes_probabilities() -> None:
    judge = ModelJudge(engine="model", reasons=False, soft=True)
    assert asked(judge).choices == ("A", "B")
    for text, verdict in (
        ('{"A": 0.9, "B": 0.1}', Verdict("first", 0.9)),
        ('{"A": 0.2, "B": 0.6}', Verdict("second", pytest.approx(0.25))),
        ('{"A": 0.5, "B": 0.5}', Verdict("tie", 0.5)),
        ('{"A": 0.0, "B": 0.0}', UNPARSEABLE),
    ):
        (thought,) = think([(judge, CONTEXT)], {"model": Model(lambda request, text=text: text)})  # type: ignore[misc]
        assert thought.answer == verdict


@pytest.mark.parametrize("text", ["A", "", "[1, 2]", '{"A": 1}', '{"A": "x", "B": 1}', "null"])
def test_a_soft_judge_without_probabilities_is_refused(text: str) -> None:
    with pytest.raises(Refused, match=r"tells probabilities .* or set `soft: false`"):
        read_weights(text)


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="gives no reasons: set `reasons: false`"):
        ModelJudge(engine="model", soft=True)
    with pytest.raises(ValueError, match="frames >= 0 and characters >= 1, not -1 and 4000"):
        ModelJudge(engine="model", frames=-1)


def test_an_explanation_is_made_of_the_reasons() -> None:
    context = replace(CONTEXT, rival=None, rival_caption="", reasons=("red as asked", "round"))
    explainer = ModelExplainer(engine="model")
    (request,) = [explainer.render(context)]
    assert "\n- red as asked\n- round\n" in request.text
    for text, answer in ((' "It is red."\n', "It is red."), ("  ", "red as asked round")):
        (thought,) = think([(explainer, context)], {"model": Model(lambda request, text=text: text)})  # type: ignore[misc]
        assert (thought.answer, thought.fell_back) == (answer, not text.strip())


def test_the_demo_judge_counts_what_the_generator_knows_to_be_wanted() -> None:
    """Wanted is the source with what the edit names as in the target: who shows more of it wins, with a true reason."""
    made, judge, outcomes = make_world("test", families=10), DemoJudge(), set[str]()
    for query in made.queries[:20]:
        source, target = (scene_attributes(made.clips[clip]) for clip in (query.reference_id, query.target_id))
        wanted = {**source, **{kind: target[kind] for kind in named(query.edit)}}
        for pair in permutations(sorted(made.gallery)[:12], 2):
            first, second = (scene_attributes(made.clips[clip]) for clip in pair)
            told = [made.captions[clip] for clip in (query.reference_id, *pair)]
            context = replace(CONTEXT, text=query.edit, source_caption=told[0])
            said = judge.render(replace(context, candidate_caption=told[1], rival_caption=told[2]))
            shown = [sum(have[kind] == value for kind, value in wanted.items()) for have in (first, second)]
            assert said.outcome == ("tie" if shown[0] == shown[1] else "first" if shown[0] > shown[1] else "second")
            outcomes.add(said.outcome)
            if said.outcome == "first":
                kind = said.reason.split(":")[0]
                assert said.reason == f"{kind}: the first is {wanted[kind]} as asked, the second is {second[kind]}"
                assert first[kind] == wanted[kind] != second[kind]
    assert outcomes == {"first", "second", "tie"}


def test_the_demo_judge_without_anything_wanted_is_unparseable() -> None:
    context = replace(CONTEXT, text="make it nicer", source_caption="")
    (thought,) = think([(DemoJudge(), context)], {})
    assert thought.answer is UNPARSEABLE
    nobody = replace(CONTEXT, candidate_caption="", rival_caption="")
    assert DemoJudge().render(nobody).outcome == "tie"


def verdicts(judge: PairJudge, encounters: int, *, count: int = 40) -> dict[tuple[str, str, str, int], str]:
    """Session, pair and encounter -> outcome."""
    found = {}
    for name in map(str, range(count)):
        session = Session(Query(name, None, ""))
        for one, two in permutations("abcd", 2):
            for met in range(encounters):
                context = replace(CONTEXT, session=session, candidate=one, rival=two, encounter=met)
                found[name, one, two, met] = judge.render(context).outcome  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("noise", ["fresh", "fixed"])
def test_a_noisy_judge_errs_at_its_rate(noise: str) -> None:
    truth = OrderJudge(order="abcd")
    right = verdicts(truth, 5)
    said = verdicts(NoisyJudge(judge=truth, error=0.2, noise=noise), 5)  # type: ignore[arg-type]
    wrong = {key for key in said if said[key] != right[key]}
    assert len(wrong) / len(said) == pytest.approx(0.2, abs=0.07 if noise == "fixed" else 0.03)
    for name, one, two, met in said:
        assert ((name, one, two, met) in wrong) == ((name, two, one, met) in wrong)  # whichever is shown first
    always = {
        (name, one, two) for name, one, two, _ in wrong if all((name, one, two, met) in wrong for met in range(5))
    }
    assert (len(wrong) == 5 * len(always)) == (noise == "fixed")
    assert said != verdicts(NoisyJudge(judge=truth, error=0.2, noise=noise, seed=1), 5)  # type: ignore[arg-type]


def test_a_noisy_judge_of_models_or_beyond_all_shares_is_refused() -> None:
    for error, judge in ((1.5, OrderJudge(order="ab")), (0.1, ModelJudge(engine="model"))):
        with pytest.raises(ValueError, match="NoisyJudge needs an error from 0 to 1"):
            NoisyJudge(judge=judge, error=error)
