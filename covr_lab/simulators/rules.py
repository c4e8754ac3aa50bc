"""A deterministic user who compares captions and gives away a fixed number of words a turn.

The cheap stand-in for the VLM user of ReCoVR (App. D.2): modify on a minor discrepancy, rewrite on a major one, answer
when there is a question to answer, stop on the target.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from covr_lab.functional.text import WORD, content_words
from covr_lab.simulators.base import Choice, UserSimulator, permitted, shows, stream
from covr_lab.types import Feedback, Session, SessionError, Target

# {new}: words the user wants, {old}: wrong words of the shown video, {keep}: words true of both videos.
# Each mix of fields that can be called for has one wording made of function words alone: it never gives a word away.
TEMPLATES: Final[Mapping[Choice, tuple[str, ...]]] = {
    "modify": (
        "with {new}",
        "make it {new}",
        "Add {new}.",
        "turn this into {new}",
        "Change it to {new}.",
        "It should have {new}.",
        "Could you make it {new}?",
        "a bit more {new} please",
        "Almost, but I'd like to see {new} in there.",
        "{new}, not {old}",
        "replace the {old} with {new}",
        "Change {old} to {new}.",
        "swap the {old} for {new}",
        "turn the {old} into {new}",
        "{new} instead of {old}",
        "Remove the {old} and add {new}.",
        "less {old}, more {new}",
        "Can you get rid of the {old}? It should have {new}.",
        "it shouldn't be {old}, it should be {new}",
        "I'd rather have {new} than {old}, thanks",
        "yes to the {keep}, but with {new}",
        "keep the {keep} but make it {new}",
        "Same {keep}, different otherwise: {new}.",
        "I like the {keep}. Could you add {new}?",
        "Keep {keep}, just swap {old} for {new}.",
        "{keep} is fine, but {new} rather than {old}",
        "yes to the {keep}",
        "The {keep} is right, leave that.",
        "still has to have {keep}",
        "Getting close. I do want the {keep}.",
        "{keep} yes, {old} no",
        "The {keep} can stay but lose the {old}.",
        "take out {old}, leave {keep} as it is",
    ),
    "rewrite": (
        "{new}",
        "I want {new}.",
        "Looking for {new}",
        "No, {new}.",
        "Not this one. Show me {new}.",
        "show me {new}",
        "The video I mean has {new}.",
        "Wrong video, I'm after {new}",
        "that's not it at all. there should be {new}",
        "Can you find something with {new}?",
        "I was thinking of {new}",
        "What I have in mind is {new}.",
        "Something completely different: {new}",
        "please find me {new} instead",
        "Not {old}, I want {new}.",
        "nope. it's {new}, no {old}",
        "Why {old}? I asked for {new}!",
    ),
    "answer": (
        "{new}",
        "It's {new}.",
        "There should be {new}.",
        "I think {new}",
        "mostly {new}, I'd say",
        "You'd see {new}.",
        "{new}, if that helps",
        "Well, it has {new}.",
    ),
}
FIELD: Final = re.compile(r"{(\w+)}")
GLUE: Final = 3  # words of the caption that may stand between two named words of one phrase


def disclose(target_caption: str, shown_caption: str, said: Sequence[str], count: int) -> tuple[str, ...]:
    """The content words of the target caption to give away next, in caption order.

    Words that no text of ``said`` contains; those that the shown caption lacks go first, then the earliest.

    Args:
        target_caption: caption of the wanted video.
        shown_caption: caption of the video on display.
        said: edit and earlier feedback.
        count: how many words; fewer come back only when fewer are left.

    >>> disclose("Young woman winking at the camera", "A young man at a camera", ["make it a woman"], 2)
    ('young', 'winking')
    >>> disclose("Young woman winking", "a dog", ["woman", "young, and winking"], 2)
    ()
    """
    known, shown = set(content_words("\n".join(said))), set(content_words(shown_caption))
    left = [word for word in content_words(target_caption) if word not in known]
    chosen = sorted(left, key=lambda word: word in shown)[:count]
    return tuple(word for word in left if word in chosen)


def phrase(words: Collection[str], caption: str, free: Collection[str]) -> str:
    """``words`` as they stand in ``caption``, neighbours in one piece with the small words between them.

    Args:
        words: content words of the caption.
        caption: where they come from.
        free: content words that may be repeated in between.

    >>> phrase(["boat", "bow", "man"], "Man standing on the bow of a boat", [])
    'man and bow of a boat'
    >>> phrase(["man", "bow"], "Man standing on the bow of a boat", ["standing"])
    'man standing on the bow'
    """
    pieces: list[list[int]] = []
    left = set(words)
    for match in WORD.finditer(caption):
        found = left.intersection(content_words(match.group()))
        if not found:
            continue
        left -= found
        gap = caption[pieces[-1][1] : match.start()] if pieces else ""
        close = re.fullmatch(r"[\w\s'\u2019-]+", gap) and len(WORD.findall(gap)) <= GLUE
        if close and set(content_words(gap)) <= set(free):
            pieces[-1][1] = match.end()
        else:
            pieces.append([match.start(), match.end()])
    parts = [" ".join(caption[start:end].lower().split()) for start, end in pieces]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)


def utter(
    kind: Choice, target_caption: str, shown_caption: str, said: Sequence[str], count: int, draw: random.Random
) -> str:
    """One turn's text: at most ``count`` new content words of the target caption, in a wording drawn from ``draw``.

    With nothing new left it repeats what tells the target from the shown video, or else the end of the caption.

    >>> utter("answer", "Frog in a pond", "Turtle in a pond", ["make it a frog"], 1, random.Random(0))
    'pond, if that helps'
    """
    wanted, seen = content_words(target_caption), content_words(shown_caption)
    known = set(content_words("\n".join(said)))
    fresh = disclose(target_caption, shown_caption, said, count)
    lacking = [word for word in wanted if word not in seen]
    if kind == "modify":
        given = [word for word in fresh if word in seen]
        keep = given or [word for word in wanted if word in seen and word in known][-count:]
        new = [word for word in fresh if word not in seen] or lacking[:count]
        musts = {"new": len(given) < len(fresh) or (lacking and not fresh), "keep": given or not lacking}
    else:
        new, keep, musts = list(fresh) or lacking[:count] or list(wanted[-count:]), [], {"new": True}
    # people name the wrong word that stands where the right one should
    place = wanted.index((new or keep)[0])
    wrong = sorted(set(seen) - set(wanted), key=lambda word: (abs(seen.index(word) - place), word))
    fields = {
        "new": phrase(new, target_caption, known),
        "old": phrase(wrong[:count], shown_caption, known),
        "keep": phrase(keep, target_caption, known.intersection(seen)),
    }
    needed = {name for name, must in musts.items() if must}
    possible = {name for name, text in fields.items() if text}
    wordings = [text for text in TEMPLATES[kind] if needed <= set(FIELD.findall(text)) <= possible]
    texts = [text.format(**fields) for text in draw.sample(wordings, len(wordings))]
    unsaid = set(wanted) - known
    return next((text for text in texts if unsaid.intersection(content_words(text)) == set(fresh)), texts[0])


class RuleUser(UserSimulator):
    """Rule-based user: reads the dialogue and the captions of target and shown video, nothing else."""

    def __init__(
        self,
        *,
        words_per_turn: int = 2,
        seed: int = 0,
        similarity: float = 0.3,
        answer_rate: float = 0.3,
        stop: bool = True,
    ) -> None:
        """Set the rules.

        Args:
            words_per_turn: content words of the target caption that are given away a turn.
            seed: draws wordings and answers, one stream per session and turn.
            similarity: content-word Jaccard of the two captions from which on the user modifies.
            answer_rate: chance to answer an open question when the discrepancy is major.
            stop: stop when the shown video is the target; otherwise go on modifying.

        Raises:
            ValueError: a value out of range.
        """
        super().__init__()
        if words_per_turn < 1:
            raise ValueError(f"RuleUser.words_per_turn must be 1 or more, not {words_per_turn}")
        for name, value in (("similarity", similarity), ("answer_rate", answer_rate)):
            if not 0 <= value <= 1:
                raise ValueError(f"RuleUser.{name} must lie in [0, 1], not {value}")
        self.words_per_turn, self.seed, self.stop = words_per_turn, seed, stop
        self.similarity, self.answer_rate = similarity, answer_rate

    def satisfied(self, sessions: Sequence[Session], targets: Sequence[Target]) -> list[bool]:
        """Who has the target on display, if that is a reason to stop."""
        return [self.stop and shows(*each, self.gallery) for each in zip(sessions, targets, strict=True)]

    def respond(
        self, sessions: Sequence[Session], targets: Sequence[Target], questions: Sequence[str | None]
    ) -> list[Feedback]:
        """Feedback for each session on its own (see :meth:`UserSimulator.respond`).

        Raises:
            SessionError: a target or shown video has no caption.
            ValueError: a session shows no video.
        """
        return [self._reply(*each) for each in zip(sessions, targets, questions, strict=True)]

    def _reply(self, session: Session, target: Target, question: str | None) -> Feedback:
        name = session.query.session_id
        if session.shown is None:
            raise ValueError(f"session {name}: no video is shown; end the session when turn 0 fails")
        shown = self.gallery.ids[session.shown]
        if self.stop and shown in target.videos:
            return Feedback("stop", "")
        wanted, seen = self._caption(target.video), self._caption(shown)
        draw = stream(self.seed, name, len(session.turns))
        kind = permitted(self._kind(wanted, seen, asked=question is not None, draw=draw), self.allowed)
        said = [session.query.text, *(turn.feedback.text for turn in session.turns if turn.feedback is not None)]
        return Feedback(kind, utter(kind, wanted, seen, said, self.words_per_turn, draw))

    def _kind(self, wanted: str, seen: str, *, asked: bool, draw: random.Random) -> Choice:
        a, b = set(content_words(wanted)), set(content_words(seen))
        if len(a & b) / len(a | b) >= self.similarity:
            return "modify"
        return "answer" if asked and draw.random() < self.answer_rate else "rewrite"

    def _caption(self, video: str) -> str:
        caption = self.gallery.caption(video)
        if not content_words(caption):
            raise SessionError(f"video {video}: no caption with a content word; add one to the annotation file")
        return caption
