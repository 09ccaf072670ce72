"""The byte form of a log line.

Reading is fast for lines in our own form and lenient for everything else: lone surrogates, NaN
and integers of any length are read through the standard library. Writing never fails on text:
lone surrogates are escaped. A line never contains a newline byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from sessions.record import KNOWN_FIELDS, Record

METADATA_PREFIX = b'{"_type":"metadata",'

T = TypeVar("T")

# A foreign value under one of these names must not stand in for our own on the line.
_OURS = frozenset({"seq", "role", "timestamp"})

# A byte or two may be flipped in a string. More than that, and what stands around the hole may
# belong to different lines.
MAX_UNREADABLE = 8
SCAN_EFFORT = 8
CHUNK_CHARS = 1024
UNREADABLE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What `decode` and `decode_all` raise for bytes that are no row in our own form."""

# A lone surrogate does not fit where a word is expected.
_MISFITS = (msgspec.ValidationError, UnicodeEncodeError)

_START = re.compile(r'\{"(?:role|_type)":')
_BETWEEN = re.compile(r"[ \t\r\0,]*")
# Control characters, and bytes that are not UTF-8 as `surrogateescape` shows them.
_UNREADABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\udc80-\udcff]")

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)
_scanner = json.JSONDecoder()
_mender = json.JSONDecoder(strict=False)


class _Numbered(msgspec.Struct):
    seq: int = 0


_number = msgspec.json.Decoder(_Numbered)


class LineError(ValueError):
    """These bytes are not one JSON object."""


def encode(records: Sequence[Record]) -> bytes:
    """Every record as a line, ready to be written in one call."""
    for record in records:
        if record.extra is not None:
            break
    else:
        try:
            return _encoder.encode_lines(records)
        except UnicodeEncodeError:
            pass
    return b"".join(encode_object(plain(row)) for row in records)


def encode_object(value: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(value) + b"\n"
    except (UnicodeEncodeError, TypeError):
        return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def encode_foreign(record: Record) -> bytes:
    """Keeps NaN and infinity, which `encode` writes as null."""
    return json.dumps(plain(record), separators=(",", ":")).encode() + b"\n"


def plain(record: Record) -> dict[str, Any]:
    """The record as the object on its line: foreign fields beside ours."""
    value: dict[str, Any] = msgspec.to_builtins(record, str_keys=True)
    value.pop("_extra", None)
    return {**value, **(record.extra or {})}


def decode(line: bytes) -> Record:
    """Reads a line in our own form. Raises UNREADABLE_ERRORS; callers fall back to `parse`."""
    record = _decoder.decode(line)
    if record.extra is not None:
        # The name of this field is ours, but no line of ours has it.
        raise msgspec.ValidationError("_extra is a foreign field")
    return record


def decode_all(data: bytes) -> list[Record]:
    """Like `decode` for many lines, but lines may be joined or broken, and have `_extra`."""
    return _decoder.decode_lines(data)


def seq_of(line: bytes) -> int:
    """The number of a row, without reading the rest of it; 0 if it has none."""
    try:
        return _number.decode(line).seq
    except UNREADABLE_ERRORS:
        pass
    try:
        seq = parse(line).get("seq", 0)
    except LineError:
        return 0
    return seq if type(seq) is int else 0


def parse(line: bytes) -> dict[str, Any]:
    """Reads one JSON object in any form the field's writers produce."""
    try:
        value = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise LineError(str(error)) from error
    if not isinstance(value, dict):
        raise LineError("not a JSON object")
    return value


def own_state(metadata: dict[str, Any]) -> dict[str, Any]:
    """What a metadata line holds as `metadata.parley`."""
    inner = metadata.get("metadata")
    parley = inner.get("parley") if isinstance(inner, dict) else None
    return parley if isinstance(parley, dict) else {}


def is_complete(metadata: dict[str, Any]) -> bool:
    """Every metadata line of ours names its log; one that does not has lost our state."""
    return bool(own_state(metadata).get("log"))


class Piece(msgspec.Struct, frozen=True):
    """A part of a line: an object, or bytes that are none."""

    start: int
    end: int
    value: dict[str, Any] | None = None
    mended: bool = False
    """A few characters of the object could not be read and were replaced."""


class _Span(msgspec.Struct, frozen=True):
    start: int
    end: int
    value: dict[str, Any]
    mended: bool = False


def pieces(line: bytes) -> list[Piece]:
    """Everything on a line, in order, without the blanks and commas in between.

    Two writers, or a lost newline, leave several objects on a line. If anything else is on it
    too, an object counts only if it is plainly a line of its own. Takes time in proportion to
    the length of the line, whatever is on it.
    """
    text = line.decode("utf-8", "surrogateescape")
    spans = _only_objects(text)
    if spans is None:
        spans = _among_damage(text)
    found: list[Piece] = []
    at = place = 0
    for span in [*spans, None]:
        start = len(text) if span is None else span.start
        if _BETWEEN.fullmatch(text, at, start) is None:
            found.append(Piece(place, place + _size(text[at:start])))
        place += _size(text[at:start])
        if span is not None:
            at = span.end
            end = place + _size(text[start:at])
            found.append(Piece(place, end, span.value, span.mended))
            place = end
    return found


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _only_objects(text: str) -> list[_Span] | None:
    """None if there is anything else."""
    found: list[_Span] = []
    position = _skip(text, 0)
    while position < len(text):
        try:
            value, end = _scanner.raw_decode(text, position)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict):
            return None
        found.append(_Span(position, end, value))
        position = _skip(text, end)
    return None if _UNREADABLE.search(text) and _hurt(found, text) else found


def _hurt(spans: list[_Span], text: str) -> bool:
    return any(_UNREADABLE.search(text, span.start, span.end) for span in spans)


def _among_damage(text: str) -> list[_Span]:
    found: list[_Span] = []
    position, effort = 0, SCAN_EFFORT * (len(text) + CHUNK_CHARS)
    while effort > 0 and (match := _START.search(text, position)) is not None:
        start = match.start()
        span, read = _object_at(text, start)
        effort -= 0 if span else read
        position = span.end if span else start + 1
        if span:
            found.append(span)
    return found


def _object_at(text: str, start: int) -> tuple[_Span | None, int]:
    """A row or metadata that begins here, and how many characters were read to find out."""
    value, size, read = _read_object(_scanner, text, start)
    mended = value is None or _UNREADABLE.search(text, start, start + size) is not None
    if mended:
        value, size, more = _read_object(_mender, text, start)
        read += more
    if value is not None and mended:
        source = text[start : start + size]
        if len(_UNREADABLE.findall(source)) > MAX_UNREADABLE:
            return None, read
        value, _ = _mender.raw_decode(_UNREADABLE.sub("\ufffd", source))
    if value is None or not is_whole(value):
        return None, read
    return _Span(start, start + size, value, mended), read


def _read_object(
    scanner: json.JSONDecoder, text: str, start: int
) -> tuple[dict[str, Any] | None, int, int]:
    """The object, its length, and how many characters were read.

    Only as much of a long line is looked at as the object takes, because the standard library's
    errors take time in proportion to what comes before them.
    """
    size = CHUNK_CHARS
    while True:
        chunk = text[start : start + size]
        try:
            value, end = scanner.raw_decode(chunk)
        except json.JSONDecodeError as error:
            unfinished = error.msg.startswith("Unterminated") or error.pos > len(chunk) - 8
            if unfinished and start + size < len(text):
                size *= 4
                continue
            return None, 0, error.pos + size // 4
        except (ValueError, RecursionError):
            return None, 0, size
        return value, end, end


def _skip(text: str, position: int) -> int:
    match = _BETWEEN.match(text, position)
    return match.end() if match else position


def is_whole(value: dict[str, Any]) -> bool:
    """True if an object that was found among damage is plainly a line of its own."""
    role = value.get("role")
    if isinstance(role, str) and role.isidentifier() and type(value.get("seq")) is int:
        return True
    return value.get("_type") == "metadata" and isinstance(value.get("key"), str)


def to_record(value: dict[str, Any]) -> Record:
    """A record from an object of any origin; what does not fit our fields is kept as foreign."""
    value = {"role": "", "content": "", **value}
    record, extra = lenient(Record, value, KNOWN_FIELDS)
    for name in _OURS & extra.keys():
        extra[f"foreign_{name}"] = extra.pop(name)
    return msgspec.structs.replace(record, extra=extra) if extra else record


def lenient(
    kind: type[T], value: dict[str, Any], names: frozenset[str]
) -> tuple[T, dict[str, Any]]:
    """Converts what fits `kind`; returns the rest beside it."""
    known = {name: item for name, item in value.items() if name in names}
    rest = {name: item for name, item in value.items() if name not in names}
    try:
        return msgspec.convert(known, kind, str_keys=True), rest
    except _MISFITS:
        pass
    base: dict[str, Any] = {name: "" for name in ("role", "content") if name in known}
    for name, item in known.items():
        try:
            msgspec.convert({**base, name: item}, kind, str_keys=True)
        except _MISFITS:
            rest[name] = item
        else:
            base[name] = item
    return msgspec.convert(base, kind, str_keys=True), rest
