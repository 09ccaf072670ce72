"""The webhook agent against a scripted service, to the letter of the contract."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from loguru import logger

from gateway.agents.agent import Delta, Reasoning, Usage
from gateway.agents.fallback import AgentUnavailable
from gateway.agents.retry import Backoff
from gateway.agents.webhook import WebhookAgent
from gateway.agents.webhook_wire import MAX_BODY_BYTES, MAX_LINE_BYTES, BadAnswer, Lines
from gateway.config import WebhookAgentSettings
from sessions.history import ModelRow
from tests.support.scripted_http import Reply, Request, ScriptedServer, Step
from tests.support.turns import collect, collect_failure, make_turn, text_of

SECRET = "s3cret"
NDJSON = "application/x-ndjson"
SSE = "text/event-stream"
END = {"type": "end"}


def delta(text: str) -> dict[str, str]:
    return {"type": "delta", "text": text}


def whole(body: Any, code: int = 200, **headers: str) -> Step:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def step(_: Request, reply: Reply) -> None:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        await reply.whole(code, data, {"Content-Type": "application/json", **given})

    return step


def stream(content_type: str, *pieces: bytes, cut: bool = False) -> Step:
    async def step(_: Request, reply: Reply) -> None:
        await reply.head(200, {"Content-Type": content_type})
        for piece in pieces:
            await reply.piece(piece)
        if cut:
            reply.cut()
        else:
            await reply.end()

    return step


def lines(*events: dict[str, Any], cut: bool = False) -> Step:
    return stream(NDJSON, *(json.dumps(e).encode() + b"\n" for e in events), cut=cut)


@asynccontextmanager
async def hook(
    *script: Step, **fields: Any
) -> AsyncGenerator[tuple[WebhookAgent, ScriptedServer], None]:
    async with ScriptedServer(*script) as server:
        settings = WebhookAgentSettings.model_validate(
            {"kind": "webhook", "url": f"{server.url}/hook", "secret": SECRET, **fields}
        )
        agent = WebhookAgent("hook", settings, Backoff(settings.retries, base_seconds=0))
        yield agent, server
        await agent.close()


async def test_a_turn_is_posted_in_the_contracts_form() -> None:
    """Body and headers are exactly those a service was promised."""
    turn = make_turn(
        "hi", ModelRow(role="user", content="hi", seq=4), attempt=2, media=[{"id": "m1"}]
    )
    async with hook(whole({"text": "hello"}), headers={"X-Team": "blue"}) as (agent, server):
        await collect(agent, turn)

    [request] = server.requests
    assert (request.method, request.path) == ("POST", "/hook")
    assert request.json == {
        "turn": "t1",
        "attempt": 2,
        "session": {
            "key": "websocket:c1",
            "channel": "websocket",
            "chat_id": "c1",
            "user": "ann",
        },
        "messages": [{"role": "user", "content": "hi", "seq": 4}],
        "text": "hi",
        "media": [{"id": "m1"}],
    }
    assert request.headers["content-type"] == "application/json"
    assert request.headers["parley-turn"] == "t1"
    assert request.headers["parley-attempt"] == "2"
    assert request.headers["x-team"] == "blue"


async def test_the_signature_covers_time_and_body() -> None:
    """A service that knows the secret can check who sent what, and when."""
    async with hook(whole({"text": "ok"})) as (agent, server):
        await collect(agent)

    [request] = server.requests
    stamp = request.headers["parley-timestamp"]
    expected = hmac.new(SECRET.encode(), f"{stamp}.".encode() + request.body, hashlib.sha256)
    assert stamp.isdigit()
    assert request.headers["parley-signature"] == f"sha256={expected.hexdigest()}"


async def test_half_a_surrogate_pair_can_be_sent() -> None:
    """A character that an old log broke does not make its chat fail for ever."""
    turn = make_turn("a\ud83d", ModelRow(role="user", content="a\ud83d", seq=4))
    async with hook(whole({"text": "ok"})) as (agent, server):
        await collect(agent, turn)

    assert server.requests[0].json["text"] == "a\ud83d"


async def test_without_a_secret_nothing_is_signed() -> None:
    """An empty signature would look like one."""
    async with hook(whole({"text": "ok"}), secret=None) as (agent, server):
        await collect(agent)

    assert "parley-signature" not in server.requests[0].headers


async def test_an_answer_in_one_piece() -> None:
    """A JSON object with the text is an answer."""
    async with hook(whole({"text": "héllo", "usage": {"input_tokens": 3}})) as (agent, _):
        events = await collect(agent)

    assert events == [Delta("héllo"), Usage({"input_tokens": 3})]


async def test_a_stream_of_lines() -> None:
    """Words, thoughts and usage come in the order of the lines; unknown types are skipped."""
    script = lines(
        {"type": "reasoning", "text": "hm"},
        delta("Hel"),
        {"type": "weather", "text": "sunny"},
        delta("lo"),
        {"type": "end", "usage": {"output_tokens": 2}},
        delta("too late"),
    )
    async with hook(script) as (agent, _):
        events = await collect(agent)

    assert events == [Reasoning("hm"), Delta("Hel"), Delta("lo"), Usage({"output_tokens": 2})]


async def test_a_stream_of_server_sent_events() -> None:
    """Comments, event names and data over several lines are what they are elsewhere."""
    body = (
        b": hello\n\nevent: message\r\n"
        b'data: {"type":"delta",\r\ndata: "text":"Hel"}\r\n\r\n'
        b'data:{"type":"delta","text":"lo"}\n\ndata: {"type":"end"}\n\n'
    )
    pieces = [body[i : i + 7] for i in range(0, len(body), 7)]
    async with hook(stream(SSE, *pieces)) as (agent, _):
        events = await collect(agent)

    assert events == [Delta("Hel"), Delta("lo")]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_lines_are_whole_whatever_the_pieces(size: int) -> None:
    """How the bytes arrive does not matter, not even in the middle of a character."""
    body = '{"text":"ü"}\r\n\n{"text":"b"}\n'.encode()
    reader = Lines(NDJSON)

    events = [
        event.text
        for start in range(0, len(body), size)
        for event in reader.feed(body[start : start + size])
    ]

    assert events == ["ü", "b"]


@pytest.mark.parametrize("code", [408, 429, 500, 503])
async def test_a_passing_failure_is_tried_again(code: int) -> None:
    """The second try is the same turn, with a signature of its own."""
    script = [whole({}, code, Retry_After="0"), whole({"text": "ok"})]
    async with hook(*script) as (agent, server):
        events = await collect(agent)

    assert text_of(events) == "ok"
    assert [request.headers["parley-turn"] for request in server.requests] == ["t1", "t1"]
    assert server.requests[0].body == server.requests[1].body


@pytest.mark.parametrize(
    "broken",
    [lines(cut=True), lines(), stream(NDJSON, b'{"type":"de', cut=True)],
    ids=["cut", "empty", "half a line"],
)
async def test_a_break_before_the_first_word_is_tried_again(broken: Step) -> None:
    """Nothing was shown, so nothing is lost."""
    async with hook(broken, lines(delta("ok"), END)) as (agent, server):
        events = await collect(agent)

    assert events == [Delta("ok")]
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "broken",
    [
        lines(delta("Hel"), cut=True),
        lines(delta("Hel")),
        stream(NDJSON, b'{"text":"Hel"}\n{oops\n'),
    ],
    ids=["cut", "no end", "garbage"],
)
async def test_a_break_after_the_first_word_keeps_the_words(broken: Step) -> None:
    """What was shown stays, and the service is not asked again."""
    async with hook(broken) as (agent, server):
        events, failure = await collect_failure(agent)

    assert text_of(events) == "Hel"
    assert not isinstance(failure, AgentUnavailable)
    assert failure.message == "The answer broke off."
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [400, 401, 404, 413])
async def test_a_refusal_is_not_tried_again(code: int) -> None:
    """A service that says no is not asked twice."""
    async with hook(whole({}, code)) as (agent, server):
        _, failure = await collect_failure(agent)

    assert isinstance(failure, AgentUnavailable)
    assert len(server.requests) == 1


async def test_a_long_retry_after_means_unavailable() -> None:
    """A user does not wait for minutes."""
    async with hook(whole({}, 503, Retry_After="300")) as (agent, server):
        _, failure = await collect_failure(agent)

    assert isinstance(failure, AgentUnavailable)
    assert failure.message == "The agent is overloaded. Please try again later."
    assert len(server.requests) == 1


async def test_a_redirect_is_not_followed() -> None:
    """A signed conversation goes nowhere else."""
    async with ScriptedServer(whole({"text": "stolen"})) as other:
        async with hook(whole({}, 307, Location=f"{other.url}/x")) as (agent, _):
            _, failure = await collect_failure(agent)

        assert other.requests == []
    assert isinstance(failure, AgentUnavailable)


async def test_a_service_that_is_not_there() -> None:
    """A refused connection is told in plain words, without the address."""
    async with hook(whole({"text": "ok"}), retries=1) as (agent, server):
        await server.__aexit__(None, None, None)
        _, failure = await collect_failure(agent)

    assert isinstance(failure, AgentUnavailable)
    assert failure.message == "The agent cannot be reached."


@pytest.mark.parametrize("shown", [False, True])
async def test_the_service_may_say_what_is_wrong(shown: bool) -> None:
    """Its own message is for its users; before the first word another agent may take over."""
    events = [delta("Hel")] if shown else []
    script = lines(*events, {"type": "error", "message": "Closed on Sundays."})
    async with hook(script) as (agent, server):
        told, failure = await collect_failure(agent)

    assert text_of(told) == ("Hel" if shown else "")
    assert failure.message == "Closed on Sundays."
    assert isinstance(failure, AgentUnavailable) is not shown
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'"hi"', b"{", b'{"text": 5}', b'{"text": null}', b"\xff\xfe", b'{"text":"\xff"}'],
)
async def test_a_body_that_is_no_answer(body: bytes) -> None:
    """Whatever comes back, the turn ends with a message and not with a crash."""
    async with hook(whole(body)) as (agent, server):
        events, failure = await collect_failure(agent)

    assert events == []
    assert failure.message == "The agent gave an answer that cannot be read."
    assert len(server.requests) == 1


async def test_an_unknown_content_type_is_no_answer() -> None:
    """A page of some proxy is not shown to the user."""
    async with hook(whole(b"<html>", Content_Type="text/html")) as (agent, _):
        _, failure = await collect_failure(agent)

    assert failure.message == "The agent gave an answer that cannot be read."


async def test_a_wrong_usage_does_not_cost_the_answer() -> None:
    """Numbers that make no sense are left out."""
    usage = {"input_tokens": "many", "output_tokens": 2, "x": -1, "y": True}
    async with hook(lines(delta("ok"), {"type": "end", "usage": usage})) as (agent, _):
        events = await collect(agent)

    assert events == [Delta("ok"), Usage({"output_tokens": 2})]


@pytest.mark.parametrize(
    "pieces",
    [
        [b"x" * (MAX_LINE_BYTES + 1)],
        [b'{"text":"', b"x" * MAX_LINE_BYTES, b'"}\n'],
        [b'{"type":"ping"}\n' * 1000] * (MAX_BODY_BYTES // 16_000 + 1),
    ],
    ids=["no end of line", "long line", "long answer"],
)
def test_lines_and_bodies_are_bounded(pieces: list[bytes]) -> None:
    """A service that never stops does not fill the memory."""
    reader = Lines(NDJSON)

    with pytest.raises(BadAnswer):
        [event for piece in pieces for event in reader.feed(piece)]


def test_data_of_one_event_is_bounded() -> None:
    """Neither do many short lines that never become an event."""
    reader = Lines(SSE)

    with pytest.raises(BadAnswer):
        [event for _ in range(3000) for event in reader.feed(b"data: " + b"x" * 1000 + b"\n")]


async def test_a_large_body_is_refused_while_it_arrives() -> None:
    """A JSON answer over the limit is given up."""
    body = b'{"text":"' + b"x" * MAX_BODY_BYTES + b'"}'
    async with hook(whole(body)) as (agent, _):
        _, failure = await collect_failure(agent)

    assert failure.message == "The agent gave an answer that cannot be read."


async def test_no_secret_reaches_the_log() -> None:
    """The log names the agent and the failure; not the address, the secret or the headers."""
    logged: list[str] = []
    handler = logger.add(logged.append, format="{message} {extra}", level=0)
    fields = {"headers": {"Authorization": "Bearer token-1"}, "retries": 0}
    async with hook(whole({}, 500), **fields) as (agent, server):
        await collect_failure(agent)
        url = server.url
    logger.remove(handler)

    [line] = logged
    assert "webhook failed" in line
    assert "status 500" in line
    assert not any(word in line for word in (SECRET, "token-1", url))


async def test_a_closed_agent_can_be_closed_again() -> None:
    """Closing twice does no harm, and neither does closing one that was never used."""
    settings = WebhookAgentSettings(kind="webhook", url="http://127.0.0.1:1/")
    agent = WebhookAgent("hook", settings)

    await agent.close()
    await agent.close()
