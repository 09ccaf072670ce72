"""From the bytes of a log file to its rows. Pure: no file is opened or changed here.

A file in our own form is read in one pass. Anything else goes line by line:

- damage that breaks the form of a line costs that line; its bytes are handed back for quarantine;
- several objects on a line, or a fragment before a whole object, are taken apart; an object in
  which only a few characters are unreadable is kept without them, and handed back as it was;
- a line that still parses is believed if its number lies between its neighbours', it has a role,
  and it is not metadata that lost its type;
- a number that is out of order is mended where its neighbours leave room; a row that stands in
  the wrong place goes to the right one; nothing is left out but exact copies;
- a damaged closing record leaves a row in its place that still settles what it settled, because
  a question must not be answered twice when its answer is damaged;
- damaged rows at the end leave a note each: their numbers may have been seen, so they are taken.
"""

from __future__ import annotations

import operator
import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import msgspec

from sessions import lines
from sessions.lines import METADATA_PREFIX, UNREADABLE_ERRORS, LineError, is_complete, own_state
from sessions.record import MAX_SEQ, NoteKind, Outcome, Record, note

CHUNK_BYTES = 512 * 1024

_BLANK = b" \t\r\0"
_BOM = b"\xef\xbb\xbf"
_SETTLES = re.compile(rb'"settles":(\{[^{}]{0,4096}\})')
_OUTCOME = re.compile(rb'"outcome":"([a-z]{1,20})"')
_SEQ = re.compile(rb'"seq":(\d{1,15})[,}]')
# In the text of a message the quotation marks would be escaped.
_NO_MESSAGE = re.compile(
    rb'"_type": ?"(?:metadata|provider_state)"|"last_(?:consolidated|archived)": ?-?\d'
)
MIN_MESSAGE_BYTES = 20
"""Less than that between two objects was no message."""


_role = operator.attrgetter("role")


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


def raw_rows(data: bytes, found: Loaded) -> list[bytes]:
    """The message lines of a loaded file, one for each record, as they stand or as mended."""
    if found.rows is not None:
        return found.rows
    return [
        line + b"\n"
        for line in data[: found.cut].split(b"\n")
        if line and not line.startswith(METADATA_PREFIX)
    ]


def _load_own(data: bytes) -> Loaded | None:
    """Reads a file that is exactly as we write it; None for any other."""
    if not data.startswith(METADATA_PREFIX) or not data.endswith(b"\n"):
        return None
    records: list[Record] = []
    metadata: list[bytes] = []
    at = 0
    view = memoryview(data)
    later = _metadata_starts(data)
    try:
        while at < len(data):
            if data.startswith(METADATA_PREFIX, at):
                end = data.index(b"\n", at) + 1
                metadata.append(data[at:end])
                msgspec.json.decode(metadata[-1])
            else:
                while later and later[-1] < at:
                    later.pop()
                end = _chunk_end(data, at, later[-1] if later else len(data))
                records += lines.decode_all(view[at:end])  # type: ignore[arg-type]  # any buffer
                if end < len(data) and end - at >= CHUNK_BYTES:
                    time.sleep(0)  # Lets the event loop's thread in between two large pieces.
            at = end
        copies = [lines.parse(line) for line in metadata[-2:]]
    except (*UNREADABLE_ERRORS, LineError):
        return None
    if not _is_own(records, copies[-1]) or _count_lines(data) != len(records) + len(metadata):
        return None
    numbers = [row.seq for row in records]
    if numbers and not (numbers[0] > 0 and numbers[-1] < MAX_SEQ and _is_increasing(numbers)):
        return None
    return Loaded(
        records,
        copies[-1],
        offset_seq=_offset(copies, numbers, range(len(numbers)), len(numbers)),
        keys=_keys(copies),
        metadata_bytes=sum(map(len, metadata)),
    )


def _is_own(records: list[Record], metadata: dict[str, Any]) -> bool:
    extras = [row.extra for row in records]
    return is_complete(metadata) and all(map(_role, records)) and extras.count(None) == len(extras)


def _is_increasing(numbers: list[int]) -> bool:
    return all(map(operator.lt, numbers, numbers[1:]))


def _metadata_starts(data: bytes) -> list[int]:
    """Where metadata lines start after the first line, the last one first.

    Searched from the back, which is several times faster.
    """
    starts: list[int] = []
    separator, place = b"\n" + METADATA_PREFIX, len(data)
    while (place := data.rfind(separator, 0, place)) >= 0:
        starts.append(place + 1)
    return starts


def _count_lines(data: bytes) -> int:
    # Several times faster than data.count.
    return len(data) - len(data.replace(b"\n", b""))


def _chunk_end(data: bytes, at: int, end: int) -> int:
    if end - at <= 2 * CHUNK_BYTES:
        return end
    newline = data.find(b"\n", at + CHUNK_BYTES, end)
    return end if newline < 0 else newline + 1


class _Row(msgspec.Struct):
    record: Record
    raw: bytes
    ordinal: int
    """How many messages a peer counts before it."""


class _Slow:
    def __init__(self, data: bytes, foreign: bool) -> None:
        self.data, self.foreign = data, foreign
        self.found: list[_Row] = []
        self.stand_ins: list[_Row] = []
        self.metadata: list[dict[str, Any]] = []
        self.doubtful: list[dict[str, Any]] = []
        """Metadata in which characters are unreadable: better than none."""
        self.damage: list[Damage] = []
        self.lost_last: list[bytes] = []
        """Damaged messages after the last row."""
        self.broken = False
        """A damaged line may go on in the next one."""
        self.changed = False
        self.recovered = 0
        self.ordinal = 0
        self.metadata_bytes = 0
        self.cut: int | None = None
        self.missing_newline = False

    def load(self) -> Loaded:
        self._take_lines()
        self._keep_last_numbers()
        self._drop_stand_ins()
        if self.found or self.metadata:
            self.changed |= not self.data.startswith(METADATA_PREFIX)
        metadata = self.metadata or self.doubtful[-1:]
        chosen = next(filter(is_complete, reversed(metadata)), metadata[-1] if metadata else None)
        rows = self._number(_archived(chosen))
        loaded = Loaded(
            [row.record for row in rows],
            chosen,
            damage=self.damage,
            cut=None if self.changed else self.cut,
            missing_newline=self.missing_newline and not self.changed,
            recovered=self.recovered,
            keys=_keys(metadata),
            metadata_bytes=self.metadata_bytes,
        )
        if self.changed:
            loaded.rows = [row.raw for row in rows]
        loaded.offset_seq = _offset(
            metadata[-2:],
            [row.record.seq for row in rows],
            [row.ordinal for row in rows],
            self.ordinal,
        )
        return loaded

    def _take_lines(self) -> None:
        offset = len(_BOM) if self.data.startswith(_BOM) else 0
        for line in self.data[offset:].split(b"\n"):
            last = offset + len(line) == len(self.data)
            if line.strip(_BLANK) or (line and last):
                self._take(line, offset, last)
            elif line:
                self.changed = True
            offset += len(line) + 1

    def _take(self, line: bytes, offset: int, last: bool) -> None:
        try:
            record = lines.decode(line)
        except UNREADABLE_ERRORS:
            record = None
        if record is None or not record.role:
            self._take_apart(line, offset, last)
            return
        self.missing_newline |= last
        self._add(record, line + b"\n")

    def _take_apart(self, line: bytes, offset: int, last: bool) -> None:
        bare = line.strip(_BLANK)
        if not bare:
            self._lose(line, offset, "torn write", torn=True)
            return
        lead = line.index(bare)
        pieces = lines.pieces(bare)
        whole = len(pieces) == 1 and not pieces[0].mended
        for piece in pieces:
            source, at = bare[piece.start : piece.end], lead + piece.start
            if piece.value is not None:
                self._take_piece(piece.value, source, offset + at, mended=piece.mended, whole=whole)
            elif last and piece is pieces[-1]:
                at = at if piece.start else 0
                self._lose(line[at:], offset + at, "torn write", torn=True)
            else:
                self._lose(source, offset + at, "not a JSON object")
        objects = sum(piece.value is not None for piece in pieces)
        self.missing_newline |= last and bool(objects)
        # What power loss leaves behind a line is zeros, which no other reader passes over.
        self.changed |= bool(objects) and (bare != line or not whole)
        self.recovered += 0 if whole else objects

    def _take_piece(
        self, value: dict[str, Any], source: bytes, offset: int, *, mended: bool, whole: bool
    ) -> None:
        if _is_metadata(value):
            (self.doubtful if mended else self.metadata).append(value)
            self.metadata_bytes += len(source)
            self.changed |= not whole or not source.startswith(METADATA_PREFIX)
            if mended:
                self.damage.append(Damage(offset, source, "unreadable characters"))
            return
        if not isinstance(value.get("role"), str) and not self.foreign:
            self._lose(source, offset, "no role")
        elif "_type" in value:
            self._lose(source, offset, f"unknown line type {str(value['_type'])[:40]!r}")
        else:
            self._take_row(value, source, offset, mended=mended)

    def _take_row(self, value: dict[str, Any], source: bytes, offset: int, *, mended: bool) -> None:
        record = _record(value)
        if record is not None and record.role == value.get("role") and not mended:
            self._add(record, source + b"\n")
            return
        self.changed = True
        raw = _encoded(record, source) if record is not None else None
        if record is None or raw is None:
            self._lose(source, offset, "nested too deeply")
            return
        if mended:
            self.damage.append(Damage(offset, source, "unreadable characters"))
        self._add(record, raw)

    def _add(self, record: Record, raw: bytes) -> None:
        self.found.append(_Row(record, raw, self.ordinal))
        self.ordinal += 1
        self.lost_last.clear()
        self.broken = False

    def _lose(self, source: bytes, offset: int, reason: str, *, torn: bool = False) -> None:
        self.damage.append(Damage(offset, source, reason))
        if torn:
            # A torn row was never acknowledged: what it settles is still to be answered.
            self.cut = offset
            return
        self.changed = True
        begins, goes_on = source.startswith(b"{"), self.broken
        self.broken = (begins or goes_on) and not source.endswith(b"}")
        if _NO_MESSAGE.search(source) or (not begins and len(source) < MIN_MESSAGE_BYTES):
            return
        if begins or not goes_on:
            self.lost_last.append(source)
            self.ordinal += 1
        record = _stand_in(source)
        if record is not None:
            record = msgspec.structs.replace(record, timestamp=self._last_time())
            self.found.append(_Row(record, lines.encode([record]), self.ordinal - 1))
            self.stand_ins.append(self.found[-1])
            self.lost_last.clear()

    def _keep_last_numbers(self) -> None:
        """A reader may have seen the numbers of damaged rows: no other row may get them."""
        for source in self.lost_last:
            seq = _SEQ.search(source)
            gone = msgspec.structs.replace(
                note(NoteKind.DAMAGED), seq=int(seq[1]) if seq else 0, timestamp=self._last_time()
            )
            self.found.append(_Row(gone, lines.encode([gone]), self.ordinal - 1))

    def _last_time(self) -> str:
        return self.found[-1].record.timestamp if self.found else ""

    def _drop_stand_ins(self) -> None:
        """A closing record that failed and was written again settles for itself."""
        if not self.stand_ins:
            return
        places = {id(row) for row in self.stand_ins}
        real = [row for row in self.found if id(row) not in places]
        settled = {seq for row in real for seq in row.record.settles or ()}
        idle = {id(row) for row in self.stand_ins if settled.issuperset(row.record.settles or ())}
        self.found = [row for row in self.found if id(row) not in idle]

    def _number(self, archived: int) -> list[_Row]:
        """Gives every row a place in a strictly increasing sequence."""
        believed = _longest_increasing([row.record.seq for row in self.found])
        if len(believed) == len(self.found):
            return self.found
        self.changed = True
        order = _Order([self.found[index] for index in believed])
        order.previous = _floor(order.bounds, believed, archived)
        marks = set(believed)
        others = [row for index, row in enumerate(self.found) if index not in marks]
        misplaced = {id(row) for row in others if order.misses(row, len(others))}
        for index, row in enumerate(self.found):
            if index in marks:
                order.believe(row)
            elif id(row) in misplaced and len(misplaced) > 1:
                # One wrong number is a damaged number. Several are rows that changed places.
                order.moved.append(row)
            elif not order.is_copy(row):
                self._fit_in(order, row)
        return self._put_back(order)

    def _fit_in(self, order: _Order, row: _Row) -> None:
        number = order.room_before(row)
        # Of two rows with one number, the first is the wrong one if just one is missing before it.
        if number is not None and (number == row.record.seq - 1 or not order.has_room):
            order.placed[-1] = self._renumber(order.placed[-1], number)
            order.placed.append(row)
        elif order.has_room:
            order.previous += 1
            order.placed.append(self._renumber(row, order.previous))
        else:
            order.moved.append(row)

    def _put_back(self, order: _Order) -> list[_Row]:
        """Rows without room where they stand: to the place of their number, or to the end."""
        taken = {row.record.seq for row in order.placed}
        homeless: list[_Row] = []
        for row in order.moved:
            if 0 < row.record.seq < MAX_SEQ and row.record.seq not in taken:
                taken.add(row.record.seq)
                order.placed.append(row)
            else:
                homeless.append(row)
        placed = sorted(order.placed, key=_seq)
        for row in homeless:
            last = placed[-1].record.seq if placed else 0
            # A peer's count has nothing to say about a row at another place.
            placed.append(msgspec.structs.replace(self._renumber(row, last + 1), ordinal=-1))
        return placed

    def _renumber(self, row: _Row, seq: int) -> _Row:
        record = msgspec.structs.replace(row.record, seq=seq)
        if row.record.seq == 0 and _is_open(record) and not _is_ours(row):
            # A peer wrote this row and answered it or not; it is never ours to answer.
            record = msgspec.structs.replace(record, outcome=Outcome.ANSWERED.value)
        self.recovered += not self.foreign
        return _Row(record, _encoded(record, row.raw) or row.raw, row.ordinal)


class _Order:
    """Rows by their numbers: those that are believed, and where others fit in between."""

    def __init__(self, believed: list[_Row]) -> None:
        self.bounds = [row.record.seq for row in believed]
        self.by_seq = {row.record.seq: row for row in believed}
        self.position = 0
        self.previous = 0
        self.placed: list[_Row] = []
        self.moved: list[_Row] = []

    def believe(self, row: _Row) -> None:
        self.previous = row.record.seq
        self.position += 1
        self.placed.append(row)

    def is_copy(self, row: _Row) -> bool:
        twin = self.by_seq.get(row.record.seq)
        return twin is not None and (twin.raw == row.raw or twin.record == row.record)

    def misses(self, row: _Row, others: int) -> bool:
        """True if the number of this row is missing among those that are believed."""
        seq, last = row.record.seq, self.bounds[-1] if self.bounds else 0
        return 0 < seq <= last + others and seq not in self.by_seq

    @property
    def has_room(self) -> bool:
        """True if the next number is free."""
        following = self.bounds[self.position] if self.position < len(self.bounds) else MAX_SEQ
        return self.previous + 1 < following

    def room_before(self, row: _Row) -> int | None:
        """A number for the row placed last, if it has the number of this one."""
        if not self.placed or self.placed[-1].record.seq != row.record.seq:
            return None
        before = self.placed[-2].record.seq if len(self.placed) > 1 else row.record.seq - 2
        return before + 1 if 0 < before + 1 < row.record.seq else None


def _is_metadata(value: dict[str, Any]) -> bool:
    if value.get("_type") == "metadata":
        return True
    return "role" not in value and isinstance(value.get("metadata"), dict)


def _archived(metadata: dict[str, Any] | None) -> int:
    archived = own_state(metadata or {}).get("archived")
    seq = archived.get("seq") if isinstance(archived, dict) else None
    return seq if type(seq) is int else 0


def _keys(metadata: list[dict[str, Any]]) -> list[str]:
    return [key for value in metadata if isinstance(key := value.get("key"), str)]


def _seq(row: _Row) -> int:
    return row.record.seq


def _is_open(record: Record) -> bool:
    return record.role == "user" and record.outcome is None


def _is_ours(row: _Row) -> bool:
    """True for a line in our form that lost its number; peers write a blank after a colon."""
    return row.raw.startswith(b'{"role":"') and row.record.timestamp.endswith("Z")


def _record(value: dict[str, Any]) -> Record | None:
    try:
        record = lines.to_record(value)
    except RecursionError:
        return None
    if not record.role:
        record = msgspec.structs.replace(record, role="system", command=True)
    return record


def _encoded(record: Record, source: bytes) -> bytes | None:
    try:
        if b"NaN" in source or b"Infinity" in source:
            return lines.encode_foreign(record)
        return lines.encode([record])
    except RecursionError:
        return None


def _stand_in(source: bytes) -> Record | None:
    settles = _SETTLES.search(source)
    if settles is None:
        return None
    try:
        value = msgspec.json.decode(settles[1], type=dict[int, str])
    except UNREADABLE_ERRORS:
        return None
    outcome, seq = _OUTCOME.search(source), _SEQ.search(source)
    return Record(
        "assistant",
        "",
        seq=int(seq[1]) if seq else 0,
        outcome=outcome[1].decode() if outcome else Outcome.ANSWERED.value,
        settles=value,
        command=True,
        note={"kind": NoteKind.DAMAGED.value},
    )


def _offset(
    copies: Sequence[dict[str, Any]], numbers: Sequence[int], ordinals: Sequence[int], total: int
) -> int:
    """The last row behind the model, by the last metadata line and the one before it.

    A moved offset is written twice, and every later line repeats it: a line that contradicts
    itself or the rows gives way to its neighbour. If both do, a peer has moved the count, and
    the count wins; a count that cannot be true does not.
    """
    last = numbers[-1] if numbers else MAX_SEQ
    marks = [_mark(value) for value in reversed(copies)]
    for seq, index, count in marks:
        if seq is not None and index == count == bisect_right(numbers, seq):
            return min(seq, last)
    if not marks:
        return 0
    seq, index, count = marks[0]
    if count is None or not 0 <= count <= total or (count == index and seq is not None):
        return min(seq or 0, last)
    if count == total:
        return last if numbers else 0
    behind = (seq for seq, ordinal in zip(numbers, ordinals, strict=True) if 0 <= ordinal < count)
    return max(behind, default=0)


def _mark(metadata: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    mark = own_state(metadata).get("consolidated")
    mark = mark if isinstance(mark, dict) else {}
    counts = [metadata.get("last_archived"), metadata.get("last_consolidated")]
    count = next((count for count in counts if type(count) is int), None)
    seq, index = mark.get("seq"), mark.get("index")
    return (
        max(0, seq) if type(seq) is int else None,
        index if type(index) is int else None,
        count,
    )


def _floor(bounds: list[int], believed: list[int], archived: int) -> int:
    """The number after which the first row may be numbered.

    Rows before the first that is believed come right before it, but never among the archived.
    """
    if not bounds:
        return max(0, archived)
    return max(bounds[0] - 1 - believed[0], archived if archived < bounds[0] else 0, 0)


def _longest_increasing(numbers: Sequence[int]) -> list[int]:
    """Indexes of the largest set of rows whose numbers increase; of several, the densest.

    For every length the ends of the sequences that long are kept, in order of appearance; their
    numbers never increase.
    """
    lowest: list[int] = []
    ends: list[list[int]] = []
    for index, number in enumerate(numbers):
        if not 0 < number < MAX_SEQ:
            continue
        length = bisect_left(lowest, number)
        if length == len(lowest):
            lowest.append(number)
            ends.append([index])
        else:
            lowest[length] = number
            ends[length].append(index)
    chain: list[int] = []
    for level in reversed(ends):
        below = numbers[chain[-1]] if chain else numbers[level[-1]] + 1
        chain.append(level[bisect_left(level, 1, key=lambda i: int(numbers[i] < below))])
    return chain[::-1]
