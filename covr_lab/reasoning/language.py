"""Deterministic English: what an edit or a piece of feedback wants, rejects and keeps; english.yaml holds the rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from covr_lab.functional.text import WORD, content_words
from covr_lab.reasoning.english import RULES, SPELLINGS, TYPOS, Rule, named
from covr_lab.types import Satisfaction

Kind = Literal["replace", "add", "remove", "keep", "describe"]


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing said about the wanted video: ``new`` is wanted or kept, ``old`` unwanted; "" where none is named."""

    kind: Kind
    new: str = ""
    old: str = ""


@dataclass(frozen=True, slots=True)
class Parsed:
    """Clauses in the order of the text, and the verdict on the shown video that the text gives or implies."""

    clauses: tuple[Clause, ...]
    satisfaction: Satisfaction

    def _words(self, wanted: str) -> tuple[str, ...]:
        uses: list[tuple[str, str]] = []
        for clause in self.clauses:
            shared = stems(clause.new)
            uses += [(word, "avoid") for word in content_words(clause.old) if _stem(word) not in shared]
            uses += [(word, "keep" if clause.kind == "keep" else "require") for word in content_words(clause.new)]
        unwanted = {_stem(word): role == "avoid" for word, role in uses}  # the later clause wins
        chosen = [word for word, role in uses if role == wanted and unwanted[_stem(word)] == (role == "avoid")]
        return tuple(dict.fromkeys(chosen))

    @property
    def require(self) -> tuple[str, ...]:
        """Content words that the user wants."""
        return self._words("require")

    @property
    def avoid(self) -> tuple[str, ...]:
        """Content words that the user does not want."""
        return self._words("avoid")

    @property
    def keep(self) -> tuple[str, ...]:
        """Content words that the user wants to stay."""
        return self._words("keep")


_COLOURS = frozenset(re.findall(r"[a-z]+", named("COLOUR").pattern))
_IRREGULAR = {"men": "man", "women": "woman", "children": "child", "people": "person", "leaves": "leaf", "feet": "foot"}
_STICKY = ("remove", "without", "forbid", "contrast", "wrong", "keep")  # no later frame of the segment changes these


@lru_cache(maxsize=65536)
def _stem(word: str) -> str:
    """Lower-case singular of an English noun, roughly; words of equal stems count as the same."""
    word = re.sub(r"'s?$", "", word.lower().replace("\u2019", "'"))
    if word in _IRREGULAR or len(word) < 4:
        return _IRREGULAR.get(word, word)
    return f"{word[:-3]}y" if word.endswith("ies") else re.sub(r"(?<=s|x|z|h)es$|(?<![sui])s$", "", word)


def stems(text: str) -> set[str]:
    """Its content words, each in the form that stands for all of equal meaning here.

    >>> sorted(stems("Two dogs and a DOG"))
    ['dog', 'two']
    """
    return {_stem(word) for word in content_words(text)}


def _segments(text: str) -> list[str]:
    text = text.lower().replace("\u2019", "'")
    text = WORD.sub(lambda match: TYPOS.get(match.group(), match.group()), text)
    for pattern, spelling in SPELLINGS:
        text = pattern.sub(spelling, text)
    return named("CUT").split(text)


def _clean(phrase: str) -> str:
    """``phrase`` without articles, fillers and words of the request at its edges; "" when it has no content."""
    phrase = named("LAST").sub("", named("FIRST").sub("", phrase.replace("_", " ").strip(" ,'-/")))
    return phrase if content_words(phrase) else ""


def _unwanted(old: str, new: str = "") -> str:
    """Head of a rejected phrase: "the boat on the lake" is no complaint about the lake."""
    old = _clean(re.sub(r"^ *(?:(?:wear|hav|show)(?:e|ing)?|the (?:right|correct)) ", "", old))
    head = _clean(named("HEAD").split(old, maxsplit=1)[0])
    return head if stems(head) - stems(new) else old


def _swap(old: str, new: str, *, whole: bool) -> Clause:
    """``old`` changes into something else (``whole``, or ``new`` is a noun), or one of its properties does."""
    thing, noun, pronoun = _clean(old), named("NOUN").match(new), re.search(r"\bones?$", new)  # "a blue one"
    new, slot = _clean(new), named("SLOT").search(thing)
    core = _clean(named("SLOT").sub(r"\g<pre>", thing)) if slot else thing
    tail = f" {slot['slot']}" if slot else ""  # wanted too; apply_clauses leaves it out
    if not core or not new:
        return Clause("replace", new + tail) if new else Clause("remove", old=_unwanted(core))
    paint = _COLOURS.issuperset(content_words(new))
    plurals = core.endswith("s") and new.endswith("s")
    if not slot and (pronoun or (not paint and (whole or noun or plurals))):
        return Clause("replace", new, _unwanted(core, new))
    worn = [word for word in core.split() if paint and word in _COLOURS]
    bare = " ".join(word for word in core.split() if word not in worn)
    return Clause("replace", (f"{new} {bare}".strip() if paint else f"{core} {new}") + tail, " ".join(worn))


def _verdict(phrase: str) -> str:
    """Flag of words that judge the shown video: -- rejected outright, + right or nearly, ~ undecided, - rejected."""
    good, bad, never, weak, strong, this, fits = (
        named(name).search(phrase) for name in ("GOOD", "BAD", "NEVER", "WEAK", "STRONG", "THIS", "FITS")
    )
    if bad:
        return "+" if never and never.group().endswith(("not", "nothing")) else "--" if strong else "-"
    if never:
        return "~" if weak else "no" if not good and not this else "--" if strong else "-"
    return "yes" if phrase.strip() in ("right", "correct", "exactly") else "+" if good or fits else ""


def _claim(segment: str, kind: str) -> tuple[Rule, re.Match[str]] | None:
    """The first rule that reads ``segment``, whose frames so far mean ``kind``."""
    for rule in RULES:
        if match := rule.pattern.match(segment):
            judges = rule.tag in ("verdict", "yes", "no")  # only before any frame
            # What a sticky frame rejects is one phrase, save for "do not turn X into Y".
            whole = rule.pattern.groups and kind in _STICKY and (kind != "forbid" or rule.tag not in ("swap", "become"))
            if not (whole or (judges and kind) or (rule.tag == "verdict" and not _verdict(match.group()))):
                return rule, match
    return None


def _read(segment: str) -> tuple[str, dict[str, str], set[str], list[Rule]]:
    """Tag of one segment, its phrases (``rest``: what no rule has claimed), the flags met and the rules used."""
    kind, flags, used, segment = "", set[str](), list[Rule](), segment.strip(" ,")
    while kind != "keep" and (claim := _claim(segment, kind)):
        rule, match = claim
        used.append(rule)
        if rule.pattern.groups:
            return (kind if kind in _STICKY else rule.tag), match.groupdict(""), flags, used
        segment = segment[match.end() :].strip(" ,")
        if rule.tag in ("verdict", "yes", "no", "ask"):
            flags.add(_verdict(match.group()) if rule.tag == "verdict" else rule.tag)
        elif rule.tag != "skip" and kind not in _STICKY:
            kind = rule.tag
    return kind or "describe", {"rest": segment}, flags, used


def _clause(tag: str, phrases: dict[str, str]) -> tuple[Clause, str]:
    """The clause of one segment, and the words after a rejection that it does not reach ("no people, blue sky")."""
    rest = phrases.get("rest", "")
    new, old, after = phrases.get("new", rest), phrases.get("old", rest), ""
    if tag in ("swap", "become"):
        what = phrases.get("what", "")  # "change the setting from a kitchen to a garden"
        swap = _swap(what or old, new, whole=tag == "swap" and not what)
        return (Clause("replace", swap.new, _unwanted(old, new)) if what else swap), after
    if tag in _STICKY and tag != "keep":
        old = phrases.get("new", old)  # "do not turn it into a cat"
        listed = tag == "remove" or re.search(r",.*\bn?or\b|, ?and\b", old) or (tag != "contrast" and ", the " in old)
        if not listed:
            old, _, after = old.partition(",")
        slot = tag == "wrong" and named("SLOT").fullmatch(_clean(old))  # "the colour is wrong" rejects no word
        return Clause("remove", old="" if slot else _unwanted(old)), after
    kinds: dict[str, Kind] = {"keep": "keep", "add": "add", "replace": "replace"}
    return Clause(kinds.get(tag, "describe"), _clean(new)), after


def _satisfaction(flags: set[str], clauses: Sequence[Clause], *, fresh: bool, answers: bool) -> Satisfaction:
    kinds = {clause.kind for clause in clauses}
    flags = flags - {"yes", "no"} if answers else flags
    if "--" in flags or flags & {"+", "yes"}:
        return "negative" if "--" in flags else "positive"
    if "~" in flags or (kinds == {"keep"} and "-" not in flags):  # "no, keep the dog" mends, it does not reject
        return "neutral"
    return "negative" if flags & {"-", "no"} or (fresh and not answers and "keep" not in kinds) else "neutral"


@lru_cache(maxsize=4096)  # several reasoners of a turn read the same text
def parse_feedback(text: str, question: str | None = None) -> Parsed:
    """Read one edit, feedback or answer.

    Args:
        text: what the user typed.
        question: the open question that the text may answer; "yes" and "no" then give no verdict.

    >>> parse_feedback("Could you replace the dog with a cat, and no people please").clauses
    (Clause(kind='replace', new='cat', old='dog'), Clause(kind='remove', new='', old='people'))
    >>> parse_feedback("I want a dog on a beach").satisfaction
    'negative'
    """
    waiting, clauses, seen = _segments(text)[::-1], list[Clause](), set[str]()
    fresh = pending = False  # a description of its own; a rejection that waits for what is wanted instead
    while waiting:
        tag, phrases, flags, _ = _read(waiting.pop())
        seen |= flags
        clause, after = _clause(tag, phrases)
        waiting += [after] if after else []
        if not clause.new and not clause.old:
            continue
        last, rest = clauses[-1] if clauses else clause, phrases.get("rest", "")
        wish, wished = (c.new and not c.old and c.kind != "keep" for c in (clause, last))
        if not clauses and clause.kind == "describe":
            fresh = bool(named("SCENE").match(rest) or ("ask" in flags and not named("PART").match(rest)))
        if pending and wish:
            clauses[-1], pending = Clause("replace", clause.new, last.old), False
        elif tag == "contrast" and wished:
            clauses[-1], fresh = Clause("replace", last.new, clause.old), False
        else:
            clauses.append(clause)
            pending = tag == "contrast"
    return Parsed(tuple(clauses), _satisfaction(seen, clauses, fresh=fresh, answers=question is not None))


def relative_edit(clauses: Sequence[Clause]) -> str:
    """The change as one short edit, "" when nothing is relative to the shown video.

    >>> relative_edit([Clause("replace", "cat", "dog"), Clause("add", "snow")])
    'replace dog with cat, add snow'
    """
    if all(clause.kind == "describe" for clause in clauses):
        return ""
    forms = {"replace": "change to {0.new}", "remove": "remove {0.old}", "keep": "keep {0.new}"}
    both = "replace {0.old} with {0.new}"
    return ", ".join((both if c.old and c.new else forms.get(c.kind, "add {0.new}")).format(c) for c in clauses)


def _repainted(text: str, new: str) -> str:
    """``text`` with a hole for the colour that ``new`` changes: one before the same noun, or the only one."""
    colours, nouns = _COLOURS.intersection(content_words(new)), stems(new) - _COLOURS
    found = [m for m in re.finditer(r"\b(\w+)\b(?: (?=(\w+)))?", text) if m[1].lower() in _COLOURS - colours]
    near = [m for m in found if m[2] and _stem(m[2]) in nouns] or (found if len(found) == 1 and not nouns else [])
    return f"{text[: near[0].start(1)]}\0{text[near[0].end(1) :]}" if colours and near else text


def _applied(text: str, clause: Clause, banned: set[str]) -> str:
    gone = stems(clause.old) & banned
    new = named("TAIL").sub("", clause.new) if clause.kind == "replace" else clause.new
    text = WORD.sub(lambda match: "\0" if _stem(match.group()) in gone else match.group(), text)
    if clause.kind == "replace" and "\0" not in text:
        text = _repainted(text, new)
    have = stems(text) | banned
    if not have.isdisjoint(stems(new)):
        new = " ".join(word for word in content_words(new) if _stem(word) not in have)
    if new and "\0" in text:
        article = "an " if new[0] in "aeiou" else "a "
        text = re.sub(r"(\ban? )?\0", lambda match: (article if match[1] else "") + new, text, count=1)
    elif new:
        text = f"{text.rstrip(' ,.;')}, {new}"
    return named("HOLE").sub("", text)


def apply_clauses(query: str, clauses: Sequence[Clause]) -> str:
    """Rewrite the running description of the wanted video, so that turns add up. Applying twice changes nothing.

    >>> apply_clauses("A dog on the beach", parse_feedback("a cat instead of a dog, and add snow").clauses)
    'A cat on the beach, snow'
    """
    query, before = re.sub(r"[\s\0]+", " ", query), None
    banned = {_stem(word) for word in Parsed(tuple(clauses), "neutral").avoid}
    for clause in clauses:
        query = query if clause.kind == "keep" else _applied(query, clause, banned)
    while before != query:
        before, query = query, named("LOOSE").sub("", query).strip(" ,.;")
    return query
