"""One connection to an MCP server, held by a task of its own.

The library's connections must be opened and closed by the same task, and turns come and go.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TextIO

import httpx2
from loguru import logger
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from gateway.config import McpServerSettings

CONNECT_SECONDS = 10.0
_STDERR_LINE = 8_192


class Link:
    def __init__(self, name: str, settings: McpServerSettings) -> None:
        self._name = name
        self._settings = settings
        self._client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._released = asyncio.Event()

    async def client(self) -> Client:
        """Raises what made the connection fail."""
        return await asyncio.shield(self._client)

    def release(self) -> None:
        self._released.set()

    async def hold(self) -> None:
        """Connects, stays until released, closes. Never raises: whoever waits is told."""
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._settings.timeout_seconds):
                    client = await stack.enter_async_context(await self._opened(stack))
                self._client.set_result(client)
                await self._released.wait()
        except (Exception, asyncio.CancelledError) as error:
            self._tell(error)
            if isinstance(error, asyncio.CancelledError):
                raise

    def _tell(self, error: BaseException) -> None:
        if not self._client.done():
            self._client.set_exception(ConnectionError(_reason(error)))
            # Nobody may be waiting any more.
            self._client.exception()
        elif not self._released.is_set():
            logger.bind(server=self._name, error=_reason(error)).warning("mcp connection lost")

    async def _opened(self, stack: AsyncExitStack) -> Client:
        settings = self._settings
        if settings.command is not None:
            said = await stack.enter_async_context(_said_by(self._name))
            environment = {key: value.get_secret_value() for key, value in settings.env.items()}
            parameters = StdioServerParameters(
                command=settings.command, args=settings.args, env=environment
            )
            return Client(stdio_client(parameters, errlog=said), cache=None)
        http = httpx2.AsyncClient(
            headers={key: value.get_secret_value() for key, value in settings.headers.items()},
            timeout=httpx2.Timeout(settings.timeout_seconds + 30, connect=CONNECT_SECONDS),
        )
        await stack.enter_async_context(http)
        return Client(streamable_http_client(settings.url or "", http_client=http), cache=None)


@asynccontextmanager
async def _said_by(server: str) -> AsyncGenerator[TextIO, None]:
    """A file for the standard error of a child; its lines go to our log, at DEBUG."""
    reading, writing = os.pipe()
    lines = asyncio.StreamReader(limit=_STDERR_LINE)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(reading, "rb", buffering=0)
    )
    try:
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(_log_lines(server, lines), name=f"mcp-{server}-stderr")
            with os.fdopen(writing, "w", encoding="utf-8") as file:
                yield file
            reader.cancel()
    finally:
        transport.close()


async def _log_lines(server: str, lines: asyncio.StreamReader) -> None:
    while True:
        try:
            line = await lines.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            line = await lines.read(_STDERR_LINE)
        except asyncio.IncompleteReadError:
            return
        text = line.decode("utf-8", "replace").rstrip()
        logger.bind(server=server, text=text).debug("mcp server said")


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
