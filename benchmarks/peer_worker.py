"""Runs in the peer's environment and measures the peer. See `peer.py` for how it is spoken to.

Sessions that are measured are held here: the peer's cache keeps 128 and finds others only as long
as someone refers to them.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from loguru import logger
from nanobot.session.manager import (  # type: ignore[import-not-found]  # not in our environment
    Session,
    SessionManager,
)


class Worker:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.manager: SessionManager
        self.held: list[Session] = []

    def open(self, name: str) -> None:
        """A manager on a directory of its own; what was held before is let go."""
        self.held = []
        place = self.root / name
        self.manager = SessionManager(place / "workspace", sessions_root=place / "sessions")

    def create(self, prefix: str, sessions: int, texts: list[str]) -> None:
        for number in range(sessions):
            session = Session(key=f"{prefix}:{number}")
            for at, text in enumerate(texts):
                session.add_message("assistant" if at % 2 else "user", text)
            self.manager.save(session)

    def hold(self, prefix: str, sessions: int) -> None:
        self.held = [self.manager.get_or_create(f"{prefix}:{at}") for at in range(sessions)]

    def persist(self, turns: int, texts: list[str]) -> float:
        """Seconds per turn: two messages and a save, on every session held."""
        times = []
        for session in self.held:
            self._turn(session, texts)
            started = time.perf_counter()
            for _ in range(turns):
                self._turn(session, texts)
            times.append((time.perf_counter() - started) / turns)
        return statistics.median(times)

    def _turn(self, session: Session, texts: list[str]) -> None:
        session.add_message("user", texts[0])
        session.add_message("assistant", texts[1])
        self.manager.save(session)

    def load(self, prefix: str, numbers: list[int], *, keep: bool) -> float:
        """Seconds per load of a session that is not in memory."""
        times = []
        for number in numbers:
            key = f"{prefix}:{number}"
            self.manager.invalidate(key)
            started = time.perf_counter()
            session = self.manager.get_or_create(key)
            times.append(time.perf_counter() - started)
            assert session.messages
            if keep:
                self.held.append(session)
            del session
            self.manager.invalidate(key)
        return statistics.median(times)

    def list_all(self) -> float:
        started = time.perf_counter()
        found = self.manager.list_sessions()
        seconds = time.perf_counter() - started
        assert found
        return seconds

    def flush(self, dirty: int, texts: list[str]) -> float:
        """Seconds to make everything held durable, some of it with a turn that is not saved."""
        for session in self.held[:dirty]:
            session.add_message("user", texts[0])
            session.add_message("assistant", texts[1])
        started = time.perf_counter()
        count = self.manager.flush_all()
        seconds = time.perf_counter() - started
        assert count == len(self.held), f"{count} of {len(self.held)} sessions were flushed"
        return seconds


def main() -> None:
    logger.remove()
    worker = Worker(Path(sys.argv[1]))
    for line in sys.stdin:
        name, arguments = json.loads(line)
        answer: Any = getattr(worker, name)(**arguments)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
