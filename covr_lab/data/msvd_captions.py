"""MSVD in words alone: each clip is known by what some annotators wrote, and asked for by what others did."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from covr_lab.data.base import Triplet, TripletDataModule, read_ids
from covr_lab.data.records import parse_json, read_text
from covr_lab.data.text_video import MSVD, one_line
from covr_lab.hub import local_path

KNOWN_LINES: Final = 4  # captions of a clip that the system has (dossier, section 9)


def distinct(captions: list[str]) -> list[str]:
    """Captions that differ in more than case and blanks, each as it is first spelled.

    >>> distinct(["A dog runs", "a  dog runs ", "a cat"])
    ['A dog runs', 'a cat']
    """
    first: dict[str, str] = {}
    for said in captions:
        if said.strip():
            first.setdefault(one_line(said).lower(), one_line(said))
    return list(first.values())


def dealt(captions: list[str], seed: int, clip: str) -> list[str]:
    """The distinct captions in an order that follows from seed, clip and words alone, not from the file's order.

    >>> dealt(["a", "b", "c"], 0, "v") == dealt(["c", "B ", "a", "b", "b"], 0, "v")
    False
    >>> [said.lower() for said in dealt(["c", "B ", "a", "b"], 0, "v")] == dealt(["a", "b", "c"], 0, "v")
    True
    """
    return sorted(distinct(captions), key=lambda said: _draw(seed, clip, said.lower()))


def _draw(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


class MSVDCaptions(TripletDataModule):
    """The 670 test clips of MSVD, without videos: the real words of 21 to 81 annotators a clip.

    For each clip its captions, distinct but for case and blanks (24,033 of 27,763 remain), are dealt by seed and clip:
    four are what the system knows of it, the fifth is the query, the others are what the user can still say: no
    caption of query or user is one of the gallery's. In both galleries a clip's captions are joined, one a line.

    Args:
        annotations: the test clips: ``test_list.txt``, or a file of :class:`~covr_lab.data.text_video.MSVD` with the
            clips' own ids, of which only these are read; also a name on the Hub.
        annotators: ``captions_msvd.json``, an object from id to captions; also a name on the Hub.
        seed: another seed deals other captions.
        options: see :class:`~covr_lab.data.base.TripletDataModule`.
    """

    proxy = "captions of some annotators stand for the videos, those of others for query and user"

    def __init__(self, *, annotations: str, annotators: str, seed: int = 0, **options: Any) -> None:
        super().__init__(
            gallery="targets",
            empty_edit="error",
            captions_file=None,
            system_captions=True,
            target_edits=False,
            videos_dir=None,
            **options,
        )
        self.annotations, self.annotators, self.seed = annotations, annotators, seed

    @cached_property
    def clips(self) -> list[str]:
        """Ids of the test clips, in the order of their file."""
        path = local_path(self.annotations)
        if path.suffix == ".txt":
            return read_ids(path, "data.annotations")
        return [row.target for row in MSVD(annotations=self.annotations).triplets]

    @cached_property
    def written(self) -> dict[str, list[str]]:
        """Test clip -> all its captions.

        Raises:
            ValueError: the file is no object, or a clip has no list of texts in it.
        """
        path = local_path(self.annotators)
        content = parse_json(read_text(path, "data.annotators"), path)
        for clip in self.clips:
            said = content.get(clip) if isinstance(content, dict) else None
            if not isinstance(said, list) or not all(isinstance(one, str) for one in said):
                raise ValueError(
                    f"{path}: no list of captions for clip {clip!r} (check data.annotators, data.annotations)"
                )
        return {clip: content[clip] for clip in self.clips}

    @cached_property
    def hands(self) -> dict[str, list[str]]:
        """Test clip -> its distinct captions as they are dealt.

        Raises:
            ValueError: a clip has too few for system, query and user.
        """
        found = {clip: dealt(said, self.seed, clip) for clip, said in self.written.items()}
        for clip, said in found.items():
            if len(said) < KNOWN_LINES + 2:
                raise ValueError(
                    f"{self.annotators}: clip {clip!r} has {len(said)} distinct captions, {KNOWN_LINES + 2} are needed "
                    "(take it out of data.annotations)"
                )
        return found

    def read(self) -> list[Triplet]:
        """A row for each clip; a session id is the id of its clip."""
        place = Path(self.annotations).name
        return [
            Triplet(clip, None, clip, said[KNOWN_LINES], target_caption="\n".join(said[KNOWN_LINES + 1 :]), place=place)
            for clip, said in self.hands.items()
        ]

    @cached_property
    def known_captions(self) -> dict[str, str]:
        """Clip -> the four captions that the system has, one a line."""
        return {clip: "\n".join(said[:KNOWN_LINES]) for clip, said in self.hands.items()}

    def beside_rows(self) -> list[Any]:
        """The gallery's captions."""
        return [*super().beside_rows(), self.known_captions]

    @property
    def quirks(self) -> dict[str, Any]:
        """How many captions repeat another one of their clip."""
        counts = [len(said) for said in self.hands.values()]
        return {
            "captions": sum(map(len, self.written.values())),
            "distinct_captions_of_their_clip": sum(counts),
            "fewest_distinct_captions_of_a_clip": min(counts),
        }
