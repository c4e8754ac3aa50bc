"""The page: one Gradio component that draws what the HTTP API says and calls it for everything a person does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import gradio as gr
from fastapi import FastAPI

from covr_lab.app.state import Service

FILES: Final = Path(__file__).parent / "browser"
SCRIPTS: Final = ("frame", "videos", "start", "search", "memory", "study", "routes")  # one scope, in this order
FONTS: Final = ("system-ui", "sans-serif")  # of the machine: none is loaded


def page(service: Service) -> gr.Blocks:
    """The page of a server; it keeps nothing: searches and study are the API's, the secret is the browser's cookie.

    Args:
        service: what it tells people beforehand: the limit of uploads, whether there is a study, what a model is
            good for.
    """
    script = "\n".join((FILES / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    blocks = gr.Blocks(title="covr_lab", analytics_enabled=False, fill_width=True)
    with blocks:
        gr.HTML(
            "",
            html_template="",
            js_on_load=script,
            apply_default_css=False,
            settings=settings(service),
        )
    return blocks


def settings(service: Service) -> dict[str, Any]:
    """What the page must know before it asks: plain values, the same for everybody."""
    plan = service.plan
    return {
        "limit": service.uploads.limit if service.media else 0,  # what sees no videos takes none
        "study": {"each": min(plan.each, plan.instances), "turns": plan.turns} if plan else None,
        "notes": service.notes,
    }


def mount(app: FastAPI, service: Service) -> None:
    """Put the page at the root of an application, behind its other routes."""
    style = (FILES / "page.css").read_text(encoding="utf-8")
    gr.mount_gradio_app(
        app,
        page(service),
        path="/",
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        pwa=False,
        theme=gr.themes.Base(font=FONTS, font_mono=FONTS),
        head=f"<style>{style}</style>",
    )
