"""Conservation: every message received ends in exactly one outcome.

    received = outcomes + pending, always

Counted from the rows of the log as they are written. A message left over from before this process
counts as received when it is first met: when recovery lists it, or when it is settled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sessions.key import SessionKey
from sessions.record import Outcome, Record


class Ledger:
    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        """By channel."""
        self.outcomes: Counter[tuple[str, str]] = Counter()
        """By channel and outcome."""
        self.pending = 0
        self._open: dict[SessionKey, set[int]] = {}
        self._fresh: dict[SessionKey, set[int]] = {}

    def follow(self, key: SessionKey, rows: Iterable[Record]) -> None:
        """Rows that have just been written."""
        for row in rows:
            if row.role == "user" and row.outcome is None:
                self._fresh.setdefault(key, set()).add(row.seq)
                self._receive(key, row.seq)
            for seq, outcome in (row.settles or {}).items():
                self._receive(key, seq)
                self._settle(key, seq, outcome)

    def adopt(self, key: SessionKey, rows: Iterable[Record]) -> None:
        """Messages an earlier process left unanswered."""
        for row in rows:
            self._receive(key, row.seq)

    def reject(self, channel: str) -> None:
        """Never logged; the sender was told."""
        self.received[channel] += 1
        self.outcomes[channel, Outcome.REJECTED.value] += 1

    def withdraw(self, key: SessionKey) -> None:
        """The chat was deleted: what was open in it ends with it."""
        for seq in list(self._open.get(key, ())):
            self._settle(key, seq, Outcome.WITHDRAWN.value)

    def is_fresh(self, key: SessionKey, seq: int) -> bool:
        """True if the message arrived in the life of this process."""
        return seq in self._fresh.get(key, ())

    def _receive(self, key: SessionKey, seq: int) -> None:
        known = self._open.setdefault(key, set())
        if seq not in known:
            known.add(seq)
            self.received[key.channel] += 1
            self.pending += 1

    def _settle(self, key: SessionKey, seq: int, outcome: str) -> None:
        self._open[key].discard(seq)
        if not self._open[key]:
            del self._open[key]
        fresh = self._fresh.get(key)
        if fresh is not None:
            fresh.discard(seq)
            if not fresh:
                del self._fresh[key]
        self.outcomes[key.channel, outcome] += 1
        self.pending -= 1
