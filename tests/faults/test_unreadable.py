"""What is there and cannot be read: named, never overwritten, never taken for empty."""

from __future__ import annotations

import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from sessions import disk
from sessions.errors import SessionUnreadable, StoreUnavailable
from sessions.record import user
from sessions.session import Patch
from sessions.store_jsonl import JsonlStore
from tests.support.recorded_disk import image
from tests.support.stores import CHAT, OTHER, answer, ask, live_file, opened, rows_of

Break = Callable[[Path], None]


def make_directory(path: Path) -> None:
    path.rename(path.with_suffix(".kept"))
    path.mkdir()
    (path / "inside").write_text("someone's")


def make_link(path: Path) -> None:
    path.rename(path.with_suffix(".kept"))
    path.symlink_to(path.with_suffix(".kept"))


def make_dangling_link(path: Path) -> None:
    path.rename(path.with_suffix(".kept"))
    path.symlink_to(path.with_suffix(".gone"))


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Break:
    """Root may read any file, so the refusal is made up."""
    forbidden: set[str] = set()
    real_open = os.open

    def refuse(path: str | Path, *arguments: int, **named: int) -> int:
        if str(path) in forbidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real_open(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refuse)
    return lambda path: forbidden.add(str(path))


@pytest.fixture(params=["directory", "link", "dangling link", "forbidden"])
def break_file(request: pytest.FixtureRequest, forbid: Break) -> Break:
    ways = {
        "directory": make_directory,
        "link": make_link,
        "dangling link": make_dangling_link,
        "forbidden": forbid,
    }
    return ways[request.param]


async def two_sessions(path: Path) -> None:
    async with opened(path) as store:
        for key in (CHAT, OTHER):
            await ask(store, key, 1)


async def ask_everything(store: JsonlStore) -> list[BaseException]:
    """Everything one can want of a session; what was raised."""
    wishes: list[Callable[[], Awaitable[Any]]] = [
        lambda: store.get(CHAT),
        lambda: store.view(CHAT),
        lambda: store.read(CHAT, after=0),
        lambda: store.read(CHAT),
        lambda: store.append(CHAT, [user("new")]),
        lambda: store.append(CHAT, [answer(1)]),
        lambda: store.update(CHAT, Patch(title="t")),
        lambda: store.delete(CHAT),
    ]
    raised: list[BaseException] = []
    for wish in wishes:
        with pytest.raises((SessionUnreadable, StoreUnavailable)) as refusal:
            await wish()
        raised.append(refusal.value)
    return raised


async def test_an_unreadable_file_is_left_alone(tmp_path: Path, break_file: Break) -> None:
    """Whatever is asked of it, the session is refused by its path and the disk stays the same."""
    await two_sessions(tmp_path)
    path = live_file(tmp_path, CHAT)
    break_file(path)
    before = image(tmp_path / "sessions") if not path.is_symlink() else None
    async with opened(tmp_path) as store:
        raised = await ask_everything(store)

    assert all(isinstance(error, SessionUnreadable) for error in raised)
    assert all(str(path) in str(error) for error in raised)
    assert before is None or image(tmp_path / "sessions") == before
    assert os.path.lexists(path)


async def test_other_sessions_are_unharmed(tmp_path: Path, break_file: Break) -> None:
    """One unreadable file costs nobody else anything: not their rows, not their pending work."""
    await two_sessions(tmp_path)
    break_file(live_file(tmp_path, CHAT))
    async with opened(tmp_path) as store:
        [record] = (await store.append(OTHER, [user("still works")])).records
        pending = {key: rows async for key, rows in store.pending()}
        rows = await rows_of(store, OTHER)
        flushed = await store.flush()

    assert pending == {OTHER: [record]}
    assert len(rows) == 3
    assert flushed.failed == 0


async def test_an_unreadable_file_can_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal is not remembered: once the cause is gone, so is the error."""
    await two_sessions(tmp_path)
    real = disk.read_file

    def refuse(path: Path) -> bytes:
        if path.suffix == ".jsonl":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    async with opened(tmp_path) as store:
        monkeypatch.setattr(disk, "read_file", refuse)
        with pytest.raises(SessionUnreadable):
            await store.append(CHAT, [user("too early")])
        monkeypatch.setattr(disk, "read_file", real)
        [record] = (await store.append(CHAT, [user("now")])).records

    assert record.seq == 3


async def test_an_empty_file_is_a_session_without_rows(tmp_path: Path) -> None:
    """An empty file is what a crash can leave of a new session; it goes on from there."""
    path = live_file(tmp_path, CHAT)
    path.parent.mkdir(parents=True)
    path.touch()
    async with opened(tmp_path) as store:
        rows = await rows_of(store, CHAT)
        [record] = (await store.append(CHAT, [user("first")])).records
        again = await rows_of(store, CHAT)

    assert rows == []
    assert again == [record]


async def test_an_unreadable_archive_does_not_stop_the_session(tmp_path: Path) -> None:
    """Rows that cannot be reached are said to be so; they are not left out in silence."""
    async with opened(tmp_path, file_cap=4) as store:
        for number in range(6):
            await ask(store, OTHER, number)
    archive = tmp_path / "archive" / OTHER.directory / f"{OTHER.stem}.jsonl"
    make_directory(archive)
    async with opened(tmp_path) as store:
        with pytest.raises(SessionUnreadable) as refusal:
            await store.read(OTHER, after=0)
        page = await store.read(OTHER, limit=1)

    assert str(archive) in str(refusal.value)
    assert len(page.records) == 1
