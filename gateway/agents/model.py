"""The agent that is a language model, asked through pydantic-ai.

Only the library's requests are used; the loop around the tools is here, so that its order is plain
to see: an answer with calls is logged, then each call starts, ends and is logged, one after the
other, before the model is asked again.

A request that fails before anything of its answer was shown is made again, and at last left to the
fallback agents. Once words were shown, any exception means that the answer broke off. So does a
stream that ends without saying why: a cut between two chunks looks exactly like that.

A rerun continues from the logged rows. A call without a result is not repeated, unless its tool is
declared read-only.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import msgspec
from loguru import logger
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.tools import ToolDefinition

from gateway.agents.agent import (
    AgentEvent,
    AgentFailed,
    Calls,
    ToolResult,
    ToolStarted,
    TurnContext,
    Usage,
)
from gateway.agents.answer import Answer
from gateway.agents.conversation import (
    arguments_of,
    conversation,
    files,
    result_part,
    thinking_blocks,
    tool_calls,
    unanswered,
)
from gateway.agents.fallback import AgentUnavailable, add_tokens
from gateway.agents.model_errors import is_worth_retrying, message_for, retry_after
from gateway.agents.provider import ConnectedModel, connect, secrets
from gateway.agents.retry import Backoff, describe
from gateway.agents.tools import NoTools, Outcome, Tool, Toolbox, bounded, legal
from gateway.config import ModelAgentSettings
from sessions.history import ModelRow

MAX_REQUESTS = 50
"""Requests one turn may make; a model that goes in circles would never end."""
_SUMMARY_CHARS = 200


class ModelAgent:
    def __init__(
        self,
        name: str,
        connected: ConnectedModel,
        *,
        backoff: Backoff,
        system_prompt: str = "",
        toolbox: Toolbox | None = None,
        hidden: Iterable[str] = (),
    ) -> None:
        self.name = name
        self._connected = connected
        self._backoff = backoff
        self._system_prompt = system_prompt
        self._toolbox = toolbox or NoTools()
        self._hidden = list(hidden)

    @classmethod
    def load(cls, name: str, settings: ModelAgentSettings) -> ModelAgent:
        """Imports a good deal, so not for the event loop. Raises ValueError or ImportError."""
        toolbox: Toolbox = NoTools()
        if settings.mcp_servers:
            from gateway.agents.mcp import McpToolbox

            toolbox = McpToolbox(settings.mcp_servers)
        return cls(
            name,
            connect(settings),
            backoff=Backoff(settings.retries),
            system_prompt=settings.system_prompt,
            toolbox=toolbox,
            hidden=secrets(settings),
        )

    async def run(self, turn: TurnContext) -> AsyncIterator[AgentEvent]:
        run = _Run(self, turn, await self._toolbox.tools())
        async with aclosing(run.events()) as events:
            async for event in events:
                yield event

    async def close(self) -> None:
        await self._toolbox.close()
        await self._connected.client.aclose()

    def messages(self, rows: list[ModelRow]) -> list[ModelMessage]:
        return conversation(
            rows,
            system=self._connected.model.system,
            sends_reasoning=self._connected.sends_reasoning,
        )

    def request(
        self, messages: list[ModelMessage], tools: Mapping[str, Tool], instructions: str
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        if isinstance(last := messages[-1], ModelRequest):
            joined = "\n\n".join(filter(None, (self._system_prompt, instructions)))
            last.instructions = joined or None
        definitions = [
            ToolDefinition(
                name=tool.name, description=tool.description, parameters_json_schema=tool.schema
            )
            for tool in tools.values()
        ]
        return model_request_stream(
            self._connected.model,
            messages,
            model_settings=self._connected.settings,
            model_request_parameters=ModelRequestParameters(function_tools=definitions),
        )

    def pause(self, error: Exception, failures: int) -> float | None:
        """Seconds until the next try; None if there is to be none."""
        if not is_worth_retrying(error):
            return None
        return self._backoff.pause(failures, retry_after(error))

    def log(self, error: Exception, failures: int, event: str) -> None:
        logger.bind(agent=self.name, error=describe(error, self._hidden), attempt=failures).warning(
            event
        )


class _Run:
    """One turn: what has been logged so far, and what it has used."""

    def __init__(self, agent: ModelAgent, turn: TurnContext, tools: Mapping[str, Tool]) -> None:
        self._agent = agent
        self._turn = turn
        self._tools = tools
        self._rows = list(turn.messages)
        self._tokens: dict[str, int] = {}
        self._answer = Answer()

    async def events(self) -> AsyncGenerator[AgentEvent, None]:
        async with aclosing(self._resume()) as events:
            async for event in events:
                yield event
        messages = self._agent.messages(self._rows)
        if not messages:
            messages = [ModelRequest(parts=[UserPromptPart(self._turn.text)])]
        for _ in range(MAX_REQUESTS):
            async with aclosing(self._ask(messages)) as events:
                async for event in events:
                    yield event
            response = self._answer.response
            yield self._usage(response)
            for file in files(response):
                yield file
            calls = tool_calls(response)
            if not calls:
                self._check_refusal(response)
                return
            messages.append(response)
            async with aclosing(self._call_all(calls, messages)) as events:
                async for event in events:
                    yield event
        raise AgentFailed("The model took too many steps and was stopped.")

    async def _resume(self) -> AsyncGenerator[AgentEvent, None]:
        """After a crash: the calls without a result that may be made again."""
        for index, call in unanswered(self._rows):
            tool = self._tools.get(call["function"]["name"])
            if tool is None or not tool.read_only:
                continue
            async with aclosing(self._call(call)) as events:
                async for event in events:
                    if isinstance(event, ToolResult):
                        self._rows[index] = _result_row(event)
                    yield event

    async def _ask(self, messages: list[ModelMessage]) -> AsyncGenerator[AgentEvent, None]:
        """One answer, with as many tries as it takes."""
        failures = 0
        while True:
            self._answer = Answer()
            request = self._agent.request(messages, self._tools, self._turn.instructions)
            try:
                async with aclosing(self._answer.read(request)) as events:
                    async for event in events:
                        yield event
                return
            except Exception as error:
                failures += 1
                if self._answer.shown:
                    self._agent.log(error, failures, "model answer broke off")
                    raise AgentFailed("The answer broke off.") from error
                self._agent.log(error, failures, "model request failed")
                pause = self._agent.pause(error, failures)
                if pause is None:
                    turn = msgspec.structs.replace(self._turn, messages=self._rows)
                    raise AgentUnavailable(message_for(error), turn, self._tokens) from error
            await asyncio.sleep(pause)

    async def _call_all(
        self, calls: list[dict[str, Any]], messages: list[ModelMessage]
    ) -> AsyncGenerator[AgentEvent, None]:
        answer = self._answer
        row = Calls(calls, answer.text, answer.reasoning, thinking_blocks(answer.response))
        yield row
        self._rows.append(_calls_row(row))
        results = []
        for call in calls:
            async with aclosing(self._call(call)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, ToolResult):
                        self._rows.append(_result_row(event))
                        results.append(result_part(call, event.content))
        messages.append(ModelRequest(parts=results))

    async def _call(self, call: dict[str, Any]) -> AsyncGenerator[AgentEvent, None]:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        yield ToolStarted(call["id"], name, _summary(arguments))
        outcome = await self._execute(call)
        text = bounded(legal(outcome.text))
        yield ToolResult(call["id"], name, text, _summary(text))
        for file in outcome.files:
            yield file

    async def _execute(self, call: dict[str, Any]) -> Outcome:
        name = call["function"]["name"]
        if name not in self._tools:
            return Outcome.failure(f"There is no tool named {name}.")
        try:
            arguments = arguments_of(call)
        except ValueError as error:
            return Outcome.failure(str(error))
        return await self._tools[name].call(arguments)

    def _usage(self, response: ModelResponse) -> Usage:
        used = response.usage
        cached = {
            "cache_read_tokens": used.cache_read_tokens,
            "cache_write_tokens": used.cache_write_tokens,
        }
        tokens = {
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "requests": 1,
            **{name: count for name, count in cached.items() if count},
        }
        self._tokens = add_tokens(self._tokens, tokens)
        return Usage(self._tokens, response.model_name)

    def _check_refusal(self, response: ModelResponse) -> None:
        if response.finish_reason == "content_filter" and not self._answer.text:
            raise AgentFailed("The model declined to answer.")


def _calls_row(calls: Calls) -> ModelRow:
    return ModelRow(
        role="assistant",
        content=calls.text,
        tool_calls=calls.tool_calls,
        reasoning_content=calls.reasoning or None,
        thinking_blocks=calls.thinking_blocks,
    )


def _result_row(result: ToolResult) -> ModelRow:
    return ModelRow(role="tool", content=result.content, tool_call_id=result.id, name=result.name)


def _summary(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SUMMARY_CHARS else line[: _SUMMARY_CHARS - 1] + "…"
