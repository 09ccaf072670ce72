"""Tasks with an owner: named, waited for at the end, and loud when they die."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from loguru import logger

T = TypeVar("T")


class Tasks:
    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(
        self, work: Coroutine[Any, Any, T], name: str, *, awaited: bool = False
    ) -> asyncio.Task[T]:
        """`awaited`: somebody takes its result, so an error is theirs to report."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner}-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard if awaited else self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.opt(exception=error).bind(task=task.get_name()).error("task failed")

    async def wait(self, seconds: float | None = None) -> bool:
        """True once every task has ended; False if the time was over first."""
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        while self._tasks:
            left = None if deadline is None else deadline - asyncio.get_running_loop().time()
            if left is not None and left <= 0:
                return False
            await asyncio.wait(self._tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        return True

    async def cancel(self, seconds: float = 2.0) -> bool:
        """Cancels all of them; False if some did not end in time and were left behind."""
        for task in list(self._tasks):
            task.cancel()
        return await self.wait(seconds)
