"""Reading a log line by line when it is not exactly as we write it. Pure.

- Damage that breaks the form of a line costs that line; its bytes are handed back for quarantine.
- Several objects on a line, or a fragment before a whole object, are taken apart; an object in
  which only a few characters are unreadable is kept without them, and handed back as it was.
- A line that still parses is believed if its number lies between its neighbours', it has a role,
  and it is not metadata that lost its type.
- A damaged closing record leaves a row in its place that still settles what it settled, because
  a question must not be answered twice when its answer is damaged.
- Damaged rows at the end leave a note each: their numbers may have been seen, so they are taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from sessions import lines
from sessions.lines import METADATA_PREFIX, UNREADABLE_ERRORS, is_complete
from sessions.numbering import Numbering, Row, encoded
from sessions.record import NoteKind, Outcome, Record, note

_BLANK = b" \t\r\0"
_BOM = b"\xef\xbb\xbf"
_SETTLES = re.compile(rb'"settles":(\{[^{}]{0,4096}\})')
_OUTCOME = re.compile(rb'"outcome":"([a-z]{1,20})"')
_TURN = re.compile(rb'"turn":"([!#-\[\]-~]{1,200})"')
_SEQ = re.compile(rb'"seq":(\d{1,15})[,}]')
# In the text of a message the quotation marks would be escaped.
_NO_MESSAGE = re.compile(
    rb'"_type": ?"(?:metadata|provider_state)"|"last_(?:consolidated|archived)": ?-?\d'
)
MIN_MESSAGE_BYTES = 20
"""Less than that between two objects was no message."""


class Damage(msgspec.Struct, frozen=True):
    offset: int
    data: bytes
    reason: str


class Salvage:
    """What can be read of a file, and what cannot."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.rows: list[Row] = []
        """Every row that was found, numbered, in order."""
        self.found: list[Row] = []
        self.stand_ins: list[Row] = []
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

    def read(self, archived: Callable[[dict[str, Any] | None], int]) -> None:
        """Reads everything; `archived` tells from the metadata how far the archive reaches."""
        self._take_lines()
        self._keep_last_numbers()
        self._drop_stand_ins()
        if self.found or self.metadata:
            self.changed |= not self.data.startswith(METADATA_PREFIX)
        self.metadata = self.metadata or self.doubtful[-1:]
        numbering = Numbering(self.found)
        self.rows = numbering.place(archived(self.chosen))
        self.changed |= numbering.changed
        self.recovered += numbering.recovered

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The metadata that counts: the last that is complete."""
        last = self.metadata[-1] if self.metadata else None
        return next(filter(is_complete, reversed(self.metadata)), last)

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
        if not isinstance(value.get("role"), str):
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
        raw = encoded(record, source) if record is not None else None
        if record is None or raw is None:
            self._lose(source, offset, "nested too deeply")
            return
        if mended:
            self.damage.append(Damage(offset, source, "unreadable characters"))
        self._add(record, raw)

    def _add(self, record: Record, raw: bytes) -> None:
        self.found.append(Row(record, raw, self.ordinal))
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
            self.found.append(Row(record, lines.encode([record]), self.ordinal - 1))
            self.stand_ins.append(self.found[-1])
            self.lost_last.clear()

    def _keep_last_numbers(self) -> None:
        """A reader may have seen the numbers of damaged rows: no other row may get them."""
        for source in self.lost_last:
            seq = _SEQ.search(source)
            gone = msgspec.structs.replace(
                note(NoteKind.DAMAGED), seq=int(seq[1]) if seq else 0, timestamp=self._last_time()
            )
            self.found.append(Row(gone, lines.encode([gone]), self.ordinal - 1))

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


def _record(value: dict[str, Any]) -> Record | None:
    try:
        record = lines.to_record(value)
    except RecursionError:
        return None
    if not record.role:
        record = msgspec.structs.replace(record, role="system", command=True)
    return record


def _stand_in(source: bytes) -> Record | None:
    settles = _SETTLES.search(source)
    if settles is None:
        return None
    try:
        value = msgspec.json.decode(settles[1], type=dict[int, str])
    except UNREADABLE_ERRORS:
        return None
    outcome, seq, turn = _OUTCOME.search(source), _SEQ.search(source), _TURN.search(source)
    return Record(
        "assistant",
        "",
        seq=int(seq[1]) if seq else 0,
        turn=turn[1].decode() if turn else None,
        outcome=outcome[1].decode() if outcome else Outcome.ANSWERED.value,
        settles=value,
        command=True,
        note={"kind": NoteKind.DAMAGED.value},
    )


def _is_metadata(value: dict[str, Any]) -> bool:
    if value.get("_type") == "metadata":
        return True
    return "role" not in value and isinstance(value.get("metadata"), dict)
