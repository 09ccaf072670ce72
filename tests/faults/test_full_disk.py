"""The disk is full: what is refused leaves nothing behind, and what ends a turn gets through."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sessions import loader
from sessions.errors import StoreUnavailable
from sessions.record import user
from sessions.session import Patch
from tests.support.faulty_disk import FaultyDisk
from tests.support.stores import (
    CHAT,
    OTHER,
    answer,
    archive_file,
    ask,
    idle,
    live_file,
    opened,
    pending_of,
    rows_of,
)


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    return FaultyDisk(monkeypatch)


@pytest.mark.parametrize("room", [0, 1, 40, 150])
async def test_a_refused_batch_leaves_nothing(
    room: int, tmp_path: Path, faulty: FaultyDisk
) -> None:
    """However much of a batch fitted, the file is as before, and the next append works."""
    async with opened(tmp_path) as store:
        last = await ask(store, CHAT, 1)
        before = live_file(tmp_path, CHAT).read_bytes()
        faulty.room = room
        with pytest.raises(StoreUnavailable):
            await store.append(CHAT, [user("x" * 100, id="1"), user("two", id="2")])
        after = live_file(tmp_path, CHAT).read_bytes()
        faulty.heal()
        retried = await store.append(CHAT, [user("x" * 100, id="1"), user("two", id="2")])

    assert after == before
    assert [row.seq for row in retried.records] == [last + 1, last + 2]
    assert retried.duplicates == {}


@pytest.mark.parametrize("room", [0, 30, 300])
async def test_a_refused_first_message_leaves_no_session(
    room: int, tmp_path: Path, faulty: FaultyDisk
) -> None:
    """A session whose first message was refused was never there."""
    async with opened(tmp_path) as store:
        faulty.room, faulty.cannot_truncate = room, bool(room)
        with pytest.raises(StoreUnavailable):
            await store.append(CHAT, [user("x" * 400)])
        faulty.heal()
        listing = await store.find()
        left = live_file(tmp_path, CHAT).exists()
        await store.append(CHAT, [user("x" * 400)])
        rows = await rows_of(store, CHAT)

    assert listing.sessions == []
    assert not left
    assert len(rows) == 1


async def test_rows_that_could_not_be_taken_back_are_not_doubled(
    tmp_path: Path, faulty: FaultyDisk
) -> None:
    """A whole row that could not be cut off stays; sent again, it is a duplicate."""
    async with opened(tmp_path) as store:
        await ask(store, CHAT, 1)
        faulty.room, faulty.cannot_truncate = 120, True
        batch = [user("one", id="1"), user("two" * 100, id="2")]
        with pytest.raises(StoreUnavailable):
            await store.append(CHAT, batch)
        faulty.heal()
        retried = await store.append(CHAT, batch)
    async with opened(tmp_path) as store:
        rows = await rows_of(store, CHAT)

    assert list(retried.duplicates) == ["1"]
    assert [row.id for row in rows if row.role == "user"] == ["q1", "1", "2"]


async def test_reads_do_not_wait_for_bytes_that_failed(tmp_path: Path, faulty: FaultyDisk) -> None:
    """In turn mode a reader waits for rows to be durable, never for a refused batch."""
    async with opened(tmp_path, sync="turn") as store:
        last = await ask(store, CHAT, 1)
        faulty.room, faulty.cannot_truncate = 20, True
        with pytest.raises(StoreUnavailable):
            await store.append(CHAT, [user("refused")])
        rows = await rows_of(store, CHAT)
        faulty.heal()

    assert rows[-1].seq == last


async def test_the_reserve_lets_a_turn_end(tmp_path: Path, faulty: FaultyDisk) -> None:
    """A new message is refused on a full disk, the answer to an old one is written."""
    async with opened(tmp_path) as store:
        await idle(store)
        [asked] = (await store.append(CHAT, [user("question")])).records
        faulty.room = 10
        with pytest.raises(StoreUnavailable):
            await store.append(CHAT, [user("one more")])
        reserved = store.directory.ballast.exists()
        await store.append(CHAT, [answer(asked.seq)])
        pending = await pending_of(store, CHAT)
        faulty.heal()

    assert reserved
    assert not store.directory.ballast.exists()
    assert pending == []


async def test_a_full_disk_stops_a_rewrite_not_the_session(
    tmp_path: Path, faulty: FaultyDisk
) -> None:
    """A cap that finds no room leaves everything as it was; appends that fit go on."""
    async with opened(tmp_path, file_cap=4) as store:
        await idle(store)
        await ask(store, OTHER, 1)
        [asked] = (await store.append(OTHER, [user("question")])).records
        faulty.room = 400
        await store.append(OTHER, [answer(asked.seq)])
        await idle(store)
        found = loader.load(live_file(tmp_path, OTHER).read_bytes())
        archived = archive_file(tmp_path, OTHER).read_bytes()
        faulty.heal()
        await ask(store, OTHER, 2)
        await idle(store)
        rows = await rows_of(store, OTHER)

    assert [row.seq for row in found.records] == [1, 2, 3, 4]
    assert archived == b""
    assert list((tmp_path / "tmp").glob("two*")) == []
    assert [row.seq for row in rows] == [1, 2, 3, 4, 5, 6]


async def test_metadata_is_refused_whole(tmp_path: Path, faulty: FaultyDisk) -> None:
    """An update that does not fit changes neither the file nor what is in memory."""
    async with opened(tmp_path) as store:
        await ask(store, CHAT, 1)
        await store.update(CHAT, Patch(title="before"))
        faulty.room = 50
        with pytest.raises(StoreUnavailable):
            await store.update(CHAT, Patch(title="after", consolidated=1))
        session = await store.get(CHAT)
        view = await store.view(CHAT)
        faulty.heal()

    assert session is not None
    assert view is not None
    assert (session.title, view.title) == ("before", "before")
    assert session.state.consolidated.seq == 0


LIMITED = """
import asyncio, resource, signal, sys
from pathlib import Path
from loguru import logger
from sessions.errors import StoreUnavailable
from sessions.record import user
from tests.support.stores import CHAT, live_file, opened

async def main(path):
    logger.remove()
    async with opened(path) as store:
        await store.append(CHAT, [user("first")])
        size = live_file(path, CHAT).stat().st_size
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
        try:
            await store.append(CHAT, [user("x" * 1000)])
        except StoreUnavailable as error:
            print(error.reason)
        assert live_file(path, CHAT).stat().st_size == size
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        appended = await store.append(CHAT, [user("x" * 1000)])
        print(appended.records[0].seq)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
asyncio.run(main(Path(sys.argv[1])))
"""


def test_a_real_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """The kernel writes a part and refuses the rest; the part is taken back."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True, check=False
    )

    assert done.stderr == ""
    assert done.stdout.split("\n")[1:] == ["2", ""]
