"""Vision-language and language models on this machine, through transformers."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Literal

import torch

from covr_lab.engines.base import Engine, seed_of
from covr_lab.engines.chat import Chat, MediaKind, Prompt, left_padded
from covr_lab.engines.network import COMMIT, Network, Source, load_network
from covr_lab.engines.request import Request, Response
from covr_lab.engines.sampling import Chance, Grammars, Limits
from covr_lab.engines.schema import longest
from covr_lab.types import Refused, SessionError

FRAMES = 512  # that are in memory at once
HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Job:
    """A request that can be answered.

    Attributes:
        place: in the list of requests.
        request: what is asked.
        prompt: its inputs.
        limit: tokens of the longest answer.
        seconds: what it took to prepare.
    """

    place: int
    request: Request
    prompt: Prompt
    limit: int
    seconds: float


def windows(requests: Sequence[Request]) -> Iterator[list[int]]:
    """Places of requests that are prepared together, as many as have few enough frames."""
    places, frames = list[int](), 0
    for place, request in enumerate(requests):
        new = sum(part.frames for part in request.content if not isinstance(part, str))
        if places and frames + new > FRAMES:
            yield places
            places, frames = [], 0
        places.append(place)
        frames += new
    if places:
        yield places


def buckets(tokens: Sequence[tuple[int, int]], budget: int) -> list[list[int]]:
    """Places of ``tokens`` (prompt, answer) in batches of like length: rows times the longest of each stay in budget.

    >>> buckets([(90, 10), (10, 10), (20, 10), (95, 10)], 220)
    [[1, 2], [0, 3]]
    >>> buckets([(500, 10), (10, 10)], 220)
    [[1], [0]]
    """
    found, answer = list[list[int]](), 0
    for place in sorted(range(len(tokens)), key=lambda place: (tokens[place], place)):
        prompt, new = tokens[place]
        answer = max(answer, new)
        if found and (len(found[-1]) + 1) * (prompt + answer) <= budget:
            found[-1].append(place)
        else:
            found.append([place])
            answer = new
    return found


class HFEngine(Engine):
    """A frozen model of transformers: Qwen3-VL, InternVL (``-HF`` repositories), or one that reads text only.

    Answers to requests with a schema are decoded under a grammar of that schema, with room for the longest one that
    fits. A request with choices takes one forward pass: the softmax, at temperature 1, over the first tokens of them.
    Greedy by default; a sampled answer depends on the run's seed, session, turn, role, attempt and draw alone. Of the
    checkpoint's own generation settings only the tokens that end an answer count. A video for a model that reads text
    only is an error of that request, as is one that cannot be read.

    Args:
        model: folder with a saved model and its processor, or OWNER/NAME on the Hub together with ``revision``.
        revision: commit on the Hub (40 digits); nothing is fetched without it, nor where ``model`` is a folder.
        gguf: name of a GGUF file in the folder, in place of safetensors; text only, needs packages gguf and accelerate.
        dtype: of weights and activations; ``auto`` is the checkpoint's, but fp32 on a CPU, where half precision is
            over 100 times slower.
        attention: implementation of attention; ``flash_attention_2`` needs its own package.
        media: ``video``: a clip goes as one video with the exact times of its frames (Qwen3-VL); ``images``: each frame
            as an image behind its time. Frames without a clock are always images, behind "frame 1 of 8".
        frame_pixels: larger frames are scaled down to this many pixels. InternVL scales every frame to one square.
        batch_tokens: rows of a batch times tokens of its longest prompt and answer; it changes no answer. A batch that
            runs out of memory is halved.
        max_new_tokens: of an answer without a schema; where batches are formed, no answer counts as longer.
        temperature: 0 is greedy.
        top_p: sample from the most probable tokens that together have this probability.
        seed: of sampled answers.
        constrained: decode under the grammar of the request's schema.

    Raises:
        ValueError: a setting is out of its range.
        Refused: xgrammar is not installed.
    """

    network: Any

    def __init__(
        self,
        *,
        model: str,
        revision: str | None = None,
        gguf: str | None = None,
        dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
        attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa",
        media: MediaKind = "video",
        frame_pixels: int = 448 * 448,
        batch_tokens: int = 65536,
        max_new_tokens: int = 256,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        constrained: bool = True,
    ) -> None:
        super().__init__()
        if revision is not None and not COMMIT.fullmatch(revision):
            raise ValueError(f"revision must be a commit of 40 hexadecimal digits, not '{revision}': branches move")
        for name, value in {
            "frame_pixels": frame_pixels,
            "batch_tokens": batch_tokens,
            "max_new_tokens": max_new_tokens,
        }.items():
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        if temperature < 0 or not 0 < top_p <= 1:
            raise ValueError(f"temperature must be 0 or more and top_p in (0, 1], not {temperature} and {top_p}")
        if constrained and find_spec("xgrammar") is None:
            raise Refused(
                "HFEngine needs the extra `reasoning`: pip install 'covr_lab[reasoning]' (or set `constrained: false`)"
            )
        self.source = Source(model, revision, gguf, dtype, attention)
        self.media, self.frame_pixels, self.batch_tokens = media, frame_pixels, batch_tokens
        self.max_new_tokens, self.constrained = max_new_tokens, constrained
        self.temperature, self.top_p, self.seed = temperature, top_p, seed
        self.sampled = temperature > 0
        self._loaded: Network | None = None

    @property
    def fingerprint(self) -> str:
        """sha256 of weights and settings; a folder's files are read for it, a model on the Hub is not fetched."""
        source = [self.source.identity, self.source.dtype, self.source.attention]
        settings = [self.media, self.frame_pixels, self.max_new_tokens]
        sampling = [self.temperature, self.top_p, self.seed] if self.temperature else ["greedy"]
        libraries = [version(name) for name in ("transformers", *["xgrammar"] * self.constrained)]
        return hashlib.sha256(json.dumps([1, source, settings, sampling, libraries]).encode()).hexdigest()

    def load(self) -> None:
        """Read weights and processor, once.

        Raises:
            Refused: see :func:`~covr_lab.engines.network.load_network` and :meth:`~covr_lab.engines.chat.Chat.check`.
        """
        if self._loaded is not None:
            return
        loaded = load_network(self.source)
        self.chat = Chat(
            loaded.processor,
            name=self.source.model,
            media=self.media,
            frame_pixels=self.frame_pixels,
            limit=loaded.limit,
        )
        self.chat.check()
        self._loaded, self.network = loaded, loaded.module
        self.freeze()

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """Answers in order, in batches of prompts of like length."""
        self._settle()
        found = dict[int, Response]()
        for window in windows(requests):
            jobs = list[Job]()
            for place in window:
                began, request = time.perf_counter(), requests[place]
                try:
                    prompt = self.chat.prompt(request)
                except SessionError as error:
                    found[place] = Response("", error=str(error))
                    continue
                limit = self.max_new_tokens if request.schema is None else longest(request.schema)
                limit = 1 if request.choices else limit
                jobs.append(Job(place, request, prompt, limit, time.perf_counter() - began))
            for weighed in (False, True):
                some = [job for job in jobs if bool(job.request.choices) == weighed]
                sizes = [(job.prompt.tokens, min(job.limit, self.max_new_tokens)) for job in some]
                for batch in buckets(sizes, self.batch_tokens):
                    found |= self._answers([some[index] for index in batch])
        return [found[place] for place in range(len(requests))]

    def _settle(self) -> None:
        """Go over to fp32 where ``auto`` meets a CPU; only now is it known which device the trainer chose."""
        self.load()
        weight = next(self.network.parameters())
        if self.source.dtype == "auto" and weight.device.type == "cpu" and weight.dtype in HALF:
            self.network.float()

    def _answers(self, jobs: list[Job]) -> dict[int, Response]:
        """Answers of one batch by place; a batch that does not fit into memory is answered in halves."""
        began = time.perf_counter()
        try:
            answers = self._weighed(jobs) if jobs[0].request.choices else self._continued(jobs)
        except torch.cuda.OutOfMemoryError as error:
            reason = str(error).split(". ")[0]
        else:
            share = (time.perf_counter() - began) / len(jobs)
            return {
                job.place: Response(answer, job.prompt.tokens, tokens, job.seconds + share)
                for job, (answer, tokens) in zip(jobs, answers, strict=True)
            }
        torch.cuda.empty_cache()  # outside of the handler: the error holds on to what the batch had allocated
        if len(jobs) == 1:
            mend = "show fewer frames, lower frame_pixels, or take a smaller model or dtype"
            return {jobs[0].place: Response("", error=f"out of memory with one prompt alone ({reason}): {mend}")}
        middle = len(jobs) // 2
        return self._answers(jobs[:middle]) | self._answers(jobs[middle:])

    @torch.inference_mode()
    def logits(self, prompts: Sequence[Prompt], tokens: Sequence[int]) -> torch.Tensor:
        """How far each prompt speaks for each token as the next one, float32 ``(prompts, tokens)``.

        They are taken in fp32 from the state of the last token after the final norm, for in half precision close ones
        would tie.
        """
        assert self._loaded is not None
        inputs, device = left_padded(prompts, self._loaded.padding), self.network.device
        with torch.autocast(device.type, enabled=False):
            inputs = {key: value.to(device) for key, value in inputs.items()}
            states = self.network.base_model(**inputs, use_cache=False).last_hidden_state[:, -1].float()
            rows = self.network.get_output_embeddings().weight[list(tokens)].float()
            found: torch.Tensor = (states.unsqueeze(1) * rows).sum(-1)  # row by row, see rowwise() of BLIP
        return found

    def _weighed(self, jobs: list[Job]) -> list[tuple[str, int]]:
        """Probabilities of each request's choices among themselves, as JSON, and the one token that they stand for."""
        tokens = [self._opening(job.request.choices) for job in jobs]
        distinct = sorted({token for some in tokens for token in some})
        found = list[tuple[str, int]]()
        for job, some, row in zip(jobs, tokens, self.logits([job.prompt for job in jobs], distinct), strict=True):
            shares = torch.softmax(row[[distinct.index(token) for token in some]].double(), 0).tolist()
            found.append((json.dumps(dict(zip(job.request.choices, shares, strict=True))), 1))
        return found

    def _opening(self, choices: Sequence[str]) -> list[int]:
        """First token of each choice."""
        tokens = [int(self.chat.tokenizer.encode(choice, add_special_tokens=False)[0]) for choice in choices]
        if len(set(tokens)) < len(tokens):
            raise Refused(f"model '{self.source.model}' begins two of {list(choices)} alike: name another model")
        return tokens

    @torch.inference_mode()
    def _continued(self, jobs: list[Job]) -> list[tuple[str, int]]:
        """Each answer, and how many tokens it has, its end included."""
        from transformers import LogitsProcessorList, StoppingCriteriaList

        loaded, device = self._loaded, self.network.device
        assert loaded is not None
        inputs = left_padded([job.prompt for job in jobs], loaded.padding)
        start, limits = inputs["input_ids"].shape[1], [job.limit for job in jobs]
        rules = list[Any]()
        if self.constrained:
            schemas = [job.request.schema for job in jobs]
            grammars = [None if schema is None else loaded.compiled(schema) for schema in schemas]
            if any(grammars):
                names = set(self.chat.control.values()) - set(loaded.ends)
                rules.append(Grammars(grammars, loaded.vocabulary, names, start))
        if self.temperature:
            seeds = [seed_of(self.seed, job.request) for job in jobs]
            rules.append(Chance(seeds, max(limits), start, self.temperature, self.top_p))
        with torch.autocast(device.type, enabled=False):
            rows = self.network.generate(
                **{key: value.to(device) for key, value in inputs.items()},
                max_new_tokens=max(limits),
                logits_processor=LogitsProcessorList(rules),
                stopping_criteria=StoppingCriteriaList([Limits(limits, start)]),
            )
        answers = [cut(row, limit, loaded.ends) for row, limit in zip(rows[:, start:].tolist(), limits, strict=True)]
        decode = self.chat.tokenizer.decode
        return [(decode(answer, skip_special_tokens=True).strip(), len(answer)) for answer in answers]


def cut(tokens: Sequence[int], limit: int, ends: Sequence[int]) -> list[int]:
    """The answer in a row that goes on with padding: up to its first end, or its limit.

    >>> cut([5, 6, 2, 0, 0], 9, [2]), cut([5, 6, 0], 2, [2])
    ([5, 6, 2], [5, 6])
    """
    end = next((place for place, token in enumerate(tokens[:limit]) if token in ends), limit)
    return list(tokens[: min(end + 1, limit)])
