"""Recorded searches as a run folder, which every tool reads."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from covr_lab.app.journal import Entry, Journal
from covr_lab.app.restore import standing
from covr_lab.results.folder import PEOPLE, RunFolder, now, write_json
from covr_lab.results.writer import write_part

Row = dict[str, Any]
log = logging.getLogger(__name__)


def export(
    journal: Journal,
    record: Mapping[str, Any],
    captions: Mapping[str, str],
    path: Path,
    *,
    participant: str | None = None,
    sessions: Collection[str] | None = None,
    turns: int | None = None,
) -> RunFolder:
    """Write the searches of ``journal`` as they stand, the turns that were taken back left out.

    Args:
        journal: of the searches.
        record: ``run.json`` of the folder that they were made in.
        captions: for the pages of reports.
        path: of the run folder; what an earlier export of the same left there is brought up to date.
        participant: whose searches, by default those of all.
        sessions: which searches, by default all: for a study, those that ended.
        turns: feedback turns of the protocol, by default the most that a search has. A "found" beyond them is an event
            of the last turn. A search with more turns is left out: the log and ``skipped`` of ``people.json`` tell it.

    Raises:
        ValueError: no search fits.
        Refused: the journal of one of them is damaged, or it is not known whose one is.
        RunRefused: the folder holds something else.
    """

    def wanted(first: Entry) -> bool:
        ours = "session" in first and participant in (None, first["participant"])
        return ours and (sessions is None or first["session"] in sessions)

    found = journal.all(wanted)
    most = max((len(standing(entries)) - 1 for entries in found), default=0) if turns is None else turns
    chosen, skipped = _fitting(found, most)
    if not chosen:
        who = "" if participant is None else f" of participant {participant!r}"
        long = f" within {most} turns" if skipped else ""
        raise ValueError(f"{journal.folder}: no finished search{who}{long}: nothing to export")
    folder = RunFolder(path)
    identity = {**record["identity"], "people": participant or "all"}
    protocol = {**record["protocol"], "turns": most, "user": "a person"}
    folder.open({**record, "identity": identity, "protocol": protocol, "name": path.name}, captions)
    try:
        for _, rows in chosen:
            write_part(folder.turns, rows)
        told = [timing for entries, _ in chosen for timing in timings(entries)]
        write_json(path / PEOPLE, {"timings": told, "skipped": skipped})
        folder.update(n_sessions=len(folder.finished_sessions()), finished=now())
    finally:
        folder.close()
    return folder


def _fitting(found: Sequence[list[Entry]], turns: int) -> tuple[list[tuple[list[Entry], list[Row]]], list[str]]:
    """The searches with their rows, and why others are left out."""
    chosen, skipped = list[tuple[list[Entry], list[Row]]](), list[str]()
    for entries in found:
        try:
            chosen.append((entries, within(standing(entries), turns)))
        except ValueError as error:
            log.warning("left out: %s", error)
            skipped.append(str(error))
    return chosen, skipped


def within(entries: Sequence[Entry], turns: int) -> list[Row]:
    """Rows of one search, none beyond ``turns``.

    Raises:
        ValueError: the search was played beyond them.
    """
    rows = [entry["row"] for entry in entries]
    last = rows[-1]
    if last["turn"] > turns and last["action"] == "stop":
        events = [*rows[-2]["events"], {"kind": "found", "detail": last["feedback"]}]
        rows = [*rows[:-2], {**rows[-2], "events": events}]
    if rows[-1]["turn"] > turns:
        raise ValueError(f"session {last['session_id']}: turn {rows[-1]['turn']} lies beyond the {turns} of the study")
    return rows


def timings(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """When each turn of a search was read, begun and sent, as the browser told, and when it was recorded."""
    names = {key: entries[0][key] for key in ("session", "participant", "instance")}
    said = [entry for entry in standing(entries) if entry["verb"] != "start"]
    return [{**entry["timing"], **names, "turn": entry["row"]["turn"], "recorded": entry["at"]} for entry in said]
