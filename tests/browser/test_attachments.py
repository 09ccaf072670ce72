"""Files in messages: added by button, paste and drop, sent, shown, saved."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.browser.conftest import Device
from tests.browser.screen import PATIENCE_MS, Screen
from tests.http.daemon import Daemon


def png(width: int = 40, height: int = 30) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\x0d\x5f\x57" * width) * height
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


PICTURE: dict[str, Any] = {"name": "sea.png", "mimeType": "image/png", "buffer": png()}
NOTES: dict[str, Any] = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"some notes"}

GIVE = """async ([kind, text]) => {
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  const data = new DataTransfer();
  data.items.add(new File([bytes], "sea.png", { type: "image/png" }));
  const field = document.querySelector("textarea");
  const init = { bubbles: true, cancelable: true };
  if (kind === "paste") {
    field.dispatchEvent(new ClipboardEvent("paste", { ...init, clipboardData: data }));
  } else {
    field.dispatchEvent(new DragEvent("dragover", { ...init, dataTransfer: data }));
    field.dispatchEvent(new DragEvent("drop", { ...init, dataTransfer: data }));
  }
}"""


class Desk(Screen):
    def __init__(self, page: Page) -> None:
        super().__init__(page)
        self.chips = page.locator(".chip")
        self.pictures = page.locator("article .picture img")

    async def attach(self, *files: dict[str, Any]) -> None:
        await self.page.locator("input[type=file]").set_input_files(list(files))  # type: ignore[arg-type]

    async def is_uploaded(self, count: int = 1) -> None:
        await expect(self.page.locator(".chip[data-state=done]")).to_have_count(
            count, timeout=PATIENCE_MS
        )

    async def is_drawn(self, picture: Locator) -> None:
        await expect(picture).to_have_js_property("naturalWidth", 40, timeout=PATIENCE_MS)


@pytest.fixture
async def desk(daemon: Daemon, device: Device) -> Desk:
    return Desk(await device.open(daemon.url))


async def test_a_picture_and_a_file_go_with_a_message(desk: Desk) -> None:
    """A picture is shown, another file can be saved; both are there after a reload."""
    await desk.attach(PICTURE, NOTES)
    await desk.is_uploaded(2)
    await desk.say("look at this")
    await desk.shows_answer("look at this")
    await desk.page.reload()

    await desk.is_drawn(desk.pictures.first)
    async with desk.page.expect_download() as saved:
        await desk.page.get_by_label("Save notes.txt").click()
    assert (await (await saved.value).path()).read_bytes() == b"some notes"
    await expect(desk.chips).to_have_count(0)


@pytest.mark.parametrize("way", ["paste", "drop"])
async def test_a_picture_is_pasted_or_dropped(desk: Desk, way: str) -> None:
    """It needs no text beside it."""
    await desk.page.evaluate(GIVE, [way, base64.b64encode(png()).decode()])
    await desk.is_uploaded()
    await desk.composer.press("Enter")

    await desk.is_drawn(desk.pictures.first)
    await expect(desk.delivery()).to_contain_text("Answered")


async def test_a_file_can_be_taken_out_again(desk: Desk) -> None:
    """What was removed is not sent."""
    await desk.attach(PICTURE, NOTES)
    await desk.is_uploaded(2)
    await desk.page.get_by_label("Remove sea.png").click()
    await desk.say("only the notes")
    await desk.shows_answer("only the notes")

    await expect(desk.page.get_by_label("Save notes.txt")).to_be_visible()
    await expect(desk.pictures).to_have_count(0)


async def test_limits_are_told_before_anything_is_sent(
    start: Callable[..., Awaitable[Daemon]], device: Device
) -> None:
    """What is too large or too many is left out, with words that say what to do."""
    daemon = await start(limits={"upload": 1000, "media_per_message": 1})
    desk = Desk(await device.open(daemon.url))
    await desk.is_connected()

    await desk.attach({**NOTES, "name": "big.txt", "buffer": b"x" * 2000}, NOTES, PICTURE)

    await desk.is_uploaded(1)
    await expect(desk.page.get_by_role("alert")).to_contain_text("big.txt has 2 KB")
    await expect(desk.page.get_by_role("alert")).to_contain_text("A message takes 1 file")


async def test_a_refused_upload_is_tried_again(desk: Desk) -> None:
    """The message waits; the reason stands beside the file."""

    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, json={"detail": "The disk is full."})

    await desk.page.route("**/api/v1/media", refuse)
    await desk.attach(PICTURE)
    await expect(desk.chips).to_contain_text("Not uploaded: The disk is full.")
    await desk.say("wait for it")
    await expect(desk.composer).to_have_value("wait for it")

    await desk.page.unroute("**/api/v1/media")
    await desk.chips.get_by_role("button", name="Try again").click()
    await desk.is_uploaded()
    await desk.composer.press("Enter")

    await desk.is_drawn(desk.pictures.first)


async def test_files_survive_a_gateway_that_is_away(daemon: Daemon, desk: Desk) -> None:
    """A message with a file waits like any other; a file added meanwhile is uploaded later."""
    await desk.attach(PICTURE)
    await desk.is_uploaded()
    port = int(daemon.url.rsplit(":", 1)[1])
    await daemon.stop()
    await desk.say("with a picture")
    await expect(desk.delivery()).to_contain_text("Not sent yet")
    await desk.attach(NOTES)
    await expect(desk.chips).to_contain_text("Waiting for the connection")

    daemon.configure({"server": {"port": port}})
    await daemon.start()

    await desk.shows_answer("with a picture")
    await desk.is_drawn(desk.pictures.first)
    await desk.is_uploaded()


async def test_uploaded_files_stay_with_the_draft(desk: Desk) -> None:
    """A reload before sending loses neither the text nor the files."""
    await desk.attach(PICTURE)
    await desk.is_uploaded()
    await desk.say("")
    await desk.is_drawn(desk.pictures.first)
    await desk.attach(NOTES)
    await desk.is_uploaded()
    await desk.page.reload()

    await expect(desk.chips).to_contain_text("notes.txt")


async def test_a_link_that_has_run_out_is_replaced(desk: Desk) -> None:
    """The picture is shown all the same: the message has a fresh link."""
    await desk.attach(PICTURE)
    await desk.is_uploaded()
    await desk.say("keep it")
    await desk.is_drawn(desk.pictures.first)
    refused: list[str] = []

    async def refuse_once(route: Route) -> None:
        if refused:
            await route.continue_()
        else:
            refused.append(route.request.url)
            await route.fulfill(status=403, json={"detail": "not any more"})

    await desk.page.route("**/api/v1/media/*", refuse_once)
    await desk.page.reload()

    await desk.is_drawn(desk.pictures.first)
    assert len(refused) == 1


async def test_an_edited_message_keeps_its_files(desk: Desk) -> None:
    """And so does one that is answered again."""
    await desk.attach(PICTURE)
    await desk.is_uploaded()
    await desk.say("wrnog")
    await desk.shows_answer("wrnog")
    await desk.page.locator("article.mine").hover()
    await desk.page.get_by_role("button", name="Edit and send again").click()
    await expect(desk.chips).to_have_count(1)
    await desk.say("right")
    await desk.shows_answer("right")
    await desk.is_drawn(desk.pictures.first)

    await desk.page.get_by_role("button", name="Answer again").click()

    await expect(desk.delivery()).not_to_contain_text("edited")
    await desk.shows_questions("right")
    await desk.is_drawn(desk.pictures.first)


AGENT = """
from gateway.agents.agent import Produced

async def reply(turn):
    yield "Here it is."
    yield Produced("table.csv", "text/csv", b"a,b")
"""


async def test_a_file_of_an_answer_can_be_saved(
    prepare: Callable[..., Daemon], device: Device, tmp_path: Path
) -> None:
    """What an agent makes stands under its words."""
    daemon = prepare(agents={"default": {"kind": "python", "path": "scripted:reply"}})
    (daemon.directory / "scripted.py").write_text(AGENT)
    await daemon.start()
    desk = Desk(await device.open(daemon.url))
    await desk.say("a table, please")
    await desk.shows_answer("Here it is.")

    async with desk.page.expect_download() as saved:
        await desk.page.locator("article.answer").get_by_label("Save table.csv").click()

    assert (await (await saved.value).path()).read_bytes() == b"a,b"
