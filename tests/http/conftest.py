"""Gateways for these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.http.daemon import Daemon

Start = Callable[..., Awaitable[Daemon]]


@pytest.fixture
async def prepare(tmp_path: Path) -> AsyncIterator[Callable[..., Daemon]]:
    """Makes a gateway that is not started yet."""
    made: list[Daemon] = []

    def make(**settings: Any) -> Daemon:
        directory = tmp_path / str(len(made))
        directory.mkdir()
        made.append(Daemon(directory, settings))
        return made[-1]

    yield make
    for daemon in made:
        if hasattr(daemon, "_process"):
            await daemon.close()


@pytest.fixture
async def start(prepare: Callable[..., Daemon]) -> Start:
    """Starts a gateway with the given sections of settings."""

    async def begin(**settings: Any) -> Daemon:
        return await prepare(**settings).start()

    return begin


@pytest.fixture
async def daemon(start: Start) -> Daemon:
    """One with the defaults."""
    return await start()
