"""Triplet files in CSV, JSON Lines or a JSON list: strings stay as they are written.

The standard library reads the CSV: table readers turn "007" into 7 and the edit "None" into a missing value.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from covr_lab.data.base import Triplet, TripletDataModule

Record = Mapping[str, Any]


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


def csv_records(path: Path, file: IO[str]) -> Iterator[tuple[str, Record]]:
    """(place, record) of each CSV row; the place is the line that the row starts on."""
    reader = csv.reader(file, strict=True)
    line = 1
    try:
        header = next(reader, [])
        if len(set(header)) < len(header):
            raise ValueError(f"{path}:1: a column name occurs twice: {', '.join(header)} (rename one)")
        # An unnamed last column is a stray comma of the header: rows may lack it, and must leave it empty.
        names = len(header) - (header[-1:] == [""])
        line = reader.line_num + 1
        for row in reader:
            if row and (not names <= len(row) <= len(header) or any(row[names:])):
                raise ValueError(
                    f"{path}:{line}: {len(row)} fields for {names} named columns (quote a text that has a comma)"
                )
            if row:
                yield f"{path}:{line}", dict(zip(header[:names], row, strict=False))
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}:{line}: not CSV: {error} (check the quotes of this row)") from error


def json_records(path: Path, file: IO[str]) -> Iterator[tuple[str, Record]]:
    """(place, record) of each entry of a JSON list (its number), else of each line (its line number)."""
    content = file.read()
    entries: Iterator[tuple[str, Any]]
    if content.lstrip().startswith("["):
        entries = ((f"{path}: entry {number}", entry) for number, entry in enumerate(_parse(content, path, 1)))
    else:
        lines = ((number, line) for number, line in enumerate(content.split("\n"), start=1) if line.strip())
        entries = ((f"{path}:{number}", _parse(line, path, number)) for number, line in lines)
    for place, entry in entries:
        if not isinstance(entry, dict):
            raise ValueError(f"{place}: not an object (write one object with named keys for each row)")
        yield place, entry


def _parse(content: str, path: Path, line: int) -> Any:
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        place = f"{path}:{line + error.lineno - 1}"
        raise ValueError(
            f"{place}: not JSON: {error.msg} at column {error.colno} (write one list, or one object a line)"
        ) from error


def records(path: Path) -> Iterator[tuple[str, Record]]:
    """(place, record) of each row of a ``.csv``, ``.jsonl`` or ``.json`` file; a ``.json`` may hold JSON Lines.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file cannot be parsed or has no rows; the message starts with the file.
    """
    if path.suffix not in {".csv", ".jsonl", ".json"}:
        raise ValueError(f"{path}: unknown kind of file (data.annotations takes .csv, .jsonl or .json)")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such annotation file (check data.annotations)")
    reader = csv_records if path.suffix == ".csv" else json_records
    empty = True
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for item in reader(path, file):
                empty = False
                yield item
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error.reason} (save it as UTF-8)") from error
    if empty:
        raise ValueError(f"{path}: no annotation rows (check data.annotations)")


def value(place: str, record: Record, column: str) -> Any:
    """The field ``column`` of a record, which must have it."""
    if column not in record:
        raise ValueError(f"{place}: no column {column!r}, only {', '.join(record)} (check data.columns)")
    return record[column]


def identifier(place: str, record: Record, column: str) -> str:
    """An id exactly as written; JSON integers become their digits.

    >>> identifier("f.json:1", {"id": "007"}, "id"), identifier("f.json:2", {"id": 7}, "id")
    ('007', '7')
    """
    found = value(place, record, column)
    if isinstance(found, bool) or not isinstance(found, (str, int)):
        raise ValueError(f"{place}: {column!r} must be an id, not {json.dumps(found)} (write a string)")
    return str(found)


def text(place: str, record: Record, column: str) -> str:
    """A text without the stray blanks at its ends.

    >>> text("f.csv:2", {"edit": " NA "}, "edit")
    'NA'
    """
    found = value(place, record, column)
    if not isinstance(found, str):
        raise ValueError(f"{place}: {column!r} must be a text, not {json.dumps(found)} (write a string)")
    return found.strip()


def caption(place: str, record: Record, column: str | None) -> str:
    """A caption; "" without such a column, and for null."""
    return "" if column is None or value(place, record, column) is None else text(place, record, column)


class TripletFile(TripletDataModule):
    """Any triplet file; the recipe names its columns.

    Args:
        annotations: ``.csv``, ``.jsonl`` or ``.json`` file.
        columns: names of its columns.
        videos_dir: folder of the videos, ``<id>.mp4``.
        options: see :class:`~covr_lab.data.base.TripletDataModule`.
    """

    def __init__(self, *, annotations: str, columns: Columns, videos_dir: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.annotations = Path(annotations)
        self.columns = columns
        self.videos_dir = None if videos_dir is None else Path(videos_dir)

    def records(self) -> Iterator[tuple[str, Record]]:
        """(place, record) of each row."""
        return records(self.annotations)

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
