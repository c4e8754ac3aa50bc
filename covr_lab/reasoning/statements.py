"""Answers as statements, and the query that grows by them (IVR; dossier, sections 3.1, 3.4 and 3.5)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from covr_lab.reasoning.asking import tidy
from covr_lab.reasoning.base import IntentReasoner
from covr_lab.reasoning.intent import fit_words
from covr_lab.reasoning.interview import subject
from covr_lab.types import Context, Exchange, Feedback, Intent, Session

_CONTRACTED: Final = re.compile(r"^(\s*(?:what|where|who))'s\b")
NOWHERE: Final = frozenset({"no", "none", "not", "nothing", "nowhere", "unknown"})  # of an answer without a place


def statement(question: str, answer: str) -> str:
    """A question and its answer as one statement in lower case; "" where no rule fits (dossier, section 3.5).

    >>> statement("What is the man doing?", "cooking"), statement("What does the man do?", "sings")
    ('the man cooking', 'the man sings')
    >>> statement("What color is the car?", "red"), statement("What's on the table?", "a cup")
    ('the car is red', 'a cup on the table')
    >>> statement("Where are the dogs?", "beach"), statement("Who's singing?", "a girl")
    ('the dogs are beach', 'a girl is singing')
    >>> statement("What color is the man's shirt?", "blue"), statement("Where's the man?", "park")
    ("the man's shirt is blue", 'the man is park')
    >>> statement("How many dogs are there?", "3"), statement("Is it night?", "yes")
    ('a few dogs are', '')
    """
    words = _CONTRACTED.sub(r"\1 's", question.lower().replace("\u2019", "'")).strip(" ?").split()
    convert, said = _RULES.get(words[0] if words else ""), tidy(answer.lower())
    return tidy(convert(words[1:], said)) if convert is not None and said and len(words) > 1 else ""


def _what(words: list[str], answer: str) -> str:
    if words[0] in ("does", "did", "do"):
        return _replaced(words[1:], "do", answer)
    verb = "'s" if words[0] == "'s" else next((verb for verb in ("is", "are") if verb in words), None)
    if verb is None:
        return ""
    rest = words[words.index(verb) + 1 :]
    if not rest:
        return ""
    if "doing" in rest:
        return _replaced(rest, "doing", answer)
    if verb == "'s":
        return " ".join((answer, *rest))
    return " ".join((*rest, verb, answer))


def _how_many(words: list[str], answer: str) -> str:
    if words[0] != "many" or not answer.isdecimal():
        return ""
    count, rest = int(answer), words[1:]
    if "there" in rest:
        rest.remove("there")
    return " ".join(({0: "no", 1: "a"}.get(count, "many" if count > 10 else "a few"), *rest))


def _who(words: list[str], answer: str) -> str:
    return " ".join((answer, *("is" if word == "'s" else word for word in words)))


def _where(words: list[str], answer: str) -> str:
    return " ".join((*words[1:], "is" if {"is", "'s"} & {*words} else "are", answer)) if words[1:] else ""


def _replaced(words: list[str], old: str, new: str) -> str:
    """``words`` with the first ``old`` replaced; "" where there is none."""
    if old not in words:
        return ""
    at = words.index(old)
    return " ".join((*words[:at], new, *words[at + 1 :]))


_RULES: Final = {"what": _what, "how": _how_many, "who": _who, "where": _where}


def pieces(exchanges: Sequence[Exchange], *, released: bool = False) -> list[str]:
    """What a round adds to the query: a piece for each chain of questions, in the order in which the chains began.

    Args:
        exchanges: questions and answers, in any number of chains (:class:`~covr_lab.reasoning.interview.Chains`).
        released: see :class:`StatementHistory`.

    >>> from covr_lab.types import Probe
    >>> doing, place = Probe("What is the man doing?", slot="doing"), Probe("Where is the man cooking?", slot="where")
    >>> pieces([Exchange(doing, "cooking"), Exchange(place, "in snow")])
    ['man is cooking in snow']
    >>> pieces([Exchange(doing, "cooking"), Exchange(place, "in snow")], released=True)
    ['man is cooking']
    """
    found = []
    for exchange in exchanges:
        part = [each for each in exchanges if each.probe.part == exchange.probe.part]
        answers = {each.probe.slot: tidy(each.answer) for each in part}
        match exchange.probe.slot:
            case "":
                found.append(statement(exchange.probe.text, exchange.answer))
            case "doing":
                found.append(_person_piece(exchange.probe.text, answers, released))
            case "cartoon":
                found.append(_thing_piece(answers))
            case "object":
                found.append(_object_piece(answers))
    return [piece for piece in dict.fromkeys(found) if piece]


def _person_piece(question: str, answers: Mapping[str, str], released: bool) -> str:
    verb, who = subject(question)
    where = answers.get("where", "")
    # The released code looks for the letters "no", and so drops snow and north as well.
    missing = "no" in where if released else not NOWHERE.isdisjoint(where.lower().split())
    return _said(f"{who} {verb}", answers["doing"], "" if missing else where)


def _thing_piece(answers: Mapping[str, str]) -> str:
    if who := answers.get("character"):
        return _said(f"{who} is", answers.get("character doing", ""))
    if who := answers.get("animal"):
        return _said(f"{who} is", answers.get("animal doing", ""), answers.get("animal place", ""))
    return _object_piece(answers)


def _object_piece(answers: Mapping[str, str]) -> str:
    if not answers.get("object"):
        return ""
    return _said(f"{answers.get('colour', '')} {answers['object']} is", answers.get("place", ""))


def _said(start: str, *rest: str) -> str:
    """``start`` and what was answered; "" where nothing was."""
    return tidy(" ".join((start, *rest))) if any(rest) else ""


def round_pieces(question: str | None, feedback: Feedback, *, released: bool = False) -> list[str]:
    """Pieces of one turn.

    Words without recorded questions (of a person, or of a user who hears the first question alone) answer ``question``;
    where no rule makes a statement of the two, the words stand as they are.
    """
    if feedback.exchanges:
        return pieces(feedback.exchanges, released=released)
    return [said] if (said := statement(question or "", feedback.text) or tidy(feedback.text)) else []


def session_pieces(session: Session, *, released: bool = False) -> list[str]:
    """The first query and the pieces of every turn so far, each once."""
    rounds = (round_pieces(turn.question, turn.feedback, released=released) for turn in session.turns if turn.feedback)
    found = (tidy(session.query.text), *(piece for each in rounds for piece in each))
    return [piece for piece in dict.fromkeys(found) if piece]


class StatementHistory(IntentReasoner):
    """The first query and all answers as statements, in one text for a text-to-video channel (IVR).

    Args:
        separator: between pieces. BLIP reads ``[SEP]`` as its separator token where ``blip.separators`` is set.
        max_words: drop the oldest answers, never the first query or the newest piece, until the text has so many words.
            Without it all of it is sent, and an encoder that reads less cuts off the newest answers, as the released
            code does (35 tokens).
        released: drop a place with the letters "no" in it, as the released code does, and not for words such as "no"
            and "nowhere" alone.
    """

    def __init__(
        self,
        *,
        separator: str = " [SEP] ",
        max_words: int | None = None,
        released: bool = False,
    ) -> None:
        super().__init__()
        self.separator, self.max_words, self.released = separator, max_words, released

    def render(self, context: Context) -> Intent:
        """Join the pieces."""
        newest = []
        if context.feedback is not None:
            newest = round_pieces(context.question, context.feedback, released=self.released)
        said = session_pieces(context.session, released=self.released)
        found = list(dict.fromkeys((*said, *newest)))
        return Intent(self.separator.join(found if self.max_words is None else fit_words(found, self.max_words)))

    def fallback(self, context: Context) -> Intent:
        """Joining cannot fail."""
        return self.render(context)
