"""What no client should send, through a real gateway: each gets its error, nobody else notices."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.http.conftest import Start
from tests.http.daemon import Chat, Daemon

BAD: dict[str, tuple[str, str]] = {
    "no type": ("{}", "bad_frame"),
    "a list": ("[1]", "bad_frame"),
    "null": ("null", "bad_frame"),
    "a number for a type": ('{"type":1}', "bad_frame"),
    "a server's frame": ('{"type":"ack","chat_id":"c","id":"x","seq":1}', "bad_frame"),
    "text is a list": ('{"type":"send","chat_id":"c","id":"x","text":[]}', "bad_frame"),
    "text is missing": ('{"type":"send","chat_id":"c","id":"x"}', "bad_frame"),
    "id is empty": ('{"type":"send","chat_id":"c","id":"","text":"y"}', "bad_frame"),
    "id is too long": (
        json.dumps({"type": "send", "chat_id": "c", "id": "i" * 257, "text": "y"}),
        "bad_frame",
    ),
    "text is empty": ('{"type":"send","chat_id":"c","id":"x","text":" \\n"}', "bad_frame"),
    "half a character": ('{"type":"send","chat_id":"c","id":"x","text":"\\ud800"}', "bad_frame"),
    "half a character in a chat": ('{"type":"attach","chat_id":"\\udfff"}', "bad_frame"),
    "media is text": ('{"type":"send","chat_id":"c","id":"x","text":"y","media":"z"}', "bad_frame"),
    "media nobody has": (
        '{"type":"send","chat_id":"c","id":"x","text":"y","media":["../../secret"]}',
        "not_found",
    ),
    "both names": ('{"type":"attach","chat_id":"c","key":"websocket:c"}', "bad_frame"),
    "a key that is none": ('{"type":"attach","key":"c"}', "bad_frame"),
    "since is text": ('{"type":"attach","chat_id":"c","since":"0"}', "bad_frame"),
    "since is a fraction": ('{"type":"attach","chat_id":"c","since":0.5}', "bad_frame"),
    "a chat that is not there": ('{"type":"attach","chat_id":"nowhere"}', "not_found"),
    "stop nothing": ('{"type":"stop","chat_id":"nowhere"}', "not_found"),
    "regenerate nothing": ('{"type":"regenerate","chat_id":"nowhere","id":"r"}', "not_found"),
    "replace nothing": (
        '{"type":"send","chat_id":"c","id":"x","text":"y","replaces":99}',
        "not_found",
    ),
    "replace a huge number": (
        json.dumps({"type": "send", "chat_id": "c", "id": "x", "text": "y", "replaces": 10**30}),
        "not_found",
    ),
    "replace an answer": (
        '{"type":"send","chat_id":"c","id":"x","text":"y","replaces":2}',
        "not_found",
    ),
    "a chat id of 513 bytes": (
        json.dumps({"type": "send", "chat_id": "c" * 513, "id": "x", "text": "y"}),
        "bad_frame",
    ),
    "a long text": (
        json.dumps({"type": "send", "chat_id": "c", "id": "x", "text": "y" * 65_537}),
        "too_large",
    ),
    "1 MB of combining characters": (
        '{"type":"send","chat_id":"c","id":"x","text":"' + "e" + "\u0301" * 500_000 + '"}',
        "too_large",
    ),
}
CHATS = [
    "../../etc",
    "a/messages",
    "a",
    "%2e",
    ".",
    "..",
    "%2e%2e",
    "%",
    "#1",
    "a#1",
    "a:b:c",
    " ",
    "nul\x00nul",
    "esc\x1b[31m",
    "line\nbreak",
    "é" * 256,
    "c" * 512,
    "A",
    "CON",
    "\u202egnp.exe",
]


async def rows_of(daemon: Daemon, chat_id: str) -> list[dict[str, Any]]:
    """All that is in the log of a chat, as a fresh client reads it."""
    reader = await daemon.chat()
    await reader.send("attach", chat_id=chat_id, since=0)
    attached = await reader.frame("attached")
    rows = [await reader.frame("message") for _ in range(attached["last_seq"])]
    reader.socket.transport.abort()
    return rows


async def test_every_bad_frame_gets_its_error(start: Start) -> None:
    """The connection lives, nothing of it is logged, and a bystander sees nothing."""
    daemon = await start(limits={"messages_per_minute": 0})
    chat, bystander = await daemon.chat(), await daemon.chat()
    await chat.say("c", "good", id="good")
    await bystander.send("attach", chat_id="c")
    await bystander.frame("message")
    await bystander.frame("message")
    for name, (frame, code) in BAD.items():
        await chat.socket.send(frame)
        assert (await chat.frame("error"))["code"] == code, name
        await chat.send("ping", id=name)
        assert (await chat.frame("pong"))["id"] == name
    seen = len(bystander.frames)
    await bystander.send("ping")
    await bystander.frame("pong")

    assert len(bystander.frames) == seen + 1
    assert [row["content"] for row in await rows_of(daemon, "c")] == ["good", "good"]
    assert not [event for event in daemon.events if event["level"] == "ERROR"]


async def test_every_chat_id_is_a_chat_of_its_own(start: Start) -> None:
    """Whatever is in the name; also after a restart, and nothing lies outside the directory."""
    daemon = await start(limits={"messages_per_minute": 0})
    chat = await daemon.chat()
    for chat_id in CHATS:
        assert (await chat.say(chat_id, f"to {chat_id}"))["outcome"] == "ok"
    await daemon.stop()
    await daemon.start()
    for chat_id in CHATS:
        rows = await rows_of(daemon, chat_id)
        assert [row["content"] for row in rows] == [f"to {chat_id}"] * 2, chat_id

    logs = sorted((daemon.data / "sessions").rglob("*.jsonl"))
    assert len(logs) == len(CHATS)
    assert {log.parent for log in logs} == {daemon.data / "sessions" / "websocket"}
    assert {path.name for path in daemon.directory.iterdir()} <= {"config.yaml", "data"}


@pytest.mark.parametrize(
    "text",
    [
        "nul \x00 nul",
        "".join(map(chr, range(32))) + "\x7f\x80\x9f",
        "e" + "\u0301" * 30_000,
        "\ufeff",
    ],
    ids=["nul", "controls", "combining", "bom"],
)
async def test_strange_text_is_kept_as_it_is(start: Start, text: str) -> None:
    """It is stored, answered, listed and found again after a restart, letter by letter."""
    daemon = await start()
    chat = await daemon.chat()
    end = await chat.say("c", text)
    listed = (await (await daemon.client()).get("/api/v1/sessions")).json()["sessions"]
    await daemon.stop()
    await daemon.start()
    rows = await rows_of(daemon, "c")

    assert end["outcome"] == "ok"
    assert len(listed[0]["preview"]) <= 120
    assert rows[0]["content"] == text
    assert rows[1]["content"] == text


async def test_a_flood_of_frames_is_answered_in_order(start: Start) -> None:
    """1,000 at once, good and bad: each is answered, others do not wait for them."""
    daemon = await start(channels={"websocket": {"frames_per_second": 500}})
    chat, other = await daemon.chat(), await daemon.chat()
    flood = [
        json.dumps({"type": "ping", "id": at}) if at % 2 else "nonsense" for at in range(1_000)
    ]

    async def shout() -> None:
        for frame in flood:
            await chat.socket.send(frame)

    async with asyncio.TaskGroup() as group:
        group.create_task(shout())
        await other.say("c", "hello")
    answers = [await answer_of(chat) for _ in flood]

    assert [a.get("id") for a in answers if a["type"] == "pong"] == list(range(1, 1_000, 2))
    assert {a["code"] for a in answers if a["type"] == "error"} == {"bad_frame"}


async def answer_of(chat: Chat) -> dict[str, Any]:
    while True:
        async with asyncio.timeout(60):
            frame: dict[str, Any] = json.loads(await chat.socket.recv())
        if frame["type"] in ("pong", "error"):
            return frame


async def test_nobody_waits_for_a_chat_of_somebody_else(start: Start) -> None:
    """Attached or sending before the owner begins it, another user sees nothing of it."""
    daemon = await start(auth={"mode": "token"})
    ann, bob = await daemon.chat(daemon.token("ann")), await daemon.chat(daemon.token("bob"))
    await bob.send("attach", chat_id="plan")
    early = await bob.frame("error")
    await ann.say("plan", "a secret plan")
    refused = [early]
    for kind, fields in (
        ("attach", {}),
        ("send", {"id": "1", "text": "mine?"}),
        ("send", {"id": "1", "text": "a secret plan"}),
        ("regenerate", {"id": "1"}),
        ("stop", {}),
        ("stop", {"all": True}),
    ):
        await bob.send(kind, chat_id="plan", **fields)
        refused.append(await bob.frame("error"))
    await ann.say("plan", "another secret", id="2")
    await bob.send("attach", key="websocket:plan")
    refused.append(await bob.frame("error"))

    assert {(error["code"], error["message"]) for error in refused} == {
        ("not_found", "There is no such chat.")
    }
    shown = [frame for frame in bob.frames if "secret" in json.dumps(frame)]
    assert shown == []
    assert {frame["type"] for frame in bob.frames} == {"ready", "error"}


async def test_two_users_begin_the_same_chat_at_once(start: Start) -> None:
    """It belongs to the one whose message came first; the other is told that there is none."""
    daemon = await start(auth={"mode": "token"}, storage={"sync": "turn"})
    chats = [await daemon.chat(daemon.token(name)) for name in ("ann", "bob")]
    owned = 0
    for number in range(20):
        for at, chat in enumerate(chats):
            await chat.send("send", chat_id=f"race {number}", id="1", text=f"of {at}")
        kinds = [await first_answer(chat, f"race {number}") for chat in chats]
        owned += sorted(kinds) == ["ack", "not_found"]
    for chat in chats:
        await chat.send("ping")
        await chat.frame("pong")

    assert owned == 20
    for at, chat in enumerate(chats):
        seen = {frame["content"] for frame in chat.frames if frame["type"] == "message"}
        assert seen <= {f"of {at}"}


async def first_answer(chat: Chat, chat_id: str) -> str:
    while True:
        async with asyncio.timeout(60):
            frame: dict[str, Any] = json.loads(await chat.socket.recv())
        chat.frames.append(frame)
        if frame.get("chat_id") == chat_id and frame["type"] in ("ack", "error"):
            return str(frame.get("code", "ack"))
