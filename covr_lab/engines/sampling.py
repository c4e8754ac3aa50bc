"""What a row of a batch may generate next: its grammar, its own chance, its own limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

WORD = 32  # tokens in an integer of a mask of xgrammar


def choose(scores: Tensor, chance: Tensor, temperature: float, top_p: float) -> Tensor:
    """One token a row by inverse transform: where the cumulated probability passes the row's number.

    Tokens are cumulated in the order of the vocabulary, not of their scores: a rounding error of a score moves a
    boundary by as little, it never swaps tokens.

    Args:
        scores: logits ``(B, V)``, ``-inf`` for what is forbidden.
        chance: float64 ``(B,)``, uniform in [0, 1).
        temperature: above 0.
        top_p: the most probable tokens that together have at least this probability stay.

    Returns:
        int64 ``(B,)``.

    >>> scores = torch.tensor([[0.0, 1.0, 1.0, 0.0]]).log().expand(3, 4)
    >>> choose(scores, torch.tensor([0.0, 0.49, 0.5]).double(), 1.0, 1.0).tolist()
    [1, 1, 2]
    """
    share = torch.softmax(scores.double() / temperature, -1)
    if top_p < 1:
        ordered, places = share.sort(dim=-1, descending=True, stable=True)
        enough = ordered.cumsum(-1) - ordered >= top_p
        share = share.masked_fill(torch.zeros_like(enough).scatter(-1, places, enough), 0.0)
    passed = share.cumsum(-1)
    return torch.searchsorted(passed, chance.unsqueeze(-1) * passed[:, -1:], right=True).squeeze(-1)


class Chance:
    """Logits processor: leaves each row the token that its own random numbers choose.

    Args:
        seeds: one a row.
        limit: tokens that may be generated.
        start: tokens of the padded prompt.
        temperature: above 0.
        top_p: see :func:`choose`.
    """

    def __init__(self, seeds: Sequence[int], limit: int, start: int, temperature: float, top_p: float) -> None:
        drawn = [
            torch.rand(limit, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) for seed in seeds
        ]
        self.numbers, self.start = torch.stack(drawn), start
        self.temperature, self.top_p = temperature, top_p

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Scores ``(B, V)``: 0 for the chosen tokens, ``-inf`` for the others."""
        numbers = self.numbers[:, ids.shape[1] - self.start].to(scores.device)
        chosen = choose(scores, numbers, self.temperature, self.top_p)
        return torch.full_like(scores, -torch.inf).scatter(-1, chosen.unsqueeze(-1), 0.0)


class Grammars:
    """Logits processor: forbids each row what its grammar does not allow; rows without one go free.

    Args:
        grammars: compiled by xgrammar, one a row.
        size: entries of the vocabulary, V.
        forbidden: tokens that no grammar knows (control tokens, which would count as the text of their names).
        start: tokens of the padded prompt.
    """

    def __init__(self, grammars: Sequence[Any], size: int, forbidden: Iterable[int], start: int) -> None:
        import xgrammar

        self.matchers = {row: xgrammar.GrammarMatcher(item) for row, item in enumerate(grammars) if item is not None}
        self.filler, self.start, self.size = xgrammar.BatchGrammarMatcher(), start, size
        self.mask = xgrammar.allocate_token_bitmask(len(grammars), size)
        known = np.ones((self.mask.shape[1], WORD), dtype=bool)
        known.reshape(-1)[list(forbidden)] = False
        self.known = torch.from_numpy(np.packbits(known, axis=1, bitorder="little").view(np.int32)[:, 0])

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Scores ``(B, V)``, now with ``-inf`` for what is forbidden."""
        from xgrammar import apply_token_bitmask_inplace

        if ids.shape[1] > self.start:
            newest = ids[:, -1].tolist()
            for row, matcher in self.matchers.items():
                if not matcher.is_terminated() and not matcher.accept_token(newest[row]):
                    raise AssertionError(f"row {row} left its grammar with token {newest[row]}")
        rows = [row for row, matcher in self.matchers.items() if not matcher.is_terminated()]
        if rows:
            self.filler.batch_fill_next_token_bitmask([self.matchers[row] for row in rows], self.mask, rows)
            mask = (self.mask & self.known).to(scores.device)
            # On a GPU the default would be a kernel of Triton, which needs a C compiler.
            backend: Any = "cpu" if scores.device.type == "cpu" else "torch_native"
            apply_token_bitmask_inplace(scores, mask, vocab_size=self.size, indices=rows, backend=backend)
        return scores


class Limits:
    """Stopping criterion: a row ends after its own number of tokens, however long the others may go on.

    Args:
        limits: tokens, one a row.
        start: tokens of the padded prompt.
    """

    def __init__(self, limits: Sequence[int], start: int) -> None:
        self.ends = torch.tensor(limits) + start

    def __call__(self, ids: Tensor, scores: Any, **rest: Any) -> Tensor:
        """Bool ``(B,)``: which rows have ended."""
        del scores, rest
        return self.ends.to(ids.device) <= ids.shape[1]
