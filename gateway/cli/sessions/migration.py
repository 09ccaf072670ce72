"""Takes over a directory of session files another program left."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from gateway.cli.sessions.library import Progress
from sessions.key import SessionKey
from sessions.legacy import Report, migrate_directory
from sessions.store_jsonl import JsonlStore


class _Interrupted(Exception):
    """Ends the work between two files."""


async def move(store: JsonlStore, source: Path, progress: Progress, *, keep: bool) -> Report:
    """Moves the files in a thread, through a store that is open and perhaps in use.

    A chat that begins while its file is taken over keeps what it has: ours wins. Whoever
    interrupts this waits for the file in hand.
    """
    stop = threading.Event()
    moved: list[SessionKey] = []

    def between_files(done: int, total: int) -> None:
        if stop.is_set():
            raise _Interrupted
        progress(done, total)

    def work() -> Report:
        return migrate_directory(
            store.directory, source, keep=keep, progress=between_files, migrated=moved.append
        )

    working = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.gather(working, return_exceptions=True)
        raise
    finally:
        for key in moved:
            await store.refresh(key)
