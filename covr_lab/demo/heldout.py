"""What the small BLIP sees: its numbers on the test split of the demo world, from decoded h264 clips."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import eq
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import torch
from torch import Tensor

from covr_lab.demo import render
from covr_lab.demo import world as worlds
from covr_lab.demo.captioner import THINGS, read_tags, thing_vectors
from covr_lab.functional.sampling import uniform
from covr_lab.retrievers.blip import Blip

TOP: Final = 20  # candidates that matching puts in a new order
SOME: Final = 150  # captions whose best clips the matching head orders
TAGS: Final = ("colour", "shape", "motion", "background", "light", "all")


def tiles(blip: Blip, world: worlds.World, folder: Path) -> dict[str, Tensor]:
    """The model's input ``(1, 3, S, S)`` of each clip of ``world``, written to ``folder`` as mp4 and decoded."""
    import av

    found = {}
    for clip, scene in world.clips.items():
        path = folder / f"{clip.replace('/', '_')}.mp4"
        render.write_clip(scene, path)
        with av.open(str(path)) as container:
            frames = [np.asarray(frame.to_ndarray(format="rgb24"), np.uint8) for frame in container.decode(video=0)]
        found[clip] = blip.pixels(np.stack(frames)[uniform(len(frames), blip.storyboard**2)])
    return found


def _recall(scores: Tensor, wanted: Sequence[int], name: str) -> dict[str, float]:
    """Share of rows whose wanted column is among the best 1, 5, 10, in percent; ties count against."""
    own = scores[torch.arange(len(wanted)), torch.tensor(wanted)][:, None]
    ranks = (scores >= own).sum(1)
    return {f"{name} R@{k}": round(100 * float((ranks <= k).float().mean()), 1) for k in (1, 5, 10)}


def _rerank(blip: Blip, states: Tensor, scores: Tensor, texts: Sequence[str]) -> Tensor:
    """``scores`` where the best TOP of each row stand in front, in the order of the matching head."""
    best = scores.topk(TOP, 1).indices
    asked = [text for text in texts for _ in range(TOP)]
    logits = blip.match(asked, states[best.flatten()])
    match = (logits[:, 1] - logits[:, 0]).sigmoid().reshape(best.shape)
    return scores.scatter(1, best, match + 2)  # a cosine is 1 at most


def tag_accuracy(blip: Blip, images: Tensor, states: Tensor, scenes: Sequence[worlds.Scene]) -> dict[str, float]:
    """Right tags of clips of one thing, as the captioner reads them, in percent."""
    hits: dict[str, list[bool]] = {}
    tags = read_tags(blip, thing_vectors(blip), images, states)
    for (thing, background, light), scene in zip(tags.tolist(), scenes, strict=True):
        (shown,), seen = scene.things, THINGS[thing].things[0]
        found = (*seen, worlds.BACKGROUNDS[background], worlds.LIGHTS[light])
        true = (shown.colour, shown.shape, shown.motion, scene.background, scene.light)
        for name, right in zip(TAGS, (*map(eq, found, true), found == true), strict=True):
            hits.setdefault(name, []).append(right)
    return {f"tag {name}": round(100 * sum(found) / len(found), 1) for name, found in hits.items()}


def recall(blip: Blip, world: worlds.World, seen: Mapping[str, Tensor]) -> dict[str, float]:
    """Recall of both channels over the gallery, in percent.

    Args:
        blip: the model.
        world: a split.
        seen: the input of each clip (see :func:`tiles`).
    """
    images, _ = blip.images(torch.cat([seen[clip] for clip in world.gallery]))
    captions = [world.captions[clip] for clip in world.gallery]
    out = _recall(blip.texts(captions) @ images.T, range(len(captions)), "text")
    wanted = [world.gallery.index(query.target_id) for query in world.queries]
    references, states = blip.images(torch.cat([seen[query.reference_id] for query in world.queries]))
    edits = [query.edit for query in world.queries]
    out |= _recall(blip.composed(edits, states) @ images.T, wanted, "composed")
    out |= _recall(references @ images.T, wanted, "reference alone")
    return out | _recall(blip.texts(edits) @ images.T, wanted, "edit alone")


def matching(blip: Blip, world: worlds.World, seen: Mapping[str, Tensor]) -> dict[str, float]:
    """Text to video before and after the matching head, for the first captions, and tags; in percent."""
    images, states = blip.images(torch.cat([seen[clip] for clip in world.gallery]))
    captions = [world.captions[clip] for clip in world.gallery[:SOME]]
    scores = blip.texts(captions) @ images.T
    out = _recall(scores, range(SOME), "before matching")
    out |= _recall(_rerank(blip, states, scores, captions), range(SOME), "after matching")
    return out | tag_accuracy(blip, images, states, [world.clips[clip] for clip in world.gallery])


def measure(blip: Blip) -> dict[str, float]:
    """All numbers of a loaded model on the test split, in percent; about a minute on one core."""
    test = worlds.make_world("test")
    with TemporaryDirectory() as folder:
        seen = tiles(blip, test, Path(folder))
    return recall(blip, test, seen) | matching(blip, test, seen)
