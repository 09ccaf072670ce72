"""`/healthz`, `/readyz` and `/metrics`."""

from __future__ import annotations

import asyncio
import os

import msgspec
from fastapi import APIRouter, Request
from loguru import logger
from starlette.responses import Response

from gateway.app import Gateway
from gateway.http import shapes
from gateway.http.answers import answer
from gateway.http.auth import is_forwarded, is_loopback
from gateway.http.context import InContext, get_user
from gateway.http.gate import host_name, is_loopback_name
from gateway.http.problems import Problem
from gateway.telemetry import CONTENT_TYPE
from sessions.errors import SessionError
from sessions.store import Stats

STATS_SECONDS = 2.0
LEAST_FREE_BYTES = 1 << 20

router = APIRouter(tags=["operation"])


@router.api_route("/healthz", methods=["GET", "HEAD"], include_in_schema=False)
async def alive() -> Response:
    return answer({"status": "ok"})


@router.get(
    "/readyz",
    response_model=shapes.Readiness,
    responses={**shapes.problems(), 503: {"model": shapes.Readiness, "description": "Not now"}},
)
async def ready(context: InContext, *, strict: bool = False) -> Response:
    """Whether messages are taken in; with `strict` also whether every channel can receive."""
    gateway = context.gateway
    refusal = store_refusal(gateway)
    channels = gateway.channels()
    deaf = [name for name, found in channels.items() if not found.receives]
    status = "ok"
    if gateway.state != "serving":
        status = gateway.state
    elif refusal is not None:
        status = "unavailable"
    elif deaf:
        status = "degraded"
    down = status not in ("ok", "degraded") or (strict and bool(deaf))
    value = {
        "status": status,
        "store": {"state": "ok"} if refusal is None else {"state": "failed", "reason": refusal},
        "channels": {
            name: {"state": found.state, **msgspec.to_builtins(found.details)}
            for name, found in channels.items()
        },
    }
    return answer(value, 503 if down else 200)


def store_refusal(gateway: Gateway) -> str | None:
    """Why the store would not take a message now."""
    if gateway.state == "starting":
        return None
    try:
        gateway.store.check_writable()
        if gateway.settings.storage.url == "jsonl:":
            found = os.statvfs(gateway.settings.data_dir)
            if found.f_bavail * found.f_frsize < LEAST_FREE_BYTES:
                return "the disk is full"
    except SessionError as error:
        return str(error)
    except OSError as error:
        return f"the data directory cannot be read: {error.strerror}"
    return None


@router.get("/metrics", include_in_schema=False)
async def metrics(request: Request, context: InContext) -> Response:
    """For a scraper on this machine, or an administrator."""
    if not _is_local(request):
        user = await get_user(request, context)
        if not user.admin:
            raise Problem(403, "This is for administrators.")
    stats = await _stats(context.gateway)
    # From here on nothing waits: the numbers are those of one moment.
    return Response(context.metrics.expose(context.gateway, stats), media_type=CONTENT_TYPE)


def _is_local(request: Request) -> bool:
    """A proxy on this machine passes on what comes from elsewhere."""
    host = host_name(request.headers.get("host", "")) or ""
    return is_loopback(request) and not is_forwarded(request) and is_loopback_name(host)


async def _stats(gateway: Gateway) -> Stats | None:
    if gateway.state in ("starting", "stopped"):
        return None
    try:
        async with asyncio.timeout(STATS_SECONDS):
            return await gateway.store.stats()
    except (TimeoutError, SessionError) as error:
        logger.bind(error=repr(error)).warning("session counts missing")
        return None
