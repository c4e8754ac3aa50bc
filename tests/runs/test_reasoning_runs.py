"""Whole runs in which models reason and play the user: over a faulty server, over a cache, in any batches."""

from __future__ import annotations

import json
import os
import random
import runpy
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

import covr_lab.prompts
from covr_lab.data.base import SessionBatch, TripletDataModule, collate
from covr_lab.data.words import WORDS, world
from covr_lab.engines import openai as wire
from covr_lab.engines.base import Engine, seed_of
from covr_lab.engines.request import Call, Request, Response
from covr_lab.evaluate import evaluate, prepare
from covr_lab.gallery.videos import VideoStore
from covr_lab.results.reader import read_rows
from covr_lab.results.schema import TIMING
from covr_lab.runner import SessionRunner
from covr_lab.simulators import VLMUser
from covr_lab.types import Feedback, Target
from covr_lab.video import Clip, FrameSampler, Probe, VideoReader
from tests.openai_server import Body, Faults, OpenAIServer, by_chance, chatty

Row = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipes" / "recovr_words.yaml"
SUITE = Path(covr_lab.prompts.__file__).parent / "default"
NOWHERE = "http://127.0.0.1:9/v1"  # where a test hands the runner engines of its own
SLOTS = {
    "initial": "VLMInitialQuery",
    "intent": "VLMIntent",
    "reflection": "VLMReflector",
    "questioner": "VLMQuestion",
}
MODULES = {"initial": "initial", "intent": "intent", "reflection": "reflection", "question": "questioner", "user": ""}
SESSIONS, CONCURRENCY = 10, 3
COSTS = ("calls", "tokens_in", "tokens_out", "modules", "prompts")  # what a repair adds to
VOCABULARY = [values[0] for words in WORDS.values() for values in words.values()]
REPAIR = "\n\nYour last answer was:"


def drawn(schema: dict[str, Any], draw: random.Random) -> Any:
    """A value that fits a JSON schema of this package, with words of the world in its strings."""
    match schema:
        case {"enum": list(values)}:
            return draw.choice(values)
        case {"type": "object", "properties": dict(parts)}:
            return {name: drawn(part, draw) for name, part in parts.items()}
        case {"type": "array", "items": dict(items)}:
            return [drawn(items, draw) for _ in range(draw.randint(0, 2))]
        case {"type": "string"}:
            return " ".join(draw.sample(VOCABULARY, 3))
        case {"type": "boolean"}:
            return draw.random() < 0.5
    raise AssertionError(f"no such schema here: {schema}")


def answer(key: str, schema: dict[str, Any] | None) -> str:
    """JSON or a question: another one for another ``key``."""
    draw = random.Random(key)
    return f"What {' '.join(draw.sample(VOCABULARY, 3))}?" if schema is None else json.dumps(drawn(schema, draw))


def form(body: Body) -> dict[str, Any]:
    """Name and schema that a request asks for, empty for free text."""
    found: dict[str, Any] = body.get("response_format", {}).get("json_schema", {})
    return found


def role(body: Body) -> str:
    return str(form(body).get("name", "question"))


def from_words(body: Body) -> str:
    """An answer to the user's message alone: neither the system's message nor a repair changes it."""
    content = body["messages"][-1]["content"]
    return answer(role(body) + content.partition(REPAIR)[0], form(body).get("schema"))


class Letters(Engine):
    """Answers by every letter of the prompt."""

    @property
    def fingerprint(self) -> str:
        return "letters"

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        return [self.respond(request) for request in requests]

    def respond(self, request: Request) -> Response:
        schema = None if request.schema is None else request.schema.model_json_schema()
        text = answer(self.key(request), schema)
        return Response(text, len(request.text), len(text))

    def key(self, request: Request) -> str:
        return f"{request.role} {request.text}"


class Seeds(Letters):
    """Answers by the seed of a request, as one that samples does, whatever the prompt."""

    sampled = True

    def key(self, request: Request) -> str:
        return str(seed_of(7, request))


class Zebras(Letters):
    """A user who remembers words that stand nowhere else."""

    def respond(self, request: Request) -> Response:
        if request.role != "user_caption":
            return super().respond(request)
        kept = {"caption": f"zebra of {request.session_id}", "main_objects": ["zebra"], "scene": "zebra crossing"}
        return Response(json.dumps(kept), 1, 1)


class Unread(VideoReader):
    """Frames that no engine here looks at."""

    fingerprint = "unread"

    def probe(self, path: Path) -> Probe:
        raise AssertionError("probed")

    def read(self, path: Path, sampler: FrameSampler) -> Clip:
        raise AssertionError("read")


def overlay(
    folder: Path, url: str, *, cached: bool = False, prompts: tuple[str, Path] | None = None, **settings: Any
) -> Path:
    """ReCoVR with a model in every role, over captions.

    ``prompts``: a slot of the system, "" for the user, and its suite.
    """
    init = {"model": "tiny", "base_url": url, "concurrency": CONCURRENCY, "timeout": 3.0, "retries": 9, **settings}
    engine: Row = {"class_path": "covr_lab.engines.OpenAIEngine", "init_args": init}
    if cached:
        engine = {"class_path": "covr_lab.engines.CachedEngine", "init_args": {"engine": engine}}
    slots: Row = {
        slot: {"class_path": f"covr_lab.reasoning.{name}", "init_args": {"engine": "system_vlm"}}
        for slot, name in SLOTS.items()
    }
    user: Row = {"engine": "user_vlm", "captions": "annotation", "frames": 0}
    if prompts:
        slot, suite = prompts
        (slots[slot]["init_args"] if slot else user)["prompts"] = str(suite)
    document = {
        "engines": {"system_vlm": engine, "user_vlm": engine},
        "system": {"init_args": slots},
        "simulator": {"class_path": "covr_lab.simulators.VLMUser", "init_args": user},
    }
    folder.mkdir(exist_ok=True)
    path = folder / "engines.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def rows(folder: Path, *without: str) -> pa.Table:
    return read_rows(folder).drop_columns([*TIMING, *without])


def retries(folder: Path) -> int:
    timing = read_rows(folder)["module_timing"].to_pylist()
    return sum(entry["retries"] for row in timing for entry in row)


def prompts_of(folder: Path) -> list[Row]:
    return [prompt for row in read_rows(folder)["prompts"].to_pylist() for prompt in row]


def metrics(folder: Path) -> bytes:
    return (folder / "metrics.json").read_bytes()


@pytest.fixture(scope="module")
def encoder(tiny_encoder: Path) -> list[str]:
    return ["--system.retrievers.captions.model", str(tiny_encoder), "--trainer.accelerator", "cpu"]


@pytest.fixture(scope="module")
def options(encoder: list[str]) -> list[str]:
    small = ("--data.videos", "40", "--data.queries", "20", "--data.limit", str(SESSIONS), "--protocol.turns", "2")
    return [*encoder, *small, "--data.batch_size", "4"]


@pytest.fixture(scope="module")
def parts(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[TripletDataModule, SessionRunner]:
    """Data and runner of the recipe, for tests that bring engines of their own."""
    _, data, runner = prepare([RECIPE, overlay(tmp_path_factory.mktemp("parts"), NOWHERE)], options)
    runner.system.load()
    return data, runner


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "FIRST_DELAY", 0.02)


@pytest.fixture(scope="module")
def whole(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run whose server never failed."""
    folder = tmp_path_factory.mktemp("whole")
    with OpenAIServer(from_words) as server:
        evaluate([RECIPE, overlay(folder, server.url)], options, run_dir=folder / "run")
        assert len(server.requests) == len(server.answered) == len(prompts_of(folder / "run"))
    return folder / "run"


def test_the_run_that_others_are_compared_with_says_something(whole: Path) -> None:
    """Answers are read, differ, and lead to different fates."""
    table = rows(whole).to_pylist()
    assert len(table) > 2 * SESSIONS
    assert len({row["session_id"] for row in table}) == SESSIONS
    prompts = prompts_of(whole)
    assert Counter(prompt["module"] for prompt in prompts).keys() == MODULES.keys()
    assert all(prompt["valid"] for prompt in prompts)
    assert len({prompt["answer"] for prompt in prompts}) > len(prompts) // 2
    assert {row["satisfaction"] for row in table} == {None, "positive", "neutral", "negative"}
    assert len({tuple(row["top_ids"]) for row in table}) > SESSIONS
    assert retries(whole) == 0


TRANSPORT = ("429", "429:0.01", "500", "drop", "reset", "malformed", "hang")


def on_form(faults: Faults) -> Faults:
    """``faults`` in first answers that have a form: free text is not repaired, nor a repair."""
    return lambda body, seen: (
        faults(body, seen) if form(body) and REPAIR not in body["messages"][-1]["content"] else None
    )


@pytest.fixture
def faulty(options: list[str], tmp_path: Path) -> Callable[..., tuple[Path, OpenAIServer]]:
    """Plays a run against a server with faults, and checks what holds whatever they are."""

    def play(faults: Faults, **settings: Any) -> tuple[Path, OpenAIServer]:
        with OpenAIServer(chatty(1, 0.05, from_words), faults) as server:
            outcome = evaluate([RECIPE, overlay(tmp_path, server.url, **settings)], options, run_dir=tmp_path / "run")
        assert outcome is not None
        assert (outcome.sessions, outcome.failed) == (SESSIONS, {})
        table = rows(outcome.folder).to_pylist()
        assert len({row["session_id"] for row in table}) == SESSIONS
        assert len({(row["session_id"], row["turn"]) for row in table}) == len(table)
        assert len(server.requests) == len(prompts_of(outcome.folder)) + retries(outcome.folder)
        assert server.most == CONCURRENCY
        return outcome.folder, server

    return play


def test_what_fails_on_the_way_changes_no_row(faulty: Callable[..., tuple[Path, OpenAIServer]], whole: Path) -> None:
    """Each fault once at the start, and then by chance, but for the one that costs a time limit."""
    first, later = iter(TRANSPORT), by_chance(2, **{f"_{name}": 0.04 for name in TRANSPORT if name != "hang"})
    folder, server = faulty(lambda body, seen: next(first, None) or later(body, seen))
    assert sum(server.faulted.values()) > 2 * len(TRANSPORT)
    assert retries(folder) == sum(server.faulted.values())
    assert len(server.answered) == len(prompts_of(whole))
    assert rows(folder).equals(rows(whole))
    assert metrics(folder) == metrics(whole)


def test_garbled_answers_are_repaired_and_change_nothing_but_the_cost(
    faulty: Callable[..., tuple[Path, OpenAIServer]], whole: Path
) -> None:
    garble, fail = on_form(by_chance(3, truncated=0.12, prose=0.12)), by_chance(4, _500=0.03, drop=0.03)
    folder, server = faulty(lambda body, seen: garble(body, seen) or fail(body, seen))
    outcomes = Counter(entry["outcome"] for row in rows(folder)["modules"].to_pylist() for entry in row)
    assert outcomes["repaired"] == server.faulted["truncated"] > 0
    assert set(outcomes) == {"valid", "repaired"}
    assert server.faulted["prose"] > 0
    assert retries(folder) == server.faulted["500"] + server.faulted["drop"] > 0
    assert rows(folder, *COSTS).equals(rows(whole, *COSTS))


def test_a_server_that_rarely_answers_ends_no_session(faulty: Callable[..., tuple[Path, OpenAIServer]]) -> None:
    """Free text cut short, repairs cut short, requests given up: the fallbacks play the session to its end."""
    folder, server = faulty(by_chance(5, truncated=0.4, _500=0.3, empty=0.1), retries=1)
    table = rows(folder).to_pylist()
    assert {entry["outcome"] for row in table for entry in row["modules"]} == {"valid", "repaired", "fallback"}
    assert retries(folder) < server.faulted["500"]  # some were given up
    given_up = [prompt for prompt in prompts_of(folder) if prompt["error"]]
    assert given_up
    assert all(prompt["error"].startswith("500 ") and not prompt["valid"] for prompt in given_up)


@pytest.fixture
def dying() -> Iterator[OpenAIServer]:
    """A server that is gone at its 60th request, until it is started again."""
    server = OpenAIServer()

    def last_words(body: Body) -> str:
        if len(server.requests) >= 60 and body is server.requests[59]:
            threading.Thread(target=server.stop).start()
            time.sleep(0.2)
        return from_words(body)

    server.answer = last_words
    with server.start():
        yield server


def test_with_the_server_gone_a_run_stops_and_goes_on_later(
    dying: OpenAIServer, options: list[str], whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = runpy.run_path(str(ROOT / "tools" / "eval.py"))["main"]
    folder = tmp_path / "run"
    config = overlay(tmp_path, dying.url, retries=2)
    command = [str(RECIPE), str(config), "--run_dir", str(folder), *options]
    assert main(command) == 1
    printed, said = capsys.readouterr()
    (line,) = [line for line in said.splitlines() if "error" in line.lower()]
    assert line == said.splitlines()[-1]
    assert line.startswith("error: engine '")
    assert f"_vlm': tiny at {dying.url} does not answer (" in line
    assert line.endswith("start it again and run the same command, the run goes on where it stopped")
    assert (printed, "Traceback" in said) == ("", False)
    assert main(command) == 1  # still gone: no session is lost or called a failure
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: engine '")
    assert not (folder / "metrics.json").exists()
    parts = {path: path.stat().st_mtime_ns for path in folder.glob("turns/*.parquet")}
    done = set(read_rows(folder)["session_id"].to_pylist())
    assert 0 < len(done) < SESSIONS
    before = len(dying.requests)
    dying.start()
    assert main(command) == 0
    assert {path: path.stat().st_mtime_ns for path in parts} == parts
    missing = [row for row in rows(whole).to_pylist() if row["session_id"] not in done]
    assert len(dying.requests) - before == sum(len(row["prompts"]) for row in missing)
    assert rows(folder).equals(rows(whole))
    assert metrics(folder) == metrics(whole)


@pytest.fixture
def kept(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Path, list[Body]]]]:
    """Plays a run over a cache of this test; returns folder and what reached the server."""
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    with OpenAIServer(from_words) as server:

        def play(name: str, prompts: tuple[str, Path] | None = None) -> tuple[Path, list[Body]]:
            before = len(server.requests)
            config = overlay(tmp_path / f"{name}-recipe", server.url, cached=True, prompts=prompts)
            evaluate([RECIPE, config], options, run_dir=tmp_path / name)
            return tmp_path / name, server.requests[before:]

        yield play


def test_a_second_run_generates_nothing_and_a_changed_word_one_module(
    kept: Callable[..., tuple[Path, list[Body]]], whole: Path, tmp_path: Path
) -> None:
    first, asked = kept("first")
    distinct = {(p["module"], p["system"], p["content"][0]["text"]) for p in prompts_of(whole)}
    assert len(asked) == len(distinct)
    assert rows(first).equals(rows(whole))  # what a cache changes is the time
    again, asked = kept("again")
    assert asked == []
    assert rows(again).equals(rows(first))
    assert metrics(again) == metrics(first)
    timing = read_rows(again)["module_timing"].to_pylist()
    assert sum(entry["cached"] for row in timing for entry in row) == len(prompts_of(again))
    for module, slot in MODULES.items():
        suite = shutil.copytree(SUITE, tmp_path / f"suite-{module}")
        file = suite / f"{module}.yaml"
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("You ", "Thou ", 1), encoding="utf-8")
        changed, asked = kept(module, (slot, suite))
        assert Counter(map(role, asked)) == {module: sum(name == module for name, _, _ in distinct)}
        assert all(body["messages"][0]["content"].startswith("Thou ") for body in asked)
        assert rows(changed, "prompts").equals(rows(whole, "prompts"))
        old, new = prompts_of(whole), prompts_of(changed)
        assert {a["module"] for a, b in zip(old, new, strict=True) if a != b} == {module}


@pytest.mark.timeout(600)
def test_two_processes_over_a_cache_equal_one(options: list[str], whole: Path, tmp_path: Path) -> None:
    with OpenAIServer(from_words, by_chance(6, **{"_429:0.01": 0.1})) as server:
        config = overlay(tmp_path, server.url, cached=True)
        command = [sys.executable, str(ROOT / "tools" / "eval.py"), str(RECIPE), str(config), *options]
        command += ["--run_dir", str(tmp_path / "run"), "--trainer.devices", "2"]
        environment = {**os.environ, "COVR_CACHE": str(tmp_path / "cache")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "run.json").read_text())["world_size"] == 2
    assert done.stderr.count("model calls; about") == 1
    assert rows(tmp_path / "run").equals(rows(whole))
    assert metrics(tmp_path / "run") == metrics(whole)
    assert retries(tmp_path / "run") == server.faulted["429:0.01"] > 0
    timing = read_rows(tmp_path / "run")["module_timing"].to_pylist()
    cached = sum(entry["cached"] for row in timing for entry in row)
    assert len(server.answered) == len(prompts_of(whole)) - cached


def test_permuted_targets_change_no_prompt_no_ranking_and_no_cost(encoder: list[str], tmp_path: Path) -> None:
    triplets = world(24, 12, seed=1)
    moved = [
        replace(row, target=other.target, target_caption=other.target_caption)
        for row, other in zip(triplets, triplets[5:] + triplets[:5], strict=True)
    ]
    names = ("session_id", "reference", "target", "edit", "reference_caption", "target_caption")
    draw = random.Random(0)
    script = {row.session_id: [" ".join(draw.sample(VOCABULARY, 2)) for _ in range(3)] for row in triplets}
    tables = []
    for at, world_rows in enumerate((triplets, moved)):
        file, user = tmp_path / f"{at}.jsonl", tmp_path / f"{at}.yaml"
        file.write_text("\n".join(json.dumps({name: getattr(row, name) for name in names}) for row in world_rows))
        init = {"annotations": str(file), "columns": {name: name for name in names}}
        scripted = {"class_path": "covr_lab.simulators.ScriptedUser", "init_args": {"script": script}}
        data = {"class_path": "covr_lab.data.TripletFile", "init_args": init}
        user.write_text(yaml.safe_dump({"data": data, "simulator": scripted}))
        with OpenAIServer(from_words) as server:
            paths = [RECIPE, overlay(tmp_path, server.url), user]
            evaluate(paths, [*encoder, "--protocol.turns", "3"], run_dir=tmp_path / f"run{at}")
            assert len(server.requests) == 12 * (1 + 3 * 3)
        tables.append(rows(tmp_path / f"run{at}"))
    answers = ["target", "target_rank", "target_ties", "channel_target_rank"]
    assert tables[0].drop_columns(answers).equals(tables[1].drop_columns(answers))
    assert all(not tables[0][name].equals(tables[1][name]) for name in ("target", "target_rank"))


def test_no_system_gets_hold_of_what_its_user_thinks(
    parts: tuple[TripletDataModule, SessionRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that a system is handed, to the last reference."""
    data, recipe = parts
    store, engines = VideoStore(Path, Unread()), {"system_vlm": Letters(), "user_vlm": Zebras()}
    runner = SessionRunner(recipe.system, VLMUser(engine="user_vlm", frames=2), recipe.protocol, engines)
    runner.system.bind(data.gallery, store)
    runner.simulator.bind(data.user_gallery, store)
    handed = list[Any]()
    for name in ("start", "ask", "step"):
        method = getattr(runner.system, name)

        def watched(*args: Any, method: Callable[..., Any] = method) -> Any:
            handed.extend(reachable(args))
            return method(*args)

        monkeypatch.setattr(runner.system, name, watched)
    sessions = runner.play(data.queries(), data.targets())
    assert {value.request.role for value in handed if isinstance(value, Call)} == {"initial", "intent", "reflection"}
    assert not [value for value in handed if isinstance(value, Target) or "zebra" in str(value)]
    assert [value for value in handed if isinstance(value, Feedback)]
    # the record has both, so that they would have been found
    after = list(reachable(sessions))
    assert {"user", "user_caption"} < {value.request.role for value in after if isinstance(value, Call)}
    assert [value for value in after if isinstance(value, str) and "zebra" in value]


def reachable(value: Any) -> Iterator[Any]:
    """``value`` and all that it refers to; no kind of value is passed over unseen."""
    yield value
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from reachable(getattr(value, field.name))
    elif isinstance(value, dict):
        for item in value.items():
            yield from reachable(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from reachable(item)
    else:
        assert isinstance(value, str | int | float | np.ndarray | type | VideoStore | None), f"what is in {value!r}?"


@pytest.mark.parametrize("engine", [Letters, Seeds])
def test_batches_and_their_order_change_no_row(
    engine: type[Engine],
    parts: tuple[TripletDataModule, SessionRunner],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Greedy answers that hang on every letter, and sampled ones that hang on the seed."""
    tables, (data, recipe) = [], parts
    for size, step in ((SESSIONS, 1), (1, 1), (3, -1)):
        monkeypatch.setenv("COVR_CACHE", str(tmp_path / f"cache{size}"))  # every run encodes its own batches
        engines = {"system_vlm": engine(), "user_vlm": engine()}
        runner = SessionRunner(recipe.system, recipe.simulator, recipe.protocol, engines)
        runner.bind(data)
        pairs = list(zip(data.queries(), data.targets(), strict=True))[::step]
        batches = [collate(pairs[at : at + size]) for at in range(0, len(pairs), size)]
        tables.append(played(runner, batches))
    assert tables[0] == tables[1]
    assert tables[0] == tables[2]
    answers = [prompt["answer"] for row in tables[0] for prompt in row["prompts"]]
    assert len(answers) > 4 * SESSIONS
    assert len(set(answers)) > len(answers) // 2


def played(runner: SessionRunner, batches: Sequence[SessionBatch]) -> list[Row]:
    """Rows of all batches, by session and turn."""
    found = [row for batch in batches for row in runner.predict_step(batch)]
    found = [{key: value for key, value in row.items() if key not in TIMING} for row in found]
    return sorted(found, key=lambda row: (row["session_id"], row["turn"]))
