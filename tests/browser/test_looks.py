"""How the page looks, in both themes and on a phone. Pictures are kept under tmp_path."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Device
from tests.browser.screen import PATIENCE_MS, Screen
from tests.http.daemon import ROOT, Daemon

AGENT = '''
import asyncio
from gateway.agents.agent import Calls, Delta, Reasoning, ToolResult, ToolStarted

ANSWER = """Accept **both keys for one overlap window**, then retire the old one.

```python
def verify(body: bytes, keys: list[bytes]) -> bool:
    # Newest first: most requests match at once.
    return any(compare(sign(body, key)) for key in keys[:2])
```

| Step | Host | Overlap |
|---|---|---:|
| Add the new key | all | 0 min |
| Switch the senders | `edge-1`, `edge-2` | 15 min |
"""

async def reply(turn):
    if turn.text.startswith("And"):
        yield "The old key stays valid until the last sender has switched, so `edge-3` "
        await asyncio.sleep(600)
    yield Reasoning("The verifier takes a list already.")
    call = {"id": "1", "function": {"name": "read_file", "arguments": "{}"}}
    yield Calls([call])
    yield ToolStarted("1", "read_file", "config/webhook.yaml")
    yield ToolResult("1", "read_file", "signing_key: old", "config/webhook.yaml")
    yield ANSWER
'''

AXE = ROOT / "tests/browser/node_modules/axe-core/axe.min.js"
SERIOUS = ("serious", "critical")

OTHERS = (
    "Regex for postal codes",
    "Names for the new service",
    "Move the cron jobs to timers",
    "Explain the p99 spike",
)
LOG: Any = {"name": "edge-3.log", "mimeType": "text/plain", "buffer": b"ready\n" * 700}

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}


def keep(picture: Path) -> None:
    """`make pictures` wants those of the README in a place of their own."""
    place = os.environ.get("PARLEY_PICTURES")
    if place and picture.stem != "phone":
        (ROOT / place).mkdir(exist_ok=True)
        shutil.copy(picture, ROOT / place / f"chat-{picture.name}")


@pytest.fixture
async def scripted(prepare: Callable[..., Daemon]) -> Daemon:
    daemon = prepare(agents={"default": {"kind": "python", "path": "scripted:reply"}})
    (daemon.directory / "scripted.py").write_text(AGENT)
    return await daemon.start()


@pytest.mark.parametrize("look", LOOKS)
async def test_a_conversation_is_drawn_within_the_screen(
    scripted: Daemon,
    new_device: Callable[..., Awaitable[Device]],
    tmp_path: Path,
    look: str,
) -> None:
    """Nothing sticks out sideways, and a scan finds no serious fault of accessibility."""
    chat = await scripted.chat()
    for number, text in enumerate(OTHERS):
        await chat.say(f"other-{number}", text)
    await chat.say("first", "Rotate the signing keys without dropping a request")
    device = await new_device(**LOOKS[look])
    screen = Screen(await device.open(f"{scripted.url}/#/chat/websocket%3Afirst"))
    await expect(screen.answers.first).to_contain_text("Accept both", timeout=PATIENCE_MS)

    await screen.say("And what about the third host, edge-3?")
    await expect(screen.answers.last).to_contain_text("edge-3", timeout=PATIENCE_MS)
    await screen.page.locator("input[type=file]").set_input_files([LOG])
    await expect(screen.page.locator(".chip[data-state=done]")).to_be_visible(timeout=PATIENCE_MS)
    await expect(screen.page.locator(".progress")).to_have_text(
        re.compile(r"Writing · [1-9]"), timeout=PATIENCE_MS
    )
    await screen.picture(tmp_path / f"{look}.png")
    keep(tmp_path / f"{look}.png")

    source = AXE.read_text()
    await screen.page.evaluate(f"() => {{ {source}; window.axe = axe; }}")
    found = await screen.page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    serious = [one["id"] for one in found["violations"] if one["impact"] in SERIOUS]
    assert serious == []
    wide = await screen.page.evaluate("() => document.documentElement.scrollWidth")
    assert wide <= LOOKS[look].get("viewport", {"width": 1280})["width"]
