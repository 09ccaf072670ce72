"""What can be done to a session as a whole."""

from __future__ import annotations

import secrets
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from gateway.http import shapes, views
from gateway.http.answers import answer
from gateway.http.context import Context, InContext, InKey, InSession
from gateway.http.problems import Problem
from gateway.http.shapes import problems
from sessions import conversations
from sessions.errors import ConversationEnded
from sessions.key import SessionKey
from sessions.record import Outcome, Record, closing
from sessions.session import Patch, Session

router = APIRouter(prefix="/api/v1/sessions/{key}", tags=["sessions"])
_ANSWERS: dict[str, Any] = {
    "response_model": shapes.SessionDetails,
    "responses": problems(404, 409),
}


@router.post("/archive", **_ANSWERS)
async def archive_session(session: InSession, key: InKey, context: InContext) -> Response:
    """Puts the session away; it can still be read."""
    return await _set_state(context, key, "archived", ("active", "suspended", "archived"))


@router.post("/suspend", **_ANSWERS)
async def suspend_session(session: InSession, key: InKey, context: InContext) -> Response:
    """Messages to a suspended session are rejected."""
    return await _set_state(context, key, "suspended", ("active", "suspended"))


@router.post("/resume", **_ANSWERS)
async def resume_session(session: InSession, key: InKey, context: InContext) -> Response:
    """The opposite of suspend."""
    return await _set_state(context, key, "active", ("active", "suspended"))


@router.post("/restore", **_ANSWERS)
async def restore_session(session: InSession, key: InKey, context: InContext) -> Response:
    """Brings an archived session back; of `key#n`, lets the model see that conversation again."""
    if key.conversation is None:
        return await _set_state(context, key, "active", ("active", "archived"))
    ended = conversations.find(await context.gateway.store.conversations(key.chat), key)
    draft = _boundary("This conversation goes on.")

    def decide(session: Session) -> tuple[list[Record], Patch | None]:
        _check_idle(context, key.chat)
        return conversations.resume(session, draft, ended)

    return await _apply(context, key.chat, decide)


@router.post("/reset", **_ANSWERS)
async def reset_session(session: InSession, key: InKey, context: InContext) -> Response:
    """Begins a new conversation without a list entry for the old one."""
    draft = _boundary("This is a new conversation.")

    def decide(session: Session) -> tuple[list[Record], Patch | None]:
        _check_idle(context, key)
        return conversations.start(session, draft, listed=False)

    return await _apply(context, key, decide)


@router.post("/compact", responses=problems(404, 501))
async def compact_session(
    session: InSession, compaction: shapes.Compaction | None = None
) -> Response:
    raise Problem(501, "Compaction is not available yet.")


@router.post("/uncompact", responses=problems(404, 501))
async def uncompact_session(session: InSession) -> Response:
    raise Problem(501, "Compaction is not available yet.")


async def _set_state(
    context: Context, key: SessionKey, state: str, allowed: tuple[str, ...]
) -> Response:
    def decide(session: Session) -> tuple[list[Record], Patch | None]:
        present = session.state.state
        if present not in allowed:
            raise Problem(409, f"This session is {present}.")
        return [], Patch(state=state)

    return await _apply(context, key, decide)


async def _apply(context: Context, key: SessionKey, decide: Any) -> Response:
    if key.conversation is not None:
        raise ConversationEnded(key)
    gateway = context.gateway
    session, _ = await gateway.store.transact(key, decide)
    gateway.router.announce(session)
    return answer(views.whole(session, gateway.settings))


def _check_idle(context: Context, key: SessionKey) -> None:
    """What the running turn has read must not change under it."""
    if context.gateway.lanes.busy(key):
        raise Problem(409, "A message is being answered. Try again afterwards.", code="busy")


def _boundary(text: str) -> Record:
    return closing(
        text,
        {},
        outcome=Outcome.COMMAND.value,
        turn=f"http-{secrets.token_hex(8)}",
        command=True,
    )
