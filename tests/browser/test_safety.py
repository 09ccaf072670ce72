"""Whatever a model writes: nothing runs, nothing is loaded from elsewhere, nothing sticks out."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest
from playwright.async_api import Frame, Page, Request, expect

from tests.browser.conftest import Device
from tests.browser.screen import PATIENCE_MS, Screen
from tests.http.daemon import ROOT, Daemon

PAYLOADS: list[str] = json.loads((ROOT / "webui/src/markdown/payloads.json").read_text())
PER_ANSWER = 16
OPENERS = ("```", "~~~", "$$", "\\[")

AGENT = """
import json
from pathlib import Path

ANSWERS = json.loads(Path(__file__).with_name("answers.json").read_text())

async def reply(turn):
    answer = ANSWERS[turn.text]
    step = max(7, len(answer) // 400)
    for start in range(0, len(answer), step):
        yield answer[start : start + step]
"""

# Kept by the page itself: a call that shows nothing, and what the policy had to stop.
WITNESS = """() => {
  window.seen = [];
  for (const name of ["alert", "confirm", "prompt", "print", "open"]) {
    window[name] = () => { window.seen.push(name); };
  }
  document.addEventListener("securitypolicyviolation", (event) => {
    window.seen.push(`${event.violatedDirective} ${event.blockedURI}`);
  });
}"""

INSPECT = """() => {
  const found = [...window.seen];
  for (const element of document.querySelectorAll("article.answer .md *")) {
    for (const { name, value } of element.attributes) {
      const link = name === "href" || name === "src";
      if (name.startsWith("on")) found.push(`${element.tagName} ${name}`);
      if (link && !/^(?:https?:|mailto:|tel:|#|\\/(?!\\/))/i.test(value)) found.push(value);
    }
    if (/^(?:SCRIPT|IFRAME|OBJECT|EMBED|FORM|BASE|LINK|META|STYLE)$/.test(element.tagName)) {
      found.push(element.tagName);
    }
  }
  return found;
}"""

WIDTHS = """() => [document.scrollingElement, document.querySelector(".thread")].map(
  (box) => box.scrollWidth - box.clientWidth
)"""

Scripted = Callable[[dict[str, str]], Awaitable[Daemon]]


@pytest.fixture
def answering(prepare: Callable[..., Daemon]) -> Scripted:
    """A gateway that gives these answers to these questions."""

    async def begin(answers: dict[str, str]) -> Daemon:
        agents = {"default": {"kind": "python", "path": "scripted:reply"}}
        daemon = prepare(agents=agents, limits={"messages_per_minute": 0})
        (daemon.directory / "scripted.py").write_text(AGENT)
        (daemon.directory / "answers.json").write_text(json.dumps(answers))
        return await daemon.start()

    return begin


class Watch:
    """What a page does that it should not."""

    def __init__(self, page: Page, home: str) -> None:
        self.home, self.faults = home, list[str]()
        page.on("request", self._on_request)
        page.on("framenavigated", self._on_navigation)
        page.on("frameattached", lambda frame: self.faults.append(f"frame {frame.url}"))
        page.on("popup", lambda other: self.faults.append(f"window {other.url}"))

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((self.home, "data:", "blob:")):
            self.faults.append(f"request {request.url}")

    def _on_navigation(self, frame: Frame) -> None:
        if not frame.url.startswith(f"{self.home}/"):
            self.faults.append(f"went to {frame.url}")


@pytest.mark.parametrize("policy", [True, False], ids=["policy", "no policy"])
async def test_no_answer_runs_or_loads_anything(
    answering: Scripted, new_device: Callable[..., Awaitable[Device]], policy: bool
) -> None:
    """Texts that broke other pages are drawn as text, also where the policy would not stop them."""
    # What may swallow the text behind it stands alone.
    alone = [text for text in PAYLOADS if any(mark in text for mark in OPENERS)]
    rest = [text for text in PAYLOADS if text not in alone]
    groups = [rest[at : at + PER_ANSWER] for at in range(0, len(rest), PER_ANSWER)]
    groups += [[text] for text in alone]
    questions = {f"group {at}": "\n\n".join(group) for at, group in enumerate(groups)}
    daemon = await answering({**questions, "end": "done"})
    device = await new_device(bypass_csp=not policy)
    await device.context.add_init_script(f"({WITNESS})()")
    screen = Screen(await device.open(daemon.url))
    watch = Watch(screen.page, daemon.url)

    found: list[str] = []
    for question in questions:
        await screen.say(question)
        await expect(screen.delivery()).to_contain_text("Answered", timeout=PATIENCE_MS)
        found += await screen.page.evaluate(INSPECT)
    await screen.say("end")
    await screen.shows_answer("done")

    assert found == []
    assert watch.faults == []


ROW = "| " + " | ".join(f"column {number}" for number in range(40)) + " |\n"
EXTREMES = {
    "a wide table": ROW + "|---" * 40 + "|\n" + ROW * 100,
    "a long answer": "Some **words** of a long answer, with `code` in it.\n\n" * 4_000,
    "open fences": "Look:\n\n```js\nlet a = 1;\n~~~\n````\n- b\n```\n\nand `then **nothing",
    "right to left": "שלום **עולם**, مرحبا `code` بالعالم\n\n- אחד\n- שתיים\n\n> قال",
    "a long word": "before " + "x" * 10_000 + " after",
    "a long line of code": "```\n" + "y" * 10_000 + "\n```",
    "a long formula": "$$" + "+".join(f"x_{{{number}}}" for number in range(300)) + "$$",
    "a long link": "https://example.org/" + "z" * 5_000,
}


@pytest.mark.parametrize("case", EXTREMES)
async def test_no_answer_breaks_the_layout(answering: Scripted, device: Device, case: str) -> None:
    """Nothing makes the page scroll sideways, and one can go on writing."""
    daemon = await answering({case: EXTREMES[case], "after": "still here"})
    screen = Screen(await device.open(daemon.url))
    await screen.say(case)
    await expect(screen.delivery()).to_contain_text("Answered", timeout=PATIENCE_MS)

    wide = await screen.page.evaluate(WIDTHS)
    await screen.page.set_viewport_size({"width": 390, "height": 844})
    narrow = await screen.page.evaluate(WIDTHS)
    await screen.say("after")
    await screen.shows_answer("still here")

    assert (wide, narrow) == ([0, 0], [0, 0])


async def test_code_and_formulas_are_drawn(answering: Scripted, device: Device) -> None:
    """Both come in pieces of their own, under the strict policy."""
    text = "```python\ndef answer():\n    return 42\n```\n\n$$\\frac{a}{b}$$"
    daemon = await answering({"draw": text})
    screen = Screen(await device.open(daemon.url))
    await screen.say("draw")

    await expect(screen.page.locator(".hljs-keyword").first).to_be_visible(timeout=PATIENCE_MS)
    await expect(screen.page.locator(".katex .mfrac").first).to_be_visible(timeout=PATIENCE_MS)
