"""Turns through a real gateway: order, Stop, being busy, edits."""

from typing import Any

import pytest

from tests.http.conftest import Start
from tests.http.daemon import Chat

BOT = """
import asyncio, os, time

async def hangs(turn):
    yield "so far "
    await asyncio.sleep(3600)

async def deaf(turn):
    yield "so far "
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

def blocks(turn):
    time.sleep(3600)

async def fails(turn):
    yield "half "
    raise RuntimeError("a secret detail")

async def recalls(turn):
    yield " | ".join(f"{row.role}: {row.content}" for row in turn.messages)
"""


async def running(chat: Chat, chat_id: str, id: str = "1") -> None:
    """Sends a message and waits until its turn shows something."""
    await chat.send("send", chat_id=chat_id, id=id, text="go")
    await chat.frame("delta")


async def test_frames_of_a_turn_come_in_order(start: Start) -> None:
    """Acknowledged, shown, streamed, stored, ended."""
    chat = await (await start()).chat()
    await chat.frame("ready")
    await chat.say("c", "one two")

    kinds = [frame["type"] for frame in chat.frames if frame["type"] != "session"]
    assert kinds == [
        "ready",
        "attached",
        "ack",
        "message",
        "turn_start",
        "delta",
        "delta",
        "message",
        "turn_end",
    ]
    assert [frame["n"] for frame in chat.frames if frame["type"] == "delta"] == [0, 1]


async def test_the_same_message_is_answered_once(start: Start) -> None:
    """Sent again it gets the same acknowledgement; with another text it is a conflict."""
    chat = await (await start()).chat()
    await chat.say("c", "hello", id="m")
    await chat.send("send", chat_id="c", id="m", text="hello")
    again = await chat.frame("ack")
    await chat.send("send", chat_id="c", id="m", text="other")
    error = await chat.frame("error")

    assert (again["seq"], again["duplicate"]) == (1, True)
    assert (error["code"], error["id"]) == ("conflict", "m")


@pytest.mark.parametrize("agent", ["hangs", "deaf", "blocks"])
async def test_stop_ends_any_turn(bot: Any, agent: str) -> None:
    """However the agent hangs, its turn ends as stopped, with what was shown."""
    chat = await (await bot(agent)).chat()
    await chat.send("send", chat_id="c", id="1", text="go")
    await chat.frame("turn_start" if agent == "blocks" else "delta")
    await chat.send("stop", chat_id="c")
    end = await chat.frame("turn_end")
    closing = next(f for f in chat.frames if f["type"] == "message" and f["role"] == "assistant")

    assert end["outcome"] == "stopped"
    assert closing["content"] == ("" if agent == "blocks" else "so far ")
    assert closing["settles"] == {"1": "stopped"}


async def test_stop_all_ends_the_queue_too(bot: Any) -> None:
    """Every waiting message has an outcome."""
    daemon = await bot("hangs")
    chat = await daemon.chat()
    await running(chat, "c")
    for number in (2, 3):
        await chat.send("send", chat_id="c", id=str(number), text="wait")
        await chat.frame("ack")
    await chat.send("stop", chat_id="c", all=True)
    await chat.frame("turn_end")
    client = await daemon.client()
    rows = (await client.get("/api/v1/sessions/websocket:c/messages")).json()["messages"]

    settled = {seq: how for row in rows for seq, how in (row.get("settles") or {}).items()}
    assert settled == {"1": "stopped", "2": "stopped", "3": "stopped"}


async def test_a_failing_agent_keeps_what_it_said(bot: Any) -> None:
    """The partial text is stored, the user is told, details stay in the log."""
    chat = await (await bot("fails")).chat()
    end = await chat.say("c", "go")
    closing = chat.frames[-2] if chat.frames[-2]["type"] == "message" else chat.frames[-3]

    assert (end["outcome"], end["error"]) == ("failed", "The agent failed.")
    assert (closing["content"], closing["outcome"]) == ("half ", "failed")
    assert not any("secret" in str(frame) for frame in chat.frames)


async def test_queued_messages_are_answered_in_order(start: Start) -> None:
    """Each has its own turn, one after the other."""
    chat = await (await start(agents={"default": {"kind": "echo", "delay_ms": 5}})).chat()
    for number in range(5):
        await chat.send("send", chat_id="c", id=str(number), text=f"text {number}")
    for _ in range(5):
        await chat.frame("turn_end")

    rows = [f for f in chat.frames if f["type"] == "message" and f["role"] == "assistant"]
    assert [row["content"] for row in rows] == [f"text {number}" for number in range(5)]


async def test_collect_makes_one_turn_of_what_waits(start: Start) -> None:
    """Waiting messages of one sender are answered together."""
    daemon = await start(
        agents={"default": {"kind": "echo", "delay_ms": 50}}, sessions={"when_busy": "collect"}
    )
    chat = await daemon.chat()
    await chat.send("send", chat_id="c", id="0", text="a b c d e f")
    await chat.frame("delta")
    for number in range(1, 4):
        await chat.send("send", chat_id="c", id=str(number), text=f"{number}")
    await chat.frame("turn_end")
    await chat.frame("turn_end")

    rows = [f for f in chat.frames if f["type"] == "message" and f["role"] == "assistant"]
    settled = {k: v for row in rows for k, v in row["settles"].items()}
    assert len(rows) == 2
    assert settled["1"] == "answered"
    assert sorted(settled.values()) == ["answered", "answered", "merged", "merged"]


async def test_interrupt_closes_the_running_turn(bot: Any) -> None:
    """A new message ends the turn with its partial text, then has its own."""
    chat = await (await bot("hangs", sessions={"when_busy": "interrupt"})).chat()
    await running(chat, "c")
    await chat.send("send", chat_id="c", id="2", text="never mind")
    end = await chat.frame("turn_end")
    await chat.frame("delta")

    assert end["outcome"] == "interrupted"


async def test_reject_tells_the_sender(bot: Any) -> None:
    """While a turn runs nothing else is taken in."""
    chat = await (await bot("hangs", sessions={"when_busy": "reject"})).chat()
    await running(chat, "c")
    await chat.send("send", chat_id="c", id="2", text="me too")
    error = await chat.frame("error")

    assert (error["code"], error["id"]) == ("busy", "2")


async def test_a_full_queue_is_told_and_a_lost_ack_is_not_refused(bot: Any) -> None:
    """A message that is in the log is acknowledged even when there is no room for another."""
    chat = await (await bot("hangs", sessions={"mailbox_depth": 2})).chat()
    await running(chat, "c")
    await chat.send("send", chat_id="c", id="2", text="two")
    await chat.frame("ack")
    await chat.send("send", chat_id="c", id="3", text="three")
    full = await chat.frame("error")
    await chat.send("send", chat_id="c", id="2", text="two")
    again = await chat.frame("ack")

    assert full["code"] == "queue_full"
    assert (again["id"], again["duplicate"]) == ("2", True)


async def test_too_many_messages_are_told_when_to_come_back(start: Start) -> None:
    """The rate limit is per user and says how long to wait."""
    chat = await (await start(limits={"messages_per_minute": 2})).chat()
    for number in range(3):
        await chat.send("send", chat_id="c", id=str(number), text="x")
    error = await chat.frame("error")

    assert error["code"] == "rate_limited"
    assert error["retry_after"] > 0


async def test_an_edit_replaces_a_message_and_its_answer(bot: Any) -> None:
    """The model sees the new text only; the log keeps both."""
    chat = await (await bot("recalls")).chat()
    await chat.say("c", "first", id="1")
    await chat.say("c", "second", id="2", replaces=1)

    answer = next(
        f for f in reversed(chat.frames) if f["type"] == "message" and f["role"] == "assistant"
    )
    assert answer["content"] == "user: second"


async def test_regenerate_asks_again(bot: Any) -> None:
    """The last question is answered anew, without the answer it had."""
    chat = await (await bot("recalls")).chat()
    await chat.say("c", "question", id="1")
    await chat.send("regenerate", chat_id="c", id="2")
    end = await chat.frame("turn_end")

    rows = [f for f in chat.frames if f["type"] == "message" and f["role"] == "assistant"]
    assert end["outcome"] == "ok"
    assert rows[-1]["content"] == "user: question"


async def test_regenerate_keeps_the_files(bot: Any) -> None:
    """The question that is asked again carries what it carried."""
    daemon = await bot("recalls")
    client = await daemon.client()
    made = (await client.post("/api/v1/media", files={"file": ("a.txt", b"notes")})).json()
    chat = await daemon.chat()
    await chat.say("c", "question", id="1", media=[made["id"]])
    await chat.send("regenerate", chat_id="c", id="2")
    await chat.frame("turn_end")

    rows = [f for f in chat.frames if f["type"] == "message" and f["role"] == "user"]
    assert [[file["id"] for file in row["media"]] for row in rows] == [[made["id"]]] * 2


async def test_new_starts_afresh_and_keeps_the_old_one(bot: Any) -> None:
    """The model forgets; the conversation that ended can be listed and read."""
    daemon = await bot("recalls")
    chat = await daemon.chat()
    await chat.say("c", "before", id="1")
    await chat.say("c", "/new", id="2")
    await chat.say("c", "after", id="3")
    client = await daemon.client()
    listed = (await client.get("/api/v1/sessions")).json()["sessions"]

    rows = [f for f in chat.frames if f["type"] == "message" and f["role"] == "assistant"]
    assert rows[-1]["content"] == "user: after"
    assert {item["key"] for item in listed} == {"websocket:c", "websocket:c#1"}


async def test_commands_answer_while_a_turn_runs(bot: Any) -> None:
    """Immediate commands do not wait and never reach the model."""
    chat = await (await bot("hangs")).chat()
    await running(chat, "c")
    end = await chat.say("c", "/where", id="2")

    answer = next(
        f for f in reversed(chat.frames) if f["type"] == "message" and f["role"] == "assistant"
    )
    assert end["outcome"] == "command"
    assert "Message 1 is being answered" in answer["content"]


async def test_the_chat_remembers_who_answers(start: Start) -> None:
    """The agent a route has chosen stays with the chat and is shown."""
    routes = [{"chat": "c*", "agent": "second"}]
    agents = {"default": {"kind": "echo"}, "second": {"kind": "echo"}}
    daemon = await start(agents=agents, routes=routes)
    chat = await daemon.chat()
    await chat.say("c", "hello")
    found = (await (await daemon.client()).get("/api/v1/sessions/websocket:c")).json()

    assert found["agent"] == "second"


async def test_a_message_is_answered_only_once_it_is_acknowledged(start: Start) -> None:
    """With `sync: turn` a row is in memory before it is durable; no turn may start from it."""
    daemon = await start(
        storage={"sync": "turn"},
        sessions={"mailbox_depth": 1_000},
        limits={"messages_per_minute": 0},
    )
    chats = [await daemon.chat() for _ in range(4)]
    for chat in chats:
        for number in range(10):
            await chat.send("send", chat_id="c", id=f"{id(chat)}-{number}", text="a")
    for _ in range(40):
        await chats[0].frame("turn_end")
    seqs = [frame["seq"] for frame in chats[0].frames if frame["type"] == "message"]

    assert seqs == list(range(1, 81))
    assert not [event for event in daemon.events if event["event"] == "turn recovered"]
