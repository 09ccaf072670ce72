"""The rest of `/api/v1`: who I am, proactive messages, numbers and logs."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from gateway.http import shapes
from gateway.http.answers import answer
from gateway.http.auth import COOKIE
from gateway.http.context import Context, CurrentAdmin, CurrentUser, InContext
from gateway.http.problems import Problem, no_session
from gateway.http.shapes import problems
from gateway.tokens import LOGIN_SECONDS
from gateway.users import User
from sessions import store as stores
from sessions.errors import ConversationEnded, InvalidKey
from sessions.key import SessionKey
from sessions.record import Record
from sessions.session import Patch, Session

router = APIRouter(prefix="/api/v1")


# -- who I am -----------------------------------------------------------------------------------


@router.get("/me", tags=["users"], response_model=shapes.Me, responses=problems())
async def me(user: CurrentUser, context: InContext) -> Response:
    return answer({"user": user.id, "role": user.role, "mode": context.auth.mode})


@router.post("/login", tags=["users"], response_model=shapes.Me, responses=problems(409))
async def login(body: shapes.LoginBody, request: Request, context: InContext) -> Response:
    """Trades a token for a cookie, so that a page need not keep the token."""
    if context.auth.mode != "token":
        raise Problem(409, "This gateway does not use tokens.")
    cookie = await context.auth.login(body.token)
    user = context.auth.of_token(body.token)
    if cookie is None or user is None:
        wait = context.auth.failures.add(request)
        if wait:
            raise Problem(429, "Too many wrong tokens.", retry_after=wait)
        raise Problem(401, "This is no valid token.")
    found = answer({"user": user.id, "role": user.role, "mode": context.auth.mode})
    found.set_cookie(COOKIE, cookie, max_age=LOGIN_SECONDS, **_cookie_options(request))
    return found


@router.post("/logout", tags=["users"], status_code=204, responses=problems())
async def logout(request: Request, context: InContext) -> Response:
    cookie = request.cookies.get(COOKIE)
    if cookie is not None and context.auth.mode == "token":
        await context.auth.logout(cookie)
    found = Response(status_code=204)
    found.delete_cookie(COOKIE, **_cookie_options(request))
    return found


def _cookie_options(request: Request) -> dict[str, Any]:
    """A proxy in front speaks TLS for us; the page's own origin tells."""
    origin = request.headers.get("origin", "")
    secure = request.url.scheme == "https" or origin.lower().startswith("https://")
    return {"path": "/", "httponly": True, "samesite": "strict", "secure": secure}


# -- proactive messages -------------------------------------------------------------------------


class _Known(Exception):
    def __init__(self, seq: int) -> None:
        super().__init__(seq)
        self.seq = seq


@router.post(
    "/messages",
    tags=["messages"],
    status_code=202,
    response_model=shapes.Delivery,
    responses=problems(404, 409, 413),
)
async def send_message(
    message: shapes.ProactiveMessage, user: CurrentUser, context: InContext
) -> Response:
    """Says something in a chat without having been asked; in the log when this is answered."""
    key = _key(message.key)
    limit = context.gateway.settings.limits.text
    if len(message.text.encode("utf-8", "surrogatepass")) > limit:
        raise Problem(413, f"A message has at most {limit} bytes.")
    if not message.text.strip():
        raise Problem(422, "The message is empty.")
    draft = Record(
        "assistant",
        message.text,
        id=message.id or f"delivery-{secrets.token_hex(8)}",
        channel_delivery=True,
    )
    seq, duplicate = await _deliver(context, key, user, draft)
    value = {"delivery_id": draft.id, "key": str(key), "seq": seq, "duplicate": duplicate}
    return answer(value, 202)


async def _deliver(
    context: Context, key: SessionKey, user: User, draft: Record
) -> tuple[int, bool]:
    def decide(session: Session) -> tuple[list[Record], Patch | None]:
        if not user.may_read(session) and not (user.admin and session.file is None):
            raise no_session()
        _check_new(session, draft)
        if session.state.state in ("suspended", "archived"):
            raise Problem(409, f"This session is {session.state.state}.")
        return [draft], None

    try:
        _, appended = await context.gateway.store.transact(key, decide)
    except _Known as known:
        return known.seq, True
    return appended.records[0].seq, False


def _check_new(session: Session, draft: Record) -> None:
    """Raises _Known for a message that is in the log already."""
    for row in reversed(session.records):
        if row.id == draft.id and row.channel_delivery:
            if row.content != draft.content:
                raise Problem(409, "This id was used for another message.")
            raise _Known(row.seq)


def _key(text: str) -> SessionKey:
    try:
        key = SessionKey.parse(text)
    except InvalidKey as error:
        raise no_session() from error
    if key.conversation is not None:
        raise ConversationEnded(key)
    return key


# -- numbers and logs ---------------------------------------------------------------------------


@router.get("/stats", tags=["operation"], response_model=shapes.StatsShape, responses=problems())
async def stats(user: CurrentUser, context: InContext) -> Response:
    """Of everything for administrators, of their own sessions for everybody else."""
    if user.admin:
        return answer(await _all_stats(context))
    return answer(await _own_stats(context, user))


async def _all_stats(context: Context) -> dict[str, Any]:
    gateway = context.gateway
    found = await gateway.store.stats()
    states = found.sessions_by_state
    turns = gateway.lanes.turns
    answering = sum(len(turn.answering) for turn in turns.values())
    active = states.get("active", 0)
    return {
        "total_sessions": found.total_sessions,
        "active_sessions": active,
        "idle_sessions": max(0, active - len(turns)),
        "archived_sessions": states.get("archived", 0),
        "suspended_sessions": states.get("suspended", 0),
        "total_messages": found.total_messages,
        "total_tokens": found.total_tokens,
        "running_turns": len(turns),
        "queued_messages": max(0, gateway.ledger.pending - answering),
        "connections": len(gateway.connections),
        "undelivered_messages": found.undelivered_messages,
        "cached_sessions": found.cached_sessions,
        "cached_bytes": found.cached_bytes,
        "unsynced_bytes": found.unsynced_bytes,
        "open_files": found.open_files,
    }


async def _own_stats(context: Context, user: User) -> dict[str, Any]:
    gateway = context.gateway
    found = await gateway.store.find(stores.Query(user=user.id, limit=0))
    chats = [info for info in found.sessions if "#" not in info.key]
    running = [turn for turn in gateway.lanes.turns.values() if user.may_read(turn.session)]
    mine = [info.state for info in chats]
    answering = sum(len(turn.answering) for turn in running)
    return {
        "total_sessions": len(chats),
        "active_sessions": mine.count("active"),
        "idle_sessions": max(0, mine.count("active") - len(running)),
        "archived_sessions": mine.count("archived"),
        "suspended_sessions": mine.count("suspended"),
        "total_messages": sum(info.message_count for info in chats),
        "total_tokens": sum(info.token_count for info in chats),
        "running_turns": len(running),
        "queued_messages": max(0, sum(info.pending for info in chats) - answering),
        "connections": sum(1 for one in gateway.connections if one.user == user.id),
    }


@router.get("/logs", tags=["operation"], response_model=shapes.LogList, responses=problems())
async def logs(
    _admin: CurrentAdmin,
    context: InContext,
    level: Literal["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "TRACE",
    limit: Annotated[int, Query(ge=1, le=1_000)] = 200,
) -> Response:
    """The recent log events kept in memory; the newest last."""
    return answer({"events": context.logs.events(level, limit)})
