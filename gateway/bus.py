"""Live events: from the turn that makes them to everybody who watches that chat.

The log is the truth; what passes here is only the live view of it, and may be lost without harm.
Subscribers are called in the step in which the event happens, in the order of events, and must
neither wait nor raise. An event is turned into bytes once, however many watch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from loguru import logger

from channels.channel import Event
from sessions.key import SessionKey
from sessions.record import Record

Subscriber = Callable[[Event], None]
Follower = Callable[[SessionKey, Event], None]
Shown = Callable[[list[Any]], list[Any]]


class Bus:
    """The live view within one process."""

    def __init__(self) -> None:
        self._watchers: dict[SessionKey, set[Subscriber]] = {}
        self._owners: dict[str, set[Subscriber]] = {}
        self._followers: dict[str, Follower] = {}

    def follow(self, channel: str, follower: Follower) -> None:
        """Every event of every chat of a channel."""
        self._followers[channel] = follower

    def subscribe(self, key: SessionKey, subscriber: Subscriber) -> None:
        self._watchers.setdefault(key, set()).add(subscriber)

    def unsubscribe(self, key: SessionKey, subscriber: Subscriber) -> None:
        watchers = self._watchers.get(key)
        if watchers is not None:
            watchers.discard(subscriber)
            if not watchers:
                del self._watchers[key]

    def watched(self, key: SessionKey) -> int:
        return len(self._watchers.get(key, ()))

    def publish(self, key: SessionKey, event: Event) -> None:
        watchers = self._watchers.get(key)
        if watchers:
            _tell(tuple(watchers), event)
        follower = self._followers.get(key.channel)
        if follower is not None:
            _tell([functools.partial(follower, key)], event)

    def join(self, user: str, subscriber: Subscriber) -> None:
        """For `session` events: every connection of a user, attached or not."""
        self._owners.setdefault(user, set()).add(subscriber)

    def leave(self, user: str, subscriber: Subscriber) -> None:
        members = self._owners.get(user)
        if members is not None:
            members.discard(subscriber)
            if not members:
                del self._owners[user]

    def publish_to(self, users: Sequence[str], event: Event) -> None:
        told = {member for user in users for member in self._owners.get(user, ())}
        if told:
            _tell(tuple(told), event)


def _tell(subscribers: Sequence[Subscriber], event: Event) -> None:
    for subscriber in subscribers:
        try:
            subscriber(event)
        except Exception as error:  # noqa: BLE001 - one that cannot hear must not silence the others
            logger.opt(exception=error).error("subscriber failed")


def message_fields(row: Record, shown: Shown = list) -> dict[str, Any]:
    """A row as clients see it; `shown` gives its files links."""
    fields: dict[str, Any] = {
        "seq": row.seq,
        "role": row.role,
        "content": row.text,
        "timestamp": row.timestamp,
    }
    named = {
        "id": row.id,
        "turn": row.turn,
        "outcome": row.outcome,
        "latency_ms": row.latency_ms,
        "media": shown(row.media) if row.media else None,
        "tool_calls": row.tool_calls,
        "tool_call_id": row.tool_call_id,
        "name": row.name,
        "reasoning": row.reasoning_content,
        "sender": row.sender,
        "usage": row.usage,
        "error": row.error,
        "settles": row.settles,
        "replaces": row.replaces,
        "conversation": row.conversation,
        "command": row.command or None,
    }
    fields.update((name, value) for name, value in named.items() if value is not None)
    return fields
