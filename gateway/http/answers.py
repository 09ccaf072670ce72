"""How values go out as JSON."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

_encoder = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """A lone surrogate is kept in the log, but cannot be sent as UTF-8."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_sendable(msgspec.to_builtins(value, str_keys=True)))


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_sendable(name): _sendable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sendable(item) for item in value]
    return value


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(value), status, headers, "application/json")
