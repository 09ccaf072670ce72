"""What a client is shown that attaches while a turn goes on."""

from __future__ import annotations

from typing import Any

from channels.channel import Event
from gateway.bus import Bus, message_fields
from gateway.live import Live
from gateway.users import LOCAL
from sessions.key import SessionKey
from sessions.record import Record, closing, user
from sessions.session import Session
from sessions.store_memory import MemoryStore

KEY = SessionKey("websocket", "c")


class RunningTurn:
    """As much of a turn as its watchers see."""

    def __init__(self, session: Session) -> None:
        self.session, self.answering = session, session.pending
        self.text, self.n, self.outcome = "", 0, "pending"

    def snapshot(self) -> dict[str, Any]:
        return {"turn": "t", "n": self.n, "text": self.text}


class Lanes:
    def __init__(self) -> None:
        self.turns: dict[SessionKey, Any] = {}


class Room:
    """A chat with a turn that runs on while a client is being shown what it missed."""

    def __init__(self) -> None:
        self.store, self.bus, self.lanes = MemoryStore(), Bus(), Lanes()
        self.live = Live(self.store, self.bus, self.lanes, list, lambda: None)  # type: ignore[arg-type] # as much of the lanes as it uses
        self.store.listen(self._publish)
        self.events: list[Event] = []
        self.meanwhile: list[Any] = []

    def _publish(self, session: Session, rows: Any) -> None:
        for row in rows:
            self.bus.publish(KEY, Event("message", message_fields(row), row.seq, row.turn))

    async def begin(self) -> RunningTurn:
        await self.store.open()
        await self.store.append(KEY, [user("question", id="1")])
        session = await self.store.get_or_create(KEY)
        turn = self.lanes.turns[KEY] = RunningTurn(session)
        return turn

    def say(self, text: str) -> None:
        turn = self.lanes.turns[KEY]
        self.bus.publish(KEY, Event("delta", {"turn": "t", "n": turn.n, "text": text}, turn="t"))
        turn.text, turn.n = turn.text + text, turn.n + 1

    async def attach(self) -> list[tuple[str, Any]]:
        watch = await self.live.watch(KEY, LOCAL, self)
        await self.live.replay(watch, self, LOCAL, 0, None)
        return [
            (event.kind, event.fields.get("text", event.seq))
            for event in self.events
            if event.kind != "attached"
        ]

    # -- the client's sink --------------------------------------------------------------------

    def send(self, event: Event) -> None:
        self.events.append(event)

    async def drained(self) -> bool:
        while self.meanwhile:
            await self.meanwhile.pop(0)()
        return True


async def test_words_that_came_meanwhile_are_shown_once() -> None:
    """The running turn is shown as it is at the end of the replay, and goes on from there."""
    room = Room()
    await room.begin()
    room.say("one ")

    async def later() -> None:
        room.say("two ")

    room.meanwhile = [later]
    seen = await room.attach()
    room.say("three")

    assert seen == [("message", 1), ("turn_start", "one two ")]
    assert room.events[-1].fields["n"] == 2


async def test_a_tool_call_logged_meanwhile_takes_its_words_along() -> None:
    """What the row says is not said again by the turn that follows it."""
    room = Room()
    turn = await room.begin()
    room.say("let me look ")

    async def later() -> None:
        call = Record("assistant", turn.text, turn="t", tool_calls=[{"id": "1"}])
        await room.store.append(KEY, [call])
        turn.text = ""

    room.meanwhile = [later]

    assert await room.attach() == [("message", 1), ("message", 2), ("turn_start", "")]


async def test_a_turn_that_is_settled_is_not_shown_as_running() -> None:
    """Between its closing record and its end there is nothing left to show."""
    room = Room()
    turn = await room.begin()
    room.say("answer")
    turn.outcome = "answered"
    await room.store.append(KEY, [closing("answer", {1: "answered"}, turn="t")])

    assert await room.attach() == [("message", 1), ("message", 2)]
