"""The HTTP API: everything that the page does, as JSON; errors are ``{"error": sentence}``."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat
from starlette.exceptions import HTTPException

from covr_lab.app.batching import Overloaded
from covr_lab.app.client import Client
from covr_lab.app.docs import docs
from covr_lab.app.guard import TOKEN
from covr_lab.app.limits import Unknown
from covr_lab.app.view import View
from covr_lab.types import Reflection, Refused, SessionError

log = logging.getLogger(__name__)
router = APIRouter(prefix="/api")
CHECKERS: Final = ThreadPoolExecutor(2, "uploads")  # whoever searches does not wait for files that are hard to decode
WRITERS: Final = ThreadPoolExecutor(8, "writes")  # nor for files that arrive on a slow disk


def client(request: Request) -> Client:
    """Who asks."""
    return Client(request.app.state.service, request.scope[TOKEN])


Mine = Annotated[Client, Depends(client)]


def written(text: str) -> str:
    """A text that can be stored: half a character raises a ValueError."""
    text.encode()
    return text


Id = Annotated[str, Field(max_length=200), AfterValidator(written)]


class Body(BaseModel):
    """What a request says; keys that nobody knows are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Memory(Body):
    """The constraints as the person left them."""

    keep: list[str] = Field([], max_length=100)
    require: list[str] = Field([], max_length=100)
    avoid: list[str] = Field([], max_length=100)
    query: str = ""

    def value(self) -> Reflection:
        """For the system."""
        return Reflection(keep=tuple(self.keep), require=tuple(self.require), avoid=tuple(self.avoid), query=self.query)


class Begin(Body):
    """A new search: a reference (a video of the collection, or an upload), a text, or both."""

    reference: Id | None = None
    text: str = ""


class Timing(Body):
    """When a turn was shown, its answer begun, and sent: seconds of the client's clock, as far as they are known."""

    shown: FiniteFloat | None = None
    first_key: FiniteFloat | None = None
    sent: FiniteFloat | None = None

    def value(self) -> dict[str, float]:
        """What is known."""
        return self.model_dump(exclude_none=True)


class Said(Body):
    """Feedback: a text, results that are not it, edited constraints; ``turn`` is the one that was seen."""

    text: str = ""
    rejected: list[Id] = Field([], max_length=100)
    memory: Memory | None = None
    turn: int | None = None
    timing: Timing = Timing()

    def keys(self) -> dict[str, Any]:
        """Arguments of :meth:`covr_lab.app.desk.Searches.say`."""
        memory = self.memory.value() if self.memory else None
        return {"rejected": self.rejected, "memory": memory, "turn": self.turn, "timing": self.timing.value()}


class Chosen(Body):
    """One of the results."""

    video: Id
    turn: int | None = None


class Like(Body):
    """A result that a new search starts from."""

    video: Id
    text: str = ""


class Seen(Body):
    """The turn that was seen."""

    turn: int | None = None


class Participant(Body):
    """Who takes part in the study."""

    participant: Annotated[str, Field(max_length=100), AfterValidator(written)]


class TaskSaid(Said, Participant):
    """Feedback of a participant on the instance that is open."""

    instance: Id


class TaskFound(Participant):
    """The video of an instance; ``turn`` is the one that was seen."""

    instance: Id
    video: Id
    turn: int | None = None
    timing: Timing = Timing()


class TaskLeft(Participant):
    """An instance whose video was not found."""

    instance: Id


@router.post("/sessions", summary="Start a search")
def start(mine: Mine, body: Begin) -> View:
    """Turn 0: the results for a reference and what should change in it."""
    return mine.start(body.reference, body.text)


@router.get("/sessions", summary="The searches of this client")
def sessions(mine: Mine) -> list[str]:
    """Their ids, the oldest first."""
    return mine.mine()


@router.get("/sessions/{name}", summary="A search as it stands")
def show(mine: Mine, name: str) -> View:
    """Results, question, constraints and history."""
    return mine.show(name)


@router.post("/sessions/{name}/feedback", summary="One turn later")
def feedback(mine: Mine, name: str, body: Said) -> View:
    """What should change, a description, or the answer to the question."""
    return mine.say(name, body.text, **body.keys())


@router.post("/sessions/{name}/not_this", summary="A result is not it")
def not_this(mine: Mine, name: str, body: Chosen) -> View:
    """One turn later, without words."""
    return mine.not_this(name, body.video, turn=body.turn)


@router.post("/sessions/{name}/more_like", summary="A new search from a result")
def more_like(mine: Mine, name: str, body: Like) -> View:
    """The result becomes the reference."""
    return mine.more_like(name, body.video, body.text)


@router.post("/sessions/{name}/undo", summary="One turn earlier")
def undo(mine: Mine, name: str, body: Seen) -> View:
    """The last turn is taken back."""
    return mine.undo(name, turn=body.turn)


@router.post("/sessions/{name}/found", summary="A result is it")
def found(mine: Mine, name: str, body: Chosen) -> View:
    """The end of the search."""
    return mine.found(name, body.video, turn=body.turn)


@router.get("/videos", summary="Videos to start from")
def videos(mine: Mine, q: str = "", page: int = 0) -> View:
    """Those whose names or captions have the words of ``q``, by pages."""
    return mine.videos(q[:200], max(page, 0))


@router.post("/uploads", summary="Bring a video or picture along")
async def upload(mine: Mine, request: Request) -> View:
    """The file is the body, as ``application/octet-stream``; its id can then be a reference, of this client alone."""
    announced = request.headers.get("content-length", "")
    size = int(announced) if announced.isdecimal() else None
    loop = asyncio.get_running_loop()
    with await loop.run_in_executor(WRITERS, mine.incoming, size) as incoming:
        async for chunk in request.stream():
            await loop.run_in_executor(WRITERS, incoming.write, chunk)
        return await loop.run_in_executor(CHECKERS, mine.keep, incoming)


@router.post("/study/consent", summary="Take part in the study")
def consent(mine: Mine, body: Participant) -> View:
    """The participant agrees, and gets the first instance."""
    return mine.consent(body.participant)


@router.get("/study/task", summary="The open instance")
def task(mine: Mine, participant: str) -> View:
    """What the participant is at; after a pause, the same as before."""
    return mine.task(participant)


@router.post("/study/feedback", summary="One turn later, in the study")
def task_feedback(mine: Mine, body: TaskSaid) -> View:
    """Feedback on the open instance."""
    return mine.task_say(body.participant, body.instance, body.text, **body.keys())


@router.post("/study/found", summary="Found it, in the study")
def task_found(mine: Mine, body: TaskFound) -> View:
    """Ends the instance; the answer is the next one."""
    keys = {"turn": body.turn, "timing": body.timing.value()}
    return mine.task_found(body.participant, body.instance, body.video, **keys)


@router.post("/study/leave", summary="Not found, in the study")
def task_leave(mine: Mine, body: TaskLeft) -> View:
    """Ends the instance; the answer is the next one."""
    return mine.task_leave(body.participant, body.instance)


@router.get("/stats", summary="What the server did so far")
def stats(mine: Mine) -> View:
    """Requests, calls of the system by size, and milliseconds beside the model."""
    return mine.service.stats()


def status_of(error: Exception) -> int:
    """HTTP status of what was refused."""
    kinds: dict[type[Exception], int] = {Unknown: 404, Overloaded: 503, SessionError: 422, OSError: 507}
    return next((status for kind, status in kinds.items() if isinstance(error, kind)), 400)


async def refuse(request: Request, error: Exception) -> JSONResponse:
    """An error as a sentence."""
    del request
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        place = ".".join(part for part in first["loc"][1:] if isinstance(part, str))
        return JSONResponse({"error": f"{place or 'the body'}: {first['msg'].lower()}"}, 422)
    if isinstance(error, HTTPException):
        return JSONResponse({"error": str(error.detail)}, error.status_code)
    if isinstance(error, OSError):
        log.error("the disk refuses: %s", error)
        return JSONResponse({"error": "the server cannot write to its disk: nothing was recorded"}, 507)
    return JSONResponse({"error": str(error)}, status_of(error))


async def fail(request: Request, error: Exception) -> JSONResponse:
    """A mistake of the server: the log has the rest."""
    del error  # raised again after the answer
    return JSONResponse({"error": f"{request.url.path} failed on the server: its log says why"}, 500)


def add_api(app: FastAPI) -> None:
    """Put the API on an application whose ``state.service`` is set."""
    app.include_router(router)
    app.add_api_route("/docs", docs, include_in_schema=False)
    for kind in (Refused, SessionError, OSError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refuse)
    app.add_exception_handler(Exception, fail)
