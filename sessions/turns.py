"""The rows of a log as the turns of a conversation. Pure.

Messages are logged while another turn runs, so the order of rows is not the order of the
conversation. A turn is the user records its closing record settles, then its own rows. Turns
stand in the order of their first own row, which is the order in which they ran: a turn keeps the
place it had when it was answered, and what the model saw before stays a prefix of what it sees
next. The messages being answered, and the rows their turn has logged so far, come last.

A proactive delivery is a turn of its own, wherever it lies. Rows of older logs carry neither
turn nor settlement: there a user row opens a turn, the rows after it belong to it, and a result
goes where its call is, even if a message was queued between the two.

**Replacing.** A user record R with `replaces: N` takes the conversation back to before row N, from
R's turn on; the log keeps everything. Out of the turns before R's, newest first, goes

- every user record numbered N or higher and lower than R, with the rows of the turn that answered
  it, and every delivery and turn without user records begun since N;
- if N is a row of an answer (regenerate with an empty R): that answer and all turns after it.

A turn that ran while N still waited is older than N and stays. User records of a turn that lost
its answer but are not replaced themselves (they had been merged with N, or N is their answer) move
in front of R. If R replaces a row that itself replaced one, R takes the place of both, also when
the first replacement was withdrawn. R has no effect while it waits for its turn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from sys import maxsize
from typing import Any

import msgspec

from sessions.record import NoteKind, Outcome, Record

LEFT_OUT = frozenset({Outcome.COMMAND, Outcome.WITHDRAWN, Outcome.REJECTED})

Key = str | int
"""A turn's id, or the number of the row that stands for a turn without one."""


@dataclass(slots=True)
class Turn:
    seq: int = 0
    """The row it takes its place from; 0 until that row is met."""
    users: list[Record] = field(default_factory=list)
    rows: list[Record] = field(default_factory=list)
    replaces: list[tuple[int, int]] = field(default_factory=list)
    """First row taken back, and the row that takes it back."""
    delivery: bool = False


@dataclass(slots=True)
class _Facts:
    """What rows say about other rows, wherever they stand."""

    settled: dict[int, tuple[Key, str]] = field(default_factory=dict)
    contents: dict[int, str | list[Any]] = field(default_factory=dict)
    deleted: set[int] = field(default_factory=set)
    around: dict[int, tuple[str, str]] = field(default_factory=dict)
    origins: dict[int, int] = field(default_factory=dict)

    def learn(self, row: Record) -> None:
        for seq, outcome in (row.settles or {}).items():
            self.settled.setdefault(seq, (_key(row) or row.seq, outcome))
        if row.is_note and row.note is not None:
            self._learn_note(row.note)
        if row.role == "user" and row.replaces is not None and 0 < row.replaces < row.seq:
            self.origins[row.seq] = self.origins.get(row.replaces, row.replaces)

    def _learn_note(self, note: dict[str, Any]) -> None:
        kind, seq, content = note.get("kind"), note.get("seq"), note.get("content")
        if not isinstance(seq, int):
            return
        if kind == NoteKind.DELETED:
            self.deleted.add(seq)
        elif kind == NoteKind.EDITED and isinstance(content, str | list):
            self.contents[seq] = content
        elif kind == NoteKind.CONTEXT:
            self.around[seq] = str(note.get("before") or ""), str(note.get("after") or "")

    def as_changed(self, row: Record) -> Record:
        """A user record as its sender left it. A deleted one stays, empty: it holds a place."""
        if row.seq in self.deleted:
            return msgspec.structs.replace(row, content="", media=None)
        content = self.contents.get(row.seq, row.content)
        if row.seq in self.around:
            before, after = self.around[row.seq]
            words = msgspec.structs.replace(row, content=content).text
            content = "\n\n".join(part for part in (before, words, after) if part)
        return row if content is row.content else msgspec.structs.replace(row, content=content)


def group(
    rows: Sequence[Record],
    *,
    answering: Collection[int],
    settled_through: int,
    turn: str | None = None,
) -> list[Turn]:
    """Turns in order, the one that answers `answering` last, without what the model never sees."""
    facts = _Facts()
    for row in rows:
        facts.learn(row)
    grouping = _Grouping(facts, frozenset(answering), settled_through, turn)
    for row in rows:
        grouping.place(row)
    return grouping.finish()


class _Grouping:
    def __init__(
        self, facts: _Facts, answering: frozenset[int], settled_through: int, turn: str | None
    ) -> None:
        self.facts = facts
        self.answering = answering
        self.settled_through = settled_through
        self.order: list[Turn] = []
        self.known: defaultdict[Key, Turn] = defaultdict(Turn)
        self.current = Turn(seq=maxsize)
        if turn is not None and answering:
            self.known[turn] = self.current

        self.answers: dict[int, Turn] = {}
        """Which turn an own row belongs to, for rows that are replaced."""
        self.replaced = frozenset(facts.origins.values())

        # Rows without a turn go to the last user row before them, results to their call.
        self.untied: Turn | None = None
        self.calls: dict[str, Turn] = {}

    def place(self, row: Record) -> None:
        if row.role == "user":
            if not _hidden(row):
                self._place_user(row)
        elif row.role in ("assistant", "tool") and not _hidden(row):
            self._place_own(row)
        elif row.settles:
            # Nobody sees this row, but what it settles needs its place.
            self._begin(_key(row) or row.seq, row)

    def _place_user(self, row: Record) -> None:
        key, outcome = self.facts.settled.get(row.seq, (None, row.outcome))
        if outcome in LEFT_OUT:
            return
        if row.seq in self.answering:
            turn = self.current
        elif key is not None:
            turn = self.known[key]
        elif outcome is None and row.seq > self.settled_through:
            return
        else:
            turn = self.untied = self._begin(row.seq, row)
        turn.users.append(self.facts.as_changed(row))
        if row.seq in self.facts.origins:
            turn.replaces.append((self.facts.origins[row.seq], row.seq))

    def _place_own(self, row: Record) -> None:
        key = _key(row)
        if row.channel_delivery and not row.settles:
            turn = self._begin(row.seq, row)
            turn.delivery = True
        elif key is not None:
            turn, self.untied = self._begin(key, row), None
        else:
            turn = self._place_untied(row)
        if row.seq not in self.facts.deleted:
            turn.rows.append(row)
        if row.seq in self.replaced:
            self.answers[row.seq] = turn

    def _place_untied(self, row: Record) -> Turn:
        if row.role == "tool" and row.tool_call_id in self.calls:
            return self.calls.pop(row.tool_call_id)
        turn = self.untied = self.untied or self._begin(row.seq, row)
        self.calls.update(dict.fromkeys(call_ids(row), turn))
        return turn

    def _begin(self, key: Key, row: Record) -> Turn:
        turn = self.known[key]
        if turn.seq == 0:
            turn.seq = row.seq
            self.order.append(turn)
        return turn

    def finish(self) -> list[Turn]:
        kept: list[Turn] = []
        for turn in (*self.order, self.current):
            for first, by in turn.replaces:
                turn.users[:0] = _take_back(kept, first, by, self.answers.get(first))
            kept.append(turn)
        return kept


def _take_back(kept: list[Turn], first: int, by: int, answer: Turn | None) -> list[Record]:
    """Removes the turns since row `first`; returns their user records that are not replaced."""
    left: list[Record] = []
    while kept and _is_since(kept[-1], first, by, answer):
        users = kept.pop().users
        left[:0] = [row for row in users if not first <= row.seq < by]
    return left


def _is_since(turn: Turn, first: int, by: int, answer: Turn | None) -> bool:
    if answer is not None:
        return turn.seq >= answer.seq
    if not turn.users:
        return first <= turn.seq < by
    # They are in the order of their numbers, so most turns are told by the last one.
    return turn.users[-1].seq >= first and any(first <= row.seq < by for row in turn.users)


def _key(row: Record) -> Key | None:
    """None for a row of an older log: it belongs to the rows around it."""
    return row.turn or (None if row.settles is None and row.outcome is None else row.seq)


def _hidden(row: Record) -> bool:
    return row.command or bool(row.extra and row.extra.get("_hidden_history"))


def call_ids(row: Record) -> list[str]:
    """The calls of an assistant row that can have a result."""
    return [call["id"] for call in usable_calls(row.tool_calls or ())]


def usable_calls(calls: Iterable[Any]) -> list[dict[str, Any]]:
    """Without what no result can name: a call without an id, and the second one with the same."""
    found: dict[str, dict[str, Any]] = {}
    for call in calls:
        if isinstance(call, dict) and isinstance(call.get("id"), str) and call["id"]:
            found.setdefault(call["id"], call)
    return list(found.values())
