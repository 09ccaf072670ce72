"""What every benchmark of the gateway is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.suite import say

TEXT = "Could you tell me what the weather in Lisbon is like"
"""What everybody says. The echo agent answers it word by word."""


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 5
    connections: int = 100
    turns: int = 60
    """Turns of each connection in a round."""
    peer_turns: int = 30
    """Turns of the peer in a round."""
    paced: int = 1_000
    """Turns of a round in which they come at even intervals."""
    per_second: float = 200.0
    """How many of those in a second."""
    long: int = 2_000
    """Messages of a long session."""
    short: int = 10
    chats: int = 10
    """Sessions of each length."""
    chat_turns: int = 20
    """Turns in each of them in a round."""
    idle: int = 1_000
    """Connections that do nothing."""
    watchers: int = 1_000
    """Connections attached to one chat."""
    messages: int = 10
    """Messages sent to them in a round."""
    stored: int = 100_000
    """Sessions on disk at the start."""
    settle_seconds: float = 2.0
    """How long a process has been left alone when it counts as idle."""


QUICK = Sizes(
    rounds=3,
    connections=5,
    turns=3,
    peer_turns=2,
    paced=20,
    long=40,
    chats=2,
    chat_turns=2,
    idle=20,
    watchers=20,
    messages=2,
    stored=50,
    settle_seconds=0.1,
)


@dataclass(frozen=True, slots=True)
class Field:
    root: Path
    """On the file system of the repository; removed at the end."""
    sizes: Sizes
    peer: Path | None
    """The Python of the peer's environment."""

    def say(self, text: str) -> None:
        say(text)
