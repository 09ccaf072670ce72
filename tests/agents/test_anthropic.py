"""The model agent against a scripted server that speaks Anthropic's Messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from gateway.agents.agent import Calls, Delta, Reasoning, ToolResult, Usage
from gateway.agents.model import ModelAgent
from gateway.agents.provider import connect
from gateway.agents.retry import Backoff
from gateway.config import ModelAgentSettings
from sessions.history import ModelRow
from tests.agents.test_model import Adder, Box
from tests.support.model_server import messages
from tests.support.scripted_http import ScriptedServer, Step
from tests.support.turns import collect, collect_failure, make_turn, text_of

THINKING = {"type": "thinking", "thinking": "add them", "signature": "c2lnbmVk"}
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "add", "input": '{"a": 1}'}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


@asynccontextmanager
async def claude(
    *script: Step, tool: Adder | None = None
) -> AsyncGenerator[tuple[ModelAgent, ScriptedServer], None]:
    async with ScriptedServer(*script) as server:
        settings = ModelAgentSettings.model_validate(
            {
                "kind": "model",
                "model": "anthropic:claude-scripted",
                "base_url": server.url,
                "api_key": "sk-ant",
                "system_prompt": "Be kind.",
            }
        )
        agent = ModelAgent(
            "claude",
            connect(settings),
            backoff=Backoff(settings.retries, base_seconds=0),
            system_prompt=settings.system_prompt,
            toolbox=Box(tool) if tool else None,
        )
        yield agent, server
        await agent.close()


async def test_words_and_thoughts_are_told_as_they_come() -> None:
    """Text, thinking and usage of the other protocol arrive as the same events."""
    async with claude(messages(THINKING, text("Hello"))) as (agent, server):
        events = await collect(agent)

    assert events == [
        Reasoning("add them"),
        Delta("Hello"),
        Usage({"input_tokens": 11, "output_tokens": 7, "requests": 1}, "claude-scripted"),
    ]
    [request] = server.requests
    assert "sk-ant" in request.headers["authorization"]
    assert "Be kind." in str(request.json["system"])


async def test_signed_thinking_is_logged_and_goes_back() -> None:
    """A step with tools keeps its signed thinking, which the provider wants to see again."""
    tool = Adder()
    script = [messages(THINKING, text("Wait."), TOOL_USE, stop="tool_use"), messages(text("1"))]
    async with claude(*script, tool=tool) as (agent, server):
        events = await collect(agent)

    calls = next(event for event in events if isinstance(event, Calls))
    assert calls.text == "Wait."
    assert calls.thinking_blocks == [THINKING]
    assert tool.calls == [{"a": 1}]
    assert ToolResult("toolu_1", "add", "1", "1") in events
    assert text_of(events) == "Wait.1"
    sent = server.requests[1].json["messages"]
    assert sent[1]["content"][0] == THINKING
    assert sent[2]["content"][0]["tool_use_id"] == "toolu_1"


async def test_a_rerun_sends_the_logged_thinking() -> None:
    """After a crash the thinking comes from the log and is the same."""
    call: dict[str, Any] = {
        "id": "toolu_1",
        "type": "function",
        "function": {"name": "add", "arguments": '{"a": 1}'},
    }
    rows = [
        ModelRow(role="user", content="add", seq=1),
        ModelRow(
            role="assistant", content="", tool_calls=[call], thinking_blocks=[THINKING], seq=2
        ),
        ModelRow(role="tool", content="1", tool_call_id="toolu_1", name="add", seq=3),
    ]
    async with claude(messages(text("1")), tool=Adder()) as (agent, server):
        await collect(agent, make_turn("add", *rows, attempt=2))

    assistant = server.requests[0].json["messages"][1]["content"]
    assert assistant[0] == THINKING
    assert assistant[1]["input"] == {"a": 1}


async def test_a_clean_end_without_a_reason_is_a_cut() -> None:
    """A stream that just ends keeps its words and fails."""
    async with claude(messages(text("Hel"), stop=None)) as (agent, _):
        events, failure = await collect_failure(agent)

    assert text_of(events) == "Hel"
    assert failure.message == "The answer broke off."
