"""An agent with others behind it, tried in order when it cannot answer.

Another agent may take over only while nothing of the answer has been shown. It goes on from what
the first one has done: rows that are in the log are part of the turn it is given, so a tool that
has run does not run again. The fallbacks of a fallback are not followed, so there are no circles.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import cast

from loguru import logger

from gateway.agents.agent import Agent, AgentEvent, AgentFailed, TurnContext, Usage
from gateway.agents.retry import describe


class AgentUnavailable(AgentFailed):
    """The agent cannot answer and has shown nothing since its last logged row."""

    def __init__(
        self,
        message: str,
        turn: TurnContext | None = None,
        tokens: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.turn = turn
        """The turn with the rows logged since it began, for the agent that takes over."""
        self.tokens = tokens or {}
        """What the turn has used so far."""


class FallbackAgent:
    def __init__(self, agents: Sequence[Agent]) -> None:
        self.name = agents[0].name
        self._agents = agents

    async def run(self, turn: TurnContext) -> AsyncIterator[AgentEvent]:
        failure: Exception | None = None
        spent: Mapping[str, int] = {}
        for agent in self._agents:
            shown = False
            events = cast("AsyncGenerator[AgentEvent, None]", agent.run(turn))
            try:
                async with aclosing(events):
                    async for event in events:
                        shown = True
                        yield _with_spent(event, spent)
                return
            except AgentUnavailable as error:
                failure = failure or error
                turn, spent = error.turn or turn, add_tokens(spent, error.tokens)
                logger.bind(agent=agent.name, error=error.message).warning("agent unavailable")
            except Exception as error:
                if shown:
                    raise
                failure = failure or error
                logger.bind(agent=agent.name, error=describe(error)).warning("agent unavailable")
        # The agent that was asked for says why; the others were only a try.
        raise failure or AgentFailed("No agent can answer.")

    async def close(self) -> None:
        """The agents belong to the registry."""


def add_tokens(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _with_spent(event: AgentEvent, spent: Mapping[str, int]) -> AgentEvent:
    if spent and isinstance(event, Usage):
        return Usage(add_tokens(spent, event.tokens), event.model)
    return event
