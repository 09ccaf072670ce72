"""From the bytes of a log file to its rows. Pure: no file is opened or changed here.

A file in our own form is read in one pass. Anything else goes line by line:

- damage that breaks the form of a line costs that line; its bytes are handed back for quarantine;
- several objects on a line, or a fragment before a whole object, are taken apart;
- a line that still parses is believed if its number lies between its neighbours', it has a role,
  and it is not metadata that lost its type;
- a number that is out of order is mended where its neighbours leave room;
- a damaged closing record leaves a row in its place that still settles what it settled, because
  a question must not be answered twice when its answer is damaged.
"""

from __future__ import annotations

import json
import operator
import re
import time
from bisect import bisect_left
from typing import Any

import msgspec

from sessions import lines
from sessions.lines import METADATA_PREFIX, LineError
from sessions.record import NoteKind, Outcome, Record

CHUNK_BYTES = 256 * 1024

_START = re.compile(rb'\{"(?:role|_type)":')
_SETTLES = re.compile(rb'"settles":(\{[^{}]{0,4096}\})')
_OUTCOME = re.compile(rb'"outcome":"([a-z]{1,20})"')
_TURN = re.compile(rb'"turn":"([!#-\[\]-~]{1,200})"')
_SEQ = re.compile(rb'"seq":(\d{1,15})[,}]')


class Damage(msgspec.Struct, frozen=True):
    offset: int
    data: bytes
    reason: str


class Loaded(msgspec.Struct):
    records: list[Record]
    metadata: dict[str, Any] | None
    """The last metadata line as it stands; None if there is none."""
    damage: list[Damage] = []
    rows: list[bytes] | None = None
    """The message lines the file should hold, if they differ from those it holds."""
    cut: int | None = None
    """Where a torn tail starts."""
    missing_newline: bool = False
    recovered: int = 0
    """Lines that were mended."""
    offset_seq: int = 0
    """The last row behind the model, by `metadata.parley.consolidated` or a peer's count."""
    keys: list[str] = []
    """Every key the metadata lines name."""
    metadata_bytes: int = 0

    @property
    def intact(self) -> bool:
        return self.rows is None and self.cut is None and not self.missing_newline


def load(data: bytes, *, foreign: bool = False) -> Loaded:
    """Never raises for any bytes. `foreign`: rows without a number or a role are expected."""
    found = None if foreign else _load_own(data)
    if found is None:
        found = _Slow(data, foreign).load()
    return found


def _load_own(data: bytes) -> Loaded | None:
    """Reads a file that is exactly as we write it; None for any other."""
    if not data.startswith(METADATA_PREFIX) or not data.endswith(b"\n"):
        return None
    records: list[Record] = []
    at, last_metadata, metadata_bytes = 0, b"", 0
    view = memoryview(data)
    separator = b"\n" + METADATA_PREFIX
    try:
        while at < len(data):
            if data.startswith(METADATA_PREFIX, at):
                end = data.index(b"\n", at) + 1
                last_metadata = data[at:end]
                metadata_bytes += end - at
            else:
                end = _chunk_end(data, at, data.find(separator, at))
                records += lines.decode_all(view[at:end])  # type: ignore[arg-type]  # any buffer
                if end < len(data) and end - at >= CHUNK_BYTES:
                    time.sleep(0)  # Lets the event loop's thread in between two large pieces.
            at = end
        metadata = lines.parse(last_metadata)
    except (msgspec.MsgspecError, UnicodeDecodeError, LineError):
        return None
    numbers = [row.seq for row in records]
    if numbers and (numbers[0] < 1 or not all(map(operator.lt, numbers, numbers[1:]))):
        return None
    if not _is_metadata(metadata) or not all(row.role for row in records):
        return None
    loaded = Loaded(records, metadata, metadata_bytes=metadata_bytes, keys=_keys([metadata]))
    loaded.offset_seq = _offset(metadata, list(enumerate(numbers)))
    return loaded


def _chunk_end(data: bytes, at: int, separator: int) -> int:
    end = len(data) if separator < 0 else separator + 1
    if end - at <= 2 * CHUNK_BYTES:
        return end
    newline = data.find(b"\n", at + CHUNK_BYTES, end)
    return end if newline < 0 else newline + 1


class _Row(msgspec.Struct):
    record: Record
    raw: bytes | None
    """The bytes on disk, if they can stay as they are."""
    ordinal: int


class _Slow:
    def __init__(self, data: bytes, foreign: bool) -> None:
        self.data, self.foreign = data, foreign
        self.found: list[_Row] = []
        self.metadata: list[dict[str, Any]] = []
        self.damage: list[Damage] = []
        self.changed = False
        self.recovered = 0
        self.ordinal = 0
        self.metadata_bytes = 0
        self.cut: int | None = None
        self.missing_newline = False

    def load(self) -> Loaded:
        offset = 0
        for line in self.data.split(b"\n"):
            last = offset + len(line) == len(self.data)
            if line.strip(b" \t\r\0") or (line and last):
                self._take(line, offset, last)
            elif line:
                self.changed = True
            offset += len(line) + 1
        if self.found or self.metadata:
            self.changed |= not self.data.startswith(METADATA_PREFIX)
        rows = self._number()
        metadata = self.metadata[-1] if self.metadata else None
        loaded = Loaded(
            [row.record for row in rows],
            metadata,
            damage=self.damage,
            cut=None if self.changed else self.cut,
            missing_newline=self.missing_newline and not self.changed,
            recovered=self.recovered,
            keys=_keys(self.metadata),
            metadata_bytes=self.metadata_bytes,
        )
        if self.changed:
            loaded.rows = [row.raw or lines.encode([row.record]) for row in rows]
        numbered = sorted((row.ordinal, row.record.seq) for row in rows)
        loaded.offset_seq = _offset(metadata, numbered, self.ordinal)
        return loaded

    def _take(self, line: bytes, offset: int, last: bool) -> None:
        try:
            record = lines.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._take_apart(line, offset, last)
            return
        self.missing_newline |= last
        self._add(record, line + b"\n")

    def _take_apart(self, line: bytes, offset: int, last: bool) -> None:
        objects, junk = _objects(line.strip(b" \t\r\0"))
        if junk:
            torn = last and not objects
            self._quarantine(offset, line, "torn write" if torn else "not a JSON object", torn)
        self.missing_newline |= last and bool(objects)
        whole = len(objects) == 1 and not junk
        for value in objects:
            self._take_object(value, line if whole else None, offset)
        if objects and not whole:
            self.changed = True
            self.recovered += len(objects)

    def _take_object(self, value: dict[str, Any], line: bytes | None, offset: int) -> None:
        if _is_metadata(value):
            self.metadata.append(value)
            self.metadata_bytes += len(line or b"")
            self.changed |= line is None or not line.startswith(METADATA_PREFIX)
        elif not isinstance(value.get("role"), str) and not self.foreign:
            self._quarantine(offset, line or lines.encode_object(value), "no role", False)
        elif "_type" in value:
            reason = f"unknown line type {str(value['_type'])[:40]!r}"
            self._quarantine(offset, line or lines.encode_object(value), reason, False)
            self.ordinal -= value["_type"] == "provider_state"
        else:
            record = lines.to_record(value)
            if not record.role:
                record = msgspec.structs.replace(record, role="system", command=True)
                line = None
            self._add(record, None if line is None else line + b"\n")

    def _add(self, record: Record, raw: bytes | None) -> None:
        self.changed |= raw is None
        self.found.append(_Row(record, raw, self.ordinal))
        self.ordinal += 1

    def _quarantine(self, offset: int, line: bytes, reason: str, torn: bool) -> None:
        self.damage.append(Damage(offset, line, reason))
        if torn:
            self.cut = offset
        else:
            self.changed = True
        if line.lstrip(b" \t\r\0").startswith(b'{"_type"'):
            return
        placeholder = _placeholder(line)
        if placeholder is not None:
            self._add(placeholder, None)
        elif not torn:
            self.ordinal += 1

    def _number(self) -> list[_Row]:
        """Gives every row a place in a strictly increasing sequence, or puts it aside."""
        believed = _longest_increasing([row.record.seq for row in self.found])
        if len(believed) == len(self.found):
            return self.found
        self.changed = True
        placed: list[_Row] = []
        homeless: list[_Row] = []
        bounds = [self.found[index].record.seq for index in believed]
        position, previous = 0, 0
        for index, row in enumerate(self.found):
            if position < len(believed) and believed[position] == index:
                previous = bounds[position]
                position += 1
                placed.append(row)
                continue
            following = bounds[position] if position < len(believed) else None
            if following is None or previous + 1 < following:
                previous += 1
                placed.append(self._renumber(row, previous))
            elif row.record.seq == 0:
                homeless.append(row)
            elif not self._is_copy(row, placed):
                raw = row.raw or lines.encode([row.record])
                self.damage.append(Damage(0, raw, "its number is out of order"))
        for row in homeless:
            previous += 1
            placed.append(self._renumber(row, previous))
        return placed

    def _renumber(self, row: _Row, seq: int) -> _Row:
        record = msgspec.structs.replace(row.record, seq=seq)
        if row.record.seq == 0 and record.role == "user" and record.outcome is None:
            # A peer wrote this row and answered it or not; it is never ours to answer.
            record = msgspec.structs.replace(record, outcome=Outcome.ANSWERED)
        self.recovered += not self.foreign
        return _Row(record, None, row.ordinal)

    @staticmethod
    def _is_copy(row: _Row, placed: list[_Row]) -> bool:
        return any(row.record == other.record for other in placed)


def _objects(line: bytes) -> tuple[list[dict[str, Any]], bool]:
    """The objects on a line, and whether anything else is on it too."""
    if not line:
        return [], True
    try:
        return lines.split_objects(line), False
    except LineError:
        pass
    for start in (match.start() for match in _START.finditer(line, 1)):
        try:
            objects = lines.split_objects(line[start:])
        except LineError:
            continue
        if not all(_is_whole(value) for value in objects):
            continue
        before, _ = _objects(line[:start]) if start < len(line) else ([], True)
        return [*before, *objects], True
    return _leading_object(line), True


def _leading_object(line: bytes) -> list[dict[str, Any]]:
    try:
        value, _ = json.JSONDecoder().raw_decode(line.decode("utf-8", "surrogateescape"))
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return []
    return [value] if isinstance(value, dict) and _is_whole(value) else []


def _is_whole(value: dict[str, Any]) -> bool:
    """An object inside a damaged line counts only if it is plainly a line of its own."""
    return (isinstance(value.get("role"), str) and type(value.get("seq")) is int) or (
        value.get("_type") == "metadata" and "key" in value
    )


def _is_metadata(value: dict[str, Any]) -> bool:
    if value.get("_type") == "metadata":
        return True
    return "role" not in value and isinstance(value.get("metadata"), dict)


def _keys(metadata: list[dict[str, Any]]) -> list[str]:
    return [key for value in metadata if isinstance(key := value.get("key"), str)]


def _placeholder(line: bytes) -> Record | None:
    settles = _SETTLES.search(line)
    if settles is None:
        return None
    try:
        value = msgspec.json.decode(settles[1], type=dict[int, str])
    except msgspec.MsgspecError:
        return None
    outcome, seq, turn = _OUTCOME.search(line), _SEQ.search(line), _TURN.search(line)
    return Record(
        "assistant",
        "",
        seq=int(seq[1]) if seq else 0,
        outcome=outcome[1].decode() if outcome else Outcome.ANSWERED,
        turn=turn[1].decode() if turn else None,
        settles=value,
        command=True,
        note={"kind": NoteKind.DAMAGED.value},
    )


def _offset(
    metadata: dict[str, Any] | None, numbered: list[tuple[int, int]], total: int | None = None
) -> int:
    """The last row behind the model. A count a peer moved wins over our own mark."""
    if metadata is None:
        return 0
    inner = metadata.get("metadata")
    parley = inner.get("parley") if isinstance(inner, dict) else None
    mark = parley.get("consolidated") if isinstance(parley, dict) else None
    count = metadata.get("last_archived", metadata.get("last_consolidated", 0))
    count = count if type(count) is int else 0
    if isinstance(mark, dict) and type(mark.get("seq")) is int and mark.get("index") == count:
        return max(0, int(mark["seq"]))
    if count < 0 or count > (len(numbered) if total is None else total):
        return 0
    return max((seq for ordinal, seq in numbered if ordinal < count), default=0)


def _longest_increasing(numbers: list[int]) -> list[int]:
    """Indexes of the largest set of lines whose numbers increase; 0 is no number."""
    tails: list[int] = []
    tail_index: list[int] = []
    before: list[int] = [-1] * len(numbers)
    for index, number in enumerate(numbers):
        if number < 1:
            continue
        place = bisect_left(tails, number)
        before[index] = tail_index[place - 1] if place else -1
        tails[place:] = [number] if place == len(tails) else [number, *tails[place + 1 :]]
        tail_index[place : place + 1] = [index]
    chain: list[int] = []
    index = tail_index[-1] if tail_index else -1
    while index >= 0:
        chain.append(index)
        index = before[index]
    return chain[::-1]
