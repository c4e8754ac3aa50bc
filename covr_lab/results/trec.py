"""A run as TREC files, one ranking file a turn and one qrels file, for evaluation tools of others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from covr_lab.results.reader import check_complete, densify, read_rows, read_run
from covr_lab.results.schema import TOP

COLUMNS = ("session_id", "turn", "target", "other_targets", "target_rank", "n_gallery", "top_ids")


class Ranking(NamedTuple):
    """What a session shows at a turn: its best ids, its first target where the tie rule puts it."""

    session_id: str
    target: str
    ids: list[str]


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Attributes:
        qrels: targets, one line each.
        runs: one file a turn, ``turn-0.run`` first.
        empty: ids of sessions that rank nothing at some turn (a failed turn 0): lines in ``qrels``, none in that turn.
    """

    qrels: Path
    runs: tuple[Path, ...]
    empty: tuple[str, ...]


def export_trec(run_dir: Path, out: Path | None = None, turns: Sequence[int] | None = None) -> Exported:
    """Write ``turn-N.run`` and ``qrels.txt``, whose Success@K, R@K and RR are those of the run.

    Where a session has several targets the run's R@K is Success@K: any of them counts.

    Rows keep the best 100 ids, so K ends at 100 and RR is RR@100: a target behind them counts as 0. A session that
    stopped early is in every later turn with its last ranking. Scores fall by one a position: readers that sort by
    score, and break ties in their own way, find the order as it is.

    Args:
        run_dir: folder of a finished run.
        out: folder to write to (default: ``run_dir/trec``).
        turns: which turns (default: all of the protocol).

    Raises:
        FileNotFoundError: no run lies in ``run_dir``.
        ValueError: the run is unfinished, has no targets or not such a turn, or an id is empty.
    """
    run, table = read_run(run_dir), read_rows(run_dir)
    last, out = run["protocol"]["turns"], out or run_dir / "trec"
    check_complete(len(densify(table, last).session_ids), run)
    wanted = range(last + 1) if turns is None else turns
    if beyond := [turn for turn in wanted if not 0 <= turn <= last]:
        raise ValueError(f"{run_dir} has turns 0 to {last}, not {beyond[0]}: give --turn one of them")
    rows, tag = table.select(COLUMNS).to_pylist(), escape(str(run["name"]))
    out.mkdir(parents=True, exist_ok=True)
    targets = {row["session_id"]: (row["target"], *(row["other_targets"] or ())) for row in rows}
    lines = [f"{escape(session)} 0 {escape(one)} 1\n" for session, several in targets.items() for one in several]
    (out / "qrels.txt").write_text("".join(lines), encoding="utf-8")
    files, empty = [], dict[str, None]()
    for turn in wanted:
        files.append(out / f"turn-{turn}.run")
        with files[-1].open("w", encoding="utf-8") as file:
            for session, _, ids in rankings(rows, turn):
                query, scored = escape(session), zip(ids, range(TOP, 0, -1), strict=False)
                lines = [f"{query} Q0 {escape(video)} {TOP + 1 - score} {score} {tag}\n" for video, score in scored]
                file.writelines(lines)
                empty |= {} if ids else {session: None}
    return Exported(out / "qrels.txt", tuple(files), tuple(empty))


def rankings(rows: Sequence[dict[str, Any]], turn: int) -> Iterator[Ranking]:
    """The ranking of every session at ``turn``, the last one of a session that stopped before it.

    Args:
        rows: with the columns ``COLUMNS``, sorted by session and turn.
        turn: 0-based.
    """
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        is_last = following is None or following["session_id"] != row["session_id"]
        if row["turn"] == turn or (is_last and row["turn"] < turn):
            top, targets = row["top_ids"] or [], (row["target"], *(row["other_targets"] or ()))
            first = next((video for video in top if video in targets), row["target"])
            yield Ranking(row["session_id"], first, placed(top, first, row["target_rank"], row["n_gallery"]))


def placed(top: Sequence[str], target: str, rank: int, n_gallery: int) -> list[str]:
    """The best ids with the target at its rank: among equal scores the protocol's tie rule decides, not the row order.

    Args:
        top: stored ids, best first, in which the target may stand elsewhere among its equals, or not at all.
        target: id of the target.
        rank: 1-based; above ``n_gallery`` it was not ranked.
        n_gallery: videos in the gallery.

    >>> placed(["a", "b", "c"], "c", rank=1, n_gallery=9), placed(["a", "b", "c"], "b", rank=10, n_gallery=9)
    (['c', 'a', 'b'], ['a', 'c'])
    """
    others = [video for video in top if video != target]
    if rank <= min(TOP, n_gallery):
        if rank > len(others) + 1:
            raise ValueError(f"target {target} has rank {rank}, but {len(top)} ids are stored: the rows are damaged")
        others.insert(rank - 1, target)
    return others[:TOP]


def escape(name: str) -> str:
    """``name`` as one word: blanks and ``%`` as percent codes, so that no two ids become one; the rest as given.

    Raises:
        ValueError: it is empty.

    >>> escape("dir/my clip.mp4"), escape("100%")
    ('dir/my%20clip.mp4', '100%25')
    """
    if not name:
        raise ValueError("an id is empty: TREC files cannot hold it; give every session and video an id")
    return re.sub(r"[\s%]", lambda found: quote(found[0]), name)
