"""A Slack for these tests, and gateways that are connected to it."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.http.daemon import Daemon
from tests.support.slack import APP_TOKEN, BOT_TOKEN, LocalSlack, Message
from tests.support.slack.limits import texts_of

Run = Callable[..., Awaitable[Daemon]]
IMPATIENT = """\
from channels.slack import api, channel, connection, delivery
from gateway import outbox

api.CALL_SECONDS = 3.0
channel.BACKOFF_SECONDS = connection.BACKOFF_SECONDS = (0.1, 1.0)
connection.STEP_SECONDS = 3.0
delivery.LOOK_AGAIN_SECONDS = 0.3
outbox.PAUSES_SECONDS = (0.2,)
"""
"""Part of every bot here: the same gateway, with less patience than a real network needs."""
ECHO = """
async def reply(turn):
    yield turn.text
"""
GATED = """
import asyncio, pathlib

async def reply(turn):
    yield "first "
    while turn.attempt == 1 and not pathlib.Path("go").exists():
        await asyncio.sleep(0.02)
    yield "second"
"""
"""Says one word, waits for a file, and says the other. After a crash it does not wait."""


@pytest.fixture
async def slack() -> AsyncIterator[LocalSlack]:
    slack = await LocalSlack().start()
    slack.socket_mode.retry_seconds = 0.5
    yield slack
    await slack.stop()


@pytest.fixture
async def run(slack: LocalSlack, tmp_path: Path) -> AsyncIterator[Run]:
    """Starts a gateway whose Slack is the local one, and waits until it is connected."""
    started: list[Daemon] = []

    async def begin(*, connected: bool = True, bot: str = "", **settings: Any) -> Daemon:
        directory = tmp_path / str(len(started))
        directory.mkdir()
        channel = {
            "enabled": True,
            "bot_token": BOT_TOKEN,
            "app_token": APP_TOKEN,
            "api_base_url": slack.api_base_url,
            "edit_seconds": 0.05,
            **settings.pop("slack", {}),
        }
        if bot:
            (directory / "bot.py").write_text(IMPATIENT + bot)
            settings["agents"] = {"default": {"kind": "python", "path": "bot:reply"}}
        daemon = Daemon(directory, {"channels": {"slack": channel}, **settings})
        started.append(daemon)
        await daemon.start()
        if connected:
            await daemon.logged("channel connected")
        return daemon

    yield begin
    for daemon in started:
        await daemon.close()


async def crash(daemon: Daemon) -> None:
    """kill -9."""
    daemon.signal(signal.SIGKILL)
    await daemon.ended()


async def restart(daemon: Daemon) -> None:
    await daemon.start()
    await daemon.logged("channel connected")


def words(message: Message) -> str:
    """What it says, without its buttons."""
    if not message.blocks:
        return message.text
    return "\n".join(texts_of([block for block in message.blocks if block["type"] != "actions"]))


def buttons(message: Message) -> list[str]:
    rows = [block["elements"] for block in message.blocks if block["type"] == "actions"]
    return [button["action_id"] for row in rows for button in row]


def said(slack: LocalSlack, channel: str, thread: str | None = None) -> list[str]:
    return [words(message) for message in slack.answers(channel, thread)]


async def heard(
    slack: LocalSlack, expected: list[str], channel: str, thread: str | None = None
) -> None:
    """Waits until the bot has said exactly this, and none of it still grows."""

    def finished() -> bool:
        growing = any("parley_stop" in buttons(m) for m in slack.answers(channel, thread))
        return said(slack, channel, thread) == expected and not growing

    await slack.until(finished)
