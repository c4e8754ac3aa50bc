"""Texts as BLIP reads them: cleaned, cut at a limit that is counted, padded to a few fixed lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from covr_lab.types import Refused

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LENGTHS = (16, 32, 64, 128, 256, 512)
BLANKED = str.maketrans(dict.fromkeys('.!"()*#:;~', " "))


def clean(text: str, max_words: int | None = None) -> str:
    """A text in lower case, without punctuation and doubled blanks, cut after ``max_words`` (CoVR's evaluator: 30).

    >>> clean('Make it  NIGHT!  (more "stars", please)')
    'make it night more stars , please'
    >>> clean("one two three", max_words=2)
    'one two'
    """
    return " ".join(text.lower().translate(BLANKED).split()[:max_words])


def load_tokenizer(path: Path, rows: int) -> tuple[PreTrainedTokenizerBase, int]:
    """The tokenizer of a checkpoint, and the id of its [ENC] token.

    BLIP adds [DEC], then [ENC], to BERT's vocabulary. Published tokenizers lack both, so that the ids follow from the
    size of the vocabulary.

    Args:
        path: a folder, or a ``vocab.txt``.
        rows: word embeddings of the checkpoint.

    Raises:
        Refused: there is no tokenizer, or it is not the one of this checkpoint.
    """
    from transformers import AutoTokenizer, BertTokenizer

    try:
        if path.is_dir():
            tokenizer = AutoTokenizer.from_pretrained(path)
        else:
            lines = path.read_text(encoding="utf-8").splitlines()
            if "[CLS]" not in lines:
                raise ValueError("no [CLS] in it")
            tokenizer = BertTokenizer(str(path), do_lower_case=True)
    except Exception as error:  # transformers raises many kinds
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise Refused(f"tokenizer '{path}' cannot be loaded: {reason} (name a folder or a vocab.txt)") from error
    known = tokenizer.get_vocab()
    if "[ENC]" in known and len(tokenizer) <= rows:
        return tokenizer, int(known["[ENC]"])
    if len(tokenizer) + 2 != rows:
        raise Refused(
            f"tokenizer '{path}' has {len(tokenizer)} entries for {rows} word embeddings, BLIP has two more ([DEC], "
            "[ENC]): name the tokenizer of this checkpoint"
        )
    return tokenizer, len(tokenizer) + 1


class TextReader:
    """Texts to token ids.

    Args:
        tokenizer: BERT word pieces.
        enc_token: id that replaces [CLS] where the text is read together with an image.
        max_words: words read of a text, ``None`` for no such limit.
        max_length: tokens read of a text, [CLS] and [SEP] among them.
        separators: read "[SEP]" as the token of that name, and not as its letters in lower case.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        enc_token: int,
        max_words: int | None,
        max_length: int,
        separators: bool = False,
    ) -> None:
        self.tokenizer, self.enc_token, self.separators = tokenizer, enc_token, separators
        self.max_words, self.max_length, self.pad = max_words, max_length, int(tokenizer.pad_token_id)

    def ids(self, texts: Sequence[str], grounded: bool) -> list[list[int]]:
        """Token ids; [ENC] first for a pass over image tokens (``grounded``), else [CLS]."""
        if not texts:
            return []
        cleaned = [self._clean(text, self.max_words) for text in texts]
        found: list[list[int]] = self.tokenizer(cleaned, truncation=True, max_length=self.max_length).input_ids
        return [[self.enc_token, *ids[1:]] for ids in found] if grounded else found

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """Which texts go on beyond a limit."""
        cut = []
        for text in texts:
            words = self._clean(text).split()
            short = self.max_words is None or len(words) <= self.max_words
            cut.append(not short or len(self.tokenizer(" ".join(words)).input_ids) > self.max_length)
        return cut

    def _clean(self, text: str, max_words: int | None = None) -> str:
        cleaned = clean(text, max_words)
        return cleaned.replace("[sep]", "[SEP]") if self.separators else cleaned


def tiles(ids: Sequence[Sequence[int]], rows: int, pad: int) -> Iterator[tuple[list[int], Tensor, Tensor]]:
    """Groups of texts in tensors of few fixed shapes, so that a text meets one shape whatever its batch.

    Yields:
        Positions of the texts, their ids int64 ``(rows, L)`` and the mask int64 ``(rows, L)``, L of :data:`LENGTHS`.

    >>> places, padded, mask = next(tiles([[2, 7, 3], [2, 3]], 4, 0))
    >>> places, padded.shape, mask.sum(1).tolist()
    ([0, 1], torch.Size([4, 16]), [3, 2, 1, 1])
    """
    groups: dict[int, list[int]] = {}
    for place, tokens in enumerate(ids):
        groups.setdefault(next(length for length in LENGTHS if length >= len(tokens)), []).append(place)
    for length, members in sorted(groups.items()):
        for start in range(0, len(members), rows):
            places = members[start : start + rows]
            padded, mask = torch.full((rows, length), pad), torch.zeros(rows, length, dtype=torch.int64)
            mask[len(places) :, 0] = 1  # a row that attends nothing is not a number
            for row, place in enumerate(places):
                padded[row, : len(ids[place])] = torch.tensor(ids[place])
                mask[row, : len(ids[place])] = 1
            yield places, padded, mask
