"""Who is answered, through a real gateway."""

from __future__ import annotations

from tests.slack.conftest import ECHO, Run, heard, restart, said, words
from tests.support.slack import CHANNEL, OTHER_USER, USER, LocalSlack

ENDLESS = """
import asyncio

async def reply(turn):
    yield "working"
    await asyncio.sleep(3600)
"""


async def test_a_denied_user_is_told_once(slack: LocalSlack, run: Run) -> None:
    """Politely, to them alone, once an hour; nothing is logged and no agent runs."""
    daemon = await run(bot=ECHO, slack={"users": [USER]})
    denied = [await slack.say(OTHER_USER, CHANNEL, "me too", mention=True) for _ in range(3)]
    allowed = await slack.say(USER, CHANNEL, "hello", mention=True)
    await heard(slack, ["hello"], CHANNEL, allowed.ts)
    await slack.until(lambda: all(envelope.acked for envelope in slack.envelopes))
    await daemon.stop()

    [notice] = slack.ephemerals
    assert notice.ephemeral_to == OTHER_USER
    assert "not allowed" in words(notice)
    assert [said(slack, CHANNEL, message.ts) for message in denied] == [[], [], []]
    assert len([*(daemon.data / "sessions" / "slack").glob("*.jsonl")]) == 1


async def test_buttons_ask_again_who_presses_them(slack: LocalSlack, run: Run) -> None:
    """Somebody who would not be answered cannot stop an answer either."""
    daemon = await run(bot=ENDLESS, slack={"users": [USER]})
    asked = await slack.say(USER, CHANNEL, "begin", mention=True)
    await slack.until(lambda: said(slack, CHANNEL, asked.ts) == ["working"])
    [answer] = slack.answers(CHANNEL, asked.ts)
    await slack.press(OTHER_USER, answer, "parley_stop")
    await slack.until(lambda: bool(slack.ephemerals))

    assert "not allowed" in words(slack.ephemerals[0])
    assert not [event for event in daemon.events if event["event"] == "turn ended"]


async def test_a_stranger_of_slack_connect(slack: LocalSlack, run: Run) -> None:
    """People of other organisations are denied unless the settings say otherwise."""
    daemon = await run(bot=ECHO)
    stranger = slack.add_user(is_stranger=True).id
    slack.workspace.channels[CHANNEL].members.add(stranger)
    asked = await slack.say(stranger, CHANNEL, "hello", mention=True)
    await slack.until(lambda: bool(slack.ephemerals))
    await daemon.stop()

    assert "members of the workspace" in words(slack.ephemerals[0])
    assert said(slack, CHANNEL, asked.ts) == []


async def test_who_is_spoken_to(slack: LocalSlack, run: Run) -> None:
    """In a channel: a mention, then every reply in its thread, also after a restart."""
    daemon = await run(bot=ECHO)
    chatter = await slack.say(USER, CHANNEL, "not for you")
    asked = await slack.say(USER, CHANNEL, "one", mention=True)
    await heard(slack, ["one"], CHANNEL, asked.ts)
    await daemon.stop()
    await restart(daemon)
    other = await slack.bot_says(CHANNEL, "I am a bot")
    await slack.say(OTHER_USER, CHANNEL, "two", thread_ts=asked.ts)
    await heard(slack, ["one", "two"], CHANNEL, asked.ts)
    await slack.until(lambda: all(envelope.acked for envelope in slack.envelopes))
    await daemon.stop()

    assert said(slack, CHANNEL, chatter.ts) == []
    assert said(slack, CHANNEL, other.ts) == []


async def test_edits_and_deletions_of_what_waits(slack: LocalSlack, run: Run) -> None:
    """Before its turn a message can still be changed or taken back."""
    daemon = await run(bot=ENDLESS.replace('"working"', "turn.text"))
    dm = slack.dm(USER)
    await slack.say(USER, dm, "begin")
    await slack.until(lambda: said(slack, dm) == ["begin"])
    waiting, gone = await slack.say(USER, dm, "typo"), await slack.say(USER, dm, "never mind")
    await slack.edit(waiting, "text")
    await slack.delete(gone)
    await slack.until(lambda: all(envelope.acked for envelope in slack.envelopes))
    await slack.press(USER, slack.answers(dm)[0], "parley_stop")
    await slack.until(lambda: said(slack, dm) == ["begin\n\n_Stopped._", "text"])
    await slack.press(USER, slack.answers(dm)[1], "parley_stop")
    await heard(slack, ["begin\n\n_Stopped._", "text\n\n_Stopped._"], dm)
    await daemon.stop()

    assert len(slack.answers(dm)) == 2


async def test_slash_commands(slack: LocalSlack, run: Run) -> None:
    """In a direct message they act; elsewhere they say where to type."""
    daemon = await run(bot=ECHO)
    dm = slack.dm(USER)
    await slack.command(USER, CHANNEL, "new")
    await slack.until(lambda: bool(slack.ephemerals))
    await slack.command(USER, dm, "session")
    await slack.until(lambda: "Key: " in "".join(said(slack, dm)))
    await daemon.stop()

    assert "!new" in words(slack.ephemerals[0])
    assert f"slack:{dm}" in said(slack, dm)[0]
