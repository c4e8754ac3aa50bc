"""Rows on disk: one parquet part a batch, whole or not there at all."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter

from covr_lab.results.schema import SCHEMA


def write_part(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write rows of whole sessions as one part; its name follows from the session ids, so nothing is written over.

    Args:
        folder: the run's ``turns`` folder.
        rows: rows of :data:`~covr_lab.results.schema.SCHEMA`.
    """
    ids = "\n".join(dict.fromkeys(row["session_id"] for row in rows))
    path = folder / f"part-{hashlib.sha256(ids.encode()).hexdigest()[:16]}.parquet"
    part = path.with_suffix(f".{os.getpid()}.tmp")
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMA), part)
    part.replace(path)
    return path


class RowWriter(BasePredictionWriter):
    """Writes every batch as it comes; each process writes its own.

    Args:
        folder: the run's ``turns`` folder.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__("batch")
        self.folder = folder

    def write_on_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        prediction: list[dict[str, Any]],
        batch_indices: Sequence[int] | None,
        batch: object,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        """Write the rows of one batch."""
        write_part(self.folder, prediction)
