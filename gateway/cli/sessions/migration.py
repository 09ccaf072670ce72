"""Takes over a directory of session files another program left."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

from gateway.cli.sessions.library import Progress
from gateway.cli.sessions.store import changing
from sessions.directory import DataDirectory
from sessions.legacy import Report, migrate_directory


class _Interrupted(Exception):
    """Ends the work between two files."""


async def migrate(
    path: Path, source: Path, progress: Progress, *, dry_run: bool, keep: bool
) -> Report:
    """A dry run takes no lock and creates nothing."""
    if dry_run:
        directory = DataDirectory(path)
        return migrate_directory(directory, source, dry_run=True, keep=keep, progress=progress)
    async with changing(path, create=True) as store:
        return await _move(store.directory, source, progress, keep=keep)


async def _move(
    directory: DataDirectory, source: Path, progress: Progress, *, keep: bool
) -> Report:
    """Moves the files in a thread. Whoever interrupts it waits for the file in hand."""
    stop = threading.Event()

    def between_files(done: int, total: int) -> None:
        if stop.is_set():
            raise _Interrupted
        progress(done, total)

    def move() -> Report:
        return migrate_directory(directory, source, keep=keep, progress=between_files)

    work = asyncio.get_running_loop().run_in_executor(None, move)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.gather(work, return_exceptions=True)
        raise
