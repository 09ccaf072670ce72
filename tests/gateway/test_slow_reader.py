"""A long history and a reader that takes its time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import psutil
from websockets.exceptions import ConnectionClosed

from tests.http.conftest import Start
from tests.http.daemon import Chat, Daemon

MESSAGES = 90
TEXT = "z" * 60_000
LAST = 2 * MESSAGES


async def fill(daemon: Daemon) -> Chat:
    """More than 10 MB in one chat."""
    talker = await daemon.chat()
    for number in range(MESSAGES):
        await talker.say("c", TEXT, id=str(number))
    talker.frames.clear()
    return talker


async def read(daemon: Daemon, talker: Chat, *, pause: int) -> tuple[list[int], list[int | None]]:
    """Reads to the end, resuming by cursor when cut off; while the others go on talking.

    Between two frames `pause` other turns happen, so the reader is slower than the gateway.
    """
    seen: list[int] = []
    cuts: list[int | None] = []
    number = 0
    while not seen or seen[-1] < LAST:
        reader = await daemon.chat(max_queue=1)
        await reader.send("attach", chat_id="c", since=seen[-1] if seen else 0)
        try:
            while not seen or seen[-1] < LAST:
                async with asyncio.timeout(60):
                    frame: dict[str, Any] = json.loads(await reader.socket.recv())
                if frame["type"] == "message":
                    seen.append(frame["seq"])
                    for _ in range(pause):
                        number += 1
                        await talker.say("other", "quick", id=str(number))
        except ConnectionClosed:
            cuts.append(reader.socket.close_code)
        reader.socket.transport.abort()
    return seen, cuts


async def test_a_long_history_reaches_a_slow_reader(start: Start) -> None:
    """All of it in order, at the reader's pace, without a buffer in between; others are served."""
    daemon = await start(limits={"messages_per_minute": 0})
    talker = await fill(daemon)
    process = psutil.Process(daemon.pid)
    before = process.memory_info().rss
    seen, cuts = await read(daemon, talker, pause=2)

    assert seen == list(range(1, LAST + 1))
    assert cuts == []
    assert process.memory_info().rss < before + 30_000_000


async def test_a_reader_that_is_cut_off_resumes(start: Start) -> None:
    """One that reads nothing while much happens is cut with 1013 and misses nothing by it."""
    daemon = await start(limits={"messages_per_minute": 0})
    reader = await daemon.chat(max_queue=1)
    talker = await daemon.chat()
    await talker.say("c", "begin", id="begin")
    await reader.send("attach", chat_id="c", since=0)
    await reader.frame("message")
    await reader.frame("message")
    reader.socket.transport.pause_reading()
    for number in range(MESSAGES):
        await talker.say("c", TEXT, id=str(number))
    reader.socket.transport.resume_reading()
    seen = 2
    try:
        while True:
            frame = await reader.frame("message")
            assert frame["seq"] == seen + 1
            seen = frame["seq"]
    except ConnectionClosed:
        pass
    again = await daemon.chat()
    await again.send("attach", chat_id="c", since=seen)
    rest = [(await again.frame("message"))["seq"] for _ in range(LAST + 2 - seen)]

    assert reader.socket.close_code == 1013
    assert rest == list(range(seen + 1, LAST + 3))
