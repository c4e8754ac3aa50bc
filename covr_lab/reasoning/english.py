"""What english.yaml says, compiled once: typos, spellings, named patterns and ordered rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

import yaml

from covr_lab.functional.text import FUNCTION_WORDS


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of ``rules``: a frame at the start of a segment, or a reader of the whole of it (with groups)."""

    tag: str
    example: str
    pattern: re.Pattern[str]


def _with_names(pattern: str) -> str:
    return re.sub("@([A-Z]+)", lambda match: _NAMES[match[1]], pattern)


def _pattern(source: str | list[str]) -> str:
    """Regular expression of one entry: layout removed, <old> and <new> named, other groups closed, names put in."""
    joined = source if isinstance(source, str) else "|".join(source)
    one_line = re.sub(r"\s*\n\s*| *(\|) *", r"\1", joined)
    phrases = re.sub(r"(?<!\?P)<(\w+)>", r"(?P<\1>.+?)", one_line)
    return "(?:" + _with_names(re.sub(r"(?<!\\)\((?!\?)", "(?:", phrases)) + ")"


def _slips(word: str) -> set[str]:
    """Misspellings of ``word``; one letter less or doubled only in long words, where the result is no other word."""
    places = range(len(word) - 1)
    slips = {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in places}
    if len(word) > 5:
        slips |= {word[: i + 1] + word[i + 2 :] for i in places} | {word[: i + 1] + word[i:] for i in places}
    return slips - {word}


def _rule(tag: str, example: str, pattern: str | list[str]) -> Rule:
    source = _pattern(pattern)
    return Rule(tag, example, re.compile(source + (r"\Z" if "(?P<" in source else r"\b")))


@cache
def named(name: str) -> re.Pattern[str]:
    """Compiled definition @NAME of english.yaml."""
    return re.compile(_NAMES[name])


_FILE = resources.files("covr_lab.reasoning") / "english.yaml"
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # strings only: "no" is a word here
_DATA = yaml.load(_FILE.read_text(encoding="utf-8"), _LOADER)
_NAMES = {"FUNCTION": "|".join(sorted(FUNCTION_WORDS))}
for _name, _source in _DATA["names"].items():  # a definition may use those above it
    _NAMES[_name] = _pattern(_source)
TYPOS = {slip: word for word in _DATA["misspelt"].split() for slip in _slips(word)}
SPELLINGS = [(re.compile(_with_names(source)), spelling) for source, spelling in _DATA["spellings"].items()]
RULES = [_rule(**entry) for entry in _DATA["rules"]]
