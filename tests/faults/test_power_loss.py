"""Power is lost: unsynced bytes are gone, and cursors from before must not skip what follows."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from sessions import directory
from sessions.errors import SessionNotFound, StoreUnavailable
from sessions.record import user
from sessions.session import SEQ_SKIP
from sessions.store_jsonl import JsonlStore
from tests.support.faulty_disk import FaultyDisk
from tests.support.recorded_disk import Recording, everything_unsynced_lost, power_losses
from tests.support.stores import (
    CHAT,
    OTHER,
    abandon,
    ask,
    doomed,
    idle,
    never_wait_for_the_disk,
    opened,
    rows_of,
)


def restart_the_machine(monkeypatch: pytest.MonkeyPatch, number: int = 1) -> None:
    monkeypatch.setattr(directory, "boot_id", lambda: f"boot {number}")


def lose_power(recording: Recording, root: Path) -> Path:
    everything_unsynced_lost(recording).lay_out(root)
    return root / "data"


async def test_an_old_cursor_finds_what_is_appended_after_a_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows a reader has seen are lost; new rows get numbers above those it has seen."""
    (tmp_path / "disk").mkdir()
    with Recording(tmp_path / "disk") as recording:
        async with doomed(tmp_path / "disk" / "data", sync_seconds=3600) as store:
            await store.append(CHAT, [user("kept")])
            await store.flush()
            await ask(store, CHAT, 1)
            seen = await ask(store, CHAT, 2)
    path = lose_power(recording, tmp_path / "later")
    restart_the_machine(monkeypatch)
    async with opened(path) as store:
        left = await rows_of(store, CHAT)
        [record] = (await store.append(CHAT, [user("after the loss")])).records
        page = await store.read(CHAT, after=seen)

    assert [row.content for row in left] == ["kept"]
    assert page.records == [record]
    assert record.seq == left[-1].seq + 1 + SEQ_SKIP


async def test_no_numbers_are_skipped_in_turn_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With sync: turn nothing that was shown can be lost, so nothing is skipped."""
    async with doomed(tmp_path, sync="turn") as store:
        last = await ask(store, CHAT, 1)
    restart_the_machine(monkeypatch)
    async with opened(tmp_path, sync="turn") as store:
        [record] = (await store.append(CHAT, [user("next")])).records

    assert record.seq == last + 1


async def test_no_numbers_are_skipped_after_process_death(tmp_path: Path) -> None:
    """The kernel keeps what a dead process wrote: nothing is lost, nothing skipped."""
    async with doomed(tmp_path) as store:
        last = await ask(store, CHAT, 1)
    async with opened(tmp_path) as store:
        [record] = (await store.append(CHAT, [user("next")])).records

    assert record.seq == last + 1


async def test_no_numbers_are_skipped_after_a_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean stop had everything on the disk, whatever happens to the machine afterwards."""
    async with opened(tmp_path) as store:
        last = await ask(store, CHAT, 1)
    restart_the_machine(monkeypatch)
    async with opened(tmp_path) as store:
        [record] = (await store.append(CHAT, [user("next")])).records

    assert record.seq == last + 1


async def test_a_session_skips_even_if_it_is_touched_much_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is remembered per session: clean restarts in between change nothing."""
    async with doomed(tmp_path) as store:
        await ask(store, CHAT, 1)
        last = await ask(store, OTHER, 1)
    restart_the_machine(monkeypatch)
    async with opened(tmp_path) as store:
        await store.append(CHAT, [user("touched at once")])
    restart_the_machine(monkeypatch, 2)
    async with opened(tmp_path) as store:
        [record] = (await store.append(OTHER, [user("touched late")])).records
        [again] = (await store.append(CHAT, [user("no second skip")])).records

    assert record.seq == last + 1 + SEQ_SKIP
    assert again.seq == last + 2 + SEQ_SKIP


async def test_a_crash_does_not_forget_the_skip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that dies right after the loss leaves the skip to its successor."""
    async with doomed(tmp_path) as store:
        last = await ask(store, CHAT, 1)
    restart_the_machine(monkeypatch)
    async with doomed(tmp_path) as store:
        await store.get(CHAT)
    async with opened(tmp_path) as store:
        [record] = (await store.append(CHAT, [user("next")])).records

    assert record.seq == last + 1 + SEQ_SKIP


async def test_a_stricter_successor_still_skips(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What sync: interval left unsynced can be lost while a successor with sync: turn runs."""
    async with doomed(tmp_path, sync="interval") as store:
        last = await ask(store, CHAT, 1)
    async with doomed(tmp_path, sync="turn") as store:
        await ask(store, OTHER, 1)
    restart_the_machine(monkeypatch)
    async with opened(tmp_path, sync="turn") as store:
        [record] = (await store.append(CHAT, [user("next")])).records

    assert record.seq == last + 1 + SEQ_SKIP


async def test_an_unclean_predecessor_is_synced_before_clean_is_written(tmp_path: Path) -> None:
    """Files nobody loaded since the crash are on the disk too before CLEAN says so."""
    (tmp_path / "disk").mkdir()
    data = tmp_path / "disk" / "data"
    with Recording(tmp_path / "disk") as recording:
        async with doomed(data, sync_seconds=3600) as store:
            last = await ask(store, CHAT, 1)
        async with opened(data, sync_seconds=3600) as store:
            await store.append(OTHER, [user("another session")])
    path = lose_power(recording, tmp_path / "later")
    async with opened(path) as store:
        rows = await rows_of(store, CHAT)

    assert store.directory.clean is not None
    assert rows[-1].seq == last


@pytest.mark.parametrize("sync", ["interval", "turn"])
async def test_a_failed_sync_counts_as_a_loss(
    sync: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed sync nobody knows what the disk has: numbers that were seen are skipped."""
    faulty = FaultyDisk(monkeypatch)
    store = JsonlStore(tmp_path, sync=sync, sync_seconds=0)
    await store.open()
    last = await ask(store, CHAT, 1)
    faulty.fail_every_sync()
    with contextlib.suppress(StoreUnavailable):
        await store.append(CHAT, [user("unsynced")])
    await store.flush()
    await abandon(store)
    faulty.heal()
    async with opened(tmp_path, sync=sync) as store:
        [record] = (await store.append(CHAT, [user("next")])).records

    assert record.seq > last + SEQ_SKIP


async def test_an_archive_that_outlived_its_log_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is durable before the log it was cut from: what is appended later still stays."""
    never_wait_for_the_disk(monkeypatch)
    (tmp_path / "disk").mkdir()
    with Recording(tmp_path / "disk") as recording:
        async with doomed(tmp_path / "disk" / "data", sync_seconds=3600, file_cap=8) as store:
            for number in range(4):
                await ask(store, OTHER, number)
                await idle(store)
    restart_the_machine(monkeypatch)
    archived = [
        crash
        for crash in power_losses(recording)
        if any("archive" in name and data for name, data in crash.files.items())
    ]
    for number, crash in enumerate(archived):
        crash.lay_out(tmp_path / str(number))
        async with doomed(tmp_path / str(number) / "data", file_cap=8) as store:
            try:
                left = await rows_of(store, OTHER)
            except SessionNotFound:
                left = []
            for turn in range(10, 30):
                await ask(store, OTHER, turn)
                await idle(store)
            rows = await rows_of(store, OTHER)

        assert rows[: len(left)] == left, crash.what
        texts = [f"{what} {turn}" for turn in range(10, 30) for what in ("question", "answer")]
        assert [row.text for row in rows[len(left) :]] == texts, crash.what
    assert archived
