"""Per-turn curves on Weights & Biases, sent after the results are safe on disk."""

from __future__ import annotations

import json
import logging
import netrc
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from covr_lab.recipe import Wandb
from covr_lab.results.calls import module_seconds
from covr_lab.results.reader import read_rows

_log = logging.getLogger(__name__)
NETWORK_SECONDS = 3.0
CONFIG_KEYS = ("name", "protocol", "proxy", "versions", "n_sessions", "models")  # the allow-list of what leaves


def log_run(run_dir: Path, options: Wandb) -> None:
    """Log a finished run; whatever goes wrong is a warning, for the results are on disk already.

    Args:
        run_dir: folder with ``run.json`` and ``metrics.json``.
        options: mode, project, group.
    """
    mode = reachable_mode(options.mode)
    if mode == "disabled":
        return
    try:
        _send(run_dir, options, offline=mode == "offline")
    except Exception as error:  # wandb raises many kinds, and none of them may cost a run
        _log.warning("wandb: %s was not logged (%s); the results are in the folder", run_dir, error)


def reachable_mode(mode: str) -> str:
    """What ``auto`` and ``online`` come down to here: without a key or a network it is offline, without waiting.

    ``WANDB_MODE`` in the environment wins over the recipe.
    """
    mode = os.environ.get("WANDB_MODE", mode)
    if mode not in ("auto", "online"):
        return mode
    url = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai"))
    host = url.hostname or ""
    if not os.environ.get("WANDB_API_KEY") and not _key_in_netrc(host):
        _log.warning("wandb: no API key, logging offline")
        return "offline"
    try:
        socket.create_connection((host, url.port or (80 if url.scheme == "http" else 443)), NETWORK_SECONDS).close()
    except OSError as error:
        _log.warning("wandb: %s cannot be reached (%s), logging offline", host, error)
        return "offline"
    return "online"


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
    turns = range(len(curves["R@1"]))
    points = [{"turn": turn, **{k: v[turn] for k, v in curves.items() if v[turn] is not None}} for turn in turns]
    for name, values in metrics["cost_per_turn"].items():
        for point, value in zip(points, values, strict=True):
            point[f"cost/{name}"] = value
    summary = {f"transitions/{key}": value for key, value in metrics["transitions"].items() if value is not None}
    for module, counts in metrics["modules"].items():
        summary |= {f"modules/{module}/{key}": value for key, value in counts.items()}
    return config, points, summary


def _send(run_dir: Path, options: Wandb, *, offline: bool) -> None:
    import wandb
    from lightning.pytorch.loggers import WandbLogger

    run = json.loads((run_dir / "run.json").read_text(encoding="utf-8"))
    metrics = json.loads((run_dir / "metrics.json").read_text(encoding="utf-8"))
    config, points, summary = payload(run, metrics)
    for module, spent in module_seconds(read_rows(run_dir)).items():
        summary |= {f"modules/{module}/{key}": value for key, value in spent.items()}
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
        name=run["name"],
        project=options.project,
        group=options.group,
        save_dir=run_dir,
        offline=offline,
        config=config,
        settings=settings,
        log_model=False,
    )
    experiment = logger.experiment
    experiment.define_metric("turn")
    experiment.define_metric("*", step_metric="turn")
    for point in points:
        experiment.log(point)
    experiment.summary.update(summary)
    experiment.finish()
