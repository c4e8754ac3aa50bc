"""EgoCVR (Hummel et al., ECCV 2024): edits of actions in first-person clips, with several right answers."""

from __future__ import annotations

import ast
import json
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from covr_lab.data.base import Triplet, TripletDataModule
from covr_lab.data.media import media_file
from covr_lab.data.records import Record, identifier, records, text
from covr_lab.data.text_video import one_line
from covr_lab.hub import local_path
from covr_lab.types import Query

Scope = Literal["global", "local"]
LOCAL_RECALLS = (1, 2, 3)


def positives(place: str, record: Record) -> tuple[str, ...]:
    """The targets of a row, each once, in order: a stringified Python list.

    >>> positives("f.csv:2", {"target_clip_ids": "['u_0_9', 'u_10_19', 'u_0_9']"})
    ('u_0_9', 'u_10_19')
    """
    said = text(place, record, "target_clip_ids")
    try:
        found = ast.literal_eval(said)
    except (ValueError, SyntaxError):
        found = None
    if not isinstance(found, list) or not found or not all(isinstance(one, str) and one for one in found):
        raise ValueError(f"{place}: 'target_clip_ids' must be a list of ids, not {json.dumps(said)} (write one)")
    return tuple(dict.fromkeys(found))


def uuid_of(clip: str) -> str:
    """The film that a clip is cut from: its id without start and end.

    >>> uuid_of("d1d1b6da-e7f8_971_980")
    'd1d1b6da-e7f8'
    """
    return clip.rsplit("_", 2)[0]


class EgoCVR(TripletDataModule):
    """EgoCVR's test set: 2,295 queries with one to ten targets; whichever is ranked first counts.

    A session id is the 0-based row number. A reference that is listed among the targets of its own query (17 rows) is
    taken out of them. Where it is the only one (9 rows) it stays the target and is masked, so that the query is a miss
    at every turn. The released code leaves out queries with fewer than two clips to search; here none is left out.

    Captions are the clips' narrations (``#C C`` is who wears the camera), the first one where a clip is listed again.
    Many clips share one: in a search over words a third of the queries tie, and ``protocol.ties`` decides.

    Args:
        annotations: ``egocvr_annotations.csv``; also a name on the Hub. Its ``modified_captions`` are not read.
        clips: ``egocvr_data.csv``, which lists the clips; also a name on the Hub.
        protocol: ``global`` searches all clips, ``local`` those cut from the reference's own film, both without the
            reference. Recalls of ``local`` are at 1, 2 and 3 as well.
        video_name: where a clip lies below ``videos_dir``; ``{uuid}`` is its film.
        options: see :class:`~covr_lab.data.base.TripletDataModule`.
    """

    def __init__(
        self,
        *,
        annotations: str,
        clips: str,
        protocol: Scope = "global",
        video_name: str = "{uuid}/{id}.mp4",
        **options: Any,
    ) -> None:
        super().__init__(gallery="targets", gallery_file=None, video_name=video_name, **options)
        self.annotations, self.clips_file, self.protocol = annotations, clips, protocol

    def read(self) -> list[Triplet]:
        """All rows.

        Raises:
            ValueError: a field is missing or malformed; the message starts with file and line.
        """
        rows = []
        for number, (place, record) in enumerate(records(local_path(self.annotations))):
            reference = identifier(place, record, "video_clip_id")
            targets = tuple(one for one in positives(place, record) if one != reference) or (reference,)
            edit = text(place, record, "instruction")
            rows.append(Triplet(str(number), reference, targets[0], edit, place=place, others=targets[1:]))
        return rows

    @cached_property
    def listed(self) -> list[tuple[str, str]]:
        """(clip, narration) of every row of the list of clips."""
        found = records(local_path(self.clips_file), "data.clips")
        return [
            (identifier(place, record, "clip_name"), one_line(text(place, record, "narration_text")))
            for place, record in found
        ]

    @cached_property
    def captions(self) -> dict[str, str]:
        """Clip -> narration, of a captions file if there is one."""
        if self.captions_file is not None:
            return super().captions
        return {clip: said for clip, said in reversed(self.listed) if said}

    @cached_property
    def films(self) -> dict[str, tuple[str, ...]]:
        """Film -> its clips, sorted."""
        found: dict[str, set[str]] = defaultdict(set)
        for clip, _ in self.listed:
            found[uuid_of(clip)].add(clip)
        return {film: tuple(sorted(clips)) for film, clips in found.items()}

    def gallery_ids(self) -> set[str]:
        """Every clip of the list, once."""
        return {clip for clip, _ in self.listed}

    def queries(self) -> list[Query]:
        """What systems see; the reference is always masked, and a local query names the clips that it searches."""
        found = [replace(query, mask_reference=True) for query in super().queries()]
        return found if self.protocol == "global" else [replace(query, within=self.beside(query)) for query in found]

    def beside(self, query: Query) -> tuple[str, ...]:
        """The other clips of the reference's film."""
        assert query.reference is not None  # each row has one
        return tuple(clip for clip in self.films.get(uuid_of(query.reference), ()) if clip != query.reference)

    def media_path(self, video: str) -> Path:
        """Where a clip lies: a folder for each film."""
        if self.videos_dir is None:
            return super().media_path(video)
        return media_file(self.videos_dir, self.video_name, video, uuid=uuid_of(video))

    def beside_rows(self) -> list[Any]:
        """The narrations."""
        return [*super().beside_rows(), *([] if self.captions_file is not None else [self.captions])]

    @property
    def gallery_source(self) -> str:
        """The list of clips."""
        return self.clips_file

    @property
    def gallery_name(self) -> str:
        """The protocol."""
        return self.protocol

    @property
    def terms(self) -> dict[str, Any]:
        """Any target counts, whatever the rows of this file hold; the recalls that a local search adds."""
        return {"relevant": "any", **({"recalls": list(LOCAL_RECALLS)} if self.protocol == "local" else {})}

    @property
    def quirks(self) -> dict[str, Any]:
        """Rows of the files that mean less, or more, than they seem to."""
        sizes = [len(query.within) for query in self.queries() if query.within is not None]
        rows = [*records(local_path(self.annotations))]
        several = Counter(clip for clip, _ in set(self.listed))
        return {
            "rows_that_list_their_reference_as_target": sum(
                record["video_clip_id"] in positives(place, record) for place, record in rows
            ),
            "rows_with_no_other_target": sum(row.reference == row.target for row in self.triplets),
            "rows_of_the_list_of_clips": len(self.listed),
            "clips_with_several_narrations": sum(count > 1 for count in several.values()),
            **({"fewest_clips_searched": min(sizes)} if sizes else {}),
        }
