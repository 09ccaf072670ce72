"""Changing sessions: by this process, which owns the data directory meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from loguru import logger

from gateway.cli.exits import Failure
from gateway.cli.sessions.library import check
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


async def change_state(path: Path, key: SessionKey, state: str) -> Session:
    async with changing(path) as store:
        if key.conversation is not None:
            # Without text it is no reply: no channel carries it to anyone.
            await store.restore(key, closing("", {}, outcome=Outcome.COMMAND, command=True))
        return await store.update(key.chat, Patch(state=state))


async def delete(path: Path, key: SessionKey) -> bool:
    async with changing(path) as store:
        return await store.delete(key)
