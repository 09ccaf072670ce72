"""A disk that runs full, writes by half, cannot take back what it wrote, or fails to sync."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sessions import disk

RESERVE_BYTES = 4096
"""What giving up the reserve makes room for."""


class FaultyDisk:
    """Stands in for the functions of `sessions.disk` until the test ends. At first all is well."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        """Bytes that still fit; None without end."""
        self.cannot_truncate = False
        self.failing_syncs: Callable[[int], bool] = lambda _: False
        """Which syncs fail with EIO, by their number from 0."""
        self.syncs = 0
        self._lock = threading.Lock()
        self._real: dict[str, Any] = {}
        for name in ("write", "ftruncate", "fdatasync", "sync_directory", "unlink"):
            self._real[name] = getattr(disk, name)
            monkeypatch.setattr(disk, name, getattr(self, f"_{name}"))

    def heal(self) -> None:
        self.room, self.cannot_truncate, self.failing_syncs = None, False, lambda _: False

    def fail_every_sync(self) -> None:
        self.failing_syncs = lambda _: True

    def _write(self, descriptor: int, data: bytes) -> int:
        if self.room is None:
            return int(self._real["write"](descriptor, data))
        fits = min(self.room, len(data))
        if not fits:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= fits
        return int(self._real["write"](descriptor, bytes(data)[:fits]))

    def _ftruncate(self, descriptor: int, size: int) -> None:
        if self.cannot_truncate:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        self._real["ftruncate"](descriptor, size)

    def _unlink(self, path: str) -> None:
        self._real["unlink"](path)
        if self.room is not None and os.path.basename(path) == "ballast":
            self.room += RESERVE_BYTES

    def _fdatasync(self, descriptor: int) -> None:
        self._count_sync()
        self._real["fdatasync"](descriptor)

    def _sync_directory(self, path: str) -> None:
        self._count_sync()
        self._real["sync_directory"](path)

    def _count_sync(self) -> None:
        with self._lock:
            number = self.syncs
            self.syncs += 1
        if self.failing_syncs(number):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
