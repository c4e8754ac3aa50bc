"""CoVR-R (Thawakar et al., arXiv 2603.20190): WebVid and Something-Something V2 clips whose edits need reasoning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from covr_lab.data.media import media_file
from covr_lab.data.records import Record, identifier, parse_json, read_text
from covr_lab.data.triplets import Columns, TripletFile
from covr_lab.hub import local_path

Part = Literal["webvid", "ss2"]
COLUMNS = Columns("video_source", "video_target", "modification_text", session_id="session")
EXTENSIONS = (".mp4", ".webm")


def stem(video: str) -> str:
    """An id without the extension that some releases give it.

    >>> stem("005/1011592328.mp4"), stem("78687"), stem("clip.v2")
    ('005/1011592328', '78687', 'clip.v2')
    """
    return next((video.removesuffix(end) for end in EXTENSIONS if video.endswith(end)), video)


def part_by_shape(video: str) -> Part:
    """The part of an id that no label tells: those of Something-Something are numbers, those of WebVid have a folder.

    >>> part_by_shape("005/1011592328.mp4"), part_by_shape("78687")
    ('webvid', 'ss2')
    """
    return "ss2" if stem(video).isdecimal() else "webvid"


def labelled(place: str, content: Any) -> Iterator[tuple[str, Part | None, Any]]:
    """(place, part or ``None``, entry) of each form of the file.

    The merged release is a list with one object for each part; other releases are a list of entries, or an object of
    them. A part under its name, ``webvid`` or ``ss2``, labels its entries.

    >>> [(part, entry) for _, part, entry in labelled("f", [{"webvid": [1]}, {"ss2": [2, 3]}])]
    [('webvid', 1), ('ss2', 2), ('ss2', 3)]
    >>> [(part, entry) for _, part, entry in labelled("f", {"0": {"id": 7}})]
    [(None, {'id': 7})]
    """
    named = content.items() if isinstance(content, dict) else enumerate(content)
    for name, entry in named:
        if name in ("webvid", "ss2") and isinstance(entry, list):
            yield from ((f"{place}: {name} entry {number}", name, item) for number, item in enumerate(entry))
        elif isinstance(entry, dict) and entry and entry.keys() <= {"webvid", "ss2"}:
            yield from labelled(place, entry)
        else:
            yield f"{place}: entry {name}", None, entry


class CoVRR(TripletFile):
    """CoVR-R, both parts or one. Ids stay as the file gives them; a session id is ``<part>-<id>``.

    Numbers of Something-Something never look like ids of WebVid, so ids need no prefix; two spellings of one video
    (with and without extension), and one id in both parts, are refused. The paper has 2,800 triplets, other releases
    fewer: ``tools/check_data.py`` says what a file holds. The reasoning traces of the file tell of the target and are
    not read.

    Args:
        annotations: ``merged_webvid_ss2.json``, or a list or object of entries; also a name on the Hub.
        part: the triplets and, by the gallery rule, the videos of both parts or of one.
        webvid_dir: folder of the WebVid clips, ``.mp4``.
        ss2_dir: folder of the Something-Something V2 clips.
        ss2_extension: what those clips are called; the official download has ``webm``, some installs hold ``mp4``.
        video_name: where a clip lies below its folder, without extension: ``{id}``, or ``{name}`` for what follows
            the last slash of the id.
        options: see :class:`~covr_lab.data.base.TripletDataModule`.
    """

    def __init__(
        self,
        *,
        annotations: str,
        part: Literal["both", "webvid", "ss2"] = "both",
        webvid_dir: str | None = None,
        ss2_dir: str | None = None,
        ss2_extension: Literal["webm", "mp4"] = "webm",
        video_name: str = "{id}",
        **options: Any,
    ) -> None:
        super().__init__(annotations=annotations, columns=COLUMNS, videos_dir=None, video_name=video_name, **options)
        self.part = part
        folders = {"webvid_dir": webvid_dir, "ss2_dir": ss2_dir}
        self.folders = {key: Path(folder) for key, folder in folders.items() if folder is not None}
        self.extensions: Mapping[Part, str] = {"webvid": "mp4", "ss2": ss2_extension}

    @property
    def media_folders(self) -> dict[str, Path]:
        """Recipe key -> folder."""
        return self.folders

    def media_path(self, video: str) -> Path:
        """Where a clip lies: in the folder and with the extension of its part."""
        part = self.parts.get(video) or part_by_shape(video)
        folder = self.folders.get(f"{part}_dir")
        if folder is None:
            raise ValueError(f"data.{part}_dir is not set (name the folder of the {part} clips, or set data.part)")
        return media_file(folder, f"{self.video_name}.{self.extensions[part]}", stem(video))

    @cached_property
    def entries(self) -> list[tuple[str, Part, Record]]:
        """(place, part, record) of every entry of the file."""
        path = local_path(self.annotations)
        content = parse_json(read_text(path), path)
        if not content or not isinstance(content, (list, dict)):
            raise ValueError(f"{path}: neither a list nor an object of triplets (check data.annotations)")
        found: list[tuple[str, Part, Record]] = []
        for place, part, record in labelled(str(path), content):
            if not isinstance(record, dict):
                raise ValueError(f"{place}: not an object (write one object with named keys for each triplet)")
            found.append((place, part or part_by_shape(identifier(place, record, "video_source")), record))
        return found

    @cached_property
    def parts(self) -> dict[str, Part]:
        """Video id -> part.

        Raises:
            ValueError: a video belongs to both parts, or has two ids.
        """
        known: dict[str, tuple[str, Part, str]] = {}
        for place, part, record in self.entries:
            for column in (COLUMNS.reference, COLUMNS.target):
                video = identifier(place, record, column)
                first, label, before = known.setdefault(stem(video), (video, part, place))
                if (first, label) != (video, part):
                    raise ValueError(
                        f"{place}: {part} video {video!r} is {label} video {first!r} at {before} (give each one id)"
                    )
        return {video: part for video, part, _ in known.values()}

    def records(self) -> Iterator[tuple[str, Record]]:
        """(place, record) of the entries of the chosen part, each with its session id."""
        if self.part not in ("both", *self.parts.values()):
            raise ValueError(f"{self.annotations}: no triplets of part {self.part} (check data.annotations, data.part)")
        for number, (place, part, record) in enumerate(self.entries):
            if self.part in ("both", part):
                key = next((key for key in ("id", "index") if key in record), None)
                name = str(number) if key is None else identifier(place, record, key)
                yield place, {**record, "session": f"{part}-{name}"}
