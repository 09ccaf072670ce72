"""A disk that remembers what was done to it, and every state a crash could have left it in.

`Recording` replaces the functions of `sessions.disk` by ones that do the work and write it down.
`crashes` replays every prefix of it on a model in which nothing lasts before its sync:

- the process dies: everything written so far stays, the last write may be torn;
- power is lost: unsynced bytes of a file are kept, dropped, torn or turned into zeros, and every
  unsynced directory entry (a new file, a rename, a removal) is there or not.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sessions import disk

MOST_SUBSETS = 4
"""With more unsynced entries than this, only prefixes and single ones are tried."""
INDEX = "index.sqlite"
TMP = "tmp"


@dataclass(frozen=True)
class Operation:
    kind: str
    path: str = ""
    """Relative to the recorded root; for `replace` and `link` the new name."""
    inode: int = 0
    offset: int = 0
    data: bytes = b""
    source: str = ""
    mark: Any = None


class Recording:
    """The operations below `root` while the context lasts, and the files as they were before."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.operations: list[Operation] = []
        self.before: dict[str, bytes | None] = {}
        """Content by name; None for a directory."""
        self._numbers = itertools.count(1)
        self._inodes: dict[int, int] = {}
        self._names: dict[str, int] = {}
        self._real: dict[str, Any] = {}
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        self.before = image(self.root)
        for name, data in self.before.items():
            if data is not None:
                self._know((self.root / name).stat().st_ino, name)
        for name in _RECORDED:
            self._real[name] = getattr(disk, name)
            setattr(disk, name, getattr(self, f"_{name}"))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for name, function in self._real.items():
            setattr(disk, name, function)

    def mark(self, value: Any) -> None:
        """What was acknowledged by now."""
        self._add(Operation("mark", mark=value))

    def of(self, kind: str) -> list[Operation]:
        return [operation for operation in self.operations if operation.kind == kind]

    # -- the functions of `sessions.disk` -------------------------------------------------------

    def _write(self, descriptor: int, data: bytes) -> int:
        with self._lock:
            status = os.fstat(descriptor)
            written: int = self._real["write"](descriptor, data)
            inode = self._inodes[status.st_ino]
            whole = bytes(data)[:written]
            self._add(Operation("write", inode=inode, offset=status.st_size, data=whole))
            return written

    def _ftruncate(self, descriptor: int, size: int) -> None:
        with self._lock:
            self._real["ftruncate"](descriptor, size)
            inode = self._inodes[os.fstat(descriptor).st_ino]
            self._add(Operation("truncate", inode=inode, offset=size))

    def _fdatasync(self, descriptor: int) -> None:
        with self._lock:
            self._real["fdatasync"](descriptor)
            self._add(Operation("sync", inode=self._inode(descriptor)))

    def _sync_filesystem(self, descriptor: int) -> None:
        with self._lock:
            self._real["sync_filesystem"](descriptor)
            self._add(Operation("sync_all"))

    def _open_append(self, path: Path) -> int:
        return self._open("open_append", path)

    def _create(self, path: Path) -> int:
        return self._open("create", path)

    def _open(self, function: str, path: Path) -> int:
        with self._lock:
            new = not os.path.lexists(path)
            descriptor: int = self._real[function](path)
            if new:
                inode = self._know(os.fstat(descriptor).st_ino, self._name(path))
                self._add(Operation("create", self._name(path), inode))
            return descriptor

    def _replace(self, source: Path, target: Path) -> None:
        with self._lock:
            self._real["replace"](source, target)
            self._move(source, target, "replace")
            self._names.pop(self._name(source), None)

    def _link(self, source: Path, target: Path) -> None:
        with self._lock:
            self._real["link"](source, target)
            self._move(source, target, "link")

    def _move(self, source: Path, target: Path, kind: str) -> None:
        inode = self._names[self._name(source)]
        self._names[self._name(target)] = inode
        self._add(Operation(kind, self._name(target), inode, source=self._name(source)))

    def _unlink(self, path: Path) -> None:
        with self._lock:
            self._real["unlink"](path)
            self._names.pop(self._name(path), None)
            self._add(Operation("unlink", self._name(path)))

    def _make_directory(self, path: Path) -> bool:
        with self._lock:
            missing = [part for part in (path, *path.parents) if not part.exists()]
            new: bool = self._real["make_directory"](path)
            for part in reversed(missing):
                self._add(Operation("mkdir", self._name(part)))
            return new

    def _sync_directory(self, path: Path) -> None:
        with self._lock:
            self._real["sync_directory"](path)
            self._add(Operation("sync_directory", self._name(path)))

    # -- names and inodes -----------------------------------------------------------------------

    def _add(self, operation: Operation) -> None:
        with self._lock:
            self.operations.append(operation)

    def _name(self, path: str | Path) -> str:
        return os.path.relpath(path, self.root)

    def _know(self, real: int, name: str) -> int:
        inode = next(self._numbers)
        self._inodes[real] = self._names[name] = inode
        return inode

    def _inode(self, descriptor: int) -> int:
        """The owner's file is written past `sessions.disk`: its sync shows what it holds."""
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.name == ".lock":
            name = self._name(path)
            if name not in self._names:
                self._add(Operation("create", name, self._know(os.fstat(descriptor).st_ino, name)))
            inode = self._names[name]
            self._add(Operation("write", inode=inode, data=path.read_bytes()))
            return inode
        return self._inodes[os.fstat(descriptor).st_ino]


_RECORDED = (
    "write",
    "ftruncate",
    "fdatasync",
    "sync_filesystem",
    "open_append",
    "create",
    "replace",
    "link",
    "unlink",
    "make_directory",
    "sync_directory",
)


def image(root: Path) -> dict[str, bytes | None]:
    """Every file and directory below, except the index, which is disposable."""
    found: dict[str, bytes | None] = {}
    for path in sorted(root.rglob("*")):
        if path.name.startswith(INDEX):
            continue
        found[str(path.relative_to(root))] = None if path.is_dir() else path.read_bytes()
    return found


# -- the model --------------------------------------------------------------------------------


@dataclass
class _File:
    durable: bytes = b""
    changes: list[Operation] = field(default_factory=list)

    def whole(self, torn: int | None = None) -> bytes:
        """After every change; of the last one only `torn` bytes."""
        content = self.durable
        for index, change in enumerate(self.changes):
            last = index == len(self.changes) - 1
            content = _changed(content, change, torn if last else None)
        return content


def _changed(content: bytes, change: Operation, torn: int | None = None) -> bytes:
    at = change.offset
    if change.kind == "truncate":
        return content[:at].ljust(at, b"\0")
    data = change.data[:torn]
    return content[:at].ljust(at, b"\0") + data + content[at + len(data) :]


@dataclass(frozen=True)
class _Entry:
    """One change of a directory: the name stands for this file now, or for nothing."""

    name: str
    inode: int | None
    directory: bool = False

    @property
    def parent(self) -> str:
        return str(Path(self.name).parent)


@dataclass(frozen=True)
class Crash:
    files: dict[str, bytes | None]
    acknowledged: Any
    """The last mark before the crash."""
    coming: Any
    """The first mark after it, if the work had gone on."""
    what: str

    def lay_out(self, root: Path) -> None:
        root.mkdir(parents=True)
        for name, data in sorted(self.files.items()):
            path = root / name
            if data is None:
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.write_bytes(data)

    def identity(self) -> tuple[Any, ...]:
        """Equal for crashes nobody can tell apart; temporaries are thrown away at every start."""
        kept = [
            (name, data)
            for name, data in sorted(self.files.items())
            if TMP not in Path(name).parent.parts
        ]
        return (*kept, id(self.acknowledged), id(self.coming))


class _Model:
    def __init__(self, recording: Recording) -> None:
        self.files: dict[int, _File] = {}
        self.entries: dict[str, int | None] = {}
        """Durable names: a file by its number, a directory by None."""
        self.pending: list[_Entry] = []
        for number, (name, data) in enumerate(recording.before.items()):
            self.entries[name] = None if data is None else -1 - number
            if data is not None:
                self.files[-1 - number] = _File(data)
        self._initial = {name: inode for name, inode in self.entries.items() if inode is not None}
        self._numbers: dict[int, int] = {}
        # Files that were there before have numbers of the recording too, in the same order.
        for number, name in enumerate(self._initial, 1):
            self._numbers[number] = self._initial[name]

    def _file(self, inode: int) -> int:
        return self._numbers.get(inode, inode)

    def apply(self, operation: Operation) -> None:
        match operation.kind:
            case "write" | "truncate":
                self.files[self._file(operation.inode)].changes.append(operation)
            case "create":
                self.files[operation.inode] = _File()
                self.pending.append(_Entry(operation.path, operation.inode))
            case "mkdir":
                self.pending.append(_Entry(operation.path, None, directory=True))
            case "replace":
                self.pending.append(_Entry(operation.path, self._file(operation.inode)))
                self.pending.append(_Entry(operation.source, None))
            case "link":
                self.pending.append(_Entry(operation.path, self._file(operation.inode)))
            case "unlink":
                self.pending.append(_Entry(operation.path, None))
            case "sync":
                self._sync(self.files[self._file(operation.inode)])
            case "sync_directory":
                self._settle([entry for entry in self.pending if entry.parent == operation.path])
            case "sync_all":
                for file in self.files.values():
                    self._sync(file)
                self._settle(list(self.pending))

    @staticmethod
    def _sync(file: _File) -> None:
        file.durable, file.changes = file.whole(), []

    def _settle(self, entries: list[_Entry]) -> None:
        self.entries = _after(self.entries, entries)
        settled = {id(entry) for entry in entries}
        self.pending = [entry for entry in self.pending if id(entry) not in settled]

    def names(self, entries: Iterable[_Entry]) -> dict[str, int | None]:
        """What can be reached: a file below a directory that is not there is not there."""
        names = _after(self.entries, entries)
        return {
            name: inode
            for name, inode in names.items()
            if all(str(parent) in names for parent in Path(name).parents if str(parent) != ".")
        }

    def content(
        self, entries: Iterable[_Entry], read: Callable[[int, _File], bytes]
    ) -> dict[str, bytes | None]:
        return {
            name: None if inode is None else read(inode, self.files[inode])
            for name, inode in self.names(entries).items()
        }

    def unsynced(self) -> list[int]:
        reachable = set(self.names(self.pending).values())
        return [inode for inode, file in self.files.items() if file.changes and inode in reachable]


def _after(names: dict[str, int | None], entries: Iterable[_Entry]) -> dict[str, int | None]:
    found = dict(names)
    for entry in entries:
        if entry.inode is None and not entry.directory:
            found.pop(entry.name, None)
        else:
            found[entry.name] = entry.inode
    return found


# -- crashes ----------------------------------------------------------------------------------


def process_deaths(recording: Recording) -> Iterator[Crash]:
    """The kernel keeps what it was given. A write in progress may have been cut anywhere."""
    return _distinct(_each_moment(recording, _death))


def power_losses(recording: Recording) -> Iterator[Crash]:
    return _distinct(_each_moment(recording, _loss))


def everything_unsynced_lost(recording: Recording) -> Crash:
    """Power goes at the end of the recording, and takes all it can."""
    model = _Model(recording)
    for operation in recording.operations:
        model.apply(operation)
    return Crash(model.content([], lambda _, file: file.durable), None, None, "all lost")


def _distinct(found: Iterable[Crash]) -> Iterator[Crash]:
    seen = set()
    for crash in found:
        identity = hash(crash.identity())
        if identity not in seen:
            seen.add(identity)
            yield crash


def _each_moment(
    recording: Recording,
    states: Callable[[_Model, Operation], Iterator[tuple[str, dict[str, bytes | None]]]],
) -> Iterator[Crash]:
    model = _Model(recording)
    marks = [operation for operation in recording.operations if operation.kind == "mark"]
    acknowledged = None
    for number, operation in enumerate(recording.operations):
        if operation.kind == "mark":
            acknowledged = marks.pop(0).mark
            continue
        model.apply(operation)
        coming = marks[0].mark if marks else acknowledged
        for what, files in states(model, operation):
            yield Crash(files, acknowledged, coming, f"{number} {operation.kind}: {what}")


def _death(model: _Model, operation: Operation) -> Iterator[tuple[str, dict[str, bytes | None]]]:
    if operation.kind == "write":
        inode = model._file(operation.inode)
        for torn in cuts(operation.data):

            def read(number: int, file: _File, torn: int = torn, inode: int = inode) -> bytes:
                return file.whole(torn=torn) if number == inode else file.whole()

            yield f"torn at {torn}", model.content(model.pending, read)
    yield "whole", model.content(model.pending, lambda _, file: file.whole())


def _loss(model: _Model, operation: Operation) -> Iterator[tuple[str, dict[str, bytes | None]]]:
    for entries in _subsets(model.pending):
        shown = f"{len(entries)} of {len(model.pending)} entries"
        yield f"kept, {shown}", model.content(entries, lambda _, file: file.whole())
        yield f"dropped, {shown}", model.content(entries, lambda _, file: file.durable)
        yield (
            f"zeros, {shown}",
            model.content(entries, lambda _, file: _zeros(file, len(file.durable))),
        )
    for inode in model.unsynced():
        file = model.files[inode]
        for torn in cuts(file.changes[-1].data):
            part = file.whole(torn=torn)
            for what, data in (("torn", part), ("zeros", part.ljust(len(file.whole()), b"\0"))):

                def read(number: int, file: _File, inode: int = inode, data: bytes = data) -> bytes:
                    return data if number == inode else file.whole()

                yield f"{what} at {len(part)}", model.content(model.pending, read)


def _zeros(file: _File, at: int) -> bytes:
    return file.whole()[:at].ljust(len(file.whole()), b"\0")


def cuts(data: bytes) -> list[int]:
    """Offsets worth trying: around every line end, in the middle of lines, after one byte."""
    ends = [index + 1 for index, byte in enumerate(data) if byte == 10]
    starts = [0, *ends]
    middles = [(a + b) // 2 for a, b in itertools.pairwise(starts)]
    around = [end - 1 for end in ends]
    wanted = {1, *middles, *around, *ends[:-1], len(data) - 1}
    return sorted(cut for cut in wanted if 0 < cut < len(data))


def _subsets(entries: list[_Entry]) -> Iterator[list[_Entry]]:
    if len(entries) <= MOST_SUBSETS:
        for size in range(len(entries) + 1):
            yield from map(list, itertools.combinations(entries, size))
        return
    for size in range(len(entries) + 1):
        yield entries[:size]
    for entry in entries:
        yield [entry]
        yield [other for other in entries if other is not entry]
