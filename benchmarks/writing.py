"""Appending: what a turn costs, whatever the session's length, and what it may wait for."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import sample
from benchmarks.bench import Bench
from benchmarks.figures import Figure, Goal, compare
from sessions import lines
from sessions.key import SessionKey
from sessions.session import Session
from sessions.store_jsonl import JsonlStore

TEXTS = sample.texts(2)


# -- the cost of a turn -----------------------------------------------------------------------


async def persist(bench: Bench) -> list[Figure]:
    sizes = bench.sizes
    path = bench.root / "persist"
    # A short session grows while it is measured, so every round has short ones of its own.
    groups = {f"short{number}": (sizes.bursts, sizes.short) for number in range(sizes.rounds)}
    await sample.make(path, {"long": (sizes.bursts, sizes.long), **groups})
    if bench.peer is not None:
        _create_for_peer(bench)
    store = JsonlStore(path, file_cap=0)
    await store.open()
    await sample.indexed(store)
    limit = BareWrites(path, sizes.bursts, sizes.long)
    times: dict[str, list[float]] = {}
    for number in range(sizes.rounds):
        bench.say(f"persist: round {number + 1} of {sizes.rounds}")
        for length, group in (("long", "long"), ("short", f"short{number}")):
            held = [await _held(store, group, at) for at in range(sizes.bursts)]
            await sample.quiet(store)
            times.setdefault(length, []).append(await _persist(store, held, sizes.turns))
            await sample.quiet(store)
            if bench.peer is not None:
                bench.peer.call("hold", prefix=group, sessions=sizes.bursts)
                took = bench.peer.call("persist", turns=sizes.turns, texts=TEXTS)
                times.setdefault(f"peer {length}", []).append(took)
        times.setdefault("write", []).append(limit.measure(sizes.turns))
    limit.close()
    await store.close()
    return _persist_figures(sizes.long, sizes.short, times)


def _create_for_peer(bench: Bench) -> None:
    sizes, peer = bench.sizes, bench.peer
    assert peer is not None
    peer.call("open", name="persist")
    peer.call("create", prefix="long", sessions=sizes.bursts, texts=sample.texts(sizes.long))
    for number in range(sizes.rounds):
        few = sample.texts(sizes.short)
        peer.call("create", prefix=f"short{number}", sessions=sizes.bursts, texts=few)


def _persist_figures(long: int, short: int, times: dict[str, list[float]]) -> list[Figure]:
    at_long, at_short, write = times["long"], times["short"], times["write"]
    peer_long, peer_short = times.get("peer long"), times.get("peer short")
    title = "persist a turn, {:,} messages"
    return [
        compare(
            "persist-2000",
            title.format(long),
            at_long,
            peer_long,
            "nanobot",
            Goal(1 / 500, 1 / 1500),
        ),
        compare(
            "persist-10",
            title.format(short),
            at_short,
            peer_short,
            "nanobot",
            Goal(1 / 20, 1 / 50),
        ),
        compare(
            "flatness",
            f"the same, {long:,} vs {short:,} messages",
            at_long,
            at_short,
            "ours",
            Goal(1.10),
        ),
        compare(
            "write",
            "the same vs bare os.write",
            at_long,
            write,
            "write",
            Goal(6, 2.5),
        ),
    ]


async def _held(store: JsonlStore, channel: str, number: int) -> Session:
    session = await store.get(SessionKey(channel, str(number)))
    assert session is not None
    return session


async def _persist(store: JsonlStore, held: Sequence[Session], turns: int) -> float:
    """Seconds per turn. The first one of every session opens its file and is not counted."""
    times = []
    for session in held:
        key = session.key
        await store.append(key, sample.turn(session.next_seq, TEXTS))
        started = time.perf_counter()
        for _ in range(turns):
            await store.append(key, sample.turn(session.next_seq, TEXTS))
        times.append((time.perf_counter() - started) / turns)
    return statistics.median(times)


class BareWrites:
    """The same bytes to kept descriptors of files as long as the sessions, and nothing else."""

    def __init__(self, path: Path, files: int, messages: int) -> None:
        writer = sample.Writer(path.with_name(f"{path.name}-bare"))
        paths = [writer.write(SessionKey("bare", str(at)), messages) for at in range(files)]
        self._descriptors = [os.open(path, os.O_WRONLY | os.O_APPEND) for path in paths]
        records, _ = Session(SessionKey("bare", "turn")).admit(sample.turn(1, TEXTS))
        self._data = lines.encode(records)
        self._next = 0

    def measure(self, turns: int) -> float:
        times = []
        data = self._data
        for descriptor in self._descriptors:
            os.write(descriptor, data)
            started = time.perf_counter()
            for _ in range(turns):
                os.write(descriptor, data)
            times.append((time.perf_counter() - started) / turns)
        return statistics.median(times)

    def one(self) -> float:
        self._next = (self._next + 1) % len(self._descriptors)
        started = time.perf_counter()
        os.write(self._descriptors[self._next], self._data)
        return time.perf_counter() - started

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


# -- what an append may wait for --------------------------------------------------------------


async def stall(bench: Bench) -> list[Figure]:
    """Sessions at the cap under thousands of turns a second: some are always being rewritten.

    Only appends whose session is not being rewritten itself are timed: those that are wait by
    design, and nobody else does. The event loop's own lateness is measured beside them.
    """
    sizes = bench.sizes
    path = bench.root / "stall"
    await sample.make(path, {"stall": (sizes.stall_sessions, sizes.long - 2)})
    store = JsonlStore(path, file_cap=sizes.long, sync_seconds=0.1)
    await store.open()
    await sample.indexed(store)
    held = [await _held(store, "stall", at) for at in range(sizes.stall_sessions)]
    bench.say("stall: appending, syncing and rewriting")
    load = Load(store, held, sizes.stall_seconds)
    await load.run()
    await store.close()
    bench.say("stall: bare os.write on the same machine")
    bare = BareWrites(path, sizes.stall_sessions, sizes.long)
    writes = await _paced_writes(bare, sizes.stall_seconds / 4)
    bare.close()
    return [
        Figure(
            "stall",
            "p99.9 of appends among rewrites",
            "s",
            percentile(load.appends, 99.9),
            percentile(writes, 99.9),
            "write",
            Goal(0.001, 0.0001, absolute=True),
            facts={
                "appends": len(load.appends),
                "rewriting_share": sum(map(bool, load.rewriting)) / len(load.rewriting),
                "append_median": percentile(load.appends, 50),
                "append_p99": percentile(load.appends, 99),
                "append_max": max(load.appends),
            },
        ),
        Figure(
            "lateness",
            "  p99.9 of the loop's lateness",
            "s",
            percentile(load.lateness, 99.9),
            facts={
                "median": percentile(load.lateness, 50),
                "max": max(load.lateness),
            },
        ),
    ]


class Load:
    BURST = 5
    PAUSE_SECONDS = 0.001
    BEAT_SECONDS = 0.001

    def __init__(self, store: JsonlStore, held: Sequence[Session], seconds: float) -> None:
        self.appends: list[float] = []
        self.lateness: list[float] = []
        self.rewriting: list[int] = []
        self._store, self._held = store, held
        self._until = time.perf_counter() + seconds

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beat(), name="beat")
            group.create_task(self._append(), name="append")

    async def _append(self) -> None:
        count = 0
        while time.perf_counter() < self._until:
            for session in self._held:
                if session.gate is None:
                    drafts = sample.turn(session.next_seq, TEXTS)
                    started = time.perf_counter()
                    await self._store.append(session.key, drafts)
                    self.appends.append(time.perf_counter() - started)
                count += 1
                if count % self.BURST == 0:
                    await asyncio.sleep(self.PAUSE_SECONDS)

    async def _beat(self) -> None:
        while (started := time.perf_counter()) < self._until:
            await asyncio.sleep(self.BEAT_SECONDS)
            self.lateness.append(time.perf_counter() - started - self.BEAT_SECONDS)
            self.rewriting.append(sum(session.gate is not None for session in self._held))


async def _paced_writes(bare: BareWrites, seconds: float) -> list[float]:
    """What the machine does to a single system call, without a store."""
    found = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        found.append(bare.one())
        await asyncio.sleep(Load.PAUSE_SECONDS)
    return found


def percentile(numbers: Sequence[float], percent: float) -> float:
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
