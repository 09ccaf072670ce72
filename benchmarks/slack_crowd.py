"""The tests' Slack with a crowd in it, in a process of its own.

The bench tells what to do over pipes, one line of JSON each way. The time of an envelope is taken
here: from the moment it is handed to the socket until its acknowledgement is read.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import uvloop

from tests.support.slack import LocalSlack, events
from tests.support.slack.socket_mode import Envelope
from tests.support.slack.workspace import Message

PATIENCE_SECONDS = 180.0
LOOK_SECONDS = 0.005


class Crowd:
    def __init__(self) -> None:
        self._slack = LocalSlack()
        self._chats: list[tuple[str, str]] = []
        self._said: dict[str, list[str]] = {}
        self._sent = 0

    # -- what the bench may ask for ------------------------------------------------------------

    async def start(self) -> str:
        await self._slack.start()
        return self._slack.api_base_url

    async def connected(self) -> None:
        """Waits for exactly one socket that was greeted."""
        await self._until(lambda: self._greeted() == [True])

    async def gather(self, chats: int) -> None:
        """So many people, each in a direct message of their own."""
        for number in range(len(self._chats), len(self._chats) + chats):
            user = self._slack.add_user(name=f"person-{number}").id
            self._chats.append((user, self._slack.dm(user)))

    async def streams(self, count: int) -> None:
        """The first ones ask for an answer that does not end; waits until each has begun."""
        begun = []
        for user, channel in self._chats[:count]:
            self._say(user, channel, "stream")
            begun.append(channel)
        await self._until(lambda: all(self._slack.answers(channel) for channel in begun))

    async def still(self, count: int) -> None:
        """They have heard enough."""
        sent = [self._say(user, channel, "!stop") for user, channel in self._chats[:count]]
        await self._until(lambda: all(envelope.acked for envelope in sent))

    async def paced(self, per_second: float, count: int, skip: int) -> list[float]:
        """Messages at even intervals, one chat after the other; seconds until each was acked."""
        started = time.monotonic()
        sent: list[tuple[float, Envelope]] = []
        for number in range(count):
            delay = started + number / per_second - time.monotonic()
            if delay > 0:
                await asyncio.sleep(delay)
            sent.append((time.monotonic(), self._next(skip)))
        await self._until(lambda: all(envelope.acked for _, envelope in sent))
        return [(envelope.acked_at or 0.0) - at for at, envelope in sent]

    async def burst(self, count: int, at_once: int) -> float:
        """As many as possible, so many under way at a time; seconds for all of them."""
        started = time.monotonic()
        waiting: set[int] = set()
        sent: list[Envelope] = []

        def room() -> bool:
            waiting.difference_update([at for at in waiting if sent[at].acked])
            return len(waiting) < at_once

        for number in range(count):
            sent.append(self._next(0))
            waiting.add(number)
            if len(waiting) >= at_once:
                await self._until(room)
        await self._until(lambda: all(envelope.acked for envelope in sent))
        return time.monotonic() - started

    async def storm(self, disconnects: int, count: int, seconds: float) -> dict[str, int]:
        """Sockets are asked to leave, evenly over the time in which messages come."""
        dials, sent = len(self._slack.socket_mode.dials), []
        moments = sorted(
            [(at * seconds / disconnects, True) for at in range(disconnects)]
            + [(at * seconds / count, False) for at in range(count)]
        )
        started = time.monotonic()
        for at, leave in moments:
            delay = started + at - time.monotonic()
            if delay > 0:
                await asyncio.sleep(delay)
            if leave:
                await self._slack.disconnect("refresh_requested")
            else:
                sent.append(self._next(0))
        await self._until(lambda: all(envelope.acked for envelope in sent))
        await self._until(lambda: self._greeted() == [True])
        return {
            "dials": len(self._slack.socket_mode.dials) - dials,
            "redelivered": sum(len(envelope.ids) - 1 for envelope in sent),
        }

    async def quiet(self, seconds: float) -> int:
        """Waits until nothing is asked of Slack for so long; the sockets that are left."""
        seen = -1
        while seen != (seen := len(self._slack.calls)):
            await asyncio.sleep(seconds)
        return len(self._slack.sockets)

    async def said(self) -> dict[str, list[str]]:
        """The ids of everything that was acknowledged, by channel, in order."""
        return self._said

    # -- how -----------------------------------------------------------------------------------

    def _next(self, skip: int) -> Envelope:
        chats = self._chats[skip:]
        user, channel = chats[self._sent % len(chats)]
        self._sent += 1
        return self._say(user, channel, f"message {self._sent} of many")

    def _say(self, user: str, channel: str, text: str) -> Envelope:
        workspace = self._slack.workspace
        message = Message(channel, workspace.clock.ts(), user, text, team=workspace.team_id)
        workspace.post(message)
        self._said.setdefault(channel, []).append(message.ts)
        told = self._slack.tell(workspace, events.message(workspace, message))
        assert told is not None
        return told

    def _greeted(self) -> list[bool]:
        return [socket.greeted for socket in self._slack.sockets]

    async def _until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not reached():
                await asyncio.sleep(LOOK_SECONDS)


async def main() -> None:
    crowd = Crowd()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        name, arguments = json.loads(line)
        answer: dict[str, Any]
        try:
            answer = {"answer": await getattr(crowd, name)(**arguments)}
        except TimeoutError:
            answer = {"error": f"{name}: it never came to that"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
