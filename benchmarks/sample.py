"""Logs to measure with: made fast, and exactly as the store itself would have written them."""

from __future__ import annotations

import os
import random
from pathlib import Path

from sessions import lines
from sessions.key import SessionKey
from sessions.record import Outcome, Record, closing, user
from sessions.session import Session
from sessions.store_jsonl import JsonlStore

TEXT_CHARS = 300
_LETTERS = "etaoinshrdlucmfwypvbgk"


def texts(count: int, seed: int = 1) -> list[str]:
    """Messages of 300 bytes in made-up words."""
    source = random.Random(seed)
    made = []
    for _ in range(count):
        words = ("".join(source.choices(_LETTERS, k=source.randint(2, 9))) for _ in range(80))
        made.append(" ".join(words)[:TEXT_CHARS].ljust(TEXT_CHARS, "x"))
    return made


def turn(seq: int, texts: list[str]) -> list[Record]:
    """A question that will be numbered `seq`, and the closing record that settles it."""
    return [
        user(texts[0], id=f"m{seq}"),
        closing(texts[1], {seq: Outcome.ANSWERED}, turn=f"t{seq}"),
    ]


class Writer:
    """Puts logs of whole turns into a directory no store has open."""

    def __init__(self, path: Path) -> None:
        self._sessions = path / "sessions"
        self._texts = texts(64)
        self._number = 0

    def write(self, key: SessionKey, messages: int) -> Path:
        session = Session(key)
        head, _ = session.metadata_line({}, session.state, (), session.created_at)
        rows: list[Record] = []
        for seq in range(1, messages, 2):
            at = self._number % len(self._texts)
            self._number += 1
            pair = [self._texts[at], self._texts[-1 - at]]
            drafts = turn(seq, pair)
            records, _ = session.admit(drafts)
            session.apply(records, 0)
            rows += records
        return self._put(key, head + lines.encode(rows))

    def _put(self, key: SessionKey, data: bytes) -> Path:
        path = self._sessions / key.directory / f"{key.stem}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileNotFoundError:
            path.parent.mkdir(parents=True)
            descriptor = os.open(path, flags, 0o600)
        os.write(descriptor, data)
        os.close(descriptor)
        return path


async def chats(path: Path, messages: dict[str, int]) -> None:
    """A directory whose last owner stopped cleanly, with chats of the WebSocket."""
    writer = await _clean(path)
    for chat, count in messages.items():
        writer.write(SessionKey("websocket", chat), count)


async def make(path: Path, groups: dict[str, tuple[int, int]]) -> None:
    """The same with many sessions per channel, of so many messages each."""
    writer = await _clean(path)
    for channel, (sessions, messages) in groups.items():
        for number in range(sessions):
            writer.write(SessionKey(channel, str(number)), messages)


async def _clean(path: Path) -> Writer:
    store = JsonlStore(path)
    await store.open()
    await store.close()
    return Writer(path)


async def indexed(store: JsonlStore) -> None:
    """Waits until the index has compared every file: only then does it know what is pending."""
    async for key, _ in store.pending():
        raise AssertionError(f"{key} is pending")


async def quiet(store: JsonlStore) -> None:
    """Waits until neither the sync thread nor the index has anything to do."""
    await store.flush()
    await indexed(store)
