"""A degraded user: streams, order of degradations, policies, and that no system learns what it meant."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from covr_lab.data.base import SessionBatch
from covr_lab.data.words import world
from covr_lab.functional.text import content_words
from covr_lab.gallery.gallery import Gallery
from covr_lab.protocol import EvalProtocol
from covr_lab.runner import SessionRunner
from covr_lab.simulators import (
    CharacterNoise,
    Degradation,
    DegradedUser,
    DropConstraints,
    Inconsistent,
    Policy,
    RuleUser,
    ScriptedUser,
    Terse,
    UserSimulator,
    Verbose,
    WordNoise,
)
from covr_lab.simulators.base import CHOICES, stream
from covr_lab.system import System
from covr_lab.types import (
    Event,
    Feedback,
    Query,
    Question,
    RankedList,
    Session,
    SessionError,
    Target,
    Turn,
)

WORLD = world(60, 40, seed=7)
CAPTIONS = {
    **{row.reference: row.reference_caption for row in WORLD if row.reference is not None},
    **{row.target: row.target_caption for row in WORLD},
}
GALLERY = Gallery.of(sorted(CAPTIONS), CAPTIONS)
TARGETS = {row.session_id: Target(row.session_id, row.target) for row in WORLD}
ASK = "What is in it?"
Log = dict[tuple[str, int], Feedback]


def everything() -> dict[str, Degradation]:
    noise = {"characters": CharacterNoise(), "words": WordNoise()}
    return {"drop": DropConstraints(), "against": Inconsistent(), **noise, "talk": Verbose()}


def play(user: UserSimulator, *, turns: int = 4, size: int = 40, reverse: bool = False) -> Log:
    """Dialogues in which a video drawn by session and turn is on display, ``size`` sessions a call."""
    user.bind(GALLERY)
    log: Log = {}
    now = {row.session_id: Session(Query(row.session_id, row.reference, row.edit)) for row in WORLD}
    for index in range(turns):
        for name, session in now.items():
            wrong = [row for row in range(len(GALLERY)) if GALLERY.ids[row] != TARGETS[name].video]
            shown = RankedList(np.array([stream(name, index).choice(wrong)], dtype=np.int32))
            turn = Turn(index, shown, question=ASK if index else None, feedback=log.get((name, index)))
            now[name] = session.then(turn)
        order = sorted(now, reverse=reverse)
        for at in range(0, len(order), size):
            part = order[at : at + size]
            said = user.respond([now[n] for n in part], [TARGETS[n] for n in part], [ASK] * len(part))
            log |= {(name, index + 1): words for name, words in zip(part, said, strict=True)}
    return log


class Hears(UserSimulator):
    """Says one thing, and notes all that it is asked."""

    def __init__(self, text: str = "a red hat, a blue car", action: str = "modify") -> None:
        super().__init__()
        self.feedback, self.heard = Feedback(action, text), list[str | None]()  # type: ignore[arg-type]

    def respond(
        self, sessions: Sequence[Session], targets: Sequence[Target], questions: Sequence[str | None]
    ) -> list[Feedback]:
        self.heard += [*questions, *(turn.question for session in sessions for turn in session.turns)]
        return [self.feedback] * len(sessions)


def one(user: UserSimulator, name: str = "0") -> Feedback:
    user.bind(GALLERY)
    row = next(row for row in WORLD if row.session_id == name)
    session = Session(Query(name, row.reference, row.edit)).then(
        Turn(0, RankedList(np.array([0], dtype=np.int32)), question=ASK)
    )
    return user.respond([session], [TARGETS[name]], [ASK])[0]


# Streams


def test_batch_and_order_change_no_word() -> None:
    user = DegradedUser(RuleUser(), everything())
    log = play(user)
    assert play(user, size=1) == log
    assert play(user, size=7, reverse=True) == log
    assert sum(words.clean is not None for words in log.values()) == len(log) == 160  # talk changes every text


def test_session_turn_seed_and_name_draw_anew() -> None:
    def changed(**noise: Degradation) -> list[bool]:
        # what is said is the same in every session and turn: a difference is one of the draw
        log = play(DegradedUser(Hears("window " * 3), noise))
        return [words.clean is not None for words in log.values()]

    base = changed(noise=CharacterNoise())
    assert changed(noise=CharacterNoise()) == base
    assert 0 < sum(base) < len(base)
    assert changed(noise=CharacterNoise(seed=1)) != base
    assert changed(other=CharacterNoise()) != base
    turns = [base[at : at + 40] for at in range(0, 160, 40)]
    assert len({tuple(turn) for turn in turns}) == 4


def test_later_turns_of_a_user_are_about_what_was_really_said() -> None:
    """The rule-based user repeats a word that a slip hid from its partner."""
    slips = CharacterNoise(rate=1.0)
    clean, noisy = play(RuleUser()), play(DegradedUser(RuleUser(), {"slips": slips}))
    repeats = Counter[str]()
    for kind, log in (("clean", clean), ("noisy", noisy)):
        for row in WORLD:
            wanted = set(content_words(row.target_caption)) - set(content_words(row.edit))
            meant = [
                wanted & set(content_words(log[row.session_id, t].clean or log[row.session_id, t].text)) for t in (1, 2)
            ]
            repeats[kind] += len(meant[0] & meant[1])
    assert repeats["noisy"] > repeats["clean"] + 20


# Order


def test_degradations_apply_in_the_order_given() -> None:
    short, talk = Terse(words=2), Verbose()
    told, cut = one(DegradedUser(Hears(), {"a": short, "b": talk})), one(DegradedUser(Hears(), {"b": talk, "a": short}))
    assert " red hat. " in told.text
    assert len(told.text.split()) > 6
    assert len(cut.text.split()) <= 2
    assert told.clean == cut.clean == "a red hat, a blue car"
    inner = DegradedUser(Hears(), {"a": short})
    assert one(DegradedUser(inner, {"b": talk})) == told  # laid one around the other, they are the same


def test_unchanged_words_and_a_stop_are_passed_on() -> None:
    assert one(DegradedUser(Hears(), {"none": CharacterNoise(rate=0)})) == Feedback("modify", "a red hat, a blue car")
    assert one(DegradedUser(Hears("", "stop"), {"talk": Verbose()})) == Feedback("stop", "")


def test_what_surrounds_the_words_is_the_users_own() -> None:
    user = RuleUser()
    user.fingerprint = "abc"
    degraded = DegradedUser(user, everything())
    degraded.bind(GALLERY)
    video = WORLD[0].target
    shown = Session(Query("0", None, "x")).then(Turn(0, RankedList(np.array([GALLERY.row[video]], dtype=np.int32))))
    assert degraded.fingerprint == "abc"
    assert degraded.satisfied([shown], [Target("0", video)]) == [True]
    assert degraded.satisfied([shown], [Target("0", WORLD[1].target)]) == [WORLD[1].target == video]
    assert degraded.connect({}) == frozenset()
    assert degraded.rehearse(shown, Target("0", video)) == user.rehearse(shown, Target("0", video))


# Policies


@pytest.mark.parametrize(
    ("policy", "actions"),
    [("modify_only", {"modify"}), ("rewrite_only", {"rewrite"}), ("no_answers", {"modify", "rewrite"})],
)
def test_a_rule_based_user_keeps_to_its_policy_and_speaks_so(policy: str, actions: set[str]) -> None:
    free = play(RuleUser(answer_rate=1.0, similarity=0.1))
    kept = play(DegradedUser(RuleUser(answer_rate=1.0, similarity=0.1), {"p": Policy(policy=policy)}))  # type: ignore[arg-type]
    assert {words.action for words in free.values()} == {"modify", "answer"}
    assert {words.action for words in play(RuleUser(similarity=0.1)).values()} == set(CHOICES)
    assert {words.action for words in kept.values()} == actions
    assert all(words.clean is None for words in kept.values())
    rejecting = sum(words.text.startswith(("I like", "keep", "Keep", "yes to", "Add ")) for words in kept.values())
    assert (rejecting == 0) == (policy == "rewrite_only")  # wordings of changes are for those who ask for changes
    new = [set(content_words(kept[row.session_id, 1].text)) & set(content_words(row.target_caption)) for row in WORLD]
    assert all(new)


@pytest.mark.parametrize("policy", ["modify_only", "rewrite_only", "no_answers"])
def test_under_a_policy_no_question_is_heard(policy: str) -> None:
    user = Hears()
    one(DegradedUser(user, {"noise": WordNoise()}))
    assert set(user.heard) == {ASK}
    user.heard.clear()
    one(DegradedUser(user, {"policy": Policy(policy=policy)}))  # type: ignore[arg-type]
    assert set(user.heard) == {None}


def test_policies_compose_or_are_refused() -> None:
    rewrite, modify, silent = (Policy(policy=name) for name in ("rewrite_only", "modify_only", "no_answers"))
    user = DegradedUser(RuleUser(), {"a": silent, "b": modify})
    assert user.allowed == user.user.allowed == {"modify"}
    with pytest.raises(ValueError, match="degradations a, b leave the user no action: drop one of the policies"):
        DegradedUser(RuleUser(), {"a": rewrite, "b": modify})
    with pytest.raises(ValueError, match="ScriptedUser reads lines that are there: it cannot be kept to modify"):
        DegradedUser(ScriptedUser({}), {"a": modify})
    assert one(DegradedUser(ScriptedUser({"0": ["a red hat"]}), {"a": Terse(words=1)})).text == "red"


# What the system hears


class Probe(System):
    """Shows the same video again and again, and keeps all that it is given."""

    def __init__(self, fails: str = "") -> None:
        super().__init__()
        self.seen, self.fails = list[object](), fails

    def load(self) -> None:
        return

    def bind(self, gallery: Gallery, videos: object = None, *, mask_source: bool = True) -> None:
        self.seen.append(gallery)

    @property
    def fingerprints(self) -> dict[str, str]:
        return {}

    def start(self, queries: Sequence[Query]) -> list[Turn]:
        self.seen += queries
        return [Turn(0, RankedList(np.zeros(1, np.int32))) for _ in queries]

    def ask(self, sessions: Sequence[Session]) -> list[Question | None]:
        self.seen += sessions
        return [Question(ASK, events=(Event("led", "here"),)) if len(s.turns) > 1 else None for s in sessions]

    def step(
        self, sessions: Sequence[Session], feedback: Sequence[Feedback], questions: Sequence[Question | None]
    ) -> list[Turn]:
        self.seen += [*sessions, *feedback, *questions]
        if self.fails in [session.query.session_id for session in sessions]:
            raise SessionError(f"session {self.fails}: broken")
        return [
            Turn(len(s.turns), RankedList(np.zeros(1, np.int32)), feedback=said, events=(Event("own"),))
            for s, said in zip(sessions, feedback, strict=True)
        ]


class Mumble(Degradation):
    """Leaves nothing of what was meant."""

    def degrade(self, text: str, said: Sequence[str], draw: random.Random) -> str:
        return f"hm {draw.randrange(1000)}"


class Data:
    """What a runner binds of a data module; the system's gallery has no captions."""

    gallery = Gallery.of(GALLERY.ids, {})
    user_gallery = GALLERY
    videos = None


def rows_of(probe: Probe, names: Sequence[str]) -> list[dict[str, Any]]:
    user = DegradedUser(RuleUser(), {"mumble": Mumble()})
    runner = SessionRunner(probe, user, EvalProtocol(turns=3))
    runner.bind(Data())  # type: ignore[arg-type]
    edits = {row.session_id: row for row in WORLD}
    queries = [Query(name, edits[name].reference, edits[name].edit) for name in names]
    return runner.predict_step(SessionBatch(queries, [TARGETS[name] for name in names]))


def test_no_system_hears_what_was_meant_and_every_row_keeps_it() -> None:
    names = [row.session_id for row in WORLD[:8] if row.target != GALLERY.ids[0]]
    probe = Probe()
    rows = [row for row in rows_of(probe, names) if row["turn"]]
    known, meant = "\n".join(map(repr, probe.seen)), list[str]()
    assert len(rows) == 3 * len(names)
    for row in rows:
        events = row["events"]
        assert [event["kind"] for event in events] == ["clean_feedback", "own"]
        meant.append(events[0]["detail"])
        assert str(row["feedback"]).startswith("hm ")
        assert repr(meant[-1]) not in known
        assert str(row["feedback"]) in known
    assert "clean_feedback" not in known
    plain = RuleUser()
    plain.bind(GALLERY)
    first = WORLD[0]
    opened = Session(Query(first.session_id, first.reference, first.edit)).then(
        Turn(0, RankedList(np.zeros(1, np.int32)))
    )
    assert meant[0] == plain.respond([opened], [TARGETS[first.session_id]], [None])[0].text
    questions = [each for each in probe.seen if isinstance(each, Question)]
    assert questions == [Question(ASK, events=(Event("led", "here"),))] * (2 * len(names))


def test_a_failed_turn_keeps_what_was_meant_as_well() -> None:
    names = [row.session_id for row in WORLD[:3]]
    rows = rows_of(Probe(fails=names[1]), names)
    failed = [row for row in rows if row["error"]]
    assert [(row["session_id"], row["turn"]) for row in failed] == [(names[1], 1)]
    assert [event["kind"] for event in failed[0]["events"]] == ["clean_feedback"]
    assert Counter(row["session_id"] for row in rows) == {names[0]: 4, names[1]: 2, names[2]: 4}
