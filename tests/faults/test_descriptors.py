"""Who closes a descriptor, and when: a number that is given out again must not be synced."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from sessions import disk, index, syncer
from sessions.key import SessionKey
from sessions.record import user
from sessions.syncer import LogFile
from tests.support.stores import CHAT, OTHER, ask, idle, live_file, opened, rows_of


class SlowSync:
    """Holds the first syncs inside the call until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, held: int = 1) -> None:
        self.inside = [threading.Event() for _ in range(held)]
        self.go_on = [threading.Event() for _ in range(held)]
        self.synced: list[tuple[int, str, str]] = []
        """Every sync: the descriptor, and what it stood for before and after."""
        self.closed: list[int] = []
        self._close = disk.close
        monkeypatch.setattr(disk, "fdatasync", self._sync)
        monkeypatch.setattr(disk, "close", self._note_close)

    def _sync(self, descriptor: int) -> None:
        before = os.readlink(f"/proc/self/fd/{descriptor}")
        number = len(self.synced)
        if number < len(self.inside):
            self.inside[number].set()
            assert self.go_on[number].wait(30)
        after = os.readlink(f"/proc/self/fd/{descriptor}")
        self.synced.append((descriptor, before, after))

    def _note_close(self, descriptor: int) -> None:
        self.closed.append(descriptor)
        self._close(descriptor)


async def test_an_evicted_descriptor_stays_open_while_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file pushed out during its sync keeps its number until the sync has returned."""
    async with opened(tmp_path, sync_seconds=0, open_files=2) as store:
        await idle(store)
        slow = SlowSync(monkeypatch)
        await store.append(CHAT, [user("first")])
        session = await store.get(CHAT)
        assert session is not None
        descriptor = session.file.descriptor
        await asyncio.to_thread(slow.inside[0].wait, 30)
        for number in range(8):
            await store.append(SessionKey("websocket", str(number)), [user("push it out")])
        evicted = session.file.descriptor
        closed_meanwhile = list(slow.closed)
        held = os.readlink(f"/proc/self/fd/{descriptor}")
        slow.go_on[0].set()
        await store.flush()

    assert evicted == -1
    assert closed_meanwhile == []
    assert held == str(live_file(tmp_path, CHAT))
    assert all(before == after for _, before, after in slow.synced)
    assert slow.closed.count(descriptor) >= 1


async def test_a_deleted_session_keeps_its_number_while_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log deleted during its sync does not give its number to another file."""
    async with opened(tmp_path, sync_seconds=0) as store:
        slow = SlowSync(monkeypatch)
        await store.append(CHAT, [user("first")])
        await asyncio.to_thread(slow.inside[0].wait, 30)
        await store.delete(CHAT)
        for number in range(4):
            await store.append(SessionKey("websocket", str(number)), [user("another")])
        slow.go_on[0].set()
        flushed = await store.flush()

    [_, before, after] = slow.synced[0]
    assert after == f"{before} (deleted)"
    assert flushed.failed == 0


async def test_rows_written_during_a_sync_are_synced_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In turn mode an append that came during a sync waits for one that began after it."""
    async with opened(tmp_path, sync="turn") as store:
        await ask(store, OTHER, 1)
        slow = SlowSync(monkeypatch, held=2)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(store.append(CHAT, [user("first")]))
            await asyncio.to_thread(slow.inside[0].wait, 30)
            second = group.create_task(store.append(CHAT, [user("second")]))
            # The second append runs up to its wait for the disk.
            await asyncio.sleep(0)
            before = (first.done(), second.done())
            slow.go_on[0].set()
            await first
            await asyncio.to_thread(slow.inside[1].wait, 30)
            between = second.done()
            slow.go_on[1].set()

    assert before == (False, False)
    assert not between


async def test_few_descriptors_serve_many_sessions(tmp_path: Path) -> None:
    """The limit holds, and every session is written to its own file."""
    keys = [SessionKey("websocket", str(number)) for number in range(20)]
    async with opened(tmp_path, open_files=2, sync_seconds=0) as store:
        for number in range(3):
            for key in keys:
                await store.append(key, [user(f"{key} {number}")])
        open_files = (await store.stats()).open_files
        found = {key: [row.text for row in await rows_of(store, key)] for key in keys}

    assert open_files <= 2
    assert found == {key: [f"{key} {number}" for number in range(3)] for key in keys}


class _Evicted(LogFile):
    """Its descriptor is given up right after the first look at it."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.looks = [descriptor]
        self.path = path

    @property
    def descriptor(self) -> int:  # type: ignore[override]  # it counts
        return self.looks.pop() if self.looks else -1


def test_a_sync_looks_at_the_descriptor_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop may evict a file at any moment of its sync; that is no failed sync."""
    synced: list[int] = []
    monkeypatch.setattr(disk, "fdatasync", synced.append)
    syncer._sync_file(_Evicted(tmp_path / "log", 1234))

    assert synced == [1234]


def test_a_scan_that_stops_halfway_closes_its_directories(tmp_path: Path) -> None:
    """A store can be closed while its index compares files; a leak would be a warning here."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").touch()
    before = set(os.listdir("/proc/self/fd"))
    scan = index._files(tmp_path)
    next(scan)
    del scan

    assert set(os.listdir("/proc/self/fd")) == before
