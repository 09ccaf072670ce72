"""Where to cut a log that has grown too long. Pure.

A cut is legal where no turn is open across it: the rows of a turn, the messages it settles, a tool
call and its results stay together. Rows that are *held* (an unsettled message, an undelivered
reply) never leave the live file. A legal cut lies before the first of them.

If there is no legal cut, the log may grow to twice the cap; then it is cut all the same, and held
rows, notes about them, and calls whose results stay, are kept in the live file as well as archived:
the archive has every number in order, and readers take a number that is in both from the archive.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from sessions.record import NoteKind, Record

TARGET = 0.8
YIELD_ROWS = 128


class Cut(msgspec.Struct, frozen=True):
    leaving: int
    """Rows before this index are archived."""
    kept: list[int]
    """Indexes before it that stay in the live file too."""


def plan(rows: Sequence[Record], cap: int, held: Collection[int]) -> Cut | None:
    """None if the log may stay as it is for now."""
    if cap < 1 or len(rows) < cap:
        return None
    # A row stays at any cap: the next number is taken from the last one.
    wanted = len(rows) - max(1, int(cap * TARGET))
    first_held = next((i for i, row in enumerate(rows) if row.seq in held), len(rows))
    open_at = _open(rows)
    latest = min(first_held, len(rows) - 1)
    later = range(wanted, min(latest, wanted + int(0.3 * cap)) + 1)
    earlier = range(min(wanted - 1, latest), len(rows) - cap, -1)
    for index in (*later, *earlier):
        if index > 0 and not open_at[index]:
            return Cut(index, [])
    return _forced(rows, wanted, held) if len(rows) >= 2 * cap else None


def _open(rows: Sequence[Record]) -> list[int]:
    """For every index, how many groups of rows a cut before it would tear apart."""
    edges = [0] * (len(rows) + 2)
    for low, high in _groups(rows):
        edges[low + 1] += 1
        edges[high + 1] -= 1
    return list(accumulate(edges))


def _groups(rows: Sequence[Record]) -> list[tuple[int, int]]:
    index_of = {row.seq: index for index, row in enumerate(rows)}
    turns: dict[str, tuple[int, int]] = {}
    calls: dict[str, int] = {}
    groups: list[tuple[int, int]] = []
    for index, row in enumerate(rows):
        if not index % YIELD_ROWS:
            time.sleep(0)  # Runs in a thread: the event loop must not wait for all of it.
        low = index
        if row.settles:
            low = min([index_of[seq] for seq in row.settles if seq in index_of], default=index)
        if row.turn is not None:
            known = turns.get(row.turn, (low, index))
            turns[row.turn] = (min(known[0], low), index)
        elif low < index:
            groups.append((low, index))
        elif _continues(row) and index:
            groups.append((index - 1, index))
        for call in call_ids(row):
            calls[call] = index
        if row.tool_call_id is not None and row.tool_call_id in calls:
            groups.append((calls[row.tool_call_id], index))
    return [*groups, *turns.values()]


def _continues(row: Record) -> bool:
    """Rows of older logs carry no turn: what is not a user's message goes with the row before."""
    return row.role in ("assistant", "tool") and not row.channel_delivery and row.settles is None


def call_ids(row: Record) -> list[str]:
    calls: list[Any] = row.tool_calls or []
    return [str(call["id"]) for call in calls if isinstance(call, dict) and call.get("id")]


def _forced(rows: Sequence[Record], wanted: int, held: Collection[int]) -> Cut:
    closed = closed_turns(rows)
    kept = {
        index
        for index, row in enumerate(rows[:wanted])
        if row.seq in held or _concerns(row, held, closed)
    }
    for call, results in _results(rows).items():
        row = rows[call]
        waits = len(results) < len(call_ids(row)) and row.turn is not None
        open_call = waits and row.turn not in closed
        # A call whose result stays or is still to come must stay, with the results it has.
        if call < wanted and (open_call or (results and max(results) >= wanted)):
            kept.add(call)
            kept.update(place for place in results if place < wanted)
    return Cut(wanted, sorted(kept))


def _concerns(row: Record, held: Collection[int], closed: Collection[str]) -> bool:
    """True for a note about a held row or a turn that is still open."""
    fact = row.note if row.is_note and row.note is not None else {}
    kind, seq, turn = fact.get("kind"), fact.get("seq"), fact.get("turn")
    if kind in (NoteKind.EDITED, NoteKind.DELETED, NoteKind.CONTEXT):
        return isinstance(seq, int) and seq in held
    return kind in (NoteKind.ATTEMPT, NoteKind.STREAM) and str(turn) not in closed


def _results(rows: Sequence[Record]) -> dict[int, list[int]]:
    """For every row that calls tools, the rows with results. An id may be used again later."""
    latest: dict[str, int] = {}
    results: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        for call in call_ids(row):
            latest[call] = index
            results[index] = []
        if row.tool_call_id is not None and row.tool_call_id in latest:
            results[latest[row.tool_call_id]].append(index)
    return results


def superseded(row: Record, *, delivered_through: int, closed: Collection[str]) -> bool:
    """True for a note that says nothing any more."""
    if not row.is_note or row.note is None:
        return False
    kind = row.note.get("kind")
    if kind == NoteKind.DELIVERED:
        seq = row.note.get("seq")
        return isinstance(seq, int) and seq <= delivered_through
    return kind in (NoteKind.ATTEMPT, NoteKind.STREAM) and str(row.note.get("turn")) in closed


def closed_turns(rows: Sequence[Record]) -> set[str]:
    return {row.turn for row in rows if row.turn is not None and row.settles is not None}
