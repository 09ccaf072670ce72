"""The gateway as a push channel sees it: everything in the name of the people who write there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from channels.channel import Inbound
from channels.errors import Refused
from gateway.lanes import Lanes
from gateway.media import Media
from gateway.outbox import delivery_id
from gateway.router import Router
from gateway.users import User
from sessions import clock
from sessions.errors import SessionError, SessionNotFound
from sessions.key import SessionKey
from sessions.record import NoteKind, Outcome, Record, closing, note
from sessions.session import Patch, Session
from sessions.store import SessionStore


class PushHost:
    def __init__(
        self, channel: str, store: SessionStore, router: Router, lanes: Lanes, media: Media
    ) -> None:
        self._channel, self._media = channel, media
        self._store, self._router, self._lanes = store, router, lanes

    async def receive(self, inbound: Inbound) -> None:
        """Returns once the message is in the log, now or earlier. Raises Refused."""
        sender = User(f"{self._channel}:{inbound.sender.id}", owns_chats=False)
        try:
            await self._router.receive(inbound, sender, lambda _: None)
        except Refused as refusal:
            # The platform sends a message more than once, and names in it may have changed since.
            if refusal.code != "conflict" or not await self._known(inbound):
                raise

    async def _known(self, inbound: Inbound) -> bool:
        session = await self._session(inbound.chat_id)
        if session is None:
            return False
        return inbound.id in session.ids or inbound.id in (session.older_ids or {})

    async def file(self, id: str) -> Path | None:
        """Where a file of an answer lies; None if it is gone."""
        facts = await asyncio.to_thread(self._media.facts, id)
        return None if facts is None else self._media.file(id)

    async def last_active(self, chat_id: str) -> float | None:
        session = await self._session(chat_id)
        if session is None:
            return None
        return time.time() - clock.seconds(session.updated_at)

    async def stop(self, chat_id: str, delivery: str) -> bool:
        """Ends the answer under way; False if it is not that one, or none."""
        key = SessionKey(self._channel, chat_id)
        turn = self._lanes.turns.get(key)
        if turn is None or _delivery(key, turn.answering) != delivery:
            return False
        return self._lanes.interrupt(key, Outcome.STOPPED)

    async def regenerate(self, inbound: Inbound, delivery: str) -> None:
        """The answer is wanted anew. Raises Refused, also if it is not the last one."""
        if await self._known(inbound):
            return
        session = await self._session(inbound.chat_id)
        last = _last_answered(session) if session is not None else []
        if session is None or _delivery(session.key, last) != delivery:
            raise Refused("conflict", "Only the last answer can be made again.")
        await self.receive(inbound)

    async def edit(self, inbound: Inbound, original: str) -> None:
        """While it waits, the new text takes its place; afterwards it is only recorded."""
        session = await self._session(inbound.chat_id)
        seq = session.ids.get(original) if session is not None else None
        if session is None or seq is None:
            return
        if self._waits(session, seq):
            changed = _replacing(inbound, seq)
            await self.receive(changed)
        else:
            await self._record(
                inbound.chat_id, note(NoteKind.EDITED, seq=seq, content=inbound.text)
            )

    async def take_back(self, chat_id: str, id: str) -> None:
        """While it waits, it is withdrawn; afterwards it is only recorded."""
        session = await self._session(chat_id)
        seq = session.ids.get(id) if session is not None else None
        if session is None or seq is None:
            return

        def decide(session: Session) -> tuple[list[Record], Patch | None]:
            if self._waits(session, seq):
                settles = {seq: Outcome.WITHDRAWN.value}
                return [closing("", settles, outcome=Outcome.WITHDRAWN.value)], None
            return [note(NoteKind.DELETED, seq=seq)], None

        try:
            await self._store.transact(session.key, decide)
        except SessionNotFound:
            return
        except SessionError as error:
            raise Refused("storage_unavailable", str(error)) from error

    async def feedback(self, chat_id: str, delivery: str, user: str, *, good: bool) -> None:
        fact = note(NoteKind.FEEDBACK, delivery=delivery, user=user, good=good)
        await self._record(chat_id, fact)

    async def _record(self, chat_id: str, fact: Record) -> None:
        try:
            await self._store.append(SessionKey(self._channel, chat_id), [fact])
        except SessionNotFound:
            return
        except SessionError as error:
            raise Refused("storage_unavailable", str(error)) from error

    def _waits(self, session: Session, seq: int) -> bool:
        turn = self._lanes.turns.get(session.key)
        begun = turn is not None and any(row.seq == seq for row in turn.answering)
        row = session.unsettled.get(seq)
        return row is not None and not row.command and not begun

    async def _session(self, chat_id: str) -> Session | None:
        return await self._store.get(SessionKey(self._channel, chat_id))


def _delivery(key: SessionKey, answering: Sequence[Record]) -> str | None:
    first = answering[0].id if answering else None
    return delivery_id(key, first) if first is not None else None


def _last_answered(session: Session) -> list[Record]:
    """The messages the last answer is for; none if a newer message has no answer yet."""
    questions = (row for row in reversed(session.records) if row.role == "user")
    last = next((row.seq for row in questions if not row.command), 0)
    for row in reversed(session.records):
        if last in (row.settles or ()):
            found = (session.record(seq) for seq in sorted(row.settles or ()))
            return [question for question in found if question is not None]
    return []


def _replacing(inbound: Inbound, seq: int) -> Inbound:
    return Inbound(
        channel=inbound.channel,
        chat_id=inbound.chat_id,
        id=inbound.id,
        sender=inbound.sender,
        text=inbound.text,
        media=inbound.media,
        replaces=seq,
    )
