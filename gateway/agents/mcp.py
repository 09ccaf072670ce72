"""Tools from MCP servers, which may be slow, die, restart and change their tools at any time.

A server is connected when a turn first needs it, and again when its connection has broken. Every
turn asks for the tools anew; that shows a dead connection before a call can be lost on it. A server
that cannot be reached costs a turn its tools, not its answer: tools it had before are still offered
and fail with a clear result.

A call is sent once. If its connection breaks or its time is over, nobody knows whether it took
effect, and the result says so. Only a tool declared read-only is called a second time.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from loguru import logger
from mcp import Client, MCPError
from mcp.types import REQUEST_TIMEOUT, PaginatedRequestParams
from mcp.types import Tool as Listed

from gateway.agents.mcp_link import Link
from gateway.agents.mcp_result import outcome_of
from gateway.agents.retry import describe
from gateway.agents.tools import Outcome, Tool
from gateway.config import McpServerSettings
from sessions.tasks import Tasks

MAX_TOOLS = 256
"""Tools taken from one server."""
PROBE_SECONDS = 10.0
"""Longest wait for the list of tools of a server that is connected."""
REST_SECONDS = 5.0
"""After a failed connection, turns do without the server for so long."""
CLOSE_SECONDS = 8.0

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")
_NAME_CHARS = 64


class McpToolbox:
    """All servers of an agent."""

    def __init__(
        self, servers: Mapping[str, McpServerSettings], rest_seconds: float = REST_SECONDS
    ) -> None:
        self._servers = [
            McpServer(name, settings, rest_seconds) for name, settings in servers.items()
        ]

    async def tools(self) -> Mapping[str, Tool]:
        lists = await asyncio.gather(*(server.tools() for server in self._servers))
        return {tool.name: tool for tools in lists for tool in tools}

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers))


class McpServer:
    def __init__(
        self, name: str, settings: McpServerSettings, rest_seconds: float = REST_SECONDS
    ) -> None:
        self.name = name
        self.settings = settings
        self._rest_seconds = rest_seconds
        self._rests_until = 0.0
        self._links = Tasks(f"mcp-{name}")
        self._link: Link | None = None
        self._known: list[McpTool] = []
        self._hidden = [
            secret.get_secret_value()
            for secret in (*settings.env.values(), *settings.headers.values())
        ]

    async def tools(self) -> list[McpTool]:
        """What the server offers now, or offered last if it cannot be reached."""
        for _ in range(2):
            link = self._link
            try:
                self._known = self._allowed(await self._list())
                break
            except Exception as error:  # noqa: BLE001 - whatever is wrong with it, the turn goes on
                self._failed(error, "mcp server unavailable")
                self._drop(self._link)
                if link is None:
                    # The connection was new, so another one would fare no better.
                    break
        return self._known

    async def call(self, tool: McpTool, arguments: dict[str, Any]) -> Outcome:
        outcome = await self._call(tool, arguments)
        if outcome is None and tool.read_only:
            outcome = await self._call(tool, arguments)
        return outcome or Outcome.failure(
            f"The connection to the tool server {self.name} broke. "
            "The call may or may not have taken effect."
        )

    async def _call(self, tool: McpTool, arguments: dict[str, Any]) -> Outcome | None:
        """None if the connection broke while the call was under way."""
        try:
            client = await self._connected()
        except Exception as error:  # noqa: BLE001 - the model is told, the turn goes on
            self._failed(error, "mcp server unavailable")
            return Outcome.failure(f"The tool server {self.name} is not available.")
        link, seconds = self._link, self.settings.timeout_seconds
        try:
            # The library's own limit tells the server to stop; ours holds if that hangs too.
            async with asyncio.timeout(seconds + PROBE_SECONDS):
                result = await client.call_tool(tool.own_name, arguments, seconds)
            return outcome_of(result)
        except TimeoutError:
            self._drop(link)
            return _too_late(seconds)
        except Exception as error:  # noqa: BLE001 - the model is told, the turn goes on
            if isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT:
                return _too_late(seconds)
            self._failed(error, "mcp call failed")
            if not await self._answers(client):
                self._drop(link)
                return None
            reason = error.message if isinstance(error, MCPError) else "its result is not valid"
            return Outcome.failure(f"The tool failed: {reason}")

    async def close(self) -> None:
        self._drop(self._link)
        if not await self._links.wait(CLOSE_SECONDS):
            await self._links.cancel()

    async def _connected(self) -> Client:
        """Waits for a connection that is under way; a waiter that gives up does not break it."""
        if self._link is None:
            if asyncio.get_running_loop().time() < self._rests_until:
                raise ConnectionError("not reachable a moment ago")
            self._link = Link(self.name, self.settings)
            self._links.spawn(self._link.hold(), "link")
        link = self._link
        try:
            return await link.client()
        except Exception:
            if self._drop(link):
                self._rests_until = asyncio.get_running_loop().time() + self._rest_seconds
            raise

    async def _list(self) -> list[Listed]:
        client = await self._connected()
        found: list[Listed] = []
        cursor: str | None = None
        async with asyncio.timeout(PROBE_SECONDS):
            while len(found) < MAX_TOOLS:
                page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
                found += page.tools
                cursor = page.next_cursor
                if not cursor:
                    break
        return found[:MAX_TOOLS]

    async def _answers(self, client: Client) -> bool:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await client.session.list_tools()
        except Exception:  # noqa: BLE001 - any failure is the answer no
            return False
        return True

    def _allowed(self, listed: Iterable[Listed]) -> list[McpTool]:
        settings = self.settings
        return [
            McpTool(self, tool)
            for tool in listed
            if _matches(tool.name, settings.allow) and not _matches(tool.name, settings.deny)
        ]

    def _drop(self, link: Link | None) -> bool:
        """The next use connects anew. False if somebody else has dropped it already."""
        if link is None or self._link is not link:
            return False
        self._link = None
        link.release()
        return True

    def _failed(self, error: BaseException, event: str) -> None:
        logger.bind(server=self.name, error=describe(error, self._hidden)).warning(event)


class McpTool:
    def __init__(self, server: McpServer, listed: Listed) -> None:
        self._server = server
        self.own_name = listed.name
        self.name = tool_name(server.name, listed.name)
        self.description = listed.description or listed.title or ""
        self.schema = listed.input_schema
        self.read_only = _matches(listed.name, server.settings.read_only)

    async def call(self, arguments: dict[str, Any]) -> Outcome:
        return await self._server.call(self, arguments)


def tool_name(server: str, tool: str) -> str:
    """`server_tool`, always: a name must not depend on which other servers are up."""
    name = f"{server}_{tool}"
    legal = _ILLEGAL.sub("_", name)
    if legal == name and len(name) <= _NAME_CHARS:
        return name
    return f"{legal[: _NAME_CHARS - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _too_late(seconds: float) -> Outcome:
    return Outcome.failure(
        f"The tool did not answer within {seconds:g} s. It may or may not have taken effect."
    )
