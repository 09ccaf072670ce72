"""The process: sockets, signals, and one way out.

The port is open before the gateway has started, so that a probe is told `starting`; it is closed
before anything else when the gateway stops. Connections stay until running turns have ended.
Whatever still hangs then (a thread of an agent, a client that never reads) is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from loguru import logger

from channels.websocket.socket import Socket
from gateway import admin
from gateway.app import Gateway
from gateway.config import ConfigError, Settings
from gateway.http import create_app
from gateway.http.admin import AdminProtocol, Door
from gateway.http.auth import Authenticator
from gateway.http.protocol import HttpProtocol
from gateway.http.websocket import UNAUTHORIZED
from gateway.logs import Logs
from gateway.tokens import TokenError
from sessions.errors import StoreLocked, StoreRefused

OK, FAILED, LOCKED, CONFIGURATION = 0, 1, 75, 78
BACKLOG = 2_048
FAREWELL_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 30
TOKENS_SECONDS = 2.0


class Listener(uvicorn.Server):
    """uvicorn without its own signals, and with an end that nobody can hold up."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop_listening(self) -> None:
        for server in getattr(self, "servers", ()):
            server.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.stop_listening()
        connections = self.server_state.connections
        for connection in list(connections):
            if not isinstance(connection, Socket):
                connection.shutdown()
        deadline = time.monotonic() + FAREWELL_SECONDS
        while connections and time.monotonic() < deadline:  # noqa: ASYNC110 - as uvicorn does
            await asyncio.sleep(0.02)
        for connection in list(connections):
            connection.transport.abort()
        for task in list(self.server_state.tasks):
            task.cancel()


class Process:
    def __init__(self, settings: Settings, logs: Logs, reload: Callable[[], Settings]) -> None:
        self._logs = logs
        self._gateway = Gateway(settings, reload)
        self._metrics = self._gateway.metrics
        self._metrics.add_process()
        self._auth = Authenticator(settings.auth, Path(settings.data_dir))
        app = create_app(self._gateway, auth=self._auth, metrics=self._metrics, logs=self._logs)
        self._listener = Listener(self._uvicorn(settings, app))
        self._admin = Listener(self._uvicorn(settings, Door(app), http=AdminProtocol, ws="none"))
        self._administering: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()

    def _uvicorn(self, settings: Settings, app: Any, **protocols: Any) -> uvicorn.Config:
        ping = settings.channels.websocket.ping_seconds
        return uvicorn.Config(
            app,
            **{"http": HttpProtocol, "ws": Socket, **protocols},
            ws_max_size=settings.limits.frame,
            ws_ping_interval=ping,
            ws_ping_timeout=ping,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )

    # -- the whole life -----------------------------------------------------------------------

    async def run(self) -> int:
        settings = self._gateway.settings
        self._handle_signals()
        port, problem = _listen(settings.server.host, settings.server.port)
        serving = None
        if port is not None:
            serving = asyncio.get_running_loop().create_task(
                self._listener.serve([port]), name="http"
            )
        # A locked directory is told even if the port is taken too: its owner usually has both.
        code = await self._start()
        if code == OK and (port is None or serving is None):
            logger.bind(error=problem).error("parley cannot listen")
            code = FAILED
        elif code == OK and port is not None and serving is not None:
            self._open_admin()
            logger.bind(url=_url(port), version=self._gateway.version).info("parley started")
            await self._until_stopped(serving)
        await self._end(serving)
        return code

    async def _start(self) -> int:
        try:
            if self._auth.mode == "token":
                # Before anybody is served: whoever is logged in must not be asked to do it again.
                await asyncio.to_thread(self._auth.tokens.load_logins)
            await self._gateway.start()
            await self._prepare_tokens()
        except ConfigError as error:
            for line in error.problems:
                logger.bind(error=line).error("settings rejected")
            return CONFIGURATION
        except (StoreRefused, TokenError) as error:
            logger.bind(error=str(error)).error("parley cannot start")
            return CONFIGURATION
        except StoreLocked as error:
            logger.bind(error=str(error)).error("parley cannot start")
            return LOCKED
        return OK

    def _open_admin(self) -> None:
        """Only the holder of the directory's lock has a socket in it; no lock, no socket."""
        settings = self._gateway.settings
        if settings.storage.url != "jsonl:":
            return
        try:
            listening = admin.listen(Path(settings.data_dir))
        except OSError as error:
            logger.bind(error=str(error)).warning("admin socket missing")
            return
        self._administering = asyncio.get_running_loop().create_task(
            self._admin.serve([listening]), name="admin"
        )

    def _close_admin(self) -> None:
        if self._administering is not None:
            admin.remove(Path(self._gateway.settings.data_dir))
            self._admin.stop_listening()

    async def _prepare_tokens(self) -> None:
        if self._auth.mode != "token":
            return
        data_dir = Path(self._gateway.settings.data_dir)
        made = await asyncio.to_thread(self._auth.tokens.first, data_dir)
        if made is not None:
            logger.bind(path=str(made)).warning("admin token created")
        self._gateway.tasks.spawn(self._watch_tokens(), "tokens")

    async def _watch_tokens(self) -> None:
        """Connections of a revoked token end too, a moment later."""
        while True:
            await asyncio.sleep(TOKENS_SECONDS)
            with contextlib.suppress(TokenError):
                names = {token.name for token in self._auth.tokens.known()}
                for connection in list(self._gateway.connections):
                    if connection.user is not None and connection.user not in names:
                        connection.close(UNAUTHORIZED, "the token was revoked")

    async def _until_stopped(self, serving: asyncio.Task[None]) -> None:
        stop = asyncio.get_running_loop().create_task(self._stop.wait(), name="stop-signal")
        while not self._stop.is_set() and not serving.done():
            reload = asyncio.get_running_loop().create_task(
                self._reload.wait(), name="reload-signal"
            )
            await asyncio.wait({stop, reload, serving}, return_when=asyncio.FIRST_COMPLETED)
            reload.cancel()
            if self._reload.is_set() and not self._stop.is_set():
                self._reload.clear()
                await self._apply_settings()
        stop.cancel()

    async def _apply_settings(self) -> None:
        await self._gateway.reload()
        settings = self._gateway.settings
        self._listener.config.ws_max_size = settings.limits.frame
        try:
            self._logs.configure(settings)
        except ConfigError as error:
            logger.bind(error=str(error)).error("settings rejected")

    async def _end(self, serving: asyncio.Task[None] | None) -> None:
        self._listener.stop_listening()
        self._close_admin()
        if self._gateway.state == "serving":
            logger.info("parley stopping")
            await self._gateway.stop()
        for listener, task in ((self._listener, serving), (self._admin, self._administering)):
            listener.should_exit = True
            if task is not None:
                await task
        if self._gateway.state == "stopped":
            seconds = round(time.monotonic() - self._gateway.started_at, 3)
            logger.bind(uptime_seconds=seconds).info("parley stopped")

    # -- signals ------------------------------------------------------------------------------

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)

    def _on_stop(self, name: str) -> None:
        if self._stop.is_set():
            # What was acknowledged is in the kernel's hands already; nothing else must wait.
            logger.bind(signal=name).warning("parley stopped at once")
            self._logs.close()
            os._exit(FAILED)
        self._stop.set()


def _listen(host: str, port: int) -> tuple[socket.socket | None, str]:
    try:
        # localhost usually has both addresses; the older one is what people type.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        return None, f"{host}:{port}: {error.strerror or error}"
    return listening, ""


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(load: Callable[[], Settings]) -> int:
    """Runs until a signal; returns the exit code. Raises ConfigError before anything is open.

    The loop is left as it is: closing it would wait for threads that may never end. The caller is
    expected to leave the process at once.
    """
    settings = load()
    logs = Logs()
    logs.configure(settings)
    loop = new_event_loop()
    asyncio.set_event_loop(loop)

    async def main() -> int:
        return await Process(settings, logs, load).run()

    try:
        return loop.run_until_complete(main())
    finally:
        logs.close()
