"""The server's end of a WebSocket, with what ASGI leaves out.

Through ASGI a client that never reads cannot be closed: `send` waits for room that never comes, and
so does `close`. This subclass of uvicorn's protocol writes frames straight to the transport, tells
when there is room again, and cuts a connection off for certain: the close frame is written at once
and the socket is aborted a moment later, whatever the other side does.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request
from websockets.protocol import State

SEND_BUFFER_BYTES = 64 * 1024
ABORT_SECONDS = 3.0
SCOPE_NAME = "parley.socket"


class Socket(WebSocketsSansIOProtocol):
    on_writable: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw = transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        super().connection_made(transport)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        scope: Any = getattr(self, "scope", None)
        if scope is not None:
            scope[SCOPE_NAME] = self

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.on_writable is not None:
            self.on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_writable is not None:
            self.on_writable()

    def keepalive_timeout(self) -> None:
        self.pong_timer = None
        self.cut(1011, "no answer to a ping")

    def handle_close(self, event: Frame) -> None:
        super().handle_close(event)
        self._abort_later()

    def handle_parser_exception(self) -> None:
        super().handle_parser_exception()
        self._abort_later()

    def _abort_later(self) -> None:
        """What the client has not read would keep a closing socket open for ever."""
        if self.close_timer is None and not self.disconnected:
            self.close_timer = self.loop.call_later(ABORT_SECONDS, self.transport.abort)

    @property
    def open(self) -> bool:
        return (
            self.handshake_complete
            and not self.close_sent
            and not self.disconnected
            and self.conn.state is State.OPEN
        )

    @property
    def has_room(self) -> bool:
        return self.writable.is_set()

    def write_texts(self, frames: Iterable[bytes]) -> None:
        """Hands text frames to the transport, in one system call. Only while `open`."""
        # A server's frame that is not compressed is its length and its bytes.
        parts = [part for frame in frames for part in (_head(len(frame)), frame)]
        self.transport.write(b"".join(parts))

    def cut(self, code: int, reason: str) -> None:
        """Ends the connection for certain; the client learns why if it still reads."""
        if self.close_sent or self.disconnected:
            return
        if self.on_writable is not None:
            # What was said before the end goes out before it.
            self.on_writable()
        self.stop_keepalive()
        self.conn.send_close(code, reason)
        self.transport.writelines(self.conn.data_to_send())
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self._abort_later()


_TEXT = 0x81
_SHORT_HEADS = [bytes((_TEXT, size)) for size in range(126)]


def _head(size: int) -> bytes:
    if size < 126:
        return _SHORT_HEADS[size]
    if size < 1 << 16:
        return struct.pack(">BBH", _TEXT, 126, size)
    return struct.pack(">BBQ", _TEXT, 127, size)
