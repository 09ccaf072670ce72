"""How often a workspace's messages are edited: Slack counts edits for all of them together."""

from __future__ import annotations

import asyncio
import time


class Pace:
    def __init__(self, edit_seconds: float) -> None:
        self._edit_seconds = edit_seconds
        self._growing = 0
        self._paused_until = 0.0

    def enter(self) -> None:
        """One more answer grows."""
        self._growing += 1

    def leave(self) -> None:
        self._growing -= 1

    def pause(self, seconds: float) -> None:
        """Slack said no: nobody edits for so long."""
        self._paused_until = max(self._paused_until, time.monotonic() + seconds)

    async def wait(self, last: float) -> None:
        """Until an answer last edited at `last` may be edited again."""
        while True:
            due = max(last + self._edit_seconds * max(1, self._growing), self._paused_until)
            left = due - time.monotonic()
            if left <= 0:
                return
            await asyncio.sleep(left)
