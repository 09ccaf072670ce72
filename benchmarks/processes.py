"""The process itself: how soon it serves, and what it takes up while nobody talks to it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from benchmarks import sample, servers
from benchmarks.field import TEXT, Field
from benchmarks.figures import Figure, Goal, compare
from benchmarks.servers import ROOT, Server
from sessions.store_jsonl import JsonlStore

PACKAGES = ("gateway", "channels", "sessions")


async def start(field: Field) -> list[Figure]:
    """Ours has many sessions on disk; the peer, which would have to read them, has none."""
    sizes = field.sizes
    root = field.root / "start"
    field.say(f"start: making {sizes.stored:,} sessions")
    # As after an installation: where bytecode is not written at run time, imports are slower.
    subprocess.run([sys.executable, "-m", "compileall", "-q", *PACKAGES], cwd=ROOT, check=True)
    await sample.make(root / "full" / "data", {"websocket": (sizes.stored, 2)})
    await _index(root / "full" / "data")
    seconds, resident = await _measure(field, root)
    title = f"start to ready, {sizes.stored:,} sessions"
    ours, full, peer = resident["parley"], resident["full"], resident.get("nanobot")
    return [
        compare("start", title, seconds["full"], seconds.get("nanobot"), "nanobot", Goal(0.6)),
        compare("resident", "resident memory, idle", ours, peer, "nanobot", Goal(0.7), "MB"),
        compare("resident-full", "  with those sessions", full, peer, "nanobot", unit="MB"),
    ]


async def _index(path: Path) -> None:
    """The index is complete, as it is wherever a gateway has run before."""
    store = JsonlStore(path)
    await store.open()
    await sample.indexed(store)
    await store.close()


async def _measure(
    field: Field, root: Path
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    seconds: dict[str, list[float]] = {}
    resident: dict[str, list[float]] = {}
    async with servers.fake_model(root / "model", TEXT) as model:
        for number in range(field.sizes.rounds):
            field.say(f"start: round {number + 1} of {field.sizes.rounds}")
            sides: dict[str, Server] = {
                "parley": servers.parley(root / "parley"),
                "full": servers.parley(root / "full"),
            }
            if field.peer is not None:
                sides["nanobot"] = servers.nanobot(field.peer, root / "nanobot", model.url)
            for name, server in sides.items():
                async with server:
                    await asyncio.sleep(field.sizes.settle_seconds)
                    seconds.setdefault(name, []).append(server.ready_seconds)
                    resident.setdefault(name, []).append(server.resident_bytes / 1_000_000)
    return seconds, resident
