"""A turn for an agent under test, and what the agent made of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from gateway.agents.agent import (
    Agent,
    AgentEvent,
    AgentFailed,
    Delta,
    Reasoning,
    SessionFacts,
    TurnContext,
)
from sessions.history import ModelRow


def make_turn(text: str = "hello", *rows: ModelRow, **fields: Any) -> TurnContext:
    """A turn that asks `text`; or, with rows, one whose history ends in them."""
    messages = list(rows) or [ModelRow(role="user", content=text, seq=1)]
    session = SessionFacts(key="websocket:c1", channel="websocket", chat_id="c1", user="ann")
    given = {"turn": "t1", "attempt": 1, "session": session, "messages": messages, "text": text}
    return TurnContext(**{**given, **fields})


async def collect(agent: Agent, turn: TurnContext | None = None) -> list[AgentEvent]:
    return [event async for event in agent.run(turn or make_turn())]


async def collect_failure(
    agent: Agent, turn: TurnContext | None = None
) -> tuple[list[AgentEvent], AgentFailed]:
    """What was told before the agent failed, and how it failed."""
    events: list[AgentEvent] = []
    try:
        async for event in agent.run(turn or make_turn()):
            events.append(event)  # noqa: PERF401 - a comprehension would lose them at the failure
    except AgentFailed as failure:
        return events, failure
    raise AssertionError("the agent did not fail")


def text_of(events: Sequence[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def reasoning_of(events: Sequence[AgentEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Reasoning))


class ScriptedAgent:
    """An agent that says the given events; an exception among them is raised."""

    def __init__(self, name: str, *script: AgentEvent | Exception) -> None:
        self.name = name
        self.script = script
        self.turns: list[TurnContext] = []
        self.closed = 0

    async def run(self, turn: TurnContext) -> AsyncIterator[AgentEvent]:
        self.turns.append(turn)
        for item in self.script:
            if isinstance(item, Exception):
                raise item
            yield item

    async def close(self) -> None:
        self.closed += 1
