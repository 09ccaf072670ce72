"""How a store stops, and what its successor makes of it."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from sessions import directory, disk, history
from sessions.errors import StoreLocked, StoreRefused, StoreUnavailable
from sessions.key import SessionKey
from sessions.record import Record, user
from sessions.store_jsonl import JsonlStore
from tests.support.recorded_disk import Recording
from tests.support.stores import (
    CHAT,
    OTHER,
    answer,
    ask,
    doomed,
    idle,
    live_file,
    opened,
    pending_of,
    rows_of,
)


@pytest.fixture
def events() -> Iterator[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []
    number = logger.add(
        lambda message: found.append(
            {"event": message.record["message"], **message.record["extra"]}
        )
    )
    yield found
    logger.remove(number)


async def test_what_came_while_a_turn_ran_is_pending_after_a_crash(tmp_path: Path) -> None:
    """U1, U2, A1: the answer settles the first message, the second is still to be answered."""
    async with doomed(tmp_path) as store:
        [first, second] = (await store.append(CHAT, [user("one"), user("two")])).records
        await store.append(CHAT, [answer(first.seq)])
    async with opened(tmp_path) as store:
        pending = await pending_of(store, CHAT)

    assert pending == [second.seq]


async def test_a_queued_message_between_call_and_result_survives_the_cap(tmp_path: Path) -> None:
    """Call, queued message, result: after the cap the model sees whole turns in their order."""
    async with opened(tmp_path, file_cap=8) as store:
        for number in range(2):
            await ask(store, OTHER, number)
        [asked] = (await store.append(OTHER, [user("look it up")])).records
        call = [{"id": "c1", "type": "function", "function": {"name": "find"}}]
        await store.append(OTHER, [Record("assistant", "", tool_calls=call, turn="t")])
        [queued] = (await store.append(OTHER, [user("and hurry")])).records
        await store.append(OTHER, [Record("tool", "found", tool_call_id="c1", turn="t")])
        await store.append(OTHER, [answer(asked.seq, text="here", turn="t")])
        await idle(store)
        session = await store.get(OTHER)
        pending = await pending_of(store, OTHER)
        rows = await store.model_rows(OTHER, 100)

    assert session is not None
    assert session.state.archived.seq > 0
    assert pending == [queued.seq]
    seen = history.select(rows, answering=pending, settled_through=session.settled_through)
    assert [row.role for row in seen][-5:] == ["user", "assistant", "tool", "assistant", "user"]
    assert seen[-1].content == "and hurry"


async def test_a_second_process_is_told_who_is_there(tmp_path: Path) -> None:
    """One directory, one owner: the second learns the process id of the first."""
    code = """
import asyncio, sys
from pathlib import Path
from sessions.errors import StoreLocked
from sessions.store_jsonl import JsonlStore
try:
    asyncio.run(JsonlStore(Path(sys.argv[1])).open())
except StoreLocked as error:
    sys.exit(str(error))
"""
    async with opened(tmp_path) as store:
        await ask(store, CHAT, 1)
        done = subprocess.run(
            [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False
        )
        await ask(store, CHAT, 2)

    assert done.returncode == 1
    assert done.stderr.strip() == f"{tmp_path} is in use by process {os.getpid()}"


async def test_a_second_store_in_the_same_process_is_refused(tmp_path: Path) -> None:
    """The lock also keeps two stores of one process apart, and is free after a close."""
    async with opened(tmp_path):
        with pytest.raises(StoreLocked):
            await JsonlStore(tmp_path).open()
    async with opened(tmp_path) as store:
        assert store.directory.held


async def test_clean_is_there_only_between_a_clean_stop_and_the_next_start(
    tmp_path: Path,
) -> None:
    """A running or killed store has no CLEAN; one that was closed has."""
    marker = tmp_path / "CLEAN"
    async with opened(tmp_path) as store:
        await ask(store, CHAT, 1)
        running = marker.exists()
    closed = marker.exists()
    async with doomed(tmp_path) as store:
        unclean = store.directory.unclean
    killed = marker.exists()

    assert (running, closed, killed) == (False, True, False)
    assert not unclean


async def test_files_loaded_after_an_unclean_stop_are_synced_at_close(tmp_path: Path) -> None:
    """What a killed predecessor left in the page cache is made durable even if only read."""
    async with doomed(tmp_path, sync="none") as store:
        for key in (CHAT, OTHER):
            await ask(store, key, 1)
    store = JsonlStore(tmp_path, sync="none")
    await store.open()
    await store.get(CHAT)
    with Recording(tmp_path) as recording:
        flushed = await store.close()

    assert flushed.count == 1
    assert flushed.failed == 0
    assert len(recording.of("sync")) >= 1


@pytest.mark.parametrize("sync", ["none", "interval", "turn"])
async def test_every_mode_is_synced_at_close(sync: str, tmp_path: Path) -> None:
    """Shutdown makes every dirty session durable, with sync: none too."""
    keys = [SessionKey("slack", f"C{number}") for number in range(3)]
    with Recording(tmp_path) as recording:
        async with opened(tmp_path / "data", sync=sync, sync_seconds=3600) as store:
            for key in keys:
                await store.append(key, [user("dirty")])
    written = {operation.inode for operation in recording.of("write")}
    synced = {operation.inode for operation in recording.of("sync")}

    assert written <= synced


async def test_flush_goes_on_past_a_failing_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[dict[str, Any]]
) -> None:
    """One session that cannot be synced is counted and named; the others are durable."""
    store = JsonlStore(tmp_path, sync="none")
    await store.open()
    keys = [SessionKey("slack", f"C{number}") for number in range(4)]
    for key in keys:
        await store.append(key, [user("dirty")])
    session = await store.get(keys[1])
    assert session is not None
    broken = session.file.descriptor
    synced: list[int] = []

    def sync(descriptor: int) -> None:
        if descriptor == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        synced.append(descriptor)

    monkeypatch.setattr(disk, "fdatasync", sync)
    flushed = await store.close()

    assert (flushed.count, flushed.failed) == (3, 1)
    assert len(set(synced)) >= 3
    assert {"event": "sessions flushed", "count": 3, "failed": 1} in events
    [failure] = [event for event in events if event["event"] == "session flush failed"]
    assert failure["session"] == str(keys[1])


async def test_many_dirty_sessions_are_flushed_and_counted(tmp_path: Path) -> None:
    """More files than are synced one by one take the other path, with the same count."""
    store = JsonlStore(tmp_path, sync="none")
    await store.open()
    for number in range(50):
        await store.append(SessionKey("websocket", str(number)), [user("dirty")])
    flushed = await store.close()

    assert (flushed.count, flushed.failed) == (50, 0)
    assert (tmp_path / "CLEAN").exists()


async def test_nothing_is_accepted_after_close(tmp_path: Path) -> None:
    """A closed store refuses, and closing it again does nothing."""
    async with opened(tmp_path) as store:
        await ask(store, CHAT, 1)
    size = live_file(tmp_path, CHAT).stat().st_size
    with pytest.raises(StoreUnavailable):
        await store.append(CHAT, [user("late")])
    again = await store.close()

    assert (again.count, again.failed) == (0, 0)
    assert live_file(tmp_path, CHAT).stat().st_size == size


async def test_an_append_behind_a_rewrite_is_not_lost_by_close(tmp_path: Path) -> None:
    """A close during a rewrite waits for it; what waited behind it is refused or written."""
    store = JsonlStore(tmp_path, file_cap=4)
    await store.open()
    await ask(store, OTHER, 1)
    await ask(store, OTHER, 2)
    waiting = asyncio.get_running_loop().create_task(store.append(OTHER, [user("behind")]))
    await store.close()
    [outcome] = await asyncio.gather(waiting, return_exceptions=True)
    async with opened(tmp_path) as again:
        rows = await rows_of(again, OTHER)

    written = [row.content for row in rows][4:]
    assert written == ([] if isinstance(outcome, StoreUnavailable) else ["behind"])


MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
40 22 0:50 / /srv/with\\040space rw - nfs4 server:/export rw
41 22 0:51 / /srv/local rw - xfs /dev/sdb rw
42 41 0:52 / /srv/local/remote rw shared:1 - fuse.sshfs host:/ rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/srv/with space/data", "nfs4"), ("/srv/local/remote", "fuse.sshfs")],
)
def test_a_network_file_system_is_refused_with_the_reason(path: str, kind: str) -> None:
    """The refusal names the path and the kind of file system; it can be allowed knowingly."""
    with pytest.raises(StoreRefused) as refusal:
        directory.refuse_network(Path(path), mounts=MOUNTS)

    assert path in str(refusal.value)
    assert kind in str(refusal.value)
    directory.refuse_network(Path(path), allow=True, mounts=MOUNTS)


@pytest.mark.parametrize("path", ["/srv/local/data", "/home/x", "/srv/with"])
def test_a_local_file_system_is_accepted(path: str) -> None:
    """The longest mount decides, by whole names."""
    directory.refuse_network(Path(path), mounts=MOUNTS)


async def test_a_store_on_a_network_file_system_does_not_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused store holds no lock; an allowed one works."""
    monkeypatch.setattr(directory, "file_system", lambda *_: "nfs")
    with pytest.raises(StoreRefused):
        await JsonlStore(tmp_path).open()
    async with opened(tmp_path, allow_network=True) as store:
        await ask(store, CHAT, 1)

    assert live_file(tmp_path, CHAT).exists()
