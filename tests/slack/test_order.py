"""Messages of one chat are answered as they were said, not as they came."""

from __future__ import annotations

import json
from typing import Any

from tests.http.daemon import Daemon
from tests.slack.conftest import Run, crash, heard, restart
from tests.support.slack import USER, LocalSlack, Message
from tests.support.slack import events as slack_events

GATED = """
import asyncio, json, pathlib

async def reply(turn):
    with pathlib.Path("turns.jsonl").open("a") as file:
        file.write(json.dumps([turn.text, turn.attempt]) + "\\n")
    while turn.attempt == 1 and not pathlib.Path(f"go-{turn.text}").exists():
        await asyncio.sleep(0.02)
    yield turn.text
"""


def turns(daemon: Daemon) -> list[Any]:
    path = daemon.directory / "turns.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def write(slack: LocalSlack, *texts: str) -> list[Message]:
    """Said now; Slack tells nobody yet."""
    told, slack.subscriptions = slack.subscriptions, set()
    said = [await slack.say(USER, slack.dm(USER), text) for text in texts]
    slack.subscriptions = told
    return said


async def tell(slack: LocalSlack, *messages: Message) -> None:
    """One after the other, each once the one before is acknowledged."""
    for message in messages:
        slack.tell(slack.workspace, slack_events.message(slack.workspace, message))
        await slack.acked(message)


async def until_asked(slack: LocalSlack, daemon: Daemon, count: int) -> None:
    await slack.until(lambda: len(turns(daemon)) == count)


def release(daemon: Daemon, *texts: str) -> None:
    for text in texts:
        (daemon.directory / f"go-{text}").touch()


async def test_an_older_message_that_comes_later_is_answered_first(
    slack: LocalSlack, run: Run
) -> None:
    """Slack brings a message again when its acknowledgement was lost; others have passed it."""
    daemon = await run(bot=GATED)
    zero, one, two = await write(slack, "zero", "one", "two")
    await tell(slack, zero)
    await until_asked(slack, daemon, 1)
    await tell(slack, two, one)
    release(daemon, "zero", "one", "two")

    await heard(slack, ["zero", "one", "two"], slack.dm(USER))


async def test_a_command_keeps_its_place_too(slack: LocalSlack, run: Run) -> None:
    """A new conversation begins after what was said before it."""
    daemon = await run(bot=GATED)
    zero, one, new = await write(slack, "zero", "one", "!new")
    await tell(slack, zero)
    await until_asked(slack, daemon, 1)
    await tell(slack, new, one)
    release(daemon, "zero", "one")

    await heard(slack, ["zero", "one", "This is a new conversation."], slack.dm(USER))


async def test_what_was_begun_is_finished_before_an_older_one(slack: LocalSlack, run: Run) -> None:
    """The older one came while the other was being answered, and then the process died."""
    daemon = await run(bot=GATED)
    one, two = await write(slack, "one", "two")
    await tell(slack, two)
    await until_asked(slack, daemon, 1)
    await tell(slack, one)
    await crash(daemon)
    release(daemon, "one", "two")
    await restart(daemon)
    await heard(slack, ["two", "one"], slack.dm(USER))

    assert turns(daemon) == [["two", 1], ["two", 2], ["one", 1]]


async def test_an_older_one_that_was_begun_is_finished_first(slack: LocalSlack, run: Run) -> None:
    """It is not the first of the log that waits, but it is the one that was being answered."""
    daemon = await run(bot=GATED)
    zero, one, two = await write(slack, "zero", "one", "two")
    await tell(slack, zero)
    await until_asked(slack, daemon, 1)
    await tell(slack, two, one)
    release(daemon, "zero", "two")
    await until_asked(slack, daemon, 2)
    await crash(daemon)
    await restart(daemon)
    await heard(slack, ["zero", "one", "two"], slack.dm(USER))

    assert turns(daemon) == [["zero", 1], ["one", 1], ["one", 2], ["two", 1]]
