"""The HTTP API on one page, without a script: what FastAPI brings along is loaded from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fastapi import Request
from fastapi.responses import HTMLResponse

HEAD: Final = """<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
<title>covr_lab: HTTP API</title>
<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem }
</style>
<h1>HTTP API</h1>
<p>JSON in, JSON out. A program names itself with <code>Authorization: Bearer</code> and a secret of its own of 22
characters or more. Errors are <code>{"error": sentence}</code>. Keys with a question mark may be left away.
<a href="/api/openapi.json">OpenAPI</a></p>
"""


def docs(request: Request) -> HTMLResponse:
    """The page."""
    return HTMLResponse(HEAD + "".join(entries(request.app.openapi())))


def entries(schema: Mapping[str, Any]) -> Iterator[str]:
    """A paragraph for each action of an OpenAPI document."""
    for path, methods in schema["paths"].items():
        for method, what in methods.items():
            line = html.escape(f"{method.upper()} {path}{asked(what, schema['components']['schemas'])}")
            yield f"<p><code>{line}</code><br>{html.escape(what['summary'])}. {html.escape(what['description'])}</p>\n"


def asked(what: Mapping[str, Any], bodies: Mapping[str, Any]) -> str:
    """The keys of a request's body, or those behind its address.

    >>> asked({"parameters": [{"name": "q", "in": "query", "required": False}]}, {})
    '?q'
    """
    body = what.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    fields = bodies.get(body.get("$ref", "").rpartition("/")[2], {})
    needed = fields.get("required", ())
    if keys := [key if key in needed else f"{key}?" for key in fields.get("properties", ())]:
        return f" {{{', '.join(keys)}}}"
    names = [one["name"] for one in what.get("parameters", ()) if one["in"] == "query"]
    return f"?{'&'.join(names)}" if names else ""
