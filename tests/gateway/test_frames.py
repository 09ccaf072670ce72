"""The protocol without sockets: any text is a frame or a refusal, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channels.channel import Event, Inbound, Sender
from channels.errors import Refused
from channels.websocket import protocol
from channels.websocket.endpoint import Connection
from channels.websocket.protocol import BadFrame, ClientFrame, Ping
from sessions.tasks import Tasks

KINDS = ["hello", "attach", "detach", "send", "regenerate", "stop", "ping"]
NAMES = ["type", "chat_id", "key", "id", "text", "media", "replaces", "since", "log", "all"]
CHATS = ["a", "b", "gone"]

texts = st.text(st.characters())  # With half characters, unlike the default alphabet.
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=10,
)
fields = st.dictionaries(st.sampled_from([*NAMES, "extra"]), anything, max_size=5)
frames = st.builds(lambda kind, rest: {**rest, "type": kind}, st.sampled_from(KINDS), fields)


def parsed(text: str | bytes) -> ClientFrame | BadFrame:
    try:
        return protocol.parse(text)
    except BadFrame as error:
        return error


@given(st.one_of(anything, frames).map(json.dumps) | texts | st.binary())
def test_any_text_is_a_frame_or_a_bad_frame(text: str | bytes) -> None:
    """No other error, whatever it holds; what is known of a bad frame can be sent back."""
    frame = parsed(text)

    assert isinstance(frame, (*get_args(ClientFrame), BadFrame))
    if isinstance(frame, BadFrame):
        json.loads(protocol.error("bad_frame", frame.message, id=frame.id, chat_id=frame.chat_id))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\ud800",
        '{"type":"ping","id":"\\ud800"}',
        "[" * 100_000,
        '{"type":' * 100_000,
        '{"type":"ping","id":' + "[" * 5_000 + "]" * 5_000 + "}",
        '{"type":"ping","type":"hello"}',
        '{"type":"ping"}{"type":"ping"}',
        '{"type":"ping","id":NaN}',
        '{"type":"ping","id":1e999}',
        '{"type":"attach","chat_id":"a","since":true}',
        '{"type":"attach","chat_id":"a","since":"1"}',
    ],
    ids=range(12),
)
def test_what_is_no_frame(text: str) -> None:
    """Half characters, endless nesting, two kinds at once, numbers that are none."""
    assert isinstance(parsed(text), BadFrame)


def test_what_is_said_twice_counts_once() -> None:
    """The last one of two fields of a name; a number of any size comes back as it was."""
    twice = parsed('{"type":"ping","id":"a","id":"b"}')
    huge = parsed(json.dumps({"type": "ping", "id": 10**40}))

    assert twice == Ping("b")
    assert isinstance(huge, Ping)
    assert json.loads(protocol.encode("pong", {"id": huge.id}))["id"] == 10**40


@given(texts, st.dictionaries(texts, anything, max_size=4))
def test_every_event_can_be_sent(kind: str, values: dict[str, Any]) -> None:
    """A frame is always UTF-8 and JSON, even with half a character in it."""
    frame = json.loads(protocol.encode(kind, values).decode())

    assert set(frame) >= {"type"}


class FakeSocket:
    """A socket that takes everything."""

    def __init__(self) -> None:
        self.on_writable: Callable[[], None] | None = None
        self.open = self.has_room = True
        self.sent: list[dict[str, Any]] = []

    def write_texts(self, frames: Iterable[bytes]) -> None:
        self.sent.extend(map(json.loads, frames))

    def cut(self, code: int, _reason: str) -> None:
        self.open = False
        raise AssertionError(f"cut with {code}")


class FakeChat:
    def __init__(self, sink: Any) -> None:
        self.over = False
        self.on_event = sink.send


class FakeGateway:
    """Two chats exist, everything else does not; it counts who watches."""

    sender = Sender("ann")

    def __init__(self) -> None:
        self.watches = 0

    def ready(self) -> dict[str, Any]:
        return {"user": "ann"}

    async def watch(self, chat: str, *, by_key: bool, new: bool, sink: Any) -> FakeChat:
        if by_key or (chat not in CHATS[:2] and not new):
            raise Refused("not_found", "There is no such chat.")
        await asyncio.sleep(0)
        self.watches += 1
        return FakeChat(sink)

    async def replay(self, chat: FakeChat, *_: Any) -> None:
        await asyncio.sleep(0)
        chat.on_event(Event("attached", {}))

    def unwatch(self, _chat: FakeChat) -> None:
        self.watches -= 1

    async def receive(self, inbound: Inbound, acknowledge: Callable[[Any], None]) -> None:
        if inbound.chat_id not in CHATS[:2]:
            raise Refused("not_found", "There is no such chat.")
        acknowledge(_Ack(inbound.id, 1))

    async def stop(self, chat_id: str, *, everything: bool) -> None:
        if chat_id not in CHATS[:2]:
            raise Refused("not_found", f"There is no such chat to stop ({everything}).")

    async def resolve_media(self, ids: list[str]) -> list[dict[str, Any]]:
        raise Refused("not_found", f"There are no such {len(ids)} files.")

    def join(self, on_event: Any) -> None: ...

    def leave(self, on_event: Any) -> None: ...


class _Ack(msgspec.Struct, frozen=True):
    id: str
    seq: int
    duplicate: bool = False
    queued: int = 0


chats = st.sampled_from(CHATS)
ids = st.text(max_size=3)
steps = st.lists(
    st.one_of(
        st.builds(lambda c: {"type": "attach", "chat_id": c}, chats),
        st.builds(lambda c: {"type": "attach", "key": c}, chats),
        st.builds(lambda c: {"type": "detach", "chat_id": c}, chats),
        st.builds(lambda c, i: {"type": "send", "chat_id": c, "id": i, "text": "x"}, chats, ids),
        st.builds(lambda c: {"type": "send", "chat_id": c, "id": "m", "media": ["f"]}, chats),
        st.builds(lambda c, i: {"type": "regenerate", "chat_id": c, "id": i}, chats, ids),
        st.builds(lambda c: {"type": "stop", "chat_id": c}, chats),
        frames,
    ),
    max_size=12,
)


async def converse(said: list[Any]) -> tuple[list[dict[str, Any]], int]:
    """Everything a connection answers to these frames, and what it still watches at the end."""
    socket, gateway, tasks = FakeSocket(), FakeGateway(), Tasks("test")
    inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    made: Any = Connection
    connection = made(socket, gateway, attachments=2, spawn=tasks.spawn)
    for item in [*map(json.dumps, said), '{"type":"ping","id":"the end"}']:
        inbox.put_nowait({"type": "websocket.receive", "text": item})
    serving = tasks.spawn(connection.serve(inbox.get), "serve", awaited=True)
    async with asyncio.timeout(30):
        while not any(frame.get("id") == "the end" for frame in socket.sent):
            await asyncio.sleep(0)
        inbox.put_nowait({"type": "websocket.disconnect"})
        await serving
        await tasks.wait()
    return socket.sent, gateway.watches


@given(steps)
@settings(max_examples=60)
def test_a_connection_answers_whatever_comes(said: list[Any]) -> None:
    """In any order of frames it lives, refuses by the contract's codes, and leaves nothing open."""
    sent, watches = asyncio.run(converse(said))
    codes = {frame["code"] for frame in sent if frame["type"] == "error"}
    acked = [frame["id"] for frame in sent if frame["type"] == "ack"]
    wanted = [f for f in map(json.dumps, said) if not isinstance(parsed(f), BadFrame)]
    sends = [json.loads(f) for f in wanted if json.loads(f)["type"] in ("send", "regenerate")]

    assert sent[0]["type"] == "ready"
    assert codes <= {"bad_frame", "not_found", "too_large"}
    assert watches == 0
    assert len(acked) <= len(sends)
