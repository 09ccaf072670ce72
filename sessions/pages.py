"""Reading rows of a log file by number, without reading the rest of it.

Rows stand in the order of their numbers, so a place is found by bisection; metadata lines in
between have no number and are passed over. A file that turns out to be damaged raises `Untidy`:
the caller then reads it as a whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from sessions import lines
from sessions.lines import UNREADABLE_ERRORS
from sessions.record import Record

BLOCK_BYTES = 64 * 1024
PROBE_BYTES = 4 * 1024


class Untidy(Exception):
    """A line is not a row in our own form."""


def after(descriptor: int, size: int, seq: int, limit: int) -> list[Record]:
    """The first rows with a number above `seq`."""
    found: list[Record] = []
    start, _ = _bisect(descriptor, size, seq)
    last = 0
    for line in _forwards(descriptor, start, size):
        row = _row(line) if line else None
        if row is None:
            continue
        if row.seq <= last:
            raise Untidy
        last = row.seq
        if row.seq > seq:
            found.append(row)
            if len(found) >= limit:
                break
    return found


def before(descriptor: int, size: int, seq: int | None, limit: int) -> list[Record]:
    """The last rows with a number below `seq`; the last rows of all without it."""
    found: list[Record] = []
    end = size
    if seq is not None:
        _, high = _bisect(descriptor, size, seq - 1)
        end = _line_end(descriptor, high, size)
    following = None
    for line in _backwards(descriptor, end):
        row = _row(line)
        if row is None:
            continue
        if following is not None and row.seq >= following:
            raise Untidy
        following = row.seq
        if seq is None or row.seq < seq:
            found.append(row)
            if len(found) >= limit:
                break
    return found[::-1]


def last_metadata(descriptor: int, size: int) -> bytes | None:
    """The last complete metadata line in our own form, with our state."""
    data = os.pread(descriptor, size, 0)
    end = data.rfind(b"\n") + 1
    while end > 0:
        start = data.rfind(b"\n" + lines.METADATA_PREFIX, 0, end) + 1
        line = data[start : data.find(b"\n", start)]
        if line.startswith(lines.METADATA_PREFIX) and _is_complete(line):
            return line
        end = start
    return None


def last_line_end(descriptor: int, size: int) -> int:
    """Where the last complete line ends."""
    if not size or os.pread(descriptor, 1, size - 1) == b"\n":
        return size
    torn = next(_backwards(descriptor, size), b"")
    return size - len(torn)


def last_seq(descriptor: int, size: int) -> int:
    return next((seq for line in _backwards(descriptor, size) if (seq := lines.seq_of(line))), 0)


def _is_complete(line: bytes) -> bool:
    try:
        return lines.is_complete(lines.parse(line))
    except lines.LineError:
        return False


def _row(line: bytes) -> Record | None:
    if line.startswith(lines.METADATA_PREFIX):
        return None
    try:
        row = lines.decode(line)
    except UNREADABLE_ERRORS:
        row = _foreign_row(line)
    if not row.role or row.seq < 1:
        raise Untidy
    return row


def _foreign_row(line: bytes) -> Record:
    try:
        value = lines.parse(line)
        row = lines.to_record(value)
    except (lines.LineError, RecursionError) as error:
        raise Untidy from error
    if "_type" in value:
        raise Untidy
    return row


def _bisect(descriptor: int, size: int, seq: int) -> tuple[int, int]:
    """Narrows down where numbers pass `seq`.

    Rows that begin before the first place are numbered `seq` or lower; rows that begin after the
    second are numbered higher. In between, the reader compares.
    """
    low, high = 0, size
    while high - low > BLOCK_BYTES:
        middle = (low + high) // 2
        number, end = _probe(descriptor, middle, high, size)
        if number is None or number > seq:
            high = middle
        else:
            low = end
    return low, high


def _line_end(descriptor: int, position: int, size: int) -> int:
    while position < size:
        data = os.pread(descriptor, min(PROBE_BYTES, size - position), position)
        newline = data.find(b"\n")
        if newline >= 0:
            return position + newline + 1
        position += len(data)
    return size


def _probe(descriptor: int, start: int, end: int, size: int) -> tuple[int | None, int]:
    """The number of the first row that begins between two places, and where its line ends.

    The line may end far behind: what counts is where it begins.
    """
    position, first = start, True
    for line in _forwards(descriptor, start, size, PROBE_BYTES):
        if position > end:
            break
        position += len(line) + 1
        if not first and (number := lines.seq_of(line)):
            return number, position
        first = False
    return None, end


def _forwards(descriptor: int, start: int, end: int, block: int = BLOCK_BYTES) -> Iterator[bytes]:
    rest, position = b"", start
    while position < end:
        data = os.pread(descriptor, min(block, end - position), position)
        if not data:
            break
        position += len(data)
        *whole, rest = (rest + data).split(b"\n")
        yield from whole
        # A long line is not copied again for every block of it.
        block = block if whole else 2 * block
    if rest:
        yield rest


def _backwards(descriptor: int, end: int) -> Iterator[bytes]:
    rest, position, block = b"", end, BLOCK_BYTES
    while position > 0:
        start = max(0, position - block)
        data = os.pread(descriptor, position - start, start)
        position = start
        rest, *whole = (data + rest).split(b"\n")
        yield from (line for line in reversed(whole) if line)
        block = block if whole else 2 * block
    if rest:
        yield rest
