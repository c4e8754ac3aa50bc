"""Per-turn curves on Weights & Biases, sent after the results are safe on disk."""

from __future__ import annotations

import json
import logging
import netrc
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from covr_lab.recipe import Wandb
from covr_lab.results.calls import module_seconds
from covr_lab.results.reader import densify, read_rows
from covr_lab.results.resample import stage_gains
from covr_lab.results.routing import stage_seconds, staged_turns
from covr_lab.results.summary import named

_log = logging.getLogger(__name__)
NETWORK_SECONDS = 3.0
CONFIG_KEYS = ("name", "protocol", "proxy", "versions", "n_sessions", "models")  # the allow-list of what leaves


def log_run(run_dir: Path, options: Wandb) -> None:
    """Log a finished run; whatever goes wrong is a warning, for the results are on disk already.

    Args:
        run_dir: folder with ``run.json`` and ``metrics.json``.
        options: mode, project, group.
    """
    attempt(_send, run_dir, options)


def attempt(send: Callable[[Path, Wandb, bool], None], folder: Path, options: Wandb) -> None:
    """Let ``send`` (folder, options, offline) log ``folder``, unless logging is off; its failure is a warning."""
    mode = reachable_mode(options.mode)
    if mode == "disabled":
        return
    try:
        send(folder, options, mode == "offline")
    except Exception as error:  # wandb raises many kinds, and none of them may cost results
        _log.warning("wandb: %s was not logged to its end (%s); the results are in the folder", folder, error)


def reachable_mode(mode: str) -> str:
    """What ``auto`` and ``online`` come down to here: without a key or a network it is offline, without waiting.

    ``WANDB_MODE`` in the environment wins over the recipe.
    """
    mode = os.environ.get("WANDB_MODE", mode)
    if mode not in ("auto", "online"):
        return mode
    if why := obstacle():
        _log.warning("wandb: %s, logging offline", why)
        return "offline"
    return "online"


def obstacle() -> str:
    """What keeps the service out of reach from here (key, network), "" when nothing does; known within seconds."""
    url = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    host = url.hostname or ""
    if not os.environ.get("WANDB_API_KEY") and not _key_in_netrc(host):
        return "no API key"
    try:
        socket.create_connection((host, url.port or (80 if url.scheme == "http" else 443)), NETWORK_SECONDS).close()
    except OSError as error:
        return f"{host} cannot be reached ({error})"
    return ""


def _key_in_netrc(host: str) -> bool:
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def payload(
    run: dict[str, Any], metrics: dict[str, Any]
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """Configuration, one point a turn, and summary: nothing but what the allow-list and the metrics hold."""
    config = {key: run[key] for key in CONFIG_KEYS if key in run}
    curves = metrics["per_turn"]
    turns = range(run["protocol"]["turns"] + 1)
    points = [{"turn": turn, **{k: v[turn] for k, v in curves.items() if v[turn] is not None}} for turn in turns]
    for name, values in metrics["cost_per_turn"].items():
        for point, value in zip(points, values, strict=True):
            point[f"cost/{name}"] = value
    for point in points:
        point |= _stages(metrics, point["turn"])
    summary = {f"transitions/{key}": value for key, value in metrics["transitions"].items() if value is not None}
    for module, counts in metrics["modules"].items():
        summary |= {f"modules/{module}/{key}": value for key, value in counts.items()}
    if routing := metrics.get("routing"):
        summary |= _named("routing", routing["all"])
    return config, points, summary


def _stages(metrics: Mapping[str, Any], turn: int) -> dict[str, Any]:
    """The order after each stage, and the routing, at one turn; metrics of earlier versions have neither."""
    found: dict[str, Any] = {}
    for stage, columns in metrics.get("stages", {}).items():
        found |= _named(f"stages/{stage}", {key: values[turn] for key, values in columns.items()})
    routing = metrics.get("routing", {}).get("per_turn", [])[turn : turn + 1]
    return found | _named("routing_by_turn", routing[0] if routing and routing[0] else {})


def _named(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}/{key}": value for key, value in values.items() if value is not None}


def _send(run_dir: Path, options: Wandb, offline: bool) -> None:
    run, config, points, summary = read_payload(run_dir)
    with experiment(run_dir, options, run["name"], config, offline=offline) as open_run:
        log_points(open_run, points, summary)


def read_payload(run_dir: Path) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """``run.json``, and the :func:`payload` of the folder with the seconds of its modules and stages."""
    run = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    config, points, summary = payload(run, json.loads((run_dir / "metrics.json").read_text(encoding="utf-8")))
    table = read_rows(run_dir)
    for module, spent in module_seconds(table).items():
        summary |= {f"modules/{module}/{key}": value for key, value in spent.items()}
    summary |= _named("stage_seconds", stage_seconds(table)) | _gained(table, run["protocol"])
    return run, config, points, summary


def _gained(table: pa.Table, protocol: Mapping[str, Any]) -> dict[str, float]:
    """What each stage added to R@1 at the last turn that has stages, with its paired 95 % interval."""
    staged, found = staged_turns(table), dict[str, float]()
    metric = named("R@1", protocol)
    for stage, gains in stage_gains(table, densify(table, protocol["turns"])).items() if staged else ():
        for name, part in zip(("gain", "gain_low", "gain_high"), gains["R@1"], strict=True):
            found[f"stages/{stage}/{metric}_{name}"] = float(part[staged[-1]])
    return found


@contextmanager
def experiment(
    folder: Path, options: Wandb, name: str, config: Mapping[str, Any], *, offline: bool, job_type: str | None = None
) -> Iterator[Any]:
    """An open run of the service, finished on leaving; of the machine, the process and the code it is told nothing.

    Args:
        folder: where its files lie, below ``wandb/``.
        options: project and group.
        name: shown for the run.
        config: plain values to filter and group by.
        offline: write the files and send nothing.
        job_type: kind of run within the group.
    """
    import wandb
    from lightning.pytorch.loggers import WandbLogger

    settings = wandb.Settings(
        console="off",
        init_timeout=10,
        disable_git=True,
        disable_code=True,
        host="",
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    logger = WandbLogger(
        name=name,
        project=options.project,
        group=options.group,
        job_type=job_type,
        save_dir=folder,
        offline=offline,
        config=dict(config),
        settings=settings,
        log_model=False,
    )
    open_run = logger.experiment
    try:
        yield open_run
    finally:
        open_run.finish()


def log_points(open_run: Any, points: Iterable[Mapping[str, Any]], summary: Mapping[str, Any]) -> None:
    """Curves over ``turn``, whatever the order they come in, and the summary."""
    open_run.define_metric("turn")
    open_run.define_metric("*", step_metric="turn")
    for point in points:
        open_run.log(dict(point))
    open_run.summary.update(dict(summary))
