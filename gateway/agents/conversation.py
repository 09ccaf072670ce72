"""From the rows of a log to a model's messages, and from its answer back to a row. Pure.

Only rows of the running turn keep what the model was thinking: within a turn some providers demand
it back, and for older turns it costs tokens and helps nobody. It goes back only to the provider
whose form it has, because others would take it for text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from gateway.agents.agent import Produced
from gateway.agents.tools import legal
from sessions.history import UNKNOWN_RESULT, ModelRow

ANTHROPIC = "anthropic"
_REDACTED = "redacted_thinking"
_LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_ILLEGAL_NAME = re.compile(r"[^A-Za-z0-9_-]")


def conversation(
    rows: Sequence[ModelRow], *, system: str, sends_reasoning: bool = False
) -> list[ModelMessage]:
    """`system` is the name of the provider the messages are for."""
    messages: list[ModelMessage] = []
    running = _running_turn(rows)
    names: dict[str, str] = {}
    for index, row in enumerate(rows):
        if row.role == "assistant":
            names.update((call["id"], _name(call)) for call in row.tool_calls or ())
            thinking = index >= running and (sends_reasoning or system == ANTHROPIC)
            if parts := list(_response_parts(row, system, thinking)):
                messages.append(ModelResponse(parts=parts, provider_name=system))
            continue
        part = _request_part(row, names)
        if messages and isinstance(messages[-1], ModelRequest):
            messages[-1].parts = [*messages[-1].parts, part]
        else:
            messages.append(ModelRequest(parts=[part]))
    return messages


def unanswered(rows: Sequence[ModelRow]) -> list[tuple[int, dict[str, Any]]]:
    """Calls of the running turn whose result was made up, with the place of that row."""
    if not rows or rows[-1].role != "tool":
        return []
    start = max((i for i, row in enumerate(rows) if row.role == "assistant"), default=0)
    calls = {call["id"]: call for call in rows[start].tool_calls or () if call.get("function")}
    return [
        (index, calls[row.tool_call_id])
        for index, row in enumerate(rows)
        if index > start
        and row.seq == 0
        and row.content == UNKNOWN_RESULT
        and row.tool_call_id in calls
    ]


def result_part(call: dict[str, Any], content: str) -> ToolReturnPart:
    """The result of a call that `tool_calls` returned."""
    return ToolReturnPart(call["function"]["name"], content, call["id"])


def tool_calls(response: ModelResponse) -> list[dict[str, Any]]:
    """The calls of an answer in OpenAI's form; makes the answer fit to be sent back.

    Each call gets an id of its own. Arguments are logged as the model wrote them, even if they are
    not what they should be.
    """
    calls: list[dict[str, Any]] = []
    seen: set[str] = set()
    for part in response.parts:
        if not isinstance(part, ToolCallPart):
            continue
        if part.tool_call_id in seen:
            part.tool_call_id = f"{part.tool_call_id[:30]}_{len(calls)}"
        seen.add(part.tool_call_id)
        function = {"name": legal(part.tool_name), "arguments": legal(_as_written(part))}
        part.args = _arguments(function["arguments"])
        calls.append({"id": part.tool_call_id, "type": "function", "function": function})
    return calls


def arguments_of(call: dict[str, Any]) -> dict[str, Any]:
    """Raises ValueError."""
    text = call["function"]["arguments"] or "{}"
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"The arguments are not a JSON object: {error}") from error


def thinking_blocks(response: ModelResponse) -> list[dict[str, Any]] | None:
    """Signed thinking in Anthropic's form, which has to go back as it came."""
    blocks: list[dict[str, Any]] = []
    for part in response.parts:
        if isinstance(part, ThinkingPart) and part.signature and part.provider_name == ANTHROPIC:
            if part.id == _REDACTED:
                blocks.append({"type": _REDACTED, "data": part.signature})
            else:
                blocks.append(
                    {
                        "type": "thinking",
                        "thinking": legal(part.content),
                        "signature": part.signature,
                    }
                )
    return blocks or None


def files(response: ModelResponse) -> list[Produced]:
    found = [part.content for part in response.parts if isinstance(part, FilePart)]
    return [
        Produced(f"file-{number}{_suffix(file.media_type)}", file.media_type, file.data)
        for number, file in enumerate(found, 1)
    ]


def _running_turn(rows: Sequence[ModelRow]) -> int:
    return max((i for i, row in enumerate(rows) if row.role == "user"), default=0)


def _request_part(row: ModelRow, names: dict[str, str]) -> ModelRequestPart:
    if row.role == "tool":
        call_id = row.tool_call_id or ""
        return ToolReturnPart(
            tool_name=names.get(call_id) or _legal_name(row.name or ""),
            content=legal(row.content),
            tool_call_id=_call_id(call_id),
        )
    if row.role == "system":
        return SystemPromptPart(legal(row.content))
    return UserPromptPart(legal(row.content))


def _response_parts(row: ModelRow, system: str, thinking: bool) -> Iterator[ModelResponsePart]:
    if thinking and system == ANTHROPIC:
        yield from _signed_thinking(row.thinking_blocks or ())
    elif thinking and row.reasoning_content:
        # The id is the name of the field it is sent in.
        thoughts = legal(row.reasoning_content)
        yield ThinkingPart(thoughts, id="reasoning_content", provider_name=system)
    if row.content:
        yield TextPart(legal(row.content))
    for call in row.tool_calls or ():
        function = call.get("function") or {}
        arguments = function.get("arguments")
        yield ToolCallPart(_name(call), _arguments(arguments), _call_id(call["id"]))


def _as_written(part: ToolCallPart) -> str:
    if isinstance(part.args, str):
        return part.args or "{}"
    return msgspec.json.encode(part.args or {}).decode()


def _arguments(value: object) -> str | dict[str, Any]:
    """Providers refuse arguments that are not an object, even those a model wrote itself."""
    if isinstance(value, dict):
        return value
    text = legal(str(value or "{}"))
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return {"invalid": text}
    return text


def _signed_thinking(blocks: Sequence[Any]) -> Iterator[ThinkingPart]:
    for block in blocks:
        match block:
            case {"type": "thinking", "thinking": str(text), "signature": str(signature)}:
                yield ThinkingPart(text, signature=signature, provider_name=ANTHROPIC)
            case {"type": "redacted_thinking", "data": str(data)}:
                yield ThinkingPart("", id=_REDACTED, signature=data, provider_name=ANTHROPIC)


def _name(call: dict[str, Any]) -> str:
    function = call.get("function") or {}
    return _legal_name(str(function.get("name") or call.get("name") or ""))


def _legal_name(name: str) -> str:
    return _ILLEGAL_NAME.sub("_", name)[:64] or "unknown"


def _call_id(value: str) -> str:
    """Ids of other providers can be longer than this one allows."""
    return value if _LEGAL_ID.fullmatch(value) else _hash(value)


def _hash(value: str) -> str:
    return hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:24]


def _suffix(mime: str) -> str:
    kind = mime.partition("/")[2].partition(";")[0].partition("+")[0]
    return f".{kind}" if kind.isalnum() and len(kind) <= 5 else ".bin"
