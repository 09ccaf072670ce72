"""The webhook agent through a real gateway."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from tests.http.conftest import Start
from tests.http.daemon import Daemon
from tests.support.scripted_http import Reply, Request, ScriptedServer, Step

SECRET = "between us"


def ndjson(*events: dict[str, Any], cut: bool = False) -> Step:
    async def step(_: Request, reply: Reply) -> None:
        await reply.head(200, {"Content-Type": "application/x-ndjson"})
        for event in events:
            await reply.piece(json.dumps(event).encode() + b"\n")
        if cut:
            reply.cut()
        else:
            await reply.end()

    return step


async def serve(start: Start, server: ScriptedServer) -> Daemon:
    agent = {"kind": "webhook", "url": server.url + "/turn", "secret": SECRET, "retries": 0}
    return await start(agents={"default": agent})


async def test_a_service_answers_a_chat(start: Start) -> None:
    """Words and thoughts stream, usage is recorded, and the next turn carries the history."""
    said: list[dict[str, Any]] = [
        {"type": "reasoning", "text": "hm"},
        {"type": "delta", "text": "good "},
        {"type": "delta", "text": "day"},
        {"type": "end", "usage": {"input_tokens": 3, "output_tokens": 2}},
    ]
    async with ScriptedServer(ndjson(*said)) as server:
        daemon = await serve(start, server)
        chat = await daemon.chat()
        end = await chat.say("c", "hello", id="1")
        await chat.say("c", "again", id="2")
        second = server.requests[1]
        row = [frame for frame in chat.frames if frame["type"] == "message"][1]

    assert [f["text"] for f in chat.frames if f["type"] == "delta"][:2] == ["good ", "day"]
    assert (end["outcome"], row["content"], row["reasoning"]) == ("ok", "good day", "hm")
    assert end["usage"] == row["usage"] == {"input_tokens": 3, "output_tokens": 2}
    assert second.json["text"] == "again"
    assert [message["content"] for message in second.json["messages"]][:2] == ["hello", "good day"]
    assert second.json["session"]["key"] == "websocket:c"
    signed = second.headers["parley-timestamp"].encode() + b"." + second.body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert second.headers["parley-signature"] == f"sha256={expected}"


async def test_a_service_that_breaks_off(start: Start) -> None:
    """What it said is kept; the turn has failed and the service is not asked twice."""
    async with ScriptedServer(ndjson({"type": "delta", "text": "half"}, cut=True)) as server:
        chat = await (await serve(start, server)).chat()
        end = await chat.say("c", "hello")
        row, url = [frame for frame in chat.frames if frame["type"] == "message"][-1], server.url

    assert (end["outcome"], row["content"]) == ("failed", "half")
    assert len(server.requests) == 1
    assert url not in json.dumps(chat.frames)
