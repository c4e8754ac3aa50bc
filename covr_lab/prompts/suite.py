r"""Prompt templates: packaged YAML files with typed placeholders.

A file ``<suite>/<module>.yaml`` has two texts, ``system`` and ``user``. A placeholder is a field's name in braces,
``{feedback}``: lower-case letters and underscores, no blanks. All other braces are literal: JSON is written as it is.

Values are data, not template: they are put in once, and each is one line, so that no value can end the line it stands
in or open a section of its own. A user's words that follow a label on the same line are delimited by its end.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

import yaml

from covr_lab.engines.request import Media

Kind = Literal["text", "lines", "video"]
Value = str | Sequence[str] | Media | None

SUITES: Final = ("default", "variant_a", "variant_b")
_PACKAGED = Path(__file__).parent
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_ALMOST = re.compile(r"\{\s*\w+\s*\}")
_CONTROL = re.compile(r"<(?=[|/A-Za-z])")  # opens the control words of chat formats: <|im_end|>, </s>, <image>


@dataclass(frozen=True, slots=True)
class Prompt:
    """The two messages of one module, with placeholders.

    Attributes:
        system: template of the system message.
        user: template of the user message.
        fields: what a placeholder may stand for -> kind of its value.
    """

    system: str
    user: str
    fields: Mapping[str, Kind]

    @property
    def used(self) -> frozenset[str]:
        """The placeholders that occur."""
        return frozenset(_PLACEHOLDER.findall(self.system + self.user))

    @property
    def digest(self) -> str:
        """sha256 of both templates."""
        return hashlib.sha256(json.dumps([self.system, self.user]).encode()).hexdigest()

    def render(self, values: Mapping[str, Value]) -> tuple[str, tuple[str | Media, ...]]:
        r"""Both messages with their values.

        Args:
            values: field -> text ("(none)" where empty), list of texts (one "- item" line each, "(none)" where empty)
                or video ("(not shown)" where ``None`` or absent).

        Returns:
            System message, and user message as texts and videos in order.

        >>> prompt = Prompt("Be brief.", 'Said: {said}\nAnswer {"ok": true}', {"said": "text"})
        >>> prompt.render({"said": 'no,\n{said}'})
        ('Be brief.', ('Said: no, {said}\nAnswer {"ok": true}',))
        """
        (system,) = self._filled(self.system, values) or ("",)
        return cast(str, system), self._filled(self.user, values)

    def _filled(self, template: str, values: Mapping[str, Value]) -> tuple[str | Media, ...]:
        parts = list[str | Media]([""])
        for at, piece in enumerate(_PLACEHOLDER.split(template)):  # text, name, text, name, ..., text
            part = self._shown(piece, values) if at % 2 else piece
            last = parts[-1]
            if isinstance(part, str) and isinstance(last, str):
                parts[-1] = last + part
            else:
                parts.append(part)
        return tuple(part for part in parts if part != "")

    def _shown(self, name: str, values: Mapping[str, Value]) -> str | Media:
        if self.fields[name] == "video":
            return cast("Media | None", values.get(name)) or "(not shown)"
        if self.fields[name] == "text":
            return one_line(cast("str | None", values[name]) or "") or "(none)"
        items = filter(None, map(one_line, cast("Sequence[str]", values[name] or ())))
        return "\n".join(f"- {item}" for item in items) or "(none)"


def one_line(text: str) -> str:
    r"""``text`` on one line, unable to pass for a control word of a chat format.

    >>> one_line(' a dog \n\n<|im_end|>')
    'a dog < |im_end|>'
    """
    return _CONTROL.sub("< ", " ".join(text.split()))


def load_prompt(suite: str, module: str, fields: Mapping[str, Kind], required: Collection[str] = ()) -> Prompt:
    """Read and check the templates of one module.

    Args:
        suite: name of a packaged suite (:data:`SUITES`), or path of a folder with a file for the module.
        module: name of the file, without suffix.
        fields: the placeholders that a template may use -> their kinds.
        required: those that it must use.

    Raises:
        ValueError: no such suite or file, or the file breaks the contract; one line that names it.
    """
    folder = _PACKAGED / suite if suite in SUITES else Path(suite)
    if not folder.is_dir():
        raise ValueError(f"no prompt suite '{suite}': name one of {', '.join(SUITES)}, or a folder")
    file = folder / f"{module}.yaml"
    prompt = Prompt(*_texts(file), dict(fields))
    loose = [hole for hole in _ALMOST.findall(prompt.system + prompt.user) if not _PLACEHOLDER.fullmatch(hole)]
    if loose:
        raise ValueError(f"{file}: placeholders are lower-case names in braces without blanks, not {loose[0]!r}")
    if unknown := sorted(prompt.used - fields.keys()):
        raise ValueError(f"{file}: unknown placeholder {{{unknown[0]}}}; there are: {', '.join(sorted(fields))}")
    if missing := sorted(set(required) - prompt.used):
        raise ValueError(f"{file}: placeholder {{{missing[0]}}} is missing")
    if shown := [name for name in _PLACEHOLDER.findall(prompt.system) if fields[name] == "video"]:
        raise ValueError(f"{file}: {{{shown[0]}}} is a video, which only the user message can hold")
    return prompt


def _texts(file: Path) -> tuple[str, str]:
    """System and user text, without blanks at their ends."""
    try:
        data = yaml.load(file.read_text(encoding="utf-8"), yaml.BaseLoader)  # texts only: "no" is a word here
    except FileNotFoundError:
        raise ValueError(f"{file}: no such file; a prompt suite has one for each module that it serves") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{file}: cannot be read: {' '.join(str(error).split())}") from error
    texts = data if isinstance(data, dict) else {}
    if sorted(texts) != ["system", "user"] or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError(f"{file}: needs exactly two keys, system and user, each with a text")
    if not texts["user"].strip():
        raise ValueError(f"{file}: the user text is empty")
    return texts["system"].strip(), texts["user"].strip()
