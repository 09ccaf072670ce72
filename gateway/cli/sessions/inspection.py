"""What is wrong with the files of a data directory. Reads everything, changes nothing.

A file is whole if loading it would leave it as it is: `verify` finds nothing exactly where
`repair` has nothing to do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gateway.cli.sessions.library import Library, Progress, Unreadable
from sessions import disk, loader
from sessions.directory import owner_of
from sessions.key import SessionKey
from sessions.salvage import Damage
from sessions.session import read_state

MOST_READS = 5
READ_AGAIN_SECONDS = 0.1


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    key: str | None
    path: str
    reason: str
    line: int | None = None
    offset: int | None = None
    size: int = 0
    """Bytes that would be put aside."""


class Checked(msgspec.Struct, frozen=True):
    """A log file, read."""

    path: Path
    key: SessionKey | None
    found: loader.Loaded
    size: int
    problems: list[Problem]
    archived: int = 0
    """Rows up to this number should be in the archive."""

    @property
    def last_seq(self) -> int:
        return self.found.records[-1].seq if self.found.records else 0


class Stop(msgspec.Struct, frozen=True):
    """How the directory's last owner left it: clean, unclean, running or unused."""

    state: str
    pid: int | None = None


class Inspection(msgspec.Struct):
    stop: Stop
    sessions: int = 0
    archives: int = 0
    bytes: int = 0
    quarantined: int = 0
    damaged: list[Problem] = []
    unreadable: list[Unreadable] = []
    strangers: list[Unreadable] = []
    """Files nobody reads; no harm, but perhaps not where they should be."""

    @property
    def ok(self) -> bool:
        return not self.damaged and not self.unreadable


class Inspector:
    def __init__(self, library: Library, stop: Stop | None = None) -> None:
        self.library = library
        self.directory = library.directory
        self.stop = stop or _stop(self.directory.path)

    def inspect(self, progress: Progress) -> Inspection:
        result = Inspection(self.stop, damaged=[], unreadable=self.library.unreadable, strangers=[])
        for checked, is_archive in self.files(progress):
            result.sessions += not is_archive
            result.archives += is_archive
            result.bytes += checked.size
            result.damaged += checked.problems
        result.strangers = list(self._strangers())
        result.quarantined = _count(self.directory.quarantine)
        return result

    def files(self, progress: Progress) -> Iterator[tuple[Checked, bool]]:
        """Every live file, then every archive: a row that moves meanwhile is not missed.

        What cannot be read is noted in the library.
        """
        live = self.library.paths(self.directory.sessions)
        archives = self.library.paths(self.directory.archive)
        total = len(live) + len(archives)
        reach: dict[tuple[str, str], Checked] = {}
        for done, path in enumerate(live):
            progress(done, total)
            checked = self.check_live(path)
            if checked is not None:
                reach[_place(path)] = checked
                yield checked, False
        known = {_place(path) for path in live}
        for done, path in enumerate(archives, len(live)):
            progress(done, total)
            owner = reach.pop(_place(path), None)
            checked = self.check_archive(path, owner, orphan=_place(path) not in known)
            if checked is not None:
                yield checked, True
        progress(total, total)
        for place, owner in reach.items():
            if owner.archived and owner.key is not None:
                path = self.directory.archive.joinpath(*place)
                reason = f"it is missing; rows up to {owner.archived} were in it"
                problem = self._problem(owner.key, path, reason)
                yield Checked(path, owner.key, loader.Loaded([], None), 0, [problem]), True

    def check_live(self, path: Path) -> Checked | None:
        """None if the file is gone or cannot be read."""
        read = self._read(path)
        if read is None:
            return None
        data, found = read
        key = self.directory.key_of(path, found.keys)
        problems = self._damage(key, path, data, found)
        if key is None:
            reason = "neither its name nor its lines tell whose it is"
            self.library.unreadable.append(Unreadable(self.library.shown(path), reason))
        elif self.directory.live_path(key) != path:
            reason = f"another file is the log of {key}; this one is not read"
            problems.append(self._problem(key, path, reason))
        return Checked(path, key, found, len(data), problems, _archived(found))

    def check_archive(self, path: Path, owner: Checked | None, *, orphan: bool) -> Checked | None:
        read = self._read(path)
        if read is None:
            return None
        data, found = read
        key = owner.key if owner is not None else self.directory.key_of(path, found.keys)
        problems = self._damage(key, path, data, found)
        checked = Checked(path, key, found, len(data), problems)
        if orphan:
            reason = "its session is gone: bring the live log back, or move this file away"
            problems.append(self._problem(key, path, reason))
        elif owner is not None and checked.last_seq < owner.archived:
            reason = f"it ends at row {checked.last_seq}; rows up to {owner.archived} were in it"
            problems.append(self._problem(key, path, reason))
        return checked

    def _read(self, path: Path) -> tuple[bytes, loader.Loaded] | None:
        """Under a running daemon a file counts as damaged only if it stays so."""
        try:
            data = disk.read_file(path)
            found = loader.load(data)
            tries = MOST_READS if self.stop.state == "running" else 0
            while tries and (found.damage or not found.intact):
                time.sleep(READ_AGAIN_SECONDS)
                data = disk.read_file(path)
                found = loader.load(data)
                tries -= 1
            return data, found
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = error.strerror or str(error)
            self.library.unreadable.append(Unreadable(self.library.shown(path), reason))
            return None

    def _damage(
        self, key: SessionKey | None, path: Path, data: bytes, found: loader.Loaded
    ) -> list[Problem]:
        problems = []
        for damage in found.damage:
            line, offset = _position(data, damage)
            size = len(damage.data)
            problems.append(self._problem(key, path, damage.reason, line, offset, size))
        if found.missing_newline:
            line = data.count(b"\n") + 1
            problems.append(self._problem(key, path, "no newline at the end", line, len(data)))
        if found.rows is not None and not problems:
            lines = "its lines are not as we write them"
            reason = f"{found.recovered} lines can be mended" if found.recovered else lines
            problems.append(self._problem(key, path, reason))
        return problems

    def _problem(
        self,
        key: SessionKey | None,
        path: Path,
        reason: str,
        line: int | None = None,
        offset: int | None = None,
        size: int = 0,
    ) -> Problem:
        return Problem(
            key=None if key is None else str(key),
            path=self.library.shown(path),
            reason=reason,
            line=line,
            offset=offset,
            size=size,
        )

    def _strangers(self) -> Iterator[Unreadable]:
        for root in (self.directory.sessions, self.directory.archive):
            for entry in _scan(root):
                if not entry.is_dir(follow_symlinks=False):
                    yield self._stranger(entry, legacy=entry.name.endswith(".jsonl"))
                    continue
                for inner in _scan(entry.path):
                    if not inner.name.endswith(".jsonl"):
                        yield self._stranger(inner)

    def _stranger(self, entry: os.DirEntry[str], *, legacy: bool = False) -> Unreadable:
        reason = "it is not a session of ours"
        if legacy:
            reason = "it may be a session of another program: move it out, then migrate --from"
        return Unreadable(self.library.shown(Path(entry.path)), reason)


def inspection_object(found: Inspection) -> dict[str, Any]:
    return {"ok": found.ok, **msgspec.to_builtins(found)}


def _stop(path: Path) -> Stop:
    owner = owner_of(path)
    if owner is not None:
        return Stop("running", owner.get("pid"))
    if not (path / ".lock").exists():
        return Stop("unused")
    return Stop("clean" if (path / "CLEAN").exists() else "unclean")


def _place(path: Path) -> tuple[str, str]:
    return path.parent.name, path.name


def _archived(found: loader.Loaded) -> int:
    inner = (found.metadata or {}).get("metadata")
    return read_state(inner.get("parley")).archived.seq if isinstance(inner, dict) else 0


def _position(data: bytes, damage: Damage) -> tuple[int | None, int | None]:
    """The line and the byte where the damage begins; a line that was moved is looked for."""
    whole = damage.data.rstrip(b"\n")
    offset = damage.offset if data.startswith(whole, damage.offset) else data.find(whole)
    return (None, None) if offset < 0 else (data.count(b"\n", 0, offset) + 1, offset)


def _scan(path: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _count(path: Path) -> int:
    return len(_scan(path))
