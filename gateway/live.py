"""One client's view of one chat: everything in order, nothing twice, nothing left out.

Attaching registers for live events first and holds them back; then the log is read to its end and
sent; then what was held back follows, without what was sent already, and the running turn as it is
in that very step. Doing it the other way round loses what happens in between.

On one connection the frames of a chat that carry a number go out in increasing order, so the
highest number a client has seen is always a safe place to resume from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from channels.channel import Event, Sink
from channels.errors import Refused
from channels.websocket.protocol import plan
from gateway.bus import Bus, Shown, message_fields
from gateway.lanes import Lanes
from gateway.users import User
from sessions.key import SessionKey
from sessions.session import Session
from sessions.store import SessionStore

MOST_HELD = 1_024
PAGE = 100

_LIVE = frozenset({"turn_start", "delta", "reasoning", "tool"})


class Watch:
    """A chat as one client watches it: held while it is replayed, then live."""

    def __init__(self, session: Session, who: User, sink: Sink) -> None:
        self.key = session.key
        self._session, self._who = session, who
        self.sent = 0
        """The highest number that went out."""
        self.overflowed = False
        self.closed = False
        self._sink = sink
        self._held: list[Event] | None = []

    def on_event(self, event: Event) -> None:
        """Called in the step in which the event happens."""
        if self.over or not self._who.may_read(self._session):
            return  # Somebody else began this chat after we had asked for it.
        if self._held is None:
            self._pass(event)
        elif event.kind == "ack" or len(self._held) < MOST_HELD:
            self._held.append(event)
        else:
            # The reader is slower than the chat: it is sent the log once more instead.
            self.overflowed = True

    @property
    def over(self) -> bool:
        """The chat was deleted; one that begins under its name is another."""
        return self._session.retired

    def show(self, event: Event) -> None:
        """Part of the replay."""
        self.sent = max(self.sent, event.seq)
        self._sink.send(event)

    def begin_again(self) -> None:
        """Keeps the acknowledgements: the log does not repeat them."""
        self._held = [event for event in self._held or [] if event.kind == "ack"]
        self.overflowed = False

    def open(self, running: dict[str, Any] | None) -> None:
        """The replay is over: what was held back follows, then everything as it happens.

        The words of a turn are not among it: `running` has all of them up to this step.
        """
        held, self._held = self._held or [], None
        for event in held:
            if event.kind not in _LIVE:
                self._pass(event)
        if running is not None:
            self._sink.send(Event("turn_start", running, turn=running["turn"]))

    def _pass(self, event: Event) -> None:
        if event.kind == "message":
            if event.seq <= self.sent:
                return
            self.sent = event.seq
        self._sink.send(event)


class Live:
    def __init__(
        self,
        store: SessionStore,
        bus: Bus,
        lanes: Lanes,
        shown: Shown,
        count_reconnect: Callable[[], None],
    ) -> None:
        self._store, self._bus, self._lanes = store, bus, lanes
        self._shown, self._count_reconnect = shown, count_reconnect

    async def watch(self, key: SessionKey, who: User, sink: Sink, *, new: bool = False) -> Watch:
        """Registers for live events, held back until `replay` is over. Raises Refused.

        A chat that is not there, and one that is somebody else's, look the same.
        """
        session = await self._store.get_or_create(key)
        if not who.may_read(session) and not (new and session.file is None):
            raise Refused("not_found", "There is no such chat.")
        watch = Watch(session, who, sink)
        self._bus.subscribe(key, watch.on_event)
        return watch

    def _running(self, key: SessionKey) -> dict[str, Any] | None:
        turn = self._lanes.turns.get(key)
        if turn is None or turn.outcome != "pending":
            return None
        return turn.snapshot()

    def unwatch(self, watch: Watch) -> None:
        watch.closed = True
        self._bus.unsubscribe(watch.key, watch.on_event)

    async def replay(
        self, watch: Watch, sink: Sink, who: User, since: int | None, log: str | None
    ) -> None:
        """Sends what the client has missed, at the pace of its socket, then lets events through."""
        if since is not None:
            self._count_reconnect()
        session = await self._store.get_or_create(watch.key)
        wanted = plan(since, log, own_log=session.state.log, last_seq=session.last_seq)
        rows, more = [], False
        if session.file is not None:
            page = await self._store.read(watch.key, after=wanted.after, limit=wanted.limit)
            if page.more and wanted.after is not None:
                # Too far behind: the newest ones, and the client reads the older ones over HTTP.
                page = await self._store.read(watch.key, limit=wanted.limit)
            rows, more = page.records, page.more
        fields = {
            "log": session.state.log,
            "last_seq": session.last_seq,
            "first_seq": rows[0].seq if rows else session.last_seq + 1,
            "gap": more,
            "reset": wanted.reset,
            "session": describe(session),
        }
        sink.send(Event("attached", fields))
        watch.sent = max(watch.sent, 0 if wanted.after is None else wanted.after)
        more = False
        while True:
            for row in rows:
                # What is not durable yet follows as an event once it is.
                if not row.is_note and row.seq <= session.heard:
                    watch.show(
                        Event("message", message_fields(row, self._shown), row.seq, row.turn)
                    )
                    if not await sink.drained():
                        return
            if not watch.overflowed and not more:
                break
            if watch.overflowed:
                watch.begin_again()
            page = await self._store.read(watch.key, after=watch.sent, limit=PAGE)
            rows, more = page.records, page.more
        if not watch.closed:
            watch.open(self._running(watch.key))


def describe(session: Session) -> dict[str, Any]:
    state = session.state
    return {
        "key": str(session.key),
        "title": session.title,
        "state": state.state,
        "agent": state.agent,
        "model": state.model,
        "tags": state.tags,
        "goal": session.metadata.get("goal_state"),
        "conversation": state.conversation,
        "message_count": session.message_count,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
    }
