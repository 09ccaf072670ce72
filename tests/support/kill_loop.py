"""Kills a writing process again and again, and looks each time for what it acknowledged.

python -m tests.support.kill_loop --kills 200
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import msgspec

from sessions.key import SessionKey
from sessions.record import Record
from sessions.store_jsonl import JsonlStore
from tests.support.killed_writer import FILE_CAP, KEYS, Acknowledged
from tests.support.stores import abandon, pending_of, rows_of

ROOT = Path(__file__).parents[2]
MOST_LINES = 400


@dataclass
class Known:
    rows: list[tuple[int, str]] = field(default_factory=list)
    title: int = 0
    conversation: int = 1


@dataclass
class Report:
    kills: int = 0
    acknowledged: int = 0
    found: int = 0
    repaired: int = 0


class KillLoop:
    def __init__(self, path: Path, seed: int, sync: str = "interval") -> None:
        self.path, self.seed, self.sync = path, seed, sync
        self.chance = random.Random(seed)
        self.known = {key: Known() for key in KEYS}
        self.report = Report()

    def run(self, kills: int) -> Report:
        for generation in range(kills):
            self._kill_one(generation)
            asyncio.run(self._look())
        self.report.kills = kills
        self.report.found = sum(len(known.rows) for known in self.known.values())
        return self.report

    def _kill_one(self, generation: int) -> None:
        module = "tests.support.killed_writer"
        arguments = [str(self.path), str(self.seed), str(generation), self.sync]
        command = [sys.executable, "-m", module, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as child:
            assert child.stdout is not None
            try:
                self._listen(child.stdout, self.chance.randint(1, MOST_LINES))
            finally:
                child.kill()
            # What it wrote before it died is acknowledged too.
            self._listen(child.stdout, None)
        assert child.returncode == -9, "the writer stopped on its own"

    def _listen(self, output: IO[bytes], lines: int | None) -> None:
        for line in itertools.islice(output, lines):
            if line.endswith(b"\n"):
                self._note(msgspec.json.decode(line, type=Acknowledged))

    def _note(self, fact: Acknowledged) -> None:
        known = self.known[SessionKey.parse(fact.key)]
        known.rows += fact.rows
        known.title = max(known.title, fact.title)
        known.conversation = max(known.conversation, fact.conversation)
        self.report.acknowledged += len(fact.rows)

    async def _look(self) -> None:
        store = JsonlStore(self.path, sync=self.sync, file_cap=FILE_CAP)
        await store.open()
        try:
            for key, known in self.known.items():
                if known.rows:
                    await self._check(store, key, known)
        finally:
            if self.chance.random() < 0.3:
                await store.close()
            else:
                await abandon(store)

    async def _check(self, store: JsonlStore, key: SessionKey, known: Known) -> None:
        unread = await rows_of(store, key)
        session = await store.get(key)
        assert session is not None
        rows = await rows_of(store, key)
        assert unread == rows, "a reading that loads differs from one that does not"
        numbers = [row.seq for row in rows]
        assert all(a < b for a, b in itertools.pairwise(numbers)), "not in order"
        names = [row.id for row in rows if row.id is not None]
        assert len(names) == len(set(names)), "a message is there twice"
        self._check_rows(rows, known)
        settled = {seq for row in rows for seq in row.settles or ()}
        open_users = [row.seq for row in rows if row.role == "user" and row.seq not in settled]
        assert await pending_of(store, key) == open_users
        assert int(session.title or 0) >= known.title or session.state.conversation > 1
        assert session.state.conversation in (known.conversation, known.conversation + 1)
        self.report.repaired += session.unindexed
        # What was found is as good as acknowledged from now on.
        known.rows = [(row.seq, row.text) for row in rows if not row.is_note]
        known.conversation = session.state.conversation
        known.title = int(session.title or 0)

    def _check_rows(self, rows: list[Record], known: Known) -> None:
        messages = [(row.seq, row.text) for row in rows if not row.is_note]
        found = set(messages)
        lost = [row for row in known.rows if row not in found]
        assert not lost, f"{len(lost)} acknowledged rows are lost, first {lost[0][0]}"
        assert known.rows == sorted(known.rows), "acknowledged out of order"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sync", choices=["none", "interval", "turn"], default="interval")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        report = KillLoop(Path(directory), options.seed, options.sync).run(options.kills)
    sys.stdout.write(f"{report}\n")


if __name__ == "__main__":
    main()
