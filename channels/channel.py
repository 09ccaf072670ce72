"""What passes between a channel and the gateway.

`channels` ends where the words of a platform end: a channel turns what people do into `Inbound`
and shows them each `Event`. It never sees a store, a turn or another channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine
from typing import Any, Protocol, TypeVar

import msgspec

T = TypeVar("T")


class Sender(msgspec.Struct, frozen=True):
    id: str
    name: str = ""


class Inbound(msgspec.Struct, frozen=True, kw_only=True):
    """A message somebody sent."""

    channel: str
    chat_id: str
    id: str
    """Unique in its chat; the same message sent again has the same id."""
    sender: Sender
    text: str
    media: list[dict[str, Any]] = []
    replaces: int | None = None
    """The number of an own message that this one takes the place of."""
    regenerate: bool = False
    """The last answer is wanted anew; `text` is empty."""


class Event(msgspec.Struct):
    """Something that happened in a chat, to be shown at once to everybody who watches it."""

    kind: str
    """ack, message, turn_start, delta, reasoning, tool, turn_end, session, attached."""
    fields: dict[str, Any]
    seq: int = 0
    """The number of the row it shows; 0 if it shows none."""
    turn: str | None = None
    frames: dict[str, bytes] = {}
    """Encoded forms, kept so that an event is encoded once however many watch."""


class Sink(Protocol):
    """Where a watcher's events go. Nothing is lost silently: a sink that is full closes itself."""

    def send(self, event: Event) -> None:
        """Takes the event at once; must not raise."""

    async def drained(self) -> bool:
        """Waits until there is room for more; False if nobody reads any more."""


class Tasks(Protocol):
    """Background work with an owner, given by the gateway: waited for, and loud when it dies."""

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]: ...

    async def cancel(self, seconds: float = 2.0) -> bool: ...


class ChannelState(msgspec.Struct, frozen=True):
    state: str
    """starting, connected, degraded, failed, stopped or disabled."""
    details: dict[str, Any] = {}

    @property
    def receives(self) -> bool:
        return self.state in ("connected", "disabled")


class Channel(Protocol):
    """One platform. `start` returns at once; a platform that is away never holds up the others."""

    name: str

    async def start(self) -> None: ...

    async def stop_intake(self) -> None:
        """Nothing new comes in from here on; what is out there is still delivered."""

    async def stop(self) -> None: ...

    def status(self) -> ChannelState: ...


# -- channels that carry the answers themselves ----------------------------------------------------


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer on its way to a push channel, before its text is known."""

    chat_id: str
    delivery: str
    """The same after a crash and a rerun: what was posted under it is edited, not posted again."""
    turn: str = ""
    answers: str | None = None
    """The id of the message it answers; None for what nobody asked for."""
    recipient: str = ""
    """Who asked."""
    handle: dict[str, Any] = {}
    """What the channel noted about this delivery, in this process or an earlier one."""
    doubtful: bool = False
    """Something may have been posted without a note: look before posting."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of it, as it is in the log."""

    text: str
    outcome: str
    error: str = ""
    media: list[dict[str, Any]] = []
    command: bool = False


Note = Callable[[dict[str, Any]], Awaitable[None]]
"""Keeps a channel's handle of a delivery in the log; returns once it is there."""


class Delivery(Protocol):
    """One reply of a push channel: shown while it grows, then finished, exactly once."""

    def show(self, event: Event) -> None:
        """turn_start, delta, reasoning or tool. Must neither wait nor raise."""

    async def finish(self, answer: Answer) -> dict[str, Any]:
        """Returns what is worth noting. Raises Later, and is called again, or Undeliverable."""

    async def leave(self) -> None:
        """No answer comes, now or in this process: stops whatever it still does."""


class PushChannel(Channel, Protocol):
    def open(self, reply: Reply, note: Note) -> Delivery: ...

    def place(self, id: str) -> str | None:
        """Where the message of this id stands in its chat: those of a chat are answered in the
        order of these strings. None: where it arrived."""

    def fetch(self, chat_id: str, item: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """The bytes of a file somebody sent, as `Inbound.media` names it. Raises Unavailable, or
        Later if another attempt may succeed."""

    async def surroundings(self, chat_id: str, id: str, known: Collection[str]) -> str:
        """What was said around the message `id` and is not in the log, whose ids are `known`:
        quoted, as the model is to read it. Empty if there is nothing; takes seconds at most."""
