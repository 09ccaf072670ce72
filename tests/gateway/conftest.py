"""The same gateways as the HTTP tests use, and one whose agent is a function."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.http.conftest import prepare, start
from tests.http.daemon import Daemon

__all__ = ["bot", "prepare", "start"]


@pytest.fixture
def bot(
    prepare: Callable[..., Daemon], request: pytest.FixtureRequest
) -> Callable[..., Awaitable[Daemon]]:
    """Starts a gateway whose agent is a function of the test module's BOT."""

    async def begin(name: str, **settings: Any) -> Daemon:
        agents = {"default": {"kind": "python", "path": f"bot:{name}"}}
        daemon = prepare(agents=agents, **settings)
        (daemon.directory / "bot.py").write_text(request.module.BOT)
        return await daemon.start()

    return begin
