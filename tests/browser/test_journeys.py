"""What people do with the page, from the first visit to a gateway that dies in mid-answer."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable

from playwright.async_api import expect

from tests.browser.conftest import Device
from tests.browser.screen import PATIENCE_MS, Screen
from tests.http.daemon import Daemon

LONG = " ".join(f"word{number}" for number in range(60))


async def test_a_new_user_writes_and_finds_it_again(daemon: Daemon, device: Device) -> None:
    """Open, write, read the answer, reload: everything is still there, in the list too."""
    screen = Screen(await device.open(daemon.url))

    await screen.say("Is anybody **here**?")
    await screen.shows_answer("Is anybody here?")
    await expect(screen.delivery()).to_contain_text("Answered")
    await screen.page.reload()

    await screen.shows_questions("Is anybody **here**?")
    await screen.shows_answer("Is anybody here?")
    await expect(screen.page.locator(".chat-link")).to_have_count(1)


async def test_an_answer_goes_on_after_kill_9(slow: Daemon, device: Device) -> None:
    """The gateway is killed in mid-answer and started again: one question, one whole answer."""
    screen = Screen(await device.open(slow.url))
    await screen.say(LONG)
    await expect(screen.answers.last).to_contain_text("word3 ", timeout=PATIENCE_MS)

    slow.signal(signal.SIGKILL)
    await slow.ended()
    port = int(slow.url.rsplit(":", 1)[1])
    slow.configure({"server": {"port": port}})
    await slow.start()

    await screen.shows_answer(LONG)
    await screen.shows_questions(LONG)
    await expect(screen.page.locator("article.answer")).to_have_count(1)


async def test_a_reload_in_mid_answer_loses_nothing(slow: Daemon, device: Device) -> None:
    """The running answer is taken up where it is."""
    screen = Screen(await device.open(slow.url))
    await screen.say(LONG)
    await expect(screen.answers.last).to_contain_text("word3 ", timeout=PATIENCE_MS)

    await screen.page.reload()

    await screen.shows_answer(LONG)
    await screen.shows_questions(LONG)


async def test_two_tabs_stay_in_step(daemon: Daemon, device: Device) -> None:
    """What is written in one tab is in the other, with its answer."""
    one = Screen(await device.open(daemon.url))
    await one.say("first")
    await one.shows_answer("first")
    two = Screen(await device.open(one.page.url))
    await two.shows_answer("first")

    await two.say("second")

    for screen in (one, two):
        await screen.shows_questions("first", "second")
        await screen.shows_answer("second")


async def test_what_is_written_offline_is_sent_once(daemon: Daemon, device: Device) -> None:
    """Texts wait in order while there is no gateway; each reaches the log once."""
    screen = Screen(await device.open(daemon.url))
    await screen.say("before")
    await screen.shows_answer("before")
    port = int(daemon.url.rsplit(":", 1)[1])
    await daemon.stop()

    await screen.say("one")
    await screen.say("two")
    await expect(screen.delivery()).to_contain_text("Not sent yet")
    daemon.configure({"server": {"port": port}})
    await daemon.start()

    await screen.shows_answer("two")
    await screen.shows_questions("before", "one", "two")
    sessions = (await (await daemon.client()).get("/api/v1/sessions")).json()["sessions"]
    key = sessions[0]["key"]
    rows = (await (await daemon.client()).get(f"/api/v1/sessions/{key}/messages")).json()
    said = [row["content"] for row in rows["messages"] if row["role"] == "user"]
    assert said == ["before", "one", "two"]


async def test_an_unsent_text_survives_its_tab(daemon: Daemon, device: Device) -> None:
    """Another tab sends what a closed one could not."""
    left = Screen(await device.open(daemon.url))
    heir = Screen(await device.open(daemon.url))
    await left.is_connected()
    await heir.is_connected()
    port = int(daemon.url.rsplit(":", 1)[1])
    await daemon.stop()
    await left.say("do not lose me")
    await expect(left.delivery()).to_contain_text("Not sent yet")

    await left.page.close()
    daemon.configure({"server": {"port": port}})
    await daemon.start()

    await expect(heir.page.locator(".chat-link")).to_contain_text(
        ["do not lose me"], timeout=PATIENCE_MS
    )


async def test_a_draft_survives_a_reload(daemon: Daemon, device: Device) -> None:
    """What is half written belongs to its chat."""
    screen = Screen(await device.open(daemon.url))
    await screen.say("hello")
    await screen.shows_answer("hello")
    await screen.composer.fill("half a thought")

    await screen.page.reload()

    await expect(screen.composer).to_have_value("half a thought")


async def test_stop_and_answer_again(slow: Daemon, device: Device) -> None:
    """Stop keeps what was written; the question can be answered again in its place."""
    screen = Screen(await device.open(slow.url))
    await screen.say(LONG)
    await expect(screen.answers.last).to_contain_text("word3 ", timeout=PATIENCE_MS)
    await screen.page.get_by_role("button", name="Stop").click()
    await screen.shows("You stopped this answer.")

    await screen.page.get_by_role("button", name="Answer again").click()

    await screen.shows_answer(LONG)
    await screen.shows_questions(LONG)
    await expect(screen.page.locator("article.answer")).to_have_count(1)


async def test_edit_and_send_again(daemon: Daemon, device: Device) -> None:
    """The edited message takes the place of the first one and of its answer."""
    screen = Screen(await device.open(daemon.url))
    await screen.say("wrnog")
    await screen.shows_answer("wrnog")

    await screen.page.locator("article.mine").hover()
    await screen.page.get_by_role("button", name="Edit and send again").click()
    await screen.say("right")

    await screen.shows_questions("right")
    await screen.shows_answer("right")
    await expect(screen.delivery()).to_contain_text("edited")


async def test_an_edit_can_be_given_up(daemon: Daemon, device: Device) -> None:
    """Escape brings back what was being written; the message stays as it was."""
    screen = Screen(await device.open(daemon.url))
    await screen.say("as it was")
    await screen.shows_answer("as it was")
    await screen.composer.fill("half a thought")

    await screen.page.locator("article.mine").hover()
    await screen.page.get_by_role("button", name="Edit and send again").click()
    await expect(screen.composer).to_have_value("as it was")
    await screen.composer.press("Escape")

    await expect(screen.composer).to_have_value("half a thought")
    await screen.shows_questions("as it was")


async def test_an_answer_is_copied_as_it_was_written(
    daemon: Daemon, new_device: Callable[..., Awaitable[Device]]
) -> None:
    """The clipboard gets the Markdown, not its picture."""
    device = await new_device(permissions=["clipboard-read", "clipboard-write"])
    screen = Screen(await device.open(daemon.url))
    await screen.say("some **bold** words")
    await screen.shows_answer("some bold words")

    await screen.page.locator("article.answer").get_by_role("button", name="Copy").click()

    await expect(screen.page.locator("article.answer").get_by_label("Copied")).to_be_visible()
    copied = await screen.page.evaluate("() => navigator.clipboard.readText()")
    assert copied == "some **bold** words"


async def test_a_goal_is_shown_while_it_is_active(
    prepare: Callable[..., Daemon], device: Device
) -> None:
    """One line under the title; the whole objective when asked for."""
    daemon = prepare()
    path = daemon.data / "sessions/websocket/moving.jsonl"
    path.parent.mkdir(parents=True)
    goal = {"status": "active", "objective": "Move all nine hosts", "ui_summary": "Moving hosts"}
    time = "2026-01-01T00:00:00Z"
    head = {"_type": "metadata", "version": 1, "key": "websocket:moving", "created_at": time}
    head |= {"updated_at": time, "metadata": {"goal_state": goal}, "last_consolidated": 0}
    row = {"role": "user", "content": "Begin", "timestamp": time, "seq": 1}
    path.write_text(json.dumps(head) + "\n" + json.dumps(row) + "\n")
    await daemon.start()
    page = await device.open(f"{daemon.url}/#/chat/websocket%3Amoving")

    strip = page.get_by_role("region", name="Goal")
    await expect(strip).to_contain_text("Moving hosts")
    await strip.locator("summary").click()

    await expect(strip.get_by_text("Move all nine hosts")).to_be_visible()


async def test_a_token_is_asked_for_where_one_is_needed(
    start: Callable[..., Awaitable[Daemon]], device: Device
) -> None:
    """A wrong one is refused in words; the right one opens the page and survives a reload."""
    daemon = await start(auth={"mode": "token"})
    token = daemon.token("ada")
    page = await device.open(daemon.url)
    await page.get_by_label("Token").fill("wrong")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_contain_text("no valid token")

    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Log in").click()
    screen = Screen(page)
    await screen.is_connected()
    await page.reload()

    await screen.say("it is me")
    await screen.shows_answer("it is me")


async def test_older_messages_come_when_one_scrolls_up(daemon: Daemon, device: Device) -> None:
    """Only the newest are sent at first; nothing is out of reach."""
    daemon.configure({"limits": {"messages_per_minute": 0}})
    await daemon.stop()
    await daemon.start()
    chat = await daemon.chat()
    for number in range(1, 151):
        await chat.say("long", f"note {number}", id=str(number))
    screen = Screen(await device.open(f"{daemon.url}/#/chat/websocket%3Along"))
    await screen.shows_answer("note 150")

    oldest = screen.page.get_by_text("note 1", exact=True).first
    async with asyncio.timeout(60):
        while not await oldest.is_visible():
            await screen.page.get_by_label("Messages").press("Home")

    await expect(oldest).to_be_visible()
