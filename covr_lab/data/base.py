"""What every data set shares: annotation rows become queries, targets and one gallery.

All checks run on first access or in ``setup``, before a model is loaded. A row is never dropped: it is used or it ends
the run with one line that says where it stands and how to mend it.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import DataLoader, Dataset

from covr_lab.data import records
from covr_lab.data.media import MediaDataModule
from covr_lab.gallery.gallery import Gallery
from covr_lab.gallery.videos import VideoStore
from covr_lab.hub import local_path
from covr_lab.types import Query, Target

EmptyEdit = Literal["error", "reference_only"]
GalleryRule = Literal["targets", "union"]


@dataclass(frozen=True, slots=True)
class Triplet:
    """One annotation row.

    Attributes:
        session_id: unique id of the row.
        reference: id of the reference video, ``None`` for a text-only row.
        target: id of the target video.
        edit: modification text.
        reference_caption: caption of the reference, "" when unknown.
        target_caption: caption of the target, "" when unknown.
        place: where the row stands (``FILE:LINE``), for messages only.
        others: further targets; whichever is ranked first counts.
        subset: ids among which the target is ranked once more, empty for no such rank.
    """

    session_id: str
    reference: str | None
    target: str
    edit: str
    reference_caption: str = ""
    target_caption: str = ""
    place: str = field(default="", compare=False)
    others: tuple[str, ...] = ()
    subset: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """All targets."""
        return (self.target, *self.others)

    @property
    def content(self) -> list[Any]:
        """What a digest is made of; rows with one target and no subset have the digest that they always had."""
        several = [list(self.others), list(self.subset)] if self.others or self.subset else []
        return [*astuple(replace(self, place="", others=(), subset=()))[:7], *several]

    @property
    def where(self) -> str:
        """How a message refers to this row."""
        return self.place or f"session {self.session_id!r}"


class SessionBatch:
    """Queries of one batch and, aligned with them, the targets for simulator and scorer.

    A plain class with its own ``to``: Lightning refuses frozen dataclasses inside a batch (lightning issue 21577).
    """

    def __init__(self, queries: list[Query], targets: list[Target]) -> None:
        self.queries = queries
        self.targets = targets

    def __len__(self) -> int:
        return len(self.queries)

    def to(self, device: object) -> SessionBatch:
        """This batch: it holds no tensors."""
        return self


class Sessions(Dataset[tuple[Query, Target]]):
    """Map-style view of sessions, which Lightning can share out between processes without repeats."""

    def __init__(self, pairs: Sequence[tuple[Query, Target]]) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[Query, Target]:
        return self.pairs[index]


def collate(pairs: Sequence[tuple[Query, Target]]) -> SessionBatch:
    """A batch of ``pairs``, in order."""
    return SessionBatch([query for query, _ in pairs], [target for _, target in pairs])


def checked(triplets: Iterable[Triplet], empty_edit: EmptyEdit = "error") -> list[Triplet]:
    """``triplets``, known to have unique session ids, a target each, and an edit or the policy for its absence.

    Args:
        triplets: annotation rows.
        empty_edit: what a blank edit means: ``error``, or ``reference_only``, a query of the reference alone (text "").

    Raises:
        ValueError: a row breaks a rule; the message starts with the place of the row.

    >>> checked([Triplet("0", "v1", "v2", "  ")], "reference_only")[0].edit
    ''
    """
    rows: dict[str, Triplet] = {}
    for triplet in triplets:
        for name in ("session_id", "target", "reference"):
            value = getattr(triplet, name)
            if value is not None and not value.strip():
                raise ValueError(f"{triplet.where}: {name} is empty (fill it in or remove the row)")
        if (first := rows.get(triplet.session_id)) is not None:
            raise ValueError(
                f"{triplet.where}: session id {triplet.session_id!r} was used before, at {first.where} "
                "(give every row its own)"
            )
        if not triplet.edit.strip():
            if empty_edit == "error" or triplet.reference is None:
                raise ValueError(
                    f"{triplet.where}: the edit of session {triplet.session_id!r} is empty "
                    "(write one, or set data.empty_edit to reference_only for a query without text)"
                )
            triplet = replace(triplet, edit="")
        rows[triplet.session_id] = triplet
    return list(rows.values())


def captions_of(triplets: Iterable[Triplet]) -> dict[str, str]:
    """Video id -> caption, for every reference and target that has one.

    Raises:
        ValueError: two different captions for one video.

    >>> captions_of([Triplet("0", "v1", "v2", "redder", "a cat", "a red cat"), Triplet("1", "v2", "v3", "bluer")])
    {'v1': 'a cat', 'v2': 'a red cat'}
    """
    known: dict[str, tuple[str, str]] = {}
    for triplet in triplets:
        pairs = ((triplet.reference, triplet.reference_caption), (triplet.target, triplet.target_caption))
        for video, caption in pairs:
            if video is None or not caption:
                continue
            first, where = known.setdefault(video, (caption, triplet.where))
            if first != caption:
                raise ValueError(f"{triplet.where}: video {video!r} has another caption at {where} (make them equal)")
    return {video: caption for video, (caption, _) in known.items()}


def missing_targets(triplets: Iterable[Triplet], gallery: Gallery) -> list[str]:
    """Distinct targets that are not gallery rows, in the order of ``triplets``.

    >>> missing_targets([Triplet("0", "a", "b", "x"), Triplet("1", "a", "c", "y")], Gallery.of(["c"], {}))
    ['b']
    """
    targets = (target for triplet in triplets for target in triplet.targets)
    return list(dict.fromkeys(target for target in targets if target not in gallery.row))


def read_ids(path: Path, key: str = "data.gallery_file") -> list[str]:
    """Ids of a text file that the recipe names at ``key``, one a line, exactly as written; blank lines are skipped.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no id in it, or no UTF-8.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file of ids (check {key})")
    try:
        ids = [line for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8: {error.reason} (save it as UTF-8)") from error
    if not ids:
        raise ValueError(f"{path}: no ids (write one a line)")
    return ids


class TripletDataModule(MediaDataModule, ABC):
    """Queries, targets, gallery and media of one annotation set; subclasses say how rows are read.

    Subclasses pass these arguments on as ``**options``, so that names and defaults stand here (and those of the media
    in the base) alone; jsonargparse follows the calls and checks them.

    Args:
        batch_size: sessions a batch; no result depends on it.
        limit: use the first rows only as queries. The gallery is *not* shrunk, so that the task stays as hard and the
            numbers of a short run stay comparable.
        gallery: what is searched: the target videos, or targets and references.
        gallery_file: text file with one id a line that replaces the gallery rule; also a name on the Hub.
        empty_edit: a blank edit is an error, or a query of the reference alone.
        allow_missing: keep a session whose target is not a gallery row; it counts as a miss at every turn.
        captions_file: csv or jsonl with a ``video`` and its ``caption`` in each row, instead of the captions of the
            annotations; also a name on the Hub.
        system_captions: whether systems get these captions. The user simulator has them anyway.
        target_edits: whether the gallery tells systems the edit of each target's first row, for galleries pooled by
            the query as in CoVR's evaluation (Ventura et al., arXiv 2308.14746, released code). A mild leak: what is
            searched then depends on what is asked.
        options: see :class:`~covr_lab.data.media.MediaDataModule`.

    Attributes:
        proxy: how numbers on this data have to be labelled, ``None`` for a benchmark.
        skip: ids of finished sessions, left out of the batches; set it before predict to resume a run.
    """

    proxy: str | None = None
    skip: frozenset[str] = frozenset()

    def __init__(
        self,
        *,
        batch_size: int = 64,
        limit: int | None = None,
        gallery: GalleryRule = "targets",
        gallery_file: str | None = None,
        empty_edit: EmptyEdit = "error",
        allow_missing: bool = False,
        captions_file: str | None = None,
        system_captions: bool = True,
        target_edits: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        for name, value in (("batch_size", batch_size), ("limit", limit)):
            if value is not None and value < 1:
                raise ValueError(f"data.{name} must be 1 or more, not {value}")
        if gallery_file is not None and gallery != "targets":
            raise ValueError(f"data.gallery ({gallery}) and data.gallery_file both name the gallery (set one of them)")
        self.batch_size = batch_size
        self.limit = limit
        self.gallery_rule = gallery
        self.gallery_file = gallery_file
        self.empty_edit: EmptyEdit = empty_edit
        self.allow_missing = allow_missing
        self.captions_file = captions_file
        self.system_captions = system_captions
        self.target_edits = target_edits

    @abstractmethod
    def read(self) -> list[Triplet]:
        """All annotation rows in the order of the file, unchecked."""

    def setup(self, stage: str) -> None:
        """Read and check everything but the media themselves (``tools/check_data.py`` opens those)."""
        len(self.gallery)
        self.check_places(self.video_ids)

    @cached_property
    def triplets(self) -> list[Triplet]:
        """All rows, checked; ``limit`` does not apply."""
        return checked(self.read(), self.empty_edit)

    @property
    def video_ids(self) -> list[str]:
        """Every video of the set, sorted: references, targets and gallery."""
        references = {triplet.reference for triplet in self.triplets if triplet.reference is not None}
        return sorted(references | {video for row in self.triplets for video in row.targets} | set(self.gallery.ids))

    @cached_property
    def videos(self) -> VideoStore | None:
        """The media by id, ``None`` for a set without media."""
        if not self.media_folders:
            return None
        # All references, whatever ``limit`` says: an index serves short runs and whole ones.
        references = (triplet.reference for triplet in self.triplets if triplet.reference is not None)
        return VideoStore(self.media_path, self.reader, references, self.bundles)

    @cached_property
    def captions(self) -> dict[str, str]:
        """Video id -> caption."""
        if self.captions_file is None:
            return captions_of(self.triplets)
        return records.captions(local_path(self.captions_file), "data.captions_file")

    @property
    def known_captions(self) -> Mapping[str, str]:
        """Video id -> caption that systems get; none unless ``system_captions`` is set."""
        return self.captions if self.system_captions else {}

    @property
    def dialogues(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """Video id -> (question, answer) pairs of people, for the user simulator; most sets have none."""
        return {}

    @cached_property
    def gallery(self) -> Gallery:
        """What systems search, with the captions that they may know."""
        return replace(self.user_gallery, captions=self.known_captions, dialogues={})

    @cached_property
    def user_gallery(self) -> Gallery:
        """The same rows for user simulator and scorer, with the captions of targets and references, and the dialogues.

        Raises:
            ValueError: a target of any row is not in the gallery and ``allow_missing`` is false.
        """
        edits = {row.target: row.edit for row in reversed(self.triplets)} if self.target_edits else {}
        gallery = replace(Gallery.of(self.gallery_ids(), self.captions), edits=edits, dialogues=self.dialogues)
        missing = missing_targets(self.triplets, gallery)
        if missing and not self.allow_missing:
            raise ValueError(
                f"{self.gallery_source}: {len(missing)} targets are not in the gallery: {', '.join(missing[:5])}"
                f"{', ...' if len(missing) > 5 else ''} (add them, or set data.allow_missing to count them as misses)"
            )
        return gallery

    @property
    def gallery_name(self) -> str:
        """Which videos are searched, for the record."""
        return self.gallery_rule if self.gallery_file is None else "file"

    @property
    def gallery_source(self) -> str:
        """The file that names the searched videos, or the rule, for messages."""
        return self.gallery_file or f"data.gallery {self.gallery_rule}"

    @property
    def terms(self) -> dict[str, Any]:
        """What else has to be equal before two runs over this set may be compared: part of the recorded protocol.

        ``relevant: any`` where a query may have several targets: every metric is then of whichever is ranked first.
        """
        return {"relevant": "any"} if any(row.others for row in self.triplets) else {}

    @property
    def quirks(self) -> dict[str, Any]:
        """Facts of this set alone, for ``tools/check_data.py``."""
        return {}

    def gallery_ids(self) -> set[str]:
        """Ids of the searched videos."""
        if self.gallery_file is not None:
            return set(read_ids(local_path(self.gallery_file)))
        ids = {target for triplet in self.triplets for target in triplet.targets}
        if self.gallery_rule == "union":
            ids |= {triplet.reference for triplet in self.triplets if triplet.reference is not None}
        return ids

    def queries(self) -> list[Query]:
        """What systems see, in the order of the file."""
        return [
            Query(row.session_id, row.reference, row.edit, mask_reference=row.reference not in row.targets)
            for row in self.triplets[: self.limit]
        ]

    def targets(self) -> list[Target]:
        """The answers, aligned with :meth:`queries`."""
        return [Target(row.session_id, row.target, row.others, row.subset) for row in self.triplets[: self.limit]]

    @cached_property
    def digest(self) -> str:
        """sha256 of all rows sorted by session id, whatever ``limit``, and of all else that shapes the run."""
        rows = sorted(self.triplets, key=lambda row: row.session_id)
        content = [*(row.content for row in rows), *self.beside_rows()]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def beside_rows(self) -> list[Any]:
        """What shapes a run and is in no row, as JSON keeps it: captions and dialogues from files of their own."""
        captions = [self.captions] if self.captions_file is not None else []
        return [*captions, *([self.dialogues] if self.dialogues else [])]

    def predict_dataloader(self) -> DataLoader[tuple[Query, Target]]:
        """Batches (:class:`SessionBatch`) of the sessions that are not in ``skip``, in the order of the file.

        There is no sampler here: Lightning puts in its ``UnrepeatedDistributedSampler``, which pads nothing.
        """
        pairs = [
            pair for pair in zip(self.queries(), self.targets(), strict=True) if pair[0].session_id not in self.skip
        ]
        return DataLoader(Sessions(pairs), batch_size=self.batch_size, collate_fn=collate)
