"""Which files of a folder are videos or pictures, and why the others are left out."""

from __future__ import annotations

import os
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from covr_lab.video.images import SUFFIXES as PICTURES

VIDEOS: Final = frozenset(
    ".3g2 .3gp .asf .avi .flv .gif .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .mxf .ogv .ts .webm .wmv".split()
)


@dataclass(frozen=True)
class Tree:
    """What was found below a folder.

    Attributes:
        root: the folder, its own links resolved.
        files: names below it with slashes, sorted; bytes that are no UTF-8 are surrogates, as the system gives them.
        left_out: name -> reason, of everything else that was met; what lies in a folder left out has no entry.
    """

    root: Path
    files: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def shown(name: str) -> str:
    r"""A name as it can be printed and sent: no control characters, nothing that is no UTF-8.

    >>> shown("a\nb\udcff.mp4")
    'a b�.mp4'
    """
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(" " if unicodedata.category(letter) == "Cc" else letter for letter in text)


def walk(folder: Path) -> Tree:
    """Everything below ``folder``, in an order of its own. No link is followed to a folder, so loops are harmless.

    Raises:
        OSError: there is no such folder, or it cannot be listed.
    """
    tree = Tree(Path(os.path.realpath(folder, strict=True)))
    left = [""]
    while left:
        below = left.pop()
        try:
            with os.scandir(tree.root / below) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            if not below:
                raise
            tree.left_out[below] = f"cannot be listed ({error.strerror})"
            continue
        for entry in entries:
            name = f"{below}/{entry.name}".lstrip("/")
            if why := _fault(entry, tree.root):
                tree.left_out[name] = why
            elif entry.is_dir():
                left.append(name)
            else:
                tree.files.append(name)
    tree.files.sort()
    return tree


def _fault(entry: os.DirEntry[str], root: Path) -> str:
    """Why something is left out, "" for a folder, video or picture."""
    try:
        if entry.name.startswith("."):
            return "is hidden"
        if entry.is_symlink():
            target = Path(os.path.realpath(entry.path, strict=True))
            if not target.is_relative_to(root):
                return "is a link that leads out of the folder"
            if target.is_dir():
                return "is a link to a folder that is looked at in its own place"
        if entry.is_dir():
            return ""
        if not entry.is_file():
            return "is neither a file nor a folder"
    except OSError as error:
        return f"is a link to nothing, or cannot be opened ({error.strerror})"
    suffix = PurePosixPath(entry.name).suffix.lower()
    return "" if suffix in VIDEOS or suffix in PICTURES else "is neither a video nor a picture by its name"
