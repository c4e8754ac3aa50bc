"""A stored prompt shows the very frames that were sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from covr_lab.engines.request import Call, Media, Request, Response
from covr_lab.results.calls import call_columns
from covr_lab.results.schema import SCHEMA
from covr_lab.results.shown import Shown, calls_text, wanted, write_frames
from covr_lab.video.samplers import Listed
from tests.gallery.toy import store, write_clip


def stored(*media: Media) -> dict[str, Any]:
    """The row of a turn whose only call showed ``media``, as it is read back."""
    call = Call(Request("verify", ("Look: ", *media), "s", 1), Response("yes"), True)
    row = {"session_id": "s", "turn": 1, **call_columns((call,))}
    return pa.Table.from_pylist([row], schema=SCHEMA).to_pylist()[0]


def test_chosen_frames_come_with_their_own_times(tmp_path: Path) -> None:
    write_clip(tmp_path / "clips" / "a.mp4", 0, frames=12)
    videos = store(tmp_path / "clips", ["a"])
    uniform = Media("a", 3, videos)
    chosen = Media("a", 3, videos, sampler=Listed([1, 2, 11]), side=32, timestamps=True)
    row = stored(uniform, chosen, uniform)
    shown = wanted([row])
    assert shown == [Shown("a", 3), Shown("a", 3, (1, 2, 11), 32, True)]
    found = write_frames(tmp_path, videos, shown)
    for media, one in zip((uniform, chosen), shown, strict=True):
        path, times = found[one].split(", ")
        assert Path(path).is_file()
        seconds = media.clip().seconds
        assert seconds is not None
        assert times == " ".join(f"{second:.2f}" for second in seconds) + " s"
    assert len({text.split(", ")[0] for text in found.values()}) == 2
    text = calls_text(row, found)
    assert text.count("3 frames of a") == 3
    assert "Look: [3 frames" in text


def test_a_video_that_is_gone_has_a_reason(tmp_path: Path) -> None:
    shown = [Shown("a", 3)]
    assert write_frames(tmp_path, None, shown) == {shown[0]: "the recipe names no videos"}
