"""The agent that says what you said. It needs nothing and shows that everything else works."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

from gateway.agents.agent import AgentEvent, Delta, TurnContext

_WORD = re.compile(r"\S+\s*|\s+")


class EchoAgent:
    def __init__(self, name: str, delay_ms: float = 0) -> None:
        self.name = name
        self._delay_seconds = delay_ms / 1000

    async def run(self, turn: TurnContext) -> AsyncIterator[AgentEvent]:
        for word in _WORD.findall(turn.text):
            if self._delay_seconds:
                await asyncio.sleep(self._delay_seconds)
            yield Delta(word)

    async def close(self) -> None:
        """Nothing to give back."""
