"""`make bench`: the web page in a real Chromium against a real gateway.

Gateway and browser have processes of their own. Times are taken inside the page. Exits 1 if a
limit is missed.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

from benchmarks import servers
from benchmarks.figures import Figure, Goal, compare
from benchmarks.servers import ROOT, Server
from benchmarks.suite import Measure, Suite, main, say
from benchmarks.writing import percentile
from tests.browser.conftest import FLAGS, PACKED, find_browser

PAGE = ROOT / "gateway" / "page"
PATIENCE_MS = 120_000
BOT = """
import asyncio, time

WORDS = "Some **words** of a long answer, with `code` in it"

async def reply(turn):
    count, per_second = map(int, turn.text.split())
    begun = time.monotonic()
    for number in range(count):
        yield WORDS + (".\\n\\n" if number % 8 == 7 else ", ")
        await asyncio.sleep(max(0.0, begun + (number + 1) / per_second - time.monotonic()))
"""

# Until the field can be written in and has been painted.
USABLE = """() => new Promise((resolve) => {
  const look = () => {
    if (document.activeElement?.tagName !== "TEXTAREA") return requestAnimationFrame(look);
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now())));
  };
  look();
})"""

# From the key press to the end of the frame that shows it.
KEYS = """() => {
  window.keys = [];
  addEventListener("keydown", ({ timeStamp }) => {
    requestAnimationFrame(() => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => window.keys.push(performance.now() - timeStamp);
      port2.postMessage(0);
    });
  }, true);
}"""

SHIFTS = """() => {
  window.shifts = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.sources.some(({ node }) => node?.parentElement?.closest("main"))) {
        window.shifts += entry.value;
      }
    }
  }).observe({ type: "layout-shift" });
}"""

OPEN = """(text) => new Promise((resolve) => {
  const begun = performance.now();
  location.hash = "#/chat/websocket%3Along";
  const look = () => {
    const last = [...document.querySelectorAll("article.answer .md")].at(-1);
    if (last?.textContent !== text) return requestAnimationFrame(look);
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - begun)));
  };
  look();
})"""


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 5
    deltas: int = 2_000
    """Of about 50 bytes each: an answer of 100 KB."""
    per_second: int = 200
    messages: int = 10_000
    """Of the long chat."""


QUICK = Sizes(rounds=1, deltas=40, messages=40)


@dataclass(frozen=True, slots=True)
class Place:
    root: Path
    sizes: Sizes

    def server(self, name: str) -> Server:
        directory = self.root / name
        directory.mkdir(parents=True)
        (directory / "bot.py").write_text(BOT)
        agents = {"default": {"kind": "python", "path": "bot:reply"}}
        return servers.parley(directory, agents=agents, sessions={"file_cap": 0})

    @asynccontextmanager
    async def browser(self) -> AsyncIterator[Browser]:
        program = find_browser()
        environment: dict[str, str | float | bool] = dict(os.environ)
        if program.startswith(str(PACKED)):
            environment["LD_LIBRARY_PATH"] = str(PACKED / "lib")
        home = str(self.root / "browser")
        environment["XDG_CONFIG_HOME"] = environment["XDG_CACHE_HOME"] = home
        async with async_playwright() as playwright:
            launched = await playwright.chromium.launch(
                executable_path=program, args=FLAGS, env=environment
            )
            yield launched
            await launched.close()


@asynccontextmanager
async def visit(browser: Browser, address: str) -> AsyncIterator[Page]:
    """Somebody who was never here before."""
    context = await browser.new_context(viewport={"width": 1280, "height": 860})
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    await page.goto(address)
    yield page
    await context.close()


async def size(_: Place) -> list[Figure]:
    """What is loaded before anything is drawn."""
    index = (PAGE / "index.html").read_text()
    names = re.findall(r'(?:src|href)="/([^"]+\.js)"', index)
    total = sum(len(gzip.compress((PAGE / name).read_bytes(), 9)) for name in names)
    goal = Goal(160, 120, absolute=True)
    return [compare("size", "initial JavaScript, gzip", [total / 1000], None, "", goal, "KB")]


async def paint(place: Place) -> list[Figure]:
    times = []
    async with place.server("paint") as server, place.browser() as browser:
        for number in range(place.sizes.rounds):
            say(f"paint: {number + 1} of {place.sizes.rounds}")
            async with visit(browser, server.url) as page:
                times.append(await page.evaluate(USABLE) / 1000)
    goal = Goal(1.0, absolute=True)
    return [compare("paint", "first usable paint, empty cache", times, None, "", goal)]


async def typing(place: Place) -> list[Figure]:
    """Keys are pressed one after the other from the first word to the last."""
    sizes, slow, worst, pressed = place.sizes, list[float](), list[float](), 0
    async with place.server("typing") as server, place.browser() as browser:
        for number in range(sizes.rounds):
            say(f"typing: {number + 1} of {sizes.rounds}")
            async with visit(browser, server.url) as page:
                await ask(page, f"{sizes.deltas} {sizes.per_second}")
                await page.evaluate(KEYS)
                while await page.locator(".progress").count():
                    await page.keyboard.press("a")
                    await page.wait_for_timeout(60)
                keys = [key / 1000 for key in await page.evaluate("() => window.keys")]
                slow.append(percentile(keys, 95))
                worst.append(max(keys))
                pressed += len(keys)
    title = f"a key, while {sizes.deltas * 50 // 1000} KB stream at {sizes.per_second}/s"
    goal = Goal(0.05, absolute=True)
    return [
        compare("key-p95", f"{title}: p95", slow, None, "", goal, keys=pressed),
        compare("key-worst", f"{title}: slowest", worst, None, ""),
    ]


async def ask(page: Page, text: str) -> None:
    field = page.get_by_label("Message", exact=True)
    await field.fill(text)
    await field.press("Enter")
    await page.locator("article.answer .md").wait_for()


async def opening(place: Place) -> list[Figure]:
    times, count = list[float](), place.sizes.messages
    server = place.server("opening")
    write_chat(place.root / "opening" / "data", count)
    async with server, place.browser() as browser:
        for number in range(place.sizes.rounds):
            say(f"opening: {number + 1} of {place.sizes.rounds}")
            async with visit(browser, server.url) as page:
                await page.get_by_text("Connected").wait_for()
                times.append(await page.evaluate(OPEN, f"answer {count}") / 1000)
    goal = Goal(0.5, absolute=True)
    return [compare("open", f"open a chat of {count:,} messages", times, None, "", goal)]


def write_chat(data: Path, count: int) -> None:
    path = data / "sessions" / "websocket" / "long.jsonl"
    path.parent.mkdir(parents=True)
    at = "2026-01-01T00:00:00Z"
    head: dict[str, Any] = {"_type": "metadata", "version": 1, "key": "websocket:long"}
    head |= {"created_at": at, "updated_at": at, "metadata": {}, "last_consolidated": 0}
    rows: list[dict[str, Any]] = [head]
    for seq in range(1, count + 1):
        said: dict[str, Any] = {"role": "user", "content": f"question {seq}"}
        if seq % 2 == 0:
            said = {"role": "assistant", "content": f"answer {seq}", "turn": f"t{seq}"}
            said |= {"outcome": "ok", "settles": {str(seq - 1): "answered"}}
        rows.append({**said, "timestamp": at, "seq": seq})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


async def shift(place: Place) -> list[Figure]:
    """Of the conversation, also right after the key that sent the question."""
    sizes, moved = place.sizes, list[float]()
    async with place.server("shift") as server, place.browser() as browser:
        for number in range(sizes.rounds):
            say(f"shift: {number + 1} of {sizes.rounds}")
            async with visit(browser, server.url) as page:
                await ask(page, f"{sizes.deltas // 4} {sizes.per_second}")
                await page.evaluate(SHIFTS)
                await page.locator(".progress").wait_for(state="detached")
                moved.append(await page.evaluate("() => window.shifts"))
    goal = Goal(0, absolute=True)
    return [
        compare(
            "shift", "layout shift of the conversation while streaming", moved, None, "", goal, ""
        )
    ]


BENCHMARKS: dict[Measure[Place], tuple[str, ...]] = {
    size: ("size",),
    paint: ("paint",),
    typing: ("key-p95", "key-worst"),
    opening: ("open",),
    shift: ("shift",),
}


def prepare(root: Path, sizes: Sizes, _: Path | None) -> AbstractContextManager[Place]:
    return nullcontext(Place(root, sizes))


PACKAGES = ("playwright", "uvicorn", "msgspec")
SUITE = Suite("page", "web page", __doc__, BENCHMARKS, Sizes(), QUICK, prepare, PACKAGES)

if __name__ == "__main__":
    sys.exit(main(SUITE))
