"""Progress of a run on the terminal: sessions per second and the running R@1 of every turn."""

from __future__ import annotations

import sys
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from tqdm import tqdm

from covr_lab.metrics import TurnRecall


class SessionProgress(Callback):
    """One bar, on rank 0; under several processes it counts that rank's sessions.

    Args:
        turns: feedback turns.
        sessions: sessions to play, over all processes.
        n_gallery: gallery size.
        name: what R@1 is called on this data.
    """

    def __init__(self, turns: int, sessions: int, n_gallery: int, name: str = "R@1") -> None:
        self.turns, self.sessions, self.name = turns, sessions, name
        self.recall = TurnRecall(turns, n_gallery, sync_on_compute=False)  # ranks run at their own pace
        self.bar: Any = tqdm(disable=True)

    def on_predict_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar, once the system is bound: a refusal stands on a line of its own."""
        share = -(-self.sessions // trainer.world_size)
        seconds = 0.5 if sys.stderr.isatty() else 10.0  # a log file needs few lines
        hidden = not trainer.is_global_zero
        self.bar = tqdm(total=share, unit=" sessions", disable=hidden, dynamic_ncols=True, mininterval=seconds)

    def on_predict_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: list[dict[str, Any]], *args: object
    ) -> None:
        """Count the batch."""
        ranks: dict[str, list[int]] = {}
        for row in outputs:
            ranks.setdefault(row["session_id"], []).append(row["target_rank"])
        carried = [line + line[-1:] * (self.turns + 1 - len(line)) for line in ranks.values()]
        self.recall.update(torch.tensor(carried))
        curve = " ".join(f"{value:.1f}" for value in self.recall.compute().reshape(-1).tolist())
        self.bar.set_postfix_str(f"{self.name} by turn {curve}", refresh=False)
        self.bar.update(len(carried))

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Close the bar: what stopped the run stands on a line of its own."""
        self.bar.close()

    def on_predict_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the bar."""
        self.bar.close()
