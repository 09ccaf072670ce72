"""What happens to a message between its channel and its chat's log.

    ownership → dedupe → policy, rate → room → append → acknowledge

A message that is refused was never logged, and its sender is told. The acknowledgement goes out in
the step in which the message enters the log, before anybody else hears of it; the same step wakes
the chat's lane. Whoever sends the same message again gets the same acknowledgement.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from loguru import logger

from channels.channel import Event, Inbound
from channels.errors import Refused
from gateway import commands
from gateway.bus import Bus, Shown, message_fields
from gateway.commands import Commands
from gateway.config import Settings
from gateway.lanes import Lanes
from gateway.ledger import Ledger
from gateway.users import User
from sessions.errors import (
    ConversationEnded,
    InvalidKey,
    MessageConflict,
    SessionError,
    SessionUnreadable,
    StoreUnavailable,
)
from sessions.key import SessionKey
from sessions.record import Outcome, Record, closing, user
from sessions.session import Patch, Session
from sessions.store import SessionStore
from sessions.tasks import Tasks

MAX_ID_BYTES = 256
MAX_RATED_USERS = 100_000


class Ack(msgspec.Struct, frozen=True):
    id: str
    seq: int
    duplicate: bool
    queued: int
    """Messages of the chat that are answered before this one."""


class Router:
    def __init__(
        self,
        store: SessionStore,
        bus: Bus,
        lanes: Lanes,
        commands: Commands,
        ledger: Ledger,
        settings: Callable[[], Settings],
        shown: Shown,
    ) -> None:
        self._shown = shown
        self._store, self._bus, self._lanes = store, bus, lanes
        self._commands, self._ledger, self._settings = commands, ledger, settings
        self._acks: dict[tuple[SessionKey, str], Callable[[Ack], None]] = {}
        self._rates: OrderedDict[str, _Bucket] = OrderedDict()
        self._tasks = Tasks("router")
        self._stopping = False
        store.listen(self._follow)

    def stop_intake(self) -> None:
        self._stopping = True

    async def settle(self, seconds: float) -> None:
        await self._tasks.wait(seconds)

    # -- in -----------------------------------------------------------------------------------

    async def receive(
        self, inbound: Inbound, sender: User, acknowledge: Callable[[Ack], None]
    ) -> None:
        """Calls `acknowledge` once the message is in the log. Raises Refused; then it is not."""
        try:
            await self._receive(inbound, sender, acknowledge)
        except Refused as refusal:
            self._ledger.reject(inbound.channel)
            logger.bind(channel=inbound.channel, user=sender.id, reason=refusal.code).info(
                "message rejected"
            )
            raise

    async def _receive(
        self, inbound: Inbound, sender: User, acknowledge: Callable[[Ack], None]
    ) -> None:
        if self._stopping:
            raise Refused("shutting_down", "The gateway is stopping.", 5.0)
        key = _key(inbound)
        if len(inbound.id.encode("utf-8", "replace")) > MAX_ID_BYTES or not inbound.id:
            raise Refused("bad_frame", f"An id has 1 to {MAX_ID_BYTES} bytes.")
        try:
            session, appended = await self._store.transact(
                key, lambda session: self._decide(session, inbound, sender, acknowledge)
            )
        except SessionError as error:
            raise _refusal(error) from error
        finally:
            if self._acks.get((key, inbound.id)) is acknowledge:
                del self._acks[key, inbound.id]
        if inbound.id in appended.duplicates:
            seq = appended.duplicates[inbound.id]
            acknowledge(Ack(inbound.id, seq, True, self._queued(session, seq)))

    def _decide(
        self,
        session: Session,
        inbound: Inbound,
        sender: User,
        acknowledge: Callable[[Ack], None],
    ) -> tuple[list[Record], Patch | None]:
        """In the step of the write: nothing can change between the checks and the append."""
        draft = self._draft(inbound, session, sender)
        if session.known_id(draft) is not None:
            return [draft], None  # Sent again: it changes nothing a second time.
        self._check(session, draft, sender)
        # Only who writes it: whoever repeats it meanwhile is answered as a duplicate.
        self._acks[session.key, inbound.id] = acknowledge
        owned = session.file is None and sender.owns_chats
        return self._drafts(session, draft), Patch(owner=sender.id) if owned else None

    def _draft(self, inbound: Inbound, session: Session, sender: User) -> Record:
        if not sender.may_write(session):
            raise Refused("not_found", "There is no such chat.")
        who: dict[str, Any] = {"id": inbound.sender.id}
        if inbound.sender.name:
            who["name"] = inbound.sender.name
        text, media, replaces = inbound.text, inbound.media, inbound.replaces
        stored = session.record(session.ids.get(inbound.id, 0))
        if inbound.regenerate:
            again = stored is not None and stored.replaces is not None
            question = stored if stored is not None and again else _last_question(session)
            text, media, replaces = question.text, question.media or [], question.seq
        elif replaces is not None and stored is None:
            _check_replaced(session, replaces)
        return user(
            text,
            id=inbound.id,
            sender=who,
            media=media or None,
            replaces=replaces,
            command=replaces is None and commands.parse(text) is not None,
        )

    def _drafts(self, session: Session, draft: Record) -> list[Record]:
        """An edited message that still waits is withdrawn in the same step."""
        if draft.replaces is None:
            new = session.known_id(draft) is None
            begun = self._lanes.overtakes(session.key, draft.id or "") if new else None
            return [draft] if begun is None else [begun, draft]
        replaced = draft.replaces
        turn = self._lanes.turns.get(session.key)
        if turn is not None and any(row.seq == replaced for row in turn.answering):
            turn.stop(Outcome.INTERRUPTED)
        elif replaced in session.unsettled:
            gone = closing("", {replaced: Outcome.WITHDRAWN.value}, outcome="withdrawn")
            return [gone, draft]
        return [draft]

    def _check(self, session: Session, draft: Record, sender: User) -> None:
        """What may be refused. A message that is in the log already never is."""
        settings = self._settings()
        limits = settings.limits
        if len(draft.text.encode("utf-8", "surrogatepass")) > limits.text:
            raise Refused("too_large", f"A message has at most {limits.text} bytes.")
        if len(draft.media or ()) > limits.media_per_message:
            raise Refused("too_large", f"A message has at most {limits.media_per_message} files.")
        if not draft.text.strip() and not draft.media:
            raise Refused("bad_frame", "The message is empty.")
        if session.state.state in ("suspended", "archived"):
            raise Refused("conflict", f"This session is {session.state.state}.")
        self._check_rate(sender, limits.messages_per_minute)
        command = commands.parse(draft.text) if draft.command else None
        if command is not None and command.immediate:
            return
        depth = settings.sessions.mailbox_depth
        if len(session.unsettled) >= depth:
            raise Refused("queue_full", f"{depth} messages wait in this chat already.", 5.0)
        if settings.sessions.when_busy == "reject" and self._lanes.busy(session.key):
            raise Refused("busy", "The last message is still being answered.", 2.0)

    def _check_rate(self, sender: User, per_minute: int) -> None:
        if not per_minute:
            return
        bucket = self._rates.get(sender.id)
        if bucket is None:
            bucket = self._rates[sender.id] = _Bucket(float(per_minute), time.monotonic())
            if len(self._rates) > MAX_RATED_USERS:
                self._rates.popitem(last=False)
        self._rates.move_to_end(sender.id)
        wait = bucket.take(per_minute)
        if wait > 0:
            raise Refused("rate_limited", "Too many messages.", round(wait, 1))

    # -- in the same step as the append -------------------------------------------------------

    def _follow(self, session: Session, rows: Sequence[Record]) -> None:
        """Every row of every chat, in order: acknowledge, show, and start what follows."""
        key = session.key
        self._ledger.follow(key, rows)
        for row in rows:
            if row.role == "user" and row.id is not None:
                self._acknowledge(session, row, row.id)
            if not row.is_note:
                event = Event("message", message_fields(row, self._shown), row.seq, row.turn)
                self._bus.publish(key, event)
            if row.settles:
                self._lanes.settled(key, row)
            if row.role == "user":
                self._start(session, row)
        self._announce(session, rows)

    def _acknowledge(self, session: Session, row: Record, id: str) -> None:
        acknowledge = self._acks.pop((session.key, id), None)
        if acknowledge is not None:
            acknowledge(Ack(id, row.seq, False, self._queued(session, row.seq)))

    def _start(self, session: Session, row: Record) -> None:
        key = session.key
        command = commands.parse(row.text) if row.command else None
        if command is not None and command.immediate and not self._stopping:
            self._commands.begin(session, row)
            self._tasks.spawn(self._run_command(session, row), f"command-{row.seq}")
            return
        if command is None and self._settings().sessions.when_busy == "interrupt":
            self._lanes.interrupt(key)
        self._lanes.wake(key)

    async def _run_command(self, session: Session, row: Record) -> None:
        try:
            await self._commands.run(session, row)
        finally:
            # If it could not be closed now, the chat's lane tries again.
            self._lanes.wake(session.key)

    def _announce(self, session: Session, rows: Sequence[Record]) -> None:
        """Lists on every screen of the owner learn that the chat has changed."""
        last = rows[-1]
        if last.is_note:
            return
        self.announce(session)

    def announce(self, session: Session, **changed: Any) -> None:
        owner = session.state.owner
        fields = {
            **address(session.key),
            "title": session.title,
            "preview": session.state.preview,
            "state": session.state.state,
            "tags": session.state.tags,
            "goal": session.metadata.get("goal_state"),
            "updated_at": session.updated_at,
            **changed,
        }
        users = [owner] if owner is not None else []
        self._bus.publish_to([*users, ADMINS], Event("session", fields))

    @staticmethod
    def _queued(session: Session, seq: int) -> int:
        return sum(1 for other in session.unsettled if other < seq)


def address(key: SessionKey) -> dict[str, str]:
    """How frames name a chat: its id on the WebSocket, its key anywhere else."""
    return {"chat_id": key.chat_id} if key.channel == "websocket" else {"key": str(key)}


ADMINS = "\x00admins"
"""The circle of all administrators' connections, as the bus knows it."""


class _Bucket:
    """Tokens that refill evenly; a user may spend a minute's worth at once."""

    __slots__ = ("_at", "_tokens")

    def __init__(self, tokens: float, at: float) -> None:
        self._tokens, self._at = tokens, at

    def take(self, per_minute: int) -> float:
        """0 if there was one, else the seconds until there is."""
        now = time.monotonic()
        refill = (now - self._at) * per_minute / 60
        self._tokens, self._at = min(float(per_minute), self._tokens + refill), now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) * 60 / per_minute


def _key(inbound: Inbound) -> SessionKey:
    try:
        return SessionKey(inbound.channel, inbound.chat_id)
    except InvalidKey as error:
        raise Refused("bad_frame", error.reason) from error


def _last_question(session: Session) -> Record:
    for row in reversed(session.records):
        if row.role == "user" and not row.command and row.seq > session.state.conversation_start:
            return row
    raise Refused("not_found", "There is nothing to answer again.")


def _check_replaced(session: Session, seq: int) -> None:
    row = session.record(seq)
    if row is None or row.role != "user" or row.command:
        raise Refused("not_found", "There is no such message of yours.")
    if row.seq <= session.state.conversation_start:
        raise Refused("conflict", "That conversation has ended.")


def _refusal(error: SessionError) -> Refused:
    """The code the sender sees for what the store says."""
    if isinstance(error, MessageConflict):
        return Refused("conflict", "This id was used for another message.")
    if isinstance(error, ConversationEnded | InvalidKey):
        return Refused("bad_frame", str(error))
    if isinstance(error, StoreUnavailable):
        return Refused(
            "storage_unavailable", "The message could not be stored.", error.retry_after_seconds
        )
    if isinstance(error, SessionUnreadable):
        logger.bind(error=str(error)).error("session unreadable")
        return Refused("storage_unavailable", "This chat's log cannot be read.", 60.0)
    return Refused("internal", "Something went wrong.")
