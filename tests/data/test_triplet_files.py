from __future__ import annotations

import csv
from pathlib import Path

import pytest

from covr_lab.data import Columns, TripletFile

FIXTURES = Path(__file__).parents[1] / "fixtures" / "triplets"
QUIRKS = Columns("ref", "target", "edit", "key", "ref_text", "target_text")
PLAIN = Columns("ref", "target", "edit")


def load(path: Path, columns: Columns = PLAIN, **options: object) -> TripletFile:
    return TripletFile(annotations=str(path), columns=columns, **options)


def write(folder: Path, text: str, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


@pytest.mark.parametrize("name", ["quirks.csv", "quirks.jsonl", "quirks.json"])
def test_strings_stay_as_they_are_written(name: str) -> None:
    data = load(FIXTURES / name, QUIRKS)
    assert [(row.session_id, row.reference, row.target, row.edit) for row in data.triplets] == [
        ("a", "007", "7", "None"),
        ("b", "7", "v/1e5", "NA"),
        ("c", "12345678901234567890", "clip.v2.mp4", "null"),
        ("d", "v/1e5", "тест/01", "сделай его красным"),  # noqa: RUF001
        ("e", "тест/01", "x", "add a 🦜, please"),
        ("f", "x", "y", 'say "hi",\nthen leave'),
        ("g", "z", "z", "the same clip again"),
    ]
    assert data.gallery.ids == ("7", "clip.v2.mp4", "v/1e5", "x", "y", "z", "тест/01")
    assert data.gallery.caption("007") == "a red kite"
    assert data.gallery.caption("7") == "a blue kite"
    assert "clip.v2.mp4" not in data.gallery.captions
    assert [query.mask_reference for query in data.queries()] == [True] * 6 + [False]


def test_the_three_formats_have_one_digest() -> None:
    assert len({load(FIXTURES / name, QUIRKS).digest for name in ("quirks.csv", "quirks.jsonl", "quirks.json")}) == 1


def test_session_id_defaults_to_the_row_number(tmp_path: Path) -> None:
    data = load(write(tmp_path, 'ref,target,edit\r\na,b,"x\r\ny"\r\n\r\nb,c,y'))
    assert [(query.session_id, query.text) for query in data.queries()] == [("0", "x\r\ny"), ("1", "y")]


HEAD = "ref,target,edit\n"
REFUSALS = {
    "few fields": (HEAD + 'a,b,"x\ny"\na,b\n', "rows.csv", "{}:4: 2 fields for 3 named columns (quote a text"),
    "many fields": (HEAD + "a,b,red, not blue\n", "rows.csv", "{}:2: 4 fields for 3 named columns"),
    "spilled text": ("ref,target,edit,\na,b,red,not blue\n", "rows.csv", "{}:2: 4 fields for 3 named columns"),
    "open quote": (HEAD + 'a,b,x\na,b,"y\nc,d,z\n', "rows.csv", "{}:3: not CSV: unexpected end of data"),
    "column twice": ("ref,edit,target,edit\n", "rows.csv", "{}:1: a column name occurs twice"),
    "no column": ("source,target,edit\na,b,x\n", "rows.csv", "{}:2: no column 'ref', only source, target, edit ("),
    "no rows": (HEAD, "rows.csv", "{}: no annotation rows"),
    "empty file": ("", "rows.jsonl", "{}: no annotation rows"),
    "empty target": (HEAD + "a, ,x\n", "rows.csv", "{}:2: target is empty"),
    "empty reference": (HEAD + ",b,x\n", "rows.csv", "{}:2: reference is empty"),
    "empty edit": (HEAD + "a,b,x\na,c, \t\n", "rows.csv", "{}:3: the edit of session '1' is empty"),
    "kind of file": (HEAD, "rows.tsv", "{}: unknown kind of file"),
    "null": ('{"ref": "a", "target": "b", "edit": null}', "rows.jsonl", "{}:1: 'edit' must be a text, not null"),
    "number as text": ('{"ref": "a", "target": "b", "edit": 3}', "rows.jsonl", "{}:1: 'edit' must be a text, not 3"),
    "float id": ('\n{"ref": 1.0, "target": "b", "edit": "x"}', "rows.jsonl", "{}:2: 'ref' must be an id, not 1.0"),
    "bool id": (
        '[{"ref": "a", "target": true, "edit": "x"}]',
        "rows.json",
        "{}: entry 0: 'target' must be an id, not true",
    ),
    "not an object": ("[[1]]", "rows.json", "{}: entry 0: not an object"),
    "bad line": ('{"ref": "a",\n', "rows.jsonl", "{}:1: not JSON"),
    "bad list": ('[{"ref": "a"},\n oops]', "rows.json", "{}:2: not JSON: Expecting value at column 2"),
    "caption conflict": (
        'r,target,edit,t,s\na,b,x,"one cat",0\nc,b,y,"two cats",1\n',
        "captions.csv",
        "{}:3: video 'b' has another caption at {}:2 (make them equal)",
    ),
    "session id twice": (
        "r,target,edit,t,s\na,b,x,,q1\nc,d,y,,q1\n",
        "captions.csv",
        "{}:3: session id 'q1' was used before, at {}:2 (give every row its own)",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_file_is_refused_in_one_line_that_names_the_place(case: str, tmp_path: Path) -> None:
    text, name, message = REFUSALS[case]
    path = write(tmp_path, text, name)
    columns = Columns("r", "target", "edit", "s", target_caption="t") if name == "captions.csv" else PLAIN
    with pytest.raises(ValueError, match=r"\A\S.*\)\Z") as error:
        load(path, columns).setup("predict")
    assert str(error.value).startswith(message.format(path, path))


def test_missing_file_and_wrong_encoding_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with pytest.raises(FileNotFoundError, match=r"rows.csv: no such annotation file"):
        load(path).setup("predict")
    path.write_bytes((HEAD + "a,b,caf\xe9\n").encode("latin-1"))
    with pytest.raises(ValueError, match=r"rows.csv: not UTF-8"):
        load(path).setup("predict")


def test_empty_edit_as_reference_only_query(tmp_path: Path) -> None:
    data = load(write(tmp_path, HEAD + 'a,b," \n "\na,c,x\n'), empty_edit="reference_only")
    assert [query.text for query in data.queries()] == ["", "x"]


def test_shuffled_file_has_the_same_gallery(tmp_path: Path) -> None:
    with (FIXTURES / "quirks.csv").open(encoding="utf-8-sig", newline="") as file:
        header, *rows = csv.reader(file)
    path = tmp_path / "shuffled.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows[::-1]])
    first, second = load(FIXTURES / "quirks.csv", QUIRKS), load(path, QUIRKS)
    assert first.queries() == second.queries()[::-1]
    assert (first.gallery, first.gallery.digest, first.digest) == (second.gallery, second.gallery.digest, second.digest)


def test_digest_sees_every_field(tmp_path: Path) -> None:
    columns = Columns("r", "t", "e", "s", "a", "b")
    row = ["v1", "v2", "redder", "q", "cat", "dog"]
    digests = set()
    for place in range(-1, len(row)):
        changed = [value + "x" * (index == place) for index, value in enumerate(row)]
        digests.add(load(write(tmp_path, f"r,t,e,s,a,b\n{','.join(changed)}\n"), columns).digest)
    assert len(digests) == len(row) + 1


def test_captions_file_replaces_the_captions_of_the_annotations(tmp_path: Path) -> None:
    rows = write(tmp_path, "r,t,e,c\na,7,x,one cat\na,007,y,two cats\n")
    columns = Columns("r", "t", "e", target_caption="c")
    path = write(tmp_path, '{"video": 7, "caption": " a kite "}\n{"video": "z", "caption": ""}\n', "captions.jsonl")
    data = load(rows, columns, captions_file=str(path))
    assert (data.gallery.caption("7"), data.gallery.caption("007"), data.gallery.caption("a")) == ("a kite", "", "")
    assert load(rows, columns, captions_file=str(path), system_captions=False).gallery.captions == {}
    changed = write(tmp_path, "video,caption\n7,a dog\n", "other.csv")
    digests = {load(rows, columns).digest, data.digest}
    assert len(digests | {load(rows, columns, captions_file=str(changed)).digest}) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("video,caption\na,x\na,y\n", "{}:3: video 'a' has another caption further up ("),
        ("id,caption\na,x\n", "{}:2: no column 'video', only id, caption ("),
        ("video,caption\n", "{}: no annotation rows (check data.captions_file)"),
    ],
)
def test_bad_captions_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    rows, path = write(tmp_path, HEAD + "a,b,x\n"), write(tmp_path, text, "captions.csv")
    with pytest.raises(ValueError, match=r"\A\S.*\)\Z") as error:
        load(rows, captions_file=str(path)).setup("predict")
    assert str(error.value).startswith(message.format(path))
    with pytest.raises(FileNotFoundError, match=r"gone.csv: no such annotation file \(check data.captions_file"):
        load(rows, captions_file=str(tmp_path / "gone.csv")).setup("predict")
