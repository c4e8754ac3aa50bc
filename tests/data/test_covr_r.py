from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from covr_lab.data import CoVRR

WEBVID = [
    {
        "id": 0,
        "video_source": "005/1011592328.mp4",
        "video_target": "011/0000000007.mp4",
        "modification_text": " make it night ",
        "reasoning trace": {"states": "dark"},
    },
    {
        "id": 1,
        "video_source": "011/0000000007.mp4",
        "video_target": "2/3",
        "modification_text": "add rain",
        "reasoning_trace": "wet",
    },
]
SS2 = [{"id": 0, "video_source": 78687, "video_target": 42, "modification_text": "drop it instead"}]
MERGED: list[Any] = [{"webvid": WEBVID}, {"ss2": SS2}]
ROWS = [
    ("webvid-0", "005/1011592328.mp4", "011/0000000007.mp4", "make it night"),
    ("webvid-1", "011/0000000007.mp4", "2/3", "add rain"),
    ("ss2-0", "78687", "42", "drop it instead"),
]


def load(folder: Path, content: Any, **options: Any) -> CoVRR:
    path = folder / "merged_webvid_ss2.json"
    path.write_text(json.dumps(content))
    return CoVRR(annotations=str(path), **options)


def rows(data: CoVRR) -> list[tuple[str, str | None, str, str]]:
    return [(row.session_id, row.reference, row.target, row.edit) for row in data.triplets]


@pytest.mark.parametrize(
    "content",
    [
        MERGED,
        {"webvid": WEBVID, "ss2": SS2},
        [{"webvid": WEBVID, "ss2": SS2}],
        [*WEBVID, *SS2],
        {str(number): entry for number, entry in enumerate([*WEBVID, *SS2])},
        [{**entry, "index": entry["id"], "video_extension": ".mp4"} for entry in [*WEBVID, *SS2]],
    ],
    ids=["merged", "object of parts", "one object", "flat list", "object of objects", "optional keys"],
)
def test_every_form_of_the_file_gives_the_same_rows(content: Any, tmp_path: Path) -> None:
    data = load(tmp_path, content)
    assert rows(data) == ROWS
    assert data.gallery.ids == ("011/0000000007.mp4", "2/3", "42")


@pytest.mark.parametrize(("part", "expected"), [("both", ROWS), ("webvid", ROWS[:2]), ("ss2", ROWS[2:])])
def test_part_chooses_triplets_and_gallery(part: str, expected: list[Any], tmp_path: Path) -> None:
    data = load(tmp_path, MERGED, part=part, gallery="union")
    assert rows(data) == expected
    assert set(data.gallery.ids) == {video for row in expected for video in row[1:3]}


def test_index_or_place_stand_in_for_a_missing_id(tmp_path: Path) -> None:
    bare = [{key: entry[key] for key in entry if key != "id"} for entry in [*WEBVID, *SS2]]
    assert [row[0] for row in rows(load(tmp_path, bare, part="ss2"))] == ["ss2-2"]
    bare[2]["index"] = 9
    assert [row[0] for row in rows(load(tmp_path, bare))] == ["webvid-0", "webvid-1", "ss2-9"]


def test_a_label_wins_over_the_shape_of_an_id(tmp_path: Path) -> None:
    odd = {"id": 5, "video_source": "77", "video_target": "88", "modification_text": "x"}
    data = load(tmp_path, [{"webvid": [odd]}], webvid_dir=str(tmp_path))
    assert rows(data) == [("webvid-5", "77", "88", "x")]
    assert data.media_path("77") == tmp_path / "77.mp4"


def test_each_part_has_its_folder_and_extension(tmp_path: Path) -> None:
    for name in ("web", "ss"):
        (tmp_path / name).mkdir()
    folders = {"webvid_dir": str(tmp_path / "web"), "ss2_dir": str(tmp_path / "ss")}
    data = load(tmp_path, MERGED, **folders)
    data.setup("predict")
    assert data.media_path("005/1011592328.mp4") == tmp_path / "web" / "005" / "1011592328.mp4"
    assert data.media_path("2/3") == tmp_path / "web" / "2" / "3.mp4"
    assert data.media_path("42") == tmp_path / "ss" / "42.webm"
    assert data.media_path("31.webm") == tmp_path / "ss" / "31.webm"  # a gallery file may name more
    other = load(tmp_path, MERGED, ss2_extension="mp4", video_name="{name}", **folders)
    assert other.media_path("42") == tmp_path / "ss" / "42.mp4"
    assert other.media_path("2/3") == tmp_path / "web" / "3.mp4"
    assert load(tmp_path, MERGED).videos is None


def test_a_part_without_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    with pytest.raises(ValueError, match=r"data.ss2_dir is not set \(name the folder of the ss2 clips, or"):
        load(tmp_path, MERGED, webvid_dir=str(tmp_path / "web")).setup("predict")
    load(tmp_path, MERGED, part="webvid", webvid_dir=str(tmp_path / "web")).setup("predict")
    with pytest.raises(FileNotFoundError, match=r"gone: no such folder \(check data.webvid_dir\)"):
        load(tmp_path, MERGED, part="webvid", webvid_dir=str(tmp_path / "gone")).setup("predict")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "{}: neither a list nor an object of triplets ("),
        ("text", "{}: neither a list nor an object of triplets ("),
        ([{"webvid": [3]}], "{}: webvid entry 0: not an object ("),
        ([{"webvid": [{"video_source": "1/2"}]}], "{}: webvid entry 0: no column 'video_target', only"),
        ([{"webvid": WEBVID}, {"ss2": [SS2[0], SS2[0]]}], "{}: ss2 entry 1: session id 'ss2-0' was used before"),
        ([{"webvid": SS2}, {"ss2": SS2}], "{}: ss2 entry 0: ss2 video '78687' is webvid video '78687' at {}: webvid"),
        ([*WEBVID, {**WEBVID[0], "id": 2, "video_target": "2/3.mp4"}], "{}: entry 2: webvid video '2/3.mp4' is webvid"),
        ([{"webvid": WEBVID}], "{}: no triplets of part ss2 (check data.annotations, data.part)"),
    ],
)
def test_bad_file_is_refused_in_one_line(content: Any, message: str, tmp_path: Path) -> None:
    data = load(tmp_path, content, part="ss2" if content == [{"webvid": WEBVID}] else "both")
    with pytest.raises(ValueError, match=r"\A[^\n]*\)\Z") as error:
        data.setup("predict")
    assert str(error.value).startswith(message.format(data.annotations, data.annotations))
