"""Caption-as-query sets: the released files with all their quirks, and made-up dialogues."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from covr_lab.data import AVSD, LSMDC, MSRVTT, MSVD, ActivityNet, DiDeMo, MSVDCaptions, TextVideo, describe
from covr_lab.data.msvd_captions import KNOWN_LINES


@pytest.fixture(scope="module")
def real() -> Path:
    if "COVR_DATA" not in os.environ:
        pytest.skip("COVR_DATA is not set (folder of the public annotation files)")
    return Path(os.environ["COVR_DATA"])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def asked(data: TextVideo) -> list[tuple[str, str]]:
    """(target, caption) of each query, after the checks of a run."""
    data.setup("predict")
    assert {(query.reference, query.within) for query in data.queries()} == {(None, None)}
    return [(target.video, query.text) for query, target in zip(data.queries(), data.targets(), strict=True)]


def test_the_three_releases_of_msrvtt_hold_the_same_pairs(real: Path) -> None:
    names = ("msrvtt_test.jsonl", "MSRVTT_JSFUSION_test.csv", "msrvtt_test1ka.jsonl")
    sets = [MSRVTT(annotations=str(real / "msrvtt" / name)) for name in names]
    pairs = [asked(data) for data in sets]
    assert pairs[0] == pairs[1] == pairs[2]
    assert (len(pairs[0]), len({said for _, said in pairs[0]}), len(sets[0].gallery)) == (1000, 995, 1000)
    assert [query.session_id for query in sets[0].queries()] == [f"ret{number}" for number in range(1000)]
    assert sets[0].digest == sets[1].digest
    assert [query.session_id for query in sets[2].queries()[:2]] == ["0", "1"]
    assert not (real / "msrvtt" / names[0]).read_text().endswith("\n")
    assert describe(sets[0])["distinct_captions"] == 995


def test_msvd_files_name_one_set_of_clips_in_two_ways(real: Path) -> None:
    folder = real / "msvd"
    data = MSVD(annotations=str(folder / "msvd_test.json"), videos_dir=str(folder))
    pairs = asked(data)
    clips = (folder / "test_list.txt").read_text().split()
    assert [video for video, _ in pairs] == clips
    assert (len(clips), len(data.gallery)) == (670, 670)
    assert data.media_path(clips[0]) == folder / f"{clips[0]}.avi"
    other = asked(MSVD(annotations=str(folder / "msvd_test.jsonl")))
    written = json.loads((folder / "captions_msvd.json").read_text())
    order = list(written)
    assert [order[int(video.removeprefix("video"))] for video, _ in other] == clips
    assert all(said in written[clip] for clip, (_, said) in zip(clips, other, strict=True))


def test_avsd_is_two_sets(real: Path) -> None:
    folder = real / "avsd"
    ivr, umivr = (AVSD(annotations=str(folder / f"avsd_test.{end}")) for end in ("json", "jsonl"))
    ours, theirs = (dict(asked(data)) for data in (ivr, umivr))
    assert (len(ours), len(theirs), len(ours.keys() & theirs.keys())) == (1000, 1000, 528)
    assert (ivr.gallery_name, umivr.gallery_name) == ("targets of subset ivr", "targets of subset umivr")
    assert ivr.gallery.digest != umivr.gallery.digest
    AVSD(annotations=ivr.annotations, subset="ivr").setup("predict")
    with pytest.raises(ValueError, match=r"avsd_test.json: its clips are those of subset ivr, not umivr \(give"):
        AVSD(annotations=ivr.annotations, subset="umivr").setup("predict")
    assert describe(umivr)["protocol"] == {"gallery": "targets of subset umivr"}


def test_a_set_of_ones_own_is_named_by_its_ids(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"clip_id": "A1", "text": "a man"}\n')
    assert re.fullmatch("ids [0-9a-f]{8}", AVSD(annotations=str(path)).subset)
    with pytest.raises(ValueError, match=r"those of subset ids [0-9a-f]{8}, not ivr"):
        AVSD(annotations=str(path), subset="ivr").setup("predict")


@pytest.mark.parametrize(
    ("kind", "name", "rows", "with_line_ends"),
    [
        (AVSD, "avsd/avsd_test.json", 1000, 3),
        (AVSD, "avsd/avsd_test.jsonl", 1000, 1),
        (LSMDC, "lsmdc/lsmdc_test.json", 1000, 0),
        (DiDeMo, "didemo/didemo_test.json", 1004, 7),
    ],
)
def test_captions_are_as_released_but_for_blanks(
    kind: type[TextVideo], name: str, rows: int, with_line_ends: int, real: Path
) -> None:
    released = [next(row[key] for key in ("caption", "text") if key in row) for row in lines(real / name)]
    said = [text for _, text in asked(kind(annotations=str(real / name)))]
    assert (len(said), sum("\n" in text for text in released)) == (rows, with_line_ends)
    assert [re.sub(r"\s+", " ", text).strip() for text in released] == said
    assert not any("\n" in text for text in said)


def test_lsmdc_ids_have_dots_and_no_extension(real: Path) -> None:
    data = LSMDC(annotations=str(real / "lsmdc" / "lsmdc_test.json"), videos_dir=str(real))
    data.setup("predict")
    clip = "3086_UGLY_TRUTH_00.23.23.000-00.23.28.886"
    assert clip in data.gallery.row
    assert all(clip.count(".") == 6 for clip in data.gallery.ids)
    assert data.media_path(clip) == real / "3086_UGLY_TRUTH" / f"{clip}.avi"
    assert all(data.media_path(clip).parent.name.count(".") == 0 for clip in data.gallery.ids)
    flat = LSMDC(annotations=data.annotations, videos_dir=str(real), video_name="{id}.mp4")
    assert flat.media_path(clip) == real / f"{clip}.mp4"
    with pytest.raises(ValueError, match=r"data.videos_dir is not set"):
        LSMDC(annotations=data.annotations).media_path(clip)


def test_didemo_ids_are_file_names(real: Path) -> None:
    data = DiDeMo(annotations=str(real / "didemo" / "didemo_test.json"), videos_dir=str(real))
    data.setup("predict")
    ends = Counter(video.rsplit(".", 1)[1] for video in data.gallery.ids)
    assert (len(ends), ends[""], ends["mov"]) == (10, 27, 422)
    assert all(data.media_path(video) == real / video for video in data.gallery.ids)


def test_activitynet_has_two_protocols(real: Path) -> None:
    first = ActivityNet(annotations=str(real / "activitynet" / "activity_test_partial.json"), protocol="first_sentence")
    whole = ActivityNet(annotations=str(real / "activitynet" / "acnet_val1.jsonl"), protocol="paragraph")
    short, long = asked(first), asked(whole)
    assert len(short) == 4917
    assert [video for video, _ in short] == [video for video, _ in long]
    assert all(paragraph.startswith(sentence) for (_, sentence), (_, paragraph) in zip(short, long, strict=True))
    assert first.gallery.digest == whole.gallery.digest
    assert (first.terms, whole.terms) == ({"queries": "first_sentence"}, {"queries": "paragraph"})
    with pytest.raises(ValueError, match=r"jsonl: columns clip_id and text are those of the paragraph file \(give"):
        ActivityNet(annotations=whole.annotations, protocol="first_sentence").setup("predict")
    with pytest.raises(ValueError, match=r"json: columns clip_name and caption are those of the first_sentence file"):
        ActivityNet(annotations=first.annotations, protocol="paragraph").setup("predict")


def test_a_system_never_gets_the_query_as_a_caption_unasked(tmp_path: Path) -> None:
    path, captions = tmp_path / "rows.jsonl", tmp_path / "captions.jsonl"
    path.write_text('{"clip_id": "v1", "text": "a dog runs"}\n{"clip_id": "v2", "text": "a cat"}\n')
    captions.write_text('{"video": "v1", "caption": "an animal outdoors"}\n')
    plain = MSRVTT(annotations=str(path))
    assert (plain.gallery.captions, plain.proxy) == ({}, None)
    assert plain.user_gallery.captions == {"v1": "a dog runs", "v2": "a cat"}
    described = MSRVTT(annotations=str(path), captions_file=str(captions))
    assert described.gallery.captions == {"v1": "an animal outdoors"}
    assert described.proxy is None
    oracle = MSRVTT(annotations=str(path), system_captions=True)
    assert oracle.gallery.captions == plain.user_gallery.captions
    assert oracle.proxy == "the system knows each video by the very caption that asks for it"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"clip": "v1", "text": "x"}', r"rows.jsonl:1: columns clip, text, but neither video_id and sentence or clip"),
        ('{"clip_id": "v1", "text": "x"}\n{"clip_id": "v2"}', r"rows.jsonl:2: no column 'text'"),
        ('{"clip_id": "v1", "text": " \\n "}', r"rows.jsonl:1: the edit of session '0' is empty"),
        ('{"clip_id": "v1", "text": "x"}\n{"clip_id": "v1", "text": "y"}', r"rows.jsonl:2: video 'v1' has another"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"\A[^\n]*\Z") as error:
        MSRVTT(annotations=str(path)).setup("predict")
    assert re.search(message, str(error.value))


ROUNDS = [f"is it {number}? no, it is {number + 1}? or so" for number in range(10)]
DIALOGUES: list[Any] = [
    {"img": "A1", "dialog": ["a man sits", *ROUNDS]},
    {"img": "other", "dialog": ["not in the set", "who? he"]},
]


def avsd(folder: Path, dialogues: Any = DIALOGUES) -> AVSD:
    (folder / "rows.jsonl").write_text('{"clip_id": "A1", "text": "a man"}\n{"clip_id": "B2", "text": "a pan"}\n')
    (folder / "dialogues.json").write_text(json.dumps(dialogues))
    return AVSD(annotations=str(folder / "rows.jsonl"), dialogues=str(folder / "dialogues.json"))


def test_dialogues_are_the_users_alone(tmp_path: Path) -> None:
    data = avsd(tmp_path)
    expected = tuple((f"is it {number}?", f"no, it is {number + 1}? or so") for number in range(10))
    assert data.user_gallery.dialogues == {"A1": expected}
    assert data.gallery.dialogues == {}
    assert describe(data)["dialogues"] == 1
    changed = avsd(tmp_path, [{"img": "A1", "dialog": ["a man sits", "who? she"]}])
    assert changed.digest != data.digest
    assert AVSD(annotations=data.annotations).digest != data.digest


@pytest.mark.parametrize(
    ("dialogues", "message"),
    [
        ([{"img": "A1", "dialog": ["a man"]}], "dialogues.json: entry 0: 'dialog' must be a caption and rounds"),
        ([{"img": "A1", "dialog": ["a man", "no question"]}], r'entry 0: "no question" is no round of a dialogue \('),
        ([{"img": "A1", "dialog": ["a man", "who? "]}], r'entry 0: "who\? " is no round'),
        ([{"img": "A1", "dialog": ["a man", 3]}], "entry 0: 3 is no round"),
        ([DIALOGUES[0], DIALOGUES[0]], "entry 1: clip 'A1' has a dialogue further up"),
        ([DIALOGUES[1]], r"dialogues.json: no clip of .*rows.jsonl has a dialogue \(check data.dialogues\)"),
        ([{"dialog": ["a", "b? c"]}], "entry 0: no column 'img'"),
    ],
)
def test_bad_dialogues_are_refused_in_one_line(dialogues: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as error:
        avsd(tmp_path, dialogues).setup("predict")
    assert "\n" not in str(error.value)


def normal(said: str) -> str:
    return " ".join(said.lower().split())


def dealt(real: Path, **options: Any) -> MSVDCaptions:
    folder = real / "msvd"
    clips, written = str(folder / "test_list.txt"), str(folder / "captions_msvd.json")
    return MSVDCaptions(**{"annotations": clips, "annotators": written, **options})


def test_msvd_captions_are_dealt_without_overlap(real: Path) -> None:
    data = dealt(real)
    data.setup("predict")
    written = json.loads((real / "msvd" / "captions_msvd.json").read_text())
    assert (len(written), len(data.queries())) == (1970, 670)
    for query, target in zip(data.queries(), data.targets(), strict=True):
        known = data.gallery.caption(target.video).split("\n")
        told = data.user_gallery.caption(target.video).split("\n")
        hands = [normal(said) for said in (*known, query.text, *told)]
        assert len(known) == KNOWN_LINES == 4
        assert len(set(hands)) == len(hands)
        assert set(hands) == {normal(said) for said in written[target.video]}
    facts = describe(data)
    assert (facts["captions"], facts["distinct_captions_of_their_clip"]) == (27_763, 24_033)
    counts = [len(written[clip]) for clip in data.clips]
    assert (min(counts), max(counts)) == (21, 81)
    assert facts["proxy"] == data.proxy


def test_msvd_captions_follow_from_the_seed(real: Path, tmp_path: Path) -> None:
    first, second = dealt(real), dealt(real, seed=1)
    json_file = real / "msvd" / "msvd_test.json"
    assert dealt(real, annotations=str(json_file)).digest == first.digest
    changed = sum(a.text != b.text for a, b in zip(first.queries(), second.queries(), strict=True))
    assert changed > 600
    assert first.digest != second.digest
    written = json.loads((real / "msvd" / "captions_msvd.json").read_text())
    shuffled = tmp_path / "shuffled.json"
    turned = {clip: [said, *reversed(rest)] for clip, (said, *rest) in reversed(written.items())}
    shuffled.write_text(json.dumps(turned))
    again = dealt(real, annotators=str(shuffled))
    assert [normal(query.text) for query in again.queries()] == [normal(query.text) for query in first.queries()]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"v1": ["A dog", "a  DOG", "b", "c", "d", "e", "e "]}, "clip 'v1' has 5 distinct captions, 6 are needed"),
        ({"v2": ["a"]}, "no list of captions for clip 'v1'"),
        (["v1"], "no list of captions for clip 'v1'"),
        ({"v1": "a dog"}, "no list of captions for clip 'v1'"),
    ],
)
def test_annotators_that_do_not_do_are_refused(written: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("v1\n")
    (tmp_path / "written.json").write_text(json.dumps(written))
    data = MSVDCaptions(annotations=str(tmp_path / "ids.txt"), annotators=str(tmp_path / "written.json"))
    with pytest.raises(ValueError, match=message) as error:
        data.setup("predict")
    assert str(error.value).startswith(str(tmp_path / "written.json"))
    with pytest.raises(FileNotFoundError, match=r"none.txt: no such file of ids \(check data.annotations\)"):
        MSVDCaptions(annotations=str(tmp_path / "none.txt"), annotators=data.annotators).setup("predict")
