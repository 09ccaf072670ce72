"""The operations page of administrators."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Device
from tests.browser.screen import PATIENCE_MS, Screen
from tests.browser.test_looks import LOOKS
from tests.browser.test_sidebar import serious_faults
from tests.http.daemon import Daemon


async def test_the_numbers_are_live(slow: Daemon, device: Device) -> None:
    """A running turn is seen while it runs; afterwards every message is accounted for."""
    chat = await slow.chat()
    page = await device.open(slow.url)
    await page.get_by_role("link", name="Operations").click()
    await expect(page.get_by_text("0 received = 0 ended + 0 pending")).to_be_visible(
        timeout=PATIENCE_MS
    )

    await chat.send("send", chat_id="one", id="1", text="word " * 200)
    await expect(page.get_by_text("1 received = 0 ended + 1 pending")).to_be_visible(
        timeout=PATIENCE_MS
    )
    running = page.locator(".card").filter(has_text="Running turns").locator(".figure")
    await expect(running).to_have_text("1")
    await chat.send("stop", chat_id="one")
    await chat.frame("turn_end")

    await expect(page.get_by_text("1 received = 1 ended + 0 pending")).to_be_visible(
        timeout=PATIENCE_MS
    )
    await expect(running).to_have_text("0")


async def test_a_gateway_that_is_gone_is_said_to_be_gone(daemon: Daemon, device: Device) -> None:
    """The last numbers stay, marked as old."""
    page = await device.open(f"{daemon.url}/#/operations")
    await expect(page.get_by_text("Live, every 2 seconds")).to_be_visible(timeout=PATIENCE_MS)

    await daemon.stop()

    await expect(page.get_by_text("Not up to date")).to_be_visible(timeout=PATIENCE_MS)
    await expect(page.get_by_text("Balanced")).to_be_visible()


async def test_people_without_rights_see_no_numbers(
    start: Callable[..., Awaitable[Daemon]], device: Device
) -> None:
    """No link leads there, and the address says who may see them."""
    daemon = await start(auth={"mode": "token"})
    page = await device.open(f"{daemon.url}/#/operations")
    await page.get_by_label("Token").fill(daemon.token("ada"))
    await page.get_by_role("button", name="Log in").click()

    await expect(page.get_by_text("This page is for administrators.")).to_be_visible()
    await expect(page.get_by_role("link", name="Operations")).to_have_count(0)


@pytest.mark.parametrize("look", LOOKS)
async def test_the_page_is_accessible_and_fits(
    daemon: Daemon,
    new_device: Callable[..., Awaitable[Device]],
    tmp_path: Path,
    look: str,
) -> None:
    """A scan finds no serious fault, and nothing sticks out sideways."""
    chat = await daemon.chat()
    for number in range(12):
        await chat.say("one", f"message {number}", id=str(number))
    device = await new_device(**LOOKS[look])
    page = await device.open(f"{daemon.url}/#/operations")
    await Screen(page).shows("12 received = 12 ended + 0 pending")
    drawn = page.get_by_role("img", name="Running turns, the last minutes: between 0 and 0")
    await expect(drawn).to_be_visible()
    await page.screenshot(path=tmp_path / f"ops-{look}.png", full_page=True)

    faults = await serious_faults(page)
    wide = await page.evaluate("() => document.documentElement.scrollWidth")
    assert faults == []
    assert wide <= LOOKS[look].get("viewport", {"width": 1280})["width"]
