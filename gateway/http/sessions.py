"""`/api/v1/sessions`: lists, single sessions and their messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from gateway.http import export, shapes, views
from gateway.http.answers import answer, encode
from gateway.http.context import Context, CurrentUser, InContext, InKey, InSession
from gateway.http.problems import Problem, no_session
from gateway.http.shapes import MAX_NUMBER, SessionChange, problems
from sessions import clock
from sessions import store as stores
from sessions.errors import ConversationEnded
from sessions.key import SessionKey
from sessions.record import Outcome, Record, closing
from sessions.session import Patch, Session

DELETE_SECONDS = 5.0

router = APIRouter(prefix="/api/v1/sessions", tags=["sessions"])
Number = Annotated[int | None, Query(ge=0, le=MAX_NUMBER)]
Text = Annotated[str | None, Query(max_length=512)]
Time = Annotated[str | None, Query(max_length=64, json_schema_extra={"format": "date-time"})]


@router.get("", response_model=shapes.SessionList, responses=problems())
async def list_sessions(
    context: InContext,
    who: CurrentUser,
    *,
    channel: Text = None,
    agent: Text = None,
    user: Text = None,
    state: Text = None,
    tag: Text = None,
    q: Text = None,
    created_after: Time = None,
    created_before: Time = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Annotated[str | None, Query(max_length=4_096)] = None,
) -> Response:
    """Newest first. People see their own; administrators see all."""
    if not who.admin and user not in (None, who.id):
        return answer({"sessions": [], "next_cursor": None})
    query = stores.Query(
        channel=channel,
        agent=agent,
        user=user if who.admin else who.id,
        state=state,
        tag=tag,
        text=q,
        created_after=_time("created_after", created_after),
        created_before=_time("created_before", created_before),
        limit=limit,
        cursor=_cursor(cursor),
    )
    found = await context.gateway.store.find(query)
    settings = context.gateway.settings
    sessions = [views.listed(info, settings) for info in found.sessions]
    return answer({"sessions": sessions, "next_cursor": found.next_cursor})


@router.get("/{key}", response_model=shapes.SessionDetails, responses=problems(404))
async def show_session(session: InSession, context: InContext) -> Response:
    return answer(views.whole(session, context.gateway.settings))


@router.patch("/{key}", response_model=shapes.SessionDetails, responses=problems(404, 409, 413))
async def change_session(
    change: SessionChange, session: InSession, key: InKey, context: InContext
) -> Response:
    """Changes what is named and leaves the rest."""
    given = change.model_fields_set
    if "tags" in given and change.tags is None:
        raise Problem(422, "tags must be a list.")

    def decide(session: Session) -> tuple[list[Record], Patch | None]:
        values: dict[str, Any] = {}
        if "title" in given:
            values["title"] = " ".join((change.title or "").split()) or None
        if "tags" in given:
            values["tags"] = list(dict.fromkeys(change.tags or ()))
        if "custom" in given:
            values["custom"] = _merged(session.state.custom, change.custom)
        return [], Patch(**values)

    changed = await _change(context, key, decide)
    return answer(views.whole(changed, context.gateway.settings))


@router.delete("/{key}", status_code=204, responses=problems(404, 409))
async def delete_session(session: InSession, key: InKey, context: InContext) -> Response:
    """Removes the session, its archive and its files for good. What runs is stopped."""
    if key.conversation is not None:
        raise ConversationEnded(key)
    gateway = context.gateway
    await _withdraw(context, key)
    media = [name async for row in _rows(context, key) for name in _media_ids(row)]
    if not await gateway.store.delete(key):
        raise no_session()
    gateway.router.announce(session, state="deleted")
    if media:
        await asyncio.to_thread(gateway.media.delete, media)
    return Response(status_code=204)


@router.get("/{key}/messages", response_model=shapes.MessageList, responses=problems(404))
async def list_messages(
    session: InSession,
    key: InKey,
    context: InContext,
    *,
    after: Number = None,
    before: Number = None,
    limit: Annotated[int, Query(ge=1, le=stores.MAX_PAGE)] = 200,
) -> Response:
    """Messages after a number, or the last ones before one; the archive included."""
    found: list[Record] = []
    more = True
    while more and len(found) < limit:
        # Notes are no messages: a page is read on until it is full without them.
        page = await context.gateway.store.read(
            key, after=after, before=before, limit=limit - len(found)
        )
        rows = [row for row in page.records if not row.is_note]
        found = found + rows if after is not None else rows + found
        more = page.more and bool(page.records)
        if page.records and after is not None:
            after = page.records[-1].seq
        elif page.records:
            before = page.records[0].seq
    media = context.gateway.media
    return answer({"messages": [views.message(row, media) for row in found], "more": more})


@router.get("/{key}/export", responses=problems(404), response_class=StreamingResponse)
async def export_session(
    session: InSession,
    key: InKey,
    context: InContext,
    format: Literal["md", "jsonl", "json"] = "md",
) -> Response:
    """The whole session as a file."""
    kind = export.MEDIA_TYPES[format]
    head = encode(views.whole(session, context.gateway.settings))
    pieces = export.pieces(format, session, head, _rows(context, key))
    headers = {"Content-Disposition": f'attachment; filename="session.{format}"'}
    return StreamingResponse(pieces, media_type=kind, headers=headers)


# -- helpers of these routes --------------------------------------------------------------------


async def _change(context: Context, key: SessionKey, decide: Any) -> Session:
    """Changes metadata in one step with what it depends on; every list learns of it."""
    if key.conversation is not None:
        raise ConversationEnded(key)
    gateway = context.gateway
    session, _ = await gateway.store.transact(key, decide)
    gateway.router.announce(session)
    return session


async def _withdraw(context: Context, key: SessionKey) -> None:
    """No new message gets in, those that wait are withdrawn, and the one being answered stops."""
    lanes = context.gateway.lanes

    def decide(session: Session) -> tuple[list[Record], Patch | None]:
        if session.file is None:
            raise no_session()
        turn = lanes.turns.get(key)
        running = {row.seq for row in turn.answering} if turn is not None else set()
        waiting = [seq for seq in session.unsettled if seq not in running]
        settled = dict.fromkeys(waiting, Outcome.WITHDRAWN.value)
        rows = [closing("", settled, outcome=Outcome.WITHDRAWN.value)] if settled else []
        return rows, Patch(state="suspended")

    await context.gateway.store.transact(key, decide)
    lanes.interrupt(key, Outcome.STOPPED)
    await _until_idle(context, key)


async def _until_idle(context: Context, key: SessionKey) -> None:
    """A turn that was stopped writes its end before its log goes away."""
    deadline = asyncio.get_running_loop().time() + DELETE_SECONDS
    while (  # noqa: ASYNC110 - a lane tells nobody that it has ended
        context.gateway.lanes.busy(key) and asyncio.get_running_loop().time() < deadline
    ):
        await asyncio.sleep(0.01)


async def _rows(context: Context, key: SessionKey) -> AsyncIterator[Record]:
    """Every row through the archive, a page at a time."""
    after = 0
    while True:
        page = await context.gateway.store.read(key, after=after, limit=500)
        for row in page.records:
            yield row
        if not page.more or not page.records:
            return
        after = page.records[-1].seq


def _media_ids(row: Record) -> list[str]:
    fetched = row.note.get("media") if row.is_note and row.note is not None else None
    items = [*(row.media or ()), *(fetched if isinstance(fetched, list) else ())]
    return [item["id"] for item in items if isinstance(item, dict) and "id" in item]


def _merged(known: dict[str, Any], change: dict[str, Any] | None) -> dict[str, Any]:
    merged = {**known, **change} if change is not None else {}
    kept = {name: value for name, value in merged.items() if value is not None}
    if len(encode(kept)) > shapes.MAX_CUSTOM_BYTES:
        raise Problem(413, f"custom has at most {shapes.MAX_CUSTOM_BYTES} bytes.")
    return kept


def _time(name: str, text: str | None) -> str | None:
    found = clock.normal(text) if text is not None else None
    if text is not None and found is None:
        raise Problem(422, f"{name} must be a time, for instance 2030-01-31T12:00:00Z.")
    return found


def _cursor(text: str | None) -> str | None:
    try:
        if text is not None:
            stores.read_cursor(text)
    except (ValueError, msgspec.MsgspecError) as error:
        raise Problem(422, "cursor must be a next_cursor of an earlier answer.") from error
    return text
