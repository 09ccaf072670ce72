"""What is done to log files off the event loop: load and repair, rewrite, read pages, delete.

Every function here blocks and may run in any thread. None of them is called for a session while
another one changes it: the store sees to that.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from loguru import logger

from sessions import cap, clock, conversations, disk, lines, loader, pages
from sessions.directory import DataDirectory
from sessions.errors import (
    SessionNotFound,
    SessionUnreadable,
    StoreReadOnly,
    StoreUnavailable,
)
from sessions.index import read_conversation
from sessions.key import SessionKey
from sessions.legacy import LegacyFiles, Migrated, migrate_file
from sessions.record import NoteKind, Record, note
from sessions.session import (
    MAX_OLDER_IDS,
    SEQ_SKIP,
    Archived,
    Session,
    State,
    read_state,
    text_hash,
)
from sessions.store import Conversation
from sessions.syncer import LogFile

NOTE_BYTES = 160
"""A usual note; only used to decide when a rewrite is worth it."""


class Rewritten(msgspec.Struct):
    descriptor: int
    size: int
    error: OSError | None
    """The new file is in place but its directory entry may not be durable."""


class LogFiles:
    def __init__(
        self,
        directory: DataDirectory,
        *,
        legacy: LegacyFiles | None = None,
        push_channels: frozenset[str] = frozenset(),
    ) -> None:
        self.directory = directory
        self._legacy = legacy
        self._push = push_channels

    # -- loading ------------------------------------------------------------------------------

    def load(self, key: SessionKey) -> Session | None:
        """The session as its log has it, mended if need be; None if there is no log.

        Raises SessionUnreadable; the file is then untouched.
        """
        path = self.directory.live_path(key)
        data = self._read(path)
        made = data is None and (self._migrate(key) or self._revive(key, path))
        if made:
            data = self._read(path)
        if data is None:
            return None
        found = loader.load(data)
        session = self._session(key, path, found, len(data))
        damaged = bool(found.damage) or not found.intact
        if damaged:
            self._mend(session, found)
        session.unindexed = made or damaged
        if session.state.epoch < self.directory.epoch:
            # Power may have taken rows a reader has seen: their numbers are not given out again.
            session.next_seq += SEQ_SKIP
            session.state = msgspec.structs.replace(session.state, epoch=self.directory.epoch)
            session.metadata_due = True
        return session

    def view(self, key: SessionKey) -> Session | None:
        """The session as its log has it. Changes nothing on the disk."""
        path = self.directory.live_path(key)
        data = self._read(path)
        return None if data is None else self._session(key, path, loader.load(data), len(data))

    def view_file(self, path: Path, *, with_archive: bool = False) -> tuple[Session, list[Record]]:
        """A session by its file. Raises SessionUnreadable if the file does not say whose it is."""
        data = self._read(path)
        if data is None:
            raise SessionNotFound(path.stem)
        found = loader.load(data)
        key = self.directory.key_of(path, found.keys)
        if key is None:
            raise SessionUnreadable(path, "neither its name nor its lines tell whose it is")
        session = self._session(key, path, found, len(data))
        rows = session.records
        if with_archive and session.state.archived.seq:
            rows = self.archived(key, session.state.archived.seq) + [
                row for row in rows if row.seq > session.state.archived.seq
            ]
        return session, rows

    def _read(self, path: Path) -> bytes | None:
        try:
            return disk.read_file(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SessionUnreadable(path, error.strerror or str(error)) from error

    def _migrate(self, key: SessionKey) -> bool:
        source = self._legacy.find(key) if self._legacy is not None else None
        if source is None:
            return False
        return isinstance(migrate_file(self.directory, source, key), Migrated)

    def _revive(self, key: SessionKey, path: Path) -> bool:
        """An archive whose log is gone is still that chat, with its owner and its numbers."""
        data = self._read(self.directory.archive_path(key))
        rows = self.archived(key) if data else []
        if data is None or not rows:
            return False
        session = self._session(key, path, loader.load(data), 0)
        last = rows[-1].seq
        session.state = msgspec.structs.replace(
            session.state,
            archived=self._account(key),
            settled_through=last,
            delivered_through=last,
        )
        session.restart([])
        line, _ = session.metadata_line(
            session.metadata, session.state, (), rows[-1].timestamp or session.updated_at
        )
        try:
            disk.make_directory(path.parent)
            rewritten = self._replace(path, line)
            disk.close(rewritten.descriptor)
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be repaired: {error.strerror}") from error
        logger.bind(session=str(key), skipped=0, recovered=len(rows)).warning("session repaired")
        return True

    def _session(self, key: SessionKey, path: Path, found: loader.Loaded, size: int) -> Session:
        session = Session(key, push=key.channel in self._push)
        value = found.metadata or {}
        inner = value.get("metadata")
        inner = inner if isinstance(inner, dict) else {}
        metadata = {name: item for name, item in inner.items() if name != "parley"}
        state = read_state(inner.get("parley"))
        last = found.records[-1] if found.records else None
        if not state.log:
            # Every metadata line was lost: rows say what they settle, but not what was delivered.
            state = msgspec.structs.replace(
                state,
                log=session.state.log,
                delivered_through=last.seq if last else 0,
                archived=self._account(key),
            )
        mark = msgspec.structs.replace(state.consolidated, seq=found.offset_seq)
        session.state = msgspec.structs.replace(
            state, consolidated=mark, damaged=state.damaged + len(found.damage)
        )
        session.metadata = metadata
        caught_up = conversations.catch_up(session, found.records)
        session.restart(found.records)
        created = clock.normal(value.get("created_at"))
        session.created_at = created or (found.records[0].timestamp if last else session.created_at)
        times = (clock.normal(value.get("updated_at")), last.timestamp if last else None)
        session.updated_at = max(filter(None, times), default=session.created_at)
        session.file = LogFile(path, str(key), size)
        session.live_bytes = size
        session.metadata_due = caught_up or found.metadata is None
        session.older_ids = None if session.state.archived.seq else {}
        noted = [row for row in found.records if row.note is not None]
        session.garbage = found.metadata_bytes + NOTE_BYTES * sum(row.is_note for row in noted)
        return session

    def _account(self, key: SessionKey) -> Archived:
        """What the archive itself says of its rows."""
        rows = self.archived(key)
        visible = sum(1 for row in rows if not row.is_note)
        return Archived(rows[-1].seq, visible) if rows else Archived()

    def _mend(self, session: Session, found: loader.Loaded) -> None:
        """Puts damaged bytes aside, then leaves a file without them. Each step is durable."""
        path: Path = session.file.path
        try:
            for damage in found.damage:
                self.directory.put_aside(damage.data)
            if found.rows is not None:
                rewritten = self._install(session, session.state, found.records, found.rows)
                disk.close(rewritten.descriptor)
                if rewritten.error is not None:
                    raise rewritten.error
                session.file = LogFile(path, str(session.key), rewritten.size)
                session.live_bytes = rewritten.size
                session.metadata_due = False
            else:
                self._mend_tail(session.file, found)
                session.live_bytes = session.file.size
        except OSError as error:
            if error.errno == errno.EIO:
                # A second sync of the same file would succeed without having written anything.
                raise StoreReadOnly(f"{path} cannot be repaired: {error.strerror}") from error
            raise StoreUnavailable(f"{path} cannot be repaired: {error.strerror}") from error
        logger.bind(
            session=str(session.key),
            skipped=len(found.damage),
            recovered=found.recovered,
        ).warning("session repaired")

    @staticmethod
    def _mend_tail(file: LogFile, found: loader.Loaded) -> None:
        descriptor = disk.open_append(file.path)
        try:
            if found.cut is not None:
                disk.ftruncate(descriptor, found.cut)
                file.size = found.cut
            if found.missing_newline:
                disk.write_all(descriptor, b"\n")
                file.size += 1
            disk.fdatasync(descriptor)
            file.synced = file.size
        finally:
            disk.close(descriptor)

    def mend_archive(self, key: SessionKey) -> loader.Loaded | None:
        """Puts damaged bytes of the archive aside, then leaves a file without them.

        Rows that are gone at its end leave a note in their place: an archive reaches as far as
        the live log says. None if there was nothing to do. Raises SessionUnreadable, or
        StoreUnavailable; the archive is then as it was.
        """
        session, path = self.view(key), self.directory.archive_path(key)
        if session is None:
            return None
        data = self._read(path) or b""
        found = loader.load(data)
        last = found.records[-1].seq if found.records else 0
        through = session.state.archived.seq
        if found.intact and not found.damage and last >= through:
            return None
        line, _ = session.metadata_line(session.metadata, session.state, (), session.updated_at)
        rows = loader.raw_rows(data, found)
        if last < through:
            lost = note(NoteKind.DAMAGED, after=last)
            gap = msgspec.structs.replace(lost, seq=through, timestamp=clock.now())
            rows.append(lines.encode([gap]))
        try:
            for damage in found.damage:
                self.directory.put_aside(damage.data)
            disk.make_directory(path.parent)
            rewritten = self._replace(path, b"".join([line, *rows]))
            disk.close(rewritten.descriptor)
            if rewritten.error is not None:
                raise rewritten.error
            disk.sync_directory(self.directory.archive)
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be repaired: {error.strerror}") from error
        logger.bind(
            session=str(key), archive=True, skipped=len(found.damage), recovered=found.recovered
        ).warning("session repaired")
        return found

    # -- rewriting ----------------------------------------------------------------------------

    def rewrite(
        self, session: Session, cut: cap.Cut | None, state: State
    ) -> tuple[Rewritten, list[Record]]:
        """Leaves out what `cut` moves to the archive and what says nothing any more.

        Order: old file, durable; archive, durable; new file, durable; rename; directory. Until the
        rename the old file is complete, after it the new one is; rows in both places have the same
        numbers.
        """
        path: Path = session.file.path
        rows = session.records
        raw = self._raw_rows(path, rows)
        if cut is not None:
            self._make_durable(path)
            self._archive(session, rows[: cut.leaving], raw[: cut.leaving])
        closed = cap.closed_turns(rows)
        delivered = session.delivered_through
        stay = (*cut.kept, *range(cut.leaving, len(rows))) if cut else range(len(rows))
        kept = [
            index
            for index in stay
            # The last row stays whatever it says: its number must not be given out again.
            if rows[index].note is None
            or index == len(rows) - 1
            or not cap.superseded(rows[index], delivered_through=delivered, closed=closed)
        ]
        kept_rows = [rows[index] for index in kept]
        rewritten = self._install(session, state, kept_rows, [raw[index] for index in kept])
        return rewritten, kept_rows

    @staticmethod
    def _make_durable(path: Path) -> None:
        """An archive that outlives rows of its log would keep those that get their numbers out."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            disk.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        disk.sync_directory(path.parent)
        disk.sync_directory(path.parent.parent)

    @staticmethod
    def _raw_rows(path: Path, rows: Sequence[Record]) -> list[bytes]:
        """The lines of the rows as they stand, so that nothing a writer put there is lost."""
        data = disk.read_file(path)
        raw = [
            line + b"\n"
            for line in data.split(b"\n")
            if line and not line.startswith(lines.METADATA_PREFIX)
        ]
        if len(raw) != len(rows) or any(
            lines.seq_of(raw[index]) != rows[index].seq for index in {0, len(rows) - 1} if rows
        ):
            raise OSError(0, f"{path} does not hold the rows it should")
        return raw

    def _archive(self, session: Session, rows: Sequence[Record], raw: Sequence[bytes]) -> None:
        path = self.directory.archive / session.file.path.parent.name / session.file.path.name
        new_directory = disk.make_directory(path.parent)
        descriptor = disk.open_append(path)
        try:
            size = os.fstat(descriptor).st_size
            whole, last = self._archive_end(path, size)
            if whole < size:
                disk.ftruncate(descriptor, whole)
            data = (
                b""
                if whole
                else session.metadata_line(session.metadata, session.state, (), session.updated_at)[
                    0
                ]
            )
            data += b"".join(line for row, line in zip(rows, raw, strict=True) if row.seq > last)
            try:
                disk.write_all(descriptor, data)
            except OSError:
                disk.ftruncate(descriptor, whole)
                raise
            disk.fdatasync(descriptor)
        finally:
            disk.close(descriptor)
        disk.sync_directory(path.parent)
        if new_directory:
            disk.sync_directory(path.parent.parent)

    @staticmethod
    def _archive_end(path: Path, size: int) -> tuple[int, int]:
        """Where the archive's last whole line ends, and its number. A torn end is still live."""
        if not size:
            return 0, 0
        descriptor = disk.open_read(path)
        try:
            whole = pages.last_line_end(descriptor, size)
            return whole, pages.last_seq(descriptor, whole)
        finally:
            os.close(descriptor)

    def _install(
        self, session: Session, state: State, rows: Sequence[Record], raw: Sequence[bytes]
    ) -> Rewritten:
        """Replaces the log by these rows. The metadata stands first and last: one damaged line
        then costs neither the title nor the offset."""
        line, _ = session.metadata_line(session.metadata, state, rows, session.updated_at)
        return self._replace(session.file.path, b"".join([line, *raw, line] if raw else [line]))

    def _replace(self, path: Path, data: bytes) -> Rewritten:
        """The file holds these bytes, durable, or it is as it was."""
        temporary = self.directory.temporary(path.name)
        descriptor = disk.create(temporary)
        try:
            disk.write_all(descriptor, data)
            disk.fdatasync(descriptor)
            disk.replace(temporary, path)
        except BaseException:
            disk.close(descriptor)
            temporary.unlink(missing_ok=True)
            raise
        error = None
        try:
            disk.sync_directory(path.parent)
        except OSError as failed:
            error = failed
        return Rewritten(descriptor, len(data), error)

    # -- reading ------------------------------------------------------------------------------

    def page(
        self, key: SessionKey, after: int | None, before: int | None, limit: int
    ) -> list[Record]:
        """Rows by number through the archive, for a session that is not in memory."""
        path = self.directory.live_path(key)
        try:
            descriptor = disk.open_read(path)
        except FileNotFoundError:
            if not self._migrate(key):
                raise SessionNotFound(key) from None
            descriptor = disk.open_read(path)
        except OSError as error:
            raise SessionUnreadable(path, error.strerror or str(error)) from error
        try:
            return self._page(key, descriptor, after, before, limit)
        except pages.Untidy:
            session = self.view(key)
            rows = session.records if session else []
            archived = session.state.archived.seq if session else 0
            return self.combine(key, rows, archived, after, before, limit)
        except OSError as error:
            raise SessionUnreadable(path, error.strerror or str(error)) from error
        finally:
            os.close(descriptor)

    def _page(
        self, key: SessionKey, descriptor: int, after: int | None, before: int | None, limit: int
    ) -> list[Record]:
        size = os.fstat(descriptor).st_size
        archived = 0
        if self.directory.archive_path(key).exists():
            line = pages.last_metadata(descriptor, size)
            archived = self._account(key).seq if line is None else _archived_seq(line)
        if after is None:
            live = pages.before(descriptor, size, before, limit)
        else:
            live = pages.after(descriptor, size, max(after, archived), limit)
        return self.combine(key, live, archived, after, before, limit)

    def combine(
        self,
        key: SessionKey,
        live: Sequence[Record],
        archived: int,
        after: int | None,
        before: int | None,
        limit: int,
    ) -> list[Record]:
        """The wanted rows of the live file, and of the archive where those do not reach."""
        low = archived if after is None else max(after, archived)
        rows = [row for row in live if row.seq > low and (before is None or row.seq < before)]
        if after is None:
            rows = rows[-limit:]
            if len(rows) < limit and archived:
                end = archived + 1 if before is None else min(before, archived + 1)
                rows = self._archive_page(key, None, end, limit - len(rows)) + rows
            return rows
        if after < archived:
            end = archived + 1 if before is None else min(before, archived + 1)
            rows = self._archive_page(key, after, end, limit) + rows
        return rows[:limit]

    def _archive_page(
        self, key: SessionKey, after: int | None, before: int, limit: int
    ) -> list[Record]:
        path = self.directory.archive_path(key)
        try:
            descriptor = disk.open_read(path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SessionUnreadable(path, error.strerror or str(error)) from error
        try:
            size = os.fstat(descriptor).st_size
            if after is None:
                return pages.before(descriptor, size, before, limit)
            found = pages.after(descriptor, size, after, limit)
            return [row for row in found if row.seq < before]
        except pages.Untidy:
            rows = [row for row in self.archived(key) if row.seq < before]
            if after is None:
                return rows[-limit:]
            return [row for row in rows if row.seq > after][:limit]
        except OSError as error:
            raise SessionUnreadable(path, error.strerror or str(error)) from error
        finally:
            os.close(descriptor)

    def archived(self, key: SessionKey, through: int | None = None) -> list[Record]:
        data = self._read(self.directory.archive_path(key))
        rows = loader.load(data).records if data else []
        return rows if through is None else [row for row in rows if row.seq <= through]

    def older_ids(self, key: SessionKey, archived: int) -> dict[str, tuple[int, int]]:
        """The newest message ids of the archive, oldest first."""
        found: dict[str, tuple[int, int]] = {}
        before = archived + 1
        while len(found) < MAX_OLDER_IDS:
            rows = self._archive_page(key, None, before, MAX_OLDER_IDS)
            for row in reversed(rows):
                if row.id is not None and row.role == "user":
                    found.setdefault(row.id, (row.seq, text_hash(row)))
            if len(rows) < MAX_OLDER_IDS:
                break
            before = rows[0].seq
        return dict(reversed(list(found.items())[:MAX_OLDER_IDS]))

    def ended(self, key: SessionKey, live: Sequence[Record] | None = None) -> list[Conversation]:
        """Every conversation of the chat that has ended, in order, by the rows that ended them."""
        mark = f'"kind":"{NoteKind.CONVERSATION.value}"'.encode()
        rows: dict[int, Record] = {row.seq: row for row in live or ()}
        paths = [self.directory.archive_path(key)]
        if live is None:
            paths.append(self.directory.live_path(key))
        for path in paths:
            for line in (self._read(path) or b"").split(b"\n"):
                if mark in line:
                    rows.update((row.seq, row) for row in loader.load(line + b"\n").records)
        found = (read_conversation(rows[seq]) for seq in sorted(rows))
        return [conversation for conversation in found if conversation is not None]

    # -- the rest -----------------------------------------------------------------------------

    def delete(self, key: SessionKey) -> bool:
        """The archive first: a live log without its archive is a session that can be deleted
        again, an archive without its log would come back with the next one of that name. So would
        an old file the session was migrated from."""
        live = self.directory.live_path(key)
        existed = live.exists()
        legacy = self._legacy.find(key) if self._legacy is not None else None
        for path in (legacy, self.directory.archive_path(key), live):
            if path is None:
                continue
            try:
                disk.unlink(path)
            except FileNotFoundError:
                continue
            disk.sync_directory(path.parent)
        return existed

    def paths(self) -> Iterator[Path]:
        for channel in sorted(self.directory.sessions.iterdir()):
            if channel.is_dir() and not channel.is_symlink():
                yield from sorted(channel.glob("*.jsonl"))


def archived_after(session: Session, leaving: Sequence[Record]) -> Archived:
    """The state's account of the archive once these rows have left."""
    before = session.state.archived
    new = [row for row in leaving if row.seq > before.seq]
    visible = sum(1 for row in new if not row.is_note)
    return Archived(new[-1].seq if new else before.seq, before.messages + visible)


def _archived_seq(line: bytes) -> int:
    metadata = loader.load(line + b"\n").metadata or {}
    inner = metadata.get("metadata")
    return read_state(inner.get("parley")).archived.seq if isinstance(inner, dict) else 0
