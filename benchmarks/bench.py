"""What every benchmark of the session store is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.peer import Peer
from benchmarks.suite import say


@dataclass(frozen=True, slots=True)
class Sizes:
    rounds: int = 5
    long: int = 2_000
    """Messages of a long session."""
    short: int = 10
    bursts: int = 20
    """Sessions that are appended to in each round."""
    turns: int = 5
    """Turns appended to each of them in a round."""
    loads: int = 8
    """Sessions that are loaded in each round."""
    listed: int = 10_000
    many: int = 100_000
    stall_sessions: int = 40
    stall_seconds: float = 20.0
    kills: int = 200


QUICK = Sizes(
    rounds=3,
    long=40,
    bursts=3,
    turns=2,
    loads=2,
    listed=60,
    many=80,
    stall_sessions=4,
    stall_seconds=0.5,
    kills=2,
)


@dataclass(frozen=True, slots=True)
class Bench:
    root: Path
    """On the file system of the repository; removed at the end."""
    sizes: Sizes
    peer: Peer | None

    def say(self, text: str) -> None:
        say(text)
