"""Loading, paging and listing."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks import sample
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Goal, compare
from sessions.key import SessionKey
from sessions.store import Query
from sessions.store_jsonl import JsonlStore

PAGE = 120
LISTED_MESSAGES = 4


# -- one session ------------------------------------------------------------------------------


async def load(bench: Bench) -> list[Figure]:
    """Every round has sessions of its own: none of them has been in memory before."""
    sizes = bench.sizes
    path = bench.root / "load"
    total = sizes.rounds * sizes.loads
    await sample.make(path, {"long": (total, sizes.long)})
    if bench.peer is not None:
        bench.peer.call("open", name="load")
        rows = sample.texts(sizes.long)
        bench.peer.call("create", prefix="long", sessions=total, texts=rows)
    store = JsonlStore(path)
    await store.open()
    await sample.indexed(store)
    loads, page_reads, peers, decodes = [], [], [], []
    for number in range(sizes.rounds):
        bench.say(f"load: round {number + 1} of {sizes.rounds}")
        numbers = range(number * sizes.loads, (number + 1) * sizes.loads)
        keys = [SessionKey("long", str(at)) for at in numbers]
        page_reads.append(await _each(keys, lambda key: store.read(key, limit=PAGE)))
        if bench.peer is not None:
            peers.append(bench.peer.call("load", prefix="long", numbers=list(numbers)))
        loads.append(await _each(keys, store.get))
        decodes.append(_decode(path / "sessions" / "long", numbers))
    await store.close()
    peer = peers or None
    return [
        compare(
            "load",
            f"cold load of {sizes.long:,} messages",
            loads,
            peer,
            "nanobot",
            Goal(0.40, 0.25),
        ),
        compare(
            "page",
            f"a page of the last {PAGE}",
            page_reads,
            peer,
            "nanobot",
            Goal(0.10, 0.06),
        ),
        compare("decode", "  cold load vs decoding alone", loads, decodes, "msgspec"),
    ]


async def _each(keys: list[SessionKey], read: Callable[[SessionKey], Awaitable[object]]) -> float:
    """Seconds for one session."""
    times = []
    for key in keys:
        started = time.perf_counter()
        found = await read(key)
        times.append(time.perf_counter() - started)
        assert found is not None
        del found
    return statistics.median(times)


def _decode(directory: Path, numbers: Sequence[int]) -> float:
    decoder = msgspec.json.Decoder()
    times = []
    for number in numbers:
        data = (directory / f"{number}.jsonl").read_bytes()
        started = time.perf_counter()
        found = decoder.decode_lines(data)
        times.append(time.perf_counter() - started)
        del found
    return statistics.median(times)


# -- all sessions -----------------------------------------------------------------------------


async def listing(bench: Bench) -> list[Figure]:
    sizes = bench.sizes
    path = bench.root / "list"
    bench.say(f"list: making {sizes.listed:,} sessions")
    await sample.make(path, {"list": (sizes.listed, LISTED_MESSAGES)})
    if bench.peer is not None:
        bench.peer.call("open", name="list")
        rows = sample.texts(LISTED_MESSAGES)
        bench.peer.call("create", prefix="list", sessions=sizes.listed, texts=rows)
    os.sync()
    store = JsonlStore(path)
    await store.open()
    await sample.indexed(store)
    everything, one_page, peers = [], [], []
    for number in range(sizes.rounds):
        bench.say(f"list: round {number + 1} of {sizes.rounds}")
        everything.append(await _find(store, Query(limit=0), sizes.listed))
        if bench.peer is not None:
            peers.append(bench.peer.call("list_all"))
        one_page.append(await _find(store, Query(limit=50), 50))
    await store.close()
    peer = peers or None
    return [
        compare(
            "list-all",
            f"list {sizes.listed:,} sessions, all",
            everything,
            peer,
            "nanobot",
            Goal(0.10, 0.05),
        ),
        compare(
            "list-page",
            f"list {sizes.listed:,} sessions, page of 50",
            one_page,
            peer,
            "nanobot",
            Goal(0.01, 0.003),
        ),
    ]


async def _find(store: JsonlStore, query: Query, expected: int) -> float:
    # The event loop still holds the last answer until it comes round again.
    await asyncio.sleep(0)
    started = time.perf_counter()
    found = await store.find(query)
    seconds = time.perf_counter() - started
    assert len(found.sessions) == expected, f"{len(found.sessions)} sessions were listed"
    return seconds
