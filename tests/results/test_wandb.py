"""Logging to Weights & Biases: what an offline run file holds, and that nothing there can cost a run."""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from covr_lab.recipe import Wandb
from covr_lab.results.summary import write_metrics
from covr_lab.results.wandb_log import log_run

KEY = "0123456789abcdef0123456789abcdefmarker00"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without keys; nothing of the user's wandb set-up is left."""
    folder = tmp_path / "marker-home"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("WANDB_") or name == "NETRC"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("WANDB_SILENT", "true")
    return folder


@pytest.fixture
def run(home: Path, make_run: Callable[..., Path]) -> Path:
    """A finished run below the home folder; its record knows more than may leave."""
    folder = make_run(f"{home.name}/run")
    record = json.loads((folder / "run.json").read_text())
    record |= {"command": [str(home / "eval.py")], "recipe": {"data": {"annotations": "secret.csv"}}}
    (folder / "run.json").write_text(json.dumps(record))
    write_metrics(folder)
    return folder


def records(run: Path) -> list[Any]:
    """Records of the one offline run."""
    (path,) = run.glob("wandb/offline-run-*/*.wandb")
    return records_of(path)


def records_of(path: Path) -> list[Any]:
    """Records of a run file (LevelDB log framing: blocks of 32 KiB, chunks with a header of seven bytes)."""
    parse = import_module("wandb.proto.wandb_internal_pb2").Record.FromString
    end, found = time.monotonic() + 20, list[Any]()
    while not any(record.HasField("exit") for record in found):
        assert time.monotonic() < end, "the run file has no end"
        data, at, chunk, found = path.read_bytes(), 7, b"", []
        while at + 7 <= len(data):
            if 2**15 - at % 2**15 < 7:
                at += 2**15 - at % 2**15
                continue
            length, kind = struct.unpack_from("<HB", data, at + 4)
            if at + 7 + length > len(data):
                break  # not yet written
            chunk += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):  # a whole record, or the last chunk of one
                found.append(parse(chunk))
                chunk = b""
    return found


def items(pairs: Any) -> dict[str, Any]:
    return {pair.key or "/".join(pair.nested_key): json.loads(pair.value_json) for pair in pairs}


def test_an_offline_run_holds_the_curves_over_turns(run: Path) -> None:
    log_run(run, Wandb(mode="offline", project="p", group="g"))
    found = records(run)
    metrics = json.loads((run / "metrics.json").read_text())
    points = [items(record.history.item) for record in found if record.HasField("history")]
    assert [point["turn"] for point in points] == [0, 1, 2]
    for name, curve in metrics["per_turn"].items():
        assert [point.get(name) for point in points] == curve, name
    assert curve_steps(found) == {"*": "turn"}
    summary = summary_of(found)
    for name, value in metrics["transitions"].items():
        assert summary.get(f"transitions/{name}") == value
    (settings,) = {(r.run.project, r.run.run_group, r.run.display_name) for r in found if r.HasField("run")}
    assert settings == ("p", "g", "toy")


def summary_of(found: list[Any]) -> dict[str, Any]:
    """All entries that the summary was given."""
    return {key: value for record in found for key, value in items(record.summary.update).items()}


def curve_steps(found: list[Any]) -> dict[str, str]:
    """Glob -> step metric, the last definition of each."""
    return {r.metric.glob_name: r.metric.step_metric for r in found if r.HasField("metric") and r.metric.glob_name}


def test_nothing_but_the_allow_list_leaves(run: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, no path (home, program, interpreter, arguments), no name of the machine, no list of packages."""
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setattr(sys, "argv", [str(home / "eval.py"), "--data.annotations", str(home / "secret.csv")])
    log_run(run, Wandb(mode="offline"))
    found = records(run)
    configs = [set(items(r.run.config.update)) for r in found if r.HasField("run")]
    assert set.union(*configs) == {"_wandb", "name", "protocol", "proxy", "n_sessions"}
    assert {r.run.host for r in found if r.HasField("run")} == {""}
    assert not [r.environment for r in found if r.HasField("environment")]
    (folder,) = run.glob("wandb/offline-run-*")
    secrets = [KEY.encode(), bytes(home), b"secret.csv", sys.prefix.encode(), b"covr_lab @"]
    for path in (path for path in folder.rglob("*") if path.is_file() and "logs" not in path.parts):
        assert not [secret for secret in secrets if secret in path.read_bytes()], path.name
    assert not list((folder / "files").glob("*"))
    assert not [path for path in run.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.mark.parametrize("mode", ["auto", "online"])
@pytest.mark.parametrize("key", [True, False], ids=["no network", "no key"])
def test_without_key_or_network_it_is_offline_at_once(
    key: bool, mode: Any, run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import wandb  # noqa: F401  # the wait is for the network, not for an import

    before = (run / "metrics.json").read_bytes()
    if key:
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{closed_port()}")
    start = time.monotonic()
    with caplog.at_level(logging.WARNING):
        log_run(run, Wandb(mode=mode))
    assert time.monotonic() - start < 5
    assert [record.message for record in caplog.records if "offline" in record.message]
    assert len([record for record in records(run) if record.HasField("history")]) == 3
    assert (run / "metrics.json").read_bytes() == before


@pytest.mark.parametrize("variable", [True, False])
def test_disabled_does_nothing(variable: bool, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(run.rglob("*"))
    if variable:
        monkeypatch.setenv("WANDB_MODE", "disabled")  # wins over the recipe
    log_run(run, Wandb(mode="offline" if variable else "disabled"))
    assert sorted(run.rglob("*")) == before


def test_a_failure_is_a_warning(run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    import wandb

    def fail(*args: object, **kwargs: object) -> None:
        raise wandb.errors.CommError("the server said no")

    monkeypatch.setattr(wandb, "init", fail)
    with caplog.at_level(logging.WARNING):
        log_run(run, Wandb(mode="offline"))
    assert [record for record in caplog.records if "the server said no" in record.message]
    assert (run / "metrics.json").exists()
