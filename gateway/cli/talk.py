"""The client behind `parley chat`: its connection, its lines, and what Ctrl-C means."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import uuid
from typing import TYPE_CHECKING

from gateway.cli.exits import Failure

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from gateway.chat_client import Frame
    from gateway.cli.remote import Remote
    from gateway.cli.terminal import Pipe, Terminal

UNAUTHORIZED = 4401
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
PIPE_PATIENCE_SECONDS = 60.0
"""How long a pipe waits for a gateway that went away. A person decides for themselves."""
INTERRUPTED = 130


class Client:
    def __init__(self, remote: Remote, chat_id: str, terminal: Terminal | Pipe) -> None:
        from gateway.chat_client import Conversation
        from gateway.chat_view import PipeView, TerminalView
        from gateway.cli.terminal import Pipe

        self._remote, self._terminal = remote, terminal
        self._piped = isinstance(terminal, Pipe)
        self._conversation = Conversation(chat_id)
        self._view = PipeView() if self._piped else TerminalView()
        self._socket: ClientConnection | None = None
        """The connection, once it has attached."""
        self._met = False
        """There has been a gateway."""
        self._lost_at: float | None = None
        self._attempts = 0
        self._stopping: str | None = None
        """The turn Ctrl-C has asked to stop."""
        self._changed = asyncio.Event()
        self._leave = asyncio.Event()
        self._code = 0
        self._tasks: asyncio.TaskGroup

    async def run(self) -> int:
        """The exit code, once everything is said or the person leaves. Raises Failure."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        loop.add_signal_handler(signal.SIGTERM, self._leave.set)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                running = [
                    self._tasks.create_task(self._stay_connected(), name="connection"),
                    self._tasks.create_task(self._take_lines(), name="lines"),
                ]
                await self._leave.wait()
                for task in running:
                    task.cancel()
        except ExceptionGroup as group:
            failures, others = group.split(Failure)
            if others is not None or failures is None:
                raise
            raise failures.exceptions[0] from None
        return self._code or int(self._piped and self._conversation.failed)

    # -- the person ---------------------------------------------------------------------------

    async def _take_lines(self) -> None:
        from gateway.cli.terminal import read_lines

        queue: asyncio.Queue[str | None] = asyncio.Queue(1)
        while not self._met:
            # Before there is a gateway there is nobody to talk to.
            await self._change()
        read_lines(self._terminal.lines, queue)
        while (line := await queue.get()) is not None:
            if text := line.strip():
                await self._say(text)
        self._leave.set()

    async def _say(self, text: str) -> None:
        conversation, name = self._conversation, uuid.uuid4().hex
        conversation.say(name, text)
        await self._transmit(conversation.send(name))
        while self._piped and (name in conversation.unsettled or conversation.closing):
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _interrupt(self) -> None:
        turn = self._conversation.running
        if turn is None or turn == self._stopping or self._socket is None:
            self._code = INTERRUPTED if self._piped else 0
            self._leave.set()
            return
        self._stopping = turn
        self._tasks.create_task(self._transmit(self._conversation.stop()), name="stop")

    # -- the gateway --------------------------------------------------------------------------

    async def _stay_connected(self) -> None:
        """Comes back by cursor after every cut, more slowly each time. Raises Failure."""
        while True:
            reason = await self._connect_once()
            if not self._met:
                raise self._remote.absent(reason)
            now = asyncio.get_running_loop().time()
            if self._lost_at is None:
                self._lost_at = now
                self._show_notice("the connection is lost; trying again")
            if self._piped and now - self._lost_at > PIPE_PATIENCE_SECONDS:
                raise self._remote.absent(reason)
            pause = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(self._attempts, 10))
            self._attempts += 1
            await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spreads load only

    async def _connect_once(self) -> str:
        """Returns why the connection is over, or why there was none."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus, WebSocketException

        try:
            async with connect(
                self._remote.websocket,
                additional_headers=self._remote.headers,
                max_size=None,
                close_timeout=2,
                proxy=None if self._remote.on_this_machine else True,
            ) as socket:
                await self._serve(socket)
            return "it closed the connection"
        except InvalidStatus as error:
            if error.response.status_code == 401:
                raise self._remote.refused() from error
            return f"it answered {error.response.status_code}"
        except OSError as error:
            # Several addresses give several errors without a text of their own.
            return error.strerror or str(error) or type(error).__name__
        except WebSocketException as error:
            return str(error)
        finally:
            self._socket = None

    async def _serve(self, socket: ClientConnection) -> None:
        """Until it closes. Raises Failure if the gateway does not let us in."""
        from websockets.exceptions import ConnectionClosedError

        try:
            if self._remote.token is None:
                await socket.send(json.dumps({"type": "hello", "client": "parley chat"}))
            async for text in socket:
                await self._take(json.loads(text), socket)
        except ConnectionClosedError:
            if socket.close_code == UNAUTHORIZED:
                raise self._remote.refused() from None
            raise

    async def _take(self, frame: Frame, socket: ClientConnection) -> None:
        kind = frame["type"]
        if kind == "ready":
            await socket.send(json.dumps(self._conversation.attach()))
            return
        if kind == "error" and "id" not in frame and self._socket is None:
            await self._not_attached(frame, socket)
            return
        ours = kind == "message" and self._conversation.settled_by(frame)
        if self._conversation.take(frame):
            self._show(frame, ours=ours)
        if kind == "attached" and self._socket is None:
            await self._attached(socket)
        if kind == "error" and frame["code"] == "rate_limited" and "id" in frame:
            again = self._send_later(frame["id"], frame.get("retry_after", 1))
            self._tasks.create_task(again, name="send-later")
        self._changed.set()

    async def _not_attached(self, error: Frame, socket: ClientConnection) -> None:
        if error["code"] == "not_found":
            self._conversation.missing()
            await self._attached(socket)
        elif self._met:
            await socket.close()
        else:
            raise Failure(error["message"])

    async def _attached(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._met, self._lost_at, self._attempts = True, None, 0
        self._changed.set()
        for frame in self._conversation.unacknowledged():
            await self._transmit(frame)

    async def _send_later(self, id: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        said = self._conversation.unsettled.get(id)
        if said is not None and said.seq is None:
            await self._transmit(self._conversation.send(id))

    async def _transmit(self, frame: Frame) -> None:
        """What does not arrive is sent again by the next connection."""
        from websockets.exceptions import ConnectionClosed

        try:
            if self._socket is not None:
                await self._socket.send(json.dumps(frame))
        except ConnectionClosed:
            return

    # -- the screen ---------------------------------------------------------------------------

    def _show(self, frame: Frame, *, ours: bool) -> None:
        pieces = self._view.take(frame, self._conversation, ours=ours)
        idle = self._met and self._conversation.running is None
        self._terminal.write(pieces, idle=idle)

    def _show_notice(self, text: str) -> None:
        self._terminal.write(self._view.notice(text), idle=not self._piped)
