"""SIGHUP, through the command people run."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from gateway.config import Settings, apply, load

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60


class Served:
    """`parley serve` with a file of settings."""

    def __init__(self, directory: Path) -> None:
        self.config = directory / "config.yaml"
        self.directory = directory
        self._process: asyncio.subprocess.Process

    def write(self, **settings: object) -> None:
        server = {"port": 0}
        logging = {"format": "json"}
        self.config.write_text(yaml.safe_dump({"server": server, "logging": logging, **settings}))

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", "serve", "--config", str(self.config)),
            *("--data-dir", str(self.directory / "data")),
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        await self.logged("parley started")

    async def logged(self, event: str) -> str:
        stream = self._process.stderr
        assert stream is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while line := (await stream.readline()).decode():
                if f'"event":"{event}"' in line.replace(": ", ":"):
                    return line
        raise AssertionError(f"it ended without {event!r}")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    async def stop(self) -> int:
        if self._process.returncode is None:
            self.signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._process.communicate()
        return self._process.returncode or 0


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    made = Served(tmp_path)
    made.write()
    await made.start()
    yield made
    await made.stop()


async def test_sighup_applies_what_can_change(served: Served) -> None:
    """A running gateway takes new limits and says what needs a restart."""
    served.write(limits={"running_turns": 3}, storage={"sync": "turn"})
    served.signal(signal.SIGHUP)
    line = await served.logged("settings reloaded")

    assert '"limits"' in line
    assert '"storage"' in line
    assert await served.stop() == 0


async def test_a_bad_file_changes_nothing(served: Served) -> None:
    """The last good settings stay, the reason is logged, the gateway goes on."""
    served.write(limits={"running_turns": "many"})
    served.signal(signal.SIGHUP)
    line = await served.logged("settings rejected")
    served.write(limits={"running_turns": 5})
    served.signal(signal.SIGHUP)
    await served.logged("settings reloaded")

    assert "limits.running_turns" in line
    assert await served.stop() == 0


def test_what_the_store_reads_once_needs_a_restart() -> None:
    """The cap stays as it was; how busy chats behave changes at once."""
    before = Settings()
    after = Settings.model_validate({"sessions": {"file_cap": 7, "when_busy": "collect"}})
    merged, live, restart = apply(before, after)

    assert (merged.sessions.file_cap, merged.sessions.when_busy) == (2_000, "collect")
    assert (live, restart) == (["sessions"], ["sessions.file_cap"])


def test_a_variable_may_hold_a_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lists in the environment are written as JSON."""
    monkeypatch.setenv("PARLEY_SERVER__ALLOWED_HOSTS", '["chat.example.org"]')
    monkeypatch.chdir(tmp_path)

    assert load().server.allowed_hosts == ["chat.example.org"]
