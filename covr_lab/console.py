"""What a run says on the terminal."""

from __future__ import annotations

import json
import logging
import os
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covr_lab.evaluate import Outcome

RECALLS = ("R@1", "R@2", "R@3", "R@5", "R@10", "R@50", "Rs@1", "Rs@2", "Rs@3")  # those that a run has
ROWS = (*RECALLS, "MeanR3", "MeanR4", "MRR", "BRI", "coverage")

FAILED = {
    "unreadable_videos": "read, queries for them count as misses",
    "undescribed_videos": "described, the system knows nothing of them in words",
}


def quiet() -> None:
    """Silence what libraries say about themselves; warnings about the run stay. Imports Lightning."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import lightning.pytorch  # noqa: F401  # sets the levels of its loggers when it is imported

    for name in ("lightning.pytorch", "lightning.fabric", "transformers", "huggingface_hub"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module=r"lightning\..*|torch\..*")


def summary_table(outcome: Outcome) -> str:
    """Per-turn table of a finished run, with protocol and proxy label above it."""
    from covr_lab.results.summary import named

    metrics = json.loads((outcome.folder / "metrics.json").read_text(encoding="utf-8"))
    protocol = metrics["protocol"]
    lines = ["this run was finished before: nothing to do (--fresh starts a new one)"] if outcome.was_finished else []
    lines.append(
        f"{metrics['n']} sessions, {metrics['n_gallery']} videos in the gallery ({protocol['gallery']}), "
        f"ties {protocol['ties']}, reference {'masked' if protocol['mask_source'] else 'kept'}"
    )
    if metrics["proxy"]:
        lines.append(f"PROXY: {metrics['proxy']}")
    turns = protocol["turns"] + 1
    rows = [row for row in (named(row, protocol) for row in ROWS) if row in metrics["per_turn"]]
    width = max(map(len, rows)) + 1
    lines.append("turn".ljust(width) + "".join(f"{turn:>8}" for turn in range(turns)))
    for row in rows:
        values = ("".rjust(8) if value is None else f"{value:8.2f}" for value in metrics["per_turn"][row])
        lines.append(f"{row:{width}}" + "".join(values))
    transitions = {key: value for key, value in metrics["transitions"].items() if value is not None}
    lines.append(
        "  ".join(
            f"{key} {value:.1f}" if isinstance(value, float) else f"{key} {value}" for key, value in transitions.items()
        )
    )
    if outcome.failed:
        first = "; ".join(f"{session}: {reason}" for session, reason in list(outcome.failed.items())[:5])
        lines.append(f"{len(outcome.failed)} of {outcome.sessions} sessions failed and count as misses: {first}")
    run = json.loads((outcome.folder / "run.json").read_text(encoding="utf-8"))
    for key, what in FAILED.items():
        if failed := run.get(key):
            lines.append(f"{len(failed)} videos could not be {what}: {'; '.join(list(failed.values())[:3])}")
    lines.append(str(outcome.folder.resolve()))
    return "\n".join(lines)
