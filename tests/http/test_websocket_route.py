"""The WebSocket as the server opens, limits and closes it."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from tests.http.conftest import Start
from tests.http.daemon import Daemon


async def test_a_bad_frame_is_answered_and_the_connection_lives(daemon: Daemon) -> None:
    """Whatever it is; the next good frame is served."""
    chat = await daemon.chat()

    frames: list[str | bytes] = [
        "nonsense",
        "[]",
        "{}",
        '{"type":"unknown"}',
        '{"type":"send"}',
        '{"type":"send","chat_id":1,"id":"x","text":"y"}',
        '{"type":"send","chat_id":"a","id":"x","text":"y","extra":1}',
        '{"type":"send","chat_id":"","id":"x","text":"y"}',
        '{"type":"attach"}',
        "[" * 10_000,
        b"\x00\x01",
    ]
    for bad in frames:
        await chat.socket.send(bad)
        assert (await chat.frame("error"))["code"] == "bad_frame", bad
    await chat.send("ping", id="p")
    assert (await chat.frame("pong"))["id"] == "p"


async def test_a_frame_over_the_limit_closes_with_1009(start: Start) -> None:
    """Everybody else goes on."""
    daemon = await start(limits={"frame": 10_000})
    chat, other = await daemon.chat(), await daemon.chat()

    await chat.send("ping", id="x" * 20_000)

    assert await chat.closed() == 1009
    await other.send("ping")
    await other.frame("pong")


async def test_a_huge_frame_is_not_read(daemon: Daemon) -> None:
    """10 MB against a limit of one: cut off, and the gateway lives."""
    chat = await daemon.chat()

    await asyncio.gather(chat.socket.send("x" * 10_000_000), return_exceptions=True)

    assert await chat.closed() in (1009, 1006)
    assert (await (await daemon.client()).get("/healthz")).status_code == 200


async def test_invalid_utf8_closes_with_1007(daemon: Daemon) -> None:
    """A text frame that is no text."""
    chat = await daemon.chat()
    await chat.frame("ready")

    chat.socket.protocol.send_frame(Frame(Opcode.TEXT, b"\xff\xfe"))
    chat.socket.transport.writelines(chat.socket.protocol.data_to_send())

    assert await chat.closed() == 1007


async def test_nothing_is_compressed(daemon: Daemon) -> None:
    """Compression costs more memory per connection than everything else together."""
    chat = await daemon.chat()

    assert chat.socket.protocol.extensions == []


async def test_a_stop_closes_with_1001(daemon: Daemon) -> None:
    """The client knows that it may come back; the gateway ends cleanly."""
    chat = await daemon.chat()
    await chat.frame("ready")

    daemon.signal(signal.SIGTERM)

    assert await chat.closed() == 1001
    assert await daemon.ended() == 0


async def test_a_disabled_channel_has_no_websocket(start: Start) -> None:
    """As if there were none."""
    daemon = await start(channels={"websocket": {"enabled": False}})

    with pytest.raises(InvalidStatus) as refused:
        await daemon.chat()

    assert refused.value.response.status_code == 404


async def test_one_user_cannot_take_every_connection(start: Start) -> None:
    """Others still find room."""
    daemon = await start(auth={"mode": "token"}, limits={"connections": 10})
    ann, bob = daemon.token("ann"), daemon.token("bob")
    held = [await daemon.chat(ann) for _ in range(2)]
    for chat in held:
        await chat.frame("ready")

    third = await daemon.chat(ann)

    assert await third.closed() == 1013
    assert (await (await daemon.chat(bob)).frame("ready"))["user"] == "bob"


async def test_many_frames_are_answered_one_after_the_other(start: Start) -> None:
    """A client that sends faster than allowed waits; nothing is dropped."""
    daemon = await start(channels={"websocket": {"frames_per_second": 100}})
    chat = await daemon.chat()

    for number in range(300):
        await chat.send("ping", id=str(number))
    answered = [(await chat.frame("pong"))["id"] for _ in range(300)]

    assert answered == [str(number) for number in range(300)]


async def test_a_dropped_connection_is_forgotten(daemon: Daemon) -> None:
    """Without a farewell; the number of connections tells."""
    chat, http = await daemon.chat(), await daemon.client()
    await chat.frame("ready")

    chat.socket.transport.abort()

    async with asyncio.timeout(60):
        while (await http.get("/api/v1/stats")).json()["connections"]:
            pass
    assert json.loads((await http.get("/readyz")).text)["status"] == "ok"
