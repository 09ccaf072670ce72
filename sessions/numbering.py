"""Gives every row a place in a strictly increasing sequence. Pure.

Most rows of a damaged file still have their own number. The largest set of them that increases is
believed; the others are mended where their neighbours leave room, put back where their number
belongs, or, if neither is possible, numbered anew at the end. Nothing is left out but exact copies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from sessions import lines
from sessions.record import MAX_SEQ, Outcome, Record


class Row(msgspec.Struct):
    record: Record
    raw: bytes
    ordinal: int
    """How many messages a peer counts before it."""


class Numbering:
    def __init__(self, rows: list[Row]) -> None:
        self.found = rows
        self.changed = False
        self.recovered = 0

    def place(self, archived: int) -> list[Row]:
        """Gives every row a place in a strictly increasing sequence."""
        believed = longest_increasing([row.record.seq for row in self.found])
        if len(believed) == len(self.found):
            return self.found
        self.changed = True
        order = Order([self.found[index] for index in believed])
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

    def _fit_in(self, order: Order, row: Row) -> None:
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

    def _put_back(self, order: Order) -> list[Row]:
        """Rows without room where they stand: to the place of their number, or to the end."""
        taken = {row.record.seq for row in order.placed}
        homeless: list[Row] = []
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

    def _renumber(self, row: Row, seq: int) -> Row:
        record = msgspec.structs.replace(row.record, seq=seq)
        if row.record.seq == 0 and _is_open(record) and not _is_ours(row):
            # A peer wrote this row and answered it or not; it is never ours to answer.
            record = msgspec.structs.replace(record, outcome=Outcome.ANSWERED.value)
        self.recovered += 1
        return Row(record, encoded(record, row.raw) or row.raw, row.ordinal)


class Order:
    """Rows by their numbers: those that are believed, and where others fit in between."""

    def __init__(self, believed: list[Row]) -> None:
        self.bounds = [row.record.seq for row in believed]
        self.by_seq = {row.record.seq: row for row in believed}
        self.position = 0
        self.previous = 0
        self.placed: list[Row] = []
        self.moved: list[Row] = []

    def believe(self, row: Row) -> None:
        self.previous = row.record.seq
        self.position += 1
        self.placed.append(row)

    def is_copy(self, row: Row) -> bool:
        twin = self.by_seq.get(row.record.seq)
        return twin is not None and (twin.raw == row.raw or twin.record == row.record)

    def misses(self, row: Row, others: int) -> bool:
        """True if the number of this row is missing among those that are believed."""
        seq, last = row.record.seq, self.bounds[-1] if self.bounds else 0
        return 0 < seq <= last + others and seq not in self.by_seq

    @property
    def has_room(self) -> bool:
        """True if the next number is free."""
        following = self.bounds[self.position] if self.position < len(self.bounds) else MAX_SEQ
        return self.previous + 1 < following

    def room_before(self, row: Row) -> int | None:
        """A number for the row placed last, if it has the number of this one."""
        if not self.placed or self.placed[-1].record.seq != row.record.seq:
            return None
        before = self.placed[-2].record.seq if len(self.placed) > 1 else row.record.seq - 2
        return before + 1 if 0 < before + 1 < row.record.seq else None


def _seq(row: Row) -> int:
    return row.record.seq


def _is_open(record: Record) -> bool:
    return record.role == "user" and record.outcome is None


def _is_ours(row: Row) -> bool:
    """True for a line in our form that lost its number; peers write a blank after a colon."""
    return row.raw.startswith(b'{"role":"') and row.record.timestamp.endswith("Z")


def encoded(record: Record, source: bytes) -> bytes | None:
    try:
        if b"NaN" in source or b"Infinity" in source:
            return lines.encode_foreign(record)
        return lines.encode([record])
    except RecursionError:
        return None


def _floor(bounds: list[int], believed: list[int], archived: int) -> int:
    """The number after which the first row may be numbered.

    Rows before the first that is believed come right before it, but never among the archived.
    """
    if not bounds:
        return max(0, archived)
    return max(bounds[0] - 1 - believed[0], archived if archived < bounds[0] else 0, 0)


def longest_increasing(numbers: Sequence[int]) -> list[int]:
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
