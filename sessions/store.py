"""What every session store promises.

A record is numbered once and never renumbered. When `append` returns, its records are as durable
as the store's sync mode says, so the caller may acknowledge them. Listeners hear of records in
the order of their numbers, at the same level of durability, even if the appending task is
cancelled meanwhile.

Keys given to `append`, `update`, `new_conversation` name a chat; `key#n` is for reading.
Every method may raise SessionUnreadable or StoreUnavailable.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from sessions.key import SessionKey
from sessions.record import Record
from sessions.session import Patch, Session

MAX_PAGE = 1_000
SNIPPET_CHARS = 160

Listener = Callable[[Session, Sequence[Record]], None]
Decide = Callable[[Session], tuple[Sequence[Record], Patch | None]]


class Appended(msgspec.Struct, frozen=True):
    records: list[Record]
    """The rows that were written, numbered."""
    duplicates: dict[str, int]
    """Messages that were in the log already: their id and their number."""


class Page(msgspec.Struct, frozen=True):
    """Rows in the order of their numbers."""

    records: list[Record]
    more: bool
    """There are further rows in the direction of reading."""


class Query(msgspec.Struct, frozen=True, kw_only=True):
    channel: str | None = None
    agent: str | None = None
    user: str | None = None
    state: str | None = None
    tag: str | None = None
    text: str | None = None
    """Every word must occur in one message, or in the title."""
    created_after: str | None = None
    created_before: str | None = None
    limit: int = 50
    cursor: str | None = None


class Match(msgspec.Struct, frozen=True):
    seq: int
    snippet: str


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A session as lists show it."""

    key: str
    channel: str
    chat_id: str
    user: str | None = None
    agent: str | None = None
    model: str | None = None
    state: str = "active"
    title: str = ""
    preview: str = ""
    tags: list[str] = []
    message_count: int = 0
    token_count: int = 0
    token_usage: dict[str, int] = {}
    damaged: int = 0
    created_at: str = ""
    updated_at: str = ""
    last_active_at: str = ""
    compacted_at: str | None = None
    pending: int = 0
    undelivered: int = 0
    matches: list[Match] = []


class Listing(msgspec.Struct, frozen=True):
    sessions: list[SessionInfo]
    next_cursor: str | None


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """An ended conversation: rows after `first` up to and including `last`."""

    number: int
    first: int
    last: int
    title: str = ""
    preview: str = ""
    summary: str | None = None
    goal: Any = None
    continues: list[tuple[int, int]] = []
    listed: bool = True
    started_at: str = ""
    ended_at: str = ""


class Flushed(msgspec.Struct, frozen=True):
    count: int
    failed: int


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    total_sessions: int
    sessions_by_state: dict[str, int]
    total_messages: int
    total_tokens: int
    pending_messages: int
    undelivered_messages: int
    cached_sessions: int = 0
    cached_bytes: int = 0
    unsynced_bytes: int = 0
    open_files: int = 0
    appends: int = 0
    append_seconds: float = 0.0
    """Time spent in writes so far."""
    syncs: int = 0
    sync_seconds: float = 0.0


class SessionLog(Protocol):
    """Order and durability."""

    async def append(
        self, key: SessionKey, drafts: Sequence[Record], patch: Patch | None = None
    ) -> Appended:
        """Writes drafts and patch together or not at all; never twice the same user message id.

        Only a user's message or a proactive delivery creates a session; anything else raises
        SessionNotFound where there is none, so that nothing revives a deleted chat. Raises
        MessageConflict (nothing was written) if an id is taken by another text.
        """

    async def transact(self, key: SessionKey, decide: Decide) -> tuple[Session, Appended]:
        """Like `append`, with drafts that depend on the session.

        `decide` is called in the step of the write: what it has seen still holds when its drafts
        are written. Whatever it raises is passed on, and nothing is written.
        """

    async def read(
        self,
        key: SessionKey,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = 200,
    ) -> Page:
        """Rows after a number, or the last ones before a number, through the archive.

        With neither: the last rows. With both: rows between, from the front. Notes included.
        Never fills the cache.
        """

    def pending(self) -> AsyncIterator[tuple[SessionKey, list[Record]]]:
        """Every session with user records that nothing settles."""

    def undelivered(self) -> AsyncIterator[tuple[SessionKey, list[Record]]]:
        """Every session with replies its push channel has not carried yet."""

    def listen(self, listener: Listener) -> None:
        """Calls back for every batch of rows, in order; the callback must not block or raise."""


class SessionCache(Protocol):
    """One Session object per key while anyone holds it."""

    async def get(self, key: SessionKey) -> Session | None: ...

    async def get_or_create(self, key: SessionKey) -> Session:
        """A new session reaches the disk with its first record."""

    def pin(self, key: SessionKey) -> AbstractAsyncContextManager[Session]:
        """Keeps the session in memory while the context lasts."""

    async def invalidate(self, key: SessionKey) -> None:
        """Forgets what is in memory; whoever holds the Session sees it read anew."""

    async def view(self, key: SessionKey) -> Session | None:
        """A detached copy as the log has it now; caches and repairs nothing."""


class SessionCatalog(Protocol):
    """Sessions as a whole. `find` knows everything that was appended before it was called."""

    async def find(self, query: Query = Query()) -> Listing:  # noqa: B008 - frozen
        """Newest first; ended conversations are listed as `key#n` in state `archived`."""

    async def stats(self) -> Stats: ...

    async def update(self, key: SessionKey, patch: Patch) -> Session: ...

    async def new_conversation(
        self, key: SessionKey, draft: Record, *, listed: bool = True
    ) -> Appended:
        """Appends the closing record that ends the present conversation and starts the next."""

    async def conversations(self, key: SessionKey) -> Sequence[Conversation]: ...

    async def restore(self, key: SessionKey, draft: Record) -> Appended:
        """Makes the model see the ended conversation `key#n` again, from the next message on."""

    async def model_rows(self, key: SessionKey, limit: int) -> Sequence[Record]:
        """Rows the model may see: those of restored conversations, then those since the offset.

        The last `limit` of each, so that a turn costs the same whatever the length of the log.
        """

    async def archive(self, key: SessionKey) -> Session: ...

    async def delete(self, key: SessionKey) -> bool: ...

    async def expire(self, max_age_days: float) -> Sequence[SessionKey]:
        """Deletes sessions nobody touched for so long; never one with work left to do."""


class SessionStore(SessionLog, SessionCache, SessionCatalog, Protocol):
    async def open(self) -> None: ...

    def check_writable(self) -> None:
        """Raises StoreUnavailable or StoreReadOnly if nothing can be appended now."""

    async def flush(self) -> Flushed:
        """Makes everything durable, goes on past a failing session, and counts."""

    async def close(self) -> Flushed: ...


def creates(drafts: Sequence[Record]) -> bool:
    """Only a message, or a delivery nobody asked for, begins a session."""
    return any(draft.role == "user" or draft.channel_delivery for draft in drafts)


def words(text: str | None) -> list[str]:
    return (text or "").casefold().split()


def snippet(text: str, wanted: Sequence[str]) -> str | None:
    """The surroundings of the first word found; None unless every word occurs."""
    folded = text.casefold()
    places = [folded.find(word) for word in wanted]
    if not wanted or min(places) < 0:
        return None
    start = max(0, min(places) - SNIPPET_CHARS // 4)
    cut = re.sub(r"\s+", " ", text[start : start + SNIPPET_CHARS]).strip()
    return ("…" if start else "") + cut + ("…" if start + SNIPPET_CHARS < len(text) else "")


def fits(info: SessionInfo, query: Query) -> bool:
    """Whether a list shows this session. Its matches are those of the query's words."""
    pairs = (
        (info.channel, query.channel),
        (info.agent, query.agent),
        (info.user, query.user),
        (info.state, query.state),
    )
    if any(value is not None and value != own for own, value in pairs):
        return False
    if query.tag is not None and query.tag not in info.tags:
        return False
    if query.created_after is not None and not info.created_at > query.created_after:
        return False
    if query.created_before is not None and not info.created_at < query.created_before:
        return False
    wanted, title = words(query.text), info.title.lower()
    return not wanted or bool(info.matches) or all(word in title for word in wanted)


def make_cursor(info: SessionInfo) -> str:
    token = msgspec.json.encode([info.updated_at, info.key])
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[str, str]:
    """Raises ValueError for a text that is no cursor of ours."""
    token = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    return msgspec.json.decode(token, type=tuple[str, str])
