"""One client's connection: frames in, frames out, many chats.

The reader never waits for anything but the socket: what takes time happens in a worker behind a
bounded queue, and every replay in a task of its own. What goes out is written at once while the
socket has room and kept in a bounded buffer while it has not; a client that lets the buffer
overflow is cut off with 1013 and resumes by cursor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from loguru import logger

from channels.channel import Event, Inbound, Sender
from channels.errors import Refused
from channels.websocket import protocol
from channels.websocket.protocol import (
    Attach,
    BadFrame,
    ClientFrame,
    Detach,
    Hello,
    Ping,
    Regenerate,
    Send,
    Stop,
)
from channels.websocket.socket import Socket

MOST_FRAMES = 1_024
MOST_BYTES = 1 << 20
ENOUGH_ROOM = 64
ENOUGH_BYTES = 64 * 1024
INBOX = 256
HELLO_SECONDS = 10.0
NAME = "websocket"


class Chat(Protocol):
    """A chat the gateway lets this client watch."""

    @property
    def over(self) -> bool:
        """It was deleted; one of the same name is another chat."""

    def on_event(self, event: Event) -> None: ...


class Gateway(Protocol):
    """What the endpoint asks of the gateway, on behalf of one client. All raise Refused."""

    def ready(self) -> dict[str, Any]:
        """Fields of the `ready` frame."""

    async def watch(self, chat: str, *, by_key: bool, new: bool, sink: Any) -> Chat:
        """`new`: the chat need not exist yet."""

    async def replay(self, chat: Chat, since: int | None, log: str | None, sink: Any) -> None: ...

    def unwatch(self, chat: Chat) -> None: ...

    async def receive(self, inbound: Inbound, acknowledge: Callable[[Any], None]) -> None: ...

    async def stop(self, chat_id: str, *, everything: bool) -> None: ...

    def resolve_media(self, ids: list[str]) -> Awaitable[list[dict[str, Any]]]: ...

    def join(self, on_event: Callable[[Event], None]) -> None: ...

    def leave(self, on_event: Callable[[Event], None]) -> None: ...

    @property
    def sender(self) -> Sender: ...


class Outbox:
    """Frames on their way out of one connection.

    Those of one step of the event loop leave together: each write to the socket is a system call,
    which costs more than everything else about a frame.
    """

    def __init__(self, socket: Socket) -> None:
        self._socket = socket
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._loop = asyncio.get_running_loop()
        socket.on_writable = self._flush

    def push(self, frame: bytes) -> None:
        """Never raises; what is pushed after the end of the connection is dropped."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(frame)
        self._bytes += len(frame)
        if len(self._waiting) > ENOUGH_ROOM or self._bytes > ENOUGH_BYTES:
            self._overflow()

    def _overflow(self) -> None:
        """A step has much to say, or the client does not read."""
        self._flush()
        if len(self._waiting) > ENOUGH_ROOM:
            self._room.clear()
        if len(self._waiting) > MOST_FRAMES or self._bytes > MOST_BYTES:
            self._waiting.clear()
            self._bytes = 0
            self._socket.cut(1013, "reads too slowly")
            self._room.set()

    def _flush(self) -> None:
        socket = self._socket
        if not socket.open:
            self._waiting.clear()
            self._bytes = 0
        while self._waiting and socket.has_room:
            socket.write_texts(self._next())
        if len(self._waiting) <= ENOUGH_ROOM:
            self._room.set()

    def _next(self) -> list[bytes]:
        """What may be written at once: enough to be worth it, little enough to notice when the
        socket has no more room."""
        if self._bytes <= ENOUGH_BYTES:
            frames, self._waiting, self._bytes = self._waiting, [], 0
            return frames
        count = size = 0
        while size < ENOUGH_BYTES and count < len(self._waiting):
            size += len(self._waiting[count])
            count += 1
        frames, self._waiting = self._waiting[:count], self._waiting[count:]
        self._bytes -= size
        return frames

    async def drained(self) -> bool:
        """Waits until little is waiting; False if the connection is over."""
        if not self._room.is_set() or not self._socket.has_room:
            await self._wait()
        return self._socket.open

    async def _wait(self) -> None:
        while self._socket.open and not (self._room.is_set() and self._socket.has_room):
            self._room.clear()
            await self._room.wait()


class ChatSink:
    """Names the chat on every frame; the same bytes for all who name it the same way."""

    def __init__(self, outbox: Outbox, name: str, chat: str) -> None:
        self._outbox = outbox
        self._address = {name: chat}
        self._form = f"{name}={chat}"

    def send(self, event: Event) -> None:
        frame = event.frames.get(self._form)
        if frame is None:
            frame = protocol.encode(event.kind, {**self._address, **event.fields})
            event.frames[self._form] = frame
        self._outbox.push(frame)

    async def drained(self) -> bool:
        return await self._outbox.drained()


class Watched(msgspec.Struct):
    chat: Chat
    sink: ChatSink
    task: asyncio.Task[None] | None = None


class Connection:
    def __init__(
        self,
        socket: Socket,
        gateway: Gateway,
        *,
        attachments: int,
        spawn: Callable[[Any, str], asyncio.Task[None]],
    ) -> None:
        self.outbox = Outbox(socket)
        self.socket = socket
        self._gateway = gateway
        self._attachments = attachments
        self._spawn = spawn
        self._inbox: asyncio.Queue[ClientFrame | BadFrame] = asyncio.Queue(INBOX)
        self._watched: dict[tuple[str, str], Watched] = {}

    async def serve(self, receive: Callable[[], Awaitable[dict[str, Any]]]) -> None:
        """Until the client or the gateway ends it."""
        self.outbox.push(protocol.encode("ready", self._gateway.ready()))
        self._gateway.join(self._on_session)
        worker = self._spawn(self._work(), "websocket-worker")
        try:
            while (message := await receive())["type"] == "websocket.receive":
                self._take(message)
        finally:
            worker.cancel()
            self._gateway.leave(self._on_session)
            for watched in self._watched.values():
                self._let_go(watched)
            self._watched.clear()

    def _take(self, message: dict[str, Any]) -> None:
        text = message.get("text")
        frame: ClientFrame | BadFrame
        try:
            if text is None:
                raise BadFrame("Frames are text, not binary.")
            frame = protocol.parse(text)
        except BadFrame as error:
            frame = error
        try:
            self._inbox.put_nowait(frame)
        except asyncio.QueueFull:
            self.socket.cut(1013, "sends too fast")

    def _on_session(self, event: Event) -> None:
        frame = event.frames.get("")
        if frame is None:
            frame = event.frames[""] = protocol.encode(event.kind, event.fields)
        self.outbox.push(frame)

    # -- the worker ---------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            frame = await self._inbox.get()
            name = getattr(frame, "id", None)
            chat_id = getattr(frame, "chat_id", None)
            try:
                await self._handle(frame)
            except Refused as refusal:
                self._error(refusal.code, refusal.message, name, chat_id, refusal.retry_after)
            except BadFrame as error:
                self._error("bad_frame", error.message, error.id, error.chat_id)
            except Exception as error:  # noqa: BLE001 - a client must not wait for a dead worker
                logger.opt(exception=error).error("connection failed")
                self._error("internal", "Something went wrong.", name, chat_id)
                self.socket.cut(1011, "internal error")
                return

    def _error(
        self,
        code: str,
        message: str,
        id: Any = None,
        chat_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        name = id if isinstance(id, str) else None
        self.outbox.push(
            protocol.error(code, message, id=name, chat_id=chat_id, retry_after=retry_after)
        )

    async def _handle(self, frame: ClientFrame | BadFrame) -> None:
        match frame:
            case BadFrame():
                raise frame
            case Ping(id=id):
                self.outbox.push(protocol.encode("pong", {} if id is None else {"id": id}))
            case Hello():
                pass
            case Attach():
                await self._attach(frame)
            case Detach():
                place = _place(frame)
                if (watched := self._watched.pop(place, None)) is not None:
                    self._let_go(watched)
            case Send():
                await self._send(frame)
            case Regenerate():
                await self._receive(frame.chat_id, frame.id, "", regenerate=True)
            case Stop():
                await self._gateway.stop(frame.chat_id, everything=frame.all)

    async def _attach(self, frame: Attach) -> None:
        place = _place(frame)
        if (known := self._watched.pop(place, None)) is not None:
            self._let_go(known)
        await self._watch(place, frame.since, frame.log)

    async def _watch(
        self, place: tuple[str, str], since: int | None, log: str | None, *, new: bool = False
    ) -> Watched:
        if len(self._watched) >= self._attachments:
            raise Refused("too_large", f"At most {self._attachments} chats on one connection.")
        name, chat = place
        sink = ChatSink(self.outbox, name, chat)
        found = await self._gateway.watch(chat, by_key=name == "key", new=new, sink=sink)
        watched = Watched(found, sink)
        self._watched[place] = watched
        replay = self._gateway.replay(watched.chat, since, log, sink)
        watched.task = self._spawn(replay, f"replay-{chat}"[:80])
        return watched

    def _let_go(self, watched: Watched) -> None:
        if watched.task is not None:
            watched.task.cancel()
        self._gateway.unwatch(watched.chat)

    async def _send(self, frame: Send) -> None:
        media = await self._gateway.resolve_media(frame.media) if frame.media else []
        await self._receive(frame.chat_id, frame.id, frame.text, media, frame.replaces)

    async def _receive(
        self,
        chat_id: str,
        id: str,
        text: str,
        media: list[dict[str, Any]] | None = None,
        replaces: int | None = None,
        *,
        regenerate: bool = False,
    ) -> None:
        place = ("chat_id", chat_id)
        known = self._watched.get(place)
        if known is not None and known.chat.over:
            self._let_go(self._watched.pop(place))
            known = None
        watched = known or await self._watch(place, None, None, new=True)
        if known is None and watched.task is not None:
            # What was said before is shown before the acknowledgement of what is said now.
            await asyncio.wait([watched.task])

        def acknowledge(ack: Any) -> None:
            # Through the watch: an acknowledgement must not overtake the rows before it.
            fields = {
                "id": ack.id,
                "seq": ack.seq,
                "duplicate": ack.duplicate,
                "queued": ack.queued,
            }
            watched.chat.on_event(Event("ack", fields))

        inbound = Inbound(
            channel=NAME,
            chat_id=chat_id,
            id=id,
            sender=self._gateway.sender,
            text=text,
            media=media or [],
            replaces=replaces,
            regenerate=regenerate,
        )
        try:
            await self._gateway.receive(inbound, acknowledge)
        except Refused as refusal:
            if known is None and refusal.code == "not_found":
                self._let_go(self._watched.pop(place, watched))
            raise


def _place(frame: Attach | Detach) -> tuple[str, str]:
    if (frame.chat_id is None) == (frame.key is None):
        raise BadFrame("Name the chat by chat_id.", chat_id=frame.chat_id)
    return ("chat_id", frame.chat_id) if frame.chat_id is not None else ("key", frame.key or "")
