"""AVSD (Alamri et al., CVPR 2019) for retrieval: Charades clips, their captions, and what people asked about them."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any, Final, Literal

from covr_lab.data.records import identifier, records, value
from covr_lab.data.text_video import TextVideo
from covr_lab.hub import local_path

Subset = Literal["ivr", "umivr"]
Dialogue = tuple[tuple[str, str], ...]
KNOWN: Final = {
    "2393a7fad0ab3b423a8b9058cdf2dc34fa9fb9218ad2a1cd8a816ef9d554101b": "ivr",
    "9fe4bd7e1f4852f8d6664f4edc58a87cd974a578d5ba39b9b434149a055caeb8": "umivr",
}  # sha256 of the sorted ids -> the subset


def split_round(place: str, said: Any) -> tuple[str, str]:
    """Question and answer of one round of a released dialogue, parted at the first question mark.

    >>> split_round("f.json: entry 0", "is he alone in the room? yes, he is")
    ('is he alone in the room?', 'yes, he is')
    """
    question, mark, answer = said.partition("?") if isinstance(said, str) else ("", "", "")
    if not mark or not question.strip() or not answer.strip():
        raise ValueError(f"{place}: {json.dumps(said)} is no round of a dialogue (write 'question? answer')")
    return f"{question.strip()}?", answer.strip()


class AVSD(TextVideo):
    """One of the two sets of 1,000 captions and clips that are both called AVSD; 528 clips are in both.

    A run says which set it searched, and runs over the two are never compared.

    Args:
        subset: ``ivr`` (``avsd_test.json``) or ``umivr`` (``avsd_test.jsonl``); a file of the other clips is refused.
            By default the file decides, and a set of your own is named by the digest of its ids.
        dialogues: what people asked about the clips, for simulated users alone: a JSON list of ``{img, dialog}``,
            ``img`` the id and ``dialog`` a caption followed by rounds ``question? answer``; also a name on the Hub.
            Rounds are parted at their first question mark. Clips that are not in the set are left out.
        options: see :class:`~covr_lab.data.text_video.TextVideo`.
    """

    def __init__(self, *, subset: Subset | None = None, dialogues: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.wanted, self.dialogues_file = subset, dialogues

    @cached_property
    def subset(self) -> str:
        """Name of the subset.

        Raises:
            ValueError: the file is not of the subset that the recipe names.
        """
        ids = sorted({row.target for row in self.triplets})
        digest = hashlib.sha256(json.dumps(ids).encode()).hexdigest()
        found = KNOWN.get(digest, f"ids {digest[:8]}")
        if self.wanted not in (None, found):
            raise ValueError(
                f"{self.annotations}: its clips are those of subset {found}, not {self.wanted} "
                "(give the file of the subset, or leave data.subset out to take what is there)"
            )
        return found

    @property
    def gallery_name(self) -> str:
        """The rule, and which of the subsets is searched."""
        return f"{super().gallery_name} of subset {self.subset}"

    @cached_property
    def dialogues(self) -> dict[str, Dialogue]:
        """Clip -> (question, answer) pairs in order.

        Raises:
            ValueError: an entry is malformed, a clip has two dialogues, or no clip of the set has one.
        """
        if self.dialogues_file is None:
            return {}
        found: dict[str, tuple[str, list[Any]]] = {}
        for place, record in records(local_path(self.dialogues_file), "data.dialogues"):
            clip, dialog = identifier(place, record, "img"), value(place, record, "dialog")
            if not isinstance(dialog, list) or len(dialog) < 2:
                raise ValueError(f"{place}: 'dialog' must be a caption and rounds (write a list of texts)")
            if clip in found:
                raise ValueError(f"{place}: clip {clip!r} has a dialogue further up (keep one)")
            found[clip] = place, dialog[1:]
        ours = {row.target: found[row.target] for row in self.triplets if row.target in found}
        kept = {clip: tuple(split_round(place, said) for said in rounds) for clip, (place, rounds) in ours.items()}
        if not kept:
            raise ValueError(
                f"{self.dialogues_file}: no clip of {self.annotations} has a dialogue (check data.dialogues)"
            )
        return kept

    def setup(self, stage: str) -> None:
        """As every set, and the subset."""
        super().setup(stage)
        len(self.subset)

    @property
    def quirks(self) -> dict[str, Any]:
        """The subset, and clips with a dialogue."""
        return {**super().quirks, "subset": self.subset, "dialogues": len(self.dialogues)}
