"""All agents of the settings: built off the event loop, chosen by routes, replaced while in use.

An agent whose settings did not change survives a reload as it is. One that was replaced or removed
goes on serving the turns that use it and is closed after the last of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from loguru import logger

from gateway.agents.agent import Agent
from gateway.agents.fallback import FallbackAgent
from gateway.agents.retry import describe
from gateway.config import (
    AgentSettings,
    ConfigError,
    EchoAgentSettings,
    ModelAgentSettings,
    PythonAgentSettings,
    RouteSettings,
    Settings,
    WebhookAgentSettings,
)
from sessions.tasks import Tasks

DEFAULT = "default"
CLOSE_SECONDS = 10.0

Build = Callable[[str, AgentSettings], Agent]


@dataclass(slots=True, eq=False)
class _Entry:
    agent: Agent
    settings: Any
    users: int = 0


class Agents:
    def __init__(self, build: Build | None = None) -> None:
        self._build = build or build_agent
        self._entries: dict[str, _Entry] = {}
        self._retired: set[_Entry] = set()
        self._closing = Tasks("agents")

    @classmethod
    async def load(cls, settings: Settings, build: Build | None = None) -> Agents:
        """Raises ConfigError with one line per agent that cannot be made."""
        agents = cls(build)
        await agents.reload(settings)
        return agents

    async def reload(self, settings: Settings) -> None:
        """Raises ConfigError; then everything stays as it was."""
        kept = {
            name: entry
            for name, entry in self._entries.items()
            if settings.agents.get(name) == entry.settings
        }
        wanted = {name: item for name, item in settings.agents.items() if name not in kept}
        made, problems = await asyncio.to_thread(self._make, wanted)
        if problems:
            await self._close_all(made.values())
            raise ConfigError(problems)
        replaced = [entry for name, entry in self._entries.items() if name not in kept]
        self._entries = {name: {**kept, **made}[name] for name in settings.agents}
        for entry in replaced:
            self._retired.add(entry)
            self._close_if_idle(entry)

    def _make(self, wanted: Mapping[str, AgentSettings]) -> tuple[dict[str, _Entry], list[str]]:
        made: dict[str, _Entry] = {}
        problems: list[str] = []
        for name, settings in wanted.items():
            try:
                made[name] = _Entry(self._build(name, settings), settings)
            except Exception as error:  # noqa: BLE001 - code of users may fail in any way
                problems.append(f"agents.{name}: {_reason(error)}")
        return made, problems

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    @staticmethod
    def choose(
        routes: Sequence[RouteSettings], channel: str, chat_id: str, user: str | None = None
    ) -> str:
        """The name of the agent that answers: the first route that matches, else the default."""
        for route in routes:
            if (
                fnmatchcase(channel, route.channel)
                and fnmatchcase(chat_id, route.chat)
                and fnmatchcase(user or "", route.user)
            ):
                return route.agent
        return DEFAULT

    def get(self, name: str) -> Agent:
        """With its fallbacks. Raises KeyError. For a turn take `use`, which keeps it open."""
        return self._with_fallbacks(self._chain(name))

    @asynccontextmanager
    async def use(self, name: str) -> AsyncGenerator[Agent, None]:
        """The agent with its fallbacks, none of which is closed before the end. Raises KeyError."""
        chain = self._chain(name)
        for entry in chain:
            entry.users += 1
        try:
            yield self._with_fallbacks(chain)
        finally:
            for entry in chain:
                entry.users -= 1
                self._close_if_idle(entry)

    async def close(self) -> None:
        """After the turns have ended or were cancelled."""
        entries = [*self._entries.values(), *self._retired]
        self._entries, self._retired = {}, set()
        await self._close_all(entries)
        if not await self._closing.wait(CLOSE_SECONDS):
            await self._closing.cancel()

    def _chain(self, name: str) -> list[_Entry]:
        first = self._entries[name]
        others = [other for other in getattr(first.settings, "fallback", ()) if other != name]
        return [first, *(self._entries[other] for other in dict.fromkeys(others))]

    def _with_fallbacks(self, chain: Sequence[_Entry]) -> Agent:
        agents = [entry.agent for entry in chain]
        return agents[0] if len(agents) == 1 else FallbackAgent(agents)

    def _close_if_idle(self, entry: _Entry) -> None:
        if entry in self._retired and not entry.users:
            self._retired.discard(entry)
            self._closing.spawn(_close(entry), entry.agent.name)

    async def _close_all(self, entries: Iterable[_Entry]) -> None:
        await asyncio.gather(*(_close(entry) for entry in entries))


def build_agent(name: str, settings: AgentSettings) -> Agent:
    """Imports what the kind needs and nothing else."""
    match settings:
        case EchoAgentSettings():
            from gateway.agents.echo import EchoAgent

            return EchoAgent(name, settings.delay_ms)
        case ModelAgentSettings():
            from gateway.agents.model import ModelAgent

            return ModelAgent.load(name, settings)
        case WebhookAgentSettings():
            from gateway.agents.webhook import WebhookAgent

            return WebhookAgent(name, settings)
        case PythonAgentSettings():
            from gateway.agents.python import PythonAgent

            return PythonAgent.load(name, settings.path)


async def _close(entry: _Entry) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await entry.agent.close()
    except Exception as error:  # noqa: BLE001 - nothing can be done about it, and others wait
        logger.bind(agent=entry.agent.name, error=describe(error)).warning("agent close failed")


def _reason(error: Exception) -> str:
    if isinstance(error, ImportError):
        package = (error.name or "").partition(".")[0]
        if package in _EXTRAS:
            return f"needs {package}: pip install 'parley-gateway[{_EXTRAS[package]}]'"
    text = " ".join(str(error).split())
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}"


_EXTRAS = {"pydantic_ai": "model", "httpx2": "model", "mcp": "mcp"}
