"""The file operations of the log, one name each.

Everything that changes the disk goes through here. Tests record these calls, fail them, and
replay every prefix of them; nothing else in the package touches a file in another way.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import sys
from pathlib import Path

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700

write = os.write
ftruncate = os.ftruncate
fdatasync = os.fdatasync if hasattr(os, "fdatasync") else os.fsync
unlink = os.unlink
replace = os.replace
link = os.link
close = os.close


def open_append(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, FILE_MODE)


def create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, FILE_MODE)


def make_directory(path: Path) -> bool:
    """True if the directory is new; its entry in the parent is then not durable yet."""
    try:
        path.mkdir(mode=DIRECTORY_MODE, parents=True)
    except FileExistsError:
        return False
    return True


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[write(descriptor, view) :]


def write_file(path: Path, data: bytes) -> None:
    """A new file with this content, on the disk; its directory entry is not durable yet."""
    descriptor = create(path)
    try:
        write_all(descriptor, data)
        fdatasync(descriptor)
    finally:
        close(descriptor)


def open_read(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def read_file(path: Path) -> bytes:
    descriptor = open_read(path)
    with open(descriptor, "rb", buffering=0) as file:
        return file.read()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _load_syncfs() -> ctypes._NamedFuncPointer | None:
    # Before 5.8 the kernel's syncfs did not report write errors.
    if sys.platform != "linux" or _kernel() < (5, 8):
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is not None:
        function.argtypes, function.restype = [ctypes.c_int], ctypes.c_int
    return function


def _kernel() -> tuple[int, ...]:
    parts = os.uname().release.split("-")[0].split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())


_syncfs = _load_syncfs()
can_sync_filesystem = _syncfs is not None


def sync_filesystem(descriptor: int) -> None:
    """Makes everything written to the file system of this descriptor durable, in one call."""
    if _syncfs is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if _syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
