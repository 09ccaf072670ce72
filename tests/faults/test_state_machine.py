"""Any sequence of what a store can be asked and can suffer, against a list of rows."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from sessions import store_jsonl
from sessions.errors import (
    MessageConflict,
    SessionNotFound,
    StoreReadOnly,
    StoreUnavailable,
)
from sessions.key import SessionKey
from sessions.record import NoteKind, Outcome, Record, closing, note, user
from sessions.session import Patch
from sessions.store import Appended
from sessions.store_jsonl import JsonlStore
from tests.support.faulty_disk import FaultyDisk
from tests.support.stores import abandon, answer, idle, never_wait_for_the_disk

T = TypeVar("T")
KEYS = [SessionKey("slack", "C1"), SessionKey("websocket", "two")]
TEXTS = ["red", "green", "blue é 💡", "x" * 400]
keys = st.sampled_from(KEYS)
texts = st.sampled_from(TEXTS)
ids = st.integers(0, 40).map(str)
# What a rule chooses from is not known when it is drawn: a number stands for the choice.
picks = st.integers(0, 255)


@dataclass
class Model:
    """One session as it must be."""

    rows: list[Record] = field(default_factory=list)
    title: str = ""
    offset: int = 0
    conversation: int = 1
    doubtful: list[Record] = field(default_factory=list)
    """Refused without being taken back: they may turn up once."""

    @property
    def messages(self) -> list[Record]:
        return [row for row in self.rows if not row.is_note]

    @property
    def pending(self) -> list[int]:
        settled = {seq for row in self.rows for seq in row.settles or ()}
        return [row.seq for row in self.rows if row.role == "user" and row.seq not in settled]

    @property
    def undelivered(self) -> list[int]:
        facts = [row.note for row in self.rows if row.note and row.is_note]
        delivered = {fact["seq"] for fact in facts if fact["kind"] == NoteKind.DELIVERED}
        return [row.seq for row in self.rows if row.is_reply and row.seq not in delivered]

    def find(self, id: str) -> Record | None:
        return next((row for row in self.rows if row.role == "user" and row.id == id), None)


class StoreMachine(RuleBasedStateMachine):
    root: ClassVar[Path]
    disk: ClassVar[FaultyDisk]
    numbers: ClassVar[Any] = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.path = self.root / str(next(self.numbers))
        self.models: dict[SessionKey, Model] = {}
        self.read_only = self.slow = False
        self.turns = itertools.count()
        self.options: dict[str, Any] = {}
        self.store: JsonlStore

    def run(self, work: Awaitable[T]) -> T:
        async def main() -> T:
            try:
                return await work
            finally:
                await idle(self.store)

        return self.runner.run(main())

    @initialize(
        sync=st.sampled_from(["interval", "turn", "none"]),
        cap=st.sampled_from([0, 4, 12]),
        cache_bytes=st.sampled_from([1, 1 << 20]),
        open_files=st.sampled_from([1, 8]),
        slow=st.booleans(),
    )
    def start(self, **options: Any) -> None:
        cap, self.slow = options.pop("cap"), options.pop("slow")
        self.options = {"sync_seconds": 3600, "file_cap": cap, **options}
        self.open()

    def open(self) -> None:
        self.store = JsonlStore(self.path, **self.options)
        self.run(self.store.open())
        self.read_only = False
        # Writes then go through a thread.
        self.store._slow_until = math.inf if self.slow else 0.0

    def teardown(self) -> None:
        self.disk.heal()
        if self.options:
            self.run(abandon(self.store))
        self.runner.close()

    # -- appending ------------------------------------------------------------------------------

    def append(
        self, key: SessionKey, drafts: Sequence[Record], patch: Patch | None = None
    ) -> list[Record]:
        return self.follow(key, drafts, lambda: self.store.append(key, drafts, patch))

    def follow(
        self, key: SessionKey, drafts: Sequence[Record], work: Callable[[], Awaitable[Appended]]
    ) -> list[Record]:
        model = self.models.get(key, Model())
        try:
            appended = self.run(work())
        except StoreReadOnly:
            assert self.read_only
            model.doubtful += drafts
            return []
        self.models.setdefault(key, model)
        assert not (self.read_only and appended.records), "a read-only store acknowledged"
        self.check_appended(model, drafts, appended)
        model.rows += appended.records
        return appended.records

    def check_appended(self, model: Model, drafts: Sequence[Record], appended: Appended) -> None:
        last = model.rows[-1].seq if model.rows else 0
        known = {
            draft.id: row.seq for draft in drafts if draft.id and (row := model.find(draft.id))
        }
        for draft_id, seq in known.items():
            assert appended.duplicates[str(draft_id)] == seq, "a message was taken twice"
        new = [row.content for row in appended.records]
        assert new == [draft.content for draft in drafts if not (draft.id and draft.id in known)]
        seqs = [last, *(row.seq for row in appended.records)]
        assert all(a < b for a, b in itertools.pairwise(seqs))

    @rule(key=keys, id=ids, text=texts)
    def say(self, key: SessionKey, id: str, text: str) -> None:
        self.see_doubtful(key)
        model = self.models.get(key, Model())
        known = model.find(id)
        if known is not None and known.content != text:
            with pytest.raises(MessageConflict):
                self.run(self.store.append(key, [user(text, id=id)]))
        else:
            self.append(key, [user(text, id=id)])

    @rule(key=keys, count=st.integers(2, 5), text=texts)
    def say_much(self, key: SessionKey, count: int, text: str) -> None:
        self.append(key, [user(text) for _ in range(count)])

    def existing(self) -> list[SessionKey]:
        return [key for key, model in self.models.items() if model.rows]

    @rule(key=keys, pick=picks, text=texts)
    def close_a_turn(self, key: SessionKey, pick: int, text: str) -> None:
        if key not in self.existing():
            return
        chosen = [seq for at, seq in enumerate(self.models[key].pending) if pick >> at % 8 & 1]
        turn = f"t{next(self.turns)}"
        call = Record("assistant", "", tool_calls=[{"id": turn, "function": {}}], turn=turn)
        result = Record("tool", "done", tool_call_id=turn, turn=turn)
        self.append(key, [note(NoteKind.ATTEMPT, turn=turn, n=1), call])
        self.append(key, [result])
        self.append(key, [answer(*chosen, text=text, turn=turn, usage={"output": 1})])

    @rule(key=keys, pick=picks)
    def deliver(self, key: SessionKey, pick: int) -> None:
        undelivered = self.models.get(key, Model()).undelivered
        if undelivered:
            seq = undelivered[pick % len(undelivered)]
            self.append(key, [note(NoteKind.DELIVERED, seq=seq)])

    @rule(key=keys)
    def speak_to_nobody(self, key: SessionKey) -> None:
        if key not in self.models and not self.read_only:
            with pytest.raises(SessionNotFound):
                self.run(self.store.append(key, [answer(1)]))

    # -- metadata -------------------------------------------------------------------------------

    @rule(key=keys, pick=picks, title=st.sampled_from(["a", "b" * 300]), move=st.booleans())
    def update(self, key: SessionKey, pick: int, title: str, move: bool) -> None:
        if key not in self.existing() or self.read_only:
            return
        model = self.models[key]
        seqs = [row.seq for row in model.rows]
        offset = seqs[pick % len(seqs)] if move else model.offset
        patch = Patch(title=title, consolidated=offset) if move else Patch(title=title)
        self.run(self.store.update(key, patch))
        model.title, model.offset = title, offset

    @rule(key=keys)
    def start_anew(self, key: SessionKey) -> None:
        if key not in self.existing() or self.read_only:
            return
        model = self.models[key]
        draft = closing("anew", dict.fromkeys(model.pending, Outcome.COMMAND), command=True)
        records = self.follow(key, [draft], lambda: self.store.new_conversation(key, draft))
        if records:
            model.title, model.offset = "", records[0].seq
            model.conversation += 1

    @rule(key=keys)
    def delete(self, key: SessionKey) -> None:
        if key in self.existing():
            assert self.run(self.store.delete(key))
            del self.models[key]

    # -- memory, restarts, faults -----------------------------------------------------------------

    @rule(key=keys)
    def forget(self, key: SessionKey) -> None:
        self.run(self.store.invalidate(key))

    @rule(key=keys)
    def hold(self, key: SessionKey) -> None:
        session = self.run(self.store.get(key))

        assert (session is None) == (key not in self.models) or self.models[key].doubtful

    @rule()
    def restart(self) -> None:
        flushed = self.run(self.store.close())

        assert self.read_only or flushed.failed == 0
        assert (self.path / "CLEAN").exists() != self.read_only
        self.disk.heal()
        self.open()

    @rule()
    def die(self) -> None:
        self.run(abandon(self.store))
        self.disk.heal()
        self.open()

    @rule(
        key=keys,
        text=texts,
        room=st.sampled_from([0, 1, 60, 200, 450]),
        cannot_truncate=st.booleans(),
        closes=st.booleans(),
    )
    def run_full(
        self, key: SessionKey, text: str, room: int, cannot_truncate: bool, closes: bool
    ) -> None:
        """The disk is full for one append. Nothing of it stays, or it is acknowledged."""
        if self.read_only or (closes and key not in self.models):
            return
        drafts = [answer(text=text)] if closes else [user(text), user(text, id="full")]
        if not closes and (known := self.models.get(key, Model()).find("full")):
            drafts = [user(text), user(str(known.content), id="full")]
        self.disk.room, self.disk.cannot_truncate = room, cannot_truncate
        try:
            self.append(key, drafts)
        except StoreUnavailable:
            if cannot_truncate:
                self.models.setdefault(key, Model()).doubtful += drafts
        finally:
            self.disk.heal()

    @rule(key=keys, text=texts)
    def fail_to_sync(self, key: SessionKey, text: str) -> None:
        if self.read_only or key not in self.existing():
            return
        self.disk.fail_every_sync()
        try:
            appended = self.run(self.store.append(key, [user(text)]))
            self.models[key].rows += appended.records
        except StoreUnavailable:
            self.models[key].doubtful.append(user(text))
        self.run(self.store.flush())
        self.disk.heal()
        self.read_only = self.store._syncer.failure is not None

        if self.read_only:
            with pytest.raises(StoreReadOnly):
                self.run(self.store.append(key, [user("refused")]))

    # -- what always holds ------------------------------------------------------------------------

    def see_doubtful(self, key: SessionKey) -> None:
        """Rows of a failed write may be there. Once seen, they stay."""
        model = self.models.get(key)
        if model is None or not model.doubtful:
            return
        self.run(self.store.invalidate(key))
        try:
            found = self.run(self.store.read(key, after=0, limit=10_000)).records
        except SessionNotFound:
            found = []
        known = {row.seq for row in model.rows}
        for row in found:
            if row.seq not in known:
                match = [draft for draft in model.doubtful if draft.content == row.content]
                assert match or row.is_note, f"nobody wrote {row}"
                if match:
                    model.doubtful.remove(match[0])
                model.rows.append(row)
        model.rows.sort(key=lambda row: row.seq)
        model.doubtful.clear()
        if not model.rows and not found:
            self.models.pop(key)

    @invariant()
    def everything_is_as_acknowledged(self) -> None:
        for key in KEYS:
            self.see_doubtful(key)
        self.rows_are_those_acknowledged()
        self.every_cursor_finds_its_place()
        self.work_left_is_known()
        self.metadata_is_that_acknowledged()

    def rows_are_those_acknowledged(self) -> None:
        for key in KEYS:
            model = self.models.get(key)
            if model is None:
                with pytest.raises(SessionNotFound):
                    self.run(self.store.read(key, after=0))
                continue
            found = self.run(self.store.read(key, after=0, limit=10_000)).records
            assert [row for row in found if not row.is_note] == model.messages
            assert {row.seq for row in found} <= {row.seq for row in model.rows}
            ids = [row.id for row in found if row.id is not None]
            assert len(ids) == len(set(ids)), "a message is there twice"

    def every_cursor_finds_its_place(self) -> None:
        for key in self.existing():
            rows = self.run(self.store.read(key, after=0, limit=10_000)).records
            middle = rows[len(rows) // 2].seq if rows else 0
            after = self.run(self.store.read(key, after=middle, limit=3)).records
            before = self.run(self.store.read(key, before=middle, limit=3)).records
            assert after == [row for row in rows if row.seq > middle][:3]
            assert before == [row for row in rows if row.seq < middle][-3:]

    def work_left_is_known(self) -> None:
        async def work(found: Any) -> dict[SessionKey, list[int]]:
            return {key: [row.seq for row in rows] async for key, rows in found}

        pending = {key: seqs for key, model in self.models.items() if (seqs := model.pending)}
        undelivered = {
            key: seqs
            for key, model in self.models.items()
            if key.channel == "slack" and (seqs := model.undelivered)
        }
        assert self.run(work(self.store.pending())) == pending
        assert self.run(work(self.store.undelivered())) == undelivered

    def metadata_is_that_acknowledged(self) -> None:
        for key in self.existing():
            model = self.models[key]
            session = self.run(self.store.view(key))
            assert session is not None
            facts = (session.title, session.state.consolidated.seq, session.state.conversation)
            assert facts == (model.title, model.offset, model.conversation)
            assert model.doubtful or session.message_count == len(model.messages)

    @rule()
    def list_them(self) -> None:
        listing = self.run(self.store.find())
        found = {info.key: info.message_count for info in listing.sessions if "#" not in info.key}

        if not any(model.doubtful for model in self.models.values()):
            assert found == {str(key): len(self.models[key].messages) for key in self.models}


def test_any_sequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked of a store and whatever its disk does, what it acknowledged is there."""
    never_wait_for_the_disk(monkeypatch)
    monkeypatch.setattr(store_jsonl, "GARBAGE_BYTES", 2_000)
    StoreMachine.root, StoreMachine.disk = tmp_path, FaultyDisk(monkeypatch)

    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=100,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
