"""Finding chats, putting them in order, and getting rid of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.conftest import Device
from tests.browser.screen import PATIENCE_MS, Screen
from tests.browser.test_looks import AXE, LOOKS, SERIOUS
from tests.http.daemon import Daemon


class List:
    """The sidebar, as a person uses it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.search = page.get_by_role("searchbox", name="Search all chats")
        self.chats = page.locator(".chat-link")
        self.found = page.locator(".found a")

    def row(self, text: str) -> Locator:
        return self.page.locator(".chat-row").filter(has_text=text)

    async def act(self, text: str, action: str) -> None:
        await self.row(text).hover()
        await self.row(text).get_by_role("button").click()
        await self.page.get_by_role("menuitem", name=action).click()

    async def shows(self, *texts: str) -> None:
        await expect(self.chats).to_contain_text(list(texts), timeout=PATIENCE_MS)
        await expect(self.chats).to_have_count(len(texts))

    async def choose(self, label: str, option: str) -> None:
        await self.page.get_by_label(label, exact=True).select_option(option)


def slack_session(daemon: Daemon, chat_id: str, *texts: str) -> None:
    """A log as the Slack channel leaves it: questions and answers in turn."""
    directory = daemon.data / "sessions" / "slack"
    directory.mkdir(parents=True, exist_ok=True)
    time = "2026-01-02T03:04:05.000000Z"
    head: dict[str, Any] = {"_type": "metadata", "key": f"slack:{chat_id}", "metadata": {}}
    lines = [{**head, "created_at": time, "updated_at": time}]
    for seq, text in enumerate(texts, 1):
        role = "user" if seq % 2 else "assistant"
        lines.append({"role": role, "content": text, "seq": seq, "timestamp": time})
    (directory / f"{chat_id}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))


async def serious_faults(page: Page) -> list[str]:
    await page.evaluate(f"() => {{ {AXE.read_text()}; window.axe = axe; }}")
    found = await page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [one["id"] for one in found["violations"] if one["impact"] in SERIOUS]


async def test_search_finds_and_opens(daemon: Daemon, device: Device) -> None:
    """A word of an old message is found, shown in its place, and its message comes into sight."""
    chat = await daemon.chat()
    await chat.say("garden", "Where do the purple lupins grow?", id="1")
    for number in range(2, 30):
        await chat.say("garden", f"note {number}", id=str(number))
    await chat.say("other", "nothing of that kind", id="other")
    sidebar = List(await device.open(daemon.url))
    await sidebar.shows("nothing of that kind", "purple lupins")

    await sidebar.page.keyboard.press("Control+k")
    await sidebar.page.keyboard.type("LUPINS purple")
    await expect(sidebar.search).to_have_value("LUPINS purple")
    mark = sidebar.page.locator(".found mark").first
    await expect(mark).to_have_text("purple", timeout=PATIENCE_MS)
    await sidebar.page.locator(".snippet").last.click()

    asked = sidebar.page.locator("article.mine .bubble").filter(has_text="lupins")
    await expect(asked).to_be_in_viewport(timeout=PATIENCE_MS)


async def test_a_search_without_result_says_so(daemon: Daemon, device: Device) -> None:
    """Escape brings the list back."""
    await (await daemon.chat()).say("one", "hello")
    sidebar = List(await device.open(daemon.url))
    await sidebar.shows("hello")

    await sidebar.search.fill("zebra")
    await expect(sidebar.page.get_by_text("Nothing was found.")).to_be_visible(timeout=PATIENCE_MS)
    await sidebar.search.press("Escape")

    await sidebar.shows("hello")


async def test_a_chat_is_renamed_and_tagged(daemon: Daemon, device: Device) -> None:
    """Both are in the log, and the list can be narrowed to the tag."""
    chat = await daemon.chat()
    await chat.say("one", "first words")
    await chat.say("two", "others")
    sidebar = List(await device.open(daemon.url))

    await sidebar.act("first words", "Rename or tag")
    await sidebar.page.get_by_label("Title").fill("Holiday plans")
    await sidebar.page.get_by_label("Tags").fill("travel, family")
    await sidebar.page.get_by_role("button", name="Save").click()
    await sidebar.shows("Holiday plans", "others")
    await sidebar.act("Holiday plans", "Tag: travel")

    await sidebar.shows("Holiday plans")
    found = await (await daemon.client()).get("/api/v1/sessions/websocket:one")
    assert (found.json()["title"], found.json()["tags"]) == ("Holiday plans", ["travel", "family"])


async def test_an_archived_chat_is_put_away_and_brought_back(
    daemon: Daemon, device: Device
) -> None:
    """It leaves the list, takes no messages, and can be brought back from where it is read."""
    await (await daemon.chat()).say("one", "put me away")
    sidebar = List(await device.open(f"{daemon.url}/#/chat/websocket%3Aone"))
    screen = Screen(sidebar.page)
    await screen.shows_answer("put me away")

    await sidebar.act("put me away", "Archive")
    await sidebar.shows()
    await expect(screen.composer).to_have_count(0)
    await sidebar.choose("Show", "archived")
    await sidebar.shows("put me away")
    await sidebar.page.get_by_role("main").get_by_role("button", name="Bring back").click()

    await sidebar.shows()
    await sidebar.choose("Show", "active")
    await sidebar.shows("put me away")
    await expect(screen.composer).to_be_visible()


async def test_a_deletion_can_be_taken_back(daemon: Daemon, device: Device) -> None:
    """The chat is out of sight at once; Undo brings it back untouched."""
    await (await daemon.chat()).say("one", "keep me")
    sidebar = List(await device.open(daemon.url))
    await sidebar.shows("keep me")

    await sidebar.act("keep me", "Delete")
    await sidebar.shows()
    await sidebar.page.get_by_role("button", name="Undo").click()
    await sidebar.shows("keep me")

    stored = await sidebar.page.evaluate("() => localStorage.getItem('parley.deletions')")
    found = await (await daemon.client()).get("/api/v1/sessions/websocket:one")
    assert (stored, found.status_code) == (None, 200)


async def test_a_deletion_survives_a_reload(daemon: Daemon, device: Device) -> None:
    """What was not taken back is deleted, even if the page was loaded anew meanwhile."""
    await (await daemon.chat()).say("one", "away with me")
    sidebar = List(await device.open(daemon.url))
    await sidebar.shows("away with me")

    await sidebar.act("away with me", "Delete")
    await expect(sidebar.page.get_by_text("is being deleted")).to_be_visible()
    await sidebar.page.reload()

    await expect(sidebar.page.get_by_text("is being deleted")).to_be_visible()
    await expect(sidebar.page.get_by_text("is being deleted")).to_have_count(0, timeout=PATIENCE_MS)
    found = await (await daemon.client()).get("/api/v1/sessions/websocket:one")
    assert found.status_code == 404


async def test_keys_go_from_chat_to_chat(daemon: Daemon, device: Device) -> None:
    """Alt with an arrow goes down and up the list; Ctrl Shift O begins a new chat."""
    chat = await daemon.chat()
    for name in ("one", "two", "three"):
        await chat.say(name, f"chat {name}", id=name)
    sidebar = List(await device.open(f"{daemon.url}/#/chat/websocket%3Athree"))
    here = sidebar.page.locator(".chat-link[aria-current=page]")
    await expect(here).to_contain_text("chat three", timeout=PATIENCE_MS)

    await sidebar.page.keyboard.press("Alt+ArrowDown")
    await expect(here).to_contain_text("chat two", timeout=PATIENCE_MS)
    await sidebar.page.keyboard.press("Alt+ArrowUp")
    await expect(here).to_contain_text("chat three", timeout=PATIENCE_MS)
    await sidebar.page.keyboard.press("Control+Shift+O")

    await expect(here).to_have_count(0)


async def test_an_administrator_reads_a_slack_chat(
    prepare: Callable[..., Daemon], device: Device
) -> None:
    """It carries its channel's name, is read, and the page says where to answer."""
    daemon = prepare()
    slack_session(daemon, "C0SUPPORT", "The invoice shows the old address", "I have changed it")
    await daemon.start()
    sidebar = List(await device.open(daemon.url))

    await sidebar.row("The invoice").click()

    screen = Screen(sidebar.page)
    await screen.shows_answer("I have changed it")
    await expect(sidebar.row("The invoice")).to_contain_text("Slack")
    await screen.shows("This chat lives in Slack. Answer there")
    await expect(screen.composer).to_have_count(0)


async def test_an_ended_conversation_opens_in_its_chat(daemon: Daemon, device: Device) -> None:
    """It is listed among the archived ones and is read where it stands."""
    chat = await daemon.chat()
    for number, text in enumerate(("before the end", "/new", "after it")):
        await chat.say("one", text, id=str(number))
    sidebar = List(await device.open(daemon.url))
    await sidebar.choose("Show", "archived")
    await sidebar.shows("before the end")

    await sidebar.chats.first.click()

    await Screen(sidebar.page).shows_questions("before the end", "/new", "after it")


async def test_a_long_list_is_read_page_by_page(
    start: Callable[..., Awaitable[Daemon]], device: Device
) -> None:
    """Few rows are drawn, and the end of the list comes when one scrolls there."""
    daemon = await start(limits={"messages_per_minute": 0})
    chat = await daemon.chat()
    for number in range(230):
        await chat.say(f"c{number}", f"thread {number:03}")
        await chat.send("detach", chat_id=f"c{number}")
    sidebar = List(await device.open(daemon.url))
    await expect(sidebar.chats.first).to_contain_text("thread 229", timeout=PATIENCE_MS)

    oldest = sidebar.row("thread 000")
    scroller = sidebar.page.locator(".chats")
    async with asyncio.timeout(60):
        while not await oldest.is_visible():
            await scroller.evaluate("list => { list.scrollTop = list.scrollHeight }")

    assert await sidebar.chats.count() < 60


@pytest.mark.parametrize("look", LOOKS)
async def test_the_sidebar_is_accessible(
    daemon: Daemon,
    new_device: Callable[..., Awaitable[Device]],
    tmp_path: Path,
    look: str,
) -> None:
    """A scan of the list with an open menu, and of a search, finds no serious fault."""
    await (await daemon.chat()).say("one", "Where do the lupins grow?")
    device = await new_device(**LOOKS[look])
    sidebar = List(await device.open(daemon.url))
    if look == "phone":
        await sidebar.page.get_by_role("button", name="Show chats").click()
    await sidebar.row("lupins").hover()
    await sidebar.row("lupins").get_by_role("button").click()
    await expect(sidebar.page.get_by_role("menu")).to_be_visible()
    await sidebar.page.screenshot(path=tmp_path / f"menu-{look}.png")

    faults = await serious_faults(sidebar.page)
    await sidebar.page.keyboard.press("Escape")
    await sidebar.search.fill("lupins")
    await expect(sidebar.page.locator(".found mark").first).to_be_visible(timeout=PATIENCE_MS)
    await sidebar.page.screenshot(path=tmp_path / f"search-{look}.png")

    assert faults + await serious_faults(sidebar.page) == []
