"""Reads a session file by the rules of the first nanobot releases. Independent of `sessions`.

- A line is one JSON object; blank lines are passed over; anything else makes the file unreadable.
- An object whose `_type` is `metadata` describes the session, and the last such line wins whole:
  a field it leaves out has its default. Every other object is a message.
- Messages have a place in the list and no other number. `last_consolidated` counts the messages
  at its front that the model no longer sees.
- What the model sees needs `role` and `content` on every message. `_command` rows are left out.
- Times are whatever `datetime.fromisoformat` reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass
class SeedSession:
    messages: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    last_consolidated: int = 0

    @property
    def history(self) -> list[tuple[str, Any]]:
        """Raises KeyError for a message these rules cannot show."""
        shown = self.messages[self.last_consolidated :]
        pairs = [(message["role"], message["content"], message) for message in shown]
        return [(role, content) for role, content, whole in pairs if not whole.get("_command")]


def read(path: Path) -> SeedSession:
    return parse(path.read_text(encoding="utf-8"))


def parse(text: str) -> SeedSession:
    """Raises ValueError where a seed-era program would give the file up."""
    session = SeedSession()
    # Only these end a line for a file opened as text; str.splitlines knows more.
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if not line.strip():
            continue
        value = json.loads(line)
        if not isinstance(value, dict):
            raise ValueError("a line is not an object")  # noqa: TRY004 - as unreadable as the rest
        if value.get("_type") == "metadata":
            _describe(session, value)
        else:
            session.messages.append(value)
    return session


def _describe(session: SeedSession, value: dict[str, Any]) -> None:
    session.metadata = value.get("metadata", {})
    session.key = value.get("key")
    session.created_at = _time(value.get("created_at"))
    session.updated_at = _time(value.get("updated_at"))
    session.last_consolidated = value.get("last_consolidated", 0)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
