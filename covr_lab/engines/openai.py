"""A model behind a server that speaks the OpenAI protocol: vLLM, SGLang, llama.cpp, a hosted one."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import threading
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from covr_lab.engines.base import Engine, EngineError, seed_of
from covr_lab.engines.images import ENCODING, data_url, frame_labels
from covr_lab.engines.request import Request, Response
from covr_lab.types import Refused, SessionError

if TYPE_CHECKING:
    import ssl

    from openai import AsyncOpenAI

T = TypeVar("T")
LOGPROBS: Final = 20  # most tokens whose probability a server tells
HOSTED: Final = "https://api.openai.com/v1"
FIRST_DELAY = 1.0  # seconds before a request is sent again; they double each time
LONGEST_DELAY = 60.0  # of one wait, also of one that a server asks for
PING = 10.0  # seconds in which a server that lives lists its models
# What an error may name as its parameter that the recipe sets and no request changes -> the recipe's key. Not the
# token limit: servers name it when one prompt is too long.
SETTINGS: Final = {"response_format": "schema", "temperature": "temperature", "top_p": "top_p", "seed": "temperature"}
_turns = threading.Lock()  # lists of several threads take turns: the limit of requests in flight is the process's


class OpenAIEngine(Engine):
    """Sends the requests of a list side by side, up to a limit, and those again that may come right by themselves.

    A request that the server refuses, or that keeps failing while the server lives, is a response with an error. A
    server that is gone ends the run with one line.

    Args:
        model: what the server calls it.
        base_url: address of the server, mostly ending in ``/v1``; ``null`` is OpenAI itself.
        api_key_env: environment variable that holds the key; a server with an address of its own may need none.
        schema: how the form of an answer is asked for: the server enforces the JSON schema, or JSON of any form, or it
            is left to the prompt.
        concurrency: most requests in flight from each process.
        timeout: seconds that a request may take each time it is sent.
        retries: times that a request is sent again after 429, 5xx, a time-out, or an answer that did not arrive whole.
        max_tokens: most tokens of an answer.
        temperature: 0 is greedy.
        top_p: share of the probability that is sampled from.
        seed: of the run; each sampled request derives its own.
        max_side: pixels of a frame's longer side above which it is scaled down; ``null`` sends frames as they are.

    Raises:
        ValueError: a value is out of range.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        schema: Literal["json_schema", "json_object", "none"] = "json_schema",
        concurrency: int = 16,
        timeout: float = 120.0,
        retries: int = 4,
        max_tokens: int = 512,
        temperature: float = 0.0,
        top_p: float = 1.0,
        seed: int = 0,
        max_side: int | None = 640,
    ) -> None:
        super().__init__()
        least = {"concurrency": (concurrency, 1), "retries": (retries, 0), "max_tokens": (max_tokens, 1)}
        for key, (value, bound) in {**least, "max_side": (1 if max_side is None else max_side, 1)}.items():
            if value < bound:
                raise ValueError(f"{key} must be at least {bound}, not {value}")
        if not (timeout > 0 and temperature >= 0 and 0 < top_p <= 1):
            raise ValueError(f"timeout {timeout} > 0, temperature {temperature} >= 0, 0 < top_p {top_p} <= 1 must hold")
        self.model, self.base_url, self.api_key_env = model, checked_url(base_url), api_key_env
        self.schema, self.concurrency, self.timeout, self.retries = schema, concurrency, timeout, retries
        self.max_tokens, self.temperature, self.top_p, self.seed = max_tokens, temperature, top_p, seed
        self.max_side, self.sampled = max_side, temperature > 0

    @property
    def fingerprint(self) -> str:
        """sha256 of model, form, limits and sampling; not of the address: the same model answers alike anywhere."""
        sampling = [self.temperature, self.top_p, self.seed] if self.sampled else None
        parts = ["openai-1", self.model, self.schema, self.max_tokens, sampling, self.max_side, ENCODING]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def load(self) -> None:
        """See that client and key are there; nothing is sent.

        Raises:
            Refused: one of them is missing.
        """
        self._key()
        _tls()

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """One response a request, in order.

        Raises:
            Refused: the key is missing; nothing was sent.
            EngineError: the server is gone, or refuses the key, the model or a setting.
        """
        key = self._key()
        with _turns:
            return _run(self._generate(requests, key))

    def body(self, request: Request) -> dict[str, Any]:
        """What is sent for a request; reads the frames.

        Raises:
            SessionError: a video cannot be read.
        """
        system = [{"role": "system", "content": request.system}] if request.system else []
        limit = "max_tokens" if self.base_url else "max_completion_tokens"  # OpenAI's new models refuse the old name
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [*system, {"role": "user", "content": content(request, self.max_side)}],
            "temperature": self.temperature,
            "top_p": self.top_p,
            limit: self.max_tokens,
        }
        if self.sampled:
            body["seed"] = seed_of(self.seed, request)
        if request.choices:
            body |= {limit: 1, "logprobs": True, "top_logprobs": LOGPROBS}
        if request.schema is not None and self.schema != "none":
            form = {"name": request.role, "strict": True, "schema": request.schema.model_json_schema()}
            whole = {"json_schema": form} if self.schema == "json_schema" else {}
            body["response_format"] = {"type": self.schema, **whole}
        return body

    def _key(self) -> str | None:
        """The key; ``None`` for a server that may do without."""
        if find_spec("openai") is None:
            raise Refused("OpenAIEngine needs the extra `reasoning`: pip install 'covr_lab[reasoning]'")
        key = os.environ.get(self.api_key_env, "").strip()
        if not key and self.base_url is None:
            raise Refused(f"{self._name}: set the environment variable {self.api_key_env} to a key, or set `base_url`")
        if not (key.isascii() and key.isprintable()):
            raise Refused(f"{self._name}: the key in {self.api_key_env} holds characters that no key has: set it again")
        return key or None

    async def _generate(self, requests: Sequence[Request], key: str | None) -> list[Response]:
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        slots, reading = asyncio.Semaphore(self.concurrency), asyncio.Lock()
        failed: list[Exception] = []
        async with AsyncOpenAI(
            api_key=key or "none",
            base_url=self.base_url or HOSTED,
            timeout=self.timeout,
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(verify=_tls()),
        ) as client:

            async def one(request: Request) -> Response:
                async with slots:
                    try:
                        async with reading:  # one video at a time, while others are with the server
                            body = await asyncio.to_thread(self.body, request)
                    except SessionError as error:
                        return Response("", error=str(error))
                    response = await self._respond(client, body, key)
                    told = among(response.text, request.choices) if request.choices else response.text
                    return replace(response, text=told)

            try:
                async with asyncio.TaskGroup() as group:  # the first that cannot go on cancels the others
                    tasks = [group.create_task(one(request)) for request in requests]
            except* Exception as errors:
                failed += errors.exceptions
        if failed:
            raise failed[0]
        return [task.result() for task in tasks]

    async def _respond(self, client: AsyncOpenAI, body: dict[str, Any], key: str | None) -> Response:
        """Send until there is an answer, or no more can be done; the seconds hold the waits between."""
        start, retries = time.perf_counter(), 0
        while True:
            result = await send(client, body, self.timeout)
            if isinstance(result, Response):
                return replace(result, seconds=time.perf_counter() - start, retries=retries)
            trouble = replace(result, reason=(result.reason.replace(key, "***") if key else result.reason)[:300])
            if why := final(trouble, self.api_key_env):
                raise EngineError(f"{self._name} {why}")
            if not trouble.again or retries == self.retries:
                break
            await asyncio.sleep(delay(retries, trouble.after))
            retries += 1
        if trouble.again and not await alive(client):
            raise EngineError(
                f"{self._name} does not answer ({trouble.reason}): start it again and run the same command, the run "
                "goes on where it stopped"
            )
        return Response("", seconds=time.perf_counter() - start, retries=retries, error=trouble.reason)

    @property
    def _name(self) -> str:
        return f"engine '{self.name or self.model}': {self.model} at {self.base_url or HOSTED}"


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a request has no answer.

    Attributes:
        reason: one line.
        again: whether the same request may be answered later.
        after: Retry-After header, "" for none.
        status: HTTP status, 0 if there was no answer.
        detail: parameter or code that the server names, "" for none.
    """

    reason: str
    again: bool = True
    after: str = ""
    status: int = 0
    detail: str = ""


def final(trouble: Trouble, api_key_env: str) -> str:
    """Why no request can be answered any more and the mend, "" if others may be."""
    match trouble.status, trouble.detail:
        case 401, _:
            return f"refuses the key (401): set the environment variable {api_key_env} to a valid one"
        case 403, _:
            return f"does not allow this ({trouble.reason}): use another `model`, or a key with the right to it"
        case 404, _:
            return f"has no such model or no such address ({trouble.reason}): correct `model` or `base_url`"
        case _, "insufficient_quota":
            return f"has no quota left ({trouble.reason}): raise it and run the same command, the run goes on"
        case 400, "logprobs" | "top_logprobs":
            return f"tells no probabilities ({trouble.reason}): set `soft: false` of what asks for them"
        case 400, setting if setting in SETTINGS:
            return f"does not take this {setting} ({trouble.reason}): change `{SETTINGS[setting]}` of the engine"
    return ""


async def send(client: AsyncOpenAI, body: dict[str, Any], timeout: float) -> Response | Trouble:
    """One attempt; the time limit is on all of it, not on each read as in the client."""
    import openai

    try:
        async with asyncio.timeout(timeout):
            completion = await client.chat.completions.create(**body)
    except (TimeoutError, openai.APITimeoutError):
        return Trouble(f"no answer in {timeout:g} s")
    except openai.APIStatusError as error:
        status, named = error.status_code, error.body if isinstance(error.body, dict) else {}
        again = status in (408, 429) or status >= 500
        detail = named.get("param") if status == 400 else named.get("code")
        reason = " ".join(f"{status} {named.get('message') or error.message}".split())
        return Trouble(reason, again, error.response.headers.get("retry-after", ""), status, str(detail or ""))
    except openai.APIConnectionError as error:
        return Trouble(f"connection failed, {type(error.__cause__).__name__}")
    except (ValueError, openai.APIResponseValidationError):
        return Trouble("an answer that is no JSON")
    return read(completion)


def read(completion: Any) -> Response | Trouble:
    """Text and tokens of a completion, or the probabilities of its first token as JSON; no field was checked so far."""
    try:
        text = completion.choices[0].message.content
    except (AttributeError, IndexError, TypeError):
        return Trouble("an answer without a completion")
    with suppress(AttributeError, IndexError, TypeError):  # tells none: the text stands
        first = completion.choices[0].logprobs.content[0].top_logprobs
        text = json.dumps([(token.token, math.exp(token.logprob)) for token in first])
    usage = getattr(completion, "usage", None)
    came, went = (getattr(usage, key, None) or 0 for key in ("prompt_tokens", "completion_tokens"))
    # Half a character, which JSON can carry, could not be stored.
    return Response((text or "").encode("utf-8", "replace").decode(), came, went)


def among(text: str, choices: Sequence[str]) -> str:
    """Probabilities of choices among themselves as JSON; a ``text`` that holds no probabilities of tokens stays.

    >>> among('[["A", 0.5], [" A", 0.25], ["B", 0.25], ["The", 0.0]]', ("A", "B"))
    '{"A": 0.75, "B": 0.25}'
    """
    try:
        told = [(str(token).strip(), float(share)) for token, share in json.loads(text)]
    except (ValueError, TypeError):
        return text
    shares = {choice: sum(share for token, share in told if token == choice) for choice in choices}
    total = sum(shares.values())
    return json.dumps({choice: share / total if total else 0.0 for choice, share in shares.items()})


async def alive(client: AsyncOpenAI) -> bool:
    """Whether the server lists its models, or at least answers that it does not."""
    import openai

    try:
        async with asyncio.timeout(PING):
            await client.models.with_raw_response.list()
    except openai.APIStatusError as error:
        return error.status_code < 500
    except (openai.APIError, TimeoutError):
        return False
    return True


def content(request: Request, max_side: int | None) -> str | list[dict[str, Any]]:
    """The user's message: plain text, or parts if frames are shown, each frame after its label.

    Raises:
        SessionError: a video cannot be read.
    """
    texts = [part for part in request.content if isinstance(part, str)]
    if len(texts) == len(request.content):
        return "".join(texts)
    parts: list[dict[str, Any]] = []
    for part in request.content:
        if isinstance(part, str):
            parts.append({"type": "text", "text": part})
            continue
        clip = part.clip()
        for label, frame in zip(frame_labels(clip), clip.frames, strict=True):
            url = {"url": data_url(frame, max_side)}
            parts += [{"type": "text", "text": label}, {"type": "image_url", "image_url": url}]
    return [part for part in parts if part.get("text") != ""]


def delay(retries: int, after: str = "") -> float:
    """Seconds to wait: what the server asks for in Retry-After, else twice as long each time; never very long.

    >>> [delay(retries) for retries in (0, 1, 2, 30)], delay(0, "7"), delay(1, "next week")
    ([1.0, 2.0, 4.0, 60.0], 7.0, 2.0)
    """
    try:
        asked = float(after)
    except ValueError:
        asked = -1.0
    return min(asked if asked >= 0 else FIRST_DELAY * 2.0**retries, LONGEST_DELAY)


def checked_url(url: str | None) -> str | None:
    """The address of a server, known to be one and to hold no secret: recipes are stored with results.

    Raises:
        ValueError: it is none, or holds a user name or password.
    """
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"base_url must be an address such as http://localhost:8000/v1, not '{url}'")
    if "@" in parts.netloc:
        raise ValueError("base_url holds a user name or password, which would be stored: take it out, set api_key_env")
    return url.rstrip("/")


@cache
def _tls() -> ssl.SSLContext:
    """Made once: reading the certificates takes longer than a short answer."""
    import httpx2  # what the client itself uses

    return httpx2.create_ssl_context()


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Wait for ``work``, also where a loop runs already (a notebook)."""
    try:
        running = bool(asyncio.get_running_loop())
    except RuntimeError:
        running = False
    if not running:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
