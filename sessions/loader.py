"""From the bytes of a log file to its rows. Pure: no file is opened or changed here.

A file in our own form is read in one pass, several rows per microsecond. Anything else is read
line by line by `salvage`, which loses nothing that can be read.
"""

from __future__ import annotations

import operator
import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import msgspec

from sessions import lines
from sessions.lines import METADATA_PREFIX, UNREADABLE_ERRORS, LineError, is_complete, own_state
from sessions.record import MAX_SEQ, Record
from sessions.salvage import Damage, Salvage

CHUNK_BYTES = 512 * 1024

_role = operator.attrgetter("role")


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


def load(data: bytes) -> Loaded:
    """Never raises for any bytes."""
    return _load_own(data) or _load_any(data)


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


def _load_any(data: bytes) -> Loaded:
    """Reads what can be read of any bytes."""
    found = Salvage(data)
    found.read(_archived)
    return Loaded(
        [row.record for row in found.rows],
        found.chosen,
        damage=found.damage,
        rows=[row.raw for row in found.rows] if found.changed else None,
        cut=None if found.changed else found.cut,
        missing_newline=found.missing_newline and not found.changed,
        recovered=found.recovered,
        offset_seq=_offset(
            found.metadata[-2:],
            [row.record.seq for row in found.rows],
            [row.ordinal for row in found.rows],
            found.ordinal,
        ),
        keys=_keys(found.metadata),
        metadata_bytes=found.metadata_bytes,
    )


def _keys(metadata: list[dict[str, Any]]) -> list[str]:
    return [key for value in metadata if isinstance(key := value.get("key"), str)]


def _archived(metadata: dict[str, Any] | None) -> int:
    archived = own_state(metadata or {}).get("archived")
    seq = archived.get("seq") if isinstance(archived, dict) else None
    return seq if type(seq) is int else 0


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
