"""What a model server may say: scripts for Chat Completions and for Anthropic's Messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.scripted_http import Reply, Request, Step

SSE = {"Content-Type": "text/event-stream"}
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def chunk(delta: dict[str, Any], finish: str | None = None, **extra: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "answer-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted-1",
        "choices": [choice],
        **extra,
    }


def words(*texts: str) -> list[dict[str, Any]]:
    return [chunk({"content": text}) for text in texts]


def thoughts(*texts: str) -> list[dict[str, Any]]:
    return [chunk({"reasoning_content": text}) for text in texts]


def call(id: str, name: str, arguments: str, index: int = 0) -> list[dict[str, Any]]:
    """A call in three pieces, as servers send it."""
    half = len(arguments) // 2
    start = {"index": index, "id": id, "type": "function", "function": {"name": name}}
    pieces = ({"index": index, "function": {"arguments": p}} for p in _halves(arguments, half))
    return [chunk({"tool_calls": [piece]}) for piece in ({**start}, *pieces)]


def _halves(text: str, at: int) -> tuple[str, str]:
    return text[:at], text[at:]


def answer(*parts: Sequence[dict[str, Any]], finish: str | None = "stop") -> Step:
    """A complete stream; without `finish` it ends cleanly but says no reason."""

    async def step(_: Request, reply: Reply) -> None:
        await reply.head(200, SSE)
        for part in parts:
            for item in part:
                await reply.piece(_data(item))
        if finish is not None:
            await reply.piece(_data(chunk({}, finish)))
            await reply.piece(_data({**chunk({}), "choices": [], "usage": USAGE}))
            await reply.piece(b"data: [DONE]\n\n")
        await reply.end()

    return step


def cut_after(*parts: Sequence[dict[str, Any]]) -> Step:
    """The connection breaks in the middle of the stream."""

    async def step(_: Request, reply: Reply) -> None:
        await reply.head(200, SSE)
        for part in parts:
            for item in part:
                await reply.piece(_data(item))
        reply.cut()

    return step


def status(code: int, headers: dict[str, str] | None = None, message: str = "no") -> Step:
    async def step(_: Request, reply: Reply) -> None:
        body = json.dumps({"error": {"message": message, "type": "error"}}).encode()
        await reply.whole(code, body, {"Content-Type": "application/json", **(headers or {})})

    return step


def raw(body: bytes, content_type: str = "text/event-stream") -> Step:
    async def step(_: Request, reply: Reply) -> None:
        await reply.whole(200, body, {"Content-Type": content_type})

    return step


def drop() -> Step:
    async def step(_: Request, reply: Reply) -> None:
        reply.cut()

    return step


def hang(*parts: Sequence[dict[str, Any]]) -> Step:
    """Says `parts` and then nothing, until the client is gone."""

    async def step(_: Request, reply: Reply) -> None:
        await reply.head(200, SSE)
        for part in parts:
            for item in part:
                await reply.piece(_data(item))
        await reply.hang()

    return step


def messages(*blocks: dict[str, Any], stop: str | None = "end_turn") -> Step:
    """Anthropic's form of a stream: each block started, filled and stopped."""

    async def step(_: Request, reply: Reply) -> None:
        await reply.head(200, SSE)
        start: dict[str, Any] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-scripted",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 11, "output_tokens": 1},
        }
        await reply.piece(_event("message_start", {"message": start}))
        for index, block in enumerate(blocks):
            for name, fields in _block(block):
                await reply.piece(_event(name, {"index": index, **fields}))
        if stop is not None:
            ending = {"stop_reason": stop, "stop_sequence": None}
            usage = {"output_tokens": 7}
            await reply.piece(_event("message_delta", {"delta": ending, "usage": usage}))
            await reply.piece(_event("message_stop", {}))
        await reply.end()

    return step


def _block(block: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    match block["type"]:
        case "text":
            empty: dict[str, Any] = {"text": ""}
            deltas: list[dict[str, Any]] = [{"type": "text_delta", "text": block["text"]}]
        case "thinking":
            empty = {"thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case _:
            empty = {"id": block["id"], "name": block["name"], "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": block["input"]}]
    start = ("content_block_start", {"content_block": {"type": block["type"], **empty}})
    middle = [("content_block_delta", {"delta": delta}) for delta in deltas]
    return [start, *middle, ("content_block_stop", {})]


def _data(item: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(item).encode() + b"\n\n"


def _event(name: str, fields: dict[str, Any]) -> bytes:
    return f"event: {name}\n".encode() + _data({"type": name, **fields})
