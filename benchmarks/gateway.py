"""`make bench`: the whole gateway against a bare uvicorn and against nanobot's, in one run.

Real processes on loopback, the load from a process of its own. Both sides take turns, every figure
is a median, and only ratios are held against limits. Exits 1 if a limit is missed.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from benchmarks import connections, processes, turns
from benchmarks.field import QUICK, Field, Sizes
from benchmarks.suite import Measure, Suite, main

BENCHMARKS: dict[Measure[Field], tuple[str, ...]] = {
    turns.echo: ("echo", "echo-nanobot"),
    turns.first_word: ("first-word",),
    turns.length: ("length",),
    connections.memory: ("idle-connection",),
    connections.spread: ("spread",),
    processes.start: ("start", "resident", "resident-full"),
}


def prepare(root: Path, sizes: Sizes, python: Path | None) -> AbstractContextManager[Field]:
    return nullcontext(Field(root, sizes, python))


PACKAGES = ("uvicorn", "uvloop", "websockets", "fastapi", "msgspec")
SUITE = Suite("gateway", "gateway", __doc__, BENCHMARKS, Sizes(), QUICK, prepare, PACKAGES)

if __name__ == "__main__":
    sys.exit(main(SUITE))
