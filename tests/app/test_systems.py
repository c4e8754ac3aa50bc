"""What people can do works with every kind of system, and its rows replay."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from covr_lab.chat import Conversation, open_desk
from covr_lab.replay import differences, replay
from covr_lab.results.rows import turn_row
from covr_lab.results.schema import SCHEMA
from covr_lab.types import Query, Reflection

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
SYSTEMS = ("history_words", "ivr_words", "merlin_words", "text_words", "umivr_words")


@pytest.mark.parametrize("name", SYSTEMS)
def test_buttons_and_an_empty_query_work_with_every_system(name: str, keys: list[str], tmp_path: Path) -> None:
    desk = open_desk([RECIPES / f"{name}.yaml"], keys, run_dir=tmp_path / name, kind="app")
    ids, reference = desk.gallery.ids, desk.references[0]
    first = Conversation.start(desk.system, Query("s", reference, "make it red"))
    shown = [ids[row] for row in first.session.turns[-1].result.rows]
    rejected = first.say("", rejected=shown[2:4])
    after = [ids[row] for row in rejected.session.turns[-1].result.rows]
    events = {event.detail for event in rejected.session.turns[-1].events if event.kind == "not_demoted"}
    demoted = [video for video in shown[2:4] if video not in events]
    assert min([after.index(video) for video in demoted], default=10) >= 10
    assert [video for video in after if video not in demoted] == [video for video in shown if video not in demoted]
    talk = (
        rejected.say("make it huge")
        .say("", memory=Reflection(require=("snow",)))
        .say("in a garden", rejected=after[:1])
    )
    said = [turn.intent for turn in talk.session.turns if turn.intent is not None]
    assert rejected.session.turns[-1].intent is None
    if name in ("history_words", "ivr_words", "umivr_words"):  # buttons make none of them forget what was said
        assert "huge" in said[-1].edit + said[-1].search
    talk = talk.found(after[5])
    child = talk.more_like(shown[1], "child").say("make it blue")
    assert child.session.turns[0].error is None
    assert shown[1] not in [ids[row] for row in child.session.turns[0].result.rows]

    sessions = [talk.session, child.session]
    rows = [turn_row(s, turn, desk.gallery, None, "optimistic") for s in sessions for turn in s.turns]
    stored = pa.Table.from_pylist(rows, schema=SCHEMA).to_pylist()
    again = [
        turn_row(s, turn, desk.gallery, None, "optimistic") for s in replay(desk.system, stored) for turn in s.turns
    ]
    assert differences(rows, again) == []
    assert differences(stored, again) == []
