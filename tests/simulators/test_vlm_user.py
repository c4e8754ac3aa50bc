"""The user who is played by an engine: what it does, what it costs, and that no system gets hold of its memory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from covr_lab.captioners.vlm import Description
from covr_lab.data.base import SessionBatch
from covr_lab.engines.base import Engine
from covr_lab.engines.request import Call, Media, Request, Response
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.prompts import suite
from covr_lab.prompts.suite import SUITES
from covr_lab.protocol import EvalProtocol
from covr_lab.results.calls import call_columns
from covr_lab.runner import SessionRunner
from covr_lab.simulators import DegradedUser, Policy, Terse
from covr_lab.simulators.rules import RuleUser
from covr_lab.simulators.vlm import RESTRICTIONS, UserAnswer, VLMUser, action_of, read_answer
from covr_lab.system import System
from covr_lab.types import Feedback, Query, Question, RankedList, Refused, Session, SessionError, Target, Turn
from covr_lab.video import Clip, FrameSampler, VideoError, VideoReader

IDS = ("a", "b", "c", "t", "u")
MEMORY = {video: f"zebra{video} jumping over a river" for video in IDS}  # no annotation has these words
ANNOTATED = {video: f"young horse {video} on a meadow" for video in IDS}
ASK = "What is in it?"


class Plates(VideoReader):
    """Grey frames of every video but those in ``bad``."""

    def __init__(self, bad: Sequence[str] = ()) -> None:
        super().__init__()
        self.bad = bad

    @property
    def fingerprint(self) -> str:
        return "plates"

    def probe(self, path: Path) -> None:  # type: ignore[override]
        raise NotImplementedError

    def read(self, path: Path, sampler: FrameSampler) -> Clip:
        if path.stem in self.bad:
            raise VideoError(path, "truncated")
        at = sampler.indices(20)
        return Clip(np.zeros((len(at), 4, 4, 3), np.uint8), at, None, 20, None, 1.0)


class Actor(Engine):
    """Remembers by :data:`MEMORY` and says what it is told to; reads every video that it is shown.

    Args:
        says: session -> its answers to the judgement: first and, where there are two, second attempt.
        dumb: videos that it cannot describe.
    """

    def __init__(self, says: Mapping[str, Sequence[str]] | None = None, dumb: Sequence[str] = ()) -> None:
        super().__init__()
        self.says, self.dumb, self.asked = says or {}, dumb, list[list[Request]]()

    @property
    def fingerprint(self) -> str:
        return "actor"

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        self.asked.append(list(requests))
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Response:
        videos = [part for part in request.content if isinstance(part, Media)]
        try:
            assert all(len(video.clip().frames) == video.frames for video in videos)
        except SessionError as error:
            return Response("", error=str(error))
        if request.role == "user_caption":
            (video,) = (media.video for media in videos)
            return Response("hm" if video in self.dumb else memory(video), tokens_in=9, tokens_out=5)
        lines = self.says.get(request.session_id, [said("major", f"not this, {request.digest[:8]}")])
        return Response(lines[min(request.attempt, len(lines)) - 1], tokens_in=20, tokens_out=7)


def memory(video: str) -> str:
    return Description(caption=MEMORY[video], main_objects=[], scene="").model_dump_json()


def said(discrepancy: str, feedback: str = "snow", answers: bool = False) -> str:
    return json.dumps({"discrepancy": discrepancy, "answers_question": answers, "feedback": feedback})


def user_of(engine: Engine, captions: dict[str, str] | None = None, bad: Sequence[str] = (), **options: Any) -> VLMUser:
    user = VLMUser(engine="user_vlm", **options)
    assert user.connect({"user_vlm": engine, "other": Actor()}) == {"user_vlm"}
    user.bind(Gallery.of(IDS, ANNOTATED if captions is None else captions), VideoStore(Path, Plates(bad)))
    return user


def show(session: Session, video: str, feedback: Feedback | None = None, question: str | None = None) -> Session:
    result = RankedList(np.array([IDS.index(video)], dtype=np.int32))
    return session.then(Turn(len(session.turns), result, question=question, feedback=feedback))


def start(video: str = "a", name: str = "q", edit: str = "make it night") -> Session:
    return show(Session(Query(name, "b", edit)), video)


def one(user: VLMUser, session: Session, target: str = "t", ask: str | None = None) -> Feedback:
    return user.respond([session], [Target(session.query.session_id, target)], [ask])[0]


def roles(feedback: Feedback) -> list[tuple[str, int, bool]]:
    return [(call.request.role, call.request.attempt, call.valid) for call in feedback.calls]


# What it does


@pytest.mark.parametrize(
    ("discrepancy", "asked", "answers", "identity", "judged"),
    [
        ("none", False, False, "modify", "stop"),
        ("none", True, True, "modify", "stop"),
        ("minor", False, False, "modify", "modify"),
        ("minor", True, True, "modify", "modify"),
        ("major", False, False, "rewrite", "rewrite"),
        ("major", True, False, "rewrite", "rewrite"),
        ("major", False, True, "rewrite", "rewrite"),  # there is nothing to answer
        ("major", True, True, "answer", "answer"),
    ],
)
def test_judgement_and_question_decide(
    discrepancy: str, asked: bool, answers: bool, identity: str, judged: str
) -> None:
    line = said(discrepancy, "  it should\nsnow ", answers)
    for stop, action in (("identity", identity), ("judged", judged)):
        assert action_of(UserAnswer.model_validate_json(line), asked=asked, judged=stop == "judged") == action
        found = one(user_of(Actor({"q": [line]}), stop=stop), start(), ask=ASK if asked else None)
        assert (found.action, found.text) == (action, "" if action == "stop" else "it should snow")
        assert roles(found) == [("user_caption", 1, True), ("user", 1, True)]


@pytest.mark.parametrize("prompts", SUITES)
@pytest.mark.parametrize(
    ("policy", "minor", "major", "forbidden"),
    [
        ("modify_only", "modify", "modify", "rewrite"),
        ("rewrite_only", "rewrite", "rewrite", "modify"),
        ("no_answers", "modify", "rewrite", None),
    ],
)
def test_a_policy_is_told_to_the_engine_and_kept(
    prompts: str, policy: Any, minor: str, major: str, forbidden: str | None
) -> None:
    lines = {"p": [said("minor", answers=True)], "q": [said("major", answers=True)], "r": ["eh", "eh"]}
    free, engine = Actor(lines), Actor(lines)
    spoken = {name: one(user_of(free, prompts=prompts), start("a", name), ask=ASK).action for name in lines}
    assert (spoken["p"], spoken["q"]) == ("modify", "answer")
    inner = user_of(engine, prompts=prompts)
    user = DegradedUser(inner, {policy: Policy(policy=policy)})
    user.bind(inner.gallery, inner.videos)
    for name, action in (("p", minor), ("q", major), ("r", major)):  # the stand-in for a lost answer keeps to it too
        asked_before = show(start("a", name), "b", Feedback("modify", "more snow"), "Where is it?")
        found = user.respond([asked_before], [Target(name, "t")], [ASK])[0]
        assert (found.action, found.clean) == (action, None)
        judgement = found.calls[-1].request.text
        assert {choice for choice, rule in RESTRICTIONS.items() if rule in judgement} == {forbidden} - {None}
        assert "Where is it?" not in judgement
        assert ASK not in judgement
    assert user.fingerprint == inner.fingerprint


def test_prompts_without_a_place_for_a_policy_are_refused(tmp_path: Path) -> None:
    for name in ("user", "user_caption"):
        text = (Path(suite.__file__).parent / "default" / f"{name}.yaml").read_text()
        (tmp_path / f"{name}.yaml").write_text(text.replace("{restriction}", "nothing"))
    user = user_of(Actor(), prompts=str(tmp_path))
    DegradedUser(user, {"a": Policy(policy="no_answers")})  # has nothing to tell
    with pytest.raises(ValueError, match=r"user\.yaml of simulator\.prompts lacks \{restriction\}"):
        DegradedUser(user, {"a": Policy(policy="modify_only")})


def test_a_degraded_engine_user_remembers_what_was_heard() -> None:
    engine = Actor({"q": [said("minor", "more snow, a tent")]})
    inner = user_of(engine)
    user = DegradedUser(inner, {"terse": Terse(words=2)})
    user.bind(inner.gallery, inner.videos)
    first = user.respond([start()], [Target("q", "t")], [None])[0]
    assert (first.text, first.clean) == ("more snow", "more snow, a tent")
    assert roles(first) == [("user_caption", 1, True), ("user", 1, True)]
    later = user.respond([show(start(), "b", replace(first, clean=None))], [Target("q", "t")], [None])[0]
    assert "You: more snow\n" in later.calls[-1].request.text
    assert "tent" not in later.calls[-1].request.text


def test_the_target_on_display_stops_without_a_call() -> None:
    engine = Actor({"q": [said("minor")]})
    assert one(user_of(engine), start("t"), "t", ASK) == Feedback("stop", "")
    assert engine.asked == []
    assert one(user_of(engine, stop="judged"), start("t"), "t").action == "modify"  # who judges may be wrong
    with pytest.raises(ValueError, match="session q: no video is shown"):
        one(user_of(engine), Session(Query("q", None, ""), (Turn(0, RankedList(np.empty(0, np.int32))),)))


def test_an_answer_is_bounded_and_not_blank() -> None:
    assert read_answer(f"Well... {said('minor', 'x' * 300)}").feedback == "x" * 300
    for wrong in ({"feedback": "x" * 301}, {"feedback": ""}, {"discrepancy": "huge"}, {"mood": "good"}):
        with pytest.raises(ValidationError):
            UserAnswer(**{"discrepancy": "none", "answers_question": False, "feedback": "x", **wrong})
    with pytest.raises(ValueError, match="blank"):
        read_answer(said("minor", " "))


# What it asks


@pytest.mark.parametrize("prompts", SUITES)
def test_the_prompt_has_all_that_a_user_knows(prompts: str) -> None:
    engine = Actor()
    user = user_of(engine, prompts=prompts, frames=4, target_frames=6)
    later = show(start("a"), "c", Feedback("modify", "more snow"), "Where is it?")
    one(user, later, "t", "What colour is it?")
    first, judgement = (batch[0] for batch in engine.asked)
    assert [part for part in first.content if isinstance(part, Media)] == [Media("t", 6, user.videos)]  # type: ignore[arg-type]
    assert [part for part in judgement.content if isinstance(part, Media)] == [Media("c", 4, user.videos)]  # type: ignore[arg-type]
    assert first.schema is Description
    assert judgement.schema is UserAnswer
    assert {(request.session_id, request.turn) for request in (first, judgement)} == {("q", 2)}
    known = (
        MEMORY["t"],
        ANNOTATED["c"],
        "make it night",
        "System: Where is it?",
        "You: more snow",
        "What colour is it?",
    )
    for text in known:
        assert judgement.text.count(text) == 1, text
    assert ANNOTATED["t"] not in judgement.text
    assert not any(text in first.text for text in known)
    for key in UserAnswer.model_fields:
        assert key in judgement.text
    for key in Description.model_fields:
        assert key in first.text


def test_captions_alone() -> None:
    engine = Actor()
    user = VLMUser(engine="user_vlm", frames=0, captions="annotation")
    user.connect({"user_vlm": engine})
    user.bind(Gallery.of(IDS, {key: text for key, text in ANNOTATED.items() if key in "at"}))
    assert roles(one(user, start("a"))) == [("user", 1, True)]
    (request,) = engine.asked[-1]
    assert not any(isinstance(part, Media) for part in request.content)
    assert ANNOTATED["t"] in request.text
    assert ANNOTATED["a"] in request.text
    with pytest.raises(SessionError, match=r"video b: no caption to judge by; .*simulator\.frames"):
        one(user, start("b"))
    with pytest.raises(SessionError, match="video u: no caption with a content word"):
        one(user, start("a", "q2"), "u")


def test_the_caption_is_made_once_a_session_in_its_first_turn() -> None:
    engine = Actor()
    user = user_of(engine)
    session = start("a")
    first = one(user, session)
    later = show(session, "b", first)
    second = one(user, later)
    assert roles(first) == [("user_caption", 1, True), ("user", 1, True)]
    assert roles(second) == [("user", 1, True)]
    assert MEMORY["t"] in second.calls[0].request.text
    assert one(user, session) == first  # a turn that is played again, and the same session in another run, cost as much
    other = one(user, session, "u")  # with another target: nothing of the first one is left
    assert MEMORY["u"] in other.calls[1].request.text
    assert MEMORY["t"] not in other.calls[1].request.text
    columns = call_columns(first.calls)
    assert [module["module"] for module in columns["modules"]] == ["user_caption", "user"]
    assert columns["calls"] == 0  # what the user costs is no cost of the system


def test_all_sessions_are_one_list_and_none_depends_on_another() -> None:
    says = {"r": ["no", said("minor", "mended")], "s": ["no", "no"], "j": [said("none")]}
    targets = {"p": "t", "q": "t", "r": "u", "s": "u", "j": "c", "done": "a"}
    sessions = {name: start("a", name) for name in targets}
    engine = Actor(says)

    def play(names: Sequence[str]) -> dict[str, list[Feedback]]:
        user, log = user_of(engine), {name: list[Feedback]() for name in names}
        now = {name: sessions[name] for name in names}
        for ask in (None, ASK):
            order = sorted(now, reverse=ask is not None)
            replies = user.respond(
                [now[name] for name in order], [Target(name, targets[name]) for name in order], [ask] * len(order)
            )
            for name, reply in zip(order, replies, strict=True):
                log[name].append(reply)
                now[name] = show(now[name], "b", reply, ask)
                if reply.action == "stop":
                    del now[name]
        return log

    together = play(list(targets))
    lists = [[request.role for request in batch] for batch in engine.asked if batch]
    assert lists == [["user_caption"] * 5, ["user"] * 5, ["user"] * 2, ["user"] * 5, ["user"] * 2]
    assert play(list(targets)[::-1]) == together
    for name in targets:
        assert play([name]) == {name: together[name]}
    for name in ("p", "q"):  # the same target: each pays for itself
        assert roles(together[name][0]) == [("user_caption", 1, True), ("user", 1, True)]
    assert together["done"] == [Feedback("stop", "")]


# When it cannot be read


def test_an_answer_is_repaired_or_replaced_by_the_rule_based_user() -> None:
    mended = one(user_of(Actor({"q": ["modify", said("minor", "more snow")]})), start())
    assert (mended.action, mended.text) == ("modify", "more snow")
    assert roles(mended) == [("user_caption", 1, True), ("user", 1, False), ("user", 2, True)]
    for ask in (None, ASK):
        for name in map(str, range(20)):
            found = one(user_of(Actor({name: ["eh", "eh"]})), start("a", name), ask=ask)
            assert roles(found) == [("user_caption", 1, True), ("user", 1, False), ("user", 2, False)]
            rule = RuleUser()
            rule.bind(Gallery.of(IDS, {"a": ANNOTATED["a"], "t": f"{MEMORY['t']}."}))
            (expected,) = rule.respond([start("a", name)], [Target(name, "t")], [ask])
            assert replace(found, calls=()) == expected


def test_without_a_caption_of_the_shown_video_the_fallback_says_what_is_wanted() -> None:
    found = one(user_of(Actor({"q": ["eh", "eh"]}), captions={}), start())
    assert found.action == "rewrite"
    assert "zebrat" in found.text
    found = one(user_of(Actor({"q": ["eh", "eh"]}), captions={}, stop="judged"), start("t"))
    assert found.action == "modify"
    assert "zebrat" in found.text


def test_a_target_that_cannot_be_described() -> None:
    """An unreadable one fails; a sound one is remembered by its annotation, if there is one."""
    with pytest.raises(SessionError, match=r"video t is truncated \(id 't'\)"):
        one(user_of(Actor(), bad=["t"]), start())
    with pytest.raises(SessionError, match="video t: no caption with a content word"):
        one(user_of(Actor(dumb="t"), captions={}), start())
    found = one(user_of(Actor(dumb="t")), start())
    assert roles(found) == [("user_caption", 1, False), ("user_caption", 2, False), ("user", 1, True)]
    assert ANNOTATED["t"] in found.calls[-1].request.text


def test_a_shown_video_that_cannot_be_read_is_judged_by_rule() -> None:
    found = one(user_of(Actor(), bad=["a"]), start("a"))
    assert found.text
    assert roles(found) == [("user_caption", 1, True), ("user", 1, False)]  # asking again would not mend it


# In the loop


class Spy(System):
    """Shows one video after another, and keeps all that it was handed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def load(self) -> None:
        return

    def bind(self, gallery: Gallery, videos: VideoStore | None = None, *, mask_source: bool = True) -> None:
        self.gallery = gallery
        self.seen.append(repr(gallery))

    @property
    def fingerprints(self) -> dict[str, str]:
        return {}

    def start(self, queries: Sequence[Query]) -> list[Turn]:
        return [self._turn(0, None) for _ in queries]

    def ask(self, sessions: Sequence[Session]) -> list[Question | None]:
        return [Question(ASK) for _ in sessions]

    def step(
        self, sessions: Sequence[Session], feedback: Sequence[Feedback], questions: Sequence[Question | None]
    ) -> list[Turn]:
        self.seen += [repr(replace(said, calls=())) for said in feedback]
        return [self._turn(len(session.turns), said) for session, said in zip(sessions, feedback, strict=True)]

    def _turn(self, index: int, feedback: Feedback | None) -> Turn:
        return Turn(index, RankedList(np.array([index, 4], dtype=np.int32)), feedback=feedback)


class Data:
    """What a runner binds of a data module."""

    def __init__(self, bad: Sequence[str]) -> None:
        self.gallery = Gallery.of(IDS, {})
        self.user_gallery = Gallery.of(IDS, ANNOTATED)
        self.videos = VideoStore(Path, Plates(bad))


def rows_of(
    names: Sequence[str], targets: Mapping[str, str], engine: Engine, bad: Sequence[str] = (), **options: Any
) -> tuple[dict[str, list[dict[str, Any]]], Spy]:
    spy = Spy()
    user = VLMUser(engine="user_vlm", **options)
    runner = SessionRunner(spy, user, EvalProtocol(turns=3), {"user_vlm": engine})
    runner.bind(Data(bad))  # type: ignore[arg-type]
    queries = [Query(name, "b", "make it night") for name in names]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for row in runner.predict_step(SessionBatch(queries, [Target(name, targets[name]) for name in names])):
        kept = {key: value for key, value in row.items() if "seconds" not in key and "timing" not in key}
        found[row["session_id"]].append(kept)
    return found, spy


def test_one_bad_target_ends_one_session_and_rows_do_not_depend_on_the_batch() -> None:
    targets = {"p": "t", "q": "u", "r": "t", "s": "c"}  # u cannot be read; c comes up in turn 2
    engine = Actor({"r": ["eh", "eh"]})
    together, _ = rows_of(list(targets), targets, engine, bad=["u"])
    assert [len(together[name]) for name in targets] == [4, 2, 4, 3]
    assert "is truncated" in together["q"][-1]["error"]
    assert all(row["error"] is None for name in "prs" for row in together[name])
    for name in targets:
        alone, _ = rows_of([name], targets, engine, bad=["u"])
        assert alone[name] == together[name]
    modules = [[module["module"] for module in row["modules"]] for row in together["p"]]
    assert modules == [[], ["user_caption", "user"], ["user"], ["user"]]
    assert [[module["outcome"] for module in row["modules"]] for row in together["r"]][1:] == [
        ["valid", "fallback"],
        ["fallback"],
        ["fallback"],
    ]


def test_a_judged_stop_is_paid_for_by_the_turn_that_it_ends() -> None:
    rows, _ = rows_of(["p"], {"p": "t"}, Actor({"p": [said("none")]}), stop="judged")
    (row,) = rows["p"]
    assert [module["module"] for module in row["modules"]] == ["user_caption", "user"]
    assert row["target_rank"] != 1


def test_a_system_sees_of_a_target_what_the_user_says_of_it() -> None:
    """Whatever the targets, a user who says the same words makes a system see the same values."""
    engine = Actor({name: [said("minor", f"{name} words")] for name in "pq"})
    first, one_spy = rows_of(["p", "q"], {"p": "t", "q": "u"}, engine)
    other, other_spy = rows_of(["p", "q"], {"p": "u", "q": "t"}, engine)
    assert one_spy.seen == other_spy.seen
    assert sum("words" in text for text in one_spy.seen) == 6
    assert not any(text in value for value in one_spy.seen for text in (*MEMORY.values(), *ANNOTATED.values()))
    assert first["p"][1]["prompts"] != other["p"][1]["prompts"]  # it did remember different videos


def test_system_and_user_do_not_share_an_engine() -> None:
    class Borrowing(Spy):
        def connect(self, engines: Mapping[str, Engine]) -> frozenset[str]:
            return frozenset(engines)

    with pytest.raises(ValueError, match="system and simulator both name engine 'user_vlm'"):
        SessionRunner(Borrowing(), VLMUser(engine="user_vlm"), EvalProtocol(), {"user_vlm": Actor()})


def test_bad_settings_name_themselves() -> None:
    with pytest.raises(ValueError, match=r"simulator\.engine names engine 'gone'"):
        VLMUser(engine="gone").connect({"user_vlm": Actor()})
    with pytest.raises(ValueError, match="frames >= 0 and target_frames >= 1, not -1 and 8"):
        VLMUser(engine="user_vlm", frames=-1)
    with pytest.raises(ValueError, match="no prompt suite 'formal'"):
        VLMUser(engine="user_vlm", prompts="formal")
    for options in ({"frames": 0}, {"captions": "annotation"}):
        with pytest.raises(Refused, match=r"set data\.videos_dir"):
            VLMUser(engine="user_vlm", **options).bind(Gallery.of(IDS, ANNOTATED))  # type: ignore[arg-type]


def test_calls_hold_what_was_asked() -> None:
    found = one(user_of(Actor()), start())
    assert all(isinstance(call, Call) for call in found.calls)
    assert [call.response.tokens_in for call in found.calls] == [9, 20]
