"""The thread that makes written bytes durable.

A log file is *dirty* from a write until a sync that started after it has returned. Modes:

- `turn`: whoever writes waits for the sync; writers that wait together share one.
- `interval`: every `seconds`, whatever is dirty then.
- `none`: nothing is synced until `flush`.

Only this thread syncs and closes the descriptors of log files: a number that was closed and given
out again elsewhere would sync the wrong file. How much a sync covers is read before the call.

An error of a sync is final. The kernel drops the failed pages and reports success next time, so a
second try would lie: `failure` is set, and the store must accept nothing more.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from loguru import logger

from sessions import disk
from sessions.store import Flushed

MANY_FILES = 32
STUCK_SECONDS = 10.0
MAX_UNSYNCED_BYTES = 64 * 1024 * 1024


class LogFile:
    """The open end of a session's log. The event loop writes, the sync thread syncs and closes."""

    __slots__ = (
        "base",
        "created",
        "descriptor",
        "dirty",
        "name",
        "path",
        "size",
        "synced",
        "torn",
        "used",
        "waits",
        "writing",
    )

    def __init__(self, path: Path, name: str, size: int = 0, *, created: bool = False) -> None:
        self.path, self.name = path, name
        self.descriptor = -1
        self.size = size
        self.synced = size
        self.base = size
        """What was there before this process wrote."""
        self.created = created
        """The directory entry is not durable yet."""
        self.dirty = False
        """Queued for a sync."""
        self.torn = False
        """A failed write left bytes that could not be taken back: begin with a newline."""
        self.used = False
        """Written to since it was last considered for closing."""
        self.writing = False
        """A thread is writing to it: it must stay open."""
        # A list, because an empty deque is larger than the rest of a short session's file.
        self.waits: list[tuple[int, Callable[[OSError | None], None]]] = []


class Syncer:
    def __init__(
        self,
        root: Path,
        mode: str,
        seconds: float,
        *,
        on_failure: Callable[[LogFile, OSError], None],
    ) -> None:
        self.mode = mode
        self.failure: OSError | None = None
        self.unsynced_bytes = 0
        self.syncs = 0
        self.sync_seconds = 0.0
        """Time spent in syncs so far."""
        self._root = root
        self._root_descriptor = -1
        self._tick_seconds = seconds if mode == "interval" and seconds > 0 else None
        """The thread looks for itself this often; without it, writers wake the thread."""
        self._on_failure = on_failure
        self._failed: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self._wake = threading.Condition()
        self._dirty: list[LogFile] = []
        self._closing: list[int] = []
        self._flushes: list[asyncio.Future[Flushed]] = []
        self._since = 0.0
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="parley-sync", daemon=True)

    def start(self) -> None:
        # Opened before anything is written: the kernel reports to it every error from now on.
        self._root_descriptor = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._thread.start()

    @property
    def refusal(self) -> str | None:
        """Why nothing more should be written now; None if all is well."""
        if self.failure is not None:
            return f"a sync failed ({self.failure.strerror})"
        if self.mode == "none":
            return None
        if self.unsynced_bytes > MAX_UNSYNCED_BYTES:
            return f"{self.unsynced_bytes >> 20} MiB wait for the disk"
        if self._since and time.monotonic() - self._since > STUCK_SECONDS:
            return f"a sync has not returned for {STUCK_SECONDS:.0f} seconds"
        return None

    # -- called on the event loop -------------------------------------------------------------

    def wrote(self, file: LogFile, size: int) -> None:
        # The size first: the thread clears the mark before it reads the size.
        file.size += size
        self.unsynced_bytes += size
        if not file.dirty:
            file.dirty = True
            self._queue(file)

    def touch(self, file: LogFile) -> None:
        """The file may hold bytes of a predecessor that are not durable."""
        file.synced = 0
        if not file.dirty:
            file.dirty = True
            self._queue(file)

    def _queue(self, file: LogFile) -> None:
        with self._wake:
            self._dirty.append(file)
            if len(self._dirty) == 1 and self._tick_seconds is None and self.mode != "none":
                self._wake.notify()

    def durable(self, file: LogFile) -> asyncio.Future[None]:
        """Done when everything written to the file so far is durable; fails if a sync failed."""
        future: asyncio.Future[None] = self._loop.create_future()

        def done(failure: OSError | None) -> None:
            if future.done():
                return
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(None)

        self._when(file, done)
        return future

    def when_durable(self, file: LogFile, then: Callable[[], None]) -> None:
        """Calls back in the order of writing; never if a sync failed."""
        self._when(file, lambda failure: then() if failure is None else None)

    def _when(self, file: LogFile, then: Callable[[OSError | None], None]) -> None:
        if self.failure is not None or (file.synced >= file.size and not file.waits):
            then(self.failure)
        else:
            file.waits.append((file.size, then))

    def close_later(self, descriptor: int) -> None:
        with self._wake:
            self._closing.append(descriptor)
            self._wake.notify()

    def flush(self) -> asyncio.Future[Flushed]:
        """Syncs every dirty file now; also in mode `none`."""
        future: asyncio.Future[Flushed] = self._loop.create_future()
        with self._wake:
            self._flushes.append(future)
            self._wake.notify()
        return future

    async def stop(self) -> None:
        with self._wake:
            self._stop = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)
        if self._root_descriptor >= 0:
            os.close(self._root_descriptor)

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                # Waking a thread costs a writer more than its write, so an interval needs none.
                self._wake.wait_for(self._has_work, self._tick_seconds)
                flushes, self._flushes = self._flushes, []
                closing, self._closing = self._closing, []
                stop = self._stop
                files: list[LogFile] = []
                if flushes or stop or self.mode != "none":
                    files, self._dirty = self._dirty, []
            if not (files or flushes or closing or stop):
                continue
            failed = self._sync(files)
            self._close(closing)
            self._loop.call_soon_threadsafe(self._done, files, failed, flushes)
            if stop:
                return

    @staticmethod
    def _close(descriptors: Sequence[int]) -> None:
        for descriptor in descriptors:
            try:
                disk.close(descriptor)
            except OSError as error:
                # Nothing depends on it: what was written is synced by another descriptor.
                logger.bind(error=str(error)).warning("session file not closed")

    def _has_work(self) -> bool:
        if self._stop or self._flushes or self._closing:
            return True
        return bool(self._dirty) and self._tick_seconds is None and self.mode != "none"

    def _sync(self, files: Sequence[LogFile]) -> list[tuple[LogFile, OSError]]:
        if not files:
            return []
        self._since = started = time.monotonic()
        try:
            return self._sync_batch(files)
        except Exception as error:  # noqa: BLE001 - a thread that dies would leave writers waiting
            logger.opt(exception=error).error("session sync failed")
            failed = OSError(errno.EIO, str(error))
            return [(file, failed) for file in files]
        finally:
            self._since = 0.0
            self.sync_seconds += time.monotonic() - started
            self.syncs += 1

    def _sync_batch(self, files: Sequence[LogFile]) -> list[tuple[LogFile, OSError]]:
        sizes = []
        for file in files:
            # Before the size is read: a write from now on queues the file again.
            file.dirty = False
            sizes.append(file.size)
        failed: list[tuple[LogFile, OSError]] = []
        if len(files) >= MANY_FILES and disk.can_sync_filesystem:
            try:
                disk.sync_filesystem(self._root_descriptor)
            except OSError as error:
                return [(file, error) for file in files]
        else:
            failed = self._sync_each(files)
        bad = {id(file) for file, _ in failed}
        for file, size in zip(files, sizes, strict=True):
            if id(file) not in bad:
                file.created = False
                file.synced = max(file.synced, size)
        return failed

    @staticmethod
    def _sync_each(files: Sequence[LogFile]) -> list[tuple[LogFile, OSError]]:
        failed: list[tuple[LogFile, OSError]] = []
        directories: dict[Path, list[LogFile]] = {}
        for file in files:
            try:
                _sync_file(file)
            except OSError as error:
                failed.append((file, error))
            if file.created:
                directories.setdefault(file.path.parent, []).append(file)
        for directory, created in directories.items():
            try:
                disk.sync_directory(directory)
                disk.sync_directory(directory.parent)
            except OSError as error:
                failed.extend((file, error) for file in created)
        return failed

    # -- back on the event loop ---------------------------------------------------------------

    def _done(
        self,
        files: Sequence[LogFile],
        failed: Sequence[tuple[LogFile, OSError]],
        flushes: Sequence[asyncio.Future[Flushed]],
    ) -> None:
        for file, error in failed:
            self.fail(file, error)
        self.unsynced_bytes = sum(
            max(0, file.size - max(file.synced, file.base)) for file in self._dirty
        )
        for file in files:
            self._release(file)
        bad = {id(file) for file, _ in failed}
        for future in flushes:
            if not future.done():
                future.set_result(Flushed(len(files) - len(bad), len(self._failed)))

    def fail(self, file: LogFile, error: OSError) -> None:
        """What this session has on the disk is not known any more; it counts as failed for ever."""
        self.failure = self.failure or error
        if file.name not in self._failed:
            self._failed.add(file.name)
            self._on_failure(file, error)

    def _release(self, file: LogFile) -> None:
        """Tells those whose bytes are durable, in the order they wrote."""
        while file.waits and (self.failure is not None or file.waits[0][0] <= file.synced):
            _, then = file.waits.pop(0)
            then(self.failure)


def _sync_file(file: LogFile) -> None:
    # Looked at once: the event loop may give it up at any moment, but only this thread closes it.
    kept = file.descriptor
    if kept >= 0:
        disk.fdatasync(kept)
        return
    try:
        descriptor = disk.open_read(file.path)
    except FileNotFoundError:
        return  # Deleted since; there is nothing left to keep.
    try:
        disk.fdatasync(descriptor)
    finally:
        os.close(descriptor)
