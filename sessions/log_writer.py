"""The open ends of the logs: which files are open, and how bytes get into them.

A write is all or nothing. What a failed write leaves is taken back; if even that fails, the file is
marked as torn and read anew before anything else is written to it. A reserve on the disk, the
*ballast*, is given up when the disk is full, so that running turns can still be closed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from collections.abc import Sequence

from loguru import logger

from sessions import disk
from sessions.directory import BALLAST_BYTES, DataDirectory
from sessions.errors import StoreUnavailable
from sessions.record import Record
from sessions.session import Session
from sessions.syncer import LogFile, Syncer

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class FileChanged(StoreUnavailable):
    """Another program has changed the file: it must be read anew."""


class LogWriter:
    def __init__(self, directory: DataDirectory, syncer: Syncer, open_files: int) -> None:
        self.ballast = False
        """There is a reserve on the disk."""
        self._directory, self._syncer = directory, syncer
        # The first is closed first, unless it was used since it was last looked at.
        self._open: deque[LogFile] = deque()
        self._limit = open_files

    def __len__(self) -> int:
        """How many files are open."""
        return len(self._open)

    def close(self) -> None:
        while self._open:
            self._syncer.close_later(self._open.popleft().descriptor)

    def writable(self, session: Session) -> LogFile:
        file: LogFile | None = session.file
        if file is None:
            file = self._create_file(session)
        elif file.descriptor < 0:
            self._open_file(file)
        file.used = True
        return file

    def _create_file(self, session: Session) -> LogFile:
        path = self._directory.live_path(session.key)
        file = LogFile(path, str(session.key), created=True)
        try:
            disk.make_directory(path.parent)
            file.descriptor = disk.open_append(path)
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be created: {error.strerror}") from error
        self.keep_open(file)
        if os.fstat(file.descriptor).st_size:
            self.let_go(file)
            raise FileChanged(f"{path} was put there by another program")
        return file

    def undo_creation(self, session: Session, file: LogFile) -> None:
        """A refused first message leaves no session behind."""
        if session.file is None:
            self.let_go(file)
            with contextlib.suppress(OSError):
                disk.unlink(file.path)

    def _open_file(self, file: LogFile) -> None:
        try:
            file.descriptor = disk.open_append(file.path)
        except OSError as error:
            raise StoreUnavailable(f"{file.path} cannot be opened: {error.strerror}") from error
        self.keep_open(file)
        found = os.fstat(file.descriptor).st_size
        if found != file.size:
            self.let_go(file)
            raise FileChanged(
                f"{file.path} was changed by another program: {found} bytes, not {file.size}"
            )

    def let_go(self, file: LogFile) -> None:
        """The descriptor is closed where nobody can be syncing it."""
        if file.descriptor >= 0:
            self._open.remove(file)
            self._syncer.close_later(file.descriptor)
            file.descriptor = -1

    def keep_open(self, file: LogFile) -> None:
        self._open.append(file)
        while len(self._open) > self._limit:
            oldest = self._open.popleft()
            if oldest.used or oldest.writing or oldest is file:
                oldest.used = False
                self._open.append(oldest)
                if oldest.writing:
                    break  # It is closed another time; a thread is writing to it.
                continue
            self._syncer.close_later(oldest.descriptor)
            oldest.descriptor = -1

    def write(
        self, session: Session, file: LogFile, data: bytes, records: Sequence[Record]
    ) -> None:
        """All of it or nothing. Raises StoreUnavailable."""
        failure = self._try_write(session, file, data, len(records))
        if failure in FULL_DISK and self._free_ballast(records):
            failure = self._try_write(session, file, data, len(records))
        if failure:
            raise StoreUnavailable(os.strerror(failure))

    def _try_write(self, session: Session, file: LogFile, data: bytes, count: int) -> int:
        """The error number of a failed write, 0 if everything is in the file."""
        whole = b"\n" + data if file.torn else data
        written = 0
        try:
            written = disk.write(file.descriptor, whole)
            if written == len(whole):
                file.size += len(whole) - len(data)
                return 0
            failure = errno.ENOSPC
        except OSError as error:
            failure = error.errno or errno.EIO
        try:
            disk.ftruncate(file.descriptor, file.size)
        except OSError:
            # What is left is put aside when the file is read; the next line starts afresh. A
            # whole row may be among it: its number must not be given out again.
            file.torn = True
            self._syncer.wrote(file, written)
            session.next_seq += count
            session.older_ids = None
        return failure

    def lay_ballast(self) -> None:
        """Blocks; for a thread. A disk that has no room for it gets none."""
        try:
            descriptor = disk.create(self._directory.ballast)
            try:
                os.posix_fallocate(descriptor, 0, BALLAST_BYTES)
            except OSError:
                disk.unlink(self._directory.ballast)
                raise
            finally:
                disk.close(descriptor)
            self.ballast = True
        except OSError as error:
            logger.bind(error=str(error)).warning("session ballast missing")

    def _free_ballast(self, records: Sequence[Record]) -> bool:
        """Only what ends a turn may use the reserve; new messages are refused instead."""
        if not self.ballast or not any(row.role != "user" for row in records):
            return False
        self.ballast = False
        try:
            disk.unlink(self._directory.ballast)
        except OSError:
            return False
        logger.warning("session disk full")
        return True
