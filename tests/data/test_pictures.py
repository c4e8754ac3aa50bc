"""FashionIQ and CIRR: the released files, their galleries and subsets, and pictures as videos of one frame."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from covr_lab.data import CIRR, FashionIQ, describe
from covr_lab.video import PyAVReader
from covr_lab.video.samplers import Uniform


@pytest.fixture(scope="module")
def real() -> Path:
    if "COVR_DATA" not in os.environ:
        pytest.skip("COVR_DATA is not set (folder of the public annotation files)")
    return Path(os.environ["COVR_DATA"])


@pytest.mark.parametrize(
    ("category", "rows", "split", "union", "blank"),
    [("dress", 2017, 3817, 2628, 0), ("shirt", 2038, 6346, 3089, 1), ("toptee", 1961, 5373, 2902, 2)],
)
def test_real_fashioniq(category: Any, rows: int, split: int, union: int, blank: int, real: Path) -> None:
    names = {"annotations": "cap.{category}.val.json", "split_file": "split.{category}.val.json"}
    files = {key: str(real / "fashioniq" / name) for key, name in names.items()}
    searched, pairs = (FashionIQ(category=category, gallery=rule, **files) for rule in ("split", "union"))
    facts = describe(searched)
    expected = {
        "rows": rows,
        "gallery": split,
        "rows_with_a_blank_caption": blank,
        "rows_with_reference_as_target": 0,
        "rows_with_reference_in_gallery": rows,
        "targets_not_in_gallery": 0,
        "protocol": {"gallery": f"split, {category}"},
    }
    assert {key: facts[key] for key in expected} == expected
    assert (len(pairs.gallery), pairs.gallery_name) == (union, f"union, {category}")
    assert set(pairs.gallery.ids) < set(searched.gallery.ids)
    released = json.loads((real / "fashioniq" / f"cap.{category}.val.json").read_text())
    for number, (row, query) in enumerate(zip(released, searched.queries(), strict=True)):
        first, second = (caption.strip() for caption in row["captions"])
        assert query.text == (f"{first} and {second}" if first and second else first or second)
        assert (query.session_id, query.reference) == (f"{category}-{number}", row["candidate"])
    assert [target.video for target in searched.targets()] == [row["target"] for row in released]


def test_real_cirr(real: Path) -> None:
    folder = real / "cirr"
    data = CIRR(
        annotations=str(folder / "cap.rc2.val.json"), split_file=str(folder / "split.rc2.val.json"), videos_dir="."
    )
    data.setup("predict")
    released = json.loads((folder / "cap.rc2.val.json").read_text())
    assert (len(data.queries()), len(data.gallery)) == (4181, 2297)
    assert [query.session_id for query in data.queries()] == [str(row["pairid"]) for row in released]
    for row, query, target in zip(released, data.queries(), data.targets(), strict=True):
        assert (query.reference, query.text, target.video) == (
            row["reference"],
            row["caption"].strip(),
            row["target_hard"],
        )
        assert len(target.subset) == 5
        assert set(target.subset) == set(row["img_set"]["members"]) - {query.reference}
        assert target.video in target.subset
        assert target.others == ()
    assert sum(row["target_hard"] not in row["target_soft"] for row in released) == 37  # so target_soft is not read
    assert data.media_path("dev-244-0-img0") == Path("dev/dev-244-0-img0.png")
    assert describe(CIRR(annotations=data.annotations, split_file=data.split_file))["rows_with_a_subset"] == 4181


def cirr(folder: Path, *, members: Any = ("a", "b", "c"), target: str = "b", split: Any = None) -> CIRR:
    row = {
        "pairid": 7,
        "reference": "a",
        "target_hard": target,
        "caption": " add a dog ",
        "img_set": {"members": members},
    }
    (folder / "cap.json").write_text(json.dumps([row]))
    places = {name: f"./dev/{name}.png" for name in "abcd"} if split is None else split
    (folder / "split.json").write_text(json.dumps(places))
    return CIRR(
        annotations=str(folder / "cap.json"),
        split_file=str(folder / "split.json"),
        videos_dir=str(folder),
        reader=PyAVReader(),
    )


def test_a_picture_is_a_video_of_one_frame(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for shade, name in enumerate("abcd"):
        Image.new("RGB", (20 + shade, 10), (40 * shade, 0, 0)).save(tmp_path / "dev" / f"{name}.png")
    data = cirr(tmp_path)
    facts = describe(data)
    assert facts["media"]["readable"] == 4
    assert facts["media"]["frames"] == {"min": 1, "median": 1.0, "max": 1}
    assert facts["media"]["extra_files"] == 2  # the two annotation files
    clip = data.reader.read(data.media_path("d"), Uniform(1))
    assert clip.frames.shape == (1, 10, 23, 3)
    assert clip.frames[0, 0, 0].tolist() == [120, 0, 0]
    assert (data.queries()[0].text, data.targets()[0].subset) == ("add a dog", ("b", "c"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"members": ["a", "c"]}, r"cap.json: entry 0: img_set.members lacks reference or target: \[\"a\", \"c\"\] \("),
        ({"members": ["b", "c"]}, "lacks reference or target"),
        ({"members": None}, "lacks reference or target: null"),
        ({"split": ["a", "b"]}, r"split.json: no object from ids to paths \(check data.split_file\)"),
        ({"split": {"a": "./a.png"}}, r"split.json: 1 targets are not in the gallery: b \("),
        ({"split": {"a": "../a.png", "b": "b.png"}}, "its id leads out of"),
    ],
)
def test_a_bad_cirr_file_is_refused_in_one_line(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as error:
        cirr(tmp_path, **change).setup("predict")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("captions", "split", "message"),
    [
        (["red"], ["a", "b"], r"cap.dress.json: entry 0: 'captions' must be two texts, not \[\"red\"\] \("),
        (["red", 3], ["a", "b"], "must be two texts"),
        ([" ", ""], ["a", "b"], "cap.dress.json: entry 0: the edit of session 'dress-0' is empty"),
        (["red", "new"], {"a": 1}, r"split.dress.json: no list of ids \(check data.split_file\)"),
        (["red", "new"], ["a"], "split.dress.json: 1 targets are not in the gallery: b"),
    ],
)
def test_a_bad_fashioniq_file_is_refused_in_one_line(captions: Any, split: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "cap.dress.json").write_text(json.dumps([{"candidate": "a", "target": "b", "captions": captions}]))
    (tmp_path / "split.dress.json").write_text(json.dumps(split))
    files = {"annotations": "cap.{category}.json", "split_file": "split.{category}.json"}
    data = FashionIQ(category="dress", **{key: str(tmp_path / name) for key, name in files.items()})
    with pytest.raises(ValueError, match=message) as error:
        data.setup("predict")
    assert "\n" not in str(error.value)


def test_the_split_gallery_needs_its_file() -> None:
    with pytest.raises(ValueError, match=r"data.split_file is not set \(name the split's file, or set data.gallery"):
        FashionIQ(annotations="cap.json", category="dress")
