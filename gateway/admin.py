"""`<data_dir>/admin.sock`: where the owner of the data directory takes the operator's commands.

Whoever may open the socket is an administrator: its mode is 0600, and the kernel says who is at the
other end. Only the process that holds the directory's lock makes it, so there is one at a time, and
one that is there already was left behind by a process that died.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

NAME = "admin.sock"
MODE = 0o600
BACKLOG = 64
MAX_PATH_BYTES = 107
"""What fits into a socket's address."""


@contextlib.contextmanager
def address(directory: Path) -> Iterator[str]:
    """A name of the socket in this directory that is short enough, good inside the context."""
    path = str(directory / NAME)
    if len(os.fsencode(path)) <= MAX_PATH_BYTES:
        yield path
        return
    if not hasattr(os, "O_PATH"):
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)


def listen(data_dir: Path) -> socket.socket:
    """Raises OSError. The socket is seen only once its mode is right and it accepts."""
    target = data_dir / NAME
    if target.exists() and not stat.S_ISSOCK(target.stat().st_mode):
        raise FileExistsError(errno.EEXIST, "something else has this name", str(target))
    working = data_dir / "tmp"
    (working / NAME).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address(working) as name:
            listening.bind(name)
        (working / NAME).chmod(MODE)
        listening.listen(BACKLOG)
        (working / NAME).replace(target)
    except BaseException:
        listening.close()
        raise
    return listening


def remove(data_dir: Path) -> None:
    """While the directory is still ours: a successor's socket must stay."""
    with contextlib.suppress(OSError):
        (data_dir / NAME).unlink()


def connect(data_dir: Path) -> socket.socket | None:
    """None if nobody listens there, or not to us."""
    talking = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address(data_dir) as name:
            talking.connect(name)
    except OSError:
        talking.close()
        return None
    return talking


def is_ours(talking: socket.socket) -> bool:
    """Whether the process at the other end runs as our own user, or as root."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True
    kind = struct.Struct("3i")
    found = talking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, kind.size)
    _, user, _ = kind.unpack(found)
    return user in (0, os.geteuid())
