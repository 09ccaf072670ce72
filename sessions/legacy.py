"""Takes over the session files another program left: found by key, moved into our tree.

A move is a rewrite into our own form. Its steps, in this order:

1. lines that have no place in a log go to quarantine, durable;
2. the new log is written under `tmp/` and synced;
3. it is linked to its place, never over a file that is there: ours wins;
4. its directory entry is made durable;
5. the source is removed, if it is still the file that was read.

A crash before 3 leaves the source, a crash after it both. The new log names the source's hash,
so the next run knows its own work and only finishes it. The source may be on any file system.

Every function here blocks and may run in any thread; one key is migrated by one thread at a time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from loguru import logger

from sessions import clock, disk, loader, nanobot
from sessions.directory import DataDirectory
from sessions.errors import SessionUnreadable, StoreUnavailable
from sessions.key import SessionKey

SUFFIX = ".jsonl"
HEAD_BYTES = 64 * 1024
"""Usually holds the metadata line, which names the key."""
MAX_READS = 3

# What link() says on file systems that have none, and between two of them.
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    path: str
    rows: int
    damaged: int = 0
    """Lines that could not be read whole; their bytes are in quarantine."""
    left: str | None = None
    """Why the source is still there."""


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    key: str | None
    path: str
    reason: str


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    reason: str


class Report(msgspec.Struct, frozen=True):
    migrated: list[Migrated] = []
    skipped: list[Skipped] = []
    failed: list[Failed] = []


# -- reading ----------------------------------------------------------------------------------


class _Source(msgspec.Struct, frozen=True):
    path: Path
    data: bytes
    info: os.stat_result

    @property
    def name(self) -> str:
        return os.fsencode(self.path.name).decode(errors="replace")

    @property
    def shown(self) -> str:
        return _shown(self.path)

    @property
    def modified(self) -> str:
        return clock.from_epoch(self.info.st_mtime)


def _shown(path: Path) -> str:
    return os.fsencode(path).decode(errors="replace")


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("st_dev", "st_ino", "st_size", "st_mtime_ns")
    )


def _read(path: Path, limit: int = -1) -> _Source:
    """Raises FileNotFoundError, or SessionUnreadable for what is there and cannot be read."""
    try:
        # Neither a link is followed nor a pipe waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return _read_open(path, descriptor, limit)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as error:
        link = error.errno == errno.ELOOP
        reason = "it is a symbolic link" if link else error.strerror or str(error)
        raise SessionUnreadable(path, reason) from error


def _read_open(path: Path, descriptor: int, limit: int) -> _Source:
    for _ in range(MAX_READS):
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise SessionUnreadable(path, "it is not a regular file")
        os.lseek(descriptor, 0, os.SEEK_SET)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(limit)
        if limit >= 0 or _same(info, os.fstat(descriptor)):
            return _Source(path, data, info)
    raise SessionUnreadable(path, "it changes while it is read")


def _identify(path: Path) -> nanobot.Identity:
    source = _read(path, HEAD_BYTES)
    found = nanobot.identify_by_head(source.data)
    if found is None:
        source = _read(path)
        found = nanobot.identify(source.data, path.stem)
    if found.unreadable:
        raise SessionUnreadable(path, found.problem or "")
    return found if found.updated_at else msgspec.structs.replace(found, updated_at=source.modified)


def identify(path: Path) -> SessionKey | None:
    """Whose session this file is: by the key stored in it, else by its name.

    None if it is no session file. Raises SessionUnreadable.
    """
    return _identify(path).key


# -- finding ----------------------------------------------------------------------------------


def _list(root: Path) -> list[Path]:
    """Everything that is named like a session file, in the directory and one level deep.

    Hidden entries are working files. A linked directory is not entered: it may lead anywhere.
    """
    found, below = _scan(root)
    for directory in below:
        found += _scan(directory)[0]
    return sorted(found)


def _scan(directory: Path) -> tuple[list[Path], list[Path]]:
    files: list[Path] = []
    below: list[Path] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.name.endswith(SUFFIX):
                    files.append(Path(entry.path))
                elif entry.is_dir(follow_symlinks=False):
                    below.append(Path(entry.path))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise SessionUnreadable(directory, error.strerror or str(error)) from error
    return files, below


class LegacyFiles:
    """Where other programs may have left sessions.

    The directories are listed once, when someone first asks; what is put there later is seen by
    `migrate_directory` and after a restart.
    """

    def __init__(self, directories: Sequence[str | Path]) -> None:
        self._roots = [Path(os.path.expanduser(directory)) for directory in directories]
        self._paths: dict[str, list[Path]] | None = None

    def find(self, key: SessionKey) -> Path | None:
        """The newest file of this session. Raises SessionUnreadable: unreadable is not absent."""
        newest: tuple[str, Path] | None = None
        for path in self._candidates(key.chat):
            try:
                found = _identify(path)
            except FileNotFoundError:
                continue
            if found.key == key.chat:
                newest = max(newest or ("", path), (found.updated_at, path))
        return newest[1] if newest else None

    def _candidates(self, key: SessionKey) -> Iterable[Path]:
        if self._paths is None:
            paths: dict[str, list[Path]] = {}
            for root in self._roots:
                for path in _list(root):
                    paths.setdefault(path.stem, []).append(path)
            self._paths = paths
        if not self._paths:
            return ()
        return [path for stem in nanobot.stems(key) for path in self._paths.get(stem, ())]


# -- moving -----------------------------------------------------------------------------------


def migrate_file(
    directory: DataDirectory, source: Path, key: SessionKey, *, keep: bool = False
) -> Migrated | Skipped:
    """Makes the file the log of `key`, unless there is one.

    Raises SessionUnreadable, or StoreUnavailable if our own tree cannot be written. The source is
    then as it was.
    """
    try:
        return _migrate(directory, _read(source), key, keep=keep)
    except FileNotFoundError as error:
        raise SessionUnreadable(source, "there is no such file") from error


def _migrate(
    directory: DataDirectory,
    source: _Source,
    key: SessionKey,
    *,
    keep: bool,
    dry_run: bool = False,
) -> Migrated | Skipped:
    target = directory.live_path(key)
    if problem := _refusal(directory, source):
        return Skipped(key=str(key), path=source.shown, reason=problem)
    if os.path.lexists(target):
        return _finish(directory, source, target, key, keep=keep, dry_run=dry_run)
    made = nanobot.convert(
        source.data, key, name=source.name, modified=source.modified, epoch=directory.epoch
    )
    if dry_run:
        return Migrated(key=str(key), path=source.shown, rows=made.rows, damaged=made.damaged)
    try:
        _install(directory, target, made)
    except FileExistsError:
        return _ours_wins(source, key)
    except OSError as error:
        reason = f"{source.shown} cannot be migrated: {error.strerror or error}"
        raise StoreUnavailable(reason) from error
    left = "it was to be kept" if keep else _remove(source)
    logger.bind(
        session=str(key), rows=made.rows, damaged=made.damaged, file=source.name, left=left
    ).info("session migrated")
    return Migrated(
        key=str(key), path=source.shown, rows=made.rows, damaged=made.damaged, left=left
    )


def _refusal(directory: DataDirectory, source: _Source) -> str | None:
    found = nanobot.identify(source.data, source.path.stem)
    if found.unreadable:
        raise SessionUnreadable(source.path, found.problem or "")
    if source.path.resolve().is_relative_to(directory.path.resolve()):
        return "it lies in the data directory itself"
    return None if found.key else found.problem


def _ours_wins(source: _Source, key: SessionKey) -> Skipped:
    reason = "this session is here already; the other file was left alone"
    return Skipped(key=str(key), path=source.shown, reason=reason)


def _install(directory: DataDirectory, target: Path, made: nanobot.Converted) -> None:
    """The new log is in its place and durable on return. Raises FileExistsError: ours wins."""
    if made.aside:
        directory.put_aside(made.aside)
    disk.make_directory(target.parent)
    temporary = directory.temporary(target.name)
    try:
        disk.write_file(temporary, made.data)
        _link(temporary, target)
    finally:
        with contextlib.suppress(OSError):
            disk.unlink(temporary)
    _sync_entry(directory, target)


def _link(temporary: Path, target: Path) -> None:
    try:
        disk.link(temporary, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Nobody else writes into our tree: between the check and the rename nothing appears.
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from error
        disk.replace(temporary, target)


def _sync_entry(directory: DataDirectory, target: Path) -> None:
    # A crashed run may have made the channel's directory, so its entry is never taken for granted.
    disk.sync_directory(target.parent)
    disk.sync_directory(directory.sessions)


def _finish(
    directory: DataDirectory,
    source: _Source,
    target: Path,
    key: SessionKey,
    *,
    keep: bool,
    dry_run: bool,
) -> Migrated | Skipped:
    """There is a log of this session. If it was made from this very file, only the end is left."""
    try:
        ours = loader.load(disk.read_file(target))
    except OSError as error:
        raise SessionUnreadable(target, error.strerror or str(error)) from error
    if _origin(ours) != disk.digest(source.data):
        return _ours_wins(source, key)
    if keep:
        reason = "it has been migrated already"
        return Skipped(key=str(key), path=source.shown, reason=reason)
    if ours.damage or not ours.intact:
        reason = "it has been migrated already, but our file is damaged: see parley sessions verify"
        return Skipped(key=str(key), path=source.shown, reason=reason)
    done = Migrated(key=str(key), path=source.shown, rows=len(ours.records))
    if dry_run:
        return done
    try:
        _sync_entry(directory, target)
    except OSError as error:
        raise StoreUnavailable(f"{target} cannot be synced: {error.strerror or error}") from error
    if left := _remove(source):
        reason = f"it has been migrated already; {left}"
        return Skipped(key=str(key), path=source.shown, reason=reason)
    return done


def _origin(ours: loader.Loaded) -> str | None:
    value: object = ours.metadata
    for name in ("metadata", "parley", "origin", "sha256"):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def _remove(source: _Source) -> str | None:
    """Removes the source if it is still what was read. Returns why it is still there."""
    try:
        if not _same(source.info, os.lstat(source.path)):
            return "it has changed since it was read"
        disk.unlink(source.path)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"it cannot be removed: {error.strerror or error}"
    # If power takes this back, the next run finds the file and removes it again.
    with contextlib.suppress(OSError):
        disk.sync_directory(source.path.parent)
    return None


# -- whole directories ------------------------------------------------------------------------


class _Candidate(msgspec.Struct, frozen=True):
    key: SessionKey
    updated_at: str
    path: Path


def migrate_directory(
    directory: DataDirectory,
    root: Path,
    *,
    dry_run: bool = False,
    keep: bool = False,
    progress: Callable[[int, int], None] | None = None,
    migrated: Callable[[SessionKey], None] | None = None,
) -> Report:
    """Migrates every session file in `root` and one level deep; goes on past one that fails.

    Of several files of one session the newest is migrated; the others stay and are reported, as
    is everything else that stays. Raises SessionUnreadable if `root` itself cannot be listed.
    """
    root = Path(os.path.expanduser(root))
    if not root.is_dir():
        raise SessionUnreadable(root, "there is no such directory")
    return _Sweep(directory, dry_run, keep, migrated).run(_list(root), progress)


class _Sweep:
    def __init__(
        self,
        directory: DataDirectory,
        dry_run: bool,
        keep: bool,
        migrated: Callable[[SessionKey], None] | None,
    ) -> None:
        self.directory, self.dry_run, self.keep = directory, dry_run, keep
        self.migrated = migrated
        self.report = Report()
        self.candidates: dict[SessionKey, list[_Candidate]] = {}
        self.unreadable: dict[str, Path] = {}

    def run(self, paths: list[Path], progress: Callable[[int, int], None] | None) -> Report:
        for path in paths:
            self._sort(path)
        total = len(paths)
        done = total - sum(map(len, self.candidates.values()))
        for candidates in self.candidates.values():
            if progress is not None:
                progress(done, total)
            self._take(sorted(candidates, key=lambda one: (one.updated_at, one.path)))
            done += len(candidates)
        if progress is not None:
            progress(done, total)
        return self.report

    def _sort(self, path: Path) -> None:
        try:
            found = _identify(path)
        except FileNotFoundError:
            return
        except SessionUnreadable as error:
            self._fail(path, error.reason)
            self.unreadable[path.stem] = path
            return
        if found.key is None:
            self._skip(None, path, found.problem or "")
        else:
            candidate = _Candidate(found.key, found.updated_at, path)
            self.candidates.setdefault(found.key, []).append(candidate)

    def _take(self, candidates: list[_Candidate]) -> None:
        *older, newest = candidates
        for one in older:
            reason = f"{newest.path.name} is a newer file of this session"
            self._skip(one.key, one.path, reason)
        hidden = [self.unreadable.get(stem) for stem in nanobot.stems(newest.key)]
        if any(hidden):
            # What cannot be read may be newer, and would be shut out by this one.
            name = next(path.name for path in hidden if path)
            self._fail(newest.path, f"{name} may belong to this session and cannot be read")
            return
        try:
            self._move(newest)
        except FileNotFoundError:
            self._fail(newest.path, "it is gone")
        except SessionUnreadable as error:
            self._fail(newest.path, error.reason)
        except StoreUnavailable as error:
            self._fail(newest.path, str(error))

    def _move(self, one: _Candidate) -> None:
        source = _read(one.path)
        result = _migrate(self.directory, source, one.key, keep=self.keep, dry_run=self.dry_run)
        if isinstance(result, Migrated):
            self.report.migrated.append(result)
            if self.migrated is not None:
                self.migrated(one.key)
        else:
            self.report.skipped.append(result)

    def _skip(self, key: SessionKey | None, path: Path, reason: str) -> None:
        shown = None if key is None else str(key)
        self.report.skipped.append(Skipped(key=shown, path=_shown(path), reason=reason))

    def _fail(self, path: Path, reason: str) -> None:
        self.report.failed.append(Failed(path=_shown(path), reason=reason))
