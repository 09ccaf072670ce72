"""The store that forgets: everything in memory, nothing on disk.

For trying Parley out, and as the twin the contract suite compares the real stores with. It keeps
order, idempotency and conversations exactly as they do; it has no cap, because it has no files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import time

import msgspec

from sessions import clock, conversations
from sessions.errors import ConversationEnded, SessionNotFound, StoreUnavailable
from sessions.index import (
    MATCHES_SHOWN,
    describe,
    describe_conversation,
    read_conversation,
    searchable,
)
from sessions.key import SessionKey
from sessions.record import Record
from sessions.session import Patch, Session
from sessions.store import (
    Appended,
    Conversation,
    Decide,
    Flushed,
    Listener,
    Listing,
    Match,
    Page,
    Query,
    SessionInfo,
    Stats,
    creates,
    fits,
    make_cursor,
    read_cursor,
    snippet,
    words,
)
from sessions.syncer import LogFile


class MemoryStore:
    def __init__(self, *, push_channels: frozenset[str] = frozenset({"slack"})) -> None:
        self._sessions: dict[SessionKey, Session] = {}
        self._listeners: list[Listener] = []
        self._push = push_channels
        self._closed = False

    async def open(self) -> None:
        self._closed = False

    def check_writable(self) -> None:
        if self._closed:
            raise StoreUnavailable("it is closed")

    async def flush(self) -> Flushed:
        return Flushed(0, 0)

    async def close(self) -> Flushed:
        self._closed = True
        return Flushed(0, 0)

    # -- the log ------------------------------------------------------------------------------

    async def append(
        self, key: SessionKey, drafts: Sequence[Record], patch: Patch | None = None
    ) -> Appended:
        _, appended = await self.transact(key, lambda _: (drafts, patch))
        return appended

    async def transact(self, key: SessionKey, decide: Decide) -> tuple[Session, Appended]:
        self.check_writable()
        if key.conversation is not None:
            raise ConversationEnded(key)
        session = self._sessions.get(key) or Session(key, push=key.channel in self._push)
        drafts, patch = decide(session)
        if session.file is None and not creates(drafts):
            raise SessionNotFound(key)
        records, duplicates = session.admit(drafts)
        if patch is not None:
            last = records[-1].seq if records else session.last_seq
            session.metadata, session.state = session.patched(patch, last)
            session.updated_at = clock.now()
        session.file = session.file or LogFile(Path(), str(key))
        self._sessions[key] = session
        if records:
            session.apply(records, 0)
            session.heard = session.last_seq
            for listener in self._listeners:
                listener(session, records)
        return session, Appended(records, duplicates)

    async def read(
        self,
        key: SessionKey,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = 200,
    ) -> Page:
        session = self._existing(key.chat)
        low = 0
        if key.conversation is not None:
            ended = conversations.find(self._ended(session), key)
            after, before = conversations.bounds(ended, after, before)
            low = ended.first
        rows = [
            row
            for row in session.records
            if row.seq > max(low, after or 0) and (before is None or row.seq < before)
        ]
        more = len(rows) > limit
        return Page(rows[-limit:] if after is None else rows[:limit], more)

    async def pending(self) -> AsyncIterator[tuple[SessionKey, list[Record]]]:
        for session in list(self._sessions.values()):
            if session.unsettled:
                yield session.key, session.pending

    async def undelivered(self) -> AsyncIterator[tuple[SessionKey, list[Record]]]:
        for session in list(self._sessions.values()):
            if session.undelivered:
                yield session.key, list(session.undelivered.values())

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    # -- sessions -----------------------------------------------------------------------------

    def _existing(self, key: SessionKey) -> Session:
        session = self._sessions.get(key)
        if session is None or session.file is None:
            raise SessionNotFound(key)
        return session

    async def get(self, key: SessionKey) -> Session | None:
        if key.conversation is not None:
            return await self.view(key)
        session = self._sessions.get(key)
        return session if session is not None and session.file is not None else None

    async def get_or_create(self, key: SessionKey) -> Session:
        if key.conversation is not None:
            raise ConversationEnded(key)
        return self._sessions.setdefault(key, Session(key, push=key.channel in self._push))

    @asynccontextmanager
    async def pin(self, key: SessionKey) -> AsyncIterator[Session]:
        session = await self.get_or_create(key)
        session.pins += 1
        try:
            yield session
        finally:
            session.pins -= 1

    async def invalidate(self, key: SessionKey) -> None:
        """There is nothing to read anew."""

    async def view(self, key: SessionKey) -> Session | None:
        session = await self.get(key.chat)
        if session is None:
            return None
        if key.conversation is not None:
            ended = conversations.find(self._ended(session), key)
            return conversations.view(session, key, ended, session.records)
        copy = Session(key, push=key.channel in self._push)
        copy.become(session)
        copy.metadata = dict(session.metadata)
        copy.restart(list(session.records))
        return copy

    # -- the catalogue ------------------------------------------------------------------------

    async def find(self, query: Query = Query()) -> Listing:  # noqa: B008 - frozen
        found = sorted(self._infos(query), key=_order, reverse=True)
        if query.cursor is not None:
            cursor = read_cursor(query.cursor)
            found = [info for info in found if _order(info) < cursor]
        if query.limit > 0 and len(found) > query.limit:
            found = found[: query.limit]
            return Listing(found, make_cursor(found[-1]))
        return Listing(found, None)

    def _infos(self, query: Query) -> list[SessionInfo]:
        wanted = words(query.text)
        found: list[SessionInfo] = []
        for session in self._sessions.values():
            if session.file is None:
                continue
            infos = [describe(session)]
            infos += [
                describe_conversation(session, ended)
                for ended in self._ended(session)
                if ended.listed
            ]
            matches = self._matches(session, wanted)
            infos[0] = msgspec.structs.replace(infos[0], matches=matches)
            found += [info for info in infos if fits(info, query)]
        return found

    @staticmethod
    def _matches(session: Session, wanted: Sequence[str]) -> list[Match]:
        texts = ((row.seq, row.text) for row in reversed(session.records) if searchable(row))
        found = ((seq, snippet(text, wanted)) for seq, text in texts)
        return [Match(seq, shown) for seq, shown in found if shown is not None][:MATCHES_SHOWN]

    async def stats(self) -> Stats:
        sessions = [session for session in self._sessions.values() if session.file is not None]
        states: dict[str, int] = {}
        for session in sessions:
            states[session.state.state] = states.get(session.state.state, 0) + 1
        return Stats(
            total_sessions=len(sessions),
            sessions_by_state=states,
            total_messages=sum(session.message_count for session in sessions),
            total_tokens=sum(session.token_count() for session in sessions),
            pending_messages=sum(len(session.unsettled) for session in sessions),
            undelivered_messages=sum(len(session.undelivered) for session in sessions),
            cached_sessions=len(sessions),
        )

    async def update(self, key: SessionKey, patch: Patch) -> Session:
        session, _ = await self.transact(key, lambda _: ([], patch))
        return session

    async def archive(self, key: SessionKey) -> Session:
        return await self.update(key, Patch(state="archived"))

    async def new_conversation(
        self, key: SessionKey, draft: Record, *, listed: bool = True
    ) -> Appended:
        _, appended = await self.transact(
            key, lambda session: conversations.start(session, draft, listed=listed)
        )
        return appended

    async def conversations(self, key: SessionKey) -> Sequence[Conversation]:
        return self._ended(self._existing(key.chat))

    @staticmethod
    def _ended(session: Session) -> list[Conversation]:
        found = (read_conversation(row) for row in session.records)
        return [ended for ended in found if ended is not None]

    async def restore(self, key: SessionKey, draft: Record) -> Appended:
        ended = conversations.find(self._ended(self._existing(key.chat)), key)
        _, appended = await self.transact(
            key.chat, lambda session: conversations.resume(session, draft, ended)
        )
        return appended

    async def model_rows(self, key: SessionKey, limit: int) -> Sequence[Record]:
        session = self._existing(key)
        earlier = [
            row
            for first, last in session.state.continues
            for row in session.records
            if first < row.seq <= last
        ]
        return [*earlier[-limit:], *session.view(limit)]

    async def delete(self, key: SessionKey) -> bool:
        if key.conversation is not None:
            raise ConversationEnded(key)
        session = self._sessions.pop(key, None)
        if session is None or session.file is None:
            return False
        session.retired = True
        return True

    async def expire(self, max_age_days: float) -> Sequence[SessionKey]:
        cutoff = clock.from_epoch(time() - max_age_days * 86_400)
        expired = [
            key
            for key, session in self._sessions.items()
            if session.file is not None
            and session.updated_at < cutoff
            and not (session.pins or session.unsettled or session.undelivered)
        ]
        for key in expired:
            await self.delete(key)
        return expired


def _order(info: SessionInfo) -> tuple[str, str]:
    return info.updated_at, info.key
