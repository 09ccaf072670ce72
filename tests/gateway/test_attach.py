"""Attaching at the end of a turn: the closing message once, and no turn that never ends."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels.channel import Event, Inbound, Sender
from gateway.app import Gateway
from gateway.config import Settings
from gateway.live import Watch
from gateway.users import LOCAL
from sessions.key import SessionKey
from sessions.record import user
from tests.http.conftest import Start
from tests.http.daemon import Chat

KEY = SessionKey("websocket", "c")
ATTACHES = 10_000
TURNS = 100
STEPS = 4
EVENTS = 7
"""Of a turn of three words: its message, its start, the words, the answer, its end."""


class Screen:
    """A sink that keeps what it is shown, and may make the replay wait."""

    def __init__(self, pauses: int = 0) -> None:
        self.events: list[Event] = []
        self._pauses = pauses

    def send(self, event: Event) -> None:
        self.events.append(event)

    async def drained(self) -> bool:
        for _ in range(self._pauses):
            await asyncio.sleep(0)
        return True

    def seqs(self) -> list[int]:
        return [event.seq for event in self.events if event.kind == "message"]

    def turns(self, kind: str) -> list[str | None]:
        return [event.turn for event in self.events if event.kind == kind]


@pytest.fixture(params=["memory: interval", "jsonl: interval", "jsonl: turn"])
async def gateway(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Gateway]:
    url, sync = request.param.split()
    settings = Settings.model_validate(
        {
            "data_dir": tmp_path,
            "agents": {"default": {"kind": "echo", "delay_ms": 0.001}},
            "storage": {"url": url, "sync": sync},
            "sessions": {"legacy_dirs": [], "file_cap": 0, "mailbox_depth": 10_000},
            "limits": {"messages_per_minute": 0},
        }
    )
    made = Gateway(settings)
    await made.start()
    yield made
    await made.stop()


async def say(gateway: Gateway, number: int) -> None:
    message = Inbound(
        channel=KEY.channel,
        chat_id=KEY.chat_id,
        id=str(number),
        sender=Sender("local"),
        text="one two three",
    )
    await gateway.router.receive(message, LOCAL, lambda _ack: None)


async def settled(gateway: Gateway) -> int:
    """Waits until nothing is left to do; the number of the last row."""
    while gateway.lanes.busy(KEY):
        await asyncio.sleep(0)
    session = await gateway.store.get(KEY)
    assert session is not None
    return session.last_seq


class Clock:
    """Counts what happens in the chat, so that an attach can choose its moment."""

    def __init__(self) -> None:
        self._moments = [asyncio.Event() for _ in range(EVENTS + 1)]
        self._now = 0
        self._moments[0].set()

    def tick(self, _event: Event) -> None:
        self._now += 1
        self._moments[self._now].set()

    async def wait(self, event: int, steps: int) -> None:
        """Until so much has happened, and then a few steps of the loop more."""
        await self._moments[event].wait()
        for _ in range(steps):
            await asyncio.sleep(0)


async def attach(gateway: Gateway, screen: Screen, since: int) -> Watch:
    watch = await gateway.live.watch(KEY, LOCAL, screen)
    await gateway.live.replay(watch, screen, LOCAL, since, None)
    return watch


def check(screen: Screen, since: int, last: int) -> None:
    ended = screen.turns("turn_end")

    assert screen.seqs() == list(range(since + 1, last + 1))
    assert set(screen.turns("turn_start")) <= set(ended)
    assert len(ended) == len(set(ended))


async def test_attaching_at_every_step_of_a_turn(gateway: Gateway) -> None:
    """10,000 times, with and without a pause in the replay: everything once, in order, ended."""
    chosen = random.Random(1)
    await say(gateway, 0)
    last, live = await settled(gateway), 0
    for number in range(1, TURNS + 1):
        since, clock = last, Clock()
        gateway.bus.subscribe(KEY, clock.tick)
        screens = [Screen(chosen.choice((0, 0, 1, 3))) for _ in range(ATTACHES // TURNS)]

        async def later(screen: Screen, at: int, clock: Clock = clock, since: int = since) -> Watch:
            await clock.wait(at % (EVENTS + 1), at // EVENTS % STEPS)
            return await attach(gateway, screen, since)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(later(screen, at)) for at, screen in enumerate(screens)]
            await say(gateway, number)
        last = await settled(gateway)
        for task, screen in zip(tasks, screens, strict=True):
            gateway.live.unwatch(task.result())
            check(screen, since, last)
            live += bool(screen.turns("turn_start"))
        gateway.bus.unsubscribe(KEY, clock.tick)

    assert not gateway.bus.watched(KEY)
    assert 0 < live < ATTACHES


async def test_a_replay_slower_than_the_chat(gateway: Gateway) -> None:
    """More happens during the replay than is held back: nothing is left out or repeated."""
    await gateway.store.append(KEY, [user("begin", id="x")])
    await settled(gateway)
    screen = Screen()
    release = asyncio.Event()

    async def drained() -> bool:
        await release.wait()
        return True

    screen.drained = drained  # type: ignore[method-assign]  # this one waits
    watch = await gateway.live.watch(KEY, LOCAL, screen)
    async with asyncio.TaskGroup() as group:
        group.create_task(gateway.live.replay(watch, screen, LOCAL, 0, None))
        await asyncio.sleep(0)
        for number in range(600):
            await say(gateway, number)
        last = await settled(gateway)
        release.set()

    assert screen.seqs() == list(range(1, last + 1))
    assert set(screen.turns("turn_start")) <= set(screen.turns("turn_end"))


async def watcher(chat: Chat, times: int, chosen: random.Random) -> None:
    """Attaches again and again from its cursor, and looks only at what follows each time."""
    seen = 2
    for _ in range(times):
        await chat.send("attach", chat_id="c", since=seen)
        await chat.frame("attached")
        open_turns: set[str] = set()
        wanted = seen + chosen.choice((1, 2, 2, 4))
        while seen < wanted or open_turns:
            frame = await next_of(chat)
            if frame["type"] == "message":
                assert frame["seq"] == seen + 1
                seen = frame["seq"]
            elif frame["type"] == "turn_start":
                open_turns.add(frame["turn"])
            elif frame["type"] == "turn_end":
                open_turns.discard(frame["turn"])
        await chat.send("detach", chat_id="c")
        await chat.send("ping", id="left")
        await chat.frame("pong")


async def next_of(chat: Chat) -> dict[str, Any]:
    async with asyncio.timeout(60):
        frame: dict[str, Any] = json.loads(await chat.socket.recv())
        return frame


async def test_attaching_over_real_connections(start: Start) -> None:
    """Several clients, a few hundred times, while somebody talks."""
    daemon = await start(limits={"messages_per_minute": 0}, sessions={"file_cap": 0})
    talker = await daemon.chat()
    await talker.say("c", "first", id="first")
    readers = [await daemon.chat() for _ in range(4)]
    async with asyncio.TaskGroup() as group:
        watching = [
            group.create_task(watcher(reader, 75, random.Random(at)))
            for at, reader in enumerate(readers)
        ]
        number = 0
        while not all(task.done() for task in watching):
            number += 1
            await talker.say("c", "one two three", id=str(number))

    assert number
