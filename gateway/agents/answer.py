"""One answer of a model while it comes in."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager

from pydantic_ai.messages import (
    ModelResponse,
    ModelResponseStreamEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models import StreamedResponse

from gateway.agents.agent import Delta, Reasoning
from gateway.agents.model_errors import CutOff
from gateway.agents.tools import legal

MAX_CHARS = 4 * 1_048_576
"""Text and reasoning of one answer; a server that never stops is cut off."""


class Answer:
    def __init__(self) -> None:
        self.response = ModelResponse(parts=[])
        """The whole answer, once `read` has ended."""
        self._text: list[str] = []
        self._reasoning: list[str] = []

    @property
    def shown(self) -> bool:
        return bool(self._text or self._reasoning)

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    async def read(
        self, request: AbstractAsyncContextManager[StreamedResponse]
    ) -> AsyncGenerator[Delta | Reasoning, None]:
        """Raises whatever the provider does, and CutOff."""
        length = 0
        async with request as stream:
            async for event in stream:
                if (words := _words(event)) is not None:
                    kept = self._text if isinstance(words, Delta) else self._reasoning
                    kept.append(words.text)
                    yield words
                    length += len(words.text)
                    if length > MAX_CHARS:
                        raise CutOff(f"the answer is longer than {MAX_CHARS} characters")
            self.response = stream.get()
        # Providers have reasons the library has no name for; it keeps those beside.
        if self.response.finish_reason is None and not (self.response.provider_details or {}).get(
            "finish_reason"
        ):
            raise CutOff("the stream ended without a finish reason")


def _words(event: ModelResponseStreamEvent) -> Delta | Reasoning | None:
    """What there is to show; the library has more kinds of events, and will get others."""
    match event:
        case PartStartEvent(part=TextPart(content=str(text))) if text:
            return Delta(legal(text))
        case PartDeltaEvent(delta=TextPartDelta(content_delta=str(text))) if text:
            return Delta(legal(text))
        case PartStartEvent(part=ThinkingPart(content=str(text))) if text:
            return Reasoning(legal(text))
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))) if text:
            return Reasoning(legal(text))
        case _:
            return None
