"""The user of IVR: a question-answering model that looks at the target (dossier, section 3.3)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from torch import Tensor

from covr_lab.gallery.gallery import Gallery
from covr_lab.simulators.answering import Answer, AnsweringUser, Asked
from covr_lab.simulators.blip import BlipVQA
from covr_lab.types import Part, Refused
from covr_lab.video import Uniform

if TYPE_CHECKING:
    from covr_lab.gallery.videos import VideoStore

T = TypeVar("T")


def frames_of(part: Part, frames: int) -> slice:
    """Which of a video's frames, in time order, belong to a part of it.

    >>> "abcdefgh"[frames_of("first half", 8)], "abcdefgh"[frames_of("second half", 8)]
    ('abcd', 'efgh')
    """
    start, end = {"whole": (0, 2), "first half": (0, 1), "second half": (1, 2)}[part]
    return slice(start * frames // 2, end * frames // 2)


class Recent(Generic[T]):
    """The values used last.

    Args:
        size: how many are kept.
    """

    def __init__(self, size: int) -> None:
        self.size, self._kept = size, OrderedDict[Hashable, T]()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made if it is not kept; errors pass through."""
        value = self._kept.pop(key) if key in self._kept else make()
        self._kept[key] = value
        while len(self._kept) > self.size:
            self._kept.popitem(last=False)
        return value


class VideoQAUser(AnsweringUser):
    """BLIP, fine-tuned on VQA, answers what it is asked about uniform frames of the target, or about half of them.

    The tokens of all frames stand side by side in the cross-attention. Frames are those of
    :class:`~covr_lab.video.Uniform` (IVR's code takes others, which for short clips all lie in their first part).
    """

    def __init__(
        self,
        *,
        model: str,
        revision: str | None = None,
        frames: int = 8,
        beams: int = 3,
        tile: int = 8,
        memory: int = 64,
        stop: bool = False,
    ) -> None:
        """Name the model; it is loaded later.

        Args:
            model: folder with a saved ``BlipForQuestionAnswering`` and its tokenizer, or OWNER/NAME on the Hub.
            revision: commit on the Hub (40 digits).
            frames: of a whole video; a half has half of them.
            beams: of the search for an answer of one to ten tokens.
            tile: questions that are answered together; costs memory, and pays on a GPU.
            memory: videos whose tokens are kept for the next question (14 MB each with BLIP-base).
            stop: see :class:`~covr_lab.simulators.answering.AnsweringUser`.

        Raises:
            ValueError: a value out of range.
        """
        super().__init__(stop=stop)
        if frames < 2 or frames % 2 or memory < 1:
            raise ValueError(f"VideoQAUser needs even frames and memory >= 1, not {frames} and {memory}")
        self.blip = BlipVQA(model=model, revision=revision, beams=beams, lengths=(1, 10), tile=tile)
        self.frames, self.memory = frames, memory

    def load(self) -> None:
        """Read the weights."""
        self.blip.load()
        self.fingerprint = self.blip.fingerprint

    def bind(self, gallery: Gallery, videos: VideoStore | None = None) -> None:
        """Take gallery and media.

        Raises:
            Refused: there are no videos to look at.
        """
        if videos is None:
            raise Refused("simulator VideoQAUser looks at videos: set data.videos_dir")
        self.gallery, self.videos, self._seen = gallery, videos, Recent[Tensor](self.memory)

    def answer(self, asked: Sequence[Asked]) -> list[Answer]:
        """Answers in order (see :meth:`AnsweringUser.answer`)."""
        self.load()
        # A video's questions side by side: its tokens are then at hand.
        order = sorted(range(len(asked)), key=lambda at: (asked[at].video, at))
        parts = [frames_of(asked[at].probe.part, self.frames) for at in order]
        found = self.blip.answers(
            [asked[at].probe.text for at in order],
            [part.stop - part.start for part in parts],
            lambda place: self._look(asked[order[place]].video)[parts[place]],
        )
        return [Answer(text) for _, text in sorted(zip(order, found, strict=True))]

    def _look(self, video: str) -> Tensor:
        """Visual tokens ``(F, T, W)``, before the parts are told from each other."""
        return self._seen.get(video, lambda: self.blip.see(self.videos.clip(video, Uniform(self.frames)).frames))
