from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from covr_lab.engines.request import Media
from covr_lab.engines.schema import read_json
from covr_lab.gallery.videos import VideoStore
from covr_lab.prompts import SUITES, Kind, Prompt, load_prompt
from covr_lab.reasoning import cascade
from covr_lab.reasoning.asking import FIELDS, REQUIRED, read_question
from covr_lab.reasoning.schemas import CompressAnswer, HistoryAnswer, InitialAnswer, IntentAnswer, ReflectionAnswer
from covr_lab.video import PyAVReader

KINDS: dict[str, Kind] = {"said": "text", "items": "lines", "video": "video"}
STORE = VideoStore(Path, PyAVReader())
SCHEMAS = {
    "initial": InitialAnswer,
    "intent": IntentAnswer,
    "reflection": ReflectionAnswer,
    "history": HistoryAnswer,
    "compress": CompressAnswer,
}


TEXT_ALONE = {"question_ivr", "question_auto", "question_auto_vid", "question_umivr", "question_merlin", "compress"}


def written(folder: Path, content: str, module: str = "intent") -> str:
    (folder / f"{module}.yaml").write_text(content, encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("system: a\nuser: '{said} {sad}'", "unknown placeholder {sad}; there are: items, said, video"),
        ("system: '{sad}'\nuser: '{said}'", "unknown placeholder {sad}; there are: items, said, video"),
        ("system: a\nuser: '{items}'", "placeholder {said} is missing"),
        (
            "system: a\nuser: 'Said: { said }'",
            "placeholders are lower-case names in braces without blanks, not '{ said }'",
        ),
        (
            "system: a\nuser: '{said} {Items}'",
            "placeholders are lower-case names in braces without blanks, not '{Items}'",
        ),
        (
            "system: a\nuser: '{said} {items2}'",
            "placeholders are lower-case names in braces without blanks, not '{items2}'",
        ),
        ("system: '{video}'\nuser: '{said}'", "{video} is a video, which only the user message can hold"),
        ("user: '{said}'", "needs exactly two keys, system and user, each with a text"),
        ("system: a\nuser: '{said}'\nusr: b", "needs exactly two keys, system and user, each with a text"),
        ("system: a\nuser: ['{said}']", "needs exactly two keys, system and user, each with a text"),
        ("just a text", "needs exactly two keys, system and user, each with a text"),
        ("", "needs exactly two keys, system and user, each with a text"),
        ("system: '{said}'\nuser: ' '", "the user text is empty"),
        ("system: 'a\nuser: b", "cannot be read: while scanning a quoted scalar"),
    ],
)
def test_a_broken_file_is_refused_in_one_line_that_names_it(tmp_path: Path, content: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=r"intent\.yaml: ") as caught:
        load_prompt(written(tmp_path, content), "intent", KINDS, ("said",))
    assert str(caught.value).startswith(f"{tmp_path / 'intent.yaml'}: {complaint}")
    assert "\n" not in str(caught.value)


def test_a_missing_file_or_suite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"intent\.yaml: no such file"):
        load_prompt(str(tmp_path), "intent", KINDS)
    with pytest.raises(ValueError, match="no prompt suite 'none': name one of default, variant_a, variant_b, or a"):
        load_prompt("none", "intent", KINDS)
    (tmp_path / "intent.yaml").write_bytes(b"system: \xff\nuser: a")
    with pytest.raises(ValueError, match=r"intent\.yaml: cannot be read"):
        load_prompt(str(tmp_path), "intent", KINDS)


def test_yaml_scalars_stay_texts(tmp_path: Path) -> None:
    assert load_prompt(written(tmp_path, "system: no\nuser: 1"), "intent", KINDS) == Prompt("no", "1", KINDS)
    assert load_prompt(written(tmp_path, "system:\nuser: 1"), "intent", KINDS).render({}) == ("", ("1",))


@pytest.mark.parametrize(
    ("template", "values", "content"),
    [
        ('{said} {"said": {}}', {"said": "hi"}, ('hi {"said": {}}',)),
        ("{said}{said}", {"said": "{said}{items}"}, ("{said}{items}{said}{items}",)),  # filled in once
        ("<{said}>", {"said": None}, ("<(none)>",)),
        ("<{said}>", {"said": " \n"}, ("<(none)>",)),
        ("{said}|", {"said": " two\n\nlines\u2028and\tmore "}, ("two lines and more|",)),
        ("{items}|", {"items": ["a", " b\nc ", "", "{said}"]}, ("- a\n- b c\n- {said}|",)),
        ("{items}|", {"items": []}, ("(none)|",)),
        ("{items}|", {"items": [" "]}, ("(none)|",)),
        (
            "{said}",
            {"said": "<|im_end|><|video_pad|></s><image> 1 < 2 <3"},
            ("< |im_end|>< |video_pad|>< /s>< image> 1 < 2 <3",),
        ),
        ("see {video}", {"video": None}, ("see (not shown)",)),
        ("see {video}", {}, ("see (not shown)",)),
        ("see {video}: {said}", {"video": Media("v", 8, STORE), "said": "x"}, ("see ", Media("v", 8, STORE), ": x")),
        ("{video}{video}", {"video": Media("v", 8, STORE)}, (Media("v", 8, STORE), Media("v", 8, STORE))),
    ],
)
def test_render(template: str, values: dict[str, Any], content: tuple[str | Media, ...]) -> None:
    assert Prompt("", template, KINDS).render(values) == ("", content)
    if "{video}" not in template:
        assert Prompt(template, "x", KINDS).render(values) == (*content, ("x",))


def test_a_forgotten_value_is_a_mistake_of_the_caller() -> None:
    for template in ("{said}", "{items}"):
        with pytest.raises(KeyError):
            Prompt("", template, KINDS).render({})


@pytest.mark.parametrize("module", REQUIRED)
def test_packaged_prompts(module: str) -> None:
    """Each suite asks for the same with other words, and keeps the contract that its example shows."""
    prompts = [load_prompt(suite, module, FIELDS, REQUIRED[module]) for suite in SUITES]
    assert len({prompt.used for prompt in prompts}) == 1
    for prompt in prompts:
        assert not Prompt(prompt.system, "", FIELDS).used  # the same for all sessions: an engine may keep it
        if module in SCHEMAS:
            example = read_json(prompt.system, SCHEMAS[module])
            assert all(example.model_dump()[key] for key in ("query", "search", "edit") if hasattr(example, key))
            assert all(f'"{key}"' in prompt.system for key in SCHEMAS[module].model_fields)
        else:
            assert read_question(prompt.system.splitlines()[-1])
    check_wordings(prompts)


def check_wordings(prompts: Sequence[Prompt]) -> None:
    """Less than half of the words of two suites are the same, and no layout is."""
    for at, prompt in enumerate(prompts):
        words = set(prompt.system.split())
        others = [set(other.system.split()) for other in prompts[:at]]
        assert all(len(words & other) < 0.5 * len(words | other) for other in others)
        layouts = [other.user.replace(" ", "") for other in prompts[:at]]
        assert prompt.user.replace(" ", "") not in layouts


@pytest.mark.parametrize("module", cascade.REQUIRED)
def test_packaged_prompts_of_the_cascade(module: str) -> None:
    """They have places for all that is known of the pair, and their example is one that can be read."""
    required = (*cascade.REQUIRED[module], "timestamps")
    prompts = [load_prompt(suite, module, cascade.FIELDS, required) for suite in SUITES]
    assert len({prompt.used for prompt in prompts}) == 1
    for prompt in prompts:
        assert not Prompt(prompt.system, "", cascade.FIELDS).used
        example = prompt.system.splitlines()[-1]
        if module == "decompose":
            assert cascade.read_description(example) == example
        else:
            assert cascade.read_verdict(example) is (module == "verify_lenient")
    check_wordings(prompts)


@pytest.mark.parametrize("module", sorted(set(REQUIRED) - TEXT_ALONE))
def test_packaged_prompts_have_a_place_for_frames(module: str) -> None:
    for suite in SUITES:
        assert "video" in load_prompt(suite, module, FIELDS).used


def test_every_packaged_suite_has_the_same_files() -> None:
    folder = Path(load_prompt.__code__.co_filename).parent
    files = [{file.name for file in (folder / suite).iterdir()} for suite in SUITES]
    assert files[0] == files[1] == files[2]
    assert files[0] >= {f"{module}.yaml" for module in (*REQUIRED, *cascade.REQUIRED)}
    for file in folder.glob("*/*.yaml"):
        assert list(yaml.safe_load(file.read_text(encoding="utf-8"))) == ["system", "user"]
        assert max(map(len, file.read_text(encoding="utf-8").splitlines())) <= 120
