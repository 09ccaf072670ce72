"""An agent that is a Python function: `async def reply(turn)` that yields text.

The function is given the turn (`text`, `messages`, `session`, `user`, `media`, `turn`, `attempt`).
It may also yield the events of `gateway.agents.agent`. A function that is not asynchronous, or
that returns a string, is accepted and runs in a thread, so that it never blocks the gateway.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from gateway.agents.agent import AgentEvent, Delta, SessionFacts, TurnContext
from sessions.history import ModelRow


class PythonTurn:
    """The turn as the function sees it."""

    def __init__(self, turn: TurnContext) -> None:
        self.turn: str = turn.turn
        self.attempt: int = turn.attempt
        self.text: str = turn.text
        self.messages: Sequence[ModelRow] = turn.messages
        self.media: list[dict[str, Any]] = turn.media
        self.session: SessionFacts = turn.session
        self.user: str | None = turn.session.user
        self.instructions: str = turn.instructions


class PythonAgent:
    def __init__(self, name: str, function: Callable[[PythonTurn], Any]) -> None:
        self.name = name
        self._function = function

    @classmethod
    def load(cls, name: str, path: str) -> PythonAgent:
        """Raises ImportError or AttributeError; imports, so not for the event loop."""
        module_name, _, attribute = path.partition(":")
        # A module that lies beside the settings is found, as it would be with `python -m`.
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.append(here)
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
        if not callable(found):
            raise TypeError(f"{path} is not a function")
        return cls(name, found)

    async def run(self, turn: TurnContext) -> AsyncIterator[AgentEvent]:
        given = PythonTurn(turn)
        if inspect.isasyncgenfunction(self._function):
            async for item in self._function(given):
                yield _event(item)
            return
        if inspect.iscoroutinefunction(self._function):
            result = await self._function(given)
        else:
            result = await asyncio.to_thread(self._call, given)
        for item in result if isinstance(result, list | tuple) else [result]:
            if item is not None:
                yield _event(item)

    def _call(self, given: PythonTurn) -> Any:
        result = self._function(given)
        return list(result) if inspect.isgenerator(result) else result

    async def close(self) -> None:
        """The function is not ours."""


def _event(item: Any) -> AgentEvent:
    return Delta(item) if isinstance(item, str) else item
