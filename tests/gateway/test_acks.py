"""Acknowledgements that are lost, repeated, or asked for twice at once."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from channels.channel import Inbound, Sender
from channels.errors import Refused
from gateway.app import Gateway
from gateway.config import Settings
from gateway.router import Ack
from gateway.users import LOCAL
from tests.http.conftest import Start

BOT = """
import asyncio

async def hangs(turn):
    yield "so far "
    await asyncio.sleep(3600)
"""


def inbound(text: str = "hello", id: str = "m") -> Inbound:
    return Inbound(channel="websocket", chat_id="c", id=id, sender=Sender("local"), text=text)


async def test_a_lost_ack_in_a_full_mailbox(bot: Any) -> None:
    """On a new connection the same id gets the same ack, however full the mailbox is."""
    daemon = await bot("hangs", sessions={"mailbox_depth": 2})
    first = await daemon.chat()
    for number in (1, 2):
        await first.send("send", chat_id="c", id=str(number), text=f"text {number}")
    acks = [await first.frame("ack") for _ in range(2)]
    first.socket.transport.abort()
    second = await daemon.chat()
    again = []
    for number in (2, 1):
        await second.send("send", chat_id="c", id=str(number), text=f"text {number}")
        again.append(await second.frame("ack"))
    await second.send("send", chat_id="c", id="3", text="one too many")
    full = await second.frame("error")

    assert [(ack["seq"], ack["duplicate"]) for ack in acks] == [(1, False), (2, False)]
    assert [(ack["seq"], ack["duplicate"]) for ack in again] == [(2, True), (1, True)]
    assert (full["code"], full["id"]) == ("queue_full", "3")


async def test_a_lost_ack_and_the_rate_limit(start: Start) -> None:
    """What is in the log is acknowledged again even to somebody who sends too much."""
    chat = await (await start(limits={"messages_per_minute": 1})).chat()
    await chat.say("c", "hello", id="m")
    await chat.send("send", chat_id="c", id="m", text="hello")
    again = await chat.frame("ack")

    assert (again["seq"], again["duplicate"]) == (1, True)


async def test_the_same_id_with_another_text_everywhere(bot: Any) -> None:
    """A conflict on every connection, and the log keeps the first text."""
    daemon = await bot("hangs")
    first, second = await daemon.chat(), await daemon.chat()
    await first.send("send", chat_id="c", id="m", text="one")
    await first.frame("ack")
    await second.send("send", chat_id="c", id="m", text="two")
    error = await second.frame("error")
    rows = (await (await daemon.client()).get("/api/v1/sessions/websocket:c/messages")).json()

    assert (error["code"], error["id"], error["chat_id"]) == ("conflict", "m", "c")
    assert [row["content"] for row in rows["messages"]] == ["one"]


async def test_a_cut_between_ack_and_broadcast(start: Start) -> None:
    """Wherever the connection is cut, resending everything unacknowledged doubles nothing."""
    daemon = await start(limits={"messages_per_minute": 0})
    waiting = {str(number): f"text {number}" for number in range(40)}
    sent, seen = dict(waiting), 0
    for cut in range(400):
        chat = await daemon.chat()
        if seen:
            await chat.send("attach", chat_id="c", since=seen)
        batch = list(waiting.items())[:5]
        for name, text in batch:
            await chat.send("send", chat_id="c", id=name, text=text)
        for _ in range(cut % 17 + 1):
            if waiting.keys().isdisjoint(name for name, _ in batch):
                break
            frame = json.loads(await chat.socket.recv())
            if frame["type"] == "ack":
                waiting.pop(frame["id"], None)
            if frame["type"] == "message":
                seen = frame["seq"]
        chat.socket.transport.abort()
        if not waiting:
            break
    reader = await daemon.chat()
    await reader.send("attach", chat_id="c", since=0)
    said: list[tuple[str, str]] = []
    seqs: list[int] = []
    while len(said) < 2 * len(sent):
        row = await reader.frame("message")
        said.append((row["role"], row["content"]))
        seqs.append(row["seq"])

    assert not waiting
    assert [text for role, text in said if role == "user"] == list(sent.values())
    assert [text for role, text in said if role == "assistant"] == list(sent.values())
    assert seqs == list(range(1, 2 * len(sent) + 1))


@pytest.fixture
async def gateway(tmp_path: Path) -> Any:
    settings = Settings.model_validate(
        {
            "data_dir": tmp_path,
            "storage": {"sync": "turn"},
            "sessions": {"legacy_dirs": []},
        }
    )
    made = Gateway(settings)
    await made.start()
    yield made
    await made.stop()


async def test_two_connections_send_the_same_at_once(gateway: Gateway) -> None:
    """While the first is not durable yet the second waits too: each gets one ack."""
    first: list[Ack] = []
    second: list[Ack] = []
    await asyncio.gather(
        gateway.router.receive(inbound(), LOCAL, first.append),
        gateway.router.receive(inbound(), LOCAL, second.append),
    )

    assert [(ack.seq, ack.duplicate) for ack in first] == [(1, False)]
    assert [(ack.seq, ack.duplicate) for ack in second] == [(1, True)]


async def test_a_refusal_takes_nobody_elses_ack(gateway: Gateway) -> None:
    """Another text under an id that is being written is refused; the first is acknowledged."""
    acks: list[Ack] = []
    results = await asyncio.gather(
        gateway.router.receive(inbound("one"), LOCAL, acks.append),
        gateway.router.receive(inbound("two"), LOCAL, acks.append),
        return_exceptions=True,
    )

    assert results[0] is None
    assert isinstance(results[1], Refused)
    assert results[1].code == "conflict"
    assert [(ack.seq, ack.duplicate) for ack in acks] == [(1, False)]
