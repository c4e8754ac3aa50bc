"""Parts of speech, from a tagger that carries its model (HanTa; the BNC's C5 tags)."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, Final, Literal

from covr_lab.types import Refused

Part = Literal["adjective", "adverb", "noun", "verb", "name", "preposition", "other"]
# First letters of a tag -> part of speech; the verbs be, do, have and the modals (VB, VD, VH, VM) are others.
_PARTS: Final[dict[str, Part]] = {
    "AJ": "adjective",
    "AV": "adverb",
    "NP": "name",
    "NN": "noun",
    "VV": "verb",
    "PR": "preposition",
}
_SEPARATOR = re.compile(r"\[SEP\]|(?<=[.!?;:])\s+|\n")  # a capital after it is a sentence's, not a name's
_CLITIC = re.compile(r"(?<=\w)(n['\u2019]t|['\u2019](?:d|ll|m|re|s|ve))(?!\w)", re.I)
_TOKEN = re.compile(r"'?\w+(?:[-'\u2019]\w+)*|[^\w\s]")


def require_tagger(name: str) -> None:
    """Say in time that the tagger is missing.

    Args:
        name: who needs it.

    Raises:
        Refused: it is not installed.
    """
    if find_spec("HanTa") is None:
        raise Refused(f"{name} needs the extra `tagger`: pip install 'covr_lab[tagger]'")


@cache
def _tagger() -> Any:
    require_tagger("part-of-speech tagging")
    from HanTa.HanoverTagger import HanoverTagger  # type: ignore[import-untyped]

    return HanoverTagger("morphmodel_en.pgz")


@lru_cache(maxsize=65536)
def tagged(text: str) -> tuple[tuple[str, Part], ...]:
    """Words of ``text`` in lower case with their parts of speech; clitics are words of their own, punctuation is none.

    >>> tagged("Woman eating carrots.")
    (('woman', 'noun'), ('eating', 'verb'), ('carrots', 'noun'))
    """
    words = list[tuple[str, Part]]()
    for sentence in _SEPARATOR.split(text):
        tokens = _TOKEN.findall(_CLITIC.sub(lambda match: " " + match[0].replace("\u2019", "'"), sentence))
        tags = _tagger().tag_sent(tokens) if tokens else []
        words += [(word.lower(), _PARTS.get(tag[:2], "other")) for word, _, tag in tags if re.search(r"\w", word)]
    return tuple(words)
