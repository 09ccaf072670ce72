"""What goes to a webhook and what comes back. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.agents.agent import TurnContext

MAX_LINE_BYTES = 1_048_576
MAX_BODY_BYTES = 16 * 1_048_576
"""Of an answer as a whole, streamed or not."""
_MESSAGE_CHARS = 500
_NDJSON = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl"})
_SSE = "text/event-stream"


class BadAnswer(Exception):
    """The service broke the wire form."""


class Event(msgspec.Struct):
    type: str = "delta"
    text: str = ""
    message: str = ""
    usage: dict[str, int] = {}


class _Wire(msgspec.Struct):
    type: Any = "delta"
    text: Any = ""
    message: Any = ""
    usage: Any = None


def body_of(turn: TurnContext) -> bytes:
    body = {
        "turn": turn.turn,
        "attempt": turn.attempt,
        "session": turn.session,
        "messages": list(turn.messages),
        "text": turn.text,
        "media": turn.media,
    }
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        # Old logs hold halves of surrogate pairs; escaped they are legal JSON.
        return json.dumps(msgspec.to_builtins(body)).encode()


def headers_of(
    turn: TurnContext, body: bytes, secret: str | None, timestamp: int
) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/x-ndjson, text/event-stream, application/json",
        "Accept-Encoding": "identity",
        "Parley-Turn": turn.turn,
        "Parley-Attempt": str(turn.attempt),
        "Parley-Timestamp": str(timestamp),
    }
    if secret is not None:
        headers["Parley-Signature"] = signature(secret, timestamp, body)
    return headers


def signature(secret: str, timestamp: int, body: bytes) -> str:
    signed = f"{timestamp}.".encode() + body
    return f"sha256={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def decode(data: bytes) -> Event:
    """Raises BadAnswer. A type that is not known is kept, for the caller to ignore."""
    try:
        wire = msgspec.json.decode(data, type=_Wire)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadAnswer(f"not a JSON object: {error}") from error
    for value in (wire.type, wire.text, wire.message):
        if not isinstance(value, str):
            raise BadAnswer("type, text and message must be strings")
    return Event(wire.type, wire.text, wire.message[:_MESSAGE_CHARS], _tokens(wire.usage))


class Lines:
    """Cuts a stream into events, whatever the pieces it comes in."""

    def __init__(self, content_type: str) -> None:
        if content_type != _SSE and content_type not in _NDJSON:
            raise BadAnswer(f"content type {content_type[:80]}")
        self._sse = content_type == _SSE
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._total = 0

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Raises BadAnswer."""
        self._total += len(chunk)
        if self._total > MAX_BODY_BYTES:
            raise BadAnswer(f"the answer is larger than {MAX_BODY_BYTES} bytes")
        start = len(self._rest)
        self._rest += chunk
        while (end := self._rest.find(b"\n", start)) >= 0:
            line = bytes(self._rest[:end]).removesuffix(b"\r")
            del self._rest[: end + 1]
            start = 0
            _check_length(len(line))
            yield from self._sse_line(line) if self._sse else _json_line(line)
        _check_length(len(self._rest))

    def _sse_line(self, line: bytes) -> Iterator[Event]:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" "))
            self._data_bytes += len(line)
            _check_length(self._data_bytes)
        elif not line and self._data:
            data = b"\n".join(self._data)
            self._data, self._data_bytes = [], 0
            yield decode(data)


def _json_line(line: bytes) -> Iterator[Event]:
    if line.strip():
        yield decode(line)


def _check_length(length: int) -> None:
    if length > MAX_LINE_BYTES:
        raise BadAnswer(f"a line is longer than {MAX_LINE_BYTES} bytes")


def _tokens(usage: Any) -> dict[str, int]:
    """Usage is only counted; a wrong one is no reason to lose an answer."""
    if not isinstance(usage, dict):
        return {}
    return {
        str(name): count
        for name, count in usage.items()
        if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 2**53
    }
