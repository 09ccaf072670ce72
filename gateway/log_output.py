"""Standard error, written to without ever waiting for whoever reads it.

Logs usually go into a pipe. When its reader stalls, a plain write would stop the whole gateway;
here lines wait in a bounded buffer, and when that is full the oldest are dropped and counted.
"""

from __future__ import annotations

import os
import select
from collections import deque

# What a pipe that reports room takes without blocking.
CHUNK_BYTES = 4_096
MOST_WAITING_BYTES = 1 << 20


class Output:
    """Not for several threads at once: the logger calls it under its own lock."""

    def __init__(self, descriptor: int) -> None:
        self.dropped = 0
        self._descriptor = descriptor
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def write(self, line: bytes) -> None:
        self._waiting.append(line)
        self._bytes += len(line)
        self.flush()
        while self._bytes > MOST_WAITING_BYTES and len(self._waiting) > 1:
            # The first may be half out already: it stays, so that lines stay whole.
            first = self._waiting.popleft()
            self._bytes -= len(self._waiting.popleft())
            self._waiting.appendleft(first)
            self.dropped += 1

    def flush(self) -> None:
        try:
            while self._waiting and self._has_room():
                self._write_some()
        except OSError:
            # Nobody reads any more; there is nowhere left to say so.
            self._waiting.clear()
            self._bytes = 0

    def _has_room(self) -> bool:
        return any(found & select.POLLOUT for _, found in self._poll.poll(0))

    def _write_some(self) -> None:
        line = self._waiting.popleft()
        written = os.write(self._descriptor, line[:CHUNK_BYTES])
        self._bytes -= written
        if written < len(line):
            self._waiting.appendleft(line[written:])
