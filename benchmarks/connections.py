"""Connections: what one that does nothing takes up, and one message for very many of them."""

from __future__ import annotations

import json

from benchmarks import sample, servers
from benchmarks.field import Field
from benchmarks.figures import Figure, Goal, compare
from benchmarks.servers import Clients, Server

CHAT = "hall"
[TEXT] = sample.texts(1)


async def memory(field: Field) -> list[Figure]:
    """The growth of a fresh process by connections that say nothing."""
    sizes = field.sizes
    root = field.root / "idle"
    ours, bare = [], []
    for number in range(sizes.rounds):
        field.say(f"idle connections: round {number + 1} of {sizes.rounds}")
        ours.append(await _growth(servers.parley(root / f"parley-{number}"), sizes.idle))
        bare.append(await _growth(servers.bare(root / f"bare-{number}", "fastapi"), sizes.idle))
    title = "memory of an idle connection"
    return [compare("idle-connection", title, ours, bare, "FastAPI", Goal(1.35), "KB")]


async def _growth(server: Server, connections: int) -> float:
    """Kilobytes for each connection but the first ones, which bring code and pools with them."""
    async with server, Clients(server.url) as clients:
        await clients.connect(max(1, connections // 10))
        before = server.resident_bytes
        await clients.connect(connections)
        return (server.resident_bytes - before) / connections / 1_000


async def spread(field: Field) -> list[Figure]:
    """From a request until the last connection has the message it causes."""
    sizes = field.sizes
    root = field.root / "spread"
    message = json.dumps({"key": f"websocket:{CHAT}", "text": TEXT})
    frame = {"type": "message", "chat_id": CHAT, "seq": 1, "role": "assistant", "content": TEXT}
    ours, bare = [], []
    parley = servers.parley(root / "parley")
    other = servers.bare(root / "bare", "echo", [json.dumps(frame, separators=(",", ":"))])
    async with parley, other, Clients(parley.url) as watchers, Clients(other.url) as receivers:
        await watchers.connect(1)
        await watchers.call("frames", chat=CHAT, text="Good morning")
        await watchers.connect(sizes.watchers - 1)
        await watchers.call("attach", chats=[CHAT])
        await receivers.connect(sizes.watchers)
        for number in range(sizes.rounds):
            field.say(f"spread: round {number + 1} of {sizes.rounds}")
            for _ in range(sizes.messages):
                ours.append(await watchers.call("spread", path="/api/v1/messages", body=message))
                bare.append(await receivers.call("spread", path="/", body=""))
    title = f"one message to {sizes.watchers:,} clients"
    return [compare("spread", title, ours, bare, "bare", Goal(1.3))]
