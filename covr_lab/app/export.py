"""Recorded searches as a run folder, which every tool reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from covr_lab.app.journal import Entry, Journal
from covr_lab.app.restore import standing
from covr_lab.results.folder import PEOPLE, RunFolder, now, write_json
from covr_lab.results.writer import write_part

Row = dict[str, Any]


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
            of the last turn.

    Raises:
        ValueError: no search fits, or one has more turns.
        RunRefused: the folder holds something else.
    """
    chosen = [
        entries
        for entries in journal.all()
        if "session" in entries[0]
        and participant in (None, entries[0]["participant"])
        and (sessions is None or entries[0]["session"] in sessions)
    ]
    if not chosen:
        who = "" if participant is None else f" of participant {participant!r}"
        raise ValueError(f"{journal.folder}: no finished search{who}: nothing to export")
    most = max(len(standing(entries)) - 1 for entries in chosen) if turns is None else turns
    folder = RunFolder(path)
    identity = {**record["identity"], "people": participant or "all"}
    protocol = {**record["protocol"], "turns": most, "user": "a person"}
    folder.open({**record, "identity": identity, "protocol": protocol, "name": path.name}, captions)
    try:
        for entries in chosen:
            write_part(folder.turns, within(standing(entries), most))
        write_json(path / PEOPLE, {"timings": [timing for entries in chosen for timing in timings(entries)]})
        folder.update(n_sessions=len(folder.finished_sessions()), finished=now())
    finally:
        folder.close()
    return folder


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
    return [{**names, "turn": entry["row"]["turn"], **entry["timing"], "recorded": entry["at"]} for entry in said]
