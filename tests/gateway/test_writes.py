"""How frames leave: those of one step together, in order, and before the end of the connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from websockets.frames import Frame, Opcode

from channels.websocket.endpoint import MOST_FRAMES, Outbox
from channels.websocket.socket import Socket


class FakeSocket:
    """Counts writes; has room until told otherwise."""

    def __init__(self) -> None:
        self.on_writable: Callable[[], None] | None = None
        self.open = self.has_room = True
        self.writes: list[list[bytes]] = []
        self.code = 0

    def write_texts(self, frames: Iterable[bytes]) -> None:
        self.writes.append(list(frames))

    def cut(self, code: int, _reason: str) -> None:
        self.open, self.code = False, code

    @property
    def sent(self) -> list[bytes]:
        return [frame for frames in self.writes for frame in frames]


def outbox(socket: FakeSocket) -> Outbox:
    given: Any = socket
    return Outbox(given)


async def test_frames_of_one_step_are_written_together() -> None:
    """One write for everything that was said in a step, in the order it was said."""
    socket = FakeSocket()
    out = outbox(socket)
    for number in range(10):
        out.push(b"%d" % number)
    await asyncio.sleep(0)
    out.push(b"next")
    await asyncio.sleep(0)

    assert socket.writes == [[b"%d" % number for number in range(10)], [b"next"]]


async def test_a_step_that_says_much_cuts_nobody_off() -> None:
    """A client whose socket has room is sent everything, however much one step has to say."""
    socket = FakeSocket()
    out = outbox(socket)
    frames = [b"%d" % number for number in range(3 * MOST_FRAMES)]
    for frame in frames:
        out.push(frame)
    await asyncio.sleep(0)

    assert socket.sent == frames
    assert socket.open


async def test_a_client_without_room_is_cut_off_at_the_limit() -> None:
    """What waits for a client that does not read is bounded, in one step too."""
    socket = FakeSocket()
    socket.has_room = False
    out = outbox(socket)
    for _ in range(MOST_FRAMES + 1):
        out.push(b"x")

    assert socket.code == 1013
    assert socket.sent == []


async def test_room_again_lets_the_waiting_frames_out() -> None:
    """Frames that found no room leave when there is some, and `drained` returns then."""
    socket = FakeSocket()
    socket.has_room = False
    out = outbox(socket)
    frames = [b"%d" % number for number in range(100)]
    for frame in frames:
        out.push(frame)
    waiting = asyncio.get_running_loop().create_task(out.drained(), name="drained")
    await asyncio.sleep(0)
    socket.has_room = True
    assert socket.on_writable is not None
    socket.on_writable()

    assert await waiting
    assert socket.sent == frames


class Written:
    """The part of a transport that is written to."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536, 100_000])
def test_frames_have_the_form_of_the_standard(size: int) -> None:
    """The bytes are those the WebSocket library itself would write."""
    socket: Any = type("Open", (), {"transport": Written()})()
    text = b"x" * size
    Socket.write_texts(socket, [text, b"more"])
    expected = [Frame(Opcode.TEXT, part).serialize(mask=False) for part in (text, b"more")]

    assert socket.transport.data == b"".join(expected)
