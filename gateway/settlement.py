"""Rows that follow from other rows: into the very log those are in, and never settling one twice.

Between the moment a row is made and the moment it can be written the chat may have been deleted,
and another begun under its name whose numbers mean other messages. And what it settles may have
been settled by somebody else. Both are looked at in the step of the write.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sessions.errors import SessionNotFound
from sessions.record import Record
from sessions.session import Patch, Session
from sessions.store import SessionStore


async def write(
    store: SessionStore,
    session: Session,
    draft: Record,
    patch: Callable[[], Patch | None] = lambda: None,
) -> Record:
    """Raises SessionNotFound if the session's log is gone."""

    def decide(current: Session) -> tuple[list[Record], Patch | None]:
        if session.retired or current.state.log != session.state.log:
            raise SessionNotFound(session.key)
        return [_still_open(draft, current)], patch()

    _, appended = await store.transact(session.key, decide)
    return appended.records[0]


def _still_open(draft: Record, session: Session) -> Record:
    if not draft.settles:
        return draft
    settles = {seq: how for seq, how in draft.settles.items() if seq in session.unsettled}
    return msgspec.structs.replace(draft, settles=settles)
