"""A real gateway in a process of its own, on a free port, as its users meet it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import httpx
import yaml
from websockets.asyncio.client import ClientConnection, connect

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60
PROGRAM = """
import os, sys
from pathlib import Path
from gateway import config, server

try:
    code = server.run(lambda: config.load(Path(sys.argv[1])))
except config.ConfigError as error:
    print(error, file=sys.stderr)
    code = 78
os._exit(code)
"""


class Daemon:
    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        self.directory = directory
        self.config = directory / "config.yaml"
        self.data = directory / "data"
        self.events: list[dict[str, Any]] = []
        """What it has logged."""
        self.lines: list[str] = []
        self.url = ""
        self._heard = asyncio.Condition()
        self._open = AsyncExitStack()
        self.configure(settings)
        self._process: asyncio.subprocess.Process
        self._reader: asyncio.Task[None]

    def configure(self, settings: Mapping[str, Any]) -> None:
        values: dict[str, Any] = {
            "data_dir": str(self.data),
            **settings,
            "server": {"port": 0, **settings.get("server", {})},
            "sessions": {"legacy_dirs": [], **settings.get("sessions", {})},
            "logging": {"format": "json", **settings.get("logging", {})},
        }
        self.config.write_text(yaml.safe_dump(values))

    # -- its life -----------------------------------------------------------------------------

    async def start(self, **environment: str) -> Self:
        """Returns once it has said that it listens."""
        await self.launch(**environment)
        started = await self.logged("parley started")
        self.url = str(started["url"])
        return self

    async def launch(self, **environment: str) -> None:
        self.events, self.lines = [], []
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            str(self.config),
            stderr=asyncio.subprocess.PIPE,
            cwd=self.directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            limit=1 << 24,
        )
        self._reader = asyncio.get_running_loop().create_task(self._read(), name="daemon-log")

    async def _read(self) -> None:
        stream = self._process.stderr
        assert stream is not None
        while line := await stream.readline():
            text = line.decode()
            self.lines.append(text)
            async with self._heard:
                if text.startswith("{"):
                    self.events.append(json.loads(text))
                self._heard.notify_all()
        async with self._heard:
            self._heard.notify_all()

    async def logged(
        self, event: str, fits: Callable[[dict[str, Any]], bool] = lambda _: True
    ) -> dict[str, Any]:
        """The first such line of the log, as soon as it is written."""

        def found() -> dict[str, Any] | None:
            return next((e for e in self.events if e["event"] == event and fits(e)), None)

        async with asyncio.timeout(PATIENCE_SECONDS), self._heard:
            await self._heard.wait_for(lambda: found() is not None or self._reader.done())
        seen = found()
        assert seen is not None, f"it ended without {event!r}: {''.join(self.lines)}"
        return seen

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Its exit code; everything it logged is known by then."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self._process.wait()
            await self._reader
        return code

    async def stop(self) -> int:
        if self._process.returncode is None:
            self.signal(signal.SIGTERM)
        return await self.ended()

    async def close(self) -> None:
        await self._open.aclose()
        if self._process.returncode is None:
            self._process.kill()
        await self.ended()

    # -- its clients --------------------------------------------------------------------------

    async def client(self, token: str | None = None, **options: Any) -> httpx.AsyncClient:
        headers = dict(options.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        made = httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=PATIENCE_SECONDS, **options
        )
        return await self._open.enter_async_context(made)

    async def chat(self, token: str | None = None, **options: Any) -> Chat:
        headers = dict(options.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        address = self.url.replace("http://", "ws://") + "/ws"
        options = {"max_size": None, "open_timeout": PATIENCE_SECONDS, **options}
        socket = await connect(address, additional_headers=headers, **options)
        self._open.push_async_callback(_hang_up, socket)
        return Chat(socket)

    def token(self, name: str, role: str = "user") -> str:
        from gateway.tokens import Tokens

        return Tokens(self.data).new(name, role)


async def _hang_up(socket: ClientConnection) -> None:
    """At once: a closing handshake would first want everything to be read."""
    socket.transport.abort()
    await socket.wait_closed()


class Chat:
    """A client of the WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.frames: list[dict[str, Any]] = []

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def frame(self, kind: str) -> dict[str, Any]:
        """The next frame of this kind; those before it are kept in `frames`."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                found: dict[str, Any] = json.loads(await self.socket.recv())
                self.frames.append(found)
                if found["type"] == kind:
                    return found

    async def say(self, chat_id: str, text: str, id: str = "1", **fields: Any) -> dict[str, Any]:
        """Sends a message and waits for the end of its turn."""
        await self.send("send", chat_id=chat_id, id=id, text=text, **fields)
        return await self.frame("turn_end")

    async def closed(self) -> int | None:
        """The code the other side closed with."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.socket.wait_closed()
        return self.socket.close_code
