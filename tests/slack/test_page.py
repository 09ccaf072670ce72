"""docs/slack.md speaks of what is there."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.config import SlackSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "slack.md").read_text(encoding="utf-8")


def rows(heading: str, until: str = "\n## ") -> list[str]:
    """The first cells of the tables below a heading."""
    section = PAGE.partition(heading)[2].partition(until)[0]
    return re.findall(r"(?m)^\| `([^`]+)`", section)


def test_every_setting_is_explained() -> None:
    """In the order of the settings themselves."""
    assert rows("\n## Settings\n") == list(SlackSettings.model_fields)


def test_every_log_event_is_written_somewhere() -> None:
    """An operator who looks for one by its name finds it."""
    sources = [
        path for name in ("channels/slack", "gateway") for path in (ROOT / name).glob("*.py")
    ]
    code = "".join(path.read_text(encoding="utf-8") for path in sources)
    events = rows("\nLog events:\n")

    assert len(events) > 5
    assert [event for event in events if f'"{event}"' not in code] == []
