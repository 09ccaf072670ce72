"""One live socket to Slack, whatever happens to it.

An attempt is: a fresh ticket, a dial, a `hello`, each with its own limit. A ticket works once, so
it is never dialled twice. Asked to reconnect, the next socket says `hello` before the old one goes.
A socket that is silent although it should not be is replaced: a deaf one must never look healthy.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from loguru import logger
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from channels.channel import Tasks
from channels.slack.api import Api, Away, Fatal, Limited, Rejected, SlackError, jitter

STEP_SECONDS = 10.0
BACKOFF_SECONDS = (1.0, 60.0)
CROWDED_SECONDS = 30.0
PING_SECONDS = 10.0
PONG_SECONDS = 20.0
MAX_FRAME = 4 * 1024 * 1024
LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})

Handle = Callable[[dict[str, Any], Callable[[dict[str, Any] | None], Awaitable[None]]], None]
"""Takes an envelope and the function that acknowledges it."""


class Connection:
    def __init__(
        self, app: Api, handle: Handle, on_fatal: Callable[[str], None], tasks: Tasks
    ) -> None:
        self.state = "connecting"
        """connecting, connected, failed or stopped."""
        self.reason = ""
        self.reconnects = 0
        """Sockets opened after the first one."""
        self.last_event = 0.0
        """When anything came, by the monotonic clock."""
        self.last_pong = 0.0
        """When Slack last answered a ping, or said hello."""
        self.others = 0
        """Other processes that share our events."""
        self._app, self._handle, self._on_fatal = app, handle, on_fatal
        self._live: ClientConnection | None = None
        self._tasks = tasks
        self._wanted = asyncio.Event()
        self._leaving: ClientConnection | None = None
        """The socket Slack asked us to leave."""
        self._failures = 0
        self._opened = 0
        self._stopping = False

    def start(self) -> None:
        self._tasks.spawn(self._supervise(), "connection")

    async def stop(self) -> None:
        self._stopping = True
        self.state = "stopped"
        socket, self._live = self._live, None
        if socket is not None:
            await _close(socket)
        await self._tasks.cancel()

    @property
    def sockets(self) -> int:
        return int(self._live is not None)

    # -- the supervisor -----------------------------------------------------------------------

    async def _supervise(self) -> None:
        while not self._stopping:
            while self._live is not None and self._live is not self._leaving:
                await self._wanted.wait()
                self._wanted.clear()
            try:
                fresh = await self._dial()
            except Fatal as error:
                self._fail(error.error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, a deaf gateway is worse
                await self._wait(error)
            else:
                self._adopt(fresh)

    def _adopt(self, fresh: ClientConnection) -> None:
        self._failures = 0
        old, self._live = self._live, fresh
        self.state, self.reason = "connected", ""
        self.last_pong = time.monotonic()
        self._opened += 1
        self.reconnects = self._opened - 1
        logger.bind(channel="slack").info("channel connected")
        self._tasks.spawn(self._read(fresh), "socket")
        if old is not None:
            self._tasks.spawn(_close(old), "old-socket")

    async def _dial(self) -> ClientConnection:
        """A socket that has said hello."""
        url = await self._ticket()
        local = urlsplit(url).hostname in LOCAL
        socket = await connect(
            url,
            open_timeout=STEP_SECONDS,
            close_timeout=1,
            ping_interval=None,  # `_ping` does it, so that the age of the last answer is known.
            max_size=MAX_FRAME,
            compression=None,
            proxy=None if local else True,
        )
        try:
            async with asyncio.timeout(STEP_SECONDS):
                while (frame := _parse(await socket.recv())).get("type") != "hello":
                    if frame.get("type") == "disconnect":
                        raise _refusal(str(frame.get("reason") or "disconnect"))
                    self._take(frame, socket)
        except BaseException:
            socket.transport.abort()
            raise
        self._count(frame)
        return socket

    async def _ticket(self) -> str:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                ticket = await self._app.call("apps.connections.open", form=True)
        except Rejected as error:
            if error.error != "missing_scope":
                raise
            needed = error.data.get("needed") or "connections:write"
            raise Fatal(f"missing_scope: {needed}; add it to the app token") from error
        url = ticket.get("url")
        if not isinstance(url, str):
            raise Away("no socket address")
        return url

    def _count(self, hello: dict[str, Any]) -> None:
        count = hello.get("num_connections")
        expected = 2 if self._live is not None else 1
        before = self.others
        self.others = max(0, count - expected) if isinstance(count, int) else 0
        if self.others and not before:
            logger.bind(channel="slack", others=self.others).warning(
                "another process uses this Slack app"
            )

    def _fail(self, reason: str) -> None:
        """Told once, by whoever owns the channel."""
        self.state, self.reason = "failed", reason
        self._on_fatal(reason)

    async def _wait(self, error: Exception) -> None:
        self._failures += 1
        first, most = BACKOFF_SECONDS
        pause = min(most, first * 2 ** (self._failures - 1)) * jitter()
        if isinstance(error, Limited):
            pause = max(pause, error.retry_after)
        if isinstance(error, SlackError) and error.error == "too_many_websockets":
            pause = max(pause, CROWDED_SECONDS)
        self.reason = _name(error)
        if self._live is None:
            self.state = "connecting"
        logger.bind(channel="slack", reason=self.reason, retry_after=round(pause, 1)).warning(
            "channel disconnected"
        )
        await asyncio.sleep(pause)

    # -- a socket -----------------------------------------------------------------------------

    async def _read(self, socket: ClientConnection) -> None:
        pinging = self._tasks.spawn(self._ping(socket), "ping")
        reason = "closed"
        try:
            async for text in socket:
                self._take(_parse(text), socket)
        except (WebSocketException, OSError) as error:
            reason = _name(error)
        finally:
            pinging.cancel()
        if self._live is socket and not self._stopping:
            self._live = None
            self.state, self.reason = "connecting", reason
            logger.bind(channel="slack", reason=reason).warning("channel disconnected")
            self._wanted.set()

    async def _ping(self, socket: ClientConnection) -> None:
        """Ends a socket that no longer answers: nothing would be heard on it either."""
        try:
            while True:
                await asyncio.sleep(PING_SECONDS)
                async with asyncio.timeout(PONG_SECONDS):
                    await (await socket.ping())
                self.last_pong = time.monotonic()
        except TimeoutError:
            logger.bind(channel="slack").debug("socket is silent")
            socket.transport.abort()
        except (WebSocketException, OSError):
            return  # It is closed: its reader knows.

    def _take(self, frame: dict[str, Any], socket: ClientConnection) -> None:
        self.last_event = time.monotonic()
        kind = frame.get("type")
        if kind == "disconnect":
            self._asked_to_leave(str(frame.get("reason") or ""), socket)
        elif isinstance(frame.get("envelope_id"), str):
            self._handle(frame, self._acknowledger(frame["envelope_id"], socket))

    def _asked_to_leave(self, reason: str, socket: ClientConnection) -> None:
        if reason == "link_disabled":
            self._stopping = True
            self._live = None
            self._fail(reason)
            self._tasks.spawn(_close(socket), "old-socket")
        elif socket is self._live:
            logger.bind(channel="slack", reason=reason).debug("asked to reconnect")
            self._leaving = socket
            self._wanted.set()

    def _acknowledger(
        self, envelope: str, came_on: ClientConnection
    ) -> Callable[[dict[str, Any] | None], Awaitable[None]]:
        async def acknowledge(payload: dict[str, Any] | None = None) -> None:
            """On the socket that lives now. An acknowledgement that is lost brings it again."""
            socket = self._live or came_on
            frame: dict[str, Any] = {"envelope_id": envelope}
            if payload is not None:
                frame["payload"] = payload
            try:
                await socket.send(json.dumps(frame))
            except (WebSocketException, OSError) as error:
                logger.bind(channel="slack", error=_name(error)).debug("ack lost")

        return acknowledge


async def _close(socket: ClientConnection) -> None:
    try:
        await socket.close()
    except (WebSocketException, OSError):
        socket.transport.abort()


def _parse(text: str | bytes) -> dict[str, Any]:
    try:
        frame = json.loads(text)
    except ValueError:
        return {}
    return frame if isinstance(frame, dict) else {}


def _refusal(reason: str) -> SlackError:
    return Fatal(reason) if reason == "link_disabled" else Away(reason)


def _name(error: Exception) -> str:
    if isinstance(error, SlackError):
        return error.error
    return f"{type(error).__name__}: {error}"[:200] if str(error) else type(error).__name__
