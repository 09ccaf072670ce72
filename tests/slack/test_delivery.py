"""Answers on a Slack that misbehaves, and what people do with them."""

from __future__ import annotations

import re
from typing import Any

from tests.http.daemon import Daemon
from tests.slack.conftest import ECHO, GATED, Run, buttons, heard, restart, said, words
from tests.support.slack import (
    CHANNEL,
    OTHER_USER,
    USER,
    LocalSlack,
    Message,
    drop_after,
    hang,
    http_error,
    refused,
)

COUNTED = """
import itertools
numbers = itertools.count(1)

async def reply(turn):
    yield f"answer {next(numbers)}"
"""
ENDLESS = """
import asyncio

async def reply(turn):
    yield "working"
    await asyncio.sleep(3600)
"""


async def conserved(daemon: Daemon) -> dict[str, float]:
    """Outcomes by name, after checking that every message received has one or waits for it."""
    client = await daemon.client()
    text = (await client.get("/metrics")).text
    found = re.findall(
        r"^parley_messages_(\w+?)(?:_total)?(?:\{(.*)\})? ([\d.]+)$", text, re.MULTILINE
    )
    total = {"received": 0.0, "outcome": 0.0, "pending": 0.0}
    outcomes: dict[str, float] = {}
    for name, labels, value in found:
        if name in total:
            total[name] += float(value)
        if name == "outcome" and (outcome := re.search(r'outcome="(\w+)"', labels)):
            outcomes[outcome[1]] = outcomes.get(outcome[1], 0) + float(value)
    assert total["received"] == total["outcome"] + total["pending"]
    return outcomes


async def test_the_answer_to_a_post_is_lost(slack: LocalSlack, run: Run) -> None:
    """It was processed; it is found and not posted again."""
    slack.faults.put("chat.postMessage", drop_after())
    daemon = await run(bot=ECHO)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await heard(slack, ["hello"], CHANNEL, asked.ts)
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["hello"]
    assert len(slack.called("chat.postMessage")) == 1


async def test_the_answer_to_a_post_is_lost_in_a_long_thread(slack: LocalSlack, run: Run) -> None:
    """It is found however much was said before it."""
    daemon = await run(bot=GATED, slack={"streaming": "off"})
    asked = await slack.say(USER, CHANNEL, "go on", mention=True)
    await daemon.logged("turn started")
    for _ in range(450):
        chatter = Message(CHANNEL, slack.clock.ts(), OTHER_USER, "blah", thread_ts=asked.ts)
        slack.workspace.post(chatter)
    slack.faults.put("chat.postMessage", drop_after())
    (daemon.directory / "go").touch()
    await heard(slack, ["first second"], CHANNEL, asked.ts)
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["first second"]


async def test_a_stream_whose_start_is_lost(slack: LocalSlack, run: Run) -> None:
    """A stream carries no mark, and yet it is found."""
    slack.faults.put("chat.startStream", drop_after())
    daemon = await run(bot=GATED, slack={"streaming": "native"})
    asked = await slack.say(USER, CHANNEL, "go on", mention=True)
    await slack.until(lambda: said(slack, CHANNEL, asked.ts) == ["first "])
    (daemon.directory / "go").touch()
    await heard(slack, ["first second"], CHANNEL, asked.ts)
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["first second"]


async def test_slack_is_out_of_order(slack: LocalSlack, run: Run) -> None:
    """Error pages and answers that never come: it is tried again, and arrives once."""
    slack.faults.put("chat.postMessage", http_error(502), times=2)
    slack.faults.put("chat.postMessage", http_error(200))
    slack.faults.put("chat.postMessage", hang())
    daemon = await run(bot=ECHO, slack={"streaming": "off"})
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await heard(slack, ["hello"], CHANNEL, asked.ts)
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["hello"]


async def test_blocks_are_refused(slack: LocalSlack, run: Run) -> None:
    """Then the answer comes as plain text."""
    with_blocks = refused("invalid_blocks")
    for method in ("chat.postMessage", "chat.update"):
        slack.faults.put(method, with_blocks, times=None, when=lambda args: bool(args["blocks"]))
    daemon = await run(bot=ECHO)
    asked = await slack.say(USER, CHANNEL, "hello **there**", mention=True)
    await heard(slack, ["hello *there*"], CHANNEL, asked.ts)
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["hello *there*"]


async def test_a_message_that_was_deleted(slack: LocalSlack, run: Run) -> None:
    """The growing answer is gone; the whole one arrives nevertheless, and once."""
    daemon = await run(bot=GATED)
    asked = await slack.say(USER, CHANNEL, "go on", mention=True)
    await slack.until(lambda: said(slack, CHANNEL, asked.ts) == ["first "])
    [growing] = slack.answers(CHANNEL, asked.ts)
    growing.deleted = True
    slack.faults.put("chat.postMessage", drop_after())
    (daemon.directory / "go").touch()
    await heard(slack, ["first second"], CHANNEL, asked.ts)
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["first second"]


async def test_a_place_that_is_closed(slack: LocalSlack, run: Run) -> None:
    """What cannot be delivered is noted, also for the next start, and the next reply goes on."""
    daemon = await run(bot=COUNTED, slack={"streaming": "off"})
    room = slack.add_channel("room")
    slack.faults.put("chat.postMessage", refused("is_archived"))
    asked = await slack.say(USER, room, "one", mention=True)
    failed = await daemon.logged("delivery failed")
    await slack.say(USER, room, "two", thread_ts=asked.ts)
    await heard(slack, ["answer 2"], room, asked.ts)
    await daemon.stop()
    await restart(daemon)
    await daemon.stop()

    assert failed["reason"] == "is_archived"
    assert said(slack, room, asked.ts) == ["answer 2"]


async def test_stop_ends_a_run(slack: LocalSlack, run: Run) -> None:
    """The button does, and the message says so; pressed again it is already finished."""
    daemon = await run(bot=ENDLESS)
    asked = await slack.say(USER, CHANNEL, "begin", mention=True)
    await slack.until(lambda: said(slack, CHANNEL, asked.ts) == ["working"])
    [answer] = slack.answers(CHANNEL, asked.ts)
    value = answer.blocks[-1]["elements"][0]["value"]
    await slack.press(USER, answer, "parley_stop")
    ended = await daemon.logged("turn ended")
    await heard(slack, ["working\n\n_Stopped._"], CHANNEL, asked.ts)
    await slack.say(USER, CHANNEL, "again", thread_ts=asked.ts)
    await slack.until(lambda: len(slack.answers(CHANNEL, asked.ts)) == 2)
    await slack.press(USER, answer, "parley_stop", value)
    await slack.until(lambda: bool(slack.ephemerals))

    assert ended["outcome"] == "stopped"
    assert "already finished" in words(slack.ephemerals[0])
    assert said(slack, CHANNEL, asked.ts)[1] == "working"
    assert (await conserved(daemon))["stopped"] == 1


async def test_commands_while_an_answer_grows(slack: LocalSlack, run: Run) -> None:
    """An immediate one is answered beside it; `!stop` ends it."""
    daemon = await run(bot=ENDLESS)
    asked = await slack.say(USER, CHANNEL, "begin", mention=True)
    await slack.until(lambda: said(slack, CHANNEL, asked.ts) == ["working"])
    await slack.say(USER, CHANNEL, "!status", thread_ts=asked.ts)
    await slack.until(lambda: "answering since" in "".join(said(slack, CHANNEL, asked.ts)))
    await slack.say(USER, CHANNEL, "!stop", mention=True, thread_ts=asked.ts)
    await slack.until(lambda: len(slack.answers(CHANNEL, asked.ts)) == 3)
    await slack.until(lambda: said(slack, CHANNEL, asked.ts)[0] == "working\n\n_Stopped._")
    outcomes = await conserved(daemon)
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts)[2] == "Stopped."
    assert (outcomes["stopped"], outcomes["command"]) == (1, 2)


async def test_regenerate(slack: LocalSlack, run: Run) -> None:
    """A new answer to the same question; pressed twice it is wanted once."""
    daemon = await run(bot=COUNTED)
    asked = await slack.say(USER, CHANNEL, "a question", mention=True)
    await heard(slack, ["answer 1"], CHANNEL, asked.ts)
    [first] = slack.answers(CHANNEL, asked.ts)
    for _ in range(2):
        await slack.press(USER, first, "parley_regenerate")
    await heard(slack, ["answer 1", "answer 2"], CHANNEL, asked.ts)
    await slack.say(USER, CHANNEL, "another", thread_ts=asked.ts)
    await heard(slack, ["answer 1", "answer 2", "answer 3"], CHANNEL, asked.ts)
    second = slack.answers(CHANNEL, asked.ts)[1]
    await slack.press(USER, second, "parley_regenerate")
    await slack.until(lambda: bool(slack.ephemerals))
    await daemon.stop()

    assert "last answer" in words(slack.ephemerals[0])
    assert said(slack, CHANNEL, asked.ts) == ["answer 1", "answer 2", "answer 3"]


async def test_a_proactive_message(slack: LocalSlack, run: Run) -> None:
    """It is posted where its key says, once, without buttons."""
    daemon = await run(bot=ECHO)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await heard(slack, ["hello"], CHANNEL, asked.ts)
    client = await daemon.client()
    body: dict[str, Any] = {"key": f"slack:{CHANNEL}:{asked.ts}", "text": "By the way", "id": "p1"}
    first = await client.post("/api/v1/messages", json=body)
    second = await client.post("/api/v1/messages", json=body)
    await heard(slack, ["hello", "By the way"], CHANNEL, asked.ts)
    await daemon.stop()

    assert (first.status_code, second.status_code) == (202, 202)
    assert said(slack, CHANNEL, asked.ts) == ["hello", "By the way"]
    assert buttons(slack.answers(CHANNEL, asked.ts)[1]) == []


async def test_a_stop_of_the_gateway(slack: LocalSlack, run: Run) -> None:
    """A growing answer ends with what there is, and says so; the next start changes nothing."""
    daemon = await run(bot=ENDLESS, server={"shutdown_seconds": 0.5})
    asked = await slack.say(USER, CHANNEL, "begin", mention=True)
    await slack.until(lambda: said(slack, CHANNEL, asked.ts) == ["working"])
    code = await daemon.stop()
    stopped = said(slack, CHANNEL, asked.ts)
    await restart(daemon)
    await daemon.stop()

    assert code == 0
    assert stopped == ["working\n\n_Interrupted._"]
    assert said(slack, CHANNEL, asked.ts) == stopped


async def test_feedback(slack: LocalSlack, run: Run) -> None:
    """It is kept in the log, and whoever gave it is thanked."""
    daemon = await run(bot=ECHO)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await heard(slack, ["hello"], CHANNEL, asked.ts)
    [answer] = slack.answers(CHANNEL, asked.ts)
    await slack.press(OTHER_USER, answer, "parley_good")
    await slack.until(lambda: bool(slack.ephemerals))
    [file] = (daemon.data / "sessions" / "slack").glob("*.jsonl")

    assert slack.ephemerals[0].ephemeral_to == OTHER_USER
    assert '"feedback"' in file.read_text()
