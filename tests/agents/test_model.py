"""The model agent against a scripted server that speaks Chat Completions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from loguru import logger

from gateway.agents.agent import (
    AgentFailed,
    Calls,
    Delta,
    Reasoning,
    ToolResult,
    ToolStarted,
    Usage,
)
from gateway.agents.fallback import AgentUnavailable, FallbackAgent
from gateway.agents.model import ModelAgent
from gateway.agents.provider import connect, secrets
from gateway.agents.retry import Backoff
from gateway.agents.tools import Outcome, Toolbox
from gateway.config import ModelAgentSettings
from sessions.history import UNKNOWN_RESULT, ModelRow
from tests.support.model_server import (
    answer,
    call,
    cut_after,
    drop,
    hang,
    raw,
    status,
    thoughts,
    words,
)
from tests.support.scripted_http import ScriptedServer, Step
from tests.support.turns import (
    ScriptedAgent,
    collect,
    collect_failure,
    make_turn,
    reasoning_of,
    text_of,
)

KEY = "sk-very-secret"


class Adder:
    """A tool that remembers what it was called with."""

    name = "add"
    description = "Adds two numbers."

    def __init__(self, *, read_only: bool = False) -> None:
        self.schema: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
        self.read_only = read_only
        self.calls: list[dict[str, Any]] = []

    async def call(self, arguments: dict[str, Any]) -> Outcome:
        self.calls.append(arguments)
        return Outcome(str(sum(arguments.values())))


class Box:
    def __init__(self, *tools: Adder) -> None:
        self._tools = tools

    async def tools(self) -> dict[str, Any]:
        return {tool.name: tool for tool in self._tools}

    async def close(self) -> None: ...


@asynccontextmanager
async def model_agent(
    *script: Step, toolbox: Toolbox | None = None, **fields: Any
) -> AsyncGenerator[tuple[ModelAgent, ScriptedServer], None]:
    """An agent whose pauses between two tries last no time, and the server it asks."""
    async with ScriptedServer(*script) as server:
        given = {"kind": "model", "base_url": f"{server.url}/v1", "api_key": KEY, **fields}
        settings = ModelAgentSettings.model_validate(given)
        agent = ModelAgent(
            "support",
            connect(settings),
            backoff=Backoff(settings.retries, base_seconds=0),
            system_prompt=settings.system_prompt,
            toolbox=toolbox,
            hidden=secrets(settings),
        )
        yield agent, server
        await agent.close()


async def test_words_and_thoughts_are_told_as_they_come() -> None:
    """Text and reasoning arrive in pieces and in order, then what they cost."""
    async with model_agent(answer(thoughts("so ", "then"), words("Hel", "lo"))) as (agent, _):
        events = await collect(agent)

    assert events == [
        Reasoning("so "),
        Reasoning("then"),
        Delta("Hel"),
        Delta("lo"),
        Usage({"input_tokens": 11, "output_tokens": 7, "requests": 1}, "scripted-1"),
    ]


async def test_the_request_holds_history_prompt_and_instructions() -> None:
    """The system prompt comes first, then what the gateway adds, then the rows of the log."""
    rows = [
        ModelRow(role="user", content="one", seq=1),
        ModelRow(role="assistant", content="two", reasoning_content="old thoughts", seq=2),
        ModelRow(role="user", content="three", seq=3),
    ]
    fields: dict[str, Any] = {
        "system_prompt": "Be kind.",
        "model": "openai:tiny",
        "temperature": 0.5,
    }
    async with model_agent(answer(words("ok")), **fields) as (agent, server):
        await collect(agent, make_turn("three", *rows, instructions="Goal: peace."))

    [request] = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.json["model"] == "tiny"
    assert request.json["temperature"] == 0.5
    assert [(row["role"], row["content"]) for row in request.json["messages"]] == [
        ("system", "Be kind.\n\nGoal: peace."),
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
    ]


async def test_extra_headers_and_body_are_sent() -> None:
    """What the settings add to a request is in it."""
    fields: dict[str, Any] = {
        "extra_headers": {"X-Team": "blue"},
        "extra_body": {"seed_words": ["a"]},
    }
    async with model_agent(answer(words("ok")), **fields) as (agent, server):
        await collect(agent)

    assert server.requests[0].headers["x-team"] == "blue"
    assert server.requests[0].json["seed_words"] == ["a"]


async def test_a_name_with_a_colon_is_a_name() -> None:
    """Behind a base_url only the known prefixes are taken off the model's name."""
    async with model_agent(answer(words("ok")), model="qwen3:4b") as (agent, server):
        await collect(agent)

    assert server.requests[0].json["model"] == "qwen3:4b"


async def test_calls_are_told_before_any_tool_runs() -> None:
    """The agent waits with each tool until the consumer has taken the event before it."""
    tool = Adder()
    script = [
        answer(
            words("Let me see."),
            call("c1", "add", '{"a": 1, "b": 2}'),
            call("c2", "add", '{"a": 3}', index=1),
            finish="tool_calls",
        ),
        answer(words("3 and 3")),
    ]
    seen: list[tuple[str, int]] = []
    async with model_agent(*script, toolbox=Box(tool)) as (agent, server):
        events = []
        async for event in agent.run(make_turn()):
            seen.append((type(event).__name__, len(tool.calls)))
            events.append(event)

    assert seen == [
        ("Delta", 0),
        ("Usage", 0),
        ("Calls", 0),
        ("ToolStarted", 0),
        ("ToolResult", 1),
        ("ToolStarted", 1),
        ("ToolResult", 2),
        ("Delta", 2),
        ("Usage", 2),
    ]
    calls = next(event for event in events if isinstance(event, Calls))
    assert calls.text == "Let me see."
    assert calls.tool_calls == [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'},
        },
        {"id": "c2", "type": "function", "function": {"name": "add", "arguments": '{"a": 3}'}},
    ]
    assert ToolStarted("c1", "add", '{"a": 1, "b": 2}') in events
    assert ToolResult("c2", "add", "3", "3") in events
    assert tool.calls == [{"a": 1, "b": 2}, {"a": 3}]
    assert [row["role"] for row in server.requests[1].json["messages"]] == [
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert server.requests[0].json["tools"][0]["function"]["name"] == "add"


async def test_usage_is_summed_over_the_requests_of_a_turn() -> None:
    """The last usage counts everything the turn has used."""
    script = [answer(call("c1", "add", '{"a": 1}'), finish="tool_calls"), answer(words("1"))]
    async with model_agent(*script, toolbox=Box(Adder())) as (agent, _):
        events = await collect(agent)

    assert events[-1] == Usage(
        {"input_tokens": 22, "output_tokens": 14, "requests": 2}, "scripted-1"
    )


async def test_reasoning_of_the_running_turn_goes_back_in_its_own_field() -> None:
    """What the model thought before a call is logged with it and sent back beside the text."""
    script = [
        answer(thoughts("add them"), call("c1", "add", '{"a": 1}'), finish="tool_calls"),
        answer(words("1")),
    ]
    async with model_agent(*script, toolbox=Box(Adder())) as (agent, server):
        events = await collect(agent)

    calls = next(event for event in events if isinstance(event, Calls))
    assert calls.reasoning == "add them"
    message = server.requests[1].json["messages"][1]
    assert message["reasoning_content"] == "add them"
    assert not message.get("content")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [("[1]", "not a JSON object"), ('{"a": ', "not a JSON object")],
)
async def test_arguments_that_are_no_object_do_not_reach_the_tool(
    arguments: str, expected: str
) -> None:
    """The model is told what is wrong and may try again; the log keeps what it wrote."""
    tool = Adder()
    script = [answer(call("c1", "add", arguments), finish="tool_calls"), answer(words("sorry"))]
    async with model_agent(*script, toolbox=Box(tool)) as (agent, _):
        events = await collect(agent)

    calls = next(event for event in events if isinstance(event, Calls))
    result = next(event for event in events if isinstance(event, ToolResult))
    assert calls.tool_calls[0]["function"]["arguments"] == arguments
    assert expected in result.content
    assert tool.calls == []
    assert text_of(events) == "sorry"


async def test_a_tool_that_does_not_exist_is_a_result() -> None:
    """A made-up name does not end the turn."""
    script = [answer(call("c1", "fly", "{}"), finish="tool_calls"), answer(words("I cannot"))]
    async with model_agent(*script) as (agent, _):
        events = await collect(agent)

    result = next(event for event in events if isinstance(event, ToolResult))
    assert result.content == "There is no tool named fly."
    assert text_of(events) == "I cannot"


async def test_a_model_that_calls_for_ever_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn makes a bounded number of requests."""
    monkeypatch.setattr("gateway.agents.model.MAX_REQUESTS", 3)
    script = answer(call("c1", "add", '{"a": 1}'), finish="tool_calls")
    async with model_agent(script, toolbox=Box(Adder())) as (agent, server):
        _, failure = await collect_failure(agent)

    assert "too many steps" in failure.message
    assert len(server.requests) == 3


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 529])
async def test_a_passing_failure_is_tried_again(code: int) -> None:
    """Before the first word, an overloaded or failing server gets another chance."""
    async with model_agent(status(code), answer(words("ok"))) as (agent, server):
        events = await collect(agent)

    assert text_of(events) == "ok"
    assert len(server.requests) == 2


async def test_a_short_retry_after_is_obeyed() -> None:
    """A server that names a time gets the next request after it."""
    script = [status(429, {"Retry-After": "0"}), answer(words("ok"))]
    async with model_agent(*script) as (agent, server):
        events = await collect(agent)

    assert text_of(events) == "ok"
    assert len(server.requests) == 2


async def test_a_long_retry_after_means_unavailable() -> None:
    """Nobody waits for a minute while another agent could answer."""
    async with model_agent(status(429, {"Retry-After": "70"})) as (agent, server):
        _, failure = await collect_failure(agent)

    assert isinstance(failure, AgentUnavailable)
    assert failure.message == "The model is overloaded. Please try again later."
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "broken",
    [drop(), cut_after(), answer(finish=None), cut_after(call("c1", "add", '{"a": 1}'))],
    ids=["no answer", "cut at once", "empty", "cut in a call"],
)
async def test_a_break_before_anything_was_shown_is_tried_again(broken: Step) -> None:
    """As long as the user has seen nothing and no tool has run, nothing is lost by a retry."""
    async with model_agent(broken, answer(words("ok")), toolbox=Box(Adder())) as (agent, server):
        events = await collect(agent)

    assert [event for event in events if not isinstance(event, Usage)] == [Delta("ok")]
    assert len(server.requests) == 2


async def test_the_number_of_tries_is_that_of_the_settings() -> None:
    """One request and `retries` more, then the agent says that it cannot answer."""
    async with model_agent(status(500), retries=3) as (agent, server):
        events, failure = await collect_failure(agent)

    assert events == []
    assert isinstance(failure, AgentUnavailable)
    assert len(server.requests) == 4


@pytest.mark.parametrize("code", [400, 401, 403, 404])
async def test_a_refusal_is_not_tried_again(code: int) -> None:
    """A request that is wrong stays wrong."""
    async with model_agent(status(code)) as (agent, server):
        _, failure = await collect_failure(agent)

    assert isinstance(failure, AgentUnavailable)
    assert failure.message == "The model refused the request."
    assert len(server.requests) == 1


async def test_a_server_that_is_not_there() -> None:
    """A refused connection is tried again and then told in plain words."""
    async with model_agent(answer(words("ok")), retries=1) as (agent, server):
        await server.__aexit__(None, None, None)
        _, failure = await collect_failure(agent)

    assert isinstance(failure, AgentUnavailable)
    assert failure.message == "The model cannot be reached."


async def test_a_server_that_says_nothing() -> None:
    """The wait for the first word ends; then the next try, then the failure."""
    async with model_agent(hang(), retries=1, request_seconds=0.3) as (agent, server):
        _, failure = await collect_failure(agent)

    assert isinstance(failure, AgentUnavailable)
    assert failure.message == "The model did not answer in time."
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    "body",
    [b"<html>busy</html>", b"data: {not json}\n\n", b'data: {"choices": 5}\n\n', b"\x00\xff" * 9],
    ids=["page", "not json", "wrong shape", "bytes"],
)
async def test_garbage_is_a_failure_with_plain_words(body: bytes) -> None:
    """An answer that makes no sense ends as a failed request, not as a crash."""
    async with model_agent(raw(body), retries=0) as (agent, _):
        events, failure = await collect_failure(agent)

    assert events == []
    assert isinstance(failure, AgentUnavailable)
    assert failure.message == "The model could not answer."


@pytest.mark.parametrize(
    "broken",
    [
        cut_after(words("Hel", "lo")),
        answer(words("Hel", "lo"), finish=None),
        raw(b'data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\ndata: {oops\n\n'),
    ],
    ids=["cut", "clean end without a reason", "garbage in the middle"],
)
async def test_a_break_after_the_first_word_keeps_the_words(broken: Step) -> None:
    """What was shown stays shown, and the request is not made again."""
    async with model_agent(broken) as (agent, server):
        events, failure = await collect_failure(agent)

    assert text_of(events) == "Hello"
    assert not isinstance(failure, AgentUnavailable)
    assert failure.message == "The answer broke off."
    assert len(server.requests) == 1


async def test_thoughts_count_as_shown() -> None:
    """After reasoning was shown, a break is a break."""
    async with model_agent(cut_after(thoughts("hm"))) as (agent, server):
        events, failure = await collect_failure(agent)

    assert reasoning_of(events) == "hm"
    assert failure.message == "The answer broke off."
    assert len(server.requests) == 1


async def test_an_answer_without_words_is_an_answer() -> None:
    """A model that has nothing to say is not asked again."""
    async with model_agent(answer()) as (agent, server):
        events = await collect(agent)

    assert text_of(events) == ""
    assert len(server.requests) == 1


async def test_a_declined_answer_says_so() -> None:
    """A filter that leaves no words does not leave an empty answer."""
    async with model_agent(answer(finish="content_filter")) as (agent, _):
        _, failure = await collect_failure(agent)

    assert failure.message == "The model declined to answer."


async def test_cancelling_closes_the_connection() -> None:
    """A stopped turn does not leave a request running at the provider."""
    shown = asyncio.Event()

    async with model_agent(hang(words("Hel"))) as (agent, server):

        async def consume() -> None:
            async for _ in agent.run(make_turn()):
                shown.set()

        task = asyncio.get_running_loop().create_task(consume())
        await shown.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async with asyncio.timeout(30):
            await server.left.wait()


async def test_many_turns_share_one_agent() -> None:
    """Turns side by side do not hear each other's words."""

    async def parrot(request: Any, reply: Any) -> None:
        await answer(words(request.json["messages"][-1]["content"]))(request, reply)

    async with model_agent(parrot) as (agent, _):
        told = await asyncio.gather(*(collect(agent, make_turn(f"m{n}")) for n in range(20)))

    assert [text_of(events) for events in told] == [f"m{n}" for n in range(20)]


CALLS = [
    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
    {"id": "c2", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}},
]
CRASHED = (
    ModelRow(role="user", content="add", seq=1),
    ModelRow(role="assistant", content="", tool_calls=CALLS, seq=2),
    ModelRow(role="tool", content="1", tool_call_id="c1", name="add", seq=3),
    ModelRow(role="tool", content=UNKNOWN_RESULT, tool_call_id="c2", name="add"),
)


async def test_a_rerun_continues_from_the_log() -> None:
    """After a crash no logged call runs again; the model sees that one outcome is unknown."""
    tool = Adder()
    async with model_agent(answer(words("1 and ?")), toolbox=Box(tool)) as (agent, server):
        events = await collect(agent, make_turn("add", *CRASHED, attempt=2))

    assert tool.calls == []
    assert text_of(events) == "1 and ?"
    contents = [row["content"] for row in server.requests[0].json["messages"][2:]]
    assert contents == ["1", UNKNOWN_RESULT]


async def test_a_rerun_repeats_a_read_only_call_without_a_result() -> None:
    """A tool without side effects is asked again for what the crash has swallowed, and only it."""
    tool = Adder(read_only=True)
    async with model_agent(answer(words("1 and 2")), toolbox=Box(tool)) as (agent, server):
        events = await collect(agent, make_turn("add", *CRASHED, attempt=2))

    assert tool.calls == [{"a": 2}]
    assert events[:2] == [ToolStarted("c2", "add", '{"a": 2}'), ToolResult("c2", "add", "2", "2")]
    contents = [row["content"] for row in server.requests[0].json["messages"][2:]]
    assert contents == ["1", "2"]


async def test_a_fallback_goes_on_from_the_logged_rows() -> None:
    """A model that fails after its tools ran hands their results to the next agent."""
    tool = Adder()
    script = [answer(call("c1", "add", '{"a": 1}'), finish="tool_calls"), status(500)]
    spare = ScriptedAgent("spare", Delta("one"), Usage({"input_tokens": 1}, "other"))
    async with model_agent(*script, toolbox=Box(tool), retries=0) as (agent, _):
        events = await collect(FallbackAgent([agent, spare]))

    assert tool.calls == [{"a": 1}]
    assert text_of(events) == "one"
    assert [row.role for row in spare.turns[0].messages] == ["user", "assistant", "tool"]
    assert spare.turns[0].messages[-1].content == "1"
    assert events[-1] == Usage({"input_tokens": 12, "output_tokens": 7, "requests": 1}, "other")


async def test_no_secret_reaches_the_user_or_the_log() -> None:
    """A server that repeats the key in its error does not put it into our words."""
    lines: list[str] = []
    handler = logger.add(lines.append, format="{message} {extra}", level=0)
    async with model_agent(status(401, message=f"bad key {KEY} for you")) as (agent, server):
        _, failure = await collect_failure(agent)
        url = server.url
    logger.remove(handler)

    [line] = lines
    assert "model request failed" in line
    assert "'attempt': 1" in line
    assert "support" in line
    assert "401" in line
    assert KEY not in line + failure.message
    assert url not in failure.message


async def test_half_a_surrogate_pair_becomes_text() -> None:
    """Words can always be encoded, whatever the server escapes."""
    body = (
        b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"},"finish_reason":"stop"}]}\n\n'
    )
    async with model_agent(raw(body)) as (agent, _):
        events = await collect(agent)

    assert text_of(events).encode() == "a\N{REPLACEMENT CHARACTER}".encode()


async def test_broken_characters_of_the_log_can_be_sent() -> None:
    """A character that an old log broke does not make its chat fail for ever."""
    async with model_agent(answer(words("ok"))) as (agent, server):
        await collect(agent, make_turn("a\ud83d"))

    sent = server.requests[0].json["messages"][-1]["content"]
    assert sent == "a\N{REPLACEMENT CHARACTER}"


async def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that never stops does not fill the memory."""
    monkeypatch.setattr("gateway.agents.answer.MAX_CHARS", 9)
    async with model_agent(hang(words("12345", "67890"))) as (agent, _):
        events, failure = await collect_failure(agent)

    assert text_of(events) == "1234567890"
    assert failure.message == "The answer broke off."


def test_a_model_of_openai_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is said when the agent is made, not at the first turn."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    settings = ModelAgentSettings(kind="model", model="openai:gpt-5")

    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        connect(settings)


def test_the_key_of_openai_is_not_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a base_url the key of the environment stays at home."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    settings = ModelAgentSettings(kind="model", base_url="http://127.0.0.1:1/v1")

    connected = connect(settings)

    assert connected.model.provider is not None
    assert connected.model.provider.client.api_key != KEY


async def test_a_failure_is_an_agent_failure() -> None:
    """Whoever knows only AgentFailed sees this one too."""
    async with model_agent(status(400)) as (agent, _):
        with pytest.raises(AgentFailed):
            await collect(agent)
