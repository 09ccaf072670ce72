"""Socket Mode: tickets, sockets, envelopes, acknowledgements and redelivery.

An event goes to one of the open sockets at random. Until it is acknowledged it comes again under
a new envelope id, on whatever socket is open then. Buttons and commands come once.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from tests.support.slack.faults import Faults
from tests.support.slack.workspace import APP_ID

MAX_SOCKETS = 10


@dataclass
class Envelope:
    """One thing Slack has to tell, however often it takes."""

    type: str
    payload: dict[str, Any]
    ids: list[str] = field(default_factory=list)
    """One for each delivery."""
    sockets: list[int] = field(default_factory=list)
    acked_at: float | None = None
    ack_order: int | None = None
    response: dict[str, Any] | None = None
    """What the acknowledgement carried."""
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    @property
    def acked(self) -> bool:
        return self.acked_at is not None

    @property
    def event(self) -> dict[str, Any]:
        event: dict[str, Any] = self.payload.get("event", {})
        return event


@dataclass(frozen=True)
class Ack:
    envelope_id: str
    order: int
    """Its place among all acknowledgements and Web API calls."""
    at: float
    known: bool
    socket: int


class Socket:
    def __init__(self, number: int, response: web.WebSocketResponse, request: web.Request) -> None:
        self.number = number
        self.frames: asyncio.Queue[str | None] = asyncio.Queue()
        self.response, self.request = response, request
        self.greeted = False

    def send(self, frame: dict[str, Any]) -> None:
        self.frames.put_nowait(json.dumps(frame))

    def abort(self) -> None:
        """The connection is gone without a closing handshake."""
        if self.request.transport is not None:
            self.request.transport.abort()


class SocketMode:
    def __init__(
        self,
        faults: Faults,
        url: Callable[[str], str],
        ordered: Callable[[], int],
        acknowledged: Callable[[Envelope], None],
    ) -> None:
        self._faults, self._url, self._ordered = faults, url, ordered
        self._acknowledged = acknowledged
        self._tickets: set[str] = set()
        self._by_id: dict[str, Envelope] = {}
        self._numbers = 0
        self.sockets: list[Socket] = []
        self.envelopes: list[Envelope] = []
        self.acks: list[Ack] = []
        self.dials: list[int] = []
        """The status each dial was answered with."""
        self.retry_seconds = 3.0
        self.retries = 1_000_000
        self.num_connections: int | None = None
        """What `hello` claims; None is the truth."""
        self.pongs = True
        self.reads = asyncio.Event()
        self.reads.set()

    def ticket(self) -> str:
        ticket = uuid.uuid4().hex
        self._tickets.add(ticket)
        return self._url(f"/link/?ticket={ticket}&app_id={APP_ID}").replace("http://", "ws://")

    # -- telling ------------------------------------------------------------------------------

    def deliver(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)
        self._attempt(envelope)

    def redeliver(self, envelope: Envelope) -> None:
        """Once more, whether or not it was acknowledged: Slack may have missed the ack."""
        self._attempt(envelope)

    def _attempt(self, envelope: Envelope) -> None:
        ready = [socket for socket in self.sockets if socket.greeted]
        if ready:
            self._send(envelope, random.choice(ready))

    def _send(self, envelope: Envelope, socket: Socket) -> None:
        retries = len(envelope.ids)
        envelope_id = str(uuid.uuid4())
        envelope.ids.append(envelope_id)
        envelope.sockets.append(socket.number)
        self._by_id[envelope_id] = envelope
        frame: dict[str, Any] = {"envelope_id": envelope_id, "type": envelope.type}
        frame["payload"] = envelope.payload
        if envelope.type == "events_api":
            frame |= {"accepts_response_payload": False, "retry_attempt": retries}
            frame["retry_reason"] = "timeout" if retries else ""
        else:
            frame["accepts_response_payload"] = envelope.type == "slash_commands"
        socket.send(frame)
        if envelope.type == "events_api" and retries < self.retries:
            loop = asyncio.get_running_loop()
            envelope.timer = loop.call_later(self.retry_seconds, self._retry, envelope)

    def _retry(self, envelope: Envelope) -> None:
        envelope.timer = None
        if not envelope.acked:
            self._attempt(envelope)

    def _catch_up(self) -> None:
        """A new socket gets what waits for one. What is in flight keeps its own time."""
        for envelope in self.envelopes:
            waiting = envelope.type == "events_api" and not envelope.acked
            if waiting and envelope.timer is None:
                self._attempt(envelope)

    # -- sockets ------------------------------------------------------------------------------

    async def serve(self, request: web.Request) -> web.StreamResponse:
        ticket = request.query.get("ticket", "")
        known = ticket in self._tickets
        self._tickets.discard(ticket)
        fault = self._faults.take("socket.upgrade", dict(request.query))
        await asyncio.sleep(fault.delay_seconds)
        if fault.status is not None or not known:
            self.dials.append(fault.status or 403)
            return web.Response(status=self.dials[-1], text=str(fault.body))
        if fault.lost == "hang":
            await asyncio.Event().wait()
        response = web.WebSocketResponse(autoping=False, max_msg_size=1 << 20)
        await response.prepare(request)
        self.dials.append(101)
        self._numbers += 1
        socket = Socket(self._numbers, response, request)
        self.sockets.append(socket)
        try:
            await self._live(socket)
        finally:
            self.sockets.remove(socket)
        return response

    async def _live(self, socket: Socket) -> None:
        if len(self.sockets) > MAX_SOCKETS:
            frame = {"type": "disconnect", "reason": "too_many_websockets"}
            await socket.response.send_json(frame)
            await socket.response.close()
            return
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(self._write(socket), name="slack-socket-writer")
            if self._faults.take("socket.hello", {}).lost != "hang":
                self._greet(socket)
            await self._read(socket)
            writing.cancel()

    def _greet(self, socket: Socket) -> None:
        truth = sum(1 for other in self.sockets if other.greeted) + 1
        socket.greeted = True
        socket.send(
            {
                "type": "hello",
                "num_connections": self.num_connections or truth,
                "connection_info": {"app_id": APP_ID},
                "debug_info": {"host": "local", "approximate_connection_time": 18060},
            }
        )
        self._catch_up()

    async def _write(self, socket: Socket) -> None:
        try:
            while (frame := await socket.frames.get()) is not None:
                await socket.response.send_str(frame)
            await socket.response.close()
        except ConnectionError:
            socket.abort()

    async def _read(self, socket: Socket) -> None:
        while True:
            await self.reads.wait()
            message = await socket.response.receive()
            if message.type == WSMsgType.PING:
                if self.pongs and not socket.response.closed:
                    await socket.response.pong(message.data)
            elif message.type == WSMsgType.TEXT:
                await self.reads.wait()
                self._hear(socket, json.loads(message.data))
            elif message.type != WSMsgType.PONG:
                return

    def _hear(self, socket: Socket, frame: dict[str, Any]) -> None:
        envelope_id = str(frame.get("envelope_id"))
        envelope = self._by_id.get(envelope_id)
        ack = Ack(
            envelope_id, self._ordered(), time.monotonic(), envelope is not None, socket.number
        )
        self.acks.append(ack)
        if envelope is None or envelope.acked:
            return
        envelope.acked_at, envelope.ack_order = ack.at, ack.order
        envelope.response = frame.get("payload")
        if envelope.timer is not None:
            envelope.timer.cancel()
        self._acknowledged(envelope)

    def disconnect(self, reason: str, close: bool = False) -> None:
        """Announces the end of every socket; with `close` it comes at once."""
        for socket in self.sockets:
            socket.send({"type": "disconnect", "reason": reason, "debug_info": {"host": "local"}})
            if close:
                socket.frames.put_nowait(None)

    def kill(self) -> None:
        for socket in [*self.sockets]:
            socket.abort()

    def stop(self) -> None:
        for envelope in self.envelopes:
            if envelope.timer is not None:
                envelope.timer.cancel()
                envelope.timer = None
        self.reads.set()
        self.kill()
