"""The embedded store: one append-only JSONL file per session.

The event loop writes: a batch is encoded and handed to the kernel in one `write` on a kept
descriptor, which takes microseconds and survives the death of the process. Everything slow (load,
repair, sync, rewrite, lists) runs in threads. While a session's file is being rewritten, or its
disk has become slow, appends to that session wait behind its *gate*; other sessions go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from loguru import logger

from sessions import cap, clock, conversations, disk, lines
from sessions.cache import Cache
from sessions.directory import DataDirectory
from sessions.errors import (
    ConversationEnded,
    SessionError,
    SessionNotFound,
    StoreReadOnly,
    StoreUnavailable,
)
from sessions.index import Index
from sessions.key import SessionKey
from sessions.legacy import LegacyFiles
from sessions.log_files import LogFiles, archived_after
from sessions.log_writer import FileChanged, LogWriter
from sessions.record import Record
from sessions.session import Patch, Session, State
from sessions.store import (
    Appended,
    Conversation,
    Decide,
    Flushed,
    Listener,
    Listing,
    Page,
    Query,
    Stats,
    creates,
)
from sessions.syncer import LogFile, Syncer
from sessions.tasks import Tasks

T = TypeVar("T")

OPEN_FILES = 512
STORE_THREADS = 4
SLOW_WRITE_SECONDS = 0.05
QUIET_SECONDS = 60.0
GARBAGE_BYTES = 64 * 1024

_NO_DUPLICATES: dict[str, int] = {}


class JsonlStore:
    def __init__(
        self,
        path: Path,
        *,
        sync: str = "interval",
        sync_seconds: float = 0.5,
        file_cap: int = 2_000,
        cache_bytes: int = 256 * 1024 * 1024,
        legacy_dirs: Sequence[Path] = (),
        push_channels: frozenset[str] = frozenset({"slack"}),
        allow_network: bool = False,
        open_files: int = OPEN_FILES,
    ) -> None:
        self.directory = DataDirectory(path)
        legacy = LegacyFiles(legacy_dirs) if legacy_dirs else None
        self.files = LogFiles(self.directory, legacy=legacy, push_channels=push_channels)
        self._sync, self._sync_seconds = sync, sync_seconds
        self._cap = file_cap
        self._push = push_channels
        self._allow_network = allow_network
        self._cache = Cache(cache_bytes)
        self._loading: dict[SessionKey, asyncio.Task[Session | None]] = {}
        self._listeners: list[Listener] = []
        self._tasks = Tasks("sessions")
        self._rewriting = asyncio.Semaphore(1)

        self._open_files = open_files
        self._threads = ThreadPoolExecutor(STORE_THREADS, "parley-store")
        self._slow_until = 0.0
        self._closed = True
        self._ballast_at = 0.0
        self._appends = 0
        self._append_seconds = 0.0
        self._syncer: Syncer
        self._writer: LogWriter
        self._index: Index

    # -- life ---------------------------------------------------------------------------------

    async def open(self) -> None:
        """Raises StoreLocked or StoreRefused. Its cost does not depend on what is stored."""
        await self._run(self.directory.open, self._sync, allow_network=self._allow_network)
        self._syncer = Syncer(
            self.directory.path, self._sync, self._sync_seconds, on_failure=self._sync_failed
        )
        self._syncer.start()
        self._writer = LogWriter(self.directory, self._syncer, self._open_files)
        self._index = Index(self.directory.index, self.directory.sessions, self._read_for_index)
        self._index.start()
        self._closed = False
        self._want_ballast()

    async def flush(self) -> Flushed:
        flushed = await self._syncer.flush()
        logger.bind(count=flushed.count, failed=flushed.failed).info("sessions flushed")
        return flushed

    async def close(self) -> Flushed:
        """Accepts nothing more, makes everything durable, and leaves the directory to the next."""
        if self._closed:
            return Flushed(0, 0)
        self._closed = True
        await self._tasks.wait()
        flushed = await self.flush()
        await self._index.close()
        self._writer.close()
        await self._syncer.stop()
        if not flushed.failed and self._syncer.failure is None:
            await self._run(self._leave_clean)
        await self._tasks.wait()
        self.directory.release()
        self._threads.shutdown(wait=False)
        return flushed

    def _leave_clean(self) -> None:
        """Files nobody loaded since an unclean stop may still hold a predecessor's unsynced bytes:
        without a sync of the whole file system the directory stays unclean."""
        try:
            if self.directory.unclean and not self._sync_predecessors():
                return
            self.directory.mark_clean()
        except OSError as error:
            logger.bind(error=str(error)).error("session flush failed")

    def _sync_predecessors(self) -> bool:
        if not disk.can_sync_filesystem:
            return False
        descriptor = os.open(self.directory.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            disk.sync_filesystem(descriptor)
        finally:
            os.close(descriptor)
        return True

    def _sync_failed(self, file: LogFile, error: OSError) -> None:
        self._tasks.spawn(self._mark_lossy(), "mark-lossy")
        logger.bind(session=file.name, error=str(error)).error("session flush failed")

    async def _mark_lossy(self) -> None:
        await self._run(self.directory.mark_lossy)

    def _run(self, work: Callable[..., T], *args: Any, **named: Any) -> asyncio.Future[T]:
        """Blocking work, in threads of our own: whatever else hangs in the process, not these."""
        return asyncio.get_running_loop().run_in_executor(
            self._threads, functools.partial(work, *args, **named)
        )

    # -- appending ----------------------------------------------------------------------------

    async def append(
        self, key: SessionKey, drafts: Sequence[Record], patch: Patch | None = None
    ) -> Appended:
        session = self._cache.get(key)
        if session is None or session.gate is not None or session.older_ids is None:
            session = await self._ready(key)
        if session.file is None:
            self._check_creation(session, drafts)
        records, duplicates = session.admit(drafts)
        if records or patch is not None:
            if self._slow_until:
                await self._commit_slowly(session, records, patch)
            else:
                self._commit(session, records, patch)
        if self._sync == "turn":
            await self._durable(session)
        return Appended(records, duplicates or _NO_DUPLICATES)

    async def transact(self, key: SessionKey, decide: Decide) -> tuple[Session, Appended]:
        session = await self._ready(key)
        drafts, patch = decide(session)
        self._check_creation(session, drafts)
        records, duplicates = session.admit(drafts)
        if records or patch is not None:
            if self._slow_until:
                await self._commit_slowly(session, records, patch)
            else:
                self._commit(session, records, patch)
        if self._sync == "turn":
            await self._durable(session)
        return session, Appended(records, duplicates)

    async def _ready(self, key: SessionKey) -> Session:
        """The session, loaded and with nobody changing its file."""
        if key.conversation is not None:
            raise ConversationEnded(key)
        while True:
            session = await self.get_or_create(key)
            if session.gate is not None:
                await asyncio.wait([session.gate])
            elif session.file is not None and session.file.torn:
                # Rows of a refused batch may be in the file: they are known before the next one.
                await self.invalidate(key)
            elif session.older_ids is None:
                await self._read_older_ids(session)
            else:
                return session

    @staticmethod
    def _check_creation(session: Session, drafts: Sequence[Record]) -> None:
        if session.file is None and not creates(drafts):
            raise SessionNotFound(session.key)

    async def _read_older_ids(self, session: Session) -> None:
        archived = session.state.archived.seq
        older = await self._run(self.files.older_ids, session.key, archived)
        if session.older_ids is None and session.state.archived.seq == archived:
            session.older_ids = older

    def check_writable(self) -> None:
        if self._closed:
            raise StoreUnavailable("it is closed")
        refusal = self._syncer.refusal
        if refusal is not None:
            if self._syncer.failure is not None:
                raise StoreReadOnly(refusal)
            raise StoreUnavailable(refusal)

    def _commit(self, session: Session, records: list[Record], patch: Patch | None) -> None:
        """Writes rows and metadata in one call, then lets the session follow. Never waits."""
        data, change = self._encode(session, records, patch)
        file = self._writable(session)
        started = time.monotonic()
        try:
            self._writer.write(session, file, data, records)
        except StoreUnavailable:
            self._writer.undo_creation(session, file)
            raise
        seconds = time.monotonic() - started
        self._appends += 1
        self._append_seconds += seconds
        if seconds > SLOW_WRITE_SECONDS:
            self._become_slow()
        self._follow(session, file, records, change, len(data))

    async def _commit_slowly(
        self, session: Session, records: list[Record], patch: Patch | None
    ) -> None:
        """The same through a thread, because the disk has kept the event loop waiting."""
        data, change = self._encode(session, records, patch)
        file = self._writable(session)
        session.gate = asyncio.get_running_loop().create_future()
        file.writing = True

        async def write() -> None:
            try:
                started = time.monotonic()
                await self._run(self._writer.write, session, file, data, records)
                now = time.monotonic()
                if now - started > SLOW_WRITE_SECONDS:
                    self._become_slow()
                elif now > self._slow_until:
                    self._slow_until = 0.0
                self._follow(session, file, records, change, len(data))
            except StoreUnavailable:
                self._writer.undo_creation(session, file)
                raise
            finally:
                file.writing = False
                self._open_gate(session)

        # A cancelled caller must not leave a row that is written but unknown to the session.
        await asyncio.shield(self._tasks.spawn(write(), "slow-write", awaited=True))

    def _become_slow(self) -> None:
        if not self._slow_until:
            logger.warning("session disk slow")
        self._slow_until = time.monotonic() + QUIET_SECONDS

    def _encode(
        self, session: Session, records: list[Record], patch: Patch | None
    ) -> tuple[bytes, tuple[dict[str, Any], State, int] | None]:
        self.check_writable()
        data = lines.encode(records) if records else b""
        if patch is None and not session.metadata_due:
            return data, None
        last = records[-1] if records else None
        metadata, state = session.patched(patch or Patch(), last.seq if last else session.last_seq)
        moved = state.consolidated.seq != session.state.consolidated.seq
        rows = [*session.records, *records] if moved or session.file else records
        stamp = last.timestamp if last else clock.now()
        line, state = session.metadata_line(metadata, state, rows, stamp)
        # The first line of a file is metadata. A moved offset is written twice: one damaged line
        # must not show the model again what it has left behind.
        first = session.file is None or not session.file.size
        data = line + data if first else data + (line + line if moved else line)
        return data, (metadata, state, len(line))

    def _follow(
        self,
        session: Session,
        file: LogFile,
        records: list[Record],
        change: tuple[dict[str, Any], State, int] | None,
        size: int,
    ) -> None:
        """The bytes are written: memory, sync thread, index and listeners learn of it."""
        if change is not None:
            session.metadata, session.state, line_bytes = change
            session.metadata_due = False
            session.garbage += line_bytes
            session.updated_at = max(session.updated_at, clock.now())
        if records:
            session.apply(records, size)
        else:
            session.live_bytes += size
        session.file = file
        self._syncer.wrote(file, size)
        self._cache.charge(session)
        if self._sync == "turn":
            self._syncer.when_durable(file, lambda: self._publish(session, records))
        else:
            self._publish(session, records)
        self._index.touch(session)
        if not self._writer.ballast:
            self._want_ballast()
        if self._wants_rewrite(session):
            self._start_rewrite(session)

    def _writable(self, session: Session) -> LogFile:
        try:
            return self._writer.writable(session)
        except FileChanged:
            self._tasks.spawn(self.invalidate(session.key), "reload")
            raise

    def _want_ballast(self) -> None:
        """Once a minute at most: the disk may still be full."""
        if time.monotonic() >= self._ballast_at:
            self._ballast_at = time.monotonic() + QUIET_SECONDS
            self._tasks.spawn(self._lay_ballast(), "ballast")

    async def _lay_ballast(self) -> None:
        await self._run(self._writer.lay_ballast)

    def _publish(self, session: Session, records: Sequence[Record]) -> None:
        if not records:
            return
        session.heard = records[-1].seq
        for listener in self._listeners:
            try:
                listener(session, records)
            except Exception as error:  # noqa: BLE001 - the row is stored, whoever cannot hear of it
                logger.opt(exception=error).error("session listener failed")

    async def _durable(self, session: Session) -> None:
        """Waits until everything this session has shown is on the disk."""
        if session.file is None:
            return
        try:
            await self._syncer.durable(session.file)
        except OSError as error:
            raise StoreReadOnly(f"a sync failed ({error.strerror})") from error

    async def _all_heard(self, session: Session) -> None:
        """Waits until listeners know of every row, unless a sync failed: then they never will."""
        if self._sync == "turn" and self._syncer.failure is None:
            with contextlib.suppress(StoreReadOnly):
                await self._durable(session)

    # -- rewriting ----------------------------------------------------------------------------

    def _wants_rewrite(self, session: Session) -> bool:
        count = len(session.records)
        if self._cap and count >= self._cap and count >= session.cap_at:
            return True
        return session.garbage > GARBAGE_BYTES and 2 * session.garbage > session.live_bytes

    def _start_rewrite(self, session: Session) -> None:
        if session.gate is None and not self._closed:
            session.gate = asyncio.get_running_loop().create_future()
            self._tasks.spawn(self._rewrite(session), "rewrite")

    async def _rewrite(self, session: Session) -> None:
        try:
            if self._sync == "turn":
                await self._durable(session)
            # One at a time: several threads at once would keep the event loop from its turn.
            async with self._rewriting:
                await self._rewrite_gated(session)
        except (OSError, SessionError) as error:
            session.cap_at = len(session.records) + max(1, self._cap // 10)
            session.garbage = 0
            logger.bind(session=str(session.key), error=str(error)).error("session rewrite failed")
            if isinstance(error, OSError) and error.errno == errno.EIO:
                # A second sync of the archive would succeed without having written anything.
                self._syncer.fail(session.file, error)
        finally:
            self._open_gate(session)

    async def _rewrite_gated(self, session: Session) -> None:
        held = {*session.unsettled, *session.undelivered}
        cut = await self._run(cap.plan, session.records, self._cap, held)
        session.cap_at = len(session.records) + max(1, self._cap // 10)
        if cut is None and session.garbage <= GARBAGE_BYTES:
            return
        state = session.state
        if cut is not None:
            leaving = session.records[: cut.leaving]
            state = msgspec.structs.replace(state, archived=archived_after(session, leaving))
        before = session.file
        rewritten, rows = await self._run(self.files.rewrite, session, cut, state)
        file = LogFile(before.path, before.name, rewritten.size)
        file.descriptor = rewritten.descriptor
        self._writer.let_go(before)
        self._writer.keep_open(file)
        session.file, session.state = file, state
        session.live_bytes, session.garbage = rewritten.size, 0
        session.replace_rows(rows)
        session.cap_at = 0 if cut is not None else session.cap_at
        self._cache.charge(session)
        self._index.touch(session)
        if rewritten.error is not None:
            self._syncer.fail(file, rewritten.error)
        elif cut is not None:
            logger.bind(session=str(session.key), archived=cut.leaving, kept=len(rows)).info(
                "session capped"
            )

    @staticmethod
    def _open_gate(session: Session) -> None:
        gate, session.gate = session.gate, None
        if gate is not None and not gate.done():
            gate.set_result(None)

    # -- sessions in memory -------------------------------------------------------------------

    async def get(self, key: SessionKey) -> Session | None:
        if key.conversation is not None:
            return await self.view(key)
        session = self._cache.get(key)
        if session is None:
            session = await self._load(key)
        return session if session is not None and session.file is not None else None

    async def get_or_create(self, key: SessionKey) -> Session:
        if key.conversation is not None:
            raise ConversationEnded(key)
        session = self._cache.get(key) or await self._load(key)
        if session is None:
            # Another task may have created it while this one was loading.
            session = self._cache.get(key)
        if session is None:
            session = Session(key, push=key.channel in self._push)
            session.state = msgspec.structs.replace(session.state, epoch=self.directory.epoch)
            self._cache.put(session)
        return session

    async def _load(self, key: SessionKey) -> Session | None:
        """One load per key at a time, whoever asks for it and whoever gives up waiting."""
        task = self._loading.get(key)
        if task is None:
            task = self._tasks.spawn(self._load_once(key), "load", awaited=True)
            self._loading[key] = task
        return await asyncio.shield(task)

    async def _load_once(self, key: SessionKey) -> Session | None:
        try:
            session = await self._run(self.files.load, key)
            begun = self._cache.peek(key)
            if begun is not None:
                # The chat began while its file was looked for: there is one object of each.
                return begun
            if session is not None:
                self._cache.put(session)
                if self.directory.unclean:
                    self._syncer.touch(session.file)
                if session.unindexed:
                    self._index.touch(session)
            return session
        except StoreReadOnly as error:
            file = LogFile(self.directory.live_path(key), str(key))
            self._syncer.fail(file, OSError(errno.EIO, error.reason))
            raise
        finally:
            del self._loading[key]

    @asynccontextmanager
    async def pin(self, key: SessionKey) -> AsyncIterator[Session]:
        session = await self.get_or_create(key)
        session.pins += 1
        try:
            yield session
        finally:
            session.pins -= 1
            self._cache.charge(session)

    async def invalidate(self, key: SessionKey) -> None:
        session = self._cache.peek(key)
        if session is None:
            return
        await self._close_gate(session)
        try:
            if session.retired:
                return  # Deleted meanwhile: what is there now is another chat.
            await self._all_heard(session)
            if session.file is not None:
                self._writer.let_go(session.file)
            fresh = await self._run(self.files.load, key)
            if fresh is None:
                session.retired = True
                self._cache.drop(key)
            else:
                session.become(fresh)
                self._cache.charge(session)
        finally:
            self._open_gate(session)

    async def mend(self, key: SessionKey, *, archive: bool = False) -> None:
        """Reads the log anew, or looks through the archive, and leaves it whole."""
        if not archive:
            await self.refresh(key, load=True)
            return
        if await self.view(key) is None or (session := await self.get(key)) is None:
            return
        await self._close_gate(session)
        try:
            await self._run(self.files.mend_archive, key)
        finally:
            self._open_gate(session)

    async def refresh(self, key: SessionKey, *, load: bool = False) -> None:
        """The file was put there or changed: whoever holds the session, and the index, learn it."""
        session = self._cache.peek(key)
        if session is not None:
            await self.invalidate(key)
        else:
            session = await (self.get(key) if load else self.view(key))
        if session is not None:
            self._index.touch(session)

    async def _close_gate(self, session: Session) -> None:
        while session.gate is not None:
            await asyncio.wait([session.gate])
        session.gate = asyncio.get_running_loop().create_future()

    async def view(self, key: SessionKey) -> Session | None:
        session = await self._run(self.files.view, key.chat)
        if session is None or key.conversation is None:
            return session
        ended = await self._ended(key)
        rows = await self._run(self.files.page, key.chat, ended.first, ended.last + 1, ended.last)
        return conversations.view(session, key, ended, rows)

    # -- reading ------------------------------------------------------------------------------

    async def read(
        self,
        key: SessionKey,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = 200,
    ) -> Page:
        first = 0
        if key.conversation is not None:
            ended = await self._ended(key)
            after, before = conversations.bounds(ended, after, before)
            first = ended.first
        rows = await self._rows(key.chat, after, before, limit + 1)
        rows = [row for row in rows if row.seq > first]
        more = len(rows) > limit
        if after is None:
            return Page(rows[-limit:], more)
        return Page(rows[:limit], more)

    async def _rows(
        self, key: SessionKey, after: int | None, before: int | None, limit: int
    ) -> list[Record]:
        session = self._cache.peek(key)
        if session is None or session.file is None:
            return await self._run(self.files.page, key, after, before, limit)
        await self._all_heard(session)
        archived = session.state.archived.seq
        rows = session.records
        if after is not None:
            start = session.position(max(after, archived))
            rows = rows[start : start + limit]
        else:
            end = session.position(before - 1) if before is not None else len(rows)
            rows = rows[max(0, end - limit) : end]
        reaches = after >= archived if after is not None else len(rows) >= limit
        if not archived or (reaches and (not rows or rows[0].seq > archived)):
            return [row for row in rows if before is None or row.seq < before]
        return await self._run(self.files.combine, key, rows, archived, after, before, limit)

    async def pending(self) -> AsyncIterator[tuple[SessionKey, list[Record]]]:
        async for session in self._with_work("pending > 0"):
            if session.unsettled:
                yield session.key, session.pending

    async def undelivered(self) -> AsyncIterator[tuple[SessionKey, list[Record]]]:
        async for session in self._with_work("undelivered > 0"):
            if session.undelivered:
                yield session.key, list(session.undelivered.values())

    async def _with_work(self, where: str) -> AsyncIterator[Session]:
        """Never by the index alone: after an unclean stop it first reads what has changed."""
        await self._index.scanned.wait()
        await self._index.caught_up(None)
        if self._index.failed:
            keys = await self._run(self._all_keys)
        else:
            keys = await self._run(self._index.ask_keys, where)
        for text in keys:
            try:
                session = await self.get(SessionKey.parse(text))
            except SessionError as error:
                logger.bind(session=text, error=str(error)).error("session unreadable")
                continue
            if session is not None:
                yield session

    def _all_keys(self) -> list[str]:
        keys = []
        for path in self.files.paths():
            try:
                session, _ = self.files.view_file(path)
            except SessionError as error:
                logger.bind(error=str(error)).error("session unreadable")
                continue
            keys.append(str(session.key))
        return keys

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    # -- the catalogue ------------------------------------------------------------------------

    def _read_for_index(self, path: Path, whole: bool) -> tuple[Session, Sequence[Record]] | None:
        try:
            return self.files.view_file(path, with_archive=whole)
        except SessionNotFound:
            return None
        except SessionError as error:
            logger.bind(error=str(error)).error("session unreadable")
            return None

    async def find(self, query: Query = Query()) -> Listing:  # noqa: B008 - frozen
        await self._index.caught_up()
        return await self._run(self._index.ask_list, query)

    async def stats(self) -> Stats:
        await self._index.caught_up()
        found = await self._run(self._index.ask_stats)
        return msgspec.structs.replace(
            found,
            cached_sessions=len(self._cache),
            cached_bytes=self._cache.bytes,
            unsynced_bytes=self._syncer.unsynced_bytes,
            open_files=len(self._writer),
            appends=self._appends,
            append_seconds=self._append_seconds,
            syncs=self._syncer.syncs,
            sync_seconds=self._syncer.sync_seconds,
        )

    async def update(self, key: SessionKey, patch: Patch) -> Session:
        session, _ = await self.transact(key, lambda _: ([], patch))
        return session

    async def archive(self, key: SessionKey) -> Session:
        return await self.update(key, Patch(state="archived"))

    async def new_conversation(
        self, key: SessionKey, draft: Record, *, listed: bool = True
    ) -> Appended:
        _, appended = await self.transact(
            key, lambda session: conversations.start(session, draft, listed=listed)
        )
        return appended

    async def conversations(self, key: SessionKey) -> Sequence[Conversation]:
        session = await self.get(key.chat)
        if session is None:
            raise SessionNotFound(key)
        return await self._run(self.files.ended, key.chat, list(session.records))

    async def _ended(self, key: SessionKey) -> Conversation:
        found = await self._run(self.files.ended, key.chat)
        return conversations.find(found, key)

    async def restore(self, key: SessionKey, draft: Record) -> Appended:
        ended = await self._ended(key)
        _, appended = await self.transact(
            key.chat, lambda session: conversations.resume(session, draft, ended)
        )
        return appended

    async def model_rows(self, key: SessionKey, limit: int) -> Sequence[Record]:
        session = await self.get(key)
        if session is None:
            raise SessionNotFound(key)
        earlier: list[Record] = []
        for first, last in session.state.continues:
            page = await self.read(key, before=last + 1, limit=limit)
            earlier += [row for row in page.records if row.seq > first]
        return [*earlier[-limit:], *session.view(limit)]

    async def delete(self, key: SessionKey) -> bool:
        if key.conversation is not None:
            raise ConversationEnded(key)
        return await self._delete(key, lambda _: False)

    async def _delete(self, key: SessionKey, keep: Callable[[Session], bool]) -> bool:
        """Whole, also if whoever asked for it gives up waiting."""
        work = self._delete_gated(key, keep)
        return await asyncio.shield(self._tasks.spawn(work, "delete", awaited=True))

    async def _delete_gated(self, key: SessionKey, keep: Callable[[Session], bool]) -> bool:
        session = await self.get(key)
        if session is None:
            return False
        await self._close_gate(session)
        try:
            if session.retired or keep(session):
                return False
            await self._all_heard(session)
            if (reading := self._loading.get(key)) is not None:
                await asyncio.wait([reading])
            existed = await self._run(self.files.delete, key)
            self._writer.let_go(session.file)
            session.retired = True
            self._cache.drop(key)
            self._index.forget(str(key))
            return existed
        except OSError as error:
            raise StoreUnavailable(f"{key} cannot be deleted: {error.strerror}") from error
        finally:
            self._open_gate(session)

    async def expire(self, max_age_days: float) -> Sequence[SessionKey]:
        cutoff = clock.from_epoch(time.time() - max_age_days * 86_400)
        await self._index.scanned.wait()
        await self._index.caught_up()
        keys = await self._run(
            self._index.ask_keys, "updated_at < ? and pending = 0 and undelivered = 0", [cutoff]
        )
        expired = []
        for text in keys:
            key = SessionKey.parse(text)
            if await self._expire(key, cutoff):
                expired.append(key)
        if expired:
            logger.bind(count=len(expired)).info("sessions expired")
        return expired

    async def _expire(self, key: SessionKey, cutoff: str) -> bool:
        """The log decides, not the index, and in the step in which nobody writes to it any more."""

        def keep(session: Session) -> bool:
            recent = session.pins > 0 or session.updated_at >= cutoff
            return recent or bool(session.unsettled or session.undelivered)

        session = await self.get(key)
        return session is not None and not keep(session) and await self._delete(key, keep)
