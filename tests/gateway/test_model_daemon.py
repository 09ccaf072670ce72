"""The model agent through a real gateway, against a scripted model server."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.http.conftest import Start
from tests.http.daemon import Chat, Daemon
from tests.support.model_server import (
    answer,
    call,
    cut_after,
    hang,
    raw,
    status,
    thoughts,
    words,
)
from tests.support.scripted_http import ScriptedServer, Step

MCP = Path(__file__).parents[1] / "support" / "mcp_server.py"
KEY = "a key nobody may see"


async def serve(start: Start, server: ScriptedServer, **fields: Any) -> Daemon:
    agent = {
        "kind": "model",
        "model": "asked-1",
        "base_url": f"{server.url}/v1",
        "api_key": KEY,
        "retries": 1,
        **fields,
    }
    return await start(agents={"default": agent}, limits={"stream_idle_seconds": 2})


def play(server: ScriptedServer, *script: Step) -> None:
    """From the next request on."""
    server.script = list(script)
    server.requests.clear()


def rows(chat: Chat) -> list[dict[str, Any]]:
    return [frame for frame in chat.frames if frame["type"] == "message"]


async def test_an_answer_streams_and_is_recorded(start: Start) -> None:
    """Words and thoughts as they come; model and usage are kept with the session."""
    async with ScriptedServer(answer(thoughts("hm"), words("good ", "day"))) as server:
        daemon = await serve(start, server)
        chat = await daemon.chat()
        end = await chat.say("c", "hello")
        session = (await (await daemon.client()).get("/api/v1/sessions/websocket:c")).json()
        sent = server.requests[0].json
    closing = rows(chat)[-1]

    assert [f["text"] for f in chat.frames if f["type"] == "delta"] == ["good ", "day"]
    assert [f["text"] for f in chat.frames if f["type"] == "reasoning"] == ["hm"]
    assert (closing["content"], closing["reasoning"]) == ("good day", "hm")
    assert end["usage"] == closing["usage"]
    assert sum(session["usage"].values()) >= 18
    assert session["model"] in ("asked-1", "scripted-1")
    assert session["agent"] == "default"
    assert (sent["model"], sent["messages"][-1]["content"]) == ("asked-1", "hello")


async def test_a_tool_is_called_on_the_way(start: Start) -> None:
    """The call and its result are rows of the log, shown in order, before the answer."""
    calls = answer(call("c1", "calc_add", '{"a": 2, "b": 3}'), finish="tool_calls")
    tools = {"calc": {"command": sys.executable, "args": [str(MCP)]}}
    async with ScriptedServer(calls, answer(words("five"))) as server:
        chat = await (await serve(start, server, mcp_servers=tools)).chat()
        end = await chat.say("c", "2 + 3?")
        back = server.requests[1].json["messages"][-1]
    shown = [frame for frame in chat.frames if frame["type"] == "tool"]

    assert end["outcome"] == "ok"
    assert [row["role"] for row in rows(chat)] == ["user", "assistant", "tool", "assistant"]
    assert [row["content"] for row in rows(chat)][2:] == ["5", "five"]
    assert [(tool["name"], tool["phase"]) for tool in shown] == [
        ("calc_add", "start"),
        ("calc_add", "end"),
    ]
    assert (back["role"], back["content"]) == ("tool", "5")


async def test_a_tool_that_takes_longer_than_silence_may(start: Start) -> None:
    """Its own time-out ends it, not that of the stream; the model is told and answers."""
    calls = answer(call("c1", "calc_wait", "{}"), finish="tool_calls")
    server_settings = {"command": sys.executable, "args": [str(MCP)], "timeout_seconds": 3}
    async with ScriptedServer(calls, answer(words("so be it"))) as server:
        chat = await (await serve(start, server, mcp_servers={"calc": server_settings})).chat()
        end = await chat.say("c", "wait")

    assert end["outcome"] == "ok"
    assert rows(chat)[-1]["content"] == "so be it"


async def test_passing_failures_are_not_seen(start: Start) -> None:
    """Before the first word the model is asked again; the chat sees one answer."""
    async with ScriptedServer() as server:
        daemon = await serve(start, server)
        passing = (status(429, {"Retry-After": "0"}), status(500), status(503))
        for number, first in enumerate(passing):
            play(server, first, answer(words("here")))
            chat = await daemon.chat()
            end = await chat.say(f"chat {number}", "hello")

            assert end["outcome"] == "ok"
            assert [row["content"] for row in rows(chat)] == ["hello", "here"]
            assert len(server.requests) == 2


LASTING: dict[str, tuple[Step, str]] = {
    "cut": (cut_after(words("half ", "an")), "half an"),
    "hang": (hang(words("half ", "an")), "half an"),
    "no end": (answer(words("half ", "an"), finish=None), "half an"),
    "500": (status(500), ""),
    "401": (status(401, message=f"the key {KEY} is wrong"), ""),
    "page": (raw(b"<html>nonsense</html>"), ""),
    "garbage": (raw(b"data: {]\n\n"), ""),
}


async def test_lasting_failures_are_told(start: Start) -> None:
    """What was shown is kept, the turn has failed with a reason and no secret, the chat goes on."""
    async with ScriptedServer() as server:
        daemon = await serve(start, server)
        for name, (step, text) in LASTING.items():
            chat = await daemon.chat()
            play(server, step)
            end = await chat.say(name, "hello", id="1")
            closing = rows(chat)[-1]
            play(server, answer(words("better")))
            after = await chat.say(name, "again", id="2")

            assert (end["outcome"], closing["content"]) == ("failed", text), name
            assert closing["outcome"] == "failed"
            assert end["error"]
            assert (after["outcome"], rows(chat)[-1]["content"]) == ("ok", "better"), name
            assert KEY not in json.dumps(chat.frames) + "".join(daemon.lines)


async def test_a_fallback_answers(start: Start) -> None:
    """When the model cannot, the next agent of its list does; the chat sees one turn."""
    async with ScriptedServer(status(500)) as server:
        daemon = await start(
            agents={
                "default": {
                    "kind": "model",
                    "base_url": f"{server.url}/v1",
                    "api_key": KEY,
                    "retries": 0,
                    "fallback": ["parrot"],
                },
                "parrot": {"kind": "echo"},
            }
        )
        chat = await daemon.chat()
        end = await chat.say("c", "hello")

    assert (end["outcome"], rows(chat)[-1]["content"]) == ("ok", "hello")
    assert [frame["type"] for frame in chat.frames].count("turn_start") == 1
