"""Slash commands: the same in every channel, logged, answered, and never shown to the model.

Immediate ones are answered while a turn runs. The others wait for their place in the chat, because
what they change must not change under a running turn. `!new` is `/new`: Slack keeps `/` for itself.
An unknown `/x` is no command; it goes to the agent as text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from channels.channel import Event
from gateway import settlement
from gateway.bus import Bus
from gateway.config import Settings
from sessions.errors import SessionNotFound
from sessions.key import SessionKey
from sessions.record import Outcome, Record, closing
from sessions.session import Patch, Session
from sessions.store import SessionStore

if TYPE_CHECKING:
    from gateway.lanes import Lanes

IMMEDIATE = frozenset({"help", "stop", "status", "where", "session", "save"})
IN_ORDER = frozenset(
    {"new", "reset", "compact", "goal", "title", "model", "export", "memory", "forget"}
)
HELP = """\
/new  start a new conversation; the old one stays in the list
/reset  the same without a list entry
/stop [all]  stop the running answer, with all also what waits
/status  what this chat is doing
/where  what happened to your last message
/session  facts about this session
/title TEXT  name this conversation
/model [NAME]  show or choose who answers
/export  how to get this conversation as a file
/save  force everything to the disk now
/help  this list"""


class Command(msgspec.Struct, frozen=True):
    name: str
    argument: str

    @property
    def immediate(self) -> bool:
        return self.name in IMMEDIATE


def parse(text: str) -> Command | None:
    """The command a message is, if it is one."""
    words = text.strip()
    if words[:1] not in ("/", "!"):
        return None
    name, _, argument = words[1:].partition(" ")
    name = name.lower()
    if name == "parley":
        name, _, argument = argument.strip().partition(" ")
    if "\n" in name or name not in IMMEDIATE | IN_ORDER:
        return None
    return Command(name, argument.strip())


class Commands:
    def __init__(
        self,
        store: SessionStore,
        bus: Bus,
        settings: Callable[[], Settings],
        agent_names: Callable[[], list[str]],
    ) -> None:
        self.lanes: Lanes
        self._store, self._bus, self._settings = store, bus, settings
        self._agent_names = agent_names
        self._running: set[tuple[SessionKey, int]] = set()

    def is_running(self, session: Session, row: Record) -> bool:
        """True for a command that is being answered beside the lane."""
        return (session.key, row.seq) in self._running

    def begin(self, session: Session, row: Record) -> None:
        self._running.add((session.key, row.seq))

    async def run(self, session: Session, row: Record) -> None:
        """Carries a logged command out and closes it. Exactly one closing record."""
        command = parse(row.text) or Command("help", "")
        try:
            handler: Callable[[Session, Command, Record], Awaitable[Record]]
            handler = getattr(self, f"_{command.name}", self._not_yet)
            answer = await handler(session, command, row)
            if answer.conversation is not None:
                return  # Written by the store together with the change it stands for.
            self._ended(session, await settlement.write(self._store, session, answer))
        except SessionNotFound:
            return
        finally:
            self._running.discard((session.key, row.seq))

    def _ended(self, session: Session, row: Record) -> None:
        fields = {"turn": row.turn, "seq": row.seq, "outcome": "command", "latency_ms": 0}
        self._bus.publish(session.key, Event("turn_end", fields, row.seq, row.turn))

    @staticmethod
    def _answer(row: Record, text: str) -> Record:
        return closing(
            text,
            {row.seq: Outcome.COMMAND.value},
            outcome=Outcome.COMMAND.value,
            turn=f"command-{row.seq}",
            command=True,
        )

    # -- immediate ----------------------------------------------------------------------------

    async def _help(self, _session: Session, _command: Command, row: Record) -> Record:
        return self._answer(row, HELP)

    async def _stop(self, session: Session, command: Command, row: Record) -> Record:
        stopped = await self.lanes.stop(session.key, queue=command.argument == "all")
        return self._answer(row, "Stopped." if stopped else "Nothing is running.")

    async def _status(self, session: Session, _command: Command, row: Record) -> Record:
        turn = self.lanes.turns.get(session.key)
        waiting = sum(1 for other in session.pending if not other.command)
        settings = self._settings()
        running = "idle" if turn is None else f"answering since {turn.started_at}"
        used = session.token_count()
        window = settings.context.context_window
        lines = [
            f"State: {session.state.state}, {running}",
            f"Waiting messages: {max(0, waiting - (len(turn.answering) if turn else 0))}",
            f"Messages: {session.message_count}, about {used} of {window} tokens",
            f"Running turns of this gateway: {self.lanes.slots.used} of {self.lanes.slots.limit}",
        ]
        return self._answer(row, "\n".join(lines))

    async def _where(self, session: Session, _command: Command, row: Record) -> Record:
        last = next(
            (
                other
                for other in reversed(session.records)
                if other.role == "user" and not other.command and other.seq < row.seq
            ),
            None,
        )
        return self._answer(row, self._fate(session, last))

    def _fate(self, session: Session, row: Record | None) -> str:
        if row is None:
            return "You have not sent a message in this chat yet."
        turn = self.lanes.turns.get(session.key)
        if turn is not None and any(other.seq == row.seq for other in turn.answering):
            return f"Message {row.seq} is being answered since {turn.started_at}."
        if row.seq in session.unsettled:
            before = sum(1 for seq in session.unsettled if seq < row.seq)
            return f"Message {row.seq} is stored and waits behind {before} others."
        for other in reversed(session.records):
            if other.settles and row.seq in other.settles:
                return f"Message {row.seq}: {other.settles[row.seq]}, see message {other.seq}."
        return f"Message {row.seq} is stored."

    async def _session(self, session: Session, _command: Command, row: Record) -> Record:
        state = session.state
        lines = [
            f"Key: {session.key}",
            f"Title: {session.title or '(none)'}",
            f"Conversation: {state.conversation}",
            f"Agent: {state.agent or 'by route'}",
            f"Messages: {session.message_count}",
            f"Begun: {session.created_at}",
        ]
        return self._answer(row, "\n".join(lines))

    async def _save(self, _session: Session, _command: Command, row: Record) -> Record:
        flushed = await self._store.flush()
        text = "Everything is on the disk."
        if flushed.failed:
            text = f"{flushed.failed} sessions could not be written to the disk."
        return self._answer(row, text)

    # -- in order -----------------------------------------------------------------------------

    async def _new(self, session: Session, _command: Command, row: Record) -> Record:
        return await self._begin_conversation(session, row, listed=True)

    async def _reset(self, session: Session, _command: Command, row: Record) -> Record:
        return await self._begin_conversation(session, row, listed=False)

    async def _begin_conversation(self, session: Session, row: Record, *, listed: bool) -> Record:
        answer = self._answer(row, "This is a new conversation.")
        appended = await self._store.new_conversation(session.key, answer, listed=listed)
        self._ended(session, appended.records[0])
        return appended.records[0]

    async def _title(self, session: Session, command: Command, row: Record) -> Record:
        if not command.argument:
            return self._answer(row, session.title or "This conversation has no title.")
        title = " ".join(command.argument.split())[:200]
        await self._store.update(session.key, Patch(title=title))
        return self._answer(row, f"The title is now: {title}")

    async def _model(self, session: Session, command: Command, row: Record) -> Record:
        names = self._agent_names()
        if not command.argument:
            chosen = session.state.agent or "by route"
            return self._answer(row, f"Agent: {chosen}. To choose: {', '.join(names)}")
        if command.argument not in names:
            return self._answer(
                row, f"There is no agent named {command.argument}. To choose: {', '.join(names)}"
            )
        await self._store.update(session.key, Patch(agent=command.argument))
        return self._answer(row, f"From now on {command.argument} answers here.")

    async def _export(self, session: Session, _command: Command, row: Record) -> Record:
        return self._answer(
            row,
            f"`parley sessions export {session.key} --format md`, "
            f"or GET /api/v1/sessions/{{key}}/export?format=md",
        )

    async def _not_yet(self, _session: Session, command: Command, row: Record) -> Record:
        return self._answer(row, f"/{command.name} is not available yet.")
