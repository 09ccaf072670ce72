"""The one place where everything is put together, started and stopped in order.

Start: store → agents → channels and HTTP → recovery in the background. Stop: no intake → running
turns until the deadline → connections closed → agents → store flushed. Nothing here is global;
every part is given what it needs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from loguru import logger

from channels.channel import ChannelState, PushChannel
from gateway import config
from gateway.agents.registry import Agents
from gateway.bus import Bus
from gateway.client import Client
from gateway.commands import Commands
from gateway.config import ConfigError, Settings
from gateway.lanes import Lanes
from gateway.ledger import Ledger
from gateway.live import Live
from gateway.media import Media
from gateway.outbox import Outbox
from gateway.preparation import Preparation
from gateway.push import PushHost
from gateway.router import Router
from gateway.telemetry import Metrics
from gateway.users import User
from sessions.key import SessionKey
from sessions.store import SessionStore
from sessions.store_jsonl import JsonlStore
from sessions.store_memory import MemoryStore
from sessions.tasks import Tasks

EXPIRY_SECONDS = 3_600.0
DELIVERY_SECONDS = 5.0
"""How long a stop waits for replies on their way."""


def parley_version() -> str:
    try:
        return version("parley-gateway")
    except PackageNotFoundError:
        return "0"


class Gateway:
    """A running Parley without its sockets: what the HTTP server and the channels stand on."""

    def __init__(self, settings: Settings, reload: Callable[[], Settings] | None = None) -> None:
        self.settings = settings
        self.state = "starting"
        """starting, serving, stopping or stopped."""
        self.started_at = time.monotonic()
        self.version = parley_version()
        self.store: SessionStore = make_store(settings)
        self.bus = Bus()
        self.ledger = Ledger()
        self.metrics = Metrics()
        self.tasks = Tasks("gateway")
        self.connections: set[Any] = set()
        """Open WebSocket connections; each has `close(code, reason)`."""
        self._reload = reload
        self.agents: Agents
        self.commands: Commands
        self.lanes: Lanes
        self.live: Live
        self.router: Router
        self.media: Media
        self.outbox: Outbox
        self.push: dict[str, PushChannel] = {}
        """Channels that carry the answers themselves, by name."""

    async def start(self) -> None:
        """Raises ConfigError, StoreLocked or StoreRefused; then nothing is left open."""
        self.agents = await Agents.load(self.settings)
        await self.store.open()
        current = self.current
        self.media = Media(Path(self.settings.data_dir) / "media", current)
        self.commands = Commands(self.store, self.bus, current, lambda: list(self.agents))
        self.lanes = Lanes(
            self.store,
            self.bus,
            self.agents,
            self.commands,
            self.ledger,
            self.media.stage,
            Preparation(self.store, self.media, self.push),
            current,
            self.metrics.observe_turn,
            self._place,
        )
        self.commands.lanes = self.lanes
        self.router = Router(
            self.store,
            self.bus,
            self.lanes,
            self.commands,
            self.ledger,
            current,
            self.media.shown,
        )
        self.live = Live(
            self.store, self.bus, self.lanes, self.media.shown, self.metrics.count_reconnect
        )
        self.outbox = Outbox(self.store, self.bus, self.lanes.turns)
        await self._start_channels()
        self.state = "serving"
        self.tasks.spawn(self.lanes.recover(), "recovery")
        self.tasks.spawn(self.outbox.recover(), "deliveries")
        self.tasks.spawn(self._expire(), "expiry")

    async def _start_channels(self) -> None:
        """A platform that is away never holds up the others: `start` returns at once."""
        if self.settings.channels.slack.enabled:
            from gateway.slack import make_channel  # Only who uses it pays for its import.

            host = PushHost("slack", self.store, self.router, self.lanes, self.media)
            self.push["slack"] = make_channel(host, self.current)
        for channel in self.push.values():
            self.outbox.carry(channel)
            await channel.start()

    def _place(self, key: SessionKey, id: str) -> str | None:
        channel = self.push.get(key.channel)
        return channel.place(id) if channel is not None else None

    def current(self) -> Settings:
        return self.settings

    def client(self, who: User) -> Client:
        """The gateway in the name of one user."""
        return Client(
            who,
            version=self.version,
            store=self.store,
            bus=self.bus,
            live=self.live,
            router=self.router,
            lanes=self.lanes,
            media=self.media.resolve,
            settings=self.current,
        )

    def channels(self) -> dict[str, ChannelState]:
        """What each channel can do right now."""
        enabled = self.settings.channels.websocket.enabled
        state = "connected" if enabled and self.state == "serving" else "disabled"
        states = {"websocket": ChannelState(state, {"connections": len(self.connections)})}
        return states | {name: channel.status() for name, channel in self.push.items()}

    # -- stopping -----------------------------------------------------------------------------

    async def stop(self) -> None:
        """Exactly one way out, whatever is still running or not reading."""
        if self.state in ("stopping", "stopped"):
            return
        self.state = "stopping"
        self.router.stop_intake()
        for channel in self.push.values():
            await channel.stop_intake()
        await self.lanes.drain(self.settings.server.shutdown_seconds)
        await self.router.settle(1.0)
        await self.outbox.drain(DELIVERY_SECONDS)
        for channel in self.push.values():
            await channel.stop()
        for connection in list(self.connections):
            connection.close(1001, "the gateway is stopping")
        await self.tasks.cancel()
        await self.agents.close()
        await self.store.close()
        self.state = "stopped"

    # -- while running ------------------------------------------------------------------------

    async def reload(self) -> None:
        """SIGHUP: applies what can change live; a bad file changes nothing."""
        if self._reload is None:
            return
        try:
            settings = await asyncio.to_thread(self._reload)
            merged, live, restart = config.apply(self.settings, settings)
            await self.agents.reload(merged)
        except ConfigError as error:
            logger.bind(error=str(error)).error("settings rejected")
            return
        self.settings = merged
        self.lanes.slots.resize(merged.limits.running_turns)
        logger.bind(applied=live, restart=restart).info("settings reloaded")

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            if self.settings.sessions.max_age_days:
                await self.store.expire(self.settings.sessions.max_age_days)


def make_store(settings: Settings) -> SessionStore:
    if settings.storage.url == "memory:":
        return MemoryStore()
    sessions = settings.sessions
    return JsonlStore(
        Path(settings.data_dir),
        sync=settings.storage.sync,
        sync_seconds=settings.storage.sync_seconds,
        file_cap=sessions.file_cap,
        cache_bytes=sessions.cache_bytes,
        legacy_dirs=[Path(name).expanduser() for name in sessions.legacy_dirs],
        allow_network=settings.storage.allow_network,
    )
