"""Sessions and messages as programs see them over HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.bus import message_fields
from gateway.config import Settings
from gateway.media import Media
from sessions import index
from sessions.record import Record
from sessions.session import Session
from sessions.store import SessionInfo


def listed(info: SessionInfo, settings: Settings) -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(info)
    if not info.matches:
        value.pop("matches", None)
    return {**value, "max_tokens": settings.context.context_window}


def whole(session: Session, settings: Settings) -> dict[str, Any]:
    state = session.state
    return {
        **listed(index.describe(session), settings),
        "log": state.log,
        "last_seq": session.last_seq,
        "summary": state.summary,
        "usage": state.usage,
        "goal": session.metadata.get("goal_state"),
        "conversation": state.conversation,
        "custom": state.custom,
    }


def message(row: Record, media: Media) -> dict[str, Any]:
    """As the `message` frame has it, without the chat."""
    fields = message_fields(row)
    if row.media:
        fields["media"] = media.shown(row.media)
    return fields
