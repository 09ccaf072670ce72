"""A set of benchmarks as a command: its options, its scratch directory, its table and its file.

Both sides take turns, every figure is a median, and only ratios are held against limits. The
command exits 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Generic, TypeVar

from loguru import logger
from rich.console import Console

from benchmarks.figures import WIDTH, Figure, show
from benchmarks.peer import VERSION, PeerFailed, install
from benchmarks.servers import ServerFailed
from sessions.directory import file_system

HERE = Path(__file__).parent
RESULTS = HERE.parent / "docs" / "benchmarks"
SCRATCH = HERE / "results"
"""Not the system's temporary directory: that may be in memory."""


B = TypeVar("B")
S = TypeVar("S")
"""A frozen dataclass of what a run is measured with; has `rounds`."""
Measure = Callable[[B], Awaitable[list[Figure]]]


@dataclass(frozen=True)
class Suite(Generic[B, S]):
    name: str
    title: str
    description: str | None
    benchmarks: Mapping[Measure[B], tuple[str, ...]]
    """What is run, and the rows each yields."""
    full: S
    quick: S
    prepare: Callable[[Path, S, Path | None], AbstractContextManager[B]]
    """What every benchmark is given, from the scratch directory, the sizes and the peer's Python
    (None without a peer)."""
    packages: tuple[str, ...] = ("msgspec",)
    """Whose versions matter to the figures."""

    @property
    def results(self) -> Path:
        return RESULTS / f"{self.name}.json"


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr)


def main(suite: Suite[B, S], arguments: Sequence[str] | None = None) -> int:
    options = _options(suite).parse_args(arguments)
    logger.remove()
    # Ended by whatever signal, it ends its own processes and removes its directory first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    sizes: Any = suite.quick if options.quick else suite.full
    if options.rounds:
        sizes = dataclasses.replace(sizes, rounds=options.rounds)
    try:
        figures = _measure(suite, sizes, options)
    except (PeerFailed, ServerFailed) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    show(suite.title, figures, Console(width=WIDTH))
    path = options.json or (None if options.quick or options.only else suite.results)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_report(suite, figures, sizes), indent=2) + "\n")
    return 1 if any(figure.passes is False for figure in figures) and not options.quick else 0


def _options(suite: Suite[B, S]) -> argparse.ArgumentParser:
    names = [name for rows in suite.benchmarks.values() for name in rows]
    parser = argparse.ArgumentParser(
        f"python -m benchmarks.{suite.name}", description=suite.description
    )
    parser.add_argument("--only", action="append", choices=names, help="a row; may be repeated")
    parser.add_argument("--rounds", type=_at_least_three, help="rounds per row (5)")
    parser.add_argument("--quick", action="store_true", help="small sizes; limits do not count")
    parser.add_argument("--no-peer", action="store_true", help="without nanobot and its figures")
    parser.add_argument(
        "--json", type=Path, metavar="PATH", help=f"results file ({suite.results.name})"
    )
    parser.add_argument("--scratch", type=Path, default=SCRATCH, help="where to put the logs")
    return parser


def _at_least_three(text: str) -> int:
    if int(text) < 3:
        raise argparse.ArgumentTypeError("a median needs at least 3 rounds")
    return int(text)


def _measure(suite: Suite[B, S], sizes: S, options: argparse.Namespace) -> list[Figure]:
    only: Sequence[str] | None = options.only
    python = None if options.no_peer else install()
    options.scratch.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(dir=options.scratch))
    figures: list[Figure] = []
    try:
        with suite.prepare(root, sizes, python) as bench:
            for measure, rows in suite.benchmarks.items():
                if only and not set(only) & set(rows):
                    continue
                figures += asyncio.run(_run(measure, bench))
    finally:
        shutil.rmtree(root)
    return [figure for figure in figures if not only or figure.row in only]


async def _run(measure: Measure[B], bench: B) -> list[Figure]:
    return await measure(bench)


def _report(suite: Suite[B, S], figures: Sequence[Figure], sizes: Any) -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in suite.packages},
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
