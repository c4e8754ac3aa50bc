"""Text-to-video sets: a caption asks for its own video, among the videos of all captions; there is no reference."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from covr_lab.data.base import Triplet, TripletDataModule
from covr_lab.data.media import media_file
from covr_lab.data.records import Record, identifier, records, text
from covr_lab.hub import local_path

Protocol = Literal["first_sentence", "paragraph"]


class Form(NamedTuple):
    """Column names of a released file: id of the video, its caption, and a unique key of the row if there is one."""

    video: str
    caption: str
    key: str | None = None


KEYED: Final = Form("clip_name", "caption", "retrieval_key")
NAMED: Final = Form("clip_name", "caption")
CLIPS: Final = Form("clip_id", "text")
FORMS: Final = (KEYED, Form("video_id", "sentence", "key"), NAMED, CLIPS)  # the first that fits


def form_of(place: str, record: Record) -> Form:
    """The form of the file that ``record`` is a row of; other columns (``vid_key``, ``num_frame``) are not read.

    >>> form_of("f:1", {"clip_id": "v1", "text": "a dog", "num_frame": 110})
    Form(video='clip_id', caption='text', key=None)
    """
    for form in FORMS:
        if {name for name in form if name is not None} <= record.keys():
            return form
    pairs = " or ".join(f"{form.video} and {form.caption}" for form in FORMS[1:])
    raise ValueError(f"{place}: columns {', '.join(record)}, but neither {pairs} (check data.annotations)")


def one_line(said: str) -> str:
    r"""A caption as released, but for stray blanks: none at the ends, and one for every run of blanks or line ends.

    Encoders read the same either way, and a line end stays free to separate captions.

    >>> one_line(" An young man walks in and gets\n expected chores done ")
    'An young man walks in and gets expected chores done'
    """
    return " ".join(said.split())


class TextVideo(TripletDataModule):
    """Captions as queries; the gallery is the videos of all rows, each query has one target and nothing is masked.

    Without ``videos_dir`` only the captions are there. They are the queries themselves: the user simulator has them,
    systems get captions only from a file of their own.

    Args:
        annotations: a released file in any of :data:`FORMS`, JSON Lines (``.json`` or ``.jsonl``) or ``.csv``; also a
            name on the Hub. A session id is the file's unique key, else the 0-based row number.
        captions_file: csv or jsonl with a ``video`` and its ``caption`` in each row; also a name on the Hub.
        system_captions: whether systems get captions of the videos; by default only those of ``captions_file``. Without
            that file they are the queries, and numbers on them are labelled.
        options: see :class:`~covr_lab.data.base.TripletDataModule`.
    """

    def __init__(
        self,
        *,
        annotations: str,
        captions_file: str | None = None,
        system_captions: bool | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            captions_file=captions_file,
            system_captions=captions_file is not None if system_captions is None else system_captions,
            gallery="targets",
            empty_edit="error",
            target_edits=False,
            **options,
        )
        self.annotations = annotations
        if system_captions and captions_file is None:
            self.proxy = "the system knows each video by the very caption that asks for it"

    def read(self) -> list[Triplet]:
        """All rows of the file.

        Raises:
            ValueError: the columns are of no released form; the message starts with file and line.
        """
        path, form, rows = local_path(self.annotations), None, []
        for number, (place, record) in enumerate(records(path)):
            form = form or self.checked_form(path, form_of(place, record))
            said = one_line(text(place, record, form.caption))
            name = str(number) if form.key is None else identifier(place, record, form.key)
            video = identifier(place, record, form.video)
            rows.append(Triplet(name, None, video, said, target_caption=said, place=place))
        return rows

    def checked_form(self, path: Path, form: Form) -> Form:
        """``form``, known to be one that this set may have."""
        del path  # most sets take any
        return form

    @property
    def quirks(self) -> dict[str, Any]:
        """Different captions: equal ones ask for different videos."""
        return {"distinct_captions": len({row.edit for row in self.triplets})}


class MSRVTT(TextVideo):
    """MSR-VTT, the 1,000 pairs of the test split "1k-A" (Yu et al., ECCV 2018); five captions are there twice.

    Three releases hold the same pairs: ``MSRVTT_JSFUSION_test.csv``, ``msrvtt_test.jsonl`` (both with keys ``ret0``,
    ...) and ``msrvtt_test1ka.jsonl``.
    """


class MSVD(TextVideo):
    """MSVD, one caption for each of the 670 test clips.

    ``msvd_test.json`` (IVR) has the clips' own ids; ``msvd_test.jsonl`` (UMIVR) has other captions of the same clips
    and calls them ``video1300``, ... by their place in the caption file: name those files by ``video_name``.

    Args:
        video_name: where a clip lies below ``videos_dir``.
        options: see :class:`TextVideo`.
    """

    def __init__(self, *, video_name: str = "{id}.avi", **options: Any) -> None:
        super().__init__(video_name=video_name, **options)


class LSMDC(TextVideo):
    """LSMDC, 1,000 clips of films; their ids have dots and no extension.

    Args:
        video_name: where a clip lies below ``videos_dir``; ``{movie}`` is its id without the two times.
        options: see :class:`TextVideo`.
    """

    def __init__(self, *, video_name: str = "{movie}/{id}.avi", **options: Any) -> None:
        super().__init__(video_name=video_name, **options)

    def media_path(self, video: str) -> Path:
        """Where a clip lies: the official download has a folder for each film."""
        if self.videos_dir is None:
            return super().media_path(video)
        return media_file(self.videos_dir, self.video_name, video, movie=movie_of(video))


def movie_of(clip: str) -> str:
    """The film of an LSMDC clip.

    >>> movie_of("3086_UGLY_TRUTH_00.23.23.000-00.23.28.886")
    '3086_UGLY_TRUTH'
    """
    return re.sub(r"_[\d.]+-[\d.]+$", "", clip)


class DiDeMo(TextVideo):
    """DiDeMo, 1,004 test videos, each with the sentences of its moments as one paragraph.

    Ids are file names: most end in one of nine extensions, 27 in a bare dot.

    Args:
        video_name: where a video lies below ``videos_dir``.
        options: see :class:`TextVideo`.
    """

    def __init__(self, *, video_name: str = "{id}", **options: Any) -> None:
        super().__init__(video_name=video_name, **options)


class ActivityNet(TextVideo):
    """ActivityNet Captions, 4,917 videos of the validation split ``val1``: two protocols over one gallery.

    Args:
        protocol: what asks: the first sentence of a video's description (``activity_test_partial.json``, IVR), or the
            whole paragraph (``acnet_val1.jsonl``, UMIVR; its ``num_frame`` is not read). The file must be of it.
        options: see :class:`TextVideo`.
    """

    def __init__(self, *, protocol: Protocol, **options: Any) -> None:
        super().__init__(**options)
        self.protocol: Protocol = protocol

    def checked_form(self, path: Path, form: Form) -> Form:
        """The form of the protocol's file: the two differ in their columns."""
        found: Protocol = "paragraph" if form == CLIPS else "first_sentence"
        if found != self.protocol:
            raise ValueError(
                f"{path}: columns {form.video} and {form.caption} are those of the {found} file "
                f"(give the other file, or set data.protocol to {found})"
            )
        return form

    @property
    def terms(self) -> dict[str, Any]:
        """Which of the two protocols."""
        return {**super().terms, "queries": self.protocol}
