"""`GET /ws`: the handshake, who it is, and the connection's life."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from loguru import logger
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from channels.websocket import protocol
from channels.websocket.endpoint import HELLO_SECONDS, INBOX, Connection
from channels.websocket.protocol import BadFrame, Hello
from channels.websocket.socket import SCOPE_NAME, Socket
from gateway.http.context import Context
from gateway.http.problems import Problem
from gateway.users import User

UNAUTHORIZED = 4401
TRY_LATER = 1013
SHARE_OF_ONE_USER = 0.2
"""How much of all connections one user may hold, where there are several users."""

ReceiveFrame = Callable[[], Awaitable[Any]]


class OpenSocket:
    """An open connection, as the gateway counts it and closes it."""

    def __init__(self, socket: Socket) -> None:
        self.user: str | None = None
        self._socket = socket

    def close(self, code: int, reason: str) -> None:
        self._socket.cut(code, reason)


class WebSockets:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._open = 0
        self._by_user: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway = self._context.gateway
        if not gateway.settings.channels.websocket.enabled:
            raise Problem(404, "There is nothing here.")
        if self._open >= gateway.settings.limits.connections:
            raise Problem(503, "There are too many connections.", code="busy", retry_after=5)
        self._open += 1
        try:
            await receive()
            await send({"type": "websocket.accept"})
            await self._serve(HTTPConnection(scope), scope[SCOPE_NAME], receive)
        finally:
            self._open -= 1

    async def _serve(
        self, connection: HTTPConnection, socket: Socket, receive: ReceiveFrame
    ) -> None:
        gateway = self._context.gateway
        opened = OpenSocket(socket)
        gateway.connections.add(opened)
        self._context.metrics.count_connection()
        try:
            user = await self._authenticate(connection, receive)
            if user is None:
                socket.cut(UNAUTHORIZED, "no valid token")
                return
            if gateway.state != "serving":
                socket.cut(1001, "the gateway is stopping")
                return
            opened.user = user.id
            await self._talk(user, socket, receive)
        finally:
            gateway.connections.discard(opened)

    async def _authenticate(self, connection: HTTPConnection, receive: ReceiveFrame) -> User | None:
        auth = self._context.auth
        user = auth.user(connection)
        if user is not None or auth.mode != "token":
            return user
        if "authorization" in connection.headers:
            auth.failures.add(connection)
            return None
        token = await first_token(receive)
        if token is None:
            return None
        user = auth.of_token(token)
        if user is None:
            auth.failures.add(connection)
        return user

    async def _talk(self, user: User, socket: Socket, receive: ReceiveFrame) -> None:
        gateway = self._context.gateway
        settings = gateway.settings.channels.websocket
        most = max(1, int(gateway.settings.limits.connections * SHARE_OF_ONE_USER))
        if self._context.auth.mode != "none" and self._by_user[user.id] >= most:
            socket.cut(TRY_LATER, "too many connections of one user")
            return
        self._by_user[user.id] += 1
        try:
            client: Any = gateway.client(user)
            connection = Connection(
                socket,
                client,
                attachments=settings.attachments,
                spawn=gateway.tasks.spawn,
            )
            with logger.contextualize(user=user.id):
                await connection.serve(Pace(receive, settings.frames_per_second))
        finally:
            self._by_user[user.id] -= 1
            if not self._by_user[user.id]:
                del self._by_user[user.id]


async def first_token(receive: ReceiveFrame) -> str | None:
    """The token of a `hello` that comes first and in time; None for anything else."""
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            message = await receive()
    except TimeoutError:
        return None
    text = message.get("text")
    if message["type"] != "websocket.receive" or text is None:
        return None
    try:
        frame = protocol.parse(text)
    except BadFrame:
        return None
    return frame.token if isinstance(frame, Hello) else None


class Pace:
    """Frames come in no faster than allowed: a client that sends more waits in its own socket."""

    def __init__(self, receive: ReceiveFrame, per_second: int) -> None:
        self._receive = receive
        self._seconds = 1 / per_second
        # What comes at once must fit into the inbox: its worker runs only when the reader waits.
        self._burst = min(1.0, INBOX / 2 / per_second)
        self._loop = asyncio.get_running_loop()
        self._next = 0.0

    async def __call__(self) -> Any:
        message = await self._receive()
        now = self._loop.time()
        self._next = max(self._next, now - self._burst) + self._seconds
        if self._next > now:
            await asyncio.sleep(self._next - now)
        return message
