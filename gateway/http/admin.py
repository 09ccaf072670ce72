"""What the admin socket serves: the whole API with an administrator's rights, and upkeep.

Upkeep (`/api/v1/admin/…`) takes long. Its answer is one JSON object per line: how far the work is,
again and again, and at last its `result` or an `error`. Hanging up stops it between two files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway import admin
from gateway.http.answers import encode
from gateway.http.auth import OPERATOR
from gateway.http.context import Context, InContext
from gateway.http.problems import Problem
from gateway.http.protocol import HttpProtocol
from sessions.errors import SessionError
from sessions.store_jsonl import JsonlStore

PROGRESS_SECONDS = 0.5

Progress = Callable[[int, int], None]
Work = Callable[[JsonlStore, Progress], Awaitable[msgspec.Struct]]

router = APIRouter(prefix="/api/v1/admin", include_in_schema=False)


class Door:
    """The gateway's app for those who came in through the admin socket."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, OPERATOR: True}, receive, send)


class AdminProtocol(HttpProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        if not admin.is_ours(transport.get_extra_info("socket")):
            transport.abort()


class Migration(BaseModel):
    source: str
    keep: bool = False


@router.post("/repair")
async def repair(request: Request, context: InContext) -> Response:
    from gateway.cli.sessions.repair import repair as mend

    return _follow(request, context, lambda store, progress: mend(store, progress, alone=False))


@router.post("/migrate")
async def migrate(migration: Migration, request: Request, context: InContext) -> Response:
    from gateway.cli.sessions.migration import move

    source = Path(migration.source)
    return _follow(
        request,
        context,
        lambda store, progress: move(store, source, progress, keep=migration.keep),
    )


def _follow(request: Request, context: Context, work: Work) -> Response:
    if OPERATOR not in request.scope:
        raise Problem(404, "There is nothing here.")
    store = context.gateway.store
    if not isinstance(store, JsonlStore):
        raise Problem(409, "This store has no files.")
    return StreamingResponse(_lines(context, store, work), media_type="application/x-ndjson")


async def _lines(context: Context, store: JsonlStore, work: Work) -> AsyncIterator[bytes]:
    reached = {"done": 0, "total": 0}

    def progress(done: int, total: int) -> None:
        reached.update(done=done, total=total)

    async def run() -> msgspec.Struct:
        return await work(store, progress)

    # A task of the gateway's: a stop ends it before the store is closed.
    task = context.gateway.tasks.spawn(run(), "upkeep", awaited=True)
    try:
        while not (await asyncio.wait([task], timeout=PROGRESS_SECONDS))[0]:
            yield _line(reached)
        yield _line(_outcome(task))
    finally:
        task.cancel()


def _outcome(task: asyncio.Task[msgspec.Struct]) -> dict[str, Any]:
    if task.cancelled():
        return {"error": "the gateway is stopping; what is done stays done"}
    error = task.exception()
    if error is None:
        return {"result": msgspec.to_builtins(task.result())}
    if isinstance(error, SessionError):
        return {"error": str(error)}
    raise error


def _line(value: dict[str, Any]) -> bytes:
    return encode(value) + b"\n"
