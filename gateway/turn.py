"""One run of an agent for one chat: from the messages to be answered to the closing record.

The agent runs in a task of its own. The turn takes its events one at a time: what is shown goes to
the bus, what must survive goes to the log first. A turn writes only through itself; once it is
closed, whatever the agent still says is dropped. That is what makes Stop certain: an agent that
ignores cancellation, or hangs in a thread, is left behind.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any

from loguru import logger

from channels.channel import Event
from gateway import settlement
from gateway.agents.agent import (
    Agent,
    AgentEvent,
    AgentFailed,
    Calls,
    Delta,
    Produced,
    Reasoning,
    ToolResult,
    ToolStarted,
    TurnContext,
    Usage,
)
from gateway.bus import Bus
from gateway.config import LimitSettings
from sessions import clock
from sessions.errors import SessionError, SessionNotFound, StoreUnavailable
from sessions.record import NoteKind, Outcome, Record
from sessions.session import Patch, Session
from sessions.store import SessionStore
from sessions.tasks import Tasks

CANCEL_SECONDS = 1.5
MOST_CHARS = 4 * 1024 * 1024
RETRY_CLOSE_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SHOWN_OUTCOMES = {Outcome.ANSWERED: "ok"}

Stage = Callable[[Produced], Awaitable[dict[str, Any]]]
MakeContext = Callable[[], Awaitable[TurnContext]]


class Abandoned(Exception):
    """The turn was left pending on purpose: the next start takes it up again."""


class Turn:
    def __init__(
        self,
        *,
        id: str,
        attempt: int,
        session: Session,
        answering: list[Record],
        store: SessionStore,
        bus: Bus,
        tasks: Tasks,
        limits: LimitSettings,
        stage: Stage,
    ) -> None:
        self.id, self.attempt = id, attempt
        self.session, self.answering = session, answering
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._shown_chars = 0
        self.tools: list[dict[str, Any]] = []
        self.n = 0
        self.started_at = clock.now()
        self.first_shown: float | None = None
        self.outcome = "pending"
        self.latency_seconds = 0.0
        self.agent_name = ""
        self._store, self._bus, self._tasks = store, bus, tasks
        self._limits, self._stage = limits, stage
        self._started = time.monotonic()
        self._active = math.inf
        """When the agent was last heard of; before it is asked, silence does not count."""
        self._media: list[dict[str, Any]] = []
        self._usage: dict[str, int] | None = None
        self._model: str | None = None
        self._closed = False
        self._stop: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.log = logger.bind(session=str(session.key), turn=id)

    @property
    def text(self) -> str:
        """The answer so far; a tool call starts it afresh."""
        return _joined(self._text)

    @property
    def reasoning(self) -> str:
        return _joined(self._reasoning)

    # -- from outside -------------------------------------------------------------------------

    def stop(self, outcome: str) -> None:
        """Ends the turn with what there is. The first reason counts."""
        if not self._stop.done():
            self._stop.set_result(outcome)

    def give_up(self) -> None:
        """A shutdown cannot wait: what was shown is kept, else it is left for the next start."""
        self.stop(Outcome.INTERRUPTED if self.text else _PENDING)

    def snapshot(self) -> dict[str, Any]:
        """Everything shown so far, as `turn_start` carries it."""
        return {
            "turn": self.id,
            "started_at": self.started_at,
            "n": self.n,
            "text": self.text,
            "reasoning": self.reasoning,
            "tools": self.tools,
            "answers": [row.seq for row in self.answering],
        }

    # -- the run ------------------------------------------------------------------------------

    async def run(self, agent: Agent, context: MakeContext) -> str:
        """Runs the agent and closes the turn. Returns the outcome; raises Abandoned.

        Making the context may take a while, so it can be stopped like the agent.
        """
        self.agent_name = agent.name
        self.log = self.log.bind(agent=agent.name)
        self.log.bind(attempt=self.attempt).info("turn started")
        self._publish("turn_start", self.snapshot())
        work = self._tasks.spawn(self._consume(agent, context), f"agent-{self.id}", awaited=True)
        outcome, error = await self._supervise(work)
        if outcome == _PENDING:
            self._closed = True
            raise Abandoned
        return await self.close(outcome, error)

    async def _consume(self, agent: Agent, context: MakeContext) -> None:
        events = agent.run(await context())
        self._active = time.monotonic()
        try:
            async for event in events:
                if self._closed:
                    return
                self._active = time.monotonic()
                await self._take(event)
        finally:
            aclose = getattr(events, "aclose", None)
            if aclose is not None:
                await aclose()

    async def _supervise(self, work: asyncio.Task[None]) -> tuple[str, str | None]:
        """Waits for the agent, Stop, or a time-out, whichever comes first."""
        while not work.done() and not self._stop.done():
            left = self._time_left()
            if left <= 0:
                await self._leave(work)
                return Outcome.FAILED, self._too_late()
            either: set[asyncio.Future[Any]] = {work, self._stop}
            # Looks again even while a tool runs: once it has ended, silence counts.
            pause = min(left, self._limits.stream_idle_seconds)
            await asyncio.wait(either, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        if self._stop.done():
            await self._leave(work)
            return self._stop.result(), None
        return self._result(work)

    def _time_left(self) -> float:
        now = time.monotonic()
        whole = self._limits.turn_seconds - (now - self._started)
        if any(tool["phase"] == "start" for tool in self.tools):
            return whole  # A tool has its own time-out.
        idle = self._limits.stream_idle_seconds - (now - self._active)
        return min(whole, idle)

    def _too_late(self) -> str:
        if time.monotonic() - self._started >= self._limits.turn_seconds:
            return f"The answer took longer than {self._limits.turn_seconds:g} seconds."
        return f"The agent was silent for {self._limits.stream_idle_seconds:g} seconds."

    async def _leave(self, work: asyncio.Task[None]) -> None:
        self._closed = True
        work.cancel()
        done, _ = await asyncio.wait({work}, timeout=CANCEL_SECONDS)
        if not done:
            self.log.warning("agent ignores stop")
        elif not work.cancelled():
            work.exception()  # Nobody asks any more how it ended.

    def _result(self, work: asyncio.Task[None]) -> tuple[str, str | None]:
        if work.cancelled():
            return Outcome.FAILED, "The agent gave up."
        error = work.exception()
        if error is None:
            return Outcome.ANSWERED, None
        if isinstance(error, AgentFailed):
            return Outcome.FAILED, error.message
        if isinstance(error, StoreUnavailable):
            return Outcome.FAILED, "The conversation could not be stored."
        if isinstance(error, SessionNotFound):
            return Outcome.STOPPED, None  # The chat was deleted under it.
        self.log.opt(exception=error).error("agent failed")
        return Outcome.FAILED, "The agent failed."

    # -- what the agent says ------------------------------------------------------------------

    async def _take(self, event: AgentEvent) -> None:
        match event:
            case Delta(text=text):
                if text:
                    self._grow(self._text, text)
                    self._live("delta", {"text": text})
            case Reasoning(text=text):
                if text:
                    self._grow(self._reasoning, text)
                    self._live("reasoning", {"text": text})
            case Calls():
                await self._log_calls(event)
            case ToolStarted(id=id, name=name, summary=summary):
                self._tool(id, name, "start", summary)
            case ToolResult():
                await self._log_result(event)
            case Usage(tokens=tokens, model=model):
                self._usage, self._model = tokens, model or self._model
            case Produced():
                self._media.append(await self._stage(event))

    def _grow(self, parts: list[str], text: str) -> None:
        self._shown_chars += len(text)
        if self._shown_chars > MOST_CHARS:
            raise AgentFailed("The answer is too long.")
        parts.append(text)

    async def _log_calls(self, event: Calls) -> None:
        """Durable before the agent goes on to run them."""
        row = Record(
            "assistant",
            event.text or self.text,
            turn=self.id,
            tool_calls=event.tool_calls,
            reasoning_content=(event.reasoning or self.reasoning) or None,
            thinking_blocks=event.thinking_blocks,
        )
        await self._append(row)
        self._text, self._reasoning = [], []

    async def _log_result(self, event: ToolResult) -> None:
        row = Record("tool", event.content, turn=self.id, tool_call_id=event.id, name=event.name)
        await self._append(row)
        self._tool(event.id, event.name, "end", event.summary)

    def _tool(self, id: str, name: str, phase: str, summary: str) -> None:
        fields = {"id": id, "name": name, "phase": phase, "summary": summary}
        self.tools = [tool for tool in self.tools if tool["id"] != id] + [fields]
        self._live("tool", fields)

    async def _append(self, row: Record) -> None:
        if not self._closed:
            await settlement.write(self._store, self.session, row)

    def _live(self, kind: str, fields: dict[str, Any]) -> None:
        if self.first_shown is None:
            self.first_shown = time.monotonic() - self._started
        self._publish(kind, {"turn": self.id, "n": self.n, **fields})
        self.n += 1

    def _publish(self, kind: str, fields: dict[str, Any]) -> None:
        self._bus.publish(self.session.key, Event(kind, fields, turn=self.id))

    # -- the end ------------------------------------------------------------------------------

    async def close(self, outcome: str, error: str | None = None) -> str:
        """Writes the one closing record. A full disk delays it; nothing makes it twice."""
        self._closed = True
        self.outcome = str(outcome)
        self.latency_seconds = time.monotonic() - self._started
        latency_ms = round(self.latency_seconds * 1000)
        row = Record(
            "assistant",
            self.text,
            turn=self.id,
            outcome=str(outcome),
            settles=settles(self.answering, outcome),
            usage=self._usage,
            latency_ms=latency_ms,
            media=self._media or None,
            reasoning_content=self.reasoning or None,
            note={"kind": NoteKind.ERROR.value, "message": error} if error else None,
        )
        seq = await self._write_closing(row)
        fields: dict[str, Any] = {
            "turn": self.id,
            "seq": seq,
            "outcome": SHOWN_OUTCOMES.get(Outcome(outcome), str(outcome)),
            "latency_ms": latency_ms,
        }
        if self._usage is not None:
            fields["usage"] = self._usage
        if error is not None:
            fields["error"] = error
        self._bus.publish(self.session.key, Event("turn_end", fields, seq, self.id))
        self.log.bind(outcome=str(outcome), latency_ms=latency_ms, error=error).info("turn ended")
        return outcome

    def _learned(self) -> Patch | None:
        """The chat remembers who answers it, and with which model; nothing if it knows."""
        state = self.session.state
        agent = state.agent or self.agent_name or None
        model = self._model or state.model
        if (agent, model) == (state.agent, state.model):
            return None
        return Patch(agent=agent, model=model)

    async def _write_closing(self, row: Record) -> int:
        """Kept in memory and tried again: the chat holds until its end is in the log."""
        attempt = 0
        while True:
            try:
                written = await settlement.write(self._store, self.session, row, self._learned)
            except SessionNotFound:
                return 0  # The chat was deleted meanwhile; nothing revives it.
            except SessionError as error:
                pause = RETRY_CLOSE_SECONDS[min(attempt, len(RETRY_CLOSE_SECONDS) - 1)]
                self.log.bind(error=str(error)).warning("closing record waits")
                attempt += 1
                await asyncio.sleep(pause)
            else:
                return written.seq


_PENDING = "pending"


def _joined(parts: list[str]) -> str:
    """Joins in place, so that asking often costs little."""
    if len(parts) > 1:
        parts[:] = ["".join(parts)]
    return parts[0] if parts else ""


def settles(answering: list[Record], outcome: str) -> dict[int, str]:
    """The first message has the turn's outcome; what was answered together with it is merged."""
    rest = Outcome.MERGED if outcome == Outcome.ANSWERED else outcome
    return {row.seq: str(rest if at else outcome) for at, row in enumerate(answering)}
