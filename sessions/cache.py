"""Sessions in memory: the least recently used leave first when they take too many bytes.

There is one Session object per key while anyone holds it: one that has left the cache is found
again as long as somebody refers to it. Everything a session knows is in its log, so leaving loses
nothing. Pinned sessions stay, and their bytes count.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from weakref import WeakValueDictionary

from sessions.key import SessionKey
from sessions.session import Session

SESSION_BYTES = 2_048
"""What an empty session takes."""
BYTES_PER_LOG_BYTE = 2
"""Rows in memory against their lines on disk; `benchmarks/sessions.py` measures it."""


class Cache:
    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._recent: OrderedDict[SessionKey, Session] = OrderedDict()
        self._held: WeakValueDictionary[SessionKey, Session] = WeakValueDictionary()
        self._charged: dict[SessionKey, int] = {}

    def __len__(self) -> int:
        return len(self._recent)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._recent.values()))

    def get(self, key: SessionKey) -> Session | None:
        session = self._recent.get(key)
        if session is not None:
            self._recent.move_to_end(key)
            return session
        session = self._held.get(key)
        if session is not None:
            self.put(session)
        return session

    def peek(self, key: SessionKey) -> Session | None:
        """Without making it recent."""
        return self._recent.get(key) or self._held.get(key)

    def put(self, session: Session) -> None:
        self._held[session.key] = session
        self._recent[session.key] = session
        self._recent.move_to_end(session.key)
        self.charge(session)

    def charge(self, session: Session) -> None:
        """Takes the session's size into account and makes room if there is too little."""
        if self._recent.get(session.key) is not session:
            return
        cost = SESSION_BYTES + BYTES_PER_LOG_BYTE * session.live_bytes
        self.bytes += cost - self._charged.get(session.key, 0)
        self._charged[session.key] = cost
        if self.bytes > self.max_bytes:
            self._make_room(session)

    def drop(self, key: SessionKey) -> None:
        self._recent.pop(key, None)
        self._held.pop(key, None)
        self.bytes -= self._charged.pop(key, 0)

    def _make_room(self, newest: Session) -> None:
        for key, session in list(self._recent.items()):
            if self.bytes <= self.max_bytes:
                return
            if session.pins or session.gate is not None or session is newest:
                continue
            del self._recent[key]
            self.bytes -= self._charged.pop(key, 0)
