"""The data directory: whether it can be used, who uses it, and what is in it."""

from __future__ import annotations

import os
import shutil
import stat
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gateway.doctor.check import Facts, Result, fail, ok, warn
from sessions import disk
from sessions.directory import NETWORK_FILE_SYSTEMS, file_system

LEAST_FREE_BYTES = 64 * 1024 * 1024
LITTLE_FREE_BYTES = 1024 * 1024 * 1024
VERIFY_SECONDS = 5.0
SYNCS = 5
SYNC_BYTES = 4096
SLOW_SYNC_SECONDS = 0.1
PRIVATE = ("secret", "admin-token", "tokens.json", "logins.json", "admin.sock")

_PROMISES = {
    "none": "a power failure may take what was not yet written by the system",
    "interval": "a power failure takes at most the last {seconds:g} s and one sync",
    "turn": "a power failure takes nothing that was acknowledged",
}


def place(facts: Facts) -> Iterator[Result]:
    path, name = facts.data_dir, "data directory"
    if not facts.keeps_files:
        yield warn("storage", "memory: nothing is kept", 'set storage.url to "jsonl:"')
        return
    if path.exists() and not path.is_dir():
        yield fail(name, f"{path} is not a directory", "name another one in data_dir")
        return
    nearest = next(part for part in (path, *path.absolute().parents) if part.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        yield fail(name, f"{nearest} cannot be written", f"chown it to user {os.geteuid()}")
    elif not path.exists():
        yield ok(name, f"{path} is made by the first start")
    elif path.stat().st_mode & 0o007:
        mode = stat.S_IMODE(path.stat().st_mode)
        yield warn(name, f"{path} is open to everybody ({mode:o})", f"chmod 700 {path}")
    else:
        yield ok(name, f"{path} can be written")
    yield _space(nearest)
    yield _file_system(facts, nearest)


def _space(path: Path) -> Result:
    free = shutil.disk_usage(path).free
    shown = f"{free / 1024**3:.1f} GiB free" if free >= 1024**3 else f"{free >> 20} MiB free"
    fix = "make room, or move data_dir to a larger disk"
    if free < LEAST_FREE_BYTES:
        return fail("disk space", shown, fix)
    return warn("disk space", shown, fix) if free < LITTLE_FREE_BYTES else ok("disk space", shown)


def _file_system(facts: Facts, path: Path) -> Result:
    kind = file_system(path) or "unknown"
    if kind not in NETWORK_FILE_SYSTEMS:
        return ok("file system", kind)
    detail = f"{kind} is a network file system: its locks and syncs are not reliable"
    fix = "move data_dir to a local disk"
    allowed = facts.settings.storage.allow_network
    return warn("file system", detail, fix) if allowed else fail("file system", detail, fix)


def owner(facts: Facts) -> Iterator[Result]:
    lock = facts.data_dir / ".lock"
    if not facts.keeps_files or not lock.exists():
        return
    if facts.owner is not None:
        yield _holder(facts)
    elif (facts.data_dir / "CLEAN").exists():
        yield ok("last stop", "clean")
    else:
        yield warn("last stop", "not clean", "nothing: the next start sees to it")


def _holder(facts: Facts) -> Result:
    from gateway.cli.admin import RunningGateway

    who = f"process {facts.owner}" if facts.owner else "another process"
    if RunningGateway(facts.data_dir).listens:
        return ok("owner", f"{who}, a running gateway")
    detail = f"{who} holds the directory and has no admin socket"
    fix = "wait if it is a parley command or a gateway that starts; else look at that process"
    return warn("owner", detail, fix)


def sessions(facts: Facts) -> Iterator[Result]:
    """Looks at as many files as there is time for."""
    if not facts.keeps_files or not (facts.data_dir / "sessions").is_dir():
        return
    from gateway.cli.sessions.inspection import Inspector
    from gateway.cli.sessions.library import Library

    reached = [0, 0]

    def progress(done: int, total: int) -> None:
        reached[:] = done, total

    library = Library.at(facts.data_dir)
    deadline = time.monotonic() + VERIFY_SECONDS
    damaged = seen = 0
    for checked, _ in Inspector(library).files(progress):
        seen += 1
        damaged += bool(checked.problems)
        if time.monotonic() > deadline:
            break
    scope = f"{seen:,} of {max(seen, reached[1]):,} files"
    damaged += len(library.unreadable)
    if damaged:
        fix = "parley sessions verify names them, parley sessions repair mends them"
        yield fail("sessions", f"{damaged:,} damaged or unreadable in {scope}", fix)
    else:
        yield ok("sessions", f"{scope} looked at, all whole")
    kept = _count(facts.data_dir / "quarantine")
    if kept:
        fix = "look at them, then move them away; docs/storage.md"
        yield warn("quarantine", f"{kept:,} damaged pieces are kept", fix)
    else:
        yield ok("quarantine", "empty")


def _count(path: Path) -> int:
    try:
        with os.scandir(path) as entries:
            return sum(1 for _ in entries)
    except OSError:
        return 0


def secrets(facts: Facts) -> Iterator[Result]:
    found = [facts.data_dir / name for name in PRIVATE if (facts.data_dir / name).exists()]
    wide = [path for path in found if path.stat().st_mode & 0o077]
    for path in wide:
        mode = stat.S_IMODE(path.stat().st_mode)
        yield fail("secrets", f"{path} can be read by others ({mode:o})", f"chmod 600 {path}")
    if not wide:
        names = ", ".join(path.name for path in found)
        yield ok("secrets", f"only their owner can read {names}" if names else "none yet")


def latency(facts: Facts) -> Iterator[Result]:
    storage = facts.settings.storage
    promise = _PROMISES[storage.sync].format(seconds=storage.sync_seconds)
    working = facts.data_dir / "tmp"
    if not facts.keeps_files or not os.access(working, os.W_OK):
        return
    seconds = _sync_seconds(working)
    detail = f"{seconds * 1000:.1f} ms; sync {storage.sync}: {promise}"
    if seconds > SLOW_SYNC_SECONDS:
        yield warn("disk sync", detail, "a slow disk; expect waiting with sync: turn")
    else:
        yield ok("disk sync", detail)


def _sync_seconds(directory: Path) -> float:
    taken = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(SYNCS):
            file.write(bytes(SYNC_BYTES))
            started = time.perf_counter()
            disk.fdatasync(file.fileno())
            taken.append(time.perf_counter() - started)
    return statistics.median(taken)
