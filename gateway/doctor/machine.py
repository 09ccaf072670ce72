"""The machine: versions and time."""

from __future__ import annotations

import platform
import re
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires, version

from gateway.doctor.check import Facts, Result, fail, ok, warn

LEAST_PYTHON = (3, 11)
LEAST_YEAR = 2025
STEP_SECONDS = 60.0
DISTRIBUTION = "parley-gateway"


def versions(_: Facts) -> Iterator[Result]:
    found = platform.python_version()
    if sys.version_info < LEAST_PYTHON:
        yield fail("python", f"Python {found}", "install Python 3.11 or later")
    else:
        yield ok("python", f"Python {found} on {platform.system()} {platform.release()}")
    missing = [name for name in _required() if _version(name) is None]
    if missing:
        fix = "install them: pip install -r requirements.lock"
        yield fail("packages", f"missing: {', '.join(missing)}", fix)
    else:
        shown = ", ".join(f"{name} {_version(name)}" for name in ("uvicorn", "fastapi", "msgspec"))
        yield ok("packages", f"Parley {_version(DISTRIBUTION) or 'from source'}, {shown}")


def _required() -> Iterator[str]:
    """What this program needs, by its own list; extras are the agents' business."""
    try:
        listed = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return
    for text in listed:
        name = re.match(r"[\w.-]+", text)
        if name is not None and "extra ==" not in text:
            yield name[0]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def clock(facts: Facts) -> Iterator[Result]:
    now = time.time()
    shown = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    last = max((_modified(facts, name) for name in (".lock", "CLEAN")), default=0.0)
    if datetime.fromtimestamp(now, UTC).year < LEAST_YEAR:
        yield fail("clock", f"it says {shown}", "set the clock, for instance by chrony")
    elif last > now + STEP_SECONDS:
        detail = f"it says {shown}, earlier than the last start in the data directory"
        yield warn("clock", detail, "see whether the clock was set back")
    else:
        yield ok("clock", shown)


def _modified(facts: Facts, name: str) -> float:
    try:
        return (facts.data_dir / name).stat().st_mtime
    except OSError:
        return 0.0
