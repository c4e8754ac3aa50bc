"""The Lightning trainer of every predict loop here."""

from __future__ import annotations

from lightning import Callback, Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException

from covr_lab.recipe import Machine
from covr_lab.types import Refused


def predictor(machine: Machine, devices: int, callbacks: list[Callback]) -> Trainer:
    """A trainer that writes nothing of its own.

    Args:
        machine: where it runs.
        devices: processes, at most those of ``machine``: more than there is work for would crash.
        callbacks: writers and progress.

    Raises:
        Refused: the machine has no such accelerator.
    """
    try:
        return Trainer(
            accelerator=machine.accelerator,
            devices=devices,
            num_nodes=machine.num_nodes,
            strategy="ddp" if devices * machine.num_nodes > 1 else "auto",
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
            callbacks=callbacks,
        )
    except (ValueError, RuntimeError, MisconfigurationException) as error:
        raise Refused(f"trainer: {error}") from error
