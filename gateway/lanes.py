"""One thing at a time per chat: which messages are next, and who answers them.

There is no queue beside the log. What waits in a chat is what its log has not settled, in order;
a *lane* is the task that works it off while there is any. Messages left over from an earlier
process are worked off by the same lane in the same order, so new ones wait behind them.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
import time
from collections.abc import Callable

from loguru import logger

from gateway.agents.agent import Messages, SessionFacts, TurnContext
from gateway.agents.registry import Agents
from gateway.bus import Bus
from gateway.commands import Commands
from gateway.config import ContextSettings, Settings
from gateway.ledger import Ledger
from gateway.preparation import Preparation
from gateway.slots import Slots
from gateway.turn import Abandoned, Stage, Turn
from sessions import clock, history
from sessions.errors import SessionError, SessionNotFound
from sessions.key import SessionKey
from sessions.record import NoteKind, Outcome, Record, closing, note
from sessions.session import Patch, Session
from sessions.store import SessionStore
from sessions.tasks import Tasks

Observe = Callable[[str, float, float | None], None]
Place = Callable[[SessionKey, str], str | None]
"""Where a message stands among those of its chat, by its id; None: where it arrived."""

MAX_ATTEMPTS = 3
ROWS_PER_MESSAGE = 4
RERUN_PAUSE_SECONDS = (0.0, 0.0, 1.0, 5.0)
HOLD_SECONDS = 1.0


class Lanes:
    def __init__(
        self,
        store: SessionStore,
        bus: Bus,
        agents: Agents,
        commands: Commands,
        ledger: Ledger,
        stage: Stage,
        preparation: Preparation,
        settings: Callable[[], Settings],
        observe: Observe,
        place: Place = lambda _key, _id: None,
    ) -> None:
        self.turns: dict[SessionKey, Turn] = {}
        """The turn that runs in each busy chat."""
        self.slots = Slots(settings().limits.running_turns)
        self._store, self._bus, self._agents = store, bus, agents
        self._commands, self._ledger, self._stage = commands, ledger, stage
        self._preparation, self._place = preparation, place
        self._settings, self._observe = settings, observe
        self._lanes: set[SessionKey] = set()
        self._resumed: set[SessionKey] = set()
        """Busy chats in which a turn of this process has begun."""
        self._tasks = Tasks("lane")
        self._agent_tasks = Tasks("turn")
        self._stopping = False

    # -- what others see ----------------------------------------------------------------------

    def busy(self, key: SessionKey) -> bool:
        return key in self._lanes

    def wake(self, key: SessionKey) -> None:
        """There is something to do in this chat."""
        if key not in self._lanes and not self._stopping:
            self._lanes.add(key)
            self._tasks.spawn(self._drive(key), str(key))

    def interrupt(self, key: SessionKey, outcome: str = Outcome.INTERRUPTED) -> bool:
        turn = self.turns.get(key)
        if turn is not None:
            turn.stop(outcome)
        return turn is not None

    async def stop(self, key: SessionKey, *, queue: bool = False) -> bool:
        """Stops what runs, and with `queue` what waits. True if there was anything to stop."""
        running = self.interrupt(key, Outcome.STOPPED)
        stopped: set[int] = set()

        def decide(session: Session) -> tuple[list[Record], Patch | None]:
            turn = self.turns.get(key)
            answering = {row.seq for row in turn.answering} if turn else set()
            waiting = [
                row.seq for row in session.pending if row.seq not in answering and not row.command
            ]
            if not queue:
                # Without a running turn, what waits for its place is meant.
                waiting = [] if running or turn else waiting[:1]
            stopped.update(waiting)
            settles = dict.fromkeys(waiting, Outcome.STOPPED.value)
            return [closing("", settles, outcome=Outcome.STOPPED)] if waiting else [], None

        try:
            await self._store.transact(key, decide)
        except SessionNotFound:
            return running
        return running or bool(stopped)

    def settled(self, key: SessionKey, closing: Record) -> None:
        """A turn that began while a slow disk held back the end of its messages has no reason."""
        turn, settles = self.turns.get(key), closing.settles or {}
        if turn is None or turn.id == closing.turn:
            return
        if all(row.seq in settles for row in turn.answering):
            turn.stop(Outcome.STOPPED)

    async def drain(self, seconds: float) -> None:
        """No new turn starts; running ones may finish until the time is over."""
        self._stopping = True
        if not await self._tasks.wait(seconds):
            for turn in list(self.turns.values()):
                turn.give_up()
            if not await self._tasks.wait(5.0):
                await self._tasks.cancel()
        await self._agent_tasks.cancel(0.5)

    # -- a lane -------------------------------------------------------------------------------

    async def _drive(self, key: SessionKey) -> None:
        try:
            async with self._store.pin(key) as session:
                while not self._stopping and (batch := self._next(session)):
                    await self._handle(session, batch)
        except SessionNotFound:
            pass
        except SessionError as error:
            logger.bind(session=str(key), error=str(error)).error("lane stopped")
            await asyncio.sleep(HOLD_SECONDS)
        finally:
            self._lanes.discard(key)
            self._resumed.discard(key)
        session_left = await self._store.get(key)
        if session_left is not None and self._next(session_left):
            self.wake(key)

    def _next(self, session: Session) -> list[Record]:
        """The messages to be answered next: one, or with `collect` all that belong together."""
        waiting = [
            row
            for row in session.pending
            if row.seq <= session.heard and not self._commands.is_running(session, row)
        ]
        if session.retired or not waiting:
            return []
        waiting = self._in_order(session, waiting)
        first = waiting[0]
        if self._settings().sessions.when_busy != "collect" or first.command:
            return [first]
        batch = []
        for row in waiting:
            if row.command or row.replaces is not None or row.sender != first.sender:
                break
            batch.append(row)
        return batch or [first]

    def _in_order(self, session: Session, waiting: list[Record]) -> list[Record]:
        """As they were said, not as they came: a platform may bring an older one later."""
        if session.key not in self._resumed and not self._ledger.is_fresh(
            session.key, waiting[0].seq
        ):
            # What an earlier process has begun is finished first.
            begun = self._begun(session) or [waiting[0].seq]
            return sorted(waiting, key=lambda row: row.seq not in begun)
        places, last = {}, ""
        for row in waiting:
            place = self._place(session.key, row.id) if row.id is not None else None
            last = max(last, place or "")
            places[row.seq] = place or last
        return sorted(waiting, key=lambda row: places[row.seq])

    def overtakes(self, key: SessionKey, id: str) -> Record | None:
        """What must be in the log before this message: it stands before the ones being answered,
        and after a crash nobody could tell any more which of them were begun."""
        turn, place = self.turns.get(key), self._place(key, id)
        if turn is None or place is None:
            return None
        begun = [self._place(key, row.id or "") or "" for row in turn.answering]
        return _beginning(turn.id, turn.attempt, turn.answering) if place < min(begun) else None

    async def _handle(self, session: Session, batch: list[Record]) -> None:
        first = batch[0]
        fresh = self._ledger.is_fresh(session.key, first.seq)
        if not fresh:
            self._ledger.adopt(session.key, batch)
        if first.command:
            await self._commands.run(session, first)
            return
        # One thing at a time: of what an earlier process left, it can have begun only the first.
        begun = not fresh and session.key not in self._resumed
        self._resumed.add(session.key)
        turn_id, attempt = self._earlier(session) if begun else (_new_id(), 1)
        reason = None if fresh else self._too_late(first, attempt)
        if reason is not None:
            await self._close(session, batch, turn_id, Outcome.FAILED, reason)
            return
        if begun:
            await self._note_attempt(session, turn_id, attempt)
        elif any(row.seq < first.seq and not row.command for row in session.pending):
            await self._store.append(session.key, [_beginning(turn_id, attempt, batch)])
        try:
            async with self.slots.take():
                # Some may have been stopped or edited away while they waited for their place.
                batch = [row for row in batch if row.seq in session.unsettled]
                if batch and not self._stopping:
                    await self._run(session, batch, turn_id, attempt)
                elif not batch and begun and _has_rows(session, turn_id):
                    await self._close(session, [], turn_id, Outcome.STOPPED)
        except Abandoned:
            self._stopping = True

    async def _run(self, session: Session, batch: list[Record], turn_id: str, attempt: int) -> None:
        settings = self._settings()
        turn = Turn(
            id=turn_id,
            attempt=attempt,
            session=session,
            answering=batch,
            store=self._store,
            bus=self._bus,
            tasks=self._agent_tasks,
            limits=settings.limits,
            stage=self._stage,
        )
        self.turns[session.key] = turn
        try:
            with logger.contextualize(turn=turn_id, session=str(session.key)):
                async with self._agents.use(self._agent_name(session, batch[0])) as agent:
                    make = functools.partial(self._context, session, turn, settings)
                    await turn.run(agent, make)
        except (Abandoned, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the messages reach an end
            turn.log.opt(exception=error).error("turn failed")
            await turn.close(Outcome.FAILED, "Something went wrong inside the gateway.")
        finally:
            del self.turns[session.key]
            if session.retired:
                self._ledger.withdraw(session.key)
            self._observe(turn.outcome, turn.latency_seconds, turn.first_shown)

    def _agent_name(self, session: Session, row: Record) -> str:
        """The chat's own choice, else the first route that matches."""
        chosen = session.state.agent
        if chosen is not None and chosen in self._agents:
            return chosen
        key = session.key
        sender = row.sender.get("id") if isinstance(row.sender, dict) else row.sender
        user = sender or session.state.owner or ""
        return self._agents.choose(self._settings().routes, key.channel, key.chat_id, user)

    async def _context(self, session: Session, turn: Turn, settings: Settings) -> TurnContext:
        prepared = await self._preparation.prepare(session, turn.answering)
        context = settings.context
        options = history.Options(
            history_messages=context.history_messages,
            budget_tokens=history.available_tokens(context.context_window, context.max_tokens),
            strategy=context.strategy,
            timestamps=context.timestamps,
        )
        rows = await self._rows(session, turn, context)
        choose = functools.partial(
            history.select,
            rows,
            answering=[row.seq for row in turn.answering],
            settled_through=session.settled_through,
            turn=turn.id,
            options=options,
        )
        asked = zip(turn.answering, prepared, strict=True)
        key = session.key
        return TurnContext(
            turn=turn.id,
            attempt=turn.attempt,
            session=SessionFacts(str(key), key.channel, key.chat_id, session.state.owner),
            messages=Messages(choose),
            text="\n\n".join(one.text(row.text) for row, one in asked),
            media=[item for one in prepared for item in one.media],
            instructions=session.state.summary or "",
        )

    async def _rows(self, session: Session, turn: Turn, context: ContextSettings) -> list[Record]:
        """Enough of the log to choose the history from; commands and notes fall out later."""
        limit = ROWS_PER_MESSAGE * context.history_messages
        rows = list(await self._store.model_rows(session.key, limit))
        if turn.attempt > 1:
            rows = await self._with_logged(session, turn, rows)
        if context.strategy == "first+recent":
            offset = session.state.consolidated.seq
            first = next(
                (row for row in session.records if row.role == "user" and row.seq > offset), None
            )
            if first is not None and rows and first.seq < rows[0].seq:
                rows.insert(0, first)
        return rows

    async def _with_logged(self, session: Session, turn: Turn, rows: list[Record]) -> list[Record]:
        """Everything an earlier attempt has logged, so that no side effect is repeated."""
        known = {row.seq for row in rows}
        after, missing, more = turn.answering[0].seq, list[Record](), True
        while more:
            page = await self._store.read(session.key, after=after, limit=1_000)
            missing += [row for row in page.records if row.turn == turn.id and row.seq not in known]
            after, more = page.records[-1].seq if page.records else after, page.more
        return sorted([*rows, *missing], key=lambda row: row.seq)

    # -- after a crash ------------------------------------------------------------------------

    async def recover(self) -> int:
        """Wakes every chat an earlier process left with work. Returns how many messages wait."""
        count = 0
        async for key, rows in self._store.pending():
            session = await self._store.get(key)
            heard = session.heard if session is not None else 0
            # What came in since the start is no business of recovery, durable or not.
            left = [r for r in rows if r.seq <= heard and not self._ledger.is_fresh(key, r.seq)]
            self._ledger.adopt(key, left)
            count += len(left)
            self.wake(key)
        if count:
            logger.bind(count=count).warning("turn recovered")
        return count

    @staticmethod
    def _earlier(session: Session) -> tuple[str, int]:
        """The turn that was running when the process ended, and which attempt is next."""
        closed = {row.turn for row in session.records if row.settles is not None}
        turn_id, attempts = None, 1
        for row in session.records:
            facts = row.note if row.is_note else None
            if facts is not None and facts.get("kind") == NoteKind.ATTEMPT:
                if facts.get("turn") not in closed:
                    turn_id, attempts = facts.get("turn"), int(facts.get("n") or 1)
            elif row.turn is not None and row.turn not in closed:
                turn_id = row.turn
        return turn_id or _new_id(), attempts + 1

    @staticmethod
    def _begun(session: Session) -> list[int]:
        """What an earlier process was answering, if that is not the first that waits."""
        closed = {row.turn for row in session.records if row.settles is not None}
        for row in reversed(session.records):
            facts = row.note if row.is_note else None
            if facts is None or facts.get("kind") != NoteKind.ATTEMPT or "answers" not in facts:
                continue
            if facts.get("turn") not in closed:
                return [seq for seq in facts["answers"] if seq in session.unsettled]
        return []

    def _too_late(self, row: Record, attempt: int) -> str | None:
        if attempt > MAX_ATTEMPTS:
            return "The gateway stopped each time it tried to answer this message."
        age = time.time() - clock.seconds(row.timestamp)
        if age > self._settings().sessions.resume_max_age:
            return "The gateway was stopped before it could answer, and too much time has passed."
        return None

    async def _note_attempt(self, session: Session, turn_id: str, attempt: int) -> None:
        """In the log and on the disk before anything runs again: a crash loop is bounded."""
        await self._store.append(session.key, [note(NoteKind.ATTEMPT, turn=turn_id, n=attempt)])
        await self._store.flush()
        logger.bind(session=str(session.key), turn=turn_id, attempt=attempt).warning(
            "turn recovered"
        )
        await asyncio.sleep(RERUN_PAUSE_SECONDS[min(attempt, len(RERUN_PAUSE_SECONDS) - 1)])

    async def _close(
        self,
        session: Session,
        batch: list[Record],
        turn_id: str,
        outcome: Outcome,
        reason: str | None = None,
    ) -> None:
        """Ends a turn of an earlier process that does not run again."""
        turn = Turn(
            id=turn_id,
            attempt=0,
            session=session,
            answering=batch,
            store=self._store,
            bus=self._bus,
            tasks=self._agent_tasks,
            limits=self._settings().limits,
            stage=self._stage,
        )
        await turn.close(outcome, reason)


def _beginning(turn_id: str, attempt: int, batch: list[Record]) -> Record:
    return note(NoteKind.ATTEMPT, turn=turn_id, n=attempt, answers=[row.seq for row in batch])


def _has_rows(session: Session, turn_id: str) -> bool:
    return any(row.turn == turn_id for row in session.records)


def _new_id() -> str:
    return secrets.token_hex(8)
