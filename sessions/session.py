"""A conversation in memory: its rows, its metadata and what follows from them.

There is one `Session` per key while anyone holds it. Callers read it; only its store changes it,
and only after the change is in the log.
"""

from __future__ import annotations

import asyncio
import secrets
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from sessions import clock, lines, tokens
from sessions.errors import MessageConflict
from sessions.history import scrub
from sessions.key import SessionKey
from sessions.record import MAX_SEQ, NoteKind, Record

VERSION = 1
SEQ_SKIP = 1_000
PREVIEW_CHARS = 120
END = -1
"""As `Patch.consolidated`: the last record of the batch it is appended with."""


class Offset(msgspec.Struct, frozen=True):
    """Rows up to `seq` are behind the model; `index` is their number in the file when written."""

    seq: int = 0
    index: int = 0


class Archived(msgspec.Struct, frozen=True):
    """Rows up to `seq` are in the archive file, `messages` of them visible."""

    seq: int = 0
    messages: int = 0


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """`metadata.parley`: everything of ours that is not a message."""

    log: str = ""
    owner: str | None = None
    agent: str | None = None
    model: str | None = None
    state: str = "active"
    tags: list[str] = []
    custom: dict[str, Any] = {}
    usage: dict[str, int] = {}
    usage_through: int = 0
    conversation: int = 1
    conversation_start: int = 0
    conversation_at: str = ""
    continues: list[tuple[int, int]] = []
    preview: str = ""
    summary: str | None = None
    previous: dict[str, Any] | None = None
    compacted_at: str | None = None
    compaction_count: int = 0
    consolidated: Offset = Offset()
    settled_through: int = 0
    delivered_through: int = 0
    archived: Archived = Archived()
    epoch: int = 0
    origin: dict[str, Any] | None = None
    damaged: int = 0
    extra: dict[str, Any] | None = None


_STATE_FIELDS = frozenset(State.__struct_encode_fields__) - {"extra"}


class Patch(msgspec.Struct, frozen=True):
    """A change of metadata. What is left unset stays; None clears."""

    title: str | UnsetType | None = UNSET
    tags: list[str] | UnsetType = UNSET
    custom: dict[str, Any] | UnsetType = UNSET
    state: str | UnsetType = UNSET
    owner: str | UnsetType | None = UNSET
    agent: str | UnsetType | None = UNSET
    model: str | UnsetType | None = UNSET
    summary: str | UnsetType | None = UNSET
    previous: dict[str, Any] | UnsetType | None = UNSET
    compacted_at: str | UnsetType | None = UNSET
    compaction_count: int | UnsetType = UNSET
    consolidated: int | UnsetType = UNSET
    conversation: int | UnsetType = UNSET
    continues: list[tuple[int, int]] | UnsetType = UNSET
    preview: str | UnsetType = UNSET
    metadata: dict[str, Any] = {}
    """Keys beside `parley` (`goal_state`, …); None removes one."""


class Session:
    __slots__ = (
        "__weakref__",
        "_push",
        "_tokens",
        "cap_at",
        "created_at",
        "file",
        "garbage",
        "gate",
        "heard",
        "ids",
        "key",
        "last_seq",
        "live_bytes",
        "metadata",
        "metadata_due",
        "next_seq",
        "older_ids",
        "pins",
        "records",
        "retired",
        "state",
        "undelivered",
        "unindexed",
        "unsettled",
        "updated_at",
        "visible",
    )

    def __init__(self, key: SessionKey, *, push: bool = False) -> None:
        self.key = key
        self.created_at = self.updated_at = clock.now()
        self.metadata: dict[str, Any] = {}
        """The metadata line's `metadata` without `parley`: shared with other readers."""
        self.state = State(log=secrets.token_hex(8))
        self.records: list[Record] = []
        """The rows of the live file in the order of their numbers."""
        self.last_seq = 0
        self.heard = 0
        """The highest number listeners know of; a row that is not durable yet may be above it."""
        self.next_seq = 1
        self.visible = 0
        """Messages of the live file that are not in the archive too."""
        self.unsettled: dict[int, Record] = {}
        self.undelivered: dict[int, Record] = {}
        self.ids: dict[str, int] = {}
        self.older_ids: dict[str, tuple[int, int]] | None = {}
        """Ids of archived rows with the hash of their text; None until they have been read."""

        # What stores keep with a session; nothing here is derived from the log.
        self.file: Any = None
        self.gate: asyncio.Future[None] | None = None
        self.pins = 0
        self.live_bytes = 0
        self.garbage = 0
        """Bytes of the live file that a rewrite would leave out."""
        self.cap_at = 0
        """How many rows there must be before the cap is tried again."""
        self.unindexed = False
        """The file was changed while it was loaded."""
        self.metadata_due = True
        self.retired = False
        self._push = push
        self._tokens = (0, 0, 0)

    # -- reading ------------------------------------------------------------------------------

    @property
    def title(self) -> str:
        title = self.metadata.get("title")
        return title if isinstance(title, str) else ""

    @property
    def message_count(self) -> int:
        return self.state.archived.messages + self.visible

    @property
    def pending(self) -> list[Record]:
        """User records that nothing has settled, in order."""
        return list(self.unsettled.values())

    @property
    def settled_through(self) -> int:
        return next(iter(self.unsettled)) - 1 if self.unsettled else self.last_seq

    @property
    def delivered_through(self) -> int:
        return next(iter(self.undelivered)) - 1 if self.undelivered else self.last_seq

    def position(self, seq: int) -> int:
        """How many rows of the live file are numbered `seq` or lower."""
        return bisect_right(self.records, seq, key=_seq)

    def record(self, seq: int) -> Record | None:
        at = self.position(seq)
        found = self.records[at - 1] if at else None
        return found if found is not None and found.seq == seq else None

    def known_id(self, draft: Record) -> int | None:
        """The number under which this message is already in the log. Raises MessageConflict."""
        if draft.id is None or draft.role != "user":
            return None
        seq = self.ids.get(draft.id)
        if seq is not None:
            stored = self.record(seq)
            same = stored is None or (stored.content, stored.media) == (draft.content, draft.media)
        elif self.older_ids and draft.id in self.older_ids:
            seq, digest = self.older_ids[draft.id]
            same = digest == text_hash(draft)
        else:
            return None
        if not same:
            raise MessageConflict(self.key, draft.id, seq)
        return seq

    # -- deciding what to write ---------------------------------------------------------------

    def admit(self, drafts: Iterable[Record]) -> tuple[list[Record], dict[str, int]]:
        """Numbers and dates the drafts that are new; names those that are not. Changes nothing."""
        records: list[Record] = []
        duplicates: dict[str, int] = {}
        seq, stamp = self.next_seq, clock.now()
        named = 0
        for draft in drafts:
            known = draft.id
            if known is not None:
                if known in self.ids or self.older_ids:
                    found = self.known_id(draft)
                    if found is not None:
                        duplicates[known] = found
                        continue
                named += 1
            records.append(replace(draft, seq=seq, timestamp=draft.timestamp or stamp))
            seq += 1
        if named > 1:
            records = self._distinct(records, duplicates)
        return records, duplicates

    def _distinct(self, records: list[Record], duplicates: dict[str, int]) -> list[Record]:
        """The batch itself may hold one message twice."""
        first: dict[str, Record] = {}
        kept = []
        for record in records:
            if record.id is not None and record.role == "user":
                twin = first.setdefault(record.id, record)
                if twin is not record:
                    if (twin.content, twin.media) != (record.content, record.media):
                        raise MessageConflict(self.key, record.id, twin.seq)
                    duplicates[record.id] = twin.seq
                    continue
            kept.append(record)
        return kept

    def patched(self, patch: Patch, last_seq: int) -> tuple[dict[str, Any], State]:
        """Metadata and state after the change; the session itself is not changed yet."""
        metadata = {**self.metadata, **patch.metadata}
        if patch.title is not UNSET:
            metadata["title"] = patch.title
        changes: dict[str, Any] = {
            name: value for name in _PATCH_STATE if (value := getattr(patch, name)) is not UNSET
        }
        if patch.consolidated is not UNSET:
            seq = last_seq if patch.consolidated == END else max(0, patch.consolidated)
            changes["consolidated"] = Offset(seq)
        if patch.conversation is not UNSET:
            changes["conversation_start"] = last_seq
            changes["conversation_at"] = clock.now()
        return (
            {name: value for name, value in metadata.items() if value is not None},
            replace(self.state, **changes),
        )

    def metadata_line(
        self, metadata: dict[str, Any], state: State, rows: Sequence[Record], updated_at: str
    ) -> tuple[bytes, State]:
        """A complete metadata line for a file that holds `rows`, and the state it records.

        The marks are those of now: a mark that lags behind the rows is as good, because the rows
        themselves say what settles them.
        """
        index = bisect_right(rows, state.consolidated.seq, key=_seq)
        state = replace(
            state,
            consolidated=Offset(state.consolidated.seq, index),
            settled_through=self.settled_through,
            delivered_through=self.delivered_through,
        )
        parley: dict[str, Any] = msgspec.to_builtins(state)
        parley.update(parley.pop("extra", None) or {})
        value = {
            "_type": "metadata",
            "version": VERSION,
            "key": str(self.key),
            "created_at": self.created_at,
            "updated_at": updated_at,
            "metadata": {**metadata, "parley": parley},
            "last_consolidated": index,
        }
        return lines.encode_object(value), state

    # -- following the log --------------------------------------------------------------------

    def apply(self, records: Sequence[Record], size: int) -> None:
        """Takes in rows that are now in the log; `size` is what they added to the file."""
        self.records.extend(records)
        ids, unsettled, archived = self.ids, self.unsettled, self.state.archived.seq
        visible = 0
        for record in records:
            seq = record.seq
            visible += seq > archived
            if record.role == "user":
                if record.id is not None:
                    ids[record.id] = seq
                if record.outcome is None:
                    unsettled[seq] = record
                if not self.state.preview and not record.command and self._is_current(seq):
                    self._set_preview(record)
            if record.settles is not None:
                for settled in record.settles:
                    unsettled.pop(settled, None)
            if record.usage is not None and seq > self.state.usage_through:
                self._add_usage(record)
            if record.note is not None:
                if record.note.get("kind") == NoteKind.DELIVERED:
                    delivered = record.note.get("seq")
                    self.undelivered.pop(delivered if isinstance(delivered, int) else 0, None)
                visible -= record.is_note and seq > archived
            if self._push and record.is_reply:
                self.undelivered[seq] = record
        self.visible += visible
        last = records[-1]
        self.last_seq, self.next_seq = last.seq, last.seq + 1
        self.updated_at = last.timestamp
        self.live_bytes += size

    def _is_current(self, seq: int) -> bool:
        return seq > self.state.conversation_start

    def _set_preview(self, record: Record) -> None:
        if shown := preview(record.text):
            self.state = replace(self.state, preview=shown)

    def _add_usage(self, record: Record) -> None:
        total = dict(self.state.usage)
        for name, amount in (record.usage or {}).items():
            if type(amount) is int:
                total[name] = total.get(name, 0) + amount
        self.state = replace(self.state, usage=total, usage_through=record.seq)

    def restart(self, records: Sequence[Record]) -> None:
        """Derives everything anew from the rows of the live file and the marks in the state."""
        self.records = []
        self.visible = 0
        self.ids, self.unsettled, self.undelivered = {}, {}, {}
        self.last_seq, self.next_seq = 0, 1
        if records:
            self.apply(records, 0)
        self.heard = self.last_seq
        settled, delivered = self.state.settled_through, self.state.delivered_through
        self.unsettled = {s: row for s, row in self.unsettled.items() if s > settled}
        self.undelivered = {s: row for s, row in self.undelivered.items() if s > delivered}
        # A mark above the last row proves that rows are gone: their numbers have been seen.
        marks = (settled, delivered, self.state.consolidated.seq, self.state.archived.seq)
        self.next_seq = max(self.last_seq, *(seq for seq in marks if seq < MAX_SEQ)) + 1

    def become(self, other: Session) -> None:
        """Takes over what was read anew; whoever holds this session sees it."""
        given_out = self.next_seq
        for name in _READ_ANEW:
            setattr(self, name, getattr(other, name))
        # A row the file has lost may have been seen: its number is not given out again.
        self.next_seq = max(self.next_seq, given_out)

    def replace_rows(self, records: list[Record]) -> None:
        """After a rewrite: fewer rows in the live file, nothing else has changed."""
        left = {row.id for row in records if row.id is not None and row.role == "user"}
        older = self.older_ids
        if older is not None:
            for row in self.records:
                if row.role == "user" and row.id is not None and row.id not in left:
                    older[row.id] = (row.seq, text_hash(row))
            while len(older) > MAX_OLDER_IDS:
                older.pop(next(iter(older)))
        self.ids = {key: seq for key, seq in self.ids.items() if key in left}
        self.records = records
        self._tokens = (-1, 0, 0)
        archived = self.state.archived.seq
        self.visible = sum(1 for row in records if row.seq > archived and not row.is_note)

    def view(self, limit: int | None = None) -> list[Record]:
        """Rows of the live file the model has not left behind; with a limit the last of them.

        A message that waited while the offset moved past it belongs to what comes after, and what
        is still to be answered is never left out.
        """
        start = self.position(self.state.consolidated.seq)
        if limit is not None:
            start = max(start, len(self.records) - limit)
        rows = self.records[start:]
        if start == 0:
            return rows
        first = rows[0].seq if rows else self.last_seq + 1
        waited = {seq for row in rows if row.settles for seq in row.settles if seq < first}
        waited.update(seq for seq in self.unsettled if seq < first)
        carried = [row for seq in sorted(waited) if (row := self.record(seq)) is not None]
        return [*carried, *rows]

    def token_count(self) -> int:
        """Estimated tokens of the rows the model has not left behind; costs only what is new."""
        offset, counted, total = self._tokens
        if offset != self.state.consolidated.seq or counted > self.last_seq:
            offset, counted, total = self.state.consolidated.seq, self.state.consolidated.seq, 0
        rows = self.records[self.position(counted) :]
        total += sum(tokens.estimate_record(row) for row in rows if not row.command)
        self._tokens = (offset, rows[-1].seq if rows else counted, total)
        return total


MAX_OLDER_IDS = 1_000
_READ_ANEW = tuple(
    name for name in Session.__slots__ if name not in {"__weakref__", "gate", "key", "pins"}
)
_PATCH_STATE = tuple(
    name for name in Patch.__struct_fields__ if name not in {"title", "metadata", "consolidated"}
)


def read_state(value: object) -> State:
    """State from `metadata.parley` of any origin; what does not fit is kept beside it."""
    if not isinstance(value, dict):
        return State()
    state, rest = lines.lenient(State, value, _STATE_FIELDS)
    # A value that does not fit one of our own fields is damage, and must not come back as ours.
    extra = {name: item for name, item in rest.items() if name not in _STATE_FIELDS}
    return replace(state, extra=extra) if extra else state


def preview(text: str) -> str:
    """The line shown for a session in lists."""
    short = " ".join(scrub(text[: 8 * PREVIEW_CHARS]).split())
    return short if len(short) <= PREVIEW_CHARS else short[: PREVIEW_CHARS - 1].rstrip() + "…"


def text_hash(record: Record) -> int:
    return hash((record.text, repr(record.media)))


def _seq(record: Record) -> int:
    return record.seq
