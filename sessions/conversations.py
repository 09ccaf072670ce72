"""The conversations of a chat. Pure.

A chat has one log for ever. The closing record of `/new` and `/reset` is the boundary: it carries
the number of the conversation that begins and, in its note, what is to be known of the one that
ends: its title, its summary, its goal, and where in the log it began. The rows after one boundary
up to and including the next are a conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sessions.errors import SessionNotFound
from sessions.key import SessionKey
from sessions.record import NoteKind, Record
from sessions.session import END, Offset, Patch, Session
from sessions.store import Conversation

MAX_CONTINUED = 8
_CLEARED = {"goal_state": None, "thread_goal": None, "_last_summary": None}


def start(session: Session, draft: Record, *, listed: bool) -> tuple[list[Record], Patch]:
    """The closing record and the change of metadata that begin the next conversation."""
    state = session.state
    facts = {
        "kind": NoteKind.CONVERSATION.value,
        "ended": state.conversation,
        "first": state.conversation_start,
        "title": session.title,
        "preview": state.preview,
        "summary": state.summary,
        "goal": session.metadata.get("goal_state"),
        "continues": state.continues,
        "listed": listed,
        "started_at": state.conversation_at or session.created_at,
    }
    record = msgspec.structs.replace(draft, conversation=state.conversation + 1, note=_known(facts))
    return [record], _beginning(state.conversation + 1, {})


def _known(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value not in (None, "", [], {})}


def _beginning(number: int, resumed: dict[str, Any]) -> Patch:
    """A fresh conversation, or one that takes up what the row's note says of an older one."""
    return Patch(
        conversation=number,
        consolidated=END,
        title=resumed.get("title"),
        summary=resumed.get("summary"),
        previous=None,
        preview=resumed.get("preview") or "",
        continues=[(first, last) for first, last in resumed.get("continues") or ()],
        metadata={**_CLEARED, "goal_state": resumed.get("goal")},
    )


def catch_up(session: Session, rows: Sequence[Record]) -> bool:
    """A crash may leave the row that begins a conversation without the metadata behind it."""
    kind = NoteKind.CONVERSATION
    begun = [row for row in rows if row.conversation and row.note and row.note.get("kind") == kind]
    number = begun[-1].conversation if begun else None
    if number is None or number <= session.state.conversation:
        return False
    resumed = (begun[-1].note or {}).get("resumed")
    patch = _beginning(number, resumed if isinstance(resumed, dict) else {})
    session.metadata, session.state = session.patched(patch, begun[-1].seq)
    return True


def resume(session: Session, draft: Record, ended: Conversation) -> tuple[list[Record], Patch]:
    """Ends the present conversation; the next one goes on where `ended` stopped."""
    [record], _ = start(session, draft, listed=True)
    resumed = _known(
        {
            "title": ended.title,
            "summary": ended.summary,
            "preview": ended.preview,
            "continues": [*ended.continues, (ended.first, ended.last)][-MAX_CONTINUED:],
            "goal": ended.goal,
        }
    )
    record = msgspec.structs.replace(record, note={**(record.note or {}), "resumed": resumed})
    return [record], _beginning(session.state.conversation + 1, resumed)


def find(ended: Sequence[Conversation], key: SessionKey) -> Conversation:
    for conversation in reversed(ended):
        if conversation.number == key.conversation and conversation.listed:
            return conversation
    raise SessionNotFound(key)


def bounds(
    ended: Conversation, after: int | None, before: int | None
) -> tuple[int | None, int | None]:
    """The part of a cursor read that lies in the conversation."""
    upper = ended.last + 1 if before is None else min(before, ended.last + 1)
    return (None if after is None else max(after, ended.first)), upper


def view(session: Session, key: SessionKey, ended: Conversation, rows: Sequence[Record]) -> Session:
    """An ended conversation as a session of its own, to be read."""
    found = Session(key)
    found.created_at, found.updated_at = ended.started_at, ended.ended_at
    found.metadata = {"title": ended.title} if ended.title else {}
    found.state = msgspec.structs.replace(
        session.state,
        state="archived",
        conversation=ended.number,
        conversation_start=ended.first,
        continues=ended.continues,
        preview=ended.preview,
        summary=ended.summary,
        consolidated=Offset(),
        settled_through=ended.last,
        delivered_through=ended.last,
        usage={},
        usage_through=0,
    )
    found.restart([row for row in rows if ended.first < row.seq <= ended.last])
    found.file = session.file
    return found
