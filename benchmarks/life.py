"""Opening, shutting down, and what sessions take up in between."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
from loguru import logger

from benchmarks import sample
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Goal, compare
from sessions.key import SessionKey
from sessions.session import Session
from sessions.store_jsonl import JsonlStore

TEXTS = sample.texts(2)
CACHED_MESSAGES = 4
DIRTY_SHARE = 100


# -- opening ----------------------------------------------------------------------------------


async def opening(bench: Bench) -> list[Figure]:
    """A store with many sessions against one that was used before and has none."""
    sizes = bench.sizes
    full, empty = bench.root / "open-full", bench.root / "open-empty"
    bench.say(f"open: making {sizes.many:,} sessions")
    await sample.make(full, {"many": (sizes.many, 2)})
    await sample.make(empty, {})
    os.sync()
    bench.say("open: building the index for the first time")
    built = await _caught_up(full)
    with_many, with_none = [], []
    for number in range(max(sizes.rounds, 7)):
        bench.say(f"open: round {number + 1}")
        with_many.append(await _open(full))
        with_none.append(await _open(empty))
    compared = await _caught_up(full)
    return [
        compare(
            "open",
            f"open {sizes.many:,} sessions",
            with_many,
            with_none,
            "empty",
            Goal(1.2),
        ),
        Figure("index-built", "  until a lost index is rebuilt", "s", built),
        Figure("index-compared", "  until the index has caught up", "s", compared),
    ]


async def _open(path: Path) -> float:
    # What others have still to write would make this store wait for its own few bytes.
    os.sync()
    store = JsonlStore(path)
    started = time.perf_counter()
    await store.open()
    seconds = time.perf_counter() - started
    await store.close()
    return seconds


async def _caught_up(path: Path) -> float:
    store = JsonlStore(path)
    started = time.perf_counter()
    await store.open()
    await sample.indexed(store)
    seconds = time.perf_counter() - started
    await store.close()
    return seconds


# -- shutting down ----------------------------------------------------------------------------


async def shutdown(bench: Bench) -> list[Figure]:
    sizes = bench.sizes
    path = bench.root / "shutdown"
    bench.say(f"shutdown: making {sizes.listed:,} sessions")
    await sample.make(path, {"many": (sizes.listed, CACHED_MESSAGES)})
    dirty = max(1, sizes.listed // DIRTY_SHARE)
    if bench.peer is not None:
        bench.peer.call("open", name="shutdown")
        rows = sample.texts(CACHED_MESSAGES)
        bench.peer.call("create", prefix="many", sessions=sizes.listed, texts=rows)
        bench.peer.call("hold", prefix="many", sessions=sizes.listed)
    ours, peers = [], []
    for number in range(sizes.rounds):
        bench.say(f"shutdown: round {number + 1} of {sizes.rounds}")
        ours.append(await _shutdown(path, sizes.listed, dirty))
        if bench.peer is not None:
            os.sync()
            peers.append(bench.peer.call("flush", dirty=dirty, texts=TEXTS))
    title = f"shutdown, {sizes.listed:,} cached"
    return [compare("shutdown", title, ours, peers or None, "nanobot", Goal(1 / 200, 1 / 1000))]


async def _shutdown(path: Path, sessions: int, dirty: int) -> float:
    store = JsonlStore(path)
    await store.open()
    await sample.indexed(store)
    held: list[Session] = []
    for number in range(sessions):
        session = await store.get(SessionKey("many", str(number)))
        assert session is not None
        held.append(session)
    # Whatever the system has still to write is not this shutdown's.
    os.sync()
    for session in held[:dirty]:
        await store.append(session.key, sample.turn(session.next_seq, TEXTS))
    started = time.perf_counter()
    flushed = await store.close()
    seconds = time.perf_counter() - started
    assert (flushed.count, flushed.failed) == (dirty, 0), flushed
    return seconds


# -- memory -----------------------------------------------------------------------------------


async def memory(bench: Bench) -> list[Figure]:
    """The growth of a fresh process that loads sessions, against the bytes of their files."""
    sizes = bench.sizes
    figures = []
    for name, messages, sessions in (
        ("memory-2000", sizes.long, 2 * sizes.bursts),
        ("memory-10", sizes.short, sizes.listed // 5),
    ):
        path = bench.root / name
        bench.say(f"memory: {sessions:,} sessions of {messages:,}")
        await sample.make(path, {"many": (sessions, messages)})
        command = [sys.executable, "-m", "benchmarks.life", str(path), str(sessions)]
        runs = [json.loads(subprocess.check_output(command)) for _ in range(sizes.rounds)]
        grown, stored = (sorted(run[at] for run in runs)[len(runs) // 2] for at in (0, 1))
        figures.append(
            Figure(
                name,
                f"memory of a session of {messages:,}",
                "KB",
                grown / sessions / 1000,
                stored / sessions / 1000,
                "file",
                Goal(2.6),
            )
        )
    return figures


async def _fill(path: Path, sessions: int) -> tuple[int, int]:
    store = JsonlStore(path, cache_bytes=1 << 40)
    await store.open()
    await sample.indexed(store)
    # What the first sessions bring with them (code, pools, threads) is no session's.
    first = max(1, sessions // 10)
    for number in range(first):
        await store.get(SessionKey("many", str(number)))
    before = _resident()
    for number in range(first, sessions):
        await store.get(SessionKey("many", str(number)))
    grown = _resident() - before
    files = (path / "sessions" / "many").glob("*.jsonl")
    stored = sum(file.stat().st_size for file in files)
    assert (await store.stats()).cached_sessions == sessions
    await store.close()
    return round(grown * sessions / (sessions - first)), stored


def _resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    logger.remove()
    print(json.dumps(asyncio.run(_fill(Path(sys.argv[1]), int(sys.argv[2])))))
