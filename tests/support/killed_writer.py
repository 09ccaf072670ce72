"""A process that writes to several sessions as fast as it can, until it is killed.

    python -m tests.support.killed_writer DIRECTORY SEED GENERATION SYNC

One line on stdout for everything that was acknowledged, written after `append` has returned.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
from pathlib import Path

import msgspec
from loguru import logger

from sessions.key import SessionKey
from sessions.record import NoteKind, Outcome, Record, closing, note, user
from sessions.session import Patch
from sessions.store_jsonl import JsonlStore

KEYS = [SessionKey("slack", "C1"), SessionKey("slack", "D2"), SessionKey("websocket", "a/b")]
FILE_CAP = 24


class Acknowledged(msgspec.Struct):
    key: str
    rows: list[tuple[int, str]] = []
    """Number and text of every row."""
    title: int = 0
    conversation: int = 0


def acknowledge(fact: Acknowledged) -> None:
    os.write(1, msgspec.json.encode(fact) + b"\n")


class Writer:
    def __init__(self, store: JsonlStore, key: SessionKey, name: str, chance: random.Random):
        self.store, self.key, self.chance = store, key, chance
        self.names = (f"{name}-{number}" for number in itertools.count())

    async def run(self) -> None:
        while True:
            await self.turn()
            what = self.chance.random()
            if what < 0.1:
                await self.rename()
            elif what < 0.15:
                await self.start_anew()
            # An append need not wait for anything; the other writers want their turn.
            await asyncio.sleep(0)

    async def append(self, *drafts: Record) -> list[Record]:
        records = (await self.store.append(self.key, drafts)).records
        self.tell(records)
        return records

    def tell(self, records: list[Record], **facts: int) -> None:
        rows = [(row.seq, row.text) for row in records if not row.is_note]
        acknowledge(Acknowledged(str(self.key), rows, **facts))

    def message(self) -> Record:
        name = next(self.names)
        padding = "é" * self.chance.choice([0, 0, 10, 3_000, 20_000])
        return user(f"{name} {padding}", id=name)

    async def turn(self) -> None:
        asked = await self.append(*(self.message() for _ in range(self.chance.choice([1, 1, 3]))))
        turn = next(self.names)
        settles: dict[int, str] = dict.fromkeys((row.seq for row in asked), Outcome.ANSWERED)
        await self.append(note(NoteKind.ATTEMPT, turn=turn, n=1))
        [reply] = await self.append(closing(f"answer {turn}", settles, turn=turn))
        await self.append(note(NoteKind.DELIVERED, seq=reply.seq))

    async def rename(self) -> None:
        session = await self.store.get_or_create(self.key)
        title = int(session.title or 0) + 1
        await self.store.update(self.key, Patch(title=str(title)))
        acknowledge(Acknowledged(str(self.key), title=title))

    async def start_anew(self) -> None:
        [asked] = await self.append(user("/new", id=next(self.names), command=True))
        session = await self.store.get_or_create(self.key)
        title = session.title
        draft = closing("anew", {asked.seq: Outcome.COMMAND}, command=True)
        appended = await self.store.new_conversation(self.key, draft)
        [record] = appended.records
        self.tell(appended.records, conversation=record.conversation or 0)
        await self.store.update(self.key, Patch(title=title))


async def main(directory: str, seed: str, generation: str, sync: str) -> None:
    logger.remove()
    chance = random.Random(f"{seed} {generation}")
    store = JsonlStore(Path(directory), sync=sync, sync_seconds=0.01, file_cap=FILE_CAP)
    await store.open()
    async with asyncio.TaskGroup() as group:
        for key in KEYS:
            group.create_task(Writer(store, key, f"{generation}-{key.stem}", chance).run())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
