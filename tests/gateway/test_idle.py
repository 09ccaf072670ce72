"""Clients that are there and do nothing, and clients that are gone without a word."""

from __future__ import annotations

import asyncio
import base64
import os
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from websockets.frames import Frame, Opcode

from tests.http.conftest import Start
from tests.http.daemon import PATIENCE_SECONDS, Daemon

QUICK = {"websocket": {"ping_seconds": 1}}
MANY = 2_000


class Silent:
    """A TCP client that asks for a WebSocket and then neither answers nor leaves."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, daemon: Daemon) -> Silent:
        address = urlsplit(daemon.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=4096)
        key = base64.b64encode(os.urandom(16)).decode()
        head = (
            f"GET /ws HTTP/1.1\r\nHost: {address.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        )
        writer.write(head.encode())
        async with asyncio.timeout(PATIENCE_SECONDS):
            answer = await reader.readuntil(b"\r\n\r\n")
        assert b" 101 " in answer
        return cls(reader, writer)

    def send(self, opcode: Opcode, data: bytes) -> None:
        self.writer.write(Frame(opcode, data).serialize(mask=True))

    def text(self, text: str) -> None:
        self.send(Opcode.TEXT, text.encode())

    async def hang_up(self) -> None:
        self.writer.transport.abort()
        with suppress(OSError):
            await self.writer.wait_closed()


Connect = Callable[[Daemon], Awaitable[Silent]]


@pytest.fixture
async def silent() -> AsyncIterator[Connect]:
    """Connects silent clients, which are gone after the test."""
    made: list[Silent] = []

    async def connect(daemon: Daemon) -> Silent:
        made.append(await Silent.connect(daemon))
        return made[-1]

    yield connect
    await asyncio.gather(*(one.hang_up() for one in made))


async def connections(client: httpx.AsyncClient, wanted: int) -> None:
    """Waits until the gateway counts so many."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await client.get("/api/v1/stats")).json()["connections"] != wanted:
            await asyncio.sleep(0.05)


def sockets(daemon: Daemon) -> int:
    return len(
        [one for one in process(daemon).net_connections("tcp") if one.status != psutil.CONN_LISTEN]
    )


def process(daemon: Daemon) -> psutil.Process:
    return psutil.Process(daemon.pid)


async def closed(daemon: Daemon, wanted: int) -> None:
    """Waits until the process holds no more sockets than this."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sockets(daemon) > wanted:
            await asyncio.sleep(0.05)


async def test_a_client_that_answers_no_ping_is_let_go(start: Start, silent: Connect) -> None:
    """Its socket is closed and it is counted no more; one that answers stays."""
    daemon = await start(channels=QUICK)
    client, alive = await daemon.client(), await daemon.chat()
    for _ in range(5):
        await silent(daemon)
    await connections(client, 1)
    await closed(daemon, 2)
    await alive.send("ping", id="still here")

    assert (await alive.frame("pong"))["id"] == "still here"


@pytest.mark.parametrize("farewell", [None, b"\x03\xe8"], ids=["no word", "a close frame"])
async def test_a_client_that_reads_nothing_of_a_replay_is_let_go(
    start: Start, silent: Connect, farewell: bytes | None
) -> None:
    """What waits in its socket does not keep the socket open, whether it says goodbye or not."""
    daemon = await start(channels=QUICK, limits={"messages_per_minute": 0})
    talker, client = await daemon.chat(), await daemon.client()
    for number in range(60):
        await talker.say("c", "y" * 60_000, id=str(number))
    deaf = await silent(daemon)
    deaf.text('{"type":"attach","chat_id":"c","since":0}')
    async with asyncio.timeout(PATIENCE_SECONDS):
        await deaf.reader.readuntil(b'"attached"')
    if farewell is not None:
        deaf.send(Opcode.CLOSE, farewell)
    await connections(client, 1)
    await closed(daemon, 2)

    assert (await talker.say("c", "and on", id="on"))["outcome"] == "ok"


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many descriptors as the machine allows, here and in the gateway."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
async def test_thousands_of_idle_clients(start: Start, silent: Connect) -> None:
    """They cost little, hold nobody up, and what they took is given back for the next ones."""
    daemon = await start(channels={"websocket": {"ping_seconds": 60}})
    client, talker = await daemon.client(), await daemon.chat()
    sizes = []
    for wave in range(3):
        idle = []
        for _ in range(MANY // 100):
            idle += await asyncio.gather(*(silent(daemon) for _ in range(100)))
        await connections(client, MANY + 1)
        assert (await talker.say("c", "hello", id=str(wave)))["outcome"] == "ok"
        sizes.append(process(daemon).memory_info().rss)
        await asyncio.gather(*(one.hang_up() for one in idle))
        await connections(client, 1)
        await closed(daemon, 2)

    assert sizes[0] < 300_000_000
    assert sizes[2] < 1.2 * sizes[1]
