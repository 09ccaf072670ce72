"""Stores for fault tests: opened without waiting for the disk, stopped as a dying process stops."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sessions import disk, index, log_writer
from sessions.key import SessionKey
from sessions.record import Outcome, Record, closing, user
from sessions.store_jsonl import JsonlStore

CHAT = SessionKey("slack", "C1")
OTHER = SessionKey("websocket", "two")


class _Unsynced(sqlite3.Connection):
    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        if sql.startswith("pragma journal_mode"):
            sql = "pragma journal_mode = off"
        elif sql.startswith("pragma synchronous"):
            sql = "pragma synchronous = off"
        return super().execute(sql, *parameters)


def never_wait_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that open thousands of stores: what is synced is not their question."""

    def connect(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=10, factory=_Unsynced
        )

    monkeypatch.setattr(index, "_connection", connect)
    monkeypatch.setattr(disk, "fdatasync", lambda _: None)
    monkeypatch.setattr(disk, "sync_directory", lambda _: None)
    monkeypatch.setattr(disk, "sync_filesystem", lambda _: None)
    monkeypatch.setattr(log_writer, "BALLAST_BYTES", 4096)


async def idle(store: JsonlStore) -> None:
    """Waits for rewrites and whatever else the store does on its own."""
    await store._tasks.wait()


async def abandon(store: JsonlStore) -> None:
    """Leaves the directory as a killed process does: no flush, no CLEAN, no lock."""
    store._closed = True
    await idle(store)
    await store._index.close()
    store._syncer._dirty.clear()
    store._writer.close()
    await store._syncer.stop()
    await idle(store)
    store.directory.release()
    store._threads.shutdown(wait=True)


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[JsonlStore]:
    """An open store that is closed at the end, whatever happened."""
    store = JsonlStore(path, **options)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def doomed(path: Path, **options: Any) -> AsyncIterator[JsonlStore]:
    """An open store whose process dies at the end."""
    store = JsonlStore(path, **options)
    await store.open()
    await idle(store)
    try:
        yield store
    finally:
        await abandon(store)


def answer(*seqs: int, text: str = "an answer", **fields: Any) -> Record:
    return closing(text, dict.fromkeys(seqs, Outcome.ANSWERED), **fields)


async def ask(store: JsonlStore, key: SessionKey, number: int) -> int:
    """A whole turn: a message and its answer. Returns the number of the answer."""
    asked = await store.append(key, [user(f"question {number}", id=f"q{number}")])
    replied = await store.append(
        key, [answer(asked.records[0].seq, text=f"answer {number}", turn=f"t{number}")]
    )
    return replied.records[0].seq


async def rows_of(store: JsonlStore, key: SessionKey) -> list[Record]:
    return (await store.read(key, after=0, limit=100_000)).records


async def pending_of(store: JsonlStore, key: SessionKey) -> list[int]:
    return await _work(store.pending(), key)


async def undelivered_of(store: JsonlStore, key: SessionKey) -> list[int]:
    return await _work(store.undelivered(), key)


async def _work(
    found: AsyncIterator[tuple[SessionKey, Sequence[Record]]], key: SessionKey
) -> list[int]:
    return [row.seq async for chat, rows in found if chat == key for row in rows]


def live_file(path: Path, key: SessionKey) -> Path:
    return path / "sessions" / key.directory / f"{key.stem}.jsonl"


def archive_file(path: Path, key: SessionKey) -> Path:
    return path / "archive" / key.directory / f"{key.stem}.jsonl"
