"""A real Chromium and a real gateway."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.http.conftest import daemon, prepare, start
from tests.http.daemon import ROOT, Daemon

__all__ = ["daemon", "prepare", "start"]

PACKED = ROOT / ".browser"
INSTALLED = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE_MS = 30_000

Open = Callable[..., Awaitable[Page]]


def find_browser() -> str:
    """$PARLEY_BROWSER, else the one `make test` unpacks, else an installed one."""
    packed = PACKED / "chromium"
    found = os.environ.get("PARLEY_BROWSER") or (str(packed) if packed.is_file() else None)
    found = found or next(filter(None, map(shutil.which, INSTALLED)), None)
    assert found is not None, "there is no browser: run `make test`, or set PARLEY_BROWSER"
    return found


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    program = find_browser()
    environment: dict[str, str | float | bool] = dict(os.environ)
    if program.startswith(str(PACKED)):
        environment["LD_LIBRARY_PATH"] = str(PACKED / "lib")
    environment["XDG_CONFIG_HOME"] = environment["XDG_CACHE_HOME"] = str(tmp_path / "browser")
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=program, args=FLAGS, env=environment, timeout=PATIENCE_MS
        )
        yield launched
        await launched.close()


class Device:
    """A browser with its own storage. What goes wrong in its pages fails the test."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.faults: list[str] = []

    async def open(self, url: str) -> Page:
        page = await self.context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._on_console)
        await page.goto(url)
        return page

    def _on_console(self, message: Any) -> None:
        # A refused connection is expected while a gateway is down; a breach of the policy never is.
        if message.type == "error" and "Content Security Policy" in message.text:
            self.faults.append(message.text)


@pytest.fixture
async def new_device(browser: Browser) -> AsyncIterator[Callable[..., Awaitable[Device]]]:
    made: list[Device] = []

    async def make(**options: Any) -> Device:
        options = {"viewport": {"width": 1280, "height": 860}, **options}
        made.append(Device(await browser.new_context(**options)))
        return made[-1]

    yield make
    for device in made:
        await device.context.close()
        assert device.faults == []


@pytest.fixture
async def device(new_device: Callable[..., Awaitable[Device]]) -> Device:
    return await new_device()


@pytest.fixture
async def slow(start: Callable[..., Awaitable[Daemon]]) -> Daemon:
    """A gateway whose answers take a while."""
    return await start(agents={"default": {"kind": "echo", "delay_ms": 60}})
