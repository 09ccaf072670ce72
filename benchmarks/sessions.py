"""`make bench`: the session store against nanobot and against the machine, in one run.

Both sides take turns, every figure is a median, and only ratios are held against limits. Exits 1
if a limit is missed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import crash, life, reading, writing
from benchmarks.bench import QUICK, Bench, Sizes
from benchmarks.peer import Peer
from benchmarks.suite import Measure, Suite, main

BENCHMARKS: dict[Measure[Bench], tuple[str, ...]] = {
    writing.persist: ("persist-2000", "persist-10", "flatness", "write"),
    reading.load: ("load", "page", "fresh", "decode"),
    reading.listing: ("list-all", "list-page"),
    life.opening: ("open", "index-built", "index-compared"),
    life.shutdown: ("shutdown",),
    life.memory: ("memory-2000", "memory-10"),
    writing.stall: ("stall", "lateness"),
    crash.kills: ("kills",),
}


@contextmanager
def prepare(root: Path, sizes: Sizes, python: Path | None) -> Iterator[Bench]:
    if python is None:
        yield Bench(root, sizes, None)
        return
    peer = Peer(python, root / "peer")
    try:
        yield Bench(root, sizes, peer)
    finally:
        peer.close()


SUITE = Suite("sessions", "session store", __doc__, BENCHMARKS, Sizes(), QUICK, prepare)

if __name__ == "__main__":
    sys.exit(main(SUITE))
