"""Changing sessions: by this process, or by the gateway that owns the data directory.

There is one writer. The directory's lock decides: whoever gets it does the work itself, everybody
else asks its holder through the admin socket. Both ways do the same; what is printed is then read
from the files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from loguru import logger

from gateway.cli.admin import RunningGateway
from gateway.cli.exits import Failure
from gateway.cli.sessions.library import Library, Progress, check
from gateway.cli.sessions.migration import move
from gateway.cli.sessions.repair import Report as RepairReport
from gateway.cli.sessions.repair import repair
from sessions import legacy
from sessions.directory import DataDirectory
from sessions.errors import SessionNotFound, StoreLocked
from sessions.key import SessionKey
from sessions.record import Outcome, closing
from sessions.session import Patch, Session
from sessions.store_jsonl import JsonlStore

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """The commands report in their own words what the store would log."""
    logger.disable("sessions")
    try:
        return asyncio.run(work)
    finally:
        logger.enable("sessions")


@asynccontextmanager
async def changing(path: Path, *, create: bool = False) -> AsyncIterator[JsonlStore]:
    """The store, open. Raises StoreLocked, StoreRefused, or Failure.

    Everything is on the disk when the context ends, or Failure is raised.
    """
    check(path, may_create=create)
    store = JsonlStore(path)
    await store.open()
    try:
        yield store
    finally:
        flushed = await store.close()
    if flushed.failed:
        raise Failure(f"{path}: not everything could be written to the disk")


def _change(
    path: Path,
    alone: Callable[[JsonlStore], Coroutine[Any, Any, T]],
    by_gateway: Callable[[RunningGateway], T],
    *,
    create: bool = False,
) -> T:
    """Raises StoreLocked if the holder of the lock is no gateway that listens to us."""

    async def work() -> T:
        async with changing(path, create=create) as store:
            return await alone(store)

    try:
        return run(work())
    except StoreLocked:
        gateway = RunningGateway(path)
        if not gateway.listens:
            raise
    return by_gateway(gateway)


def change_state(path: Path, key: SessionKey, state: str) -> Session:
    # Read first: a session that cannot be read is told the same way by both.
    before = Library.at(path).session(key.chat).state.state

    async def alone(store: JsonlStore) -> None:
        if key.conversation is not None:
            # Without text it is no reply: no channel carries it to anyone.
            await store.restore(key, closing("", {}, outcome=Outcome.COMMAND, command=True))
        await store.update(key.chat, Patch(state=state))

    def by_gateway(gateway: RunningGateway) -> None:
        for target, action in _actions(key, before, state):
            if not gateway.session("POST", target, action):
                raise SessionNotFound(target)

    _change(path, alone, by_gateway)
    return Library.at(path).session(key.chat)


def _actions(key: SessionKey, before: str, state: str) -> list[tuple[SessionKey, str]]:
    """What is asked of a gateway, by the state the session is in."""
    if state == "archived":
        return [(key, "/archive")]
    again = (key.chat, "/resume" if before == "suspended" else "/restore")
    if key.conversation is None:
        return [again]
    return [(key, "/restore")] if before == "active" else [(key, "/restore"), again]


def delete(path: Path, key: SessionKey) -> bool:
    """False if it was gone already."""

    async def alone(store: JsonlStore) -> bool:
        from gateway.media import delete_files

        media = [name async for name in _media(store, key)]
        deleted = await store.delete(key)
        delete_files(path / "media", media)
        return deleted

    Library.at(path).session(key)
    return _change(path, alone, lambda gateway: gateway.session("DELETE", key))


async def _media(store: JsonlStore, key: SessionKey) -> AsyncIterator[str]:
    """The names of every file of a session, through its archive."""
    after, more = 0, True
    while more:
        page = await store.read(key, after=after, limit=500)
        for row in page.records:
            fetched = (row.note or {}).get("media")
            for item in [*(row.media or ()), *(fetched if isinstance(fetched, list) else ())]:
                if isinstance(item, dict) and isinstance(item.get("id"), str):
                    yield item["id"]
        more = page.more and bool(page.records)
        after = page.records[-1].seq if page.records else after


def mend(path: Path, progress: Progress) -> RepairReport:
    def by_gateway(gateway: RunningGateway) -> RepairReport:
        found = gateway.follow("/api/v1/admin/repair", {}, progress)
        return msgspec.convert(found, RepairReport)

    return _change(path, lambda store: repair(store, progress), by_gateway)


def migrate(
    path: Path, source: Path, progress: Progress, *, dry_run: bool, keep: bool
) -> legacy.Report:
    """A dry run takes no lock and creates nothing."""
    if dry_run:
        directory = DataDirectory(path)
        return legacy.migrate_directory(
            directory, source, dry_run=True, keep=keep, progress=progress
        )

    def by_gateway(gateway: RunningGateway) -> legacy.Report:
        asked = {"source": str(source), "keep": keep}
        found = gateway.follow("/api/v1/admin/migrate", asked, progress)
        return msgspec.convert(found, legacy.Report)

    return _change(
        path,
        lambda store: move(store, source, progress, keep=keep),
        by_gateway,
        create=True,
    )
