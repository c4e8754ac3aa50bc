"""An artifact is complete and what its address says, or it is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from covr_lab.gallery.store import (
    Address,
    Artifact,
    finish,
    forget_failures,
    is_finished,
    library_versions,
    outcomes,
    row_digest,
    write_shard,
)
from covr_lab.types import Refused, SessionError

IDS = tuple(f"v/{number:02d}" for number in range(10))
FAILED = {"v/03": "truncated\n\tat 2 s", "v/09": "no such file"}


def row(video: str, width: int = 5) -> Tensor:
    seed = int(video[-2:])
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(3, width)).astype(np.float32))


def encode(address: Address, videos: tuple[str, ...] = IDS, size: int = 4) -> None:
    for start in range(0, len(videos), size):
        part = videos[start : start + size]
        rows = {video: row(video) for video in part if video not in FAILED}
        write_shard(address.folder, rows, {video: FAILED[video] for video in part if video in FAILED})


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def address() -> Address:
    return Address("weights", "gallery", "uniform:3", "decord 0.6", "media", IDS)


@pytest.fixture
def made(address: Address) -> Address:
    encode(address)
    finish(address)
    return address


@pytest.mark.parametrize("name", [field.name for field in fields(Address)])
def test_every_field_changes_the_address(name: str, address: Address) -> None:
    """What is not a field (batch size, workers, devices) cannot."""
    value = getattr(address, name)
    other: Any = {"ids": IDS[::-1], "libraries": {**library_versions(), "torch": "0"}, "format": 0}.get(
        name, f"{value}x"
    )
    assert replace(address, **{name: other}).digest != address.digest
    assert replace(address).folder == address.folder
    assert len(address.digest) == 32
    assert {"torch", "transformers"} <= set(address.libraries)


def test_rows_come_back_by_id(made: Address) -> None:
    artifact = Artifact.open(made)
    good = [video for video in IDS if video not in FAILED]
    assert artifact.shape == (8, 3, 5)
    assert torch.equal(artifact.rows(good[::-1]), torch.stack([row(video) for video in good[::-1]]))
    assert artifact.rows([]).shape == (0, 3, 5)
    assert artifact.failed == FAILED
    with pytest.raises(SessionError, match="'v/03' could not be read: truncated"):
        artifact.rows(["v/00", "v/03"])
    with pytest.raises(SessionError, match="'elsewhere' is not in the index"):
        artifact.row("elsewhere")
    assert (made.folder / "failed.tsv").read_text() == "v/03\ttruncated at 2 s\nv/09\tno such file\n"
    assert sorted(path.name for path in made.folder.iterdir()) == [
        "failed.tsv",
        "features.safetensors",
        "manifest.json",
    ]


def test_the_features_are_a_plain_safetensors_file(made: Address) -> None:
    """Read by the library itself, and byte for byte what it would have written."""
    path = made.folder / "features.safetensors"
    rows = torch.stack([row(video) for video in IDS if video not in FAILED])
    (found,) = load_file(path).values()
    assert torch.equal(found, rows)
    said = json.dumps({"rows": {v: row_digest(row(v)) for v in IDS if v not in FAILED}, "failed": {}})
    save_file({"rows": rows}, path.with_name("other"), metadata={"outcomes": said})
    header = [file.read_bytes()[8:].partition(rows.numpy().tobytes()) for file in (path, path.with_name("other"))]
    assert [json.loads(part[0]) for part in header] == [json.loads(header[1][0])] * 2
    assert header[0][1:] == header[1][1:]


def test_batches_change_no_byte(made: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "other"))
    encode(made, IDS[::-1], size=3)
    encode(made, IDS[2:4], size=1)  # seen twice, with the same result
    finish(made)
    for name in ("features.safetensors", "manifest.json", "failed.tsv"):
        first, other = (tmp_path / cache / "galleries" / made.digest / name for cache in ("cache", "other"))
        assert first.read_bytes() == other.read_bytes()


def test_all_videos_may_have_failed(address: Address) -> None:
    write_shard(address.folder, {}, dict.fromkeys(IDS, "gone"))
    finish(address)
    assert Artifact.open(address).failed == dict.fromkeys(IDS, "gone")


def test_an_unfinished_artifact_is_refused(address: Address) -> None:
    with pytest.raises(Refused, match=r"^no index for this recipe \(run tools/index.py RECIPE, or add --build\)"):
        Artifact.open(address)
    encode(address, IDS[:7])
    with pytest.raises(Refused, match=r"^an unfinished index \(7 of 10 videos\) for this recipe \(run tools/index"):
        Artifact.open(address)
    with pytest.raises(Refused, match=r"video 'v/07' was not encoded \(3 in all\)"):
        finish(address)
    assert not is_finished(address)


def test_disagreeing_duplicates_are_an_error(address: Address) -> None:
    encode(address)
    write_shard(address.folder, {"v/05": row("v/06")}, {})
    with pytest.raises(Refused, match=r"part-.* and part-.* disagree about video 'v/05' \(delete"):
        finish(address)


def test_unexpected_videos_and_shapes_are_an_error(address: Address) -> None:
    encode(address)
    stray = write_shard(address.folder, {"w": row("v/06")}, {})
    with pytest.raises(Refused, match="video 'w' does not belong here"):
        finish(address)
    stray.unlink()
    other = replace(address, part="other")
    write_shard(other.folder, {"v/00": row("v/00"), "v/01": row("v/01")}, {})
    write_shard(other.folder, {video: row(video, 4) for video in IDS[2:]}, {})
    with pytest.raises(Refused, match=r"video 'v/02' has a row of shape \[3, 4\], others \[3, 5\]"):
        finish(other)


def test_a_damaged_shard_is_named(address: Address) -> None:
    encode(address)
    shard = sorted((address.folder / "shards").iterdir())[0]
    whole = shard.read_bytes()
    for content in (b"", whole[:-4], whole[:-4] + b"oops"):
        shard.write_bytes(content)
        with pytest.raises(Refused, match=rf"{shard.name} .*: delete it and index again"):
            finish(address)
    shard.unlink()
    encode(address)
    finish(address)
    Artifact.open(address)


def edited(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return edit


def rewritten(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes())) and None


def without_a_row(folder: Path) -> None:
    from safetensors import safe_open

    path = folder / "features.safetensors"
    with safe_open(path, "pt") as file:
        rows, said = file.get_tensor("rows"), json.loads(file.metadata()["outcomes"])
    del said["rows"]["v/04"]
    save_file({"rows": torch.cat([rows[:3], rows[4:]])}, path, metadata={"outcomes": json.dumps(said)})


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (edited(ids=list(IDS[:-1])), "ids"),
        (edited(ids=list(IDS[::-1])), "ids"),
        (edited(complete=False), "complete"),
        (edited(shape=[7, 3, 5]), "shape"),
        (edited(sha256="0" * 64), "sha256"),
        (edited(encoder="others"), "encoder"),
        (edited(failed={}), "8 rows and 0 failures for 10"),
        (edited(failed={**FAILED, "w": "?"}), "8 rows and 3 failures for 10"),
        (edited(failed={**FAILED, "v/05": "?"}), "8 rows and 3 failures for 10"),
        (edited(failed=None), "manifest.json cannot be read"),
        (rewritten("manifest.json", lambda _: b"{"), "manifest.json cannot be read"),
        (rewritten("features.safetensors", lambda old: old[:-4]), "features.safetensors cannot be read"),
        (rewritten("features.safetensors", lambda old: old + b"0000"), "features.safetensors cannot be read"),
        (rewritten("features.safetensors", lambda _: b""), "features.safetensors cannot be read"),
        (without_a_row, "shape, sha256"),
    ],
)
def test_damage_is_refused_by_name(damage: Callable[[Path], None], why: str, made: Address) -> None:
    damage(made.folder)
    with pytest.raises(Refused, match=why) as error:
        Artifact.open(made)
    assert str(made.folder) in str(error.value)
    assert "delete" in str(error.value)


def test_a_changed_row_is_refused_when_it_is_read(made: Address) -> None:
    path = made.folder / "features.safetensors"
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1  # in the last row
    path.write_bytes(whole)
    artifact = Artifact.open(made)
    assert torch.equal(artifact.row("v/00"), row("v/00"))
    with pytest.raises(Refused, match="the row of video 'v/08' has changed since it was written: delete the folder"):
        artifact.row("v/08")


def test_failures_can_be_tried_again(made: Address) -> None:
    before = (made.folder / "features.safetensors").read_bytes()
    forget_failures(made)
    assert not is_finished(made)
    assert sorted(outcomes(made.folder)) == [video for video in IDS if video not in FAILED]
    write_shard(made.folder, {"v/09": row("v/09")}, {"v/03": "still broken"})
    finish(made)
    again = Artifact.open(made)
    assert again.failed == {"v/03": "still broken"}
    assert torch.equal(again.rows(["v/09", "v/00"]), torch.stack([row("v/09"), row("v/00")]))
    shutil.rmtree(made.folder)
    encode(made)
    finish(made)
    assert (made.folder / "features.safetensors").read_bytes() == before


def test_only_what_is_read_is_in_memory(address: Address) -> None:
    """Rows of a large artifact are read one by one."""
    videos = IDS[:3]
    large = replace(address, ids=videos)
    for video in videos:
        write_shard(large.folder, {video: torch.full((1 << 20, 16), float(video[-1]))}, {})  # 64 MiB
    finish(large)
    before = _private()
    assert float(Artifact.open(large).row("v/02")[-1, -1]) == 2
    assert _private() - before < 160


def _private() -> float:
    """MiB of this process that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024
