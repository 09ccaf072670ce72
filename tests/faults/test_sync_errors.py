"""A sync fails. The kernel has dropped the bytes and will not say so again: the store stops."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from sessions import disk, loader
from sessions.errors import StoreReadOnly, StoreUnavailable
from sessions.record import Record, user
from sessions.session import Patch
from sessions.store_jsonl import JsonlStore
from tests.support.faulty_disk import FaultyDisk
from tests.support.recorded_disk import Recording, everything_unsynced_lost
from tests.support.stores import (
    CHAT,
    OTHER,
    answer,
    archive_file,
    ask,
    doomed,
    idle,
    live_file,
    opened,
    rows_of,
)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    return FaultyDisk(monkeypatch)


async def talk(store: JsonlStore) -> list[Record]:
    """Turns, metadata and caps on two sessions; what was acknowledged before the first refusal."""
    acknowledged: list[Record] = []
    try:
        for number in range(4):
            for key in (CHAT, OTHER):
                asked = await store.append(key, [user(f"q{number}", id=f"{number}")])
                acknowledged += asked.records if key == CHAT else []
                replied = await store.append(
                    key, [answer(asked.records[0].seq, text="a", turn=str(number))]
                )
                acknowledged += replied.records if key == CHAT else []
            await store.update(CHAT, Patch(title=f"{number}"))
            await idle(store)
    except StoreUnavailable:
        pass
    return acknowledged


async def test_every_sync_fails_once(tmp_path: Path, faulty: FaultyDisk) -> None:
    """Whichever sync fails, nothing acknowledged is lost, or the store says it is read-only."""
    number = total = 0
    while number <= total:
        path = tmp_path / str(number)
        store = JsonlStore(path, sync="turn", file_cap=6)
        await store.open()
        first, chosen = faulty.syncs, number
        faulty.failing_syncs = lambda now, at=first + chosen: now == at  # type: ignore[misc]
        acknowledged = await talk(store)
        failed = store._syncer.failure is not None
        if failed:
            with pytest.raises(StoreReadOnly):
                await store.append(CHAT, [user("refused")])
        shown = await rows_of(store, CHAT) if acknowledged else []
        flushed = await store.close()
        total = max(total, faulty.syncs - first)
        faulty.heal()
        async with opened(path) as again:
            kept = await rows_of(again, CHAT) if acknowledged else []

        assert shown[: len(acknowledged)] == kept[: len(acknowledged)] == acknowledged
        assert failed == (flushed.failed > 0)
        assert again.directory.clean is None or not failed
        number += 1
    assert total > 20


async def test_no_acknowledged_row_is_in_the_lost_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In turn mode a sync that fails and drops its bytes takes nothing that was acknowledged."""
    (tmp_path / "disk").mkdir()
    with Recording(tmp_path / "disk") as recording:
        async with doomed(tmp_path / "disk" / "data", sync="turn", file_cap=6) as store:
            acknowledged = await talk(store)
            with monkeypatch.context() as patch:
                patch.setattr(disk, "fdatasync", _fail)
                with pytest.raises(StoreReadOnly):
                    await store.append(CHAT, [user("unsynced")])
    everything_unsynced_lost(recording).lay_out(tmp_path / "later")
    async with opened(tmp_path / "later" / "data") as store:
        rows = await rows_of(store, CHAT)

    assert rows == acknowledged


def _fail(*_: Any) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("sync", ["interval", "none"])
async def test_a_failure_before_close_is_counted_by_close(
    sync: str, tmp_path: Path, faulty: FaultyDisk
) -> None:
    """A session whose sync has failed counts as failed at the end, and there is no CLEAN."""
    store = JsonlStore(tmp_path, sync=sync, sync_seconds=0)
    await store.open()
    await ask(store, CHAT, 1)
    faulty.fail_every_sync()
    first = await store.flush()
    faulty.heal()
    last = await store.close()

    assert first.failed == 1
    assert last.failed == 1
    assert not (tmp_path / "CLEAN").exists()


async def test_reads_go_on_when_writes_do_not(tmp_path: Path, faulty: FaultyDisk) -> None:
    """A read-only store answers every question it could answer before."""
    async with opened(tmp_path, sync="turn") as store:
        last = await ask(store, CHAT, 1)
        faulty.fail_every_sync()
        with pytest.raises(StoreReadOnly) as refusal:
            await store.append(CHAT, [user("refused")])
        rows = await rows_of(store, CHAT)
        listing = await store.find()
        view = await store.view(CHAT)
        faulty.heal()

    assert "read-only until a restart" in str(refusal.value)
    assert [row.seq for row in rows][:2] == [1, last]
    assert [info.key for info in listing.sessions] == [str(CHAT)]
    assert view is not None


async def test_a_failed_directory_sync_is_a_failed_sync(tmp_path: Path, faulty: FaultyDisk) -> None:
    """A file whose directory entry cannot be made durable was not acknowledged."""
    async with opened(tmp_path, sync="turn") as store:
        first = faulty.syncs
        faulty.failing_syncs = lambda number: number == first + 1
        with pytest.raises(StoreReadOnly):
            await store.append(CHAT, [user("new session")])

    assert not (tmp_path / "CLEAN").exists()


async def test_a_rename_that_may_not_last_stops_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rewritten file that is in place but perhaps not durable is not built upon."""
    async with opened(tmp_path, sync="interval", sync_seconds=3600, file_cap=4) as store:
        await ask(store, OTHER, 1)
        monkeypatch.setattr(disk, "sync_directory", _fail_once_archived(tmp_path))
        await ask(store, OTHER, 2)
        await idle(store)
        with pytest.raises(StoreReadOnly):
            await store.append(OTHER, [user("refused")])
        rows = await rows_of(store, OTHER)

    assert len(rows) == 4
    assert archive_file(tmp_path, OTHER).exists()


async def test_an_archive_that_failed_to_sync_is_not_trusted(
    tmp_path: Path, faulty: FaultyDisk
) -> None:
    """A second sync of the archive would lie, so rows never leave the live file for it."""
    async with opened(tmp_path, sync="none", file_cap=4) as store:
        faulty.fail_every_sync()
        await ask(store, OTHER, 1)
        await ask(store, OTHER, 2)
        await idle(store)
        faulty.heal()
        with pytest.raises(StoreReadOnly):
            await store.append(OTHER, [user("refused")])
    live = loader.load(live_file(tmp_path, OTHER).read_bytes())

    assert [row.seq for row in live.records] == [1, 2, 3, 4]


def _fail_once_archived(path: Path) -> Any:
    real = disk.sync_directory

    def sync(directory: Path) -> None:
        if archive_file(path, OTHER).exists() and directory.parent == path / "sessions":
            _fail()
        real(directory)

    return sync
