"""The byte form of a log line.

Reading is fast for lines in our own form and lenient for everything else: lone surrogates, NaN
and integers of any length are read through the standard library. Writing never fails on text:
lone surrogates are escaped. A line never contains a newline byte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from sessions.record import KNOWN_FIELDS, Record

METADATA_PREFIX = b'{"_type":"metadata",'

T = TypeVar("T")

# A foreign value under one of these names must not stand in for our own on the line.
_OURS = frozenset({"seq", "role", "timestamp"})

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)
_scanner = json.JSONDecoder()


class _Numbered(msgspec.Struct):
    seq: int = 0


_number = msgspec.json.Decoder(_Numbered)


class LineError(ValueError):
    """These bytes are not one JSON object."""


def encode(records: Iterable[Record]) -> bytes:
    """Every record as a line, ready to be written in one call."""
    rows = list(records)
    if all(row.extra is None for row in rows):
        try:
            return _encoder.encode_lines(rows)
        except UnicodeEncodeError:
            pass
    return b"".join(encode_object(plain(row)) for row in rows)


def encode_object(value: dict[str, Any]) -> bytes:
    try:
        return _encoder.encode(value) + b"\n"
    except (UnicodeEncodeError, TypeError):
        return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def plain(record: Record) -> dict[str, Any]:
    """The record as the object on its line: foreign fields beside ours."""
    value: dict[str, Any] = msgspec.to_builtins(record, str_keys=True)
    value.pop("_extra", None)
    return {**value, **(record.extra or {})}


def decode(line: bytes) -> Record:
    """Reads a line in our own form. Raises what msgspec raises; callers fall back to `parse`."""
    return _decoder.decode(line)


def decode_all(data: bytes) -> list[Record]:
    return _decoder.decode_lines(data)


def seq_of(line: bytes) -> int:
    """The number of a row, without reading the rest of it; 0 if it has none."""
    try:
        return _number.decode(line).seq
    except (msgspec.MsgspecError, UnicodeDecodeError):
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


def split_objects(line: bytes) -> list[dict[str, Any]]:
    """Two writers, or a lost newline, can leave several objects on a line: read them all."""
    try:
        text = line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise LineError(str(error)) from error
    objects, position = [], 0
    while position < len(text):
        try:
            value, position = _scanner.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise LineError(str(error)) from error
        if not isinstance(value, dict):
            raise LineError("not a JSON object")
        objects.append(value)
        while position < len(text) and text[position] in " \t\r,":
            position += 1
    return objects


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
    except msgspec.ValidationError:
        pass
    base: dict[str, Any] = {name: known[name] for name in ("role", "content") if name in known}
    if not isinstance(base.get("role", ""), str):
        base["role"] = ""
    if not isinstance(base.get("content", ""), str | list | None):
        base["content"] = ""
    for name, item in known.items():
        try:
            msgspec.convert({**base, name: item}, kind, str_keys=True)
        except msgspec.ValidationError:
            rest[name] = item
        else:
            base[name] = item
    return msgspec.convert(base, kind, str_keys=True), rest
