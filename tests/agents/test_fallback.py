"""Who answers when the first agent cannot."""

from __future__ import annotations

import pytest

from gateway.agents.agent import AgentFailed, Delta, Usage
from gateway.agents.fallback import AgentUnavailable, FallbackAgent
from sessions.history import ModelRow
from tests.support.turns import ScriptedAgent, collect, collect_failure, make_turn, text_of


@pytest.mark.parametrize(
    "failure", [AgentUnavailable("busy"), AgentFailed("broken"), ValueError("bug")]
)
async def test_the_next_agent_answers(failure: Exception) -> None:
    """Before the first word any failure of an agent gives the turn to the next one."""
    first, second = ScriptedAgent("a", failure), ScriptedAgent("b", Delta("hello"))

    events = await collect(FallbackAgent([first, second]))

    assert events == [Delta("hello")]


async def test_agents_are_tried_in_order() -> None:
    """The second one that can answer is not asked."""
    agents = [
        ScriptedAgent("a", AgentUnavailable("busy")),
        ScriptedAgent("b", Delta("b")),
        ScriptedAgent("c", Delta("c")),
    ]

    events = await collect(FallbackAgent(agents))

    assert text_of(events) == "b"
    assert agents[2].turns == []


async def test_after_the_first_word_there_is_no_other_agent() -> None:
    """Nobody gets the end of another one's sentence."""
    first = ScriptedAgent("a", Delta("Hel"), AgentFailed("broke off"))
    second = ScriptedAgent("b", Delta("hello"))

    events, failure = await collect_failure(FallbackAgent([first, second]))

    assert text_of(events) == "Hel"
    assert failure.message == "broke off"
    assert second.turns == []


async def test_if_nobody_can_the_first_says_why() -> None:
    """The user asked the first agent, so its reason counts."""
    first = ScriptedAgent("a", AgentUnavailable("busy"))
    second = ScriptedAgent("b", ValueError("bug"))

    _, failure = await collect_failure(FallbackAgent([first, second]))

    assert failure.message == "busy"


async def test_rows_and_usage_are_handed_on() -> None:
    """The next agent continues the turn as it stands, and the bill has both on it."""
    row = ModelRow(role="tool", content="3", tool_call_id="c1")
    started = AgentUnavailable("busy", make_turn("hello", row), {"input_tokens": 5, "requests": 1})
    second = ScriptedAgent("b", Delta("3"), Usage({"input_tokens": 2, "requests": 1}, "m"))

    events = await collect(FallbackAgent([ScriptedAgent("a", started), second]))

    assert second.turns[0].messages == [row]
    assert events[-1] == Usage({"input_tokens": 7, "requests": 2}, "m")
