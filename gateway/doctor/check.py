"""What a check says, and what it is told.

A check is a function that yields results. It changes nothing, waits for nobody longer than a few
seconds, and may raise: then it counts as failed itself, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from gateway.config import Settings
from sessions.directory import owner_of


class Result(msgspec.Struct, frozen=True):
    name: str
    status: str
    """ok, warn or fail."""
    detail: str
    fix: str = ""
    """What to do; empty if there is nothing to be done."""


class Facts:
    def __init__(self, settings: Settings, source: Path | None) -> None:
        self.settings = settings
        self.source = source
        """The file the settings came from; None: the defaults."""
        self.data_dir = Path(settings.data_dir)

    @property
    def keeps_files(self) -> bool:
        return self.settings.storage.url == "jsonl:"

    @cached_property
    def owner(self) -> int | None:
        """The process that holds the data directory; 0 if it does not say who it is."""
        try:
            found = owner_of(self.data_dir) if self.keeps_files else None
        except OSError:
            return None
        return None if found is None else int(found.get("pid", 0))


Check = Callable[[Facts], Iterator[Result]]


def ok(name: str, detail: str) -> Result:
    return Result(name, "ok", detail)


def warn(name: str, detail: str, fix: str) -> Result:
    return Result(name, "warn", detail, fix)


def fail(name: str, detail: str, fix: str) -> Result:
    return Result(name, "fail", detail, fix)
