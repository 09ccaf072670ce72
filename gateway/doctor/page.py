"""The web page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gateway.doctor.check import Facts, Result, ok, warn

INDEX = Path(__file__).parents[1] / "page" / "index.html"


def page(_: Facts) -> Iterator[Result]:
    if INDEX.is_file():
        yield ok("page", "built")
    else:
        yield warn("page", "the web page has not been built", "make run builds it")
