"""The connection under bad circumstances: what was written arrives all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import expect

from tests.browser.conftest import Device
from tests.browser.screen import PATIENCE_MS, Screen
from tests.http.daemon import Daemon

LONG = " ".join(f"word{number}" for number in range(60))


@asynccontextmanager
async def silence(port: int) -> AsyncIterator[asyncio.Event]:
    """Somebody who takes connections and never says a word; the event is set by the first one."""
    called = asyncio.Event()
    held: list[asyncio.StreamWriter] = []

    def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        called.set()

    server = await asyncio.start_server(hold, "127.0.0.1", port)
    try:
        yield called
    finally:
        server.close()
        for writer in held:
            writer.transport.abort()


async def restart(daemon: Daemon, port: int) -> None:
    daemon.configure({"server": {"port": port}})
    await daemon.start()


async def begin_another(screen: Screen) -> None:
    await screen.page.get_by_role("button", name="New chat").click()
    await expect(screen.questions).to_have_count(0)


async def test_a_handshake_that_nobody_answers_is_given_up(daemon: Daemon, device: Device) -> None:
    """A port that takes connections and says nothing does not hold the page for ever."""
    screen = Screen(await device.open(daemon.url))
    await screen.is_connected()
    port = int(daemon.url.rsplit(":", 1)[1])
    await daemon.stop()
    async with silence(port) as called, asyncio.timeout(60):
        await called.wait()
        await screen.say("into the silence")
        await expect(screen.page.get_by_text("Next try in")).to_be_visible(timeout=PATIENCE_MS)

    await restart(daemon, port)

    await screen.shows_answer("into the silence")


async def test_going_to_another_chat_in_mid_answer_loses_nothing(
    slow: Daemon, device: Device
) -> None:
    """The answer goes on without its reader and is whole when they come back."""
    screen = Screen(await device.open(slow.url))
    await screen.say(LONG)
    await expect(screen.answers.last).to_contain_text("word3 ", timeout=PATIENCE_MS)
    first = screen.page.url

    await begin_another(screen)
    await screen.say("something else")
    await screen.shows_answer("something else")
    await screen.page.goto(first)

    await screen.shows_answer(LONG)
    await screen.shows_questions(LONG)


async def test_texts_of_several_chats_wait_and_arrive(daemon: Daemon, device: Device) -> None:
    """Each chat gets its own, although only one of them stands open."""
    screen = Screen(await device.open(daemon.url))
    await screen.is_connected()
    port = int(daemon.url.rsplit(":", 1)[1])
    await daemon.stop()
    await screen.say("for the first chat")
    await expect(screen.delivery()).to_contain_text("Not sent yet")
    await begin_another(screen)
    await screen.say("for the second chat")
    await expect(screen.delivery()).to_contain_text("Not sent yet")

    await restart(daemon, port)

    await screen.shows_answer("for the second chat")
    await expect(screen.page.get_by_role("link", name="for the first chat")).to_be_visible(
        timeout=PATIENCE_MS
    )
    client = await daemon.client()
    listed = (await client.get("/api/v1/sessions")).json()["sessions"]
    assert {one["preview"] for one in listed} == {"for the first chat", "for the second chat"}


async def test_a_reload_without_a_gateway_keeps_what_was_not_sent(
    daemon: Daemon, device: Device
) -> None:
    """The tab that comes back sends what it had left, once."""
    screen = Screen(await device.open(daemon.url))
    await screen.say("hello")
    await screen.shows_answer("hello")
    port = int(daemon.url.rsplit(":", 1)[1])
    await daemon.stop()
    await screen.say("later")
    await expect(screen.delivery()).to_contain_text("Not sent yet")
    address = screen.page.url
    await screen.page.goto("about:blank")

    await restart(daemon, port)
    await screen.page.goto(address)

    await screen.shows_questions("hello", "later")
    await screen.shows_answer("later")
