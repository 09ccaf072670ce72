"""Every state a crash can leave, for everything the log does to its files.

A script runs on a recorded disk. Then every prefix of its file operations is laid out in a fresh
directory, in every form a crash could give it, and a new store must make sense of it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sessions import directory, loader, store_jsonl
from sessions.errors import SessionNotFound
from sessions.record import NoteKind, Outcome, Record, closing, note, user
from sessions.session import END, Patch
from sessions.store_jsonl import JsonlStore
from tests.support import seed_reader
from tests.support.recorded_disk import Crash, Recording, power_losses, process_deaths
from tests.support.stores import (
    CHAT,
    abandon,
    answer,
    archive_file,
    ask,
    doomed,
    idle,
    live_file,
    never_wait_for_the_disk,
    opened,
    pending_of,
    rows_of,
    undelivered_of,
)

Row = tuple[int, str, str, str | None]


@dataclass(frozen=True)
class Known:
    """What a client could know of the session at one moment."""

    rows: tuple[Row, ...] = ()
    notes: frozenset[int] = frozenset()
    durable: int = 0
    """So many rows survive everything."""
    offset: int = 0
    title: str = ""
    conversation: int = 1
    exists: bool = True
    earlier: tuple[Known, ...] = ()

    @property
    def facts(self) -> tuple[int, str, int]:
        return (self.offset, self.title, self.conversation)


class Script:
    """Works on a store and writes down what was acknowledged."""

    def __init__(self, store: JsonlStore, recording: Recording) -> None:
        self.store, self.recording = store, recording
        self.known = Known()

    def note(self, **changes: object) -> None:
        before = replace(self.known, earlier=())
        self.known = replace(
            self.known,
            earlier=(*self.known.earlier, before),
            **changes,  # type: ignore[arg-type]  # the fields of Known
        )
        self.recording.mark(self.known)

    async def append(self, *drafts: Record, patch: Patch | None = None) -> list[Record]:
        appended = await self.store.append(CHAT, drafts, patch)
        self._add(appended.records, patch)
        await idle(self.store)
        return appended.records

    def _add(self, records: Iterable[Record], patch: Patch | None) -> None:
        rows = (*self.known.rows, *map(plain, filter(is_message, records)))
        notes = self.known.notes | {row.seq for row in records if not is_message(row)}
        facts: dict[str, object] = {}
        if patch is not None and isinstance(patch.title, str):
            facts["title"] = patch.title
        if patch is not None and isinstance(patch.consolidated, int):
            facts["offset"] = rows[-1][0] if patch.consolidated == END else patch.consolidated
        self.note(rows=rows, notes=notes, **facts)

    async def turn(self, number: int, **fields: object) -> None:
        [asked] = await self.append(user(f"question {number}", id=f"q{number}"))
        replied = await self.append(
            answer(asked.seq, text=f"answer {number}", turn=f"t{number}", **fields)
        )
        await self.append(note(NoteKind.DELIVERED, seq=replied[0].seq))

    async def update(self, patch: Patch) -> None:
        await self.store.update(CHAT, patch)
        self._add([], patch)
        await idle(self.store)

    async def new(self) -> None:
        [asked] = await self.append(user("/new", id=f"new{len(self.known.rows)}", command=True))
        draft = closing("started anew", {asked.seq: Outcome.COMMAND}, command=True)
        appended = await self.store.new_conversation(CHAT, draft)
        rows = (*self.known.rows, *map(plain, appended.records))
        self.note(rows=rows, offset=rows[-1][0], title="", conversation=self.known.conversation + 1)
        await idle(self.store)

    async def flush(self) -> None:
        await self.store.flush()
        self.note(durable=len(self.known.rows))


def is_message(row: Record) -> bool:
    return not row.is_note


def plain(row: Record) -> Row:
    return (row.seq, row.role, row.text, row.id)


# -- what the scripts do ------------------------------------------------------------------------


async def append(script: Script) -> None:
    await script.turn(1)
    [first, second, _] = await script.append(
        user("two", id="2"), user("three", id="3"), user("four", id="4")
    )
    await script.append(answer(first.seq, second.seq, text="é" * 20))


async def update(script: Script) -> None:
    await script.turn(1)
    await script.update(Patch(title="a title"))
    await script.turn(2)
    await script.update(Patch(title="another", consolidated=4))
    await script.append(user("with a patch", id="p"), patch=Patch(title="third", tags=["x"]))


async def grow_over_the_cap(script: Script) -> None:
    await script.turn(1)
    await script.update(Patch(title="a title", consolidated=2))
    await script.append(user("held", id="held"))
    for number in range(2, 9):
        await script.turn(number)
        if number == 4:
            await script.append(answer(4, text="late"))
            await script.update(Patch(consolidated=5))


async def cut_through_a_turn(script: Script) -> None:
    """Nothing is ever settled: at twice the cap rows are archived that stay in the log too."""
    await script.append(user("held", id="held"))
    call = [{"id": "c1", "type": "function", "function": {"name": "find"}}]
    await script.append(Record("assistant", "", tool_calls=call, turn="t"))
    await script.update(Patch(consolidated=1))
    for number in range(1, 4):
        await script.turn(number)
    await script.append(Record("tool", "found", tool_call_id="c1", turn="t"))
    for number in range(4, 6):
        await script.turn(number)


async def leave_garbage(script: Script) -> None:
    await script.turn(1)
    await script.update(Patch(consolidated=1))
    for number in range(2, 5):
        await script.update(Patch(title=f"title {number}" + "x" * 100))
    await script.turn(2)


async def start_anew(script: Script) -> None:
    await script.turn(1)
    await script.update(Patch(title="the old one"))
    await script.new()
    await script.turn(2)
    await script.new()


async def flush_in_between(script: Script) -> None:
    await script.turn(1)
    await script.flush()
    await script.turn(2)
    await script.flush()
    await script.update(Patch(title="unsynced"))
    await script.turn(3)


async def delete(script: Script) -> None:
    for number in range(1, 5):
        await script.turn(number)
    await script.flush()
    await script.store.delete(CHAT)
    script.note(exists=False)


SCRIPTS: dict[str, tuple[Callable[[Script], Awaitable[None]], int]] = {
    "append": (append, 0),
    "update": (update, 0),
    "cap": (grow_over_the_cap, 8),
    "forced cap": (cut_through_a_turn, 4),
    "garbage": (leave_garbage, 0),
    "new": (start_anew, 0),
    "flush": (flush_in_between, 0),
    "delete": (delete, 6),
}


async def record(tmp_path: Path, name: str, sync: str, *, then_close: bool = False) -> Recording:
    root = tmp_path / "recorded"
    root.mkdir()
    script, cap = SCRIPTS[name]
    with Recording(root) as recording:
        store = JsonlStore(root / "data", sync=sync, sync_seconds=3600, file_cap=cap)
        await store.open()
        await idle(store)
        work = Script(store, recording)
        work.note()
        await script(work)
        if then_close:
            await store.close()
        else:
            await abandon(store)
    return recording


# -- what must hold after a crash ---------------------------------------------------------------


class Check:
    def __init__(
        self, crash: Crash, path: Path, sync: str, *, lossy: bool, legacy: Path | None = None
    ) -> None:
        self.crash, self.path, self.sync = crash, path, sync
        self.before: Known = crash.acknowledged or Known()
        self.after: Known = crash.coming or self.before
        self.least = self.before.durable if lossy else len(self.before.rows)
        self.lossy = lossy
        self.legacy = [legacy] if legacy else []

    async def run(self) -> None:
        first = await self._look(write=True)
        second = await self._look(write=False)

        assert second == first, "the second reading differs from the first"

    async def _look(self, *, write: bool) -> list[Row]:
        store = JsonlStore(
            self.path, sync=self.sync, sync_seconds=3600, file_cap=0, legacy_dirs=self.legacy
        )
        await store.open()
        try:
            try:
                rows = await rows_of(store, CHAT)
            except SessionNotFound:
                await self._check_absent(store)
                return []
            await self._check_readings(store, rows)
            if not write:
                return [plain(row) for row in rows if is_message(row)]
            self._check_rows(rows, clean=store.directory.clean is not None)
            await self._check_work(store, rows)
            await self._check_session(store, rows)
            return await self._check_append(store, rows)
        finally:
            await abandon(store)

    async def _check_absent(self, store: JsonlStore) -> None:
        gone = not (self.before.exists and self.after.exists)
        assert gone or self.least == 0, "the session is gone"
        assert gone or store.directory.clean is None or not self.before.rows
        archive = archive_file(self.path, CHAT)
        assert not archive.exists(), "the next session of that name would get these rows"

    def _check_rows(self, rows: list[Record], *, clean: bool) -> None:
        seqs = [row.seq for row in rows]
        assert all(a < b for a, b in itertools.pairwise(seqs)), "numbers do not increase"
        found = tuple(plain(row) for row in rows if is_message(row))
        assert self.before.exists, "a deleted session came back"
        if not self.after.exists:
            assert found == self.before.rows[len(self.before.rows) - len(found) :]
            return
        assert found == self.after.rows[: len(found)], "not the rows that were written"
        least = len(self.before.rows) if clean else self.least
        assert len(found) >= least, f"{least - len(found)} acknowledged rows are lost"
        notes = {row.seq for row in rows if not is_message(row)}
        assert notes <= self.after.notes

    async def _check_readings(self, store: JsonlStore, rows: list[Record]) -> None:
        """Uncached and cached, from both ends, in small pages."""
        assert await pages_backwards(store) == rows
        await store.get(CHAT)
        assert await rows_of(store, CHAT) == rows, "loading changed the rows"
        assert await pages_backwards(store) == rows
        await store.invalidate(CHAT)
        assert await rows_of(store, CHAT) == rows, "loading again changed the rows"

    async def _check_work(self, store: JsonlStore, rows: list[Record]) -> None:
        settled = {seq for row in rows for seq in row.settles or ()}
        asked = [row.seq for row in rows if row.role == "user" and row.outcome is None]
        assert await pending_of(store, CHAT) == [seq for seq in asked if seq not in settled]
        undelivered = await undelivered_of(store, CHAT)
        delivered = {row.note.get("seq") for row in rows if row.note and row.is_note}
        # A note may be gone with a rewrite, which then has the mark instead.
        assert set(undelivered) <= {row.seq for row in rows if row.is_reply} - delivered

    async def _check_session(self, store: JsonlStore, rows: list[Record]) -> None:
        session = await store.get(CHAT)
        assert session is not None
        facts = (session.state.consolidated.seq, session.title, session.state.conversation)
        possible = {self.before.facts, self.after.facts}
        if self.lossy:
            possible |= {known.facts for known in self.before.earlier}
        assert facts in possible, f"{facts} is neither old nor new: {possible}"
        begun = max((row.conversation or 1 for row in rows), default=1)
        assert session.state.conversation == begun, "a new conversation was begun by half"

    async def _check_append(self, store: JsonlStore, rows: list[Record]) -> list[Row]:
        """What comes next is found by every cursor that was ever given out."""
        [record] = (await store.append(CHAT, [user("after the crash", id="after")])).records
        seen = max((row[0] for row in self.before.rows), default=0)
        assert record.seq > seen, "a number was given out twice"
        now = await rows_of(store, CHAT)
        assert now == [*rows, record]
        first = live_file(self.path, CHAT).read_bytes().split(b"\n")[0]
        assert json.loads(first)["_type"] == "metadata", "the first line is not metadata"
        await self._check_seed_rules(store)
        return [plain(row) for row in now if is_message(row)]

    async def _check_seed_rules(self, store: JsonlStore) -> None:
        """A reader of old sees the same messages before and after the offset."""
        session = await store.update(CHAT, Patch(tags=["seen"]))
        seed = seed_reader.read(live_file(self.path, CHAT))
        offset, split = session.state.consolidated.seq, seed.last_consolidated
        assert [row["seq"] for row in seed.messages] == [row.seq for row in session.records]
        assert all(row["seq"] <= offset for row in seed.messages[:split])
        assert all(row["seq"] > offset for row in seed.messages[split:])
        assert seed.history[-1] == ("user", "after the crash")


async def pages_backwards(store: JsonlStore) -> list[Record]:
    found: list[Record] = []
    before: int | None = None
    while True:
        page = await store.read(CHAT, before=before, limit=3)
        found = [*page.records, *found]
        if not page.more:
            return found
        before = page.records[0].seq


async def check_all(
    crashes: Iterable[Crash],
    path: Path,
    sync: str,
    *,
    lossy: bool,
    legacy: str | None = None,
) -> int:
    count = 0
    for count, crash in enumerate(crashes, 1):
        root = path / str(count)
        crash.lay_out(root)
        check = Check(
            crash, root / "data", sync, lossy=lossy, legacy=root / legacy if legacy else None
        )
        try:
            await check.run()
        except BaseException as error:
            error.add_note(f"crash {count}: {crash.what}, laid out in {root}")
            raise
    return count


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    never_wait_for_the_disk(monkeypatch)
    monkeypatch.setattr(store_jsonl, "GARBAGE_BYTES", 1_000)
    return monkeypatch


def restart_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "boot_id", lambda: "another boot")


@pytest.mark.parametrize("name", SCRIPTS)
async def test_process_death(name: str, tmp_path: Path, quick: pytest.MonkeyPatch) -> None:
    """Whenever the process dies, everything acknowledged is there once and in order."""
    recording = await record(tmp_path, name, "interval")

    assert await check_all(process_deaths(recording), tmp_path, "interval", lossy=False) > 10


@pytest.mark.parametrize("name", SCRIPTS)
async def test_power_loss_in_turn_mode(
    name: str, tmp_path: Path, quick: pytest.MonkeyPatch
) -> None:
    """Whenever power is lost, sync: turn keeps everything acknowledged."""
    recording = await record(tmp_path, name, "turn")
    restart_the_machine(quick)

    assert await check_all(power_losses(recording), tmp_path, "turn", lossy=False) > 10


@pytest.mark.parametrize("name", SCRIPTS)
async def test_power_loss_in_interval_mode(
    name: str, tmp_path: Path, quick: pytest.MonkeyPatch
) -> None:
    """Whenever power is lost, what is left is a prefix, and no cursor skips what follows."""
    recording = await record(tmp_path, name, "interval")
    restart_the_machine(quick)

    assert await check_all(power_losses(recording), tmp_path, "interval", lossy=True) > 10


@pytest.mark.parametrize("sync", ["none", "interval"])
async def test_clean_shutdown(sync: str, tmp_path: Path, quick: pytest.MonkeyPatch) -> None:
    """CLEAN is never there before everything else is on the disk."""
    recording = await record(tmp_path, "update", sync, then_close=True)
    restart_the_machine(quick)

    assert any("CLEAN" in operation.path for operation in recording.operations)
    assert await check_all(power_losses(recording), tmp_path, sync, lossy=True) > 10


async def damaged_directory(path: Path) -> Known:
    """One row unreadable, zeros in the middle, the last line torn; what is left of it."""
    path.mkdir()
    async with opened(path / "data", file_cap=0) as store:
        for number in range(1, 5):
            await ask(store, CHAT, number)
        await store.update(CHAT, Patch(title="a title", consolidated=2))
    file = live_file(path / "data", CHAT)
    lines = file.read_bytes().split(b"\n")
    lines[3] = lines[3].replace(b'"role":', b'"ro\xffle:')
    file.write_bytes(b"\n".join([*lines[:5], b"\0" * 7, *lines[5:]]) + b'{"role":"us')
    found = loader.load(file.read_bytes())
    rows = tuple(map(plain, found.records))
    assert len(rows) == 7
    return Known(rows, durable=7, offset=2, title="a title")


@pytest.mark.parametrize("crashes", [process_deaths, power_losses])
async def test_repair(
    crashes: Callable[[Recording], Iterable[Crash]], tmp_path: Path, quick: pytest.MonkeyPatch
) -> None:
    """A repair can be cut off anywhere: the rows stay, and damaged bytes are never thrown away."""
    root = tmp_path / "recorded"
    known = await damaged_directory(root)
    with Recording(root) as recording:
        async with doomed(root / "data", file_cap=0) as store:
            recording.mark(known)
            await store.get(CHAT)
    states = list(crashes(recording))

    assert await check_all(states, tmp_path, "interval", lossy=False) > 3
    for number in range(1, len(states) + 1):
        aside = (tmp_path / str(number) / "data" / "quarantine").iterdir()
        assert min(len(file.read_bytes()) for file in aside) == len(b'{"role":"us')


@pytest.mark.parametrize("crashes", [process_deaths, power_losses])
async def test_migration(
    crashes: Callable[[Recording], Iterable[Crash]], tmp_path: Path, quick: pytest.MonkeyPatch
) -> None:
    """A migration can be cut off anywhere: the rows are in one of the two files, never in none."""
    root = tmp_path / "recorded"
    legacy = root / "legacy"
    legacy.mkdir(parents=True)
    head = {"_type": "metadata", "key": str(CHAT), "metadata": {}, "last_consolidated": 1}
    rows = [{"role": role, "content": role} for role in ("user", "assistant", "user")]
    text = "".join(json.dumps(line) + "\n" for line in (head, *rows))
    (legacy / "slack_C1.jsonl").write_text(text)
    expected = tuple((n, row["role"], row["content"], None) for n, row in enumerate(rows, 1))
    known = Known(expected, durable=3, offset=1)
    with Recording(root) as recording:
        recording.mark(known)
        async with doomed(root / "data", legacy_dirs=[legacy]) as store:
            await store.get(CHAT)
    states = list(crashes(recording))

    assert await check_all(states, tmp_path, "interval", lossy=False, legacy="legacy") > 10
