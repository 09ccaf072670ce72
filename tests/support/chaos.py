"""A gateway whose every wait takes as long as a seed says, and people who do anything to it.

Work that would go to the store's threads runs in the event loop instead, some steps late, and its
result arrives some steps later still. A *life* is one gateway on the directory; it ends by a stop
or as a killed process ends. What must hold is checked by `World.check` when nothing is left to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from loguru import logger

from channels.channel import Answer, ChannelState, Event, Inbound, Note, Reply, Sender
from channels.errors import Later, Refused, Undeliverable
from channels.websocket.endpoint import Connection
from gateway.agents.agent import (
    AgentEvent,
    AgentFailed,
    Calls,
    Delta,
    ToolResult,
    ToolStarted,
    TurnContext,
)
from gateway.app import Gateway
from gateway.config import Settings
from gateway.http.problems import Problem
from gateway.http.sessions import delete_session
from gateway.push import PushHost
from gateway.users import User
from sessions.errors import SessionError
from sessions.key import SessionKey
from sessions.record import NoteKind, Outcome, Record
from sessions.session import Patch
from sessions.store_jsonl import JsonlStore
from tests.support.stores import abandon

CHATS = ["a", "b"]
QUIET_SECONDS = 30.0
EXPECTED = frozenset({"delivery failed"})
"""Events at level ERROR that the people here bring about."""
ANN = User("ann")


class Broken(AssertionError):
    """A promise was not kept."""


class World:
    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.seed = path, seed
        self.rng = rng = random.Random(seed)
        self.sync = rng.choice(["none", "interval", "turn"])
        self.when_busy = rng.choice(["queue", "collect", "interrupt", "reject"])
        self.late = rng.choice([1, 4, 15])
        self.slow = rng.random() < 0.3
        self.settings = Settings.model_validate(
            {
                "data_dir": str(path),
                "storage": {"sync": self.sync, "sync_seconds": 0.002},
                "server": {"shutdown_seconds": rng.choice([0.001, 5.0])},
                "sessions": {
                    "file_cap": rng.choice([0, 6, 20]),
                    "cache_bytes": rng.choice([1, 10_000_000]),
                    "legacy_dirs": [],
                    "when_busy": self.when_busy,
                    "mailbox_depth": rng.choice([3, 32]),
                },
                "limits": {"messages_per_minute": 0, "running_turns": rng.choice([1, 64])},
                "agents": {"default": {"kind": "echo"}},
            }
        )
        self.life = 0
        self.problems: list[str] = []
        self.agent = Agent(self)
        self.people: list[Browser | Slacker] = [
            Browser(self, "x"),
            Browser(self, "y"),
            Slacker(self, "U1"),
        ]
        self.gateway: Gateway
        self.store: JsonlStore
        self.channel: Carrier
        self.dying = False
        self._outside: set[asyncio.Task[Any]] = set()

    # -- chance -------------------------------------------------------------------------------

    async def pause(self, most: int = 6) -> None:
        for _ in range(self.rng.randrange(most)):
            await asyncio.sleep(0)

    def _run_late(self, work: Callable[..., Any], *args: Any, **named: Any) -> asyncio.Task[Any]:
        async def run() -> Any:
            await self.pause(self.late)
            result = work(*args, **named)
            await self.pause(self.late)
            return result

        return asyncio.get_running_loop().create_task(run())

    def fail(self, problem: str) -> None:
        if not self.dying:
            self.problems.append(problem)

    # -- lives --------------------------------------------------------------------------------

    async def run(self, lives: int = 3, steps: int = 25) -> None:
        """Everything, then the end and the checks. Raises Broken."""
        sink = logger.add(self._on_log, level="ERROR", format="{message}")
        self._outside = asyncio.all_tasks()
        loop = asyncio.get_running_loop()
        before = loop.get_exception_handler()
        loop.set_exception_handler(lambda _, context: self.fail(f"loop: {context}"))
        try:
            for _ in range(lives):
                await self._live(self.rng.randrange(2, steps))
            await self.start()
            await self.quiet()
            await self.check()
            await self._leave()
            await self._stop()
            await self._check_files()
        finally:
            logger.remove(sink)
            loop.set_exception_handler(before)
        if self.problems:
            raise Broken(f"seed {self.seed}: " + "; ".join(self.problems))

    def _on_log(self, message: Any) -> None:
        record = message.record
        if record["message"] not in EXPECTED:
            self.fail(f"{record['message']} {record['extra']} {record['exception']}")

    async def start(self) -> None:
        self.life += 1
        self.gateway = Gateway(self.settings)
        assert isinstance(self.gateway.store, JsonlStore)
        self.store = self.gateway.store
        vars(self.store)["_run"] = self._run_late
        self.channel = Carrier(self)
        self.gateway.push["slack"] = self.channel
        await self.gateway.start()
        self.gateway.agents._entries["default"].agent = self.agent
        if self.slow:
            self.store._slow_until = 1e12
        for person in self.people:
            await person.arrive()

    async def _live(self, steps: int) -> None:
        await self.start()
        acting = [self._act(person.act, steps) for person in self.people]
        acting.append(self._act(self._operate, steps))
        tasks = [asyncio.get_running_loop().create_task(work) for work in acting]
        if self.rng.random() < 0.5:
            await asyncio.wait(tasks)
        else:
            await self.pause(steps * 20)
        if self.rng.random() < 0.5:
            await self._stop()
            await self._cancel(tasks)
            await self._leave()
        else:
            await self._kill()

    async def _act(self, act: Callable[[], Coroutine[Any, Any, None]], steps: int) -> None:
        for _ in range(steps):
            await self.pause()
            with contextlib.suppress(Refused, SessionError, Problem):
                await act()
            self._check_ledger()

    async def _leave(self) -> None:
        for person in self.people:
            await person.leave()

    async def _stop(self) -> None:
        await self.gateway.stop()

    @staticmethod
    async def _cancel(tasks: Any) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _kill(self) -> None:
        """Nothing more is written or heard; what has a task loses it."""
        self.dying = True
        self.store._closed = True
        self.store._listeners.clear()
        for person in self.people:
            person.lose()
        self.gateway.lanes._stopping = self.gateway.outbox._stopping = True
        while others := asyncio.all_tasks() - self._outside:
            await self._cancel(others)
        await abandon(self.store)
        self.dying = False

    # -- an operator --------------------------------------------------------------------------

    async def _operate(self) -> None:
        rng, store = self.rng, self.store
        key = SessionKey(rng.choice(["websocket", "websocket", "slack"]), rng.choice(CHATS))
        match rng.choice(
            ["delete", "expire", "state", "invalidate", "read", "view", "find", "flush", "title"]
        ):
            case "delete":
                await self._delete(key)
            case "expire":
                await store.expire(-1)
            case "state":
                await store.update(key, Patch(state=rng.choice(["suspended", "archived"])))
                await self.pause(20)
                await store.update(key, Patch(state="active"))
            case "invalidate":
                await store.invalidate(key)
            case "read":
                await store.read(key, after=rng.randrange(9), limit=rng.randrange(1, 50))
            case "view":
                await store.view(key)
                await store.conversations(key)
            case "find":
                if rng.random() < 0.2:
                    await store.find()
            case "flush":
                await store.flush()
            case _:
                await store.update(key, Patch(title="t"))

    async def _delete(self, key: SessionKey) -> None:
        session = await self.store.get(key)
        if session is not None and self.rng.random() < 0.5:
            context: Any = SimpleNamespace(gateway=self.gateway)
            await delete_session(session, key, context)

    # -- the checks ---------------------------------------------------------------------------

    def _check_ledger(self) -> None:
        ledger = self.gateway.ledger
        received, ended = sum(ledger.received.values()), sum(ledger.outcomes.values())
        if received != ended + ledger.pending or ledger.pending < 0:
            self.fail(f"ledger: {received} received, {ended} ended, {ledger.pending} pending")

    def _busy(self) -> list[Any]:
        gateway = self.gateway
        names = {task.get_name() for task in gateway.tasks._tasks}
        parts: list[Any] = [
            gateway.ledger.pending,
            sorted(map(str, gateway.lanes._lanes)),
            sorted(map(str, gateway.outbox._busy)),
            len(gateway.outbox._tasks),
            len(gateway.router._tasks),
            len(self.store._tasks),
            sorted(names & {"gateway-recovery", "gateway-deliveries"}),
            sorted(name for name in names if "replay" in name),
            *(person.busy() for person in self.people),
        ]
        return parts if any(parts) else []

    async def quiet(self) -> None:
        deadline = asyncio.get_running_loop().time() + QUIET_SECONDS
        while busy := self._busy():
            if asyncio.get_running_loop().time() > deadline:
                raise Broken(f"seed {self.seed}: never idle: {busy} {self.problems}")
            await asyncio.sleep(0.001)
        for _ in range(5):
            await asyncio.sleep(0)  # Frames leave at the end of a step.

    async def check(self) -> None:
        self._check_ledger()
        self._check_structures()
        for channel in ("websocket", "slack"):
            for chat in CHATS:
                key = SessionKey(channel, chat)
                session = await self.store.get(key)
                rows = await self._rows(key) if session is not None else []
                if session is not None:
                    self._check_rows(f"{key}", rows, push=channel == "slack")
                    if session.pending or session.undelivered:
                        self.fail(f"{key}: {list(session.unsettled)} {list(session.undelivered)}")
                log = session.state.log if session is not None else ""
                for person in self.people:
                    person.check(key, log, rows)
        if self.agent.overlaps:
            self.fail(f"turns at the same time: {self.agent.overlaps}")

    async def _rows(self, key: SessionKey) -> list[Record]:
        return (await self.store.read(key, after=0, limit=100_000)).records

    def _check_rows(self, name: str, rows: list[Record], *, push: bool) -> None:
        numbers = [row.seq for row in rows]
        if numbers != sorted(set(numbers)):
            self.fail(f"{name}: numbers {numbers}")
        users = {row.seq: row for row in rows if row.role == "user"}
        ids = Counter(row.id for row in users.values())
        settled = Counter(seq for row in rows for seq in row.settles or ())
        turns = Counter(row.turn for row in rows if row.turn and row.settles is not None)
        facts = {
            "stored twice": [name for name, count in ids.items() if count > 1],
            "not settled": [seq for seq in users if not settled[seq]],
            "settled twice": [seq for seq, count in settled.items() if count > 1],
            "settled without being there": [seq for seq in settled if seq not in users],
            "closed twice": [turn for turn, count in turns.items() if count > 1],
            "out of order": self._disorder(users, rows),
        }
        if push:
            facts |= self._check_deliveries(rows)
        for what, found in facts.items():
            if found:
                self.fail(f"{name}: {what}: {found}")

    @staticmethod
    def _disorder(users: dict[int, Record], rows: list[Record]) -> list[int]:
        """Answered before an earlier one was."""
        latest, found = 0, []
        for row in rows:
            answered = [
                seq
                for seq, outcome in (row.settles or {}).items()
                if outcome in (Outcome.ANSWERED, Outcome.MERGED, Outcome.FAILED) and seq in users
            ]
            found += [seq for seq in answered if seq < latest]
            latest = max([latest, *answered])
        return found

    @staticmethod
    def _check_deliveries(rows: list[Record]) -> dict[str, list[Any]]:
        notes = [row.note or {} for row in rows if row.is_note]
        noted = [fact["seq"] for fact in notes if fact.get("kind") == NoteKind.DELIVERED]
        replies = [row.seq for row in rows if row.is_reply]
        # A rewrite leaves notes out that nothing needs any more.
        known = [seq for seq in replies if seq in noted]
        return {"delivered": [] if noted == known else [noted, "for", replies]}

    def _check_structures(self) -> None:
        gateway, store = self.gateway, self.store
        left = {
            "turns": gateway.lanes.turns,
            "resumed": gateway.lanes._resumed,
            "slots": gateway.lanes.slots.used + gateway.lanes.slots.waiting,
            "commands": gateway.commands._running,
            "acks": gateway.router._acks,
            "open": gateway.ledger._open,
            "fresh": gateway.ledger._fresh,
            "growing": gateway.outbox._growing,
            "sure": gateway.outbox._sure,
            "loading": store._loading,
            "pins": [str(s.key) for s in store._cache if s.pins],
            "gates": [str(s.key) for s in store._cache if s.gate is not None],
            "unheard": [str(s.key) for s in store._cache if s.heard != s.last_seq],
            "deliveries": self.channel.unfinished(),
        }
        for what, found in left.items():
            if found:
                self.fail(f"left over: {what}: {found}")

    async def _check_files(self) -> None:
        """A store that has seen nothing of it reads the same."""
        if self.gateway.bus._watchers or self.gateway.bus._owners:
            self.fail(f"left over: watchers: {self.gateway.bus._watchers}")
        store = JsonlStore(self.path)
        await store.open()
        async for key, rows in store.pending():
            self.fail(f"{key}: pending after a restart: {[row.seq for row in rows]}")
        async for key, rows in store.undelivered():
            self.fail(f"{key}: undelivered after a restart: {[row.seq for row in rows]}")
        await store.close()


class Agent:
    """Echoes, slowly or at once; fails; calls a tool."""

    name = "default"

    def __init__(self, world: World) -> None:
        self._world = world
        self._running: Counter[str] = Counter()
        self.overlaps: list[str] = []

    async def run(self, turn: TurnContext) -> AsyncIterator[AgentEvent]:
        world, key = self._world, turn.session.key
        self._running[key] += 1
        if self._running[key] > 1:
            self.overlaps.append(key)
        try:
            kind = world.rng.choice(["echo", "slow", "fail", "tool"])
            await world.pause(40 if kind == "slow" else 4)
            list(turn.messages)
            if kind == "tool":
                call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": ""}}
                yield Calls([call])
                yield ToolStarted("c", "t")
                await world.pause()
                yield ToolResult("c", "t", "done")
            for word in turn.text.split():
                yield Delta(word)
                await world.pause(3)
            if kind == "fail":
                raise AgentFailed("It cannot.")
        finally:
            self._running[key] -= 1

    async def close(self) -> None:
        pass


class View:
    """What one connection after another has shown of one log."""

    def __init__(self, log: str, first: int) -> None:
        self.log, self.first = log, first
        self.cursor = first - 1
        self.seen: list[int] = []
        self.turns: set[str] = set()

    def rewind(self, first: int) -> None:
        """What follows begins with the row `first`."""
        self.cursor = min(self.cursor, first - 1)
        self.seen = [seq for seq in self.seen if seq < first]
        self.turns.clear()


class Browser:
    """A client of the WebSocket, without the socket."""

    open = True
    has_room = True
    on_writable: Callable[[], None] | None = None

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self._rng = world.rng
        self._count = 0
        self.views: dict[str, View] = {}
        self.attached: set[str] = set()
        self._sent: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._waiting: Counter[tuple[str, str]] = Counter()
        """Frames sent on this connection that want an answer."""
        self.acked: list[tuple[str, str, str, int]] = []
        self._serving: asyncio.Task[None] | None = None
        self._queue: asyncio.Queue[dict[str, Any]]

    # -- as the endpoint sees the socket --------------------------------------------------------

    def write_texts(self, frames: list[bytes]) -> None:
        for frame in frames:
            self._take(msgspec.json.decode(frame))

    def cut(self, code: int, reason: str) -> None:
        self._world.fail(f"{self._name}: cut off: {code} {reason}")

    # -- coming and going -----------------------------------------------------------------------

    async def arrive(self) -> None:
        world = self._world
        self._queue = asyncio.Queue()
        self.attached.clear()
        self._waiting.clear()
        client: Any = world.gateway.client(ANN)
        connection = Connection(
            self,  # type: ignore[arg-type]  # as much of a gateway as it uses
            client,
            attachments=200,
            spawn=world.gateway.tasks.spawn,
        )
        serve = connection.serve(self._queue.get)
        self._serving = asyncio.get_running_loop().create_task(serve)
        for chat in list(self.views):
            self._attach(chat)
        for frames in self._sent.values():
            for frame in frames[-2:]:
                self._put(frame)

    async def leave(self) -> None:
        self._queue.put_nowait({"type": "websocket.disconnect"})
        if self._serving is not None:
            await self._serving
        self.lose()

    def lose(self) -> None:
        self.attached.clear()
        self._waiting.clear()
        for view in self.views.values():
            view.turns.clear()

    def busy(self) -> list[Any]:
        return [*self._waiting] or ([self._queue.qsize()] if self._queue.qsize() else [])

    # -- what it does ---------------------------------------------------------------------------

    async def act(self) -> None:
        chat = self._rng.choice(CHATS)
        match self._rng.choice(
            ["send", "send", "send", "again", "attach", "detach", "return", "stop", "edit", "anew"]
        ):
            case "send":
                self._send(chat, text=self._text())
            case "again":
                if self._sent[chat]:
                    self._put(self._rng.choice(self._sent[chat]))
            case "attach":
                self._attach(chat)
            case "detach":
                self.attached.discard(chat)
                self._put({"type": "detach", "chat_id": chat})
            case "return":
                await self.leave()
                await self._world.pause()
                await self.arrive()
            case "stop":
                self._put({"type": "stop", "chat_id": chat, "all": self._rng.random() < 0.5})
            case "edit":
                view = self.views.get(chat)
                if view is not None and view.seen:
                    self._send(chat, text=self._text(), replaces=self._rng.choice(view.seen[-4:]))
            case _:
                self._send(chat, kind="regenerate")

    def _text(self) -> str:
        words = [
            "one",
            "two words",
            "and three words",
            "/new",
            "/reset",
            "/help",
            "/stop",
            "/stop all",
        ]
        return self._rng.choice([*words, "one", "two words"])

    def _send(self, chat: str, kind: str = "send", **fields: Any) -> None:
        self._count += 1
        frame = {"type": kind, "chat_id": chat, "id": f"{self._name}{self._count}", **fields}
        self._sent[chat].append(frame)
        self._put(frame)

    def _attach(self, chat: str) -> None:
        view = self.views.get(chat)
        since = {"since": view.cursor, "log": view.log} if view is not None else {}
        self.attached.discard(chat)
        self._put({"type": "attach", "chat_id": chat, **since})

    def _put(self, frame: dict[str, Any]) -> None:
        if "id" in frame:
            self._waiting[frame["chat_id"], frame["id"]] += 1
        text = msgspec.json.encode(frame).decode()
        self._queue.put_nowait({"type": "websocket.receive", "text": text})

    # -- what it is shown -----------------------------------------------------------------------

    def _take(self, frame: dict[str, Any]) -> None:
        chat = frame.get("chat_id", "")
        view = self.views.get(chat)
        kind = frame["type"]
        if kind == "attached":
            if view is None or frame["reset"] or view.log != frame["log"]:
                view = self.views[chat] = View(frame["log"], frame["first_seq"])
            view.rewind(frame["first_seq"])
            self.attached.add(chat)
        elif kind in ("ack", "error") and "id" in frame:
            self._answered(chat, frame, view)
        elif kind == "session" and frame["state"] == "deleted":
            self.views.pop(chat, None)
            self.attached.discard(chat)
        elif view is not None:
            self._show(kind, frame, view)

    def _answered(self, chat: str, frame: dict[str, Any], view: View | None) -> None:
        self._waiting[chat, frame["id"]] -= 1
        self._waiting = +self._waiting
        if frame["type"] == "ack":
            self.acked.append((chat, view.log if view else "?", frame["id"], frame["seq"]))
        elif frame["code"] == "not_found":
            self.attached.discard(chat)  # If it was attached only to send.

    def _show(self, kind: str, frame: dict[str, Any], view: View) -> None:
        if kind == "message":
            if frame["seq"] <= view.cursor:
                self._world.fail(f"{self._name}: {frame} after {view.cursor}")
            view.cursor = frame["seq"]
            view.seen.append(frame["seq"])
        elif kind == "turn_start":
            view.turns.add(frame["turn"])
        elif kind == "turn_end":
            view.turns.discard(frame["turn"])
        elif kind in ("delta", "tool") and frame["turn"] not in view.turns:
            self._world.fail(f"{self._name}: {frame} outside of its turn")

    # -- what must hold -------------------------------------------------------------------------

    def check(self, key: SessionKey, log: str, rows: list[Record]) -> None:
        if key.channel != "websocket":
            return
        stored = {row.id: row.seq for row in rows if row.role == "user"}
        for chat, of, name, seq in self.acked:
            if chat == key.chat_id and of == log and stored.get(name) != seq:
                self._world.fail(f"{key}: {name} was acknowledged as {seq}, is {stored.get(name)}")
        view = self.views.get(key.chat_id)
        if view is None or view.log != log or key.chat_id not in self.attached:
            return
        shown = [row.seq for row in rows if row.seq >= view.first and not row.is_note]
        if view.seen != shown:
            self._world.fail(f"{self._name}: {key}: was shown {view.seen}, not {shown}")
        if view.turns:
            self._world.fail(f"{self._name}: {key}: turns without end: {view.turns}")


class Slacker:
    """Somebody on a push channel."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name = world, name
        self._count = 0
        self._sent: list[Inbound] = []
        self._host: PushHost

    async def arrive(self) -> None:
        gateway = self._world.gateway
        self._host = PushHost("slack", gateway.store, gateway.router, gateway.lanes, gateway.media)

    async def leave(self) -> None:
        pass

    def lose(self) -> None:
        pass

    def busy(self) -> list[Any]:
        return []

    async def act(self) -> None:
        rng = self._world.rng
        sent = rng.choice(self._sent) if self._sent else None
        match rng.choice(["send", "send", "again", "edit", "take", "stop"]):
            case "again" if sent is not None:
                await self._host.receive(sent)
            case "edit" if sent is not None:
                await self._host.edit(self._inbound(sent.chat_id), sent.id)
            case "take" if sent is not None:
                await self._host.take_back(sent.chat_id, sent.id)
            case "stop" if sent is not None:
                key = SessionKey("slack", sent.chat_id)
                await self._world.gateway.lanes.stop(key, queue=rng.random() < 0.5)
            case _:
                inbound = self._inbound(rng.choice(CHATS))
                self._sent.append(inbound)
                await self._host.receive(inbound)

    def _inbound(self, chat: str) -> Inbound:
        self._count += 1
        text = self._world.rng.choice(["one", "two words", "!new", "!help", "!stop all"])
        return Inbound(
            channel="slack",
            chat_id=chat,
            id=f"{self._name}.{self._count}",
            sender=Sender(self._name),
            text=text,
        )

    def check(self, key: SessionKey, log: str, rows: list[Record]) -> None:
        pass


class Carrier:
    """A push channel that is often away."""

    name = "slack"

    def __init__(self, world: World) -> None:
        self._world = world
        self.deliveries: list[Posted] = []

    async def start(self) -> None:
        pass

    async def stop_intake(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def status(self) -> ChannelState:
        return ChannelState("connected")

    def open(self, reply: Reply, note: Note) -> Posted:
        posted = Posted(self._world, reply, note)
        self.deliveries.append(posted)
        return posted

    def place(self, id: str) -> str | None:
        return None

    async def fetch(self, chat_id: str, item: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        yield b""

    async def surroundings(self, chat_id: str, id: str, known: Collection[str]) -> str:
        await self._world.pause()
        return ""

    def unfinished(self) -> list[Reply]:
        return [posted.reply for posted in self.deliveries if not posted.over]


class Posted:
    def __init__(self, world: World, reply: Reply, note: Note) -> None:
        self._world, self.reply, self._note = world, reply, note
        self.over = False

    def show(self, event: Event) -> None:
        if self.over:
            self._world.fail(f"shown after its end: {self.reply}")

    async def finish(self, answer: Answer) -> dict[str, Any]:
        if self.over:
            self._world.fail(f"finished twice: {self.reply}")
        await self._world.pause()
        match self._world.rng.randrange(8):
            case 0 | 1:
                raise Later("busy", 0.0)
            case 2:
                self.over = True
                raise Undeliverable("gone")
            case 3 | 4:
                await self._note({"ts": "1"})
        await self._world.pause()
        self.over = True
        return {"ts": "1"}

    async def leave(self) -> None:
        self.over = True
