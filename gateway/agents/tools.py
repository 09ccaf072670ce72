"""What a model may call, whoever runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from gateway.agents.agent import Produced

MAX_RESULT_CHARS = 65_536
_CUT = "\n[The rest of the result was left out.]"


class Outcome(msgspec.Struct, frozen=True):
    """What a call gave. Failures are words for the model too: it may find another way."""

    text: str
    files: list[Produced] = []
    failed: bool = False

    @classmethod
    def failure(cls, text: str) -> Outcome:
        return cls(text, failed=True)


class Tool(Protocol):
    name: str
    """As the model knows it: letters, digits, `_` and `-`, at most 64."""
    description: str
    schema: dict[str, Any]
    """JSON Schema of the arguments."""
    read_only: bool
    """Without side effects: a crashed turn may call it again."""

    async def call(self, arguments: dict[str, Any]) -> Outcome:
        """Raises nothing but cancellation."""


class Toolbox(Protocol):
    async def tools(self) -> Mapping[str, Tool]:
        """The tools of a turn by name. Raises nothing but cancellation."""

    async def close(self) -> None: ...


class NoTools:
    async def tools(self) -> Mapping[str, Tool]:
        return {}

    async def close(self) -> None:
        """There is nothing to close."""


def bounded(text: str) -> str:
    """A result no longer than a log row and a model's window can bear."""
    return text if len(text) <= MAX_RESULT_CHARS else text[:MAX_RESULT_CHARS] + _CUT


def legal(text: str) -> str:
    """Text that can be encoded: half a surrogate pair becomes a replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
