"""How many turns may run at once, given out in the order of asking.

A chat asks for one slot at a time, so waiting chats take turns: none starves, and one with a long
queue gets no more than the others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slots:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def resize(self, limit: int) -> None:
        self.limit = limit
        self._hand_out()

    @asynccontextmanager
    async def take(self) -> AsyncIterator[None]:
        if self.used < self.limit and not self._waiting:
            self.used += 1
        else:
            await self._wait()
        try:
            yield
        finally:
            self.used -= 1
            self._hand_out()

    async def _wait(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The slot was handed over in the step in which we were cancelled.
                self.used -= 1
                self._hand_out()
            else:
                self._waiting.remove(turn)
            raise

    def _hand_out(self) -> None:
        while self._waiting and self.used < self.limit:
            turn = self._waiting.popleft()
            if not turn.done():
                self.used += 1
                turn.set_result(None)
