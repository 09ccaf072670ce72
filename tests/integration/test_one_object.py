"""One Session object per chat, however its readers and writers meet."""

import asyncio
import threading
from pathlib import Path

import pytest

from sessions.key import SessionKey
from sessions.record import closing, user
from sessions.session import Session
from sessions.store_jsonl import JsonlStore

KEY = SessionKey("websocket", "chat")


class Meeting:
    """A writer begins the chat while readers look for it; one of them reads its file late."""

    def __init__(self, store: JsonlStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = store
        self._calls = 0
        self._load = store.files.load
        self._late = threading.Event()
        monkeypatch.setattr(store.files, "load", self._load_late)

    def _load_late(self, key: SessionKey) -> Session | None:
        self._calls += 1
        if self._calls > 1:
            self._late.wait(60)
        return self._load(key)

    async def begin(self) -> tuple[Session, list[asyncio.Task[Session | None]]]:
        """The writer's session, and readers of which one still waits for the file."""
        readers: list[asyncio.Task[Session | None]] = []
        loop = asyncio.get_running_loop()
        writing = loop.create_task(
            self.store.transact(KEY, lambda _: ([user("hello", id="1")], None))
        )
        while not writing.done():
            readers.append(loop.create_task(self.store.get(KEY)))
            await asyncio.sleep(0)
        session, _ = writing.result()
        while self._calls < 2:
            readers.append(loop.create_task(self.store.get(KEY)))
            await asyncio.sleep(0)
        return session, readers

    def read(self) -> None:
        self._late.set()


async def test_a_chat_begun_while_it_is_looked_for_is_one_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is settled for one of its holders is settled for all: nothing is answered twice."""
    store = JsonlStore(tmp_path)
    await store.open()
    meeting = Meeting(store, monkeypatch)
    session, readers = await meeting.begin()
    meeting.read()
    seen = {id(found) for found in await asyncio.gather(*readers) if found is not None}
    await store.append(KEY, [closing("yes", {1: "answered"}, turn="t")])
    await store.close()

    assert seen <= {id(session)}
    assert session.pending == []


async def test_a_late_reader_does_not_bring_back_a_deleted_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file was read before it was removed; it is gone all the same."""
    store = JsonlStore(tmp_path)
    await store.open()
    meeting = Meeting(store, monkeypatch)
    _, readers = await meeting.begin()
    deleting = asyncio.get_running_loop().create_task(store.delete(KEY))
    for _ in range(10):
        await asyncio.sleep(0)
    meeting.read()
    await asyncio.gather(*readers)
    deleted = await deleting
    found = await store.get(KEY)
    await store.close()

    assert deleted
    assert found is None
