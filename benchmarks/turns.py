"""Turns: how many in a second, how soon the first word, and whether the history's length matters.

The bare server answers each message with exactly the frames the gateway sends for it, so both move
the same bytes; only the gateway logs, numbers and remembers them.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import AsyncExitStack
from typing import Any

from benchmarks import sample, servers
from benchmarks.field import TEXT, Field
from benchmarks.figures import Figure, Goal, compare
from benchmarks.servers import Clients, Server
from benchmarks.writing import percentile


class Sides(AsyncExitStack):
    """Servers side by side, each with clients of its own."""

    def __init__(self, field: Field, name: str) -> None:
        super().__init__()
        self.clients: dict[str, Clients] = {}
        self.servers: dict[str, Server] = {}
        self._root = field.root / name
        self._peer = field.peer

    async def parley(self, **settings: Any) -> Clients:
        return await self._add("parley", servers.parley(self._root / "parley", **settings))

    async def bare(self, frames: list[str]) -> None:
        await self._add("bare", servers.bare(self._root / "bare", "echo", frames))

    async def nanobot(self) -> None:
        if self._peer is not None:
            model = servers.fake_model(self._root / "model", TEXT)
            url = (await self.enter_async_context(model)).url
            server = servers.nanobot(self._peer, self._root / "nanobot", url)
            await self._add("nanobot", server)

    async def _add(self, name: str, server: Server) -> Clients:
        self.servers[name] = await self.enter_async_context(server)
        dialect = "nanobot" if name == "nanobot" else "parley"
        clients = Clients(server.url, dialect)
        self.clients[name] = await self.enter_async_context(clients)
        return clients

    @property
    def slow_disk(self) -> bool:
        """A write stood still for so long that the store went over to writing in a thread: on a
        machine that others use. The figures are of that mode then."""
        return "session disk slow" in self.servers["parley"].log

    async def warm_up(self, connections: int) -> None:
        for name, clients in self.clients.items():
            await clients.connect(1 if name == "nanobot" else connections)
            await clients.call("turns", each=2, text=TEXT, chat="warm")


async def _frames(parley: Clients) -> list[str]:
    """The frames of a turn, as the gateway sends them once the chat is there."""
    await parley.connect(1)
    await parley.call("frames", chat="sample", text=TEXT)
    frames: list[str] = await parley.call("frames", chat="sample", text=TEXT)
    await parley.call("disconnect")
    return frames


async def echo(field: Field) -> list[Figure]:
    """A connection sends its next message when a turn has ended: as fast as the server can."""
    sizes = field.sizes
    rates, busy = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    async with Sides(field, "echo") as sides:
        parley = await sides.parley(users=True)
        frames = await _frames(parley)
        await sides.bare(frames)
        await sides.nanobot()
        await sides.warm_up(sizes.connections)
        for number in range(sizes.rounds):
            field.say(f"echo: round {number + 1} of {sizes.rounds}")
            for name, clients in sides.clients.items():
                if name == "nanobot":
                    rates[name].append(await _best_of_peer(clients, sizes.peer_turns))
                    continue
                done = await clients.call("turns", each=sizes.turns, text=TEXT, chat="warm")
                rates[name].append(done["turns"] / done["seconds"])
                busy[name].append(round(done["busy"], 2))
        slow_disk = sides.slow_disk
    facts = {
        "frames": len(frames),
        "bytes": sum(map(len, frames)),
        "clients_busy": dict(busy),
        "slow_disk": slow_disk,
    }
    title = f"echo turns, {sizes.connections} connections"
    return [
        compare(
            "echo",
            title,
            rates["parley"],
            rates["bare"],
            "bare",
            Goal(0.35, 0.6, at_least=True),
            "/s",
            **facts,
        ),
        compare(
            "echo-nanobot",
            "the same vs nanobot, instant model",
            rates["parley"],
            rates.get("nanobot"),
            "nanobot",
            Goal(50, at_least=True),
            "/s",
        ),
    ]


async def _best_of_peer(nanobot: Clients, turns: int) -> float:
    """What it would do if every turn took what its median turn takes when it runs alone.

    With many connections, or over many turns, it does less: it stands still for seconds at a time.
    """
    found = await nanobot.call("latency", chats=["alone"], turns=turns, text=TEXT)
    return 1 / percentile(found, 50)


async def first_word(field: Field) -> list[Figure]:
    """Turns at even intervals, far below what the server could do."""
    sizes = field.sizes
    times, medians = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    async with Sides(field, "first") as sides:
        parley = await sides.parley(users=True)
        await sides.bare(await _frames(parley))
        await sides.warm_up(sizes.connections)
        for number in range(sizes.rounds):
            field.say(f"first word: round {number + 1} of {sizes.rounds}")
            for name, clients in sides.clients.items():
                found = await clients.call(
                    "paced", per_second=sizes.per_second, turns=sizes.paced, text=TEXT, chat="warm"
                )
                times[name].append(percentile(found, 99))
                medians[name].append(percentile(found, 50))
        slow_disk = sides.slow_disk
    return [
        compare(
            "first-word",
            f"first word, p99 at {sizes.per_second:g} turns/s",
            times["parley"],
            times["bare"],
            "bare",
            Goal(3),
            medians=dict(medians),
            slow_disk=slow_disk,
        )
    ]


async def length(field: Field) -> list[Figure]:
    """The same turn in long sessions and in short ones, one at a time."""
    sizes = field.sizes
    # A short session grows while it is measured, so every round has short ones of its own.
    names = {"long": "long", **{f"short{at}": "short" for at in range(sizes.rounds)}}
    chats = {name: [f"{name}-{at}" for at in range(sizes.chats)] for name in names}
    directory = field.root / "length" / "parley"
    field.say(f"length: making {sizes.chats} sessions of {sizes.long:,}")
    await sample.chats(
        directory / "data",
        {chat: getattr(sizes, names[name]) for name in names for chat in chats[name]},
    )
    times = defaultdict[str, list[float]](list)
    async with Sides(field, "length") as sides:
        parley = await sides.parley(sessions={"file_cap": 0})
        await parley.connect(1)
        for number in range(sizes.rounds):
            field.say(f"length: round {number + 1} of {sizes.rounds}")
            for name, group in (("long", "long"), ("short", f"short{number}")):
                found = await parley.call(
                    "latency", chats=chats[group], turns=sizes.chat_turns, text=TEXT
                )
                times[name].append(percentile(found, 50))
        slow = sides.slow_disk
    title = f"a turn among {sizes.long:,} messages vs {sizes.short}"
    ours, other = times["long"], times["short"]
    return [compare("length", title, ours, other, "ours", Goal(1.15), slow_disk=slow)]
