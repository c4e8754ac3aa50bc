from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from covr_lab.gallery.gallery import Gallery
from covr_lab.ranking.retrieve import rank_gallery
from covr_lab.retrievers.base import Ask
from covr_lab.retrievers.imported import ImportedFeatures, read_vectors
from covr_lab.types import Refused, SessionError

VIDEOS = ["007", "a/1", "b", "extra"]
GALLERY = Gallery.of(VIDEOS[:3], {})
SESSIONS = ["0", "q"]
WIDTH = 6


def drawn(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, WIDTH)).astype(np.float32)


def units(matrix: np.ndarray) -> np.ndarray:
    exact = matrix.astype(np.float64)
    return np.asarray(exact / np.linalg.norm(exact, axis=1, keepdims=True))


def by_id(path: Path, ids: list[str], matrix: np.ndarray) -> Path:
    vectors = {name: torch.from_numpy(row.copy()) for name, row in zip(ids, matrix, strict=True)}
    if path.suffix == ".safetensors":
        save_file(vectors, path)
    else:
        torch.save(vectors, path)
    return path


def lines(path: Path, ids: list[str]) -> Path:
    path.write_text("\n".join(ids) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def imported(tmp_path: Path) -> Callable[..., ImportedFeatures]:
    """A retriever whose files are all right but for the arguments given."""
    files: dict[str, Any] = {
        "gallery": str(by_id(tmp_path / "gallery.safetensors", VIDEOS, drawn(4, 0))),
        "queries": str(by_id(tmp_path / "queries.pt", SESSIONS, drawn(2, 1))),
    }
    return lambda **given: ImportedFeatures(**{**files, **given})


def bound(retriever: ImportedFeatures) -> ImportedFeatures:
    retriever.load()
    retriever.bind(GALLERY)
    return retriever


def test_a_session_is_ranked_by_cosine(imported: Callable[..., ImportedFeatures]) -> None:
    retriever = bound(imported())
    cosines = units(drawn(2, 1)) @ units(drawn(4, 0)[:3]).T
    asks = [Ask("an edit", "b", session="q"), Ask("", None, session="0", masked=(1,))]
    rankings = rank_gallery(retriever, asks)
    order = np.argsort(-cosines[1])
    assert rankings[0].rows.tolist() == order.tolist()
    assert rankings[0].scores is not None
    np.testing.assert_allclose(rankings[0].scores, cosines[1][order], atol=1e-6)
    assert rankings[1].rows.tolist() == [row for row in np.argsort(-cosines[0]) if row != 1]
    assert retriever.proxy is None
    assert retriever.extra == 1
    assert retriever.features.dtype == torch.float32
    np.testing.assert_allclose(retriever.features.norm(dim=0), 1, atol=1e-6)


def test_only_turn_0_of_known_sessions_can_be_answered(imported: Callable[..., ImportedFeatures]) -> None:
    retriever = bound(imported())
    with pytest.raises(SessionError, match="session 'nobody' has no imported vector"):
        retriever.encode([Ask("x", session="q"), Ask("x", session="nobody")])
    with pytest.raises(SessionError, match="session 'q': imported features have no query for turn 2"):
        retriever.encode([Ask("x", session="q", turn=2)])
    with pytest.raises(SessionError, match="cannot encode a text"):
        retriever.encode_queries(["x"], [None])
    with pytest.raises(SessionError, match="video 'nowhere' has no imported vector"):
        retriever.encode_videos(["nowhere"])


def forms(folder: Path, ids: list[str], matrix: np.ndarray) -> dict[str, tuple[Path, Path | None]]:
    """The same vectors in every form there is."""
    named, tensor = lines(folder / "ids.txt", ids), torch.from_numpy(matrix)
    np.save(folder / "matrix.npy", matrix)
    torch.save(tensor, folder / "matrix.pt")
    save_file({"features": tensor}, folder / "matrix.safetensors")
    for name, row in zip(ids, tensor, strict=True):
        place = folder / "vectors" / f"{name}.pth"
        place.parent.mkdir(parents=True, exist_ok=True)
        torch.save(row.clone(), place)
    matrices = {suffix: (folder / f"matrix.{suffix}", named) for suffix in ("npy", "pt", "safetensors")}
    mappings = {
        f"{suffix} by id": (by_id(folder / f"ids.{suffix}", ids, matrix), None) for suffix in ("pt", "safetensors")
    }
    return {**matrices, **mappings, "folder": (folder / "vectors", None)}


def test_every_form_holds_the_same_vectors(tmp_path: Path, imported: Callable[..., ImportedFeatures]) -> None:
    matrix = drawn(4, 0)
    prints = set()
    for name, (path, ids) in forms(tmp_path, VIDEOS, matrix).items():
        found = read_vectors(path, ids)
        assert sorted(found) == VIDEOS, name
        assert all(found[video].dtype == torch.float32 for video in VIDEOS), name
        np.testing.assert_allclose(torch.stack([found[video] for video in VIDEOS]), units(matrix), atol=1e-7)
        retriever = imported(gallery=str(path), gallery_ids=None if ids is None else str(ids))
        retriever.load()
        prints.add(retriever.fingerprint)
    assert len(prints) == 1
    by_id(tmp_path / "ids.pt", VIDEOS, drawn(4, 2))
    other = imported(gallery=str(tmp_path / "ids.pt"))
    other.load()
    assert other.fingerprint not in prints


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_precision_becomes_fp32_units(tmp_path: Path, dtype: torch.dtype) -> None:
    matrix = torch.from_numpy(drawn(4, 0)).to(dtype) * 100
    save_file({"x": matrix}, tmp_path / "m.safetensors")
    found = read_vectors(tmp_path / "m.safetensors", lines(tmp_path / "ids.txt", VIDEOS))
    np.testing.assert_allclose(torch.stack([found[v] for v in VIDEOS]), units(matrix.double().numpy()), atol=1e-7)


def test_frames_are_averaged_as_in_covr(tmp_path: Path) -> None:
    """Released CoVR embeddings: one file a video, (frames, D)."""
    frames = torch.from_numpy(drawn(15, 3))
    (tmp_path / "covr" / "1234").mkdir(parents=True)
    torch.save(frames, tmp_path / "covr" / "1234" / "5.pth")
    (found,) = read_vectors(tmp_path / "covr").items()
    assert found[0] == "1234/5"
    np.testing.assert_allclose(found[1], units(frames.numpy().mean(0)[None])[0], atol=1e-6)


def with_row(row: Tensor) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        vectors = {name: torch.ones(WIDTH) for name in VIDEOS}
        torch.save({**vectors, "b": row}, folder / "bad.pt")
        return folder / "bad.pt"

    return make


def with_bytes(name: str, content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return make


def harmful(folder: Path) -> Path:
    """A pickle that would run code."""
    torch.save({"b": Path}, folder / "code.pt")
    return folder / "code.pt"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (with_row(torch.full((WIDTH,), torch.nan)), "1 vectors hold NaN or infinity: 'b'"),
        (with_row(torch.full((WIDTH,), torch.inf)), "1 vectors hold NaN or infinity: 'b'"),
        (with_row(torch.zeros(WIDTH)), "1 vectors hold zeros only: 'b'"),
        (with_row(torch.ones(WIDTH + 1)), "1 vectors hold not the 6 entries of the others: 'b'"),
        (with_row(torch.ones(WIDTH, dtype=torch.int64)), "1 vectors hold no floating-point numbers: 'b'"),
        (with_row(torch.ones(2, WIDTH)), "a matrix without ids"),
        (with_bytes("cut.safetensors", b"\x10\0\0\0\0\0\0\0{"), "cannot be read"),
        (with_bytes("text.npy", b"<html>"), "cannot be read"),
        (with_bytes("empty.pt", b""), "cannot be read"),
        (with_bytes("table.csv", b"1,2"), "unknown kind of file"),
        (harmful, "cannot be read"),
        (lambda folder: folder / "gone.npy", "cannot be read"),
        (lambda folder: folder, "no vectors in it"),
    ],
)
def test_what_no_vector_may_hold_is_refused(make: Callable[[Path], Path], why: str, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    path = make(folder)
    with pytest.raises(Refused, match=why) as error:
        read_vectors(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("ids", "why"),
    [
        (VIDEOS[:3], r"ids.txt: 3 ids for the 4 rows of .*matrix.npy"),
        ([*VIDEOS[:3], "007"], r"ids.txt: 1 ids occur twice: '007'"),
    ],
)
def test_ids_must_fit_the_rows(ids: list[str], why: str, tmp_path: Path) -> None:
    np.save(tmp_path / "matrix.npy", drawn(4, 0))
    with pytest.raises(Refused, match=why):
        read_vectors(tmp_path / "matrix.npy", lines(tmp_path / "ids.txt", ids))


def test_ids_beside_vectors_that_have_their_own_are_refused(tmp_path: Path) -> None:
    path = by_id(tmp_path / "v.pt", VIDEOS, drawn(4, 0))
    with pytest.raises(Refused, match="leave the ids file out"):
        read_vectors(path, lines(tmp_path / "ids.txt", VIDEOS))
    np.save(tmp_path / "m.npy", drawn(4, 0))
    with pytest.raises(Refused, match="a matrix without ids"):
        read_vectors(tmp_path / "m.npy")
    with pytest.raises(Refused, match=r"none.txt: cannot be read"):
        read_vectors(tmp_path / "m.npy", tmp_path / "none.txt")


def test_a_gallery_that_is_not_covered_is_refused(tmp_path: Path, imported: Callable[..., ImportedFeatures]) -> None:
    few = imported(gallery=str(by_id(tmp_path / "few.pt", ["b"], drawn(1, 0))))
    few.load()
    many = Gallery.of([*VIDEOS, *"uvwxyz"], {})
    with pytest.raises(
        Refused, match=r"few.pt: no vector for 9 of 10 gallery videos: '007', 'a/1', 'extra', 'u', 'v', \.\.\."
    ):
        few.bind(many)
    narrow = imported(queries=str(by_id(tmp_path / "narrow.pt", SESSIONS, drawn(2, 0)[:, :4])))
    with pytest.raises(Refused, match=r"narrow.pt: vectors of 4 entries, those of .*gallery.safetensors have 6"):
        narrow.load()
