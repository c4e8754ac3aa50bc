from __future__ import annotations

import json
import os
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from covr_lab.data import CoVRR, FineCVR, Triplet, TripletDataModule, WebVidCoVR, describe, report
from covr_lab.data.media import media_file
from covr_lab.types import SessionError
from covr_lab.video import Probe, PyAVReader, VideoError, VideoReader

Video = Callable[..., Path]
CSV = """txt1,txt2,sim_txt,pth1,pth2,edit,scores
a cat,a dog,0.9,01/007,2/7,make it a dog,[]
a dog,a fox,0.8,2/7,3/5,a fox,[]
"""


class Fixed(TripletDataModule):
    def __init__(self, rows: list[Triplet], **options: Any) -> None:
        super().__init__(**options)
        self.rows = rows

    def read(self) -> list[Triplet]:
        return self.rows


class Existing(VideoReader):
    """Stands for a decoder: a file that is there can be read."""

    fingerprint = "existing"

    def probe(self, path: Path) -> Probe:
        if not path.exists():
            raise VideoError(path, "missing")
        return Probe(6, 5.0, 32, 16, "none", 1.2, 0)

    def read(self, path: Path, sampler: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def annotations(tmp_path: Path) -> str:
    path = tmp_path / "small.csv"
    path.write_text(CSV)
    return str(path)


def test_a_set_says_where_its_media_lie(annotations: str, tmp_path: Path) -> None:
    folder = str(tmp_path)
    data = WebVidCoVR(annotations=annotations, videos_dir=folder)
    assert data.media_path("01/007") == tmp_path / "01" / "007.mp4"
    official = WebVidCoVR(annotations=annotations, videos_dir=folder, video_name="WebVid/8M/train/{id}.mp4")
    assert official.media_path("01/007") == tmp_path / "WebVid" / "8M" / "train" / "01" / "007.mp4"
    assert WebVidCoVR(annotations=annotations, videos_dir=folder, video_name="{name}.avi").media_path("1/{id}") == (
        tmp_path / "{id}.avi"
    )
    none = WebVidCoVR(annotations=annotations)
    assert (none.videos, none.media_folders) == (None, {})
    with pytest.raises(ValueError, match=r"data.videos_dir is not set \("):
        none.media_path("01/007")
    with pytest.raises(ValueError, match=r"data.video_name \(clip.mp4\) is one file for all videos"):
        WebVidCoVR(annotations=annotations, video_name="clip.mp4")


@pytest.mark.parametrize("video", ["../x", "a/../../x", "/etc/passwd", "..", ".", "/", ""])
def test_ids_cannot_lead_out_of_the_folder(video: str, tmp_path: Path) -> None:
    rows = [Triplet("q", "a", "b", "x")]
    with pytest.raises(SessionError, match=r"its id leads out of .* \(ids are names of files"):
        Fixed(rows, videos_dir=str(tmp_path)).media_path(video)
    if video:
        with pytest.raises(SessionError, match="its id leads out of"):
            Fixed([Triplet("q", video, "b", "x")], videos_dir=str(tmp_path)).setup("predict")
        Fixed([Triplet("q", video, "b", "x")]).setup("predict")  # without media an id is only a name


@given(st.text(st.sampled_from("./ab{}id"), max_size=12), st.sampled_from(["{id}.mp4", "x/{id}", "{name}"]))
def test_no_id_leads_out_of_the_folder(video: str, pattern: str) -> None:
    try:
        path = media_file(Path("/media"), pattern, video)
    except SessionError:
        return
    assert os.path.normpath(path).startswith("/media/")


def test_two_ids_with_one_file_are_refused(tmp_path: Path) -> None:
    rows = [Triplet("q", "01/007", "02/007", "x")]
    Fixed(rows, videos_dir=str(tmp_path)).setup("predict")
    with pytest.raises(ValueError, match=r"007.mp4: the file of both '01/007' and '02/007' \(check data.video_name\)"):
        Fixed(rows, videos_dir=str(tmp_path), video_name="{name}.mp4").setup("predict")


def test_missing_folder_is_refused_at_setup(annotations: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent: no such folder \(check data.videos_dir\)"):
        WebVidCoVR(annotations=annotations, videos_dir=str(tmp_path / "absent")).setup("predict")


def test_store_gets_paths_reader_and_all_references(annotations: str, tmp_path: Path) -> None:
    reader = Existing()
    data = WebVidCoVR(annotations=annotations, videos_dir=str(tmp_path), reader=reader, limit=1)
    store = data.videos
    assert store is not None
    assert store is data.videos
    assert (store.reader, store.references) == (reader, ("01/007", "2/7"))  # whatever limit says
    assert store.paths("2/7") == tmp_path / "2" / "7.mp4"


def test_system_captions(annotations: str) -> None:
    data = WebVidCoVR(annotations=annotations)
    assert data.gallery == data.user_gallery
    blind = WebVidCoVR(annotations=annotations, system_captions=False)
    assert blind.gallery.captions == {}
    assert (blind.gallery.ids, blind.gallery.digest) == (data.gallery.ids, data.gallery.digest)
    assert blind.user_gallery == data.gallery
    assert describe(blind) == describe(data)


def test_target_edits_are_those_of_the_first_row() -> None:
    rows = [Triplet("0", "a", "b", "first"), Triplet("1", "c", "b", "second"), Triplet("2", "a", "c", "third")]
    assert Fixed(rows, limit=1, target_edits=True).gallery.edits == {"b": "first", "c": "third"}
    assert Fixed(rows).gallery.edits == {}


def test_check_opens_every_file(annotations: str, tmp_path: Path, make_video: Video) -> None:
    videos, failed = tmp_path / "videos", tmp_path / "failed.tsv"
    make_video(videos / "01" / "007.mp4", frames=10, fps=5)
    (videos / "2").mkdir()
    (videos / "2" / "7.mp4").write_text("<html><body>403 Forbidden</body></html>")
    (videos / "stray.mp4").write_bytes(b"x")
    (videos / ".hidden").write_bytes(b"x")
    for reader in (None, PyAVReader()):
        data = WebVidCoVR(annotations=annotations, videos_dir=str(videos), reader=reader)
        media = describe(data, failed)["media"]
        assert media == {
            "referenced": 3,
            "found": 2,
            "readable": 1,
            "failed": {"not_a_video": 1, "missing": 1},
            "failed_list": str(failed),
            "extra_files": 1,
            "codecs": {"mpeg4": 1},
            "frames": {"min": 10, "median": 10, "max": 10},
            "seconds": {"min": 2.0, "median": 2.0, "max": 2.0},
            "fps": {"min": 5.0, "median": 5.0, "max": 5.0},
            "width": {"min": 32, "median": 32, "max": 32},
            "height": {"min": 16, "median": 16, "max": 16},
        }
        assert failed.read_text() == "2/7\tnot_a_video\n3/5\tmissing\n"
    assert "media failed                     not a video 1, missing 1" in report(describe(data, failed))


def test_check_of_a_whole_set_writes_no_list(annotations: str, tmp_path: Path, make_video: Video) -> None:
    for video in ("01/007", "2/7", "3/5"):
        make_video(tmp_path / "videos" / f"{video}.mp4")
    data = WebVidCoVR(annotations=annotations, videos_dir=str(tmp_path / "videos"))
    media = describe(data, tmp_path / "failed.tsv")["media"]
    assert (media["readable"], media["failed"], media["failed_list"], media["extra_files"]) == (3, {}, None, 0)
    assert not (tmp_path / "failed.tsv").exists()
    data.setup("predict")
    assert data.videos is not None


def frames(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for number in range(1, count + 1):
        Image.new("RGB", (32, 16), (number * 20, 0, 0)).save(folder / f"{number}.jpg")


@pytest.fixture
def finecvr(tmp_path: Path) -> str:
    rows = [
        {"source": "activitynet/v_1", "target": "msrvtt/video7", "instruct": "make him jump"},
        {"source": "msrvtt/video7", "target": "msrvtt/video8", "instruct": "add a dog"},
    ]
    path = tmp_path / "test.json"
    path.write_text(json.dumps(rows))
    return str(path)


def test_finecvr_rows_and_gallery(finecvr: str, tmp_path: Path) -> None:
    data = FineCVR(annotations=finecvr, videos_dir=str(tmp_path))
    assert [(row.session_id, row.reference, row.target, row.edit) for row in data.triplets] == [
        ("0", "activitynet/v_1", "msrvtt/video7", "make him jump"),
        ("1", "msrvtt/video7", "msrvtt/video8", "add a dog"),
    ]
    assert data.gallery.ids == ("activitynet/v_1", "msrvtt/video7", "msrvtt/video8")
    assert FineCVR(annotations=finecvr, gallery="targets").gallery.ids == ("msrvtt/video7", "msrvtt/video8")
    assert data.media_path("msrvtt/video7") == tmp_path / "msrvtt" / "video7"
    ids = tmp_path / "ids.txt"
    ids.write_text("msrvtt/video7\nmsrvtt/video8\nmsrvtt/other\n")
    assert len(FineCVR(annotations=finecvr, gallery_file=str(ids)).gallery) == 3


@pytest.mark.parametrize("count", [7, 9])
def test_finecvr_clip_has_eight_frames(count: int, finecvr: str, tmp_path: Path) -> None:
    root = tmp_path / "frames"
    frames(root / "activitynet" / "v_1", 8)
    frames(root / "msrvtt" / "video7", count)
    frames(root / "msrvtt" / "other", 8)
    failed = tmp_path / "failed.tsv"
    media = describe(FineCVR(annotations=finecvr, videos_dir=str(root)), failed)["media"]
    assert (media["referenced"], media["found"], media["readable"]) == (3, 2, 1)
    assert failed.read_text() == f"msrvtt/video7\t{count} frames instead of 8\nmsrvtt/video8\tmissing\n"
    assert (media["extra_files"], media["seconds"], media["fps"]) == (8, {}, {})


def test_check_of_both_parts_of_covr_r_in_one_folder(tmp_path: Path, make_video: Video) -> None:
    content = [
        {"webvid": [{"id": 0, "video_source": "1/2.mp4", "video_target": "1/3.mp4", "modification_text": "x"}]},
        {"ss2": [{"id": 0, "video_source": 4, "video_target": 5, "modification_text": "y"}]},
    ]
    path, flat = tmp_path / "merged.json", tmp_path / "videos"
    path.write_text(json.dumps(content))
    for name in ("2.mp4", "3.mp4", "4.webm", "5.webm", "6.webm"):
        make_video(flat / name)
    data = CoVRR(annotations=str(path), webvid_dir=str(flat), ss2_dir=str(flat), video_name="{name}")
    media = describe(data)["media"]
    assert (media["readable"], media["extra_files"], media["codecs"]) == (4, 1, {"mpeg4": 2, "vp8": 2})


def test_29_missing_references_of_the_real_set_are_counted_and_listed(tmp_path: Path) -> None:
    if "COVR_DATA" not in os.environ:
        pytest.skip("COVR_DATA is not set (folder of the public annotation files)")
    path = Path(os.environ["COVR_DATA"]) / "webvid-covr" / "webvid8m-covr_test.csv"
    videos, failed = tmp_path / "videos", tmp_path / "failed.tsv"
    options: dict[str, Any] = {"annotations": str(path), "gallery": "union"}
    references = {row.reference for row in WebVidCoVR(**options).triplets}
    ids = WebVidCoVR(**options).video_ids
    lost = sorted(video for video in ids if video in references)[::80][:29]
    for video in set(ids) - set(lost):
        file = videos / f"{video}.mp4"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    media = describe(WebVidCoVR(videos_dir=str(videos), reader=Existing(), **options), failed)["media"]
    assert (media["referenced"], media["found"], media["failed"]) == (4886, 4857, {"missing": 29})
    assert failed.read_text() == "".join(f"{video}\tmissing\n" for video in lost)


def test_tool_fails_and_says_where_the_list_is(
    annotations: str,
    tmp_path: Path,
    make_video: Video,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = Path(__file__).parents[2]
    main = runpy.run_path(str(root / "tools" / "check_data.py"))["main"]
    options = ["--data.annotations", annotations, "--data.videos_dir", str(tmp_path / "videos")]
    command = [str(root / "recipes" / "recovr_webvid_captions.yaml"), *options]
    monkeypatch.chdir(tmp_path)
    assert main(command) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/videos: no such folder (check data.videos_dir)\n"
    make_video(tmp_path / "videos" / "2" / "7.mp4")
    command += ["--data.reader", "covr_lab.video.PyAVReader"]
    assert main(command) == 1
    output, listed = capsys.readouterr(), tmp_path / "failed_videos.tsv"
    assert output.err == f"error: 2 of 3 videos cannot be read: {listed} says why (runs count them as misses)\n"
    assert listed.read_text() == "01/007\tmissing\n3/5\tmissing\n"
    assert "media readable                   1\n" in output.out
    for video in ("01/007", "3/5"):
        make_video(tmp_path / "videos" / f"{video}.mp4")
    assert main(command) == 0
