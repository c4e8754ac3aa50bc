"""A real HTTP server on loopback that speaks the OpenAI protocol, and ``/rerank``, and fails on demand.

::

    with OpenAIServer(faults=["429", None, "drop"]) as server:
        engine = OpenAIEngine(model="tiny", base_url=server.url)
        ...
        assert server.most <= 4 and len(server.requests) == 5

``faults`` are the troubles of the first requests in the order in which they arrive, or a function of (body, how often
that body came before): :func:`by_chance` does not depend on the order, whatever the threads do.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Body = dict[str, Any]
Faults = Callable[[Body, int], str | None]
# What a fault is called:
#   "429", "429:0.05" (with Retry-After), "500", "503", "400", "404", ... any status
#   "400:response_format", "429:insufficient_quota" what a server names as the parameter or code at fault
#   "hang"       no answer until the client leaves; "drip": a byte now and then, so that no single read takes long
#   "drop"       the connection ends in the middle of the body; "reset": before the first byte
#   "malformed"  a body that is no JSON; "html": a page, as a proxy sends; "hollow": JSON without a choice
#   "truncated"  the answer ends in its middle (finish_reason "length"); "prose": words and a code fence around it
#   "empty"      an answer of no characters; "null": none at all
#   "surrogate"  half a character, which JSON can carry and UTF-8 cannot


def by_chance(seed: int, **chances: float) -> Faults:
    """Faults by probability, e.g. ``drop=0.1``; write ``_429=0.1`` for a status."""

    def fault(body: Body, seen: int) -> str | None:
        key = f"{seed} {seen} {json.dumps(body, sort_keys=True)}".encode()
        dice = int.from_bytes(hashlib.sha256(key).digest()[:8], "big") / 2**64
        for name, chance in chances.items():
            if dice < chance:
                return name.removeprefix("_")
            dice -= chance
        return None

    return fault


def example(schema: dict[str, Any], name: str = "word", defs: dict[str, Any] | None = None) -> Any:
    """A value that fits a JSON schema: as short as may be, strings named by their field."""
    defs = defs or schema.get("$defs", {})
    if "$ref" in schema:
        return example(defs[schema["$ref"].rpartition("/")[2]], name, defs)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    for key in ("anyOf", "allOf"):
        if key in schema:
            return example(schema[key][0], name, defs)
    match schema.get("type"):
        case "object":
            return {key: example(value, key, defs) for key, value in schema.get("properties", {}).items()}
        case "array":
            fixed = schema.get("prefixItems", [])
            return [example(item, name, defs) for item in fixed or [schema["items"]] * schema.get("minItems", 0)]
        case "string":
            return name[: schema.get("maxLength", 1000)].ljust(schema.get("minLength", 0), "x")
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
    return None


def valid_answer(body: Body) -> str:
    """JSON that fits the schema that was sent; a question where free text was asked for."""
    form = body.get("response_format", {})
    if form.get("type") == "json_schema":
        return json.dumps(example(form["json_schema"]["schema"]))
    return "{}" if form.get("type") == "json_object" else "What happens next?"


def relevances(body: Body) -> list[dict[str, Any]]:
    """A made-up relevance of every document, which depends on it and on the query alone; the best one first."""
    scored = [
        {"index": index, "relevance_score": made_up(body["query"], document)}
        for index, document in enumerate(body["documents"])
    ]
    return sorted(scored, key=lambda result: (-result["relevance_score"], result["index"]))


def made_up(query: Any, document: Any) -> float:
    """A number in [0, 1)."""
    key = json.dumps([query, document], sort_keys=True).encode()
    return int.from_bytes(hashlib.sha256(key).digest()[:4], "big") / 2**32


def prompt_text(body: Body) -> str:
    """All texts of a request's messages, one after the other."""
    contents = [message["content"] for message in body.get("messages", ())]
    parts = [[content] if isinstance(content, str) else [p.get("text", "") for p in content] for content in contents]
    return "\n".join(text for texts in parts for text in texts)


def likely(body: Body, text: str | None) -> dict[str, Any] | None:
    """Where probabilities are asked for, those of the first token in an answer like ``{"A": 0.5}``."""
    if not body.get("logprobs") or not (text or "").startswith("{"):
        return None
    shares = json.loads(text or "")
    tokens = [{"token": token, "logprob": math.log(share), "bytes": None} for token, share in shares.items()]
    best = max(tokens, key=lambda token: float(token["logprob"]))
    return {"content": [{**best, "top_logprobs": tokens}], "refusal": None}


class OpenAIServer:
    """``/v1/chat/completions``, ``/v1/rerank`` and ``/v1/models`` on 127.0.0.1; a port of its own, kept over a restart.

    Args:
        answer: the answer to a request; may sleep, to take its time.
        faults: troubles of the first requests, or a function of (body, how often that body came before).
        models: what is served; any other model is a 404.
        key: the key that clients must show; the refusal repeats what they showed, as some servers do.
        rerank: the results of a request to ``/v1/rerank``.

    Attributes:
        requests: every body that came, the failed ones included.
        answered: those of them that were answered in full.
        faulted: faults that were played -> how often.
        keys: every key that a client showed.
        listed: times that ``/v1/models`` was asked.
        most: the most completions in flight at once.
        models_fault: status of ``/v1/models`` if it is not to answer, "hang" for no answer.
    """

    def __init__(
        self,
        answer: Callable[[Body], str] = valid_answer,
        faults: Sequence[str | None] | Faults = (),
        models: Sequence[str] = ("tiny",),
        key: str | None = None,
        rerank: Callable[[Body], Any] = relevances,
    ) -> None:
        self.answer, self.faults, self.models, self.key, self.rerank = answer, faults, models, key, rerank
        self.requests, self.answered, self.keys = list[Body](), list[Body](), set[str]()
        self.faulted, self.listed, self.most, self.models_fault = Counter[str](), 0, 0, ""
        self.lock, self.stopping = threading.Lock(), threading.Event()
        self.open, self.seen = set[socket.socket](), Counter[str]()
        self.flying = self.port = 0
        self.http: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """What a client calls its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> Self:
        """Listen, on the same port as before if there was one."""
        if self.http is not None:
            return self
        server = self

        class Bound(Handler):
            world = server

        self.stopping.clear()
        self.http = Listener(("127.0.0.1", self.port), Bound)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Be gone: nobody listens, every open connection ends."""
        if self.http is None:
            return
        self.stopping.set()
        self.http.shutdown()
        self.http.server_close()
        self.http = None
        with self.lock:
            for connection in self.open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def arrive(self, body: Body) -> str | None:
        """Record a request; returns its fault."""
        with self.lock:
            self.requests.append(body)
            self.flying += 1
            self.most = max(self.most, self.flying)
            key = json.dumps(body, sort_keys=True)
            seen, self.seen[key] = self.seen[key], self.seen[key] + 1
            if callable(self.faults):
                fault = self.faults(body, seen)
            else:
                place = len(self.requests) - 1
                fault = self.faults[place] if place < len(self.faults) else None
            if fault:
                self.faulted[fault] += 1
            return fault

    def told(self, body: Body) -> str:
        """The answer to a chat, or the results of a reranking as JSON."""
        return json.dumps(self.rerank(body)) if "documents" in body else self.answer(body)

    def leave(self) -> None:
        """A request is about to be answered, or given up."""
        with self.lock:
            self.flying -= 1


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no news."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    world: OpenAIServer

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self.world.lock:
            self.world.open.add(self.connection)

    def finish(self) -> None:
        with self.world.lock:
            self.world.open.discard(self.connection)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            return self.reply(404, {"error": {"message": f"no {self.path}", "code": None, "param": None}})
        with self.world.lock:
            self.world.listed += 1
        if self.world.models_fault == "hang":
            return self.hang()
        if self.world.models_fault:
            return self.refuse(int(self.world.models_fault))
        return self.reply(200, {"object": "list", "data": [{"id": m, "object": "model"} for m in self.world.models]})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path not in ("/v1/chat/completions", "/v1/rerank"):
            return self.reply(404, {"detail": "Not Found"})
        body = json.loads(raw)
        fault, left = self.world.arrive(body), False
        try:
            if refused := self.refusal(body):
                fault = refused
            silent = fault and (fault[:3].isdigit() or fault == "hang")
            text = (
                "" if silent else self.world.answer(body) if "messages" in body else json.dumps(self.world.rerank(body))
            )
            if fault == "hang":
                return self.hang()
            left = True
            self.world.leave()  # before the answer: a client may send its next request before a thread wakes up here
            return self.act(fault, body, text)
        finally:
            if not left:
                self.world.leave()

    def refusal(self, body: Body) -> str | None:
        """What is wrong with key or model."""
        shown = self.headers.get("Authorization", "").removeprefix("Bearer ")
        with self.world.lock:
            self.world.keys.add(shown)
        if self.world.key is not None and shown != self.world.key:
            return "401"
        return "404:model_not_found" if body["model"] not in self.world.models else None

    def act(self, fault: str | None, body: Body, text: str) -> None:
        """Answer, or fail in the way that was asked for."""
        if fault and fault[:3].isdigit():
            status, _, detail = fault.partition(":")
            return self.refuse(int(status), detail)
        if fault == "truncated":
            return self.complete(body, text[: len(text) // 2], "length")
        if fault == "prose":
            return self.complete(body, f"Sure, here you are {{:\n```json\n{text}\n```\nAnything else?")
        if fault in ("empty", "null"):
            return self.complete(body, "" if fault == "empty" else None)
        if fault == "surrogate":
            return self.complete(body, f"{text}\ud83d")
        if fault == "malformed":
            return self.send(200, b'{"id": "chatcmpl-1", "choices": [{"mess')
        if fault == "html":
            return self.send(200, b"<html><body>Gateway</body></html>", "text/html")
        if fault == "hollow":
            return self.reply(200, {"id": "chatcmpl-1", "object": "chat.completion", "choices": None})
        if fault == "drop":
            return self.complete(body, text, short=True)
        if fault == "drip":
            return self.drip()
        if fault == "reset":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return None
        assert fault is None, f"no such fault: {fault}"
        with self.world.lock:
            self.world.answered.append(body)
        if "documents" in body:
            return self.reply(200, {"id": "rerank-1", "results": json.loads(text)})
        return self.complete(body, text)

    def complete(self, body: Body, text: str | None, finish: str = "stop", short: bool = False) -> None:
        """One completion; ``short``: only half of its bytes."""
        message = {"role": "assistant", "content": text}
        tokens = {"prompt_tokens": len(prompt_text(body).split()), "completion_tokens": len((text or "").split())}
        content = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": likely(body, text)}],
            "usage": {**tokens, "total_tokens": sum(tokens.values())},
        }
        self.reply(200, content, short=short)

    def refuse(self, status: int, detail: str = "") -> None:
        """An error as OpenAI words it; ``detail``: seconds of Retry-After, or the parameter or code at fault."""
        shown = self.headers.get("Authorization", "")
        error = {"message": f"status {status} {detail} for {shown}", "type": "injected", "param": None, "code": None}
        headers = {}
        if detail.replace(".", "", 1).isdigit():
            headers["Retry-After"] = detail
        elif detail:
            error["param" if status == 400 else "code"] = detail
        self.reply(status, {"error": error}, headers)

    def hang(self) -> None:
        """Say nothing until the client leaves or the server stops."""
        self.close_connection = True
        while not self.world.stopping.is_set():
            if select.select([self.connection], [], [], 0.01)[0] and not self.connection.recv(1, socket.MSG_PEEK):
                return

    def drip(self) -> None:
        """Never come to an end, but never be quiet either."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "100000")
        self.end_headers()
        with suppress(OSError):
            while not self.world.stopping.wait(0.02):
                self.wfile.write(b" ")

    def reply(self, status: int, content: Any, headers: dict[str, str] | None = None, short: bool = False) -> None:
        self.send(status, json.dumps(content).encode(), headers=headers, short=short)

    def send(
        self,
        status: int,
        data: bytes,
        kind: str = "application/json",
        headers: dict[str, str] | None = None,
        short: bool = False,
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if short else data)
        if short:
            self.close_connection = True


def chatty(seed: int, slowest: float, answer: Callable[[Body], str] = valid_answer) -> Callable[[Body], str]:
    """``answer`` after a random while, the same for the same prompt: answers overtake one another."""

    def slowly(body: Body) -> str:
        time.sleep(random.Random(f"{seed} {prompt_text(body)}").uniform(0, slowest))
        return answer(body)

    return slowly
