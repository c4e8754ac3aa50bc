from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from covr_lab.gallery.gallery import Gallery
from covr_lab.modular import ModularSystem
from covr_lab.ranking import MeanFold, SlerpFold, StaticRRF
from covr_lab.ranking.channels import Channel, opening_ask, retrieve
from covr_lab.ranking.retrieve import rank_gallery
from covr_lab.reasoning import NewestFeedback
from covr_lab.retrievers.base import Ask, Retriever
from covr_lab.types import Intent, Query, RankedList, Session, Turn

WIDTH, IDS = 6, tuple(f"v{number}" for number in range(12))


class Dice(Retriever):
    """Every text, with its anchor, is one random direction; it writes down what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[Ask]] = []

    def load(self) -> None:
        pass

    @property
    def fingerprint(self) -> str:
        return "dice"

    def vector(self, name: str) -> Tensor:
        return normalize(torch.from_numpy(np.random.default_rng(list(name.encode())).standard_normal(WIDTH)), dim=0)

    def encode_videos(self, videos: Sequence[str]) -> Tensor:
        return torch.stack([self.vector(video) for video in videos]).float()

    def encode_queries(self, texts: Sequence[str], anchors: Sequence[str | None]) -> Tensor:
        return torch.stack(
            [self.vector(f"{text}|{anchor}") for text, anchor in zip(texts, anchors, strict=True)]
        ).float()

    def encode(self, asks: Sequence[Ask]) -> Tensor:
        self.batches.append(list(asks))
        return super().encode(asks)


@pytest.fixture
def dice() -> Dice:
    retriever = Dice()
    retriever.bind(Gallery(IDS, {}))
    return retriever


def dialogue(name: str, reference: str | None, *said: str) -> Session:
    """Turn 0 shows row 0, and turn ``t``, for which the channel sent ``said[t - 1]``, shows row ``t``."""
    session = Session(Query(name, reference, f"edit of {name}"))
    for index in range(len(said) + 1):
        intent = Intent(search=said[index - 1], edit=f"not {said[index - 1]}") if index else None
        session = session.then(Turn(index, RankedList(np.roll(np.arange(12, dtype=np.int32), -index)), intent=intent))
    return session


def brute_force(vectors: Sequence[Tensor], alpha: float) -> np.ndarray:
    """Left fold as written down: plane by plane, turn by ``alpha`` of the angle."""
    query = vectors[0].double().numpy()
    for newer in (vector.double().numpy() for vector in vectors[1:]):
        angle = math.acos(query @ newer / np.linalg.norm(query) / np.linalg.norm(newer))
        across = newer - (newer @ query) * query
        across /= np.linalg.norm(across)
        query = math.cos(alpha * angle) * query + math.sin(alpha * angle) * across
    return query


def test_each_turn_moves_by_its_share_of_the_angle_that_is_left() -> None:
    """0, 90 and 180 degrees: 0.8 of the way to 90 is 72, 0.8 of the way from there to 180 is 158.4."""
    angles = torch.deg2rad(torch.tensor([0.0, 90.0, 180.0, 158.4]))
    *steps, expected = torch.stack((angles.cos(), angles.sin()), 1)
    found = SlerpFold(alpha=0.8)(torch.stack(steps))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert found.dtype == torch.float32


def test_one_vector_is_itself() -> None:
    vector = normalize(torch.arange(1.0, 8.0), dim=0)
    assert torch.equal(SlerpFold()(vector[None]), vector)


@pytest.mark.parametrize("alpha", [-0.1, 1.2, float("nan")])
def test_a_weight_outside_the_arc_is_refused(alpha: float) -> None:
    with pytest.raises(ValueError, match=r"fold\.alpha must be from 0 to 1"):
        SlerpFold(alpha=alpha)


def test_a_folded_channel_asks_with_all_its_turns(dice: Dice) -> None:
    """Turn 0 as the opening asked it, later turns as they were sent, silent ones left out, all in one batch."""
    channel = Channel("dice", "search", fold=SlerpFold(alpha=0.6))
    sessions = [
        dialogue("a", "v3"),
        dialogue("b", None, "one", "", "three"),
        dialogue("c", "v4", "one"),
        dialogue("d", "v5"),
    ]
    intents = [Intent(search=text) for text in ("now a", "now b", "now c", "")]
    openings = [opening_ask(session.query, dice.gallery, mask_source=True) for session in sessions]
    found = retrieve({"folded": channel}, {"dice": dice}, sessions, intents, openings, dice.gallery)
    assert [list(each.lists) for each in found] == [["folded"], ["folded"], ["folded"], []]
    assert len(dice.batches) == 1
    texts = [["edit of a|v3", "now a|None"], ["edit of b|None", "one|None", "three|None", "now b|None"]]
    texts.append(["edit of c|v4", "one|None", "now c|None"])
    for names, each, masked in zip(texts, found, ({3}, set(), {4}), strict=False):
        ranking = each.lists["folded"]
        query = brute_force([dice.vector(name) for name in names], 0.6)
        scores = np.array([query @ dice.vector(video).numpy() for video in IDS])
        assert ranking.rows.tolist() == [row for row in np.argsort(-scores).tolist() if row not in masked]
        assert ranking.scores is not None
        np.testing.assert_allclose(ranking.scores, scores[ranking.rows], atol=1e-6)


@pytest.mark.parametrize(("anchor", "anchors"), [("reference", ["v3"] * 4), ("shown", ["v3", "v0", "v1", "v2"])])
def test_earlier_turns_keep_the_anchor_they_had(anchor: str, anchors: list[str], dice: Dice) -> None:
    channel = Channel("dice", "edit", anchor, fold=SlerpFold())  # type: ignore[arg-type]
    session = dialogue("a", "v3", "x", "y")
    opening = opening_ask(session.query, dice.gallery, mask_source=True)
    asks = channel.asks(session, "z", opening, dice.gallery)
    assert [(ask.text, ask.anchor, ask.turn) for ask in asks] == list(
        zip(["edit of a", "not x", "not y", "z"], anchors, range(4), strict=True)
    )
    assert asks[-1] == channel.ask(session, "z", opening, dice.gallery)
    assert asks[-1].masked == ((3,) if anchor == "reference" else (3, 2))


def test_a_session_folds_alone_as_in_any_batch(dice: Dice) -> None:
    sessions = [dialogue(f"s{n}", None, *(f"{n} at {turn}" for turn in range(n % 5))) for n in range(40)]
    intents = [Intent(search=f"now {n}") for n in range(40)]
    openings = [opening_ask(session.query, dice.gallery, mask_source=True) for session in sessions]

    def scores(indices: Sequence[int]) -> list[bytes]:
        parts = ([values[index] for index in indices] for values in (sessions, intents, openings))
        channel = Channel("dice", "search", fold=SlerpFold())
        found = retrieve({"folded": channel}, {"dice": dice}, *parts, dice.gallery)  # type: ignore[arg-type]
        lists = [each.lists["folded"] for each in found]
        return [ranking.rows.tobytes() + ranking.scores.tobytes() for ranking in lists if ranking.scores is not None]

    together = scores(range(40))
    assert len(set(together)) == 40
    assert [scores([index])[0] for index in range(40)] == together
    assert scores(range(39, -1, -1)) == together[::-1]


def test_without_a_fold_only_the_newest_text_asks(dice: Dice) -> None:
    session = dialogue("a", "v3", "x", "y")
    opening = opening_ask(session.query, dice.gallery, mask_source=False)
    channel = Channel("dice", "search")
    (found,) = retrieve({"t": channel}, {"dice": dice}, [session], [Intent(search="z")], [opening], dice.gallery)
    (expected,) = rank_gallery(dice, [Ask("z")])
    assert found.lists["t"].rows.tolist() == expected.rows.tolist()
    assert dice.batches == [[Ask("z", None, (), "a", 3)], [Ask("z")]]


def test_a_fold_that_cannot_start_from_turn_zero_is_refused() -> None:
    channels: dict[str, Channel | None] = {"text": Channel("other", "search", fold=SlerpFold())}
    slots = {"opening": "dice", "intent": NewestFeedback(), "fusion": StaticRRF()}
    with pytest.raises(ValueError, match=r"system\.channels\.text\.fold .* 'dice', not 'other'"):
        ModularSystem(retrievers={"dice": Dice(), "other": Dice()}, channels=channels, **slots)  # type: ignore[arg-type]


def test_a_mean_fold_gives_the_mean_of_the_similarities() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors, features = (normalize(torch.randn(size, WIDTH, generator=generator), dim=1) for size in (4, 9))
    folded = MeanFold()(vectors)
    assert (features @ folded).tolist() == pytest.approx((features @ vectors.T).mean(1).tolist(), abs=1e-6)
    assert torch.equal(MeanFold()(vectors[:1]), vectors[0])


def by_hand(retriever: Dice, texts: Sequence[str]) -> tuple[list[int], list[int]]:
    """Order by the mean of the similarities to each text, and by the sum of their reciprocal ranks."""
    sims = np.array(
        [[float(retriever.vector(f"{text}|None") @ retriever.vector(name)) for name in IDS] for text in texts]
    )
    ranks = (-sims).argsort(1).argsort(1) + 1
    means, shares = sims.mean(0), (1 / (60 + ranks)).sum(0)
    # Equal sums: the better best rank, then the earlier list.
    keys = {row: (-round(shares[row], 12), ranks[:, row].min(), ranks[:, row].argmin()) for row in range(len(IDS))}
    return sorted(keys, key=lambda row: -means[row]), sorted(keys, key=lambda row: keys[row])


def test_pieces_ask_by_themselves_and_their_similarities_or_ranks_are_aggregated(dice: Dice) -> None:
    """Two sessions of different length in one batch; the query of turn 0 stands in the text, not beside it."""
    texts, sessions = ("a dog [SEP] dog is black [SEP] beach", "one piece"), [dialogue("q", None), dialogue("p", None)]
    openings = [opening_ask(session.query, dice.gallery, mask_source=True) for session in sessions]
    for place, fold in enumerate((MeanFold(), None)):
        channels = {"t2v": Channel("dice", "search", pieces=" [SEP] ", fold=fold)}
        found = retrieve(channels, {"dice": dice}, sessions, [Intent(text) for text in texts], openings, dice.gallery)
        for text, one in zip(texts, found, strict=True):
            assert one.lists["t2v"].rows.tolist() == by_hand(dice, text.split(" [SEP] "))[place]
    assert found[0].lists["t2v"].scores is None
    assert found[1].lists["t2v"].scores is not None
    assert [ask.text for ask in dice.batches[-1]] == ["a dog", "dog is black", "beach", "one piece"]
