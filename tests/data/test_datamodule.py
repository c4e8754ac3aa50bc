from __future__ import annotations

from pathlib import Path

import pytest
import torch
from jsonargparse import ArgumentError, ArgumentParser
from lightning import LightningModule, Trainer

from covr_lab.data import SessionBatch, Triplet, TripletDataModule

ROWS = [
    Triplet("q0", "a", "b", "first"),
    Triplet("q1", "b", "c", "second"),
    Triplet("q2", None, "d", "third"),
    Triplet("q3", "e", "e", "fourth"),
    Triplet("q4", "a", "b", "fifth"),
]


class Fixed(TripletDataModule):
    def read(self) -> list[Triplet]:
        return ROWS


class Echo(LightningModule):
    def predict_step(self, batch: SessionBatch) -> list[tuple[str, str]]:
        return [(query.session_id, target.video) for query, target in zip(batch.queries, batch.targets, strict=True)]


def predict(data: TripletDataModule) -> list[list[tuple[str, str]]]:
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    return trainer.predict(Echo(), datamodule=data)  # type: ignore[return-value]


def test_gallery_rules() -> None:
    assert Fixed().gallery.ids == ("b", "c", "d", "e")
    assert Fixed(gallery="union").gallery.ids == ("a", "b", "c", "d", "e")


def test_limit_keeps_the_first_rows_and_the_whole_gallery() -> None:
    data = Fixed(limit=2)
    assert [query.session_id for query in data.queries()] == ["q0", "q1"]
    assert [target.video for target in data.targets()] == ["b", "c"]
    assert (data.gallery.digest, data.digest) == (Fixed().gallery.digest, Fixed().digest)
    assert len(Fixed(limit=99).queries()) == 5


def test_self_masking_is_off_only_where_the_reference_is_the_target() -> None:
    assert [query.mask_reference for query in Fixed().queries()] == [True, True, True, False, True]


@pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning")
def test_trainer_gets_whole_batches_in_order_and_skips_finished_sessions() -> None:
    data = Fixed(batch_size=3)
    assert predict(data) == [[("q0", "b"), ("q1", "c"), ("q2", "d")], [("q3", "e"), ("q4", "b")]]
    data.skip = frozenset({"q0", "q3"})
    assert predict(data) == [[("q1", "c"), ("q2", "d"), ("q4", "b")]]


def test_batch_moves_as_it_is() -> None:
    batch = next(iter(Fixed().predict_dataloader()))
    assert isinstance(batch, SessionBatch)
    assert batch.to(torch.device("cpu")) is batch
    assert len(batch) == 5


def test_gallery_file_replaces_the_rule_and_names_missing_targets(tmp_path: Path) -> None:
    path = tmp_path / "gallery.txt"
    path.write_text("\ufeffc\r\n distractor \r\n\r\nb\r\nb", encoding="utf-8", newline="")
    with pytest.raises(ValueError, match=r"gallery.txt: 2 targets are not in the gallery: d, e \(add them"):
        Fixed(gallery_file=str(path)).setup("predict")
    data = Fixed(gallery_file=str(path), allow_missing=True)
    assert data.gallery.ids == (" distractor ", "b", "c")
    assert len(data.queries()) == len(ROWS)
    path.write_text("z\n")
    with pytest.raises(ValueError, match=r"4 targets are not in the gallery: b, c, d, e \("):
        Fixed(gallery_file=str(path)).setup("predict")
    path.write_text("\n")
    with pytest.raises(ValueError, match=r"gallery.txt: no ids"):
        Fixed(gallery_file=str(path)).setup("predict")
    with pytest.raises(FileNotFoundError, match=r"absent.txt: no such file of ids"):
        Fixed(gallery_file=str(tmp_path / "absent.txt")).setup("predict")


def test_only_five_missing_targets_are_named(tmp_path: Path) -> None:
    class Many(TripletDataModule):
        def read(self) -> list[Triplet]:
            return [Triplet(str(number), "r", f"v{number}", "x") for number in range(8)]

    path = tmp_path / "gallery.txt"
    path.write_text("v0\n")
    with pytest.raises(ValueError, match=r"7 targets are not in the gallery: v1, v2, v3, v4, v5, \.\.\. \("):
        Many(gallery_file=str(path), limit=1).setup("predict")


def test_text_only_row_needs_an_edit() -> None:
    class Silent(TripletDataModule):
        def read(self) -> list[Triplet]:
            return [Triplet("q", None, "v", " ")]

    with pytest.raises(ValueError, match=r"session 'q': the edit of session 'q' is empty"):
        Silent(empty_edit="reference_only").setup("predict")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "data.limit must be 1 or more, not 0"),
        ({"batch_size": -1}, "data.batch_size must be 1 or more, not -1"),
        ({"gallery": "union", "gallery_file": "ids.txt"}, "data.gallery .* and data.gallery_file both name"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Fixed(**options)  # type: ignore[arg-type]


def test_recipes_reach_the_options_of_subclasses_and_misspelt_ones_fail() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(TripletDataModule, "data")
    recipe = ["--data=covr_lab.data.WebVidCoVR", "--data.annotations=x.csv"]
    options = parser.parse_args([*recipe, "--data.limit=4"]).data.init_args
    assert (options.limit, options.batch_size, options.gallery) == (4, 64, "targets")
    for wrong in ("--data.limt=4", "--data.gallery=all", "--data.limit=few"):
        with pytest.raises(ArgumentError, match=wrong.removeprefix("--data.").split("=")[0]):
            parser.parse_args([*recipe, wrong])


def test_sets_with_media_of_their_own_kind_take_only_the_options_that_fit() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(TripletDataModule, "data")
    reader = ["--data.reader=PyAVReader", "--data.reader.min_decodable=0.5", "--data.system_captions=false"]
    for kind, folder, wrong in (
        ("FineCVR", "videos_dir", "video_name"),
        ("CoVRR", "webvid_dir", "videos_dir"),
        ("WebVidCoVR", "videos_dir", "ss2_dir"),
    ):
        recipe = [f"--data=covr_lab.data.{kind}", "--data.annotations=x.json", f"--data.{folder}=clips", *reader]
        data = parser.instantiate(parser.parse_args(recipe)).data
        assert list(data.media_folders.values()) == [Path("clips")]
        assert (data.reader.min_decodable, data.system_captions) == (0.5, False)
        with pytest.raises(ArgumentError, match=wrong):
            parser.parse_args([*recipe, f"--data.{wrong}=x"])
