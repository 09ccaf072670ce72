"""The frames of the WebSocket, without a socket.

Client frames are parsed into structs; anything that is not exactly one of them is a `BadFrame`.
Server frames are encoded here and nowhere else. `plan` decides what a client that attaches is
sent, so that on one connection the highest number seen is always a safe `since`.
"""

from __future__ import annotations

from typing import Any

import msgspec

LAST_MESSAGES = 200
MOST_MESSAGES = 1_000


class Hello(msgspec.Struct, frozen=True, tag="hello", forbid_unknown_fields=True):
    token: str | None = None
    client: str | None = None


class Attach(msgspec.Struct, frozen=True, tag="attach", forbid_unknown_fields=True):
    chat_id: str | None = None
    key: str | None = None
    since: int | None = None
    log: str | None = None


class Detach(msgspec.Struct, frozen=True, tag="detach", forbid_unknown_fields=True):
    chat_id: str | None = None
    key: str | None = None


class Send(msgspec.Struct, frozen=True, tag="send", forbid_unknown_fields=True):
    chat_id: str
    id: str
    text: str
    media: list[str] = []
    replaces: int | None = None


class Regenerate(msgspec.Struct, frozen=True, tag="regenerate", forbid_unknown_fields=True):
    chat_id: str
    id: str


class Stop(msgspec.Struct, frozen=True, tag="stop", forbid_unknown_fields=True):
    chat_id: str
    all: bool = False


class Ping(msgspec.Struct, frozen=True, tag="ping", forbid_unknown_fields=True):
    id: str | int | None = None


ClientFrame = Hello | Attach | Detach | Send | Regenerate | Stop | Ping

_decoder = msgspec.json.Decoder(ClientFrame)
_encoder = msgspec.json.Encoder()


class BadFrame(ValueError):
    """`id` and `chat_id` are what can be told of the frame, so that its sender can match it."""

    def __init__(self, message: str, id: Any = None, chat_id: Any = None) -> None:
        super().__init__(message)
        self.message, self.id, self.chat_id = message, id, chat_id


def parse(text: str | bytes) -> ClientFrame:
    """Raises BadFrame."""
    try:
        frame: ClientFrame = _decoder.decode(text)
    except msgspec.ValidationError as error:
        raise _bad(text, str(error)) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadFrame("A frame is one JSON object.") from error
    return frame


def _bad(text: str | bytes, reason: str) -> BadFrame:
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return BadFrame("A frame is one JSON object.")
    names = {name: value.get(name) for name in ("id", "chat_id")}
    known = {name: item for name, item in names.items() if isinstance(item, str) and item}
    return BadFrame(reason, **known)


def encode(kind: str, fields: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode({"type": kind, **fields})
    except UnicodeEncodeError:
        return _encoder.encode(_replace_surrogates({"type": kind, **fields}))


def _replace_surrogates(value: Any) -> Any:
    """A lone surrogate is kept in the log but cannot be sent as UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_surrogates(item) for item in value]
    return value


def error(
    code: str,
    message: str,
    *,
    id: str | None = None,
    chat_id: str | None = None,
    retry_after: float | None = None,
) -> bytes:
    fields: dict[str, Any] = {"code": code, "message": message}
    optional = {"id": id, "chat_id": chat_id, "retry_after": retry_after}
    fields.update((name, value) for name, value in optional.items() if value is not None)
    return encode("error", fields)


class Plan(msgspec.Struct, frozen=True):
    """What a client that attaches is to be sent."""

    after: int | None
    """Rows after this number; None: the last ones."""
    limit: int
    reset: bool
    """The client's copy is of another log, or ahead of this one: it must be dropped."""


def plan(since: int | None, log: str | None, *, own_log: str, last_seq: int) -> Plan:
    if (log is not None and log != own_log) or (since is not None and since > last_seq):
        return Plan(None, LAST_MESSAGES, True)
    if since is None:
        return Plan(None, LAST_MESSAGES, False)
    return Plan(max(0, since), MOST_MESSAGES, False)
