"""Annotation files in CSV, JSON Lines or a JSON list, a record for each row: strings stay as they are written.

The standard library reads the CSV: table readers turn "007" into 7 and the edit "None" into a missing value.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]
KEY = "data.annotations"


def read_text(path: Path, key: str = KEY) -> str:
    """The text of an annotation file that the recipe names at ``key``, line ends as they are.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no UTF-8.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such annotation file (check {key})")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error.reason} (save it as UTF-8)") from error


def csv_records(path: Path, content: str) -> Iterator[tuple[str, Record]]:
    """(place, record) of each CSV row; the place is the line that the row starts on."""
    reader = csv.reader(StringIO(content, newline=""), strict=True)
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


def json_records(path: Path, content: str) -> Iterator[tuple[str, Record]]:
    """(place, record) of each entry of a JSON list (its number), else of each line (its line number)."""
    entries: Iterator[tuple[str, Any]]
    if content.lstrip().startswith("["):
        entries = ((f"{path}: entry {number}", entry) for number, entry in enumerate(parse_json(content, path)))
    else:
        lines = ((number, line) for number, line in enumerate(content.split("\n"), start=1) if line.strip())
        entries = ((f"{path}:{number}", parse_json(line, path, number)) for number, line in lines)
    for place, entry in entries:
        if not isinstance(entry, dict):
            raise ValueError(f"{place}: not an object (write one object with named keys for each row)")
        yield place, entry


def parse_json(content: str, path: Path, line: int = 1) -> Any:
    """The value of a JSON text that starts on ``line`` of a file; an error names the line."""
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        place = f"{path}:{line + error.lineno - 1}"
        raise ValueError(
            f"{place}: not JSON: {error.msg} at column {error.colno} (write one list, or one object a line)"
        ) from error


def records(path: Path, key: str = KEY) -> Iterator[tuple[str, Record]]:
    """(place, record) of each row of a ``.csv``, ``.jsonl`` or ``.json`` file; a ``.json`` may hold JSON Lines.

    Raises:
        FileNotFoundError: no such file.
        ValueError: the file cannot be parsed or has no rows; the message starts with the file.
    """
    if path.suffix not in {".csv", ".jsonl", ".json"}:
        raise ValueError(f"{path}: unknown kind of file ({key} takes .csv, .jsonl or .json)")
    reader = csv_records if path.suffix == ".csv" else json_records
    empty = True
    for item in reader(path, read_text(path, key)):
        empty = False
        yield item
    if empty:
        raise ValueError(f"{path}: no annotation rows (check {key})")


def value(place: str, record: Record, column: str) -> Any:
    """The field ``column`` of a record, which must have it."""
    if column not in record:
        raise ValueError(f"{place}: no column {column!r}, only {', '.join(record)} (check the file, or data.columns)")
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


def captions(path: Path, key: str) -> dict[str, str]:
    """Video id -> caption that is not blank, of a file with the columns (or JSON keys) ``video`` and ``caption``.

    Raises:
        ValueError: a row is malformed, or gives a video another caption; the message starts with file and line.
    """
    known: dict[str, str] = {}
    for place, record in records(path, key):
        video, said = identifier(place, record, "video"), text(place, record, "caption")
        if known.setdefault(video, said) != said:
            raise ValueError(f"{place}: video {video!r} has another caption further up (keep one)")
    return {video: said for video, said in known.items() if said}
