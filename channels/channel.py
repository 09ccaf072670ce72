"""What passes between a channel and the gateway.

`channels` ends where the words of a platform end: a channel turns what people do into `Inbound`
and shows them each `Event`. It never sees a store, a turn or another channel.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec


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
