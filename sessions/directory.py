"""The data directory: who owns it, how its last owner stopped, and where things lie in it.

    .lock        held by flock while a process owns the directory; who, since which boot, how synced
    CLEAN        written last by an owner that stopped with everything on the disk
    tmp/         files in the making; emptied at every start
    sessions/    the live logs          archive/     what the cap moved out of them
    quarantine/  damaged bytes, named by their hash; never deleted by us

An owner that finds no CLEAN of its predecessor knows that bytes may be in the page cache only. If
the machine was restarted since, bytes may be gone: the *epoch* is raised, and every session whose
log is of an older epoch skips a range of numbers, so that no cursor points past a lost message.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from sessions import clock, disk
from sessions.errors import StoreLocked, StoreRefused
from sessions.key import SessionKey

LOCK_TRIES = 3
LOCK_PAUSE_SECONDS = 0.05
BALLAST_BYTES = 4 * 1024 * 1024
NETWORK_FILE_SYSTEMS = frozenset(
    [
        "9p",
        "afs",
        "afpfs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fuse.davfs2",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "smb2",
        "smb3",
        "smbfs",
    ]
)
_OCTAL = re.compile(r"\\([0-7]{3})")


class Owner(msgspec.Struct, frozen=True):
    """What `.lock` and `CLEAN` hold."""

    pid: int = 0
    boot_id: str = ""
    sync: str = ""
    epoch: int = 0
    since: str = ""


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.sessions = self.path / "sessions"
        self.archive = self.path / "archive"
        self.quarantine = self.path / "quarantine"
        self.tmp = self.path / "tmp"
        self.ballast = self.path / "tmp" / "ballast"
        self.index = self.path / "index.sqlite"
        self.epoch = 0
        self.clean: Owner | None = None
        """What the predecessor left when it stopped; None after an unclean stop."""
        self.unclean = False
        """A predecessor may have left bytes that are not on the disk."""
        self._lock: int | None = None
        self._sync = ""

    # -- ownership ----------------------------------------------------------------------------

    def open(self, sync: str, *, allow_network: bool = False) -> None:
        """Raises StoreLocked or StoreRefused. Its cost does not depend on what is stored."""
        try:
            self._make()
            refuse_network(self.path, allow=allow_network)
            self._lock = self._take_lock()
            self._take_over(self._lock, sync)
        except OSError as error:
            self.release()
            raise StoreRefused(self.path, error.strerror or str(error)) from error
        except BaseException:
            self.release()
            raise

    def _make(self) -> None:
        """What is synced inside is lost all the same if the directory itself is not durable."""
        missing = [part for part in (self.path, *self.path.parents) if not part.exists()]
        disk.make_directory(self.path)
        # The last one even if it is there: a predecessor may have died after making it.
        for part in missing or [self.path]:
            with contextlib.suppress(PermissionError):
                disk.sync_directory(part.parent)

    def _take_lock(self) -> int:
        path = self.path / ".lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, disk.FILE_MODE)
        for tries_left in reversed(range(LOCK_TRIES)):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if tries_left:
                    # Somebody who only looks holds it for an instant; an owner holds it for long.
                    time.sleep(LOCK_PAUSE_SECONDS)
                    continue
                owner = _read_owner(path)
                os.close(descriptor)
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    raise StoreLocked(self.path, owner.pid if owner else None) from error
                raise
        return descriptor

    def _take_over(self, descriptor: int, sync: str) -> None:
        boot = boot_id()
        before = _read_owner(self.path / ".lock")
        self.clean = _read_owner(self.path / "CLEAN")
        self.epoch = before.epoch if before else 0
        used = before is not None or _has_entries(self.sessions)
        self.unclean = used and self.clean is None
        # Files without an owner were put here from a back-up: they too may be behind a cursor.
        lossy = before is None or (before.boot_id != boot and before.sync != "turn")
        if self.unclean and lossy:
            self.epoch = max(self.epoch + 1, int(time.time()))
        # What a laxer predecessor left unsynced can be lost as long as this owner runs.
        inherits = before is not None and self.unclean and not lossy and before.sync != "turn"
        self._sync = before.sync if before is not None and inherits else sync
        for directory in (self.sessions, self.archive, self.quarantine, self.tmp):
            disk.make_directory(directory)
        self._empty_tmp()
        self._write_lock(descriptor, boot)
        if self.clean is not None:
            disk.unlink(self.path / "CLEAN")
        disk.sync_directory(self.path)

    def _write_lock(self, descriptor: int, boot: str) -> None:
        owner = Owner(os.getpid(), boot, self._sync, self.epoch, clock.now())
        data = msgspec.json.encode(owner) + b"\n"
        # Padded, never shortened: a torn write must not make this directory look unused.
        os.pwrite(descriptor, data.ljust(512), 0)
        disk.fdatasync(descriptor)

    def _empty_tmp(self) -> None:
        for entry in os.scandir(self.tmp):
            if entry.is_file(follow_symlinks=False):
                disk.unlink(entry.path)

    def mark_lossy(self) -> None:
        """A sync has failed: whoever comes next must not trust what it reads to be on the disk."""
        if self._lock is not None and self._sync != "failed":
            self._sync = "failed"
            with contextlib.suppress(OSError):
                self._write_lock(self._lock, "")

    def mark_clean(self) -> None:
        """The last write of an owner that has everything on the disk."""
        owner = Owner(os.getpid(), boot_id(), self._sync, self.epoch, clock.now())
        path = self.temporary("CLEAN")
        disk.write_file(path, msgspec.json.encode(owner) + b"\n")
        disk.replace(path, self.path / "CLEAN")
        disk.sync_directory(self.path)

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def held(self) -> bool:
        return self._lock is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    # -- places -------------------------------------------------------------------------------

    def live_path(self, key: SessionKey) -> Path:
        return self._path(self.sessions, key)

    def archive_path(self, key: SessionKey) -> Path:
        """Goes with the live file: where the cap puts what leaves it."""
        return self.archive / key.directory / self.live_path(key).name

    def _path(self, root: Path, key: SessionKey) -> Path:
        path = root / key.directory / f"{key.stem}.jsonl"
        if self.folds_case:
            hashed = path.with_name(f"{key.hashed_stem}.jsonl")
            # A key that differs only in case has this file on this file system, or had it.
            if hashed.exists() or (path.exists() and not _entry_exists(path)):
                return hashed
        return path

    @property
    def folds_case(self) -> bool:
        if self._folds_case is None:
            self._folds_case = (self.path / ".LOCK").exists()
        return self._folds_case

    _folds_case: bool | None = None

    def temporary(self, name: str) -> Path:
        return self.tmp / f"{name[:80]}.{secrets.token_hex(8)}"

    def put_aside(self, data: bytes) -> str:
        """Keeps damaged bytes for ever, once: the name is their hash. Durable on return."""
        name = disk.digest(data)
        target = self.quarantine / name
        if not target.exists():
            path = self.temporary(name)
            disk.write_file(path, data)
            disk.replace(path, target)
        disk.sync_directory(self.quarantine)
        return name

    def key_of(self, path: Path, stored: list[str]) -> SessionKey | None:
        """Whose file this is: by its name if that tells, else by the keys stored inside."""
        named = SessionKey.from_file(path.parent.name, path.stem)
        if named is not None:
            return named
        for text in reversed(stored):
            key = parse_key(text)
            if key is not None and path.stem in (key.stem, key.hashed_stem):
                return key
        return None


def parse_key(text: str) -> SessionKey | None:
    try:
        return SessionKey.parse(text).chat
    except ValueError:
        return None


def _has_entries(path: Path) -> bool:
    try:
        with os.scandir(path) as entries:
            return any(entries)
    except FileNotFoundError:
        return False


def _entry_exists(path: Path) -> bool:
    with os.scandir(path.parent) as entries:
        return any(entry.name == path.name for entry in entries)


def _read_owner(path: Path) -> Owner | None:
    try:
        data = disk.read_file(path).strip(b" \n\0")
    except FileNotFoundError:
        return None
    if not data:
        return None
    try:
        return msgspec.json.decode(data, type=Owner)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # Unreadable is not unused: the safe reading is an unclean stop before another boot.
        return Owner() if path.name == ".lock" else None


def boot_id() -> str:
    """Changes with every start of the machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown-" + secrets.token_hex(8)


def refuse_network(path: Path, *, allow: bool = False, mounts: str | None = None) -> None:
    """A network file system keeps neither locks nor synced bytes as this store needs them."""
    kind = file_system(path, mounts)
    if kind in NETWORK_FILE_SYSTEMS and not allow:
        raise StoreRefused(
            path,
            f"it is on a network file system ({kind}), where locks and fsync are not reliable; "
            "move data_dir to a local disk, or allow it knowingly",
        )


def file_system(path: Path, mounts: str | None = None) -> str | None:
    """The type of the file system a path is on, by the system's table of mounts."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text(errors="replace")
        except OSError:
            return None
    real = os.path.realpath(path)
    best: tuple[int, str | None] = (-1, None)
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if len(fields) < 5 or not rest:
            continue
        mount = _OCTAL.sub(_octal, fields[4])
        inside = mount == "/" or f"{real}/".startswith(f"{mount}/")
        if inside and len(mount) >= best[0]:
            best = (len(mount), rest[0])
    return best[1]


def _octal(match: re.Match[str]) -> str:
    return chr(int(match[1], 8))


def owner_of(path: Path) -> dict[str, Any] | None:
    """Who holds a data directory right now; None if nobody does. Takes nothing."""
    try:
        descriptor = os.open(path / ".lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        owner = _read_owner(path / ".lock")
        return msgspec.to_builtins(owner) if owner else {}
    finally:
        os.close(descriptor)
    return None
