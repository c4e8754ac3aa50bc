"""Triplet files: the recipe names the columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from covr_lab.data.base import Triplet, TripletDataModule
from covr_lab.data.records import Record, caption, identifier, records, text
from covr_lab.hub import local_path


@dataclass(frozen=True)
class Columns:
    """Names of the columns (or JSON keys) of a triplet file.

    Attributes:
        reference: id of the reference video.
        target: id of the target video.
        edit: modification text.
        session_id: unique id of the row; ``None`` takes the 0-based row number.
        reference_caption: caption of the reference; ``None`` when the file has none.
        target_caption: caption of the target; ``None`` when the file has none.
    """

    reference: str
    target: str
    edit: str
    session_id: str | None = None
    reference_caption: str | None = None
    target_caption: str | None = None


class TripletFile(TripletDataModule):
    """Any triplet file; the recipe names its columns.

    Args:
        annotations: ``.csv``, ``.jsonl`` or ``.json`` file; also a name on the Hub (:mod:`covr_lab.hub`).
        columns: names of its columns.
        options: see :class:`~covr_lab.data.base.TripletDataModule`.
    """

    def __init__(self, *, annotations: str, columns: Columns, **options: Any) -> None:
        super().__init__(**options)
        self.annotations = annotations
        self.columns = columns

    def records(self) -> Iterator[tuple[str, Record]]:
        """(place, record) of each row."""
        return records(local_path(self.annotations))

    def read(self) -> list[Triplet]:
        """All rows of the file.

        Raises:
            ValueError: a column is missing or a field has the wrong type; the message starts with file and line.
        """
        names = self.columns
        return [
            Triplet(
                str(number) if names.session_id is None else identifier(place, record, names.session_id),
                identifier(place, record, names.reference),
                identifier(place, record, names.target),
                text(place, record, names.edit),
                caption(place, record, names.reference_caption),
                caption(place, record, names.target_caption),
                place,
            )
            for number, (place, record) in enumerate(self.records())
        ]
