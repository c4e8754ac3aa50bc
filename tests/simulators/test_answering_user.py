"""Users who answer the questions of a round: order, isolation, faults, and what is said where nothing is asked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from covr_lab.data.base import SessionBatch
from covr_lab.engines.request import Call, Request, Response
from covr_lab.gallery.gallery import Gallery
from covr_lab.protocol import EvalProtocol
from covr_lab.reasoning.interview import Interview
from covr_lab.runner import SessionRunner
from covr_lab.simulators import (
    AnnotationUser,
    Degradation,
    DegradedUser,
    DialogueUser,
    Policy,
    Terse,
    UserSimulator,
    WordNoise,
)
from covr_lab.simulators.answering import Answer, AnsweringUser, Asked
from covr_lab.system import System
from covr_lab.types import (
    Exchange,
    Feedback,
    Probe,
    Query,
    Question,
    RankedList,
    Session,
    SessionError,
    Target,
    Turn,
)

IDS = ("a", "b", "c", "t", "u")
GALLERY = Gallery.of(IDS, {video: f"{video} one\n\n{video} two\n" for video in IDS})


@dataclass(frozen=True)
class Ladder(Interview):
    """Asks two things together, then as many single ones as it has steps, each about the answer before."""

    steps: int = 1
    name: str = "x"

    def following(self, said: Sequence[Exchange]) -> tuple[Probe, ...]:
        if not said:
            return Probe(f"{self.name}0"), Probe(f"{self.name}1", "first half", "colour")
        return (Probe(f"after {said[-1].answer}"),) if len(said) < 2 + self.steps else ()


class Echo(AnsweringUser):
    """Answers with the video and the question; keeps what it is asked, as lists."""

    def __init__(self, bad: Sequence[str] = (), stop: bool = False) -> None:
        super().__init__(stop=stop)
        self.bad, self.asked = bad, list[list[Asked]]()

    def answer(self, asked: Sequence[Asked]) -> list[Answer]:
        self.asked.append(list(asked))
        if unreadable := sorted({each.video for each in asked}.intersection(self.bad)):
            raise SessionError(f"video {unreadable[0]}: truncated")
        return [Answer(f"{e.video}:{e.probe.text}", (call(e),)) for e in asked]


def call(asked: Asked) -> Call:
    return Call(Request("user_answer", (asked.probe.text,), asked.session_id, asked.turn), Response("yes"), True)


def shown(name: str, video: str = "a", feedback: Feedback | None = None) -> Session:
    result = RankedList(np.array([IDS.index(video)], dtype=np.int32))
    session = Session(Query(name, None, "a dog")).then(Turn(0, result))
    return session if feedback is None else session.then(Turn(1, result, feedback=feedback))


def ask(interview: Interview) -> Question:
    return Question(interview.following(())[0].text, interview=interview)


def converse(user: UserSimulator, *rounds: tuple[str, str, Question | None]) -> list[Feedback]:
    user.bind(GALLERY)
    sessions, targets = [shown(name) for name, *_ in rounds], [Target(name, video) for name, video, _ in rounds]
    return user.converse(sessions, targets, [question for *_, question in rounds])


def test_rounds_are_played_in_lockstep_and_each_question_once() -> None:
    user, two, one = Echo(), Ladder(2, "l"), Ladder(0, "s")
    said = converse(user, ("q", "t", ask(two)), ("r", "u", None), ("s", "u", Question("Where?")), ("w", "c", ask(one)))
    asked = [[(each.session_id, each.turn, each.video, each.probe.text) for each in batch] for batch in user.asked]
    assert asked == [
        [("q", 1, "t", "l0"), ("q", 1, "t", "l1"), ("s", 1, "u", "Where?"), ("w", 1, "c", "s0"), ("w", 1, "c", "s1")],
        [("q", 1, "t", "after t:l1")],
        [("q", 1, "t", "after t:after t:l1")],
    ]
    assert [words.action for words in said] == ["answer", "stop", "answer", "answer"]
    assert said[0].text == "t:l0; t:l1; t:after t:l1; t:after t:after t:l1"
    assert said[0].exchanges[:2] == (
        Exchange(Probe("l0"), "t:l0"),
        Exchange(Probe("l1", "first half", "colour"), "t:l1"),
    )
    assert [len(words.exchanges) for words in said] == [4, 0, 0, 2]  # a single question is in the turn itself
    assert [len(words.calls) for words in said] == [4, 0, 1, 2]
    assert said[2] == replace(Feedback("answer", "u:Where?"), calls=said[2].calls)
    alone = Echo()
    assert converse(alone, ("q", "t", ask(two))) == said[:1]
    assert converse(Echo(), ("w", "c", ask(one)), ("q", "t", ask(two))) == [said[3], said[0]]


def test_a_hit_ends_a_dialogue_only_if_told_so() -> None:
    user, patient = Echo(stop=True), Echo()
    question, targets = Question("Where?"), [Target("q", "t"), Target("r", "c", others=("u",)), Target("s", "c")]
    sessions = [shown("q", "t"), shown("r", "u"), shown("s", "u")]
    for each, happy in ((user, [True, True, False]), (patient, [False] * 3)):
        each.bind(GALLERY)
        assert each.satisfied(sessions, targets) == happy
        said = each.converse(sessions, targets, [question] * 3)
        assert [words.action == "stop" for words in said] == happy
    assert [each.video for each in user.asked[0]] == ["c"]  # an answer is about the first of several targets
    assert user.respond(sessions[2:], targets[2:], ["Where?"])[0].text == "c:Where?"


def test_policies_that_forbid_answers_are_refused() -> None:
    with pytest.raises(ValueError, match="a Echo only answers questions: drop the policy modify or rewrite"):
        DegradedUser(Echo(), {"p": Policy(policy="no_answers")})
    with pytest.raises(ValueError, match="DialogueUser says recorded answers"):
        DegradedUser(DialogueUser(), {"p": Policy(policy="rewrite_only")})
    with pytest.raises(ValueError, match="AnnotationUser says captions: it cannot be kept to modify"):
        DegradedUser(AnnotationUser(), {"p": Policy(policy="modify_only")})
    silent = DegradedUser(AnnotationUser(), {"p": Policy(policy="no_answers")})
    assert converse(silent, ("q", "t", Question("Where?"))) == [Feedback("rewrite", "t one")]


# Degraded answers


def test_every_answer_of_a_round_is_degraded_with_random_numbers_of_its_own() -> None:
    class Long(Echo):
        def answer(self, asked: Sequence[Asked]) -> list[Answer]:
            return [Answer("" if each.probe.text.endswith("0") else "one two three four five six") for each in asked]

    noise = {"noise": WordNoise(rate=0.5)}
    user = DegradedUser(Long(), noise)
    (words,) = converse(user, ("q", "t", ask(Ladder(3))))
    answers = [each.answer for each in words.exchanges]
    assert answers[0] == ""  # nothing was said, nothing is garbled
    assert len(set(answers[1:])) > 1
    assert words.text == "; ".join(answers[1:])
    assert words.clean == "; ".join(["one two three four five six"] * 4)
    other = converse(user, ("p", "t", ask(Ladder(1))), ("q", "t", ask(Ladder(3))))
    assert other[1] == words
    assert other[0].exchanges[1] != words.exchanges[1]
    assert converse(DegradedUser(Long(), {"terse": Terse(words=2)}), ("q", "t", ask(Ladder(0)))) == [
        replace(
            Feedback("answer", "one two", clean="one two three four five six"),
            exchanges=(Exchange(Probe("x0"), ""), Exchange(Probe("x1", "first half", "colour"), "one two")),
        )
    ]
    assert converse(DegradedUser(Long(), {"none": WordNoise(rate=0)}), ("q", "t", ask(Ladder()))) == converse(
        Long(), ("q", "t", ask(Ladder()))
    )


# Lines


def test_lines_are_said_in_order_and_then_the_dialogue_ends() -> None:
    user = AnnotationUser()
    user.bind(GALLERY)
    session, target = shown("q"), [Target("q", "t")]
    said = list[Feedback]()
    for question in (None, Question("Where?"), None):
        said += user.converse([session], target, [question])
        session = session.then(Turn(len(session.turns), session.turns[0].result, feedback=said[-1]))
    assert said == [Feedback("rewrite", "t one"), Feedback("answer", "t two"), Feedback("stop", "")]
    user.bind(Gallery.of(IDS, {"t": " \n "}))
    with pytest.raises(SessionError, match="video t: no caption to say"):
        user.converse([shown("q")], target, [None])
    happy = AnnotationUser(stop=True)
    happy.bind(GALLERY)
    assert happy.satisfied([shown("q", "t"), shown("r")], [*target, Target("r", "t")]) == [True, False]
    assert happy.respond([shown("q", "t")], target, [None]) == [Feedback("stop", "")]


def test_recorded_answers_are_said_whatever_is_asked() -> None:
    user = DialogueUser()
    user.bind(replace(GALLERY, dialogues={"t": (("is it a dog?", "no"), ("where?", "in a park"))}))
    said = user.converse(
        [shown("q"), shown("r", feedback=Feedback("answer", "no"))], [Target("q", "t")] * 2, [None] * 2
    )
    assert said == [Feedback("answer", "no"), Feedback("answer", "in a park")]
    with pytest.raises(SessionError, match=r"video u: no dialogue about it; set data\.dialogues"):
        user.converse([shown("q")], [Target("q", "u")], [None])


# In the loop


class Asks(System):
    """Opens a round each turn, and keeps all that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = list[Any]()

    def load(self) -> None:
        return

    def bind(self, gallery: Gallery, videos: object = None, *, mask_source: bool = True) -> None:
        self.seen.append(gallery)

    @property
    def fingerprints(self) -> dict[str, str]:
        return {}

    def start(self, queries: Sequence[Query]) -> list[Turn]:
        return [Turn(0, RankedList(np.zeros(1, np.int32))) for _ in queries]

    def ask(self, sessions: Sequence[Session]) -> list[Question | None]:
        return [ask(Ladder(len(session.turns))) for session in sessions]

    def step(
        self, sessions: Sequence[Session], feedback: Sequence[Feedback], questions: Sequence[Question | None]
    ) -> list[Turn]:
        self.seen += [*sessions, *feedback, *questions]
        return [
            Turn(len(s.turns), RankedList(np.zeros(1, np.int32)), question="?", feedback=said)
            for s, said in zip(sessions, feedback, strict=True)
        ]


class FirstWord(Degradation):
    """A user of few words."""

    def degrade(self, text: str, said: Sequence[str], draw: random.Random) -> str:
        return text.split()[0]


class Data:
    """What a runner binds of a data module."""

    gallery = Gallery.of(IDS, {})
    user_gallery = GALLERY
    videos = None


def rows(user: UserSimulator, names: Sequence[str] = ("q", "r", "s"), videos: str = "tuc") -> list[dict[str, Any]]:
    system = Asks()
    runner = SessionRunner(system, user, EvalProtocol(turns=2))
    runner.setup("predict")
    runner.bind(Data())  # type: ignore[arg-type]
    batch = SessionBatch(
        [Query(n, None, "a dog") for n in names], [Target(*each) for each in zip(names, videos, strict=True)]
    )
    found = runner.predict_step(batch)
    assert not any(isinstance(each, Target) for each in system.seen)
    assert all(not each.calls and each.clean is None for each in system.seen if isinstance(each, Feedback))
    return found


def test_rows_keep_the_round_and_its_calls() -> None:
    found = rows(DegradedUser(Echo(), {"short": FirstWord()}))
    assert [(row["session_id"], row["turn"]) for row in found] == [(n, t) for n in "qrs" for t in range(3)]
    second = found[2]
    assert [(each["question"], each["part"], each["slot"], each["answer"]) for each in second["exchanges"]] == [
        ("x0", "whole", "", "t:x0"),
        ("x1", "first half", "colour", "t:x1"),
        ("after t:x1", "whole", "", "t:after"),
        ("after t:after t:x1", "whole", "", "t:after"),
    ]
    assert second["feedback"] == "t:x0; t:x1; t:after; t:after"
    assert second["events"] == [{"kind": "clean_feedback", "detail": "t:x0; t:x1; t:after t:x1; t:after t:after t:x1"}]
    assert second["calls"] == 0  # those of a user cost the system nothing
    assert [module["module"] for module in second["modules"]] == ["user_answer"] * 4


def test_a_target_that_cannot_be_read_fails_its_own_sessions() -> None:
    found = rows(Echo(bad=["u"]))
    failed = [row for row in found if row["error"]]
    assert [(row["session_id"], row["turn"], row["error"]) for row in failed] == [("r", 1, "video u: truncated")]
    drop = {"seconds", "stage_timing"}

    def timeless(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{key: value for key, value in row.items() if key not in drop} for row in table]

    alone = rows(Echo(), ("q", "s"), "tc")
    assert timeless([row for row in found if row["session_id"] != "r"]) == timeless(alone)


def test_weights_are_loaded_before_the_loop() -> None:
    class Heavy(Echo):
        def load(self) -> None:
            self.fingerprint = "weights"

    user = DegradedUser(Heavy(), {"short": Terse(words=1)})
    runner = SessionRunner(Asks(), user, EvalProtocol(turns=1))
    runner.setup("predict")
    assert runner.fingerprints == {"simulator": "weights"}
