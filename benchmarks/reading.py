"""Loading, paging and listing."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
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
    """Sessions that are not in memory, on both sides in two ways.

    As in a process that has been running for a while, where a session takes the place of one that
    left; and into memory the process gets from the system first, which costs both sides more.
    """
    sizes = bench.sizes
    path = bench.root / "load"
    total = sizes.rounds * sizes.loads
    await sample.make(path, {"long": (total, sizes.long), "tiny": (1, 2)})
    if bench.peer is not None:
        bench.peer.call("open", name="load")
        rows = sample.texts(sizes.long)
        bench.peer.call("create", prefix="long", sessions=total, texts=rows)
    # Without room in the cache, a session leaves as soon as another one comes.
    store = JsonlStore(path, cache_bytes=0)
    await store.open()
    await sample.indexed(store)
    times: dict[str, list[float]] = {}
    kept: list[object] = []
    for number in range(sizes.rounds):
        bench.say(f"load: round {number + 1} of {sizes.rounds}")
        numbers = range(number * sizes.loads, (number + 1) * sizes.loads)
        keys = [SessionKey("long", str(at)) for at in numbers]
        pages = [await _read(store, key) for key in keys]
        times.setdefault("page", []).append(statistics.median(pages))
        for regime, place in (("load", None), ("fresh", kept)):
            loads = [await _load(store, key, place) for key in keys]
            times.setdefault(regime, []).append(statistics.median(loads))
            if bench.peer is not None:
                took = bench.peer.call(
                    "load", prefix="long", numbers=list(numbers), keep=place is not None
                )
                times.setdefault(f"peer {regime}", []).append(took)
        times.setdefault("decode", []).append(_decode(path / "sessions" / "long", numbers))
    await store.close()
    return _load_figures(sizes.long, times)


def _load_figures(long: int, times: dict[str, list[float]]) -> list[Figure]:
    loads, peer = times["load"], times.get("peer load")
    fresh, peer_fresh = times["fresh"], times.get("peer fresh")
    title = f"cold load of {long:,} messages"
    page = f"a page of the last {PAGE}"
    return [
        compare("load", title, loads, peer, "nanobot", Goal(0.40, 0.25)),
        compare("page", page, times["page"], peer, "nanobot", Goal(0.10, 0.06)),
        compare("fresh", "  into fresh memory", fresh, peer_fresh, "nanobot", Goal(0.40, 0.25)),
        compare("decode", "  load vs decoding alone", loads, times["decode"], "msgspec"),
    ]


async def _read(store: JsonlStore, key: SessionKey) -> float:
    started = time.perf_counter()
    found = await store.read(key, limit=PAGE)
    seconds = time.perf_counter() - started
    assert found.records
    return seconds


async def _load(store: JsonlStore, key: SessionKey, kept: list[object] | None) -> float:
    started = time.perf_counter()
    found = await store.get(key)
    seconds = time.perf_counter() - started
    assert found is not None
    if kept is not None:
        kept.append(found)
    del found
    # Takes the other one's place, so that the next load does not pay for its leaving.
    await store.get(SessionKey("tiny", "0"))
    return seconds


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
