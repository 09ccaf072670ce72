"""The kill -9 loop of the tests, for longer."""

from __future__ import annotations

import asyncio
import time

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Goal
from tests.support.kill_loop import KillLoop


async def kills(bench: Bench) -> list[Figure]:
    """A writing process is killed again and again; what it acknowledged must be there each time."""
    count = bench.sizes.kills
    path = bench.root / "kills"
    path.mkdir()
    loop = KillLoop(path, seed=time.time_ns() % 1_000_000)
    bench.say(f"kills: {count} with seed {loop.seed}")
    broken = ""
    try:
        # The loop starts an event loop for every look, so it needs a thread of its own.
        await asyncio.to_thread(loop.run, count)
    except AssertionError as error:
        broken = str(error).partition("\n")[0]
        bench.say(f"kills: {broken}")
    facts = {
        "seed": loop.seed,
        "acknowledged": loop.report.acknowledged,
        "broken": broken,
    }
    title = f"{count} × kill -9, promises broken"
    return [
        Figure("kills", title, "", float(bool(broken)), goal=Goal(0, absolute=True), facts=facts)
    ]
