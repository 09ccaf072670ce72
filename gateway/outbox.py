"""Replies on their way to the channels that must carry them: in order per chat, each exactly once.

There is no queue beside the log. What waits is what the log has no delivery note for; a task per
chat works it off in order, and after a crash it goes on with the same replies under the same
delivery ids. While a turn runs and nothing waits before it, its growing answer is shown.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from loguru import logger

from channels.channel import Answer, Delivery, Event, PushChannel, Reply
from channels.errors import Later, Undeliverable
from gateway import settlement
from gateway.bus import Bus
from gateway.turn import Turn
from sessions import clock
from sessions.errors import SessionError, SessionNotFound
from sessions.key import SessionKey
from sessions.record import NoteKind, Record, note
from sessions.session import Session
from sessions.store import SessionStore
from sessions.tasks import Tasks

PAUSES_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
MAX_AGE_SECONDS = 86_400.0
HOLD_SECONDS = 1.0
LIVE = frozenset({"delta", "reasoning", "tool"})


class Outbox:
    def __init__(self, store: SessionStore, bus: Bus, turns: Mapping[SessionKey, Turn]) -> None:
        self._store, self._bus, self._turns = store, bus, turns
        self._channels: dict[str, PushChannel] = {}
        self._growing: dict[SessionKey, tuple[str, Delivery]] = {}
        """The turn that is being shown in each chat."""
        self._sure: dict[SessionKey, set[int]] = {}
        """Replies of this process that cannot have been posted before."""
        self._busy: set[SessionKey] = set()
        self._tasks = Tasks("outbox")
        self._stopping = False
        store.listen(self._follow)

    def carry(self, channel: PushChannel) -> None:
        """Replies of this channel's chats go out through it from now on."""
        self._channels[channel.name] = channel
        self._bus.follow(channel.name, self._on_event)

    async def recover(self) -> int:
        """Takes up what earlier processes left. Returns how many replies wait."""
        count = 0
        async for key, rows in self._store.undelivered():
            if key.channel in self._channels:
                count += len(rows)
                self._wake(key)
        if count:
            logger.bind(count=count).warning("delivery recovered")
        return count

    async def drain(self, seconds: float) -> None:
        """What can be delivered in time is; the rest stays in the log for the next start."""
        if not await self._tasks.wait(seconds):
            self._stopping = True
            await self._tasks.cancel()
        self._stopping = True
        growing, self._growing = self._growing, {}
        for _, delivery in growing.values():
            await delivery.leave()

    # -- a growing answer ---------------------------------------------------------------------

    def _on_event(self, key: SessionKey, event: Event) -> None:
        if event.kind == "turn_start":
            self._open(key)
        elif event.kind in LIVE:
            shown = self._growing.get(key)
            if shown is not None and shown[0] == event.turn:
                shown[1].show(event)
        elif event.kind == "turn_end":
            turn = self._turns.get(key)
            if turn is None or event.seq not in turn.session.undelivered:
                self._leave(key, event.turn)  # It ended without anything to deliver.

    def _open(self, key: SessionKey) -> None:
        """Shows the running turn, unless a reply before it still waits."""
        turn = self._turns.get(key)
        if turn is None or turn.outcome != "pending" or turn.session.undelivered or self._stopping:
            return
        try:
            delivery = self._delivery(turn.session, turn.answering, turn.id, turn.attempt > 1)
        except Undeliverable:
            return  # Said when the whole answer is to be delivered.
        self._leave(key)
        self._growing[key] = turn.id, delivery
        delivery.show(Event("turn_start", turn.snapshot(), turn=turn.id))

    def _leave(self, key: SessionKey, turn: str | None = None) -> None:
        """What is shown comes to nothing; with `turn` only if it is that turn."""
        shown = self._growing.get(key)
        if shown is not None and turn in (None, shown[0]):
            del self._growing[key]
            self._tasks.spawn(shown[1].leave(), "leave")

    def _delivery(
        self, session: Session, answering: Sequence[Record], turn: str, doubtful: bool, seq: int = 0
    ) -> Delivery:
        key = session.key
        first = answering[0] if answering else None
        name = first.id if first is not None and first.id is not None else f"{seq}"
        delivery = delivery_id(key, name)
        reply = Reply(
            chat_id=key.chat_id,
            delivery=delivery,
            turn=turn,
            answers=first.id if first is not None else None,
            recipient=_sender(first) if first is not None else "",
            handle=_handle(session, delivery),
            doubtful=doubtful,
        )
        keep = functools.partial(self._keep, key, turn, delivery)
        return self._channels[key.channel].open(reply, keep)

    async def _keep(
        self, key: SessionKey, turn: str, delivery: str, handle: dict[str, Any]
    ) -> None:
        """A message that is out there is known before anything else happens to it."""
        fact = note(NoteKind.STREAM, turn=turn, delivery=delivery, handle=handle)
        try:
            await self._store.append(key, [fact])
        except SessionError as error:
            logger.bind(session=str(key), error=str(error)).warning("delivery not noted")

    # -- whole replies ------------------------------------------------------------------------

    def _follow(self, session: Session, rows: Sequence[Record]) -> None:
        """In the step in which rows are written."""
        key = session.key
        if key.channel not in self._channels:
            return
        replies = [row for row in rows if row.seq in session.undelivered]
        for row in replies:
            turn = self._turns.get(key)
            of_first_run = turn is not None and turn.id == row.turn and turn.attempt == 1
            if row.command or row.channel_delivery or row.turn is None or of_first_run:
                self._sure.setdefault(key, set()).add(row.seq)
        if replies:
            self._wake(key)

    def _wake(self, key: SessionKey) -> None:
        if key not in self._busy and not self._stopping:
            self._busy.add(key)
            self._tasks.spawn(self._drive(key), str(key))

    async def _drive(self, key: SessionKey) -> None:
        try:
            async with self._store.pin(key) as session:
                while not self._stopping and (row := _next(session)) is not None:
                    await self._deliver(session, row)
        except SessionNotFound:
            pass
        except SessionError as error:
            logger.bind(session=str(key), error=str(error)).error("delivery stopped")
            await asyncio.sleep(HOLD_SECONDS)
        finally:
            self._busy.discard(key)
        left = await self._store.get(key)
        if left is None or left.retired:
            self._sure.pop(key, None)
        elif _next(left) is not None:
            self._wake(key)
        elif key not in self._growing:
            self._open(key)

    async def _deliver(self, session: Session, row: Record) -> None:
        key = session.key
        log = logger.bind(session=str(key), channel=key.channel, seq=row.seq, turn=row.turn)
        try:
            facts = await self._finish(session, await self._take(session, row), row, log)
        except Undeliverable as error:
            log.bind(reason=error.reason).error("delivery failed")
            facts = {"undeliverable": error.reason}
        await self._conclude(session, note(NoteKind.DELIVERED, seq=row.seq, **facts), log)

    async def _conclude(self, session: Session, fact: Record, log: Any) -> None:
        """Tried until it is in the log: what is out there must not go out again."""
        while True:
            try:
                await settlement.write(self._store, session, fact)
            except SessionNotFound:
                raise
            except SessionError as error:
                log.bind(error=str(error)).warning("delivery not noted")
                await asyncio.sleep(HOLD_SECONDS)
            else:
                return

    async def _take(self, session: Session, row: Record) -> Delivery:
        doubtful = self._is_doubtful(session.key, row)
        shown = self._growing.get(session.key)
        if shown is not None and shown[0] == row.turn:
            del self._growing[session.key]
            return shown[1]
        first = await self._first(session, row)
        answering = [first] if first is not None else []
        return self._delivery(session, answering, row.turn or "", doubtful, row.seq)

    def _is_doubtful(self, key: SessionKey, row: Record) -> bool:
        """Sure only once: whatever happens after this may have posted it."""
        sure = self._sure.get(key, set())
        doubtful = row.seq not in sure
        sure.discard(row.seq)
        if not sure:
            self._sure.pop(key, None)
        return doubtful

    async def _first(self, session: Session, row: Record) -> Record | None:
        """The first message it answers, which may be in the archive by now."""
        if not row.settles:
            return None
        seq = min(row.settles)
        known = session.record(seq)
        if known is not None:
            return known
        page = await self._store.read(session.key, after=seq - 1, limit=1)
        return next((found for found in page.records if found.seq == seq), None)

    async def _finish(
        self, session: Session, delivery: Delivery, row: Record, log: Any
    ) -> dict[str, Any]:
        answer = Answer(
            text=row.text,
            outcome=row.outcome or "",
            error=row.error or "",
            media=row.media or [],
            command=row.command,
        )
        attempt = 0
        while True:
            pause = PAUSES_SECONDS[min(attempt, len(PAUSES_SECONDS) - 1)]
            try:
                facts = await delivery.finish(answer)
                log.debug("delivered")
                return facts
            except Undeliverable:
                raise
            except Later as error:
                reason = error.reason
                pause = pause if error.retry_after is None else error.retry_after
            except Exception as error:  # noqa: BLE001 - whatever it is, the replies behind it go on
                log.opt(exception=error).error("delivery crashed")
                reason = type(error).__name__
            if time.time() - clock.seconds(row.timestamp) > MAX_AGE_SECONDS:
                raise Undeliverable(f"not within a day: {reason}")
            log.bind(reason=reason, retry_after=pause).warning("delivery waits")
            attempt += 1
            await asyncio.sleep(pause)
            if session.retired:
                # Whoever begins a chat under its name does not wait behind it.
                await delivery.leave()
                raise SessionNotFound(session.key)


def delivery_id(key: SessionKey, name: str) -> str:
    return hashlib.sha256(f"{key}\n{name}".encode()).hexdigest()[:16]


def _next(session: Session) -> Record | None:
    if session.retired:
        return None
    return next((row for row in session.undelivered.values() if row.seq <= session.heard), None)


def _sender(row: Record) -> str:
    sender = row.sender.get("id") if isinstance(row.sender, dict) else row.sender
    return str(sender or "")


def _handle(session: Session, delivery: str) -> dict[str, Any]:
    """What was noted last about a delivery."""
    for row in reversed(session.records):
        facts = row.note if row.is_note else None
        if facts is None or facts.get("kind") != NoteKind.STREAM:
            continue
        if facts.get("delivery") == delivery and isinstance(facts.get("handle"), dict):
            return dict(facts["handle"])
    return {}
