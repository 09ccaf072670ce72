"""The processes a gateway is measured with; each listens on loopback and ends with the bench.

They have a process group of their own: Ctrl-C reaches the bench alone, which then ends them in
order. Their logs stay in the scratch directory until the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil
import yaml

ROOT = Path(__file__).parents[1]
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.002
STOP_SECONDS = 15.0


class ServerFailed(Exception):
    """A process of the bench ended or did not answer; its log says why."""


class Server:
    """A child process. `async with` waits until it is ready, and at the end until it is gone."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        directory: Path,
        port: int,
        *,
        ready: str | None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`ready`: a path that is answered with 200; None: the port is open."""
        self.url = f"http://127.0.0.1:{port}"
        self.ready_seconds = 0.0
        self._name, self._command, self._directory = name, list(command), directory
        self._port, self._ready = port, ready
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
        self._process: subprocess.Popen[bytes]

    async def __aenter__(self) -> Self:
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / f"{self._name}.log").open("ab") as log:
            started = time.perf_counter()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
                env=self._environment,
                start_new_session=True,
            )
        try:
            await self._until_ready()
        except BaseException:
            await self.__aexit__()
            raise
        self.ready_seconds = time.perf_counter() - started
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @property
    def log(self) -> str:
        return (self._directory / f"{self._name}.log").read_text(errors="replace")

    @property
    def resident_bytes(self) -> int:
        """Its own and its children's."""
        process = psutil.Process(self._process.pid)
        family = [process, *process.children(recursive=True)]
        return sum(member.memory_info().rss for member in family)

    async def _until_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not await self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"{self._name} did not start:\n{self.log[-2_000:]}")
            await asyncio.sleep(POLL_SECONDS)

    async def _is_ready(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            return False
        try:
            if self._ready is None:
                return True
            host = f"127.0.0.1:{self._port}"
            request = f"GET {self._ready} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            writer.write(request.encode())
            return (await reader.readline()).startswith(b"HTTP/1.1 200")
        except OSError:
            return False
        finally:
            writer.close()


def parley(directory: Path, *, users: bool = False, **settings: Any) -> Server:
    """A gateway with the echo agent. `users`: every connection is somebody else's.

    Its limits per user and connection are out of the way: they exist to stop just this load.
    """
    port = free_port()
    auth = {"mode": "proxy", "header": "X-Bench-User", "trusted_peers": ["127.0.0.1/32"]}
    values = {
        "data_dir": str(directory / "data"),
        "server": {"port": port},
        "auth": auth if users else {"mode": "none"},
        "limits": {"messages_per_minute": 0},
        "channels": {"websocket": {"frames_per_second": 1_000_000}},
        **settings,
    }
    values["sessions"] = {"legacy_dirs": [], **settings.get("sessions", {})}
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "config.yaml"
    config.write_text(yaml.safe_dump(values))
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(config)]
    return Server("parley", command, directory, port, ready="/readyz")


def bare(directory: Path, kind: str, frames: Sequence[str] = ()) -> Server:
    port = free_port()
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "frames.json"
    path.write_text(json.dumps(list(frames)))
    command = [sys.executable, "-m", "benchmarks.bare", kind, str(port), str(path)]
    return Server("bare", command, directory, port, ready="/")


def fake_model(directory: Path, words: str) -> Server:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.fake_model", str(port), words]
    return Server("model", command, directory, port, ready=None)


def nanobot(python: Path, directory: Path, model_url: str) -> Server:
    """The peer's own gateway with its WebSocket channel, without its periodic work."""
    port = free_port()
    values = {
        "agents": {
            "defaults": {
                "workspace": str(directory / "workspace"),
                "model": "instant",
                "provider": "custom",
            }
        },
        "providers": {"custom": {"apiKey": "none", "apiBase": f"{model_url}/v1"}},
        "gateway": {"port": free_port(), "heartbeat": {"enabled": False}},
        "channels": {"websocket": {"enabled": True, "port": port, "websocketRequiresToken": False}},
    }
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "config.json"
    config.write_text(json.dumps(values))
    command = [str(python.with_name("nanobot")), "gateway", "--foreground", "--config", str(config)]
    # Its home is ours to give: a real one may hold sessions.
    home = {"HOME": str(directory)}
    return Server("nanobot", command, directory, port, ready=None, environment=home)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Clients:
    """The load generator, see `load.py`: one for each server that is measured."""

    program = "benchmarks.load"

    def __init__(self, url: str, dialect: str = "parley") -> None:
        self._url, self._dialect = url, dialect
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self.program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            start_new_session=True,
            limit=1 << 24,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def connect(self, count: int) -> None:
        await self.call("connect", url=self._url, count=count, dialect=self._dialect)

    async def call(self, name: str, /, **arguments: Any) -> Any:
        """See `load.Load` for what there is. Raises ServerFailed."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        line = await stdout.readline()
        answer = json.loads(line) if line else {"error": "the clients stopped"}
        if "error" in answer:
            raise ServerFailed(answer["error"])
        return answer["answer"]
