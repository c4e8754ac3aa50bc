from __future__ import annotations

import json
import os
from itertools import combinations
from pathlib import Path

import pytest

from covr_lab.data import DenseWebVidCoVR, WebVidCoVR, WordWorld, describe, report
from covr_lab.data.words import WORDS
from covr_lab.functional.text import content_words

CSV = "txt1,txt2,sim_txt,pth1,pth2,edit,scores\n"


@pytest.fixture(scope="module")
def real() -> Path:
    if "COVR_DATA" not in os.environ:
        pytest.skip("COVR_DATA is not set (folder of the public annotation files)")
    return Path(os.environ["COVR_DATA"])


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.csv"
    path.write_text(
        CSV + 'a cat ,a dog,0.9,01/007,2/7,make it a dog,"[0.1, 0.2]"\na dog,a dog,0.8,2/7,3/5, let it run now ,[]\n'
    )
    return path


def test_webvid_covr_columns(small: Path) -> None:
    data = WebVidCoVR(annotations=str(small))
    assert [(row.session_id, row.reference, row.target, row.edit) for row in data.triplets] == [
        ("0", "01/007", "2/7", "make it a dog"),
        ("1", "2/7", "3/5", "let it run now"),
    ]
    assert data.gallery.captions == {"01/007": "a cat", "2/7": "a dog", "3/5": "a dog"}


def test_real_webvid_covr_test(real: Path) -> None:
    path = real / "webvid-covr" / "webvid8m-covr_test.csv"
    facts = describe(WebVidCoVR(annotations=str(path), limit=10))
    expected = {
        "rows": 2556,
        "sessions": 10,
        "references": 2444,
        "targets": 2556,
        "gallery": 2556,
        "videos": 4886,
        "rows_with_reference_in_gallery": 117,
        "rows_with_reference_as_target": 0,
        "targets_not_in_gallery": 0,
        "empty_edits": 0,
        "videos_without_caption": 0,
    }
    assert {name: facts[name] for name in expected} == expected
    assert facts["edit_words"]["max"] == 22
    assert describe(WebVidCoVR(annotations=str(path), gallery="union"))["gallery"] == 4886


def test_real_dense_join(real: Path) -> None:
    path = str(real / "dense-webvid-covr" / "dense_join_webvid_covr.jsonl")
    data = DenseWebVidCoVR(annotations=path)
    ids = [query.session_id for query in data.queries()]
    assert (len(ids), ids[0], ids[-1]) == (2000, "val-0", "test-999")
    assert data.gallery.caption("112/1016223877") == "Digital network, green lines and dots"
    with pytest.raises(ValueError, match=r"jsonl:1: no target_caption_dense for target '112/1016223877'"):
        DenseWebVidCoVR(annotations=path, captions="dense").setup("predict")


def test_dense_captions_of_both_files(small: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"small.csv: the released file has no short captions"):
        DenseWebVidCoVR(annotations=str(small))
    released = DenseWebVidCoVR(annotations=str(small), captions="dense")
    assert [query.session_id for query in released.queries()] == ["0", "1"]
    row = {"split": "val", "id": 0, "ref": "1/2", "target": "3/4", "edit_dense": "turn it blue"}
    captions = {"ref_caption_dense": "long a", "target_caption_dense": "long b"}
    path = tmp_path / "join.jsonl"
    path.write_text(json.dumps(row | captions))
    joined = DenseWebVidCoVR(annotations=str(path), captions="dense")
    assert joined.gallery.captions == {"1/2": "long a", "3/4": "long b"}
    path.write_text(json.dumps({**row, **captions} | {"split": None}))
    with pytest.raises(ValueError, match=r"join.jsonl:1: 'split' must be an id, not null"):
        joined.read()


def test_report_of_a_small_file(small: Path, tmp_path: Path) -> None:
    ids = tmp_path / "ids.txt"
    ids.write_text("2/7\nother\n")
    data = WebVidCoVR(annotations=str(small), gallery_file=str(ids), allow_missing=True)
    lines = {line[:32].strip(): line[33:] for line in report(describe(data)).splitlines()}
    assert lines["targets not in gallery"] == "1"
    assert lines["first targets not in gallery"] == "3/5"
    assert lines["rows with reference in gallery"] == "1"
    assert lines["videos"] == "4"
    assert lines["targets sharing a caption"] == "2"
    assert lines["videos without caption"] == "1"
    assert lines["edit words"] == "min 4, median 4, max 4"
    assert lines["gallery digest"] == data.gallery.digest
    assert lines["media"] == "no media folder given"


def attributes(caption: str) -> tuple[str, ...]:
    """The attribute values of a caption, read back from its words."""
    low = f" {caption.lower().rstrip('.').replace(':', '').replace(',', '')} "
    found = []
    for name, values in WORDS.items():
        ends = "s " if name == "motion" else " "
        hits = [value for value, words in values.items() if any(f" {word}{ends}" in low for word in words)]
        assert len(hits) == 1, (caption, name, hits)
        found.append(hits[0])
    return tuple(found)


@pytest.mark.parametrize("seed", [0, 1])
def test_world_in_words_keeps_its_promises(seed: int) -> None:
    data = WordWorld(videos=64, queries=48, seed=seed, gallery="union")
    gallery = data.gallery
    assert len(gallery) == 64
    scenes = {video: attributes(gallery.caption(video)) for video in gallery.ids}
    assert len(set(scenes.values())) == 64
    assert len({frozenset(content_words(gallery.caption(video))) for video in gallery.ids}) == 64
    for row in data.triplets:
        assert row.reference is not None
        old, new = scenes[row.reference], scenes[row.target]
        changes = [place for place in range(5) if old[place] != new[place]]
        assert len(changes) in (1, 2)
        for place in changes:
            words = list(WORDS.values())[place][new[place]]
            assert any(word in row.edit for word in words), (row.edit, new[place])
    close = [sum(a != b for a, b in zip(*pair, strict=True)) <= 2 for pair in combinations(scenes.values(), 2)]
    assert sum(close) > 64


def test_world_in_words_is_a_function_of_its_arguments() -> None:
    assert WordWorld().digest == WordWorld(limit=3, gallery="union").digest
    assert WordWorld().digest == "48b5531a6bf0563a46fef5c25f25f22f6e4d3b1acad85ce72a368b0aa68a64de"
    assert WordWorld(seed=1).digest != WordWorld().digest


@pytest.mark.parametrize(
    ("videos", "queries", "message"),
    [(7, 4, "data.videos"), (0, 0, "data.videos"), (8, 3, "data.queries"), (8, 9, "4 to 8")],
)
def test_world_in_words_refuses_impossible_sizes(videos: int, queries: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WordWorld(videos=videos, queries=queries)
