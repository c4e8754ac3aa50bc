"""Train the small BLIP of the demo world from nothing on a CPU; the result lies in covr_lab/demo/weights/.

``python tools/train_demo_weights.py --work DIR`` renders its clips as it goes, needs no data and is seeded; it takes
about 80 minutes on two cores (one trains, in bfloat16 where the processor has AMX, one renders) and goes on where it
was stopped. First the vision tower learns to name what it sees and where, through heads that are thrown away; then all
towers learn together.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from covr_lab.demo import heldout, render, wording, world
from covr_lab.demo import model as demo
from covr_lab.demo.wording import Claims
from covr_lab.retrievers.blip import Blip
from covr_lab.retrievers.blip.images import DEVIATION, MEAN
from covr_lab.retrievers.blip.tokens import clean

if TYPE_CHECKING:
    from transformers import BlipForImageTextRetrieval, BlipTextConfig, PreTrainedTokenizerBase

VISION_STEPS = 1300  # steps of the vision tower alone
HORIZON, COOL, WARM = 4200, 500, 300  # steps: of the cosine, of the fall to zero at the end, of each rise
RATE, DECAY, BETAS = 1.5e-3, 0.05, (0.9, 0.98)
PAIRS = 64  # references and targets in a batch
AUX, MATCHING = 0.8, 2.0  # weights of the heads and of matching in the joint phase
TIMES = (0.125, 0.375, 0.625, 0.875)
MIDDLES = (0.5, 0.5, 0.23)
NONE = 8  # label of "no second thing"


class Passes:
    """Texts and tiles through the four ways of BLIP: vision, text, grounded text, matching."""

    def __init__(self, model: BlipForImageTextRetrieval, tokenizer: PreTrainedTokenizerBase) -> None:
        """Hold ``model`` and ``tokenizer``; [ENC] is the last token of the model's vocabulary."""
        self.model, self.tokenizer = model, tokenizer
        self.enc = cast("BlipTextConfig", model.config.text_config).vocab_size - 1

    def tokens(self, texts: Sequence[str], *, grounded: bool) -> dict[str, Tensor]:
        """Token ids and mask of ``texts``; the first token is [ENC] when ``grounded``."""
        found = self.tokenizer(
            [clean(text) for text in texts],
            padding=True,
            truncation=True,
            max_length=demo.LENGTH,
            return_tensors="pt",
            return_token_type_ids=False,
        )
        ids = found["input_ids"].clone()
        if grounded:
            ids[:, 0] = self.enc
        return {"input_ids": ids, "attention_mask": found["attention_mask"]}

    def vision(self, values: Tensor) -> Tensor:
        """Token states of tiles, (n, tokens, width)."""
        states: Tensor = self.model.vision_model(pixel_values=values).last_hidden_state
        return states

    def image(self, states: Tensor) -> Tensor:
        """Embeddings of tiles from their token states."""
        return functional.normalize(self.model.vision_proj(states[:, 0]).float(), dim=-1)

    def text(self, texts: Sequence[str]) -> Tensor:
        """Embeddings of texts on their own."""
        states = self.model.text_encoder(**self.tokens(texts, grounded=False)).last_hidden_state
        return functional.normalize(self.model.text_proj(states[:, 0]).float(), dim=-1)

    def _grounded(self, states: Tensor, texts: Sequence[str]) -> Tensor:
        tokens: Any = self.tokens(texts, grounded=True)
        seen = torch.ones(states.shape[:2], dtype=torch.long)
        out = self.model.text_encoder(**tokens, encoder_hidden_states=states, encoder_attention_mask=seen)
        first: Tensor = out.last_hidden_state[:, 0]
        return first

    def composed(self, states: Tensor, texts: Sequence[str]) -> Tensor:
        """Embeddings of edits grounded in reference tiles."""
        return functional.normalize(self.model.text_proj(self._grounded(states, texts)).float(), dim=-1)

    def match(self, states: Tensor, texts: Sequence[str]) -> Tensor:
        """Logits (no match, match) of tiles and texts, pair by pair."""
        logits: Tensor = self.model.itm_head(self._grounded(states, texts))
        return logits.float()


def tile(frames: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Frames (4, side, side, 3) in one picture (2 side, 2 side, 3), in reading order."""
    top, bottom = (np.concatenate(list(row), axis=1) for row in (frames[: demo.GRID], frames[demo.GRID :]))
    return np.concatenate([top, bottom])


def pixels(tiles: Tensor) -> Tensor:
    """Tiles (n, height, width, 3), uint8, as the model takes them: (n, 3, height, width), fp32, normalised."""
    values = tiles.permute(0, 3, 1, 2).float() / 255
    return (values - torch.tensor(MEAN)[:, None, None]) / torch.tensor(DEVIATION)[:, None, None]


def picture(rng: random.Random, scene: world.Scene) -> np.ndarray:
    """Tile of ``scene`` at about the times that a sampler picks, with another exposure and some noise."""
    slip = rng.uniform(-0.05, 0.05)
    frames = np.stack([render.frame(scene, t + slip, demo.CELL) for t in TIMES])
    out = tile(frames).astype(np.float32)
    gain = np.array([rng.uniform(0.93, 1.07) for _ in range(3)], np.float32)
    noise = np.random.default_rng(rng.getrandbits(32)).standard_normal(out.shape, np.float32)
    return np.clip(out * gain + noise * rng.uniform(0, 5), 0, 255).astype(np.uint8)


def labels(scene: world.Scene) -> list[int]:
    """Background, light, then colour, shape and motion of the things in the order of their colours."""
    found = [world.BACKGROUNDS.index(scene.background), world.LIGHTS.index(scene.light)]
    things = sorted(scene.things, key=lambda t: world.COLOURS.index(t.colour))
    for place in range(2):
        if place < len(things):
            t = things[place]
            found += [world.COLOURS.index(t.colour), world.SHAPES.index(t.shape), world.MOTIONS.index(t.motion)]
        else:
            found += [NONE] * 3
    return found


def paths(scene: world.Scene) -> list[float]:
    """Where the things are at TIMES and how large, in the order of their colours; not a number where there is none."""
    things = sorted(scene.things, key=lambda t: world.COLOURS.index(t.colour))
    found = [(v - middle) / 0.15 for t in things for at in TIMES for v, middle in zip(t.at(at), MIDDLES, strict=True)]
    return found + [math.nan] * (24 - len(found))


def codes(claims: Claims) -> list[int]:
    """``claims`` as numbers, -1 for what they leave open."""
    out = []
    for place in range(2):
        c, s, m = claims.things[place] if place < len(claims.things) else ("", "", "")
        out += [
            world.COLOURS.index(c) if c else -1,
            world.SHAPES.index(s) if s else -1,
            world.MOTIONS.index(m) if m else -1,
        ]
    back, light = claims.background, claims.light
    return [world.BACKGROUNDS.index(back) if back else -1, world.LIGHTS.index(light) if light else -1, *out]


def truth(texts: Tensor, scenes: Tensor) -> Tensor:
    """Which text (n, 8) of :func:`codes` is true of which scene (m, 8) of :func:`labels`: bool (n, m)."""
    t, s = texts[:, None], scenes[None]
    fits = (t == -1) | (t == s)
    swapped = (t == -1) | (t == s[..., [0, 1, 5, 6, 7, 2, 3, 4]])
    return fits.all(-1) | swapped.all(-1)


def tag(rng: random.Random, claims: Claims) -> Claims:
    """One of the ``claims``: of a thing, of the background or of the light."""
    if claims.things and rng.random() < 0.75:
        c, s, m = rng.choice(claims.things)
        kinds = ((c, s, ""), (c, "", ""), ("", s, ""), ("", "", m), ("", "", m), (c, "", m), ("", s, m), (c, s, m))
        return Claims((rng.choice(kinds),))
    return Claims((), claims.background) if rng.random() < 0.6 else Claims((), "", claims.light)


def claim_of(rng: random.Random, scene: world.Scene) -> Claims:
    """What one text says of ``scene``: a tag, a part or everything."""
    all_of = wording.whole(scene)
    draw = rng.random()
    return tag(rng, all_of) if draw < 0.4 else wording.part(rng, all_of, 0.7) if draw < 0.7 else all_of


def twisted(rng: random.Random, claims: Claims) -> Claims:
    """``claims`` with one attribute drawn anew, or one that two things have exchanged; it may still be true."""
    things = [list(thing) for thing in claims.things]
    background, light = claims.background, claims.light
    spots = [(i, k) for i, thing in enumerate(things) for k in range(3) if thing[k]]
    spots += [(-1, 0)] * bool(background) + [(-1, 1)] * bool(light)
    i, k = rng.choice(spots)
    if len(things) == 2 and rng.random() < 0.3:
        k = rng.randrange(3)
        things[0][k], things[1][k] = things[1][k], things[0][k]
    elif i >= 0:
        things[i][k] = rng.choice((world.COLOURS, world.SHAPES, world.MOTIONS)[k])
    elif k == 0:
        background = rng.choice(world.BACKGROUNDS)
    else:
        light = rng.choice(world.LIGHTS)
    return Claims(tuple((c, s, m) for c, s, m in things), background, light)


def false_claim(rng: random.Random, scene: world.Scene) -> Claims:
    """Claims that are false of ``scene``: true of another scene, or nearly true of this one.

    A held-out thing among them would always be false, and be learnt as one that is never true.
    """
    while True:
        claims = claim_of(rng, world.scene(rng, "train")) if rng.random() < 0.4 else twisted(rng, claim_of(rng, scene))
        known = all(world.belongs("train", *thing) for thing in claims.things if all(thing))
        if known and not claims.true_of(scene):
            return claims


def seen(rng: random.Random, scenes: list[world.Scene]) -> dict[str, Any]:
    """Tiles of ``scenes`` and what the heads should say of them."""
    return {
        "tiles": torch.from_numpy(np.stack([picture(rng, scene) for scene in scenes])),
        "labels": torch.tensor([labels(scene) for scene in scenes]),
        "paths": torch.tensor([paths(scene) for scene in scenes]),
    }


def said(rng: random.Random, scene: world.Scene) -> Claims:
    """What a description says of ``scene``: often all."""
    claims = wording.whole(scene)
    return wording.part(rng, claims, rng.choice((0.5, 0.8))) if rng.random() < 0.4 else claims


def described(rng: random.Random, claims: Claims) -> str:
    """A description, sometimes said twice."""
    return ", ".join(wording.search_text(rng, claims) for _ in range(rng.choices((1, 2), (9, 1))[0]))


class Steps(torch.utils.data.Dataset[dict[str, Any]]):
    """Batch number k, made from the seed and k alone: of scenes, later of edited pairs."""

    def __init__(self, first: int, last: int, seed: int) -> None:
        self.first, self.last, self.seed = first, last, seed

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, index: int) -> dict[str, Any]:
        rng = random.Random(f"{self.seed} {self.first + index}")
        alone = 1 - 2 * (self.first + index) / VISION_STEPS  # single things first
        if self.first + index >= VISION_STEPS:
            return self._pairs(rng)
        count = 1 if rng.random() < alone else None
        return seen(rng, [world.placed(rng, world.scene(rng, "train", count)) for _ in range(2 * PAIRS)])

    @staticmethod
    def _pairs(rng: random.Random) -> dict[str, Any]:
        old, new, edits = list[world.Scene](), list[world.Scene](), list[str]()
        while len(old) < PAIRS:
            base = world.scene(rng, "train")
            for _ in range(2):
                target, changes = world.edited(rng, base, "train", rng.choice((1, 1, 2)))
                old.append(world.placed(rng, base))
                new.append(target)
                edits.append(wording.edit(rng, changes))
        scenes = old + new
        claims = [said(rng, scene) for scene in scenes]
        return {
            **seen(rng, scenes),
            "codes": torch.tensor([codes(claim) for claim in claims]),
            "texts": [described(rng, claim) for claim in claims],
            "edits": edits,
            "yes": [wording.search_text(rng, claim_of(rng, scene)) for scene in scenes[::2]],
            "no": [wording.search_text(rng, false_claim(rng, scene)) for scene in scenes[::2]],
        }


class Heads(nn.Module):
    """Heads that name what the vision tower sees; only for training."""

    SIZES = (8, 3, 9, 9, 9, 9, 9, 9)
    WEIGHTS = (0.5, 0.5, 1, 1.5, 1.5, 1, 1.5, 1.5)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = nn.Linear(width, sum(self.SIZES))
        self.paths = nn.Linear(width, 24)
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, states: Tensor, wanted: Tensor, paths: Tensor) -> tuple[Tensor, list[float]]:
        """Loss of all heads, and the share of right answers of each."""
        parts = self.heads(states).float().split(self.SIZES, -1)
        loss = sum(
            w * functional.cross_entropy(p, wanted[:, i])
            for i, (p, w) in enumerate(zip(parts, self.WEIGHTS, strict=True))
        )
        hits = [float((p.argmax(-1) == wanted[:, i]).float().mean()) for i, p in enumerate(parts)]
        known = ~paths.isnan()
        away = functional.smooth_l1_loss(self.paths(states).float()[known], paths[known])
        return loss + 4 * away, [*hits, away.item()]


def contrast(a: Tensor, b: Tensor, scale: Tensor, also: Tensor) -> Tensor:
    """InfoNCE both ways where row i of ``a`` belongs to row i of ``b``; pairs in ``also`` are no negatives.

    Rows of ``b`` beyond those of ``a`` belong to none.
    """
    logits = (a @ b.T) * scale
    own = torch.eye(*logits.shape, dtype=torch.bool)
    logits = logits.masked_fill(also & ~own, -1e4)
    wanted = torch.arange(len(a))
    return (functional.cross_entropy(logits, wanted) + functional.cross_entropy(logits.T[: len(a)], wanted)) / 2


def losses(passes: Passes, heads: Heads, batch: dict[str, Any]) -> tuple[Tensor, dict[str, Any]]:
    """Loss of one batch, and its parts to look at."""
    states = passes.vision(pixels(batch["tiles"]))
    named, hits = heads(states[:, 0], batch["labels"], batch["paths"])
    if "texts" not in batch:
        return named, {"heads": named.item(), "hits": hits}
    scale = heads.scale.exp().clamp(max=100)
    images = passes.image(states)
    itc = contrast(passes.text(batch["texts"]), images, scale, truth(batch["codes"], batch["labels"]))
    query = passes.composed(states[:PAIRS], batch["edits"])
    turned = batch["labels"].roll(PAIRS, 0)  # targets first: the references are hard negatives
    same = (turned[:PAIRS, None] == turned[None]).all(-1)
    cvr = contrast(query, images.roll(PAIRS, 0), scale, same)
    logits = passes.match(torch.cat([states[::2], states[::2]]), batch["yes"] + batch["no"])
    wanted = torch.cat([torch.ones(PAIRS), torch.zeros(PAIRS)]).long()
    itm = functional.cross_entropy(logits, wanted)
    right = (logits.argmax(-1) == wanted).float().mean()
    note = {"itc": itc.item(), "composed": cvr.item(), "itm": itm.item(), "itm right": right.item()}
    return itc + cvr + MATCHING * itm + AUX * named, {"heads": named.item(), "hits": hits, **note}


def rate(step: int, steps: int) -> float:
    """Learning rate: a short rise at the start of each phase, one cosine over both, and a fall to zero at the end."""
    since = step if step < VISION_STEPS else step - VISION_STEPS
    ends = min(1.0, (since + 1) / WARM, (steps - step) / COOL)
    cosine = 0.5 * (1 + math.cos(math.pi * step / HORIZON))
    return RATE * ends * (0.02 + 0.98 * cosine)


class Training:
    """Model, heads and optimiser, with a checkpoint in a folder."""

    def __init__(self, work: Path, steps: int, seed: int) -> None:
        work.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(seed)
        self.passes = Passes(demo.untrained(seed), demo.make_tokenizer(work))
        self.model = self.passes.model.train()
        self.heads = Heads(self.model.config.image_text_hidden_size)
        self.weights = [*self.model.parameters(), *self.heads.parameters()]
        groups = [{"params": [p for p in self.weights if p.dim() > 1], "weight_decay": DECAY}]
        groups.append({"params": [p for p in self.weights if p.dim() < 2], "weight_decay": 0.0})
        self.optimiser = torch.optim.AdamW(groups, betas=BETAS)
        self.parts: dict[str, Any] = {"model": self.model, "heads": self.heads, "optimiser": self.optimiser}
        # Without matrix tiles (AMX), bfloat16 is several times slower than fp32.
        self.half = "amx_bf16" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
        self.steps, self.seed, self.step, self.saved = steps, seed, 0, work / "last.pt"
        if self.saved.exists():
            state = torch.load(self.saved, weights_only=True)
            self.step = state.pop("step")
            for name, part in self.parts.items():
                part.load_state_dict(state[name])

    def save(self) -> None:
        """Write the checkpoint: the old one or the new one, never half of it."""
        fresh = self.saved.with_suffix(".new")
        torch.save({"step": self.step} | {name: part.state_dict() for name, part in self.parts.items()}, fresh)
        fresh.replace(self.saved)

    def learn(self, batch: dict[str, Any]) -> dict[str, Any]:
        """One step."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate(self.step, self.steps)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.half):
            loss, note = losses(self.passes, self.heads, batch)
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.weights, 1.0)
        self.optimiser.step()
        self.step += 1
        return note

    def run(self) -> None:
        """All steps that are left; every 50 their means are printed."""
        began, notes = time.time(), list[dict[str, Any]]()
        batches = Steps(self.step, self.steps, self.seed)
        for batch in torch.utils.data.DataLoader(batches, batch_size=None, num_workers=1, prefetch_factor=4):
            notes.append(self.learn(batch))
            if self.step % 50 == 0:
                shown = {k: np.round(np.mean([n[k] for n in notes if k in n], 0), 3).tolist() for k in notes[-1]}
                print(f"{self.step} {time.time() - began:.0f}s {shown}", flush=True)
                notes.clear()
            if self.step % 100 == 0 or self.step == self.steps:
                self.save()


def finish(model: BlipForImageTextRetrieval, out: Path, arguments: dict[str, int]) -> None:
    """Store the weights in fp16, load them again, measure them on the test split, and note the numbers beside them."""
    demo.save(model, out)
    blip = Blip(model=str(out), storyboard=demo.GRID)
    blip.load()
    text = json.dumps({"arguments": arguments, "test": heldout.measure(blip)}, indent=1)
    (out / "training.json").write_text(text + "\n", encoding="utf-8")
    print(text)


def main() -> None:
    """Train, store, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=demo.WEIGHTS, help="folder for the weights")
    parser.add_argument("--work", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--steps", type=int, default=3500)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    training = Training(args.work, args.steps, args.seed)
    training.run()
    training.model.train(False)
    finish(training.model, args.out, {"steps": args.steps, "seed": args.seed})


if __name__ == "__main__":
    main()
