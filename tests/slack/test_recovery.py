"""kill -9 at every point of a delivery: afterwards there is exactly one answer, and it is whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.http.daemon import Daemon
from tests.slack.conftest import ECHO, GATED, Run, crash, heard, restart, said
from tests.support.slack import CHANNEL, USER, Fault, LocalSlack, delayed, drop_after, hang

LONG = """
async def reply(turn):
    yield "".join(f"Sentence {n:05d} of the text.\\n\\n" for n in range(900))
"""
When = Callable[[Mapping[str, Any]], bool]


def part(number: int) -> When:
    return lambda args: args["metadata"]["event_payload"]["part"] == number


def final(args: Mapping[str, Any]) -> bool:
    return "parley_regenerate" in json.dumps(args["blocks"])


def rows(daemon: Daemon) -> list[dict[str, Any]]:
    files = (daemon.data / "sessions" / "slack").glob("*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    "fault",
    [hang(), hang(processed=True), delayed(0.5), drop_after()],
    ids=["before", "after", "late", "lost"],
)
async def test_killed_around_the_post(slack: LocalSlack, run: Run, fault: Fault) -> None:
    """Before it was processed, after it was but nobody knows, or when it is processed later."""
    daemon = await run(bot=ECHO, slack={"streaming": "off"})
    slack.faults.put("chat.postMessage", fault)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await slack.until(lambda: slack.called("chat.postMessage"))
    await crash(daemon)
    await restart(daemon)
    await heard(slack, ["hello"], CHANNEL, asked.ts)
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["hello"]


@pytest.mark.parametrize("streaming", ["edit", "native"])
@pytest.mark.parametrize("known", [True, False], ids=["noted", "not noted"])
async def test_killed_in_mid_stream(
    slack: LocalSlack, run: Run, streaming: str, known: bool
) -> None:
    """The message that was growing is taken up again, whether or not its post was noted."""
    daemon = await run(bot=GATED, slack={"streaming": streaming})
    if not known:
        method = "chat.startStream" if streaming == "native" else "chat.postMessage"
        slack.faults.put(method, hang(processed=True))
    asked = await slack.say(USER, CHANNEL, "go on", mention=True)
    await slack.until(lambda: said(slack, CHANNEL, asked.ts) == ["first "])
    if known:
        await slack.until(lambda: "stream" in json.dumps(rows(daemon)))
    await crash(daemon)
    await restart(daemon)
    await heard(slack, ["first second"], CHANNEL, asked.ts)
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["first second"]


@pytest.mark.parametrize("processed", [True, False])
async def test_killed_between_two_parts(slack: LocalSlack, run: Run, processed: bool) -> None:
    daemon = await run(bot=LONG, slack={"streaming": "off"})
    slack.faults.put("chat.postMessage", hang(processed=processed), when=part(1))
    asked = await slack.say(USER, CHANNEL, "at length", mention=True)
    await slack.until(lambda: len(slack.called("chat.postMessage")) == 2)
    await crash(daemon)
    await restart(daemon)
    await slack.until(lambda: "Sentence 00899" in "".join(said(slack, CHANNEL, asked.ts)))
    await daemon.stop()

    lines = "\n".join(said(slack, CHANNEL, asked.ts)).split("\n")
    assert [line for line in lines if line] == [
        f"Sentence {n:05d} of the text." for n in range(900)
    ]


@pytest.mark.parametrize("processed", [True, False])
async def test_killed_around_the_last_edit(slack: LocalSlack, run: Run, processed: bool) -> None:
    """Nobody noted that it was delivered: it is edited once more to the same text."""
    daemon = await run(bot=GATED)
    slack.faults.put("chat.update", hang(processed=processed), when=final)
    asked = await slack.say(USER, CHANNEL, "go on", mention=True)
    await slack.until(lambda: said(slack, CHANNEL, asked.ts) == ["first "])
    (daemon.directory / "go").touch()
    await slack.until(lambda: any(final(call.args) for call in slack.called("chat.update")))
    await crash(daemon)
    await restart(daemon)
    await heard(slack, ["first second"], CHANNEL, asked.ts)
    await slack.until(lambda: not any(asked.reactions.values()))
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["first second"]


async def test_a_stream_is_not_mistaken_for_another(slack: LocalSlack, run: Run) -> None:
    """The answer to an earlier question came after the later one was asked; it stays as it is."""
    bot = GATED.replace('"go"', "turn.text")
    daemon = await run(bot=bot, slack={"streaming": "native"})
    first = await slack.say(USER, CHANNEL, "one", mention=True)
    await slack.until(lambda: said(slack, CHANNEL, first.ts) == ["first "])
    second = await slack.say(USER, CHANNEL, "two", thread_ts=first.ts)
    await slack.acked(second)
    slack.faults.put("chat.startStream", hang())
    (daemon.directory / "one").touch()
    await slack.until(lambda: len(slack.called("chat.startStream")) == 2)
    await crash(daemon)
    await restart(daemon)
    await heard(slack, ["first second"] * 2, CHANNEL, first.ts)
    await daemon.stop()

    assert said(slack, CHANNEL, first.ts) == ["first second"] * 2


async def test_what_was_acknowledged_is_in_the_log(slack: LocalSlack, run: Run) -> None:
    """Killed while messages pour in: every acknowledged one is there, and answered in the end."""
    daemon = await run(bot=ECHO)
    asked = [await slack.say(USER, CHANNEL, f"message {n}", mention=True) for n in range(30)]
    await slack.until(lambda: sum(envelope.acked for envelope in slack.envelopes) > 10)
    await crash(daemon)
    acked = {e.event["ts"] for e in slack.envelopes if e.acked and e.event.get("user") == USER}
    logged = {row.get("id") for row in rows(daemon)}
    await restart(daemon)
    for n, message in enumerate(asked):
        await heard(slack, [f"message {n}"], CHANNEL, message.ts)
    await daemon.stop()

    assert acked
    assert acked <= logged
    assert [said(slack, CHANNEL, m.ts) for m in asked] == [[f"message {n}"] for n in range(30)]


async def test_an_event_that_comes_again(slack: LocalSlack, run: Run) -> None:
    """In the same process and in the next one: it is one message."""
    daemon = await run(bot=ECHO)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await heard(slack, ["hello"], CHANNEL, asked.ts)
    told = slack.told(asked)
    for envelope in told:
        slack.socket_mode.redeliver(envelope)
    await slack.until(lambda: len(slack.acks) >= 2 * len(told))
    await daemon.stop()
    await restart(daemon)
    before = len(slack.acks)
    for envelope in told:
        slack.socket_mode.redeliver(envelope)
    await slack.until(lambda: len(slack.acks) >= before + len(told))
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["hello"]


async def test_a_message_that_cannot_be_stored(slack: LocalSlack, run: Run) -> None:
    """It is not acknowledged, so it comes again, and is answered once it can be stored."""
    daemon = await run(bot=ECHO)
    blocked = daemon.data / "sessions" / "slack"
    blocked.touch()  # A file where the directory should be.
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await slack.until(lambda: len(slack.told(asked)[0].ids) > 2)
    acked = [envelope.acked for envelope in slack.told(asked)]
    blocked.unlink()
    await heard(slack, ["hello"], CHANNEL, asked.ts)
    await slack.acked(asked)

    assert not any(acked)
