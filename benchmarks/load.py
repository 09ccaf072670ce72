"""The load: many WebSocket clients in a process of their own, the same for every server.

A client here reads just enough of each frame to know its length and its beginning, which costs
about a microsecond, so that the server is what is measured. The bench tells what to do over pipes,
one line of JSON each way; times are taken here.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import uvloop

PATIENCE_SECONDS = 120.0
CONNECTING_AT_ONCE = 50
TEXT, CLOSE, PING = 0x81, 0x88, 0x89
PONG = 0x8A

# A dialect is what a server calls the same things. Beginnings are enough to tell frames apart.
DIALECTS: dict[str, dict[str, str]] = {
    "parley": {
        "path": "/ws",
        "send": '{{"type":"send","chat_id":"{chat}","id":"{number}","text":"{text}"}}',
        "attach": '{{"type":"attach","chat_id":"{chat}"}}',
        "attached": '{"type":"attached"',
        "first": '{"type":"delta"',
        "last": '{"type":"turn_end"',
        "tail": "}",
        "message": '{"type":"message"',
        "error": '{"type":"error"',
    },
    "nanobot": {
        "path": "/?client_id={user}",
        "send": '{{"content":"{text}"}}',
        "first": '{"event": "delta"',
        "last": '{"event": "goal_status"',
        "tail": '"status": "idle"}',
        "message": '{"event": "message"',
        "error": '{"event": "error"',
    },
}


class Wire(asyncio.Protocol):
    """One connection. `on_frame(data, start, end)` is called for every text frame."""

    def __init__(self) -> None:
        self.on_frame: Callable[[bytes, int, int], None] = _ignore
        self.on_lost: Callable[[], None] = lambda: None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rest = b""
        self._transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._opened.done():
            self._opened.set_exception(ConnectionError("the server refused the connection"))
        self.on_lost()

    async def open(self, host: str, path: str, user: str) -> None:
        head = (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
            f"X-Bench-User: {user}\r\n\r\n"
        )
        self._transport.write(head.encode())
        await self._opened

    def send(self, text: str) -> None:
        # A mask of zeros is a mask: the payload stays as it is.
        data = text.encode()
        size = len(data)
        short = size < 126
        head = bytes([TEXT, 0x80 | size] if short else [TEXT, 0xFE, size >> 8, size & 255])
        self._transport.write(head + b"\0\0\0\0" + data)

    def close(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at = 0 if self._opened.done() else self._take_head(data)
        size = len(data)
        while size - at >= 2:
            kind, length, start = data[at], data[at + 1], at + 2
            if length > 125:
                wide = 2 if length == 126 else 8
                start += wide
                length = int.from_bytes(data[at + 2 : start])
                if start > size:
                    break
            end = start + length
            if end > size:
                break
            if kind == TEXT:
                self.on_frame(data, start, end)
            elif kind == PING:
                self._transport.write(bytes([PONG, 0x80 | length, 0, 0, 0, 0]) + data[start:end])
            elif kind == CLOSE:
                self._transport.close()
            at = end
        self._rest = data[at:]

    def _take_head(self, data: bytes) -> int:
        head, found, _ = data.partition(b"\r\n\r\n")
        if not found:
            return 0
        if not head.startswith(b"HTTP/1.1 101 "):
            self._opened.set_exception(ConnectionError(head.decode().partition("\r\n")[0]))
            return len(data)
        self._opened.set_result(None)
        return len(head) + len(found)


def _ignore(data: bytes, start: int, end: int) -> None:
    pass


class Load:
    def __init__(self) -> None:
        self._wires: list[Wire] = []
        self._dialect: dict[str, str] = {}
        self._url = ""
        self._sent = 0
        self.broken = asyncio.Event()
        """A server closed a connection: whatever waits for it would wait for ever."""

    # -- what the bench may ask for ------------------------------------------------------------

    async def connect(self, url: str, count: int, dialect: str = "parley") -> int:
        """Adds connections, each in the name of a user of its own."""
        self._url, self._dialect = url, DIALECTS[dialect]
        for start in range(0, count, CONNECTING_AT_ONCE):
            batch = range(start, min(count, start + CONNECTING_AT_ONCE))
            self._wires += await asyncio.gather(*(self._open() for _ in batch))
        return len(self._wires)

    async def _open(self) -> Wire:
        parts = urlsplit(self._url)
        loop = asyncio.get_running_loop()
        assert parts.hostname is not None
        assert parts.port is not None
        _, wire = await loop.create_connection(Wire, parts.hostname, parts.port)
        self._sent += 1
        user = f"user-{self._sent}"
        await wire.open(parts.netloc, self._dialect["path"].format(user=user), user)
        wire.on_lost = self.broken.set
        return wire

    async def disconnect(self) -> None:
        for wire in self._wires:
            wire.on_lost = lambda: None
            wire.close()
        self._wires = []

    async def frames(self, chat: str, text: str) -> list[str]:
        """Every frame of one turn, as it was sent."""
        wire, found, done = self._wires[0], list[str](), asyncio.get_running_loop().create_future()
        last = self._dialect["last"]

        def on_frame(data: bytes, start: int, end: int) -> None:
            found.append(data[start:end].decode())
            if found[-1].startswith(last) and not done.done():
                done.set_result(None)

        wire.on_frame = on_frame
        wire.send(self._message(chat, text))
        await done
        wire.on_frame = _ignore
        return found

    async def attach(self, chats: list[str]) -> None:
        """Connection n attaches to chat n; with one chat all of them do."""
        named = chats * len(self._wires) if len(chats) == 1 else chats
        waiting = [
            self._until(wire, self._dialect["attached"])
            for wire, _ in zip(self._wires, named, strict=False)
        ]
        for wire, chat in zip(self._wires, named, strict=False):
            wire.send(self._dialect["attach"].format(chat=chat))
        await asyncio.gather(*waiting)

    async def turns(self, each: int, text: str, chat: str) -> dict[str, float]:
        """Every connection has that many turns, one after the other. Seconds for all of them."""
        before = time.process_time()
        started = time.perf_counter()
        talks = [
            Talk(wire, f"{chat}-{at}", each, text, self) for at, wire in enumerate(self._wires)
        ]
        await asyncio.gather(*(talk.done for talk in talks))
        seconds = time.perf_counter() - started
        busy = (time.process_time() - before) / seconds
        return {"seconds": seconds, "turns": each * len(self._wires), "busy": busy}

    async def paced(self, per_second: float, turns: int, text: str, chat: str) -> list[float]:
        """Turns at even intervals, by one connection after the other; seconds to the first word."""
        found: list[float] = []
        ends: list[asyncio.Future[None]] = []
        loop = asyncio.get_running_loop()
        started = loop.time()
        for number in range(turns):
            at = number % len(self._wires)
            if at == 0 and ends:
                await asyncio.gather(*ends[-len(self._wires) :])
            delay = started + number / per_second - loop.time()
            if delay > 0:
                await asyncio.sleep(delay)
            ends.append(self._timed(self._wires[at], f"{chat}-{at}", text, found))
        await asyncio.gather(*ends)
        return found

    async def latency(self, chats: list[str], turns: int, text: str) -> list[float]:
        """Seconds per turn from sending to its end, one turn at a time on one connection."""
        wire, found = self._wires[0], []
        for number in range(turns + 1):
            for chat in chats:
                done = self._until(wire, self._dialect["last"], self._dialect["tail"])
                started = time.perf_counter()
                wire.send(self._message(chat, text))
                await done
                # The first turn of a chat opens its file.
                if number:
                    found.append(time.perf_counter() - started)
        return found

    async def spread(self, path: str, body: str) -> float:
        """Seconds from an HTTP request until every connection has the message it causes."""
        parts = urlsplit(self._url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        request = (
            f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        )
        waiting = [self._until(wire, self._dialect["message"]) for wire in self._wires]
        started = time.perf_counter()
        writer.write(request.encode())
        await asyncio.gather(*waiting)
        seconds = time.perf_counter() - started
        answer = await reader.readuntil(b"\r\n")
        writer.close()
        if not answer.startswith(b"HTTP/1.1 20"):
            raise ConnectionError(answer.decode())
        return seconds

    # -- parts ---------------------------------------------------------------------------------

    def _message(self, chat: str, text: str) -> str:
        self._sent += 1
        return self._dialect["send"].format(chat=chat, number=self._sent, text=text)

    def _until(self, wire: Wire, beginning: str, tail: str = "}") -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wanted, end_of_it = beginning.encode(), tail.encode()
        error = self._dialect["error"].encode()

        def on_frame(data: bytes, start: int, end: int) -> None:
            if data.startswith(wanted, start) and data.endswith(end_of_it, start, end):
                wire.on_frame = _ignore
                done.set_result(None)
            elif data.startswith(error, start):
                done.set_exception(ConnectionError(data[start:end].decode()))

        wire.on_frame = on_frame
        return done

    def _timed(self, wire: Wire, chat: str, text: str, found: list[float]) -> asyncio.Future[None]:
        """One turn; its end. The time to its first word is added to `found`."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        first, last = self._dialect["first"].encode(), self._dialect["last"].encode()
        started, shown = time.perf_counter(), False

        def on_frame(data: bytes, start: int, end: int) -> None:
            nonlocal shown
            if not shown and data.startswith(first, start):
                found.append(time.perf_counter() - started)
                shown = True
            elif data.startswith(last, start):
                wire.on_frame = _ignore
                done.set_result(None)

        wire.on_frame = on_frame
        wire.send(self._message(chat, text))
        return done


class Talk:
    """A connection that sends its next message as soon as a turn has ended."""

    def __init__(self, wire: Wire, chat: str, turns: int, text: str, load: Load) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wire, self._chat, self._left, self._text = wire, chat, turns, text
        self._load = load
        self._last, self._tail = load._dialect["last"].encode(), load._dialect["tail"].encode()
        self._error = load._dialect["error"].encode()
        wire.on_frame = self._on_frame
        self._send()

    def _send(self) -> None:
        self._wire.send(self._load._message(self._chat, self._text))

    def _on_frame(self, data: bytes, start: int, end: int) -> None:
        if data.startswith(self._last, start) and data.endswith(self._tail, start, end):
            self._left -= 1
            if self._left:
                self._send()
            else:
                self._wire.on_frame = _ignore
                self.done.set_result(None)
        elif data.startswith(self._error, start):
            self.done.set_exception(ConnectionError(data[start:end].decode()))


async def _run(load: Load, name: str, arguments: dict[str, Any]) -> Any:
    async with asyncio.TaskGroup() as group:
        work = group.create_task(getattr(load, name)(**arguments))
        lost = group.create_task(load.broken.wait())
        await asyncio.wait(
            {work, lost}, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        work.cancel()
        lost.cancel()
    if work.cancelled():
        reason = "the server closed a connection" if load.broken.is_set() else "no answer"
        raise ConnectionError(reason)
    return work.result()


async def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    load = Load()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        name, arguments = json.loads(line)
        try:
            answer = {"answer": await _run(load, name, arguments)}
        except* OSError as errors:
            error = errors.exceptions[0]
            answer = {"error": f"{name}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
