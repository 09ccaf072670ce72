"""`make bench`: the Slack channel of a real gateway, against the tests' Slack.

Gateway, Slack and the bare client each have a process of their own. The bare client acknowledges
every envelope and does nothing else; it is measured in turn with the gateway while the gateway's
streams go on. Exits 1 if a limit is missed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from benchmarks import servers
from benchmarks.figures import Figure, Goal, compare
from benchmarks.servers import ROOT, Clients, Server
from benchmarks.suite import Measure, Suite, main, say
from benchmarks.writing import percentile
from tests.support.slack import APP_TOKEN, BOT_TOKEN

BOT = """
import asyncio

async def reply(turn):
    if turn.text == "stream":
        while True:
            yield "another word "
            await asyncio.sleep(0.1)
    yield turn.text
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 5
    chats: int = 200
    streams: int = 50
    """Answers that grow all the time, in chats of their own."""
    paced: int = 500
    """Envelopes of a round, at even intervals."""
    slices: int = 10
    """Times both sides take turns in a round."""
    per_second: float = 50.0
    events: int = 10_000
    at_once: int = 100
    """Envelopes under way at a time while they are as many as possible."""
    disconnects: int = 100
    storm_seconds: float = 20.0
    storm_events: int = 500
    quiet_seconds: float = 1.0
    """Without a call of the gateway, a storm counts as over."""


QUICK = Sizes(
    rounds=3,
    chats=6,
    streams=2,
    paced=20,
    slices=2,
    events=60,
    at_once=10,
    disconnects=4,
    storm_seconds=0.8,
    storm_events=10,
    quiet_seconds=0.2,
)


@dataclass(frozen=True, slots=True)
class Place:
    root: Path
    sizes: Sizes

    def say(self, text: str) -> None:
        say(text)


class Crowd(Clients):
    """The local Slack and its people; see `slack_crowd.py` for what can be asked of it."""

    program = "benchmarks.slack_crowd"

    def __init__(self) -> None:
        super().__init__("")


class Bare:
    """The client that only acknowledges, on a Slack of its own."""

    def __init__(self, api_base_url: str) -> None:
        self._api_base_url = api_base_url
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.slack_bare",
            self._api_base_url,
            cwd=ROOT,
            start_new_session=True,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


def gateway(directory: Path, api_base_url: str) -> Server:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "bot.py").write_text(BOT)
    slack = {
        "enabled": True,
        "bot_token": BOT_TOKEN,
        "app_token": APP_TOKEN,
        "api_base_url": api_base_url,
    }
    return servers.parley(
        directory,
        agents={"default": {"kind": "python", "path": "bot:reply"}},
        channels={"slack": slack},
        limits={"messages_per_minute": 0, "running_turns": 1_000, "turn_seconds": 3_600},
        sessions={"file_cap": 0, "mailbox_depth": 10_000, "when_busy": "collect"},
    )


@asynccontextmanager
async def connected(place: Place, name: str) -> AsyncIterator[tuple[Server, Crowd]]:
    async with Crowd() as crowd:
        url = await crowd.call("start")
        async with gateway(place.root / name, url) as server:
            await crowd.call("connected")
            yield server, crowd


async def ack(place: Place) -> list[Figure]:
    """From the envelope to its acknowledgement, while answers grow and others are given."""
    sizes = place.sizes
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    medians: dict[str, list[float]] = {"ours": [], "bare": []}
    async with (
        connected(place, "ack") as (server, ours),
        Crowd() as other,
        Bare(await other.call("start")),
    ):
        await other.call("connected")
        await ours.call("gather", chats=sizes.streams + sizes.chats)
        await other.call("gather", chats=sizes.chats)
        await ours.call("streams", count=sizes.streams)
        sides = {"ours": (ours, sizes.streams), "bare": (other, 0)}
        pace = {"per_second": sizes.per_second}
        for crowd, skip in sides.values():
            # The first message of a chat makes its file, and its sender's name is asked for.
            await crowd.call("paced", **pace, count=sizes.chats, skip=skip)
        for number in range(sizes.rounds):
            place.say(f"ack: round {number + 1} of {sizes.rounds}")
            found: dict[str, list[float]] = {"ours": [], "bare": []}
            # In short slices, so that what else the machine does hits both alike.
            for _ in range(sizes.slices):
                for name, (crowd, skip) in sides.items():
                    count = sizes.paced // sizes.slices
                    found[name] += await crowd.call("paced", **pace, count=count, skip=skip)
            for name, seconds in found.items():
                times[name].append(percentile(seconds, 99))
                medians[name].append(percentile(seconds, 50))
        await ours.call("still", count=sizes.streams)
        slow_disk = _is_slow(server)
    title = f"envelope to ack, p99; {sizes.chats} chats, {sizes.streams} streams"
    facts: dict[str, Any] = {"medians": medians, "slow_disk": slow_disk}
    return [compare("ack", title, times["ours"], times["bare"], "bare", Goal(3), **facts)]


async def events(place: Place) -> list[Figure]:
    """As many as the gateway takes; each is answered too, by Web API calls."""
    sizes = place.sizes
    async with connected(place, "events") as (server, crowd):
        await crowd.call("gather", chats=sizes.chats)
        place.say(f"events: {sizes.events:,}")
        seconds = await crowd.call("burst", count=sizes.events, at_once=sizes.at_once)
        lost, doubled = _faults(place.root / "events", await crowd.call("said"))
        slow_disk = _is_slow(server)
    title, rate = "events taken: policy, append, ack", sizes.events / seconds
    return [
        compare("events", title, [rate], None, "", unit="/s", slow_disk=slow_disk),
        _none("events-lost", f"of {sizes.events:,} lost, doubled or reordered", lost, doubled),
    ]


async def storm(place: Place) -> list[Figure]:
    """Slack asks the socket to leave, again and again, while messages come."""
    sizes = place.sizes
    size = {
        "disconnects": sizes.disconnects,
        "count": sizes.storm_events,
        "seconds": sizes.storm_seconds,
    }
    resident: list[float] = []
    sockets, facts = 0, dict[str, int]()
    async with connected(place, "storm") as (server, crowd):
        await crowd.call("gather", chats=sizes.chats)
        for number in range(2):
            # The first storm fills caches and pools; the second must find them large enough.
            place.say(f"storm: {number + 1} of 2")
            facts = await crowd.call("storm", **size)
            sockets = await crowd.call("quiet", seconds=sizes.quiet_seconds)
            resident.append(server.resident_bytes / 1e6)
        lost, doubled = _faults(place.root / "storm", await crowd.call("said"))
    title = f"{sizes.disconnects} disconnects"
    before, after = resident
    return [
        _none("storm-lost", f"{title}: lost, doubled or reordered", lost, doubled, **facts),
        compare("storm-sockets", f"{title}: sockets left", [sockets], [1], "one", Goal(1), ""),
        compare(
            "storm-memory", f"{title}: memory after", [after], [before], "before", Goal(1.1), "MB"
        ),
    ]


def _is_slow(server: Server) -> bool:
    """A write stood still for so long that the store wrote in a thread from then on."""
    return "session disk slow" in server.log


def _none(row: str, title: str, lost: int, doubled: int, **facts: Any) -> Figure:
    goal = Goal(0, absolute=True)
    found = [float(lost + doubled)]
    return compare(row, title, found, None, "", goal, "", lost=lost, doubled=doubled, **facts)


def _faults(directory: Path, said: dict[str, list[str]]) -> tuple[int, int]:
    """What was acknowledged and is not in the logs; what is there twice or out of order."""
    lost = doubled = 0
    for channel, ids in said.items():
        path = directory / "data" / "sessions" / "slack" / f"{channel}.jsonl"
        rows = map(json.loads, path.read_bytes().splitlines()) if path.exists() else ()
        logged = [row["id"] for row in rows if row.get("role") == "user"]
        times = Counter(logged)
        lost += sum(times[ts] == 0 for ts in ids)
        doubled += sum(times[ts] > 1 for ts in ids) + (logged != sorted(logged))
    return lost, doubled


BENCHMARKS: dict[Measure[Place], tuple[str, ...]] = {
    ack: ("ack",),
    events: ("events", "events-lost"),
    storm: ("storm-lost", "storm-sockets", "storm-memory"),
}


def prepare(root: Path, sizes: Sizes, _: Path | None) -> AbstractContextManager[Place]:
    return nullcontext(Place(root, sizes))


PACKAGES = ("websockets", "aiohttp", "slack-sdk", "uvloop", "msgspec")
SUITE = Suite("slack", "slack", __doc__, BENCHMARKS, Sizes(), QUICK, prepare, PACKAGES)

if __name__ == "__main__":
    sys.exit(main(SUITE))
