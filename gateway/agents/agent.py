"""What an agent is given, and what it tells while it answers.

An agent is an asynchronous generator of events. The gateway takes one event, makes it durable or
shows it, and only then asks for the next: when an agent resumes after yielding `Calls`, the calls
are in the log and it may run the tools. Nothing else is needed to keep the promise that a tool
call is logged before it starts.

An agent ends by returning. It fails by raising AgentFailed; any other exception counts as a fault
of the agent and is shown to the user without details. It is stopped by cancellation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol, overload

import msgspec

from sessions.history import ModelRow


class SessionFacts(msgspec.Struct, frozen=True):
    key: str
    channel: str
    chat_id: str
    user: str | None = None


class Messages(Sequence[ModelRow]):
    """The history, chosen when somebody looks at it: an agent that does not pays nothing."""

    def __init__(self, choose: Callable[[], list[ModelRow]]) -> None:
        self._choose = choose
        self._rows: list[ModelRow] | None = None

    def _chosen(self) -> list[ModelRow]:
        if self._rows is None:
            self._rows = self._choose()
        return self._rows

    @overload
    def __getitem__(self, index: int) -> ModelRow: ...

    @overload
    def __getitem__(self, index: slice) -> list[ModelRow]: ...

    def __getitem__(self, index: int | slice) -> ModelRow | list[ModelRow]:
        return self._chosen()[index]

    def __len__(self) -> int:
        return len(self._chosen())


class TurnContext(msgspec.Struct, frozen=True, kw_only=True):
    """One turn as the agent sees it."""

    turn: str
    attempt: int
    session: SessionFacts
    messages: Sequence[ModelRow]
    """The history, ending with the messages to be answered and, after a crash, with what this
    turn has logged already."""
    text: str
    """The messages to be answered, as one text."""
    media: list[dict[str, Any]] = []
    instructions: str = ""
    """What the gateway adds to the system prompt: summary, memory, goal."""


class Delta(msgspec.Struct, frozen=True):
    """More of the answer."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """More of what the model thinks; shown folded, never part of the answer."""

    text: str


class Calls(msgspec.Struct, frozen=True):
    """The model wants tools. What it said before, and the calls in OpenAI's form.

    The text so far belongs to this row; the answer starts afresh after it.
    """

    tool_calls: list[dict[str, Any]]
    text: str = ""
    reasoning: str = ""
    thinking_blocks: list[Any] | None = None


class ToolStarted(msgspec.Struct, frozen=True):
    id: str
    name: str
    summary: str = ""


class ToolResult(msgspec.Struct, frozen=True):
    """The result of one call; logged before the next event is asked for."""

    id: str
    name: str
    content: str
    summary: str = ""


class Usage(msgspec.Struct, frozen=True):
    """What the turn has used so far; the last one counts."""

    tokens: dict[str, int]
    model: str | None = None


class Produced(msgspec.Struct, frozen=True):
    """A file the agent made; it is kept with the answer."""

    name: str
    mime: str
    data: bytes


AgentEvent = Delta | Reasoning | Calls | ToolStarted | ToolResult | Usage | Produced


class AgentFailed(Exception):
    """The agent cannot go on. `message` is for the user: short, without secrets or internals."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class Agent(Protocol):
    name: str

    def run(self, turn: TurnContext) -> AsyncIterator[AgentEvent]:
        """Everything the agent does for one turn."""

    async def close(self) -> None: ...
