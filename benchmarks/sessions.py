"""`make bench`: the session store against nanobot and against the machine, in one run.

Both sides take turns, every figure is a median, and only ratios are held against limits. Exits 1
if a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from loguru import logger
from rich.console import Console

from benchmarks import crash, life, reading, writing
from benchmarks.bench import QUICK, Bench, Sizes
from benchmarks.figures import WIDTH, Figure, show
from benchmarks.peer import VERSION, Peer, PeerFailed, install
from sessions.directory import file_system

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "benchmarks" / "sessions.json"
SCRATCH = HERE / "results"
"""Not the system's temporary directory: that may be in memory."""

BENCHMARKS: dict[Callable[[Bench], Awaitable[list[Figure]]], tuple[str, ...]] = {
    writing.persist: ("persist-2000", "persist-10", "flatness", "write"),
    reading.load: ("load", "page", "fresh", "decode"),
    reading.listing: ("list-all", "list-page"),
    life.opening: ("open", "index-built", "index-compared"),
    life.shutdown: ("shutdown",),
    life.memory: ("memory-2000", "memory-10"),
    writing.stall: ("stall", "lateness"),
    crash.kills: ("kills",),
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    logger.remove()
    sizes = QUICK if options.quick else Sizes()
    if options.rounds:
        sizes = dataclasses.replace(sizes, rounds=options.rounds)
    try:
        figures = _measure(sizes, options)
    except PeerFailed as error:
        print(error, file=sys.stderr)
        return 1
    show(figures, Console(width=WIDTH))
    path = options.json or (None if options.quick or options.only else RESULTS)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_report(figures, sizes), indent=2) + "\n")
    return 1 if any(figure.passes is False for figure in figures) and not options.quick else 0


def _options() -> argparse.ArgumentParser:
    names = [name for rows in BENCHMARKS.values() for name in rows]
    parser = argparse.ArgumentParser("python -m benchmarks.sessions", description=__doc__)
    parser.add_argument("--only", action="append", choices=names, help="a row; may be repeated")
    parser.add_argument("--rounds", type=_at_least_three, help="rounds per row (5)")
    parser.add_argument("--quick", action="store_true", help="small sizes; limits do not count")
    parser.add_argument("--no-peer", action="store_true", help="without nanobot and its figures")
    parser.add_argument("--json", type=Path, metavar="PATH", help=f"results file ({RESULTS.name})")
    parser.add_argument("--scratch", type=Path, default=SCRATCH, help="where to put the logs")
    return parser


def _at_least_three(text: str) -> int:
    if int(text) < 3:
        raise argparse.ArgumentTypeError("a median needs at least 3 rounds")
    return int(text)


def _measure(sizes: Sizes, options: argparse.Namespace) -> list[Figure]:
    only: Sequence[str] | None = options.only
    python = None if options.no_peer else install()
    options.scratch.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(dir=options.scratch))
    peer = Peer(python, root / "peer") if python is not None else None
    figures: list[Figure] = []
    try:
        bench = Bench(root, sizes, peer)
        for measure, rows in BENCHMARKS.items():
            if only and not set(only) & set(rows):
                continue
            figures += asyncio.run(_run(measure, bench))
    finally:
        if peer is not None:
            peer.close()
        shutil.rmtree(root)
    return [figure for figure in figures if not only or figure.row in only]


async def _run(measure: Callable[[Bench], Awaitable[list[Figure]]], bench: Bench) -> list[Figure]:
    return await measure(bench)


def _report(figures: Sequence[Figure], sizes: Sizes) -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            "msgspec": msgspec.__version__,
            "nanobot-ai": VERSION,
        },
        "sizes": dataclasses.asdict(sizes),
        "rows": [figure.as_json() for figure in figures],
    }


def machine() -> dict[str, Any]:
    """Its class: enough to read the times, too little to name it."""
    kernel = ".".join(platform.release().split("-")[0].split(".")[:2])
    return {
        "cores": os.cpu_count(),
        "architecture": platform.machine(),
        "kernel": f"{platform.system()} {kernel}",
        "file_system": file_system(HERE),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    sys.exit(main())
