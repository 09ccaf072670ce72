"""A small HTTP server that answers by script, on a real port, and can break off anywhere.

It speaks HTTP/1.1 by hand, because a proper server does not let a test cut a body in the middle.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Reply:
    """One connection's answer, written piece by piece."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    chunked: bool = field(default=False, init=False)

    async def head(self, status: int, headers: dict[str, str] | None = None) -> None:
        fields = {"Connection": "close", **(headers or {})}
        if "Content-Length" not in fields:
            fields["Transfer-Encoding"] = "chunked"
            self.chunked = True
        lines = [f"HTTP/1.1 {status} Scripted", *(f"{k}: {v}" for k, v in fields.items())]
        await self._write("\r\n".join([*lines, "", ""]).encode())

    async def piece(self, data: bytes) -> None:
        await self._write(b"%x\r\n%s\r\n" % (len(data), data) if self.chunked else data)

    async def end(self) -> None:
        if self.chunked:
            await self._write(b"0\r\n\r\n")

    async def whole(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        await self.head(status, {"Content-Length": str(len(body)), **(headers or {})})
        await self.piece(body)

    def cut(self) -> None:
        """The connection is gone, in the middle of whatever was being said."""
        self.writer.transport.abort()

    async def hang(self) -> None:
        """Says nothing more, until the client is gone."""
        while await self.reader.read(1024):
            pass

    async def _write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


Step = Callable[[Request, Reply], Awaitable[None]]


class ScriptedServer:
    """Each request is answered by the next step of `script`, the last one again and again."""

    def __init__(self, *script: Step) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.left = asyncio.Event()
        """Set once an answer has ended, for whatever reason."""
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            request = await _read(reader)
            step = self.script[min(len(self.requests), len(self.script) - 1)]
            self.requests.append(request)
            await step(request, Reply(reader, writer))
        writer.close()
        self._writers.discard(writer)
        self.left.set()


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *rest = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, path, headers, body)
