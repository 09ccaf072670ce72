"""Turns that take too long, through a real gateway."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.daemon import Chat

BOT = """
import asyncio
from gateway.agents.agent import Calls, Reasoning, ToolResult, ToolStarted

async def silent(turn):
    yield "so far"
    await asyncio.sleep(3600)

async def never(turn):
    await asyncio.sleep(3600)
    yield "too late"

async def endless(turn):
    while True:
        yield "on "
        await asyncio.sleep(0.01)

async def thinks(turn):
    for _ in range(15):
        yield Reasoning("hm ")
        await asyncio.sleep(0.1)
    yield "done"

async def works(turn):
    dig = {"name": "dig", "arguments": "{}"}
    yield Calls("", [{"id": "t", "type": "function", "function": dig}])
    yield ToolStarted("t", "dig", "")
    await asyncio.sleep(1.5)
    yield ToolResult("t", "dig", "gold")
    yield "done"

async def works_then_hangs(turn):
    async for event in works(turn):
        yield event
    await asyncio.sleep(3600)
"""
IDLE = {"stream_idle_seconds": 1}
SOON = {"stream_idle_seconds": 0.3}


def closing(chat: Chat) -> dict[str, Any]:
    return [frame for frame in chat.frames if frame["type"] == "message"][-1]


@pytest.mark.parametrize(
    ("agent", "limits", "text", "reason"),
    [
        ("silent", SOON, "so far", "silent for 0.3 seconds"),
        ("never", SOON, "", "silent for 0.3 seconds"),
        ("never", {"turn_seconds": 0.3}, "", "longer than 0.3 seconds"),
        ("endless", {"turn_seconds": 1, **IDLE}, "on on ", "longer than 1 seconds"),
        ("works_then_hangs", SOON, "done", "silent for 0.3 seconds"),
        ("works", {"turn_seconds": 0.3}, "", "longer than 0.3 seconds"),
    ],
)
async def test_a_turn_that_takes_too_long_fails(
    bot: Any, agent: str, limits: dict[str, float], text: str, reason: str
) -> None:
    """It keeps what was shown, says why, and the chat goes on with the next message."""
    daemon = await bot(agent, limits=limits)
    chat = await daemon.chat()
    end = await chat.say("c", "go")
    row = closing(chat)
    await chat.send("send", chat_id="c", id="2", text="again")

    assert end["outcome"] == row["outcome"] == "failed"
    assert reason in end["error"]
    assert row["content"].startswith(text)
    assert row["settles"] == {"1": "failed"}
    assert (await chat.frame("turn_start"))["text"] == ""


@pytest.mark.parametrize("agent", ["thinks", "works"])
async def test_an_agent_at_work_is_not_idle(bot: Any, agent: str) -> None:
    """Thoughts are a sign of life, and a tool has its own time."""
    chat = await (await bot(agent, limits=IDLE)).chat()
    end = await chat.say("c", "go")

    assert end["outcome"] == "ok"
    assert closing(chat)["content"] == "done"


async def test_a_timed_out_turn_is_not_run_again(bot: Any) -> None:
    """After a restart its message has its outcome and nothing is taken up again."""
    daemon = await bot("silent", limits=SOON)
    await (await daemon.chat()).say("c", "go")
    await daemon.stop()
    await daemon.start()
    chat = await daemon.chat()
    await chat.send("attach", chat_id="c", since=0)
    rows = [await chat.frame("message") for _ in range(2)]
    await chat.send("ping")
    await chat.frame("pong")

    assert [row["role"] for row in rows] == ["user", "assistant"]
    assert not [frame for frame in chat.frames if frame["type"] == "turn_start"]
