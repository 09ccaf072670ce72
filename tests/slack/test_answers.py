"""Questions in Slack and their answers, through a real gateway."""

from __future__ import annotations

from tests.slack.conftest import ECHO, GATED, Run, buttons, heard, restart, said, words
from tests.support.slack import CHANNEL, USER, LocalSlack, rate_limited, refused

PIECES = """
import asyncio

async def reply(turn):
    for piece in {pieces!r}:
        yield piece
        await asyncio.sleep(0.1)
"""


async def test_a_mention_gets_exactly_one_threaded_reply(slack: LocalSlack, run: Run) -> None:
    """It arrives as two events; it is one message in one session."""
    daemon = await run()
    asked = await slack.say(USER, CHANNEL, "hello there", mention=True)
    await slack.until(lambda: bool(slack.answers(CHANNEL, asked.ts)))
    await slack.acked(asked)
    await daemon.stop()

    [answer] = slack.answers(CHANNEL, asked.ts)
    assert words(answer) == "hello there"
    assert answer.thread_ts == asked.ts
    assert buttons(answer) == ["parley_regenerate", "parley_good", "parley_bad"]
    assert not any(asked.reactions.values())


async def test_chats_keep_their_keys(slack: LocalSlack, run: Run) -> None:
    """A direct message, a thread in it and a thread of a channel: the same after a restart."""
    daemon = await run(bot=ECHO)
    dm = slack.dm(USER)
    root = await slack.say(USER, dm, "one")
    asked = await slack.say(USER, CHANNEL, "two", mention=True)
    await slack.say(USER, dm, "three", thread_ts=root.ts)
    await heard(slack, ["three"], dm, root.ts)
    await daemon.stop()
    await restart(daemon)
    await slack.say(USER, dm, "four")
    await slack.say(USER, dm, "five", thread_ts=root.ts)
    await slack.say(USER, CHANNEL, "six", thread_ts=asked.ts)
    await heard(slack, ["one", "four"], dm)
    await heard(slack, ["three", "five"], dm, root.ts)
    await heard(slack, ["two", "six"], CHANNEL, asked.ts)
    client = await daemon.client()
    sessions = (await client.get("/api/v1/sessions?channel=slack")).json()["sessions"]

    assert {one["key"] for one in sessions} == {
        f"slack:{dm}",
        f"slack:{dm}:{root.ts}",
        f"slack:{CHANNEL}:{asked.ts}",
    }


async def test_messages_in_quick_succession(slack: LocalSlack, run: Run) -> None:
    """Each is answered once, in the order they were written."""
    daemon = await run(bot=ECHO)
    dm = slack.dm(USER)
    texts = [f"message {n}" for n in range(8)]
    for text in texts:
        await slack.say(USER, dm, text)
    await heard(slack, texts, dm)
    await daemon.stop()

    assert said(slack, dm) == texts


async def test_a_growing_answer_is_one_message(slack: LocalSlack, run: Run) -> None:
    """It is posted once and edited until it is whole; meanwhile it can be stopped."""
    daemon = await run(bot=GATED)
    asked = await slack.say(USER, CHANNEL, "go on", mention=True)
    await slack.until(lambda: said(slack, CHANNEL, asked.ts) == ["first "])
    [growing] = slack.answers(CHANNEL, asked.ts)
    shown = buttons(growing)
    (daemon.directory / "go").touch()
    await heard(slack, ["first second"], CHANNEL, asked.ts)

    assert shown == ["parley_stop"]
    assert len(slack.called("chat.postMessage")) == 1


async def test_native_streaming(slack: LocalSlack, run: Run) -> None:
    """In a thread of a direct message Slack's own streaming shows the answer."""
    daemon = await run(bot=GATED)
    dm = slack.dm(USER)
    root = await slack.say(USER, dm, "hello")
    asked = await slack.say(USER, dm, "go on", thread_ts=root.ts)
    await slack.until(lambda: said(slack, dm, root.ts) == ["first "])
    (daemon.directory / "go").touch()
    await heard(slack, ["first second"], dm, root.ts)
    await daemon.stop()

    assert len(slack.called("chat.startStream")) == 1
    assert slack.called("chat.startStream")[0].args["recipient_user_id"] == USER
    assert said(slack, dm, asked.thread_ts) == ["first second"]


async def test_a_slack_without_streams(slack: LocalSlack, run: Run) -> None:
    """Refused once, streaming gives way to edits, and is not tried again soon."""
    slack.faults.put("chat.startStream", refused("unknown_method"), times=None)
    daemon = await run(bot=ECHO, slack={"streaming": "native"})
    first = await slack.say(USER, CHANNEL, "one", mention=True)
    await heard(slack, ["one"], CHANNEL, first.ts)
    second = await slack.say(USER, CHANNEL, "two", mention=True)
    await heard(slack, ["two"], CHANNEL, second.ts)
    await daemon.stop()

    assert said(slack, CHANNEL, first.ts) == ["one"]
    assert len(slack.called("chat.startStream")) == 1


async def test_a_stream_that_slack_ended(slack: LocalSlack, run: Run) -> None:
    """It lives for five minutes; the answer goes on in the same message."""
    daemon = await run(bot=GATED, slack={"streaming": "native"})
    asked = await slack.say(USER, CHANNEL, "go on", mention=True)
    await slack.until(lambda: said(slack, CHANNEL, asked.ts) == ["first "])
    slack.advance(600)
    (daemon.directory / "go").touch()
    await heard(slack, ["first second"], CHANNEL, asked.ts)
    again = await slack.say(USER, CHANNEL, "once more", mention=True)
    await heard(slack, ["first second"], CHANNEL, again.ts)

    assert len(slack.called("chat.startStream")) == 2


async def test_a_rate_limit_on_edits(slack: LocalSlack, run: Run) -> None:
    """The final text waits as long as it is told to, and arrives once."""
    slack.faults.put("chat.update", rate_limited(2), times=2)
    daemon = await run(bot=PIECES.format(pieces=["one ", "two ", "three"]))
    asked = await slack.say(USER, CHANNEL, "count", mention=True)
    await heard(slack, ["one two three"], CHANNEL, asked.ts)
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["one two three"]


async def test_a_rate_limit_on_posts(slack: LocalSlack, run: Run) -> None:
    slack.faults.put("chat.postMessage", rate_limited(1), times=2)
    daemon = await run(bot=ECHO)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await heard(slack, ["hello"], CHANNEL, asked.ts)
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["hello"]


async def test_a_long_answer_comes_in_parts(slack: LocalSlack, run: Run) -> None:
    """In order, nothing missing, and every part has the fences it needs."""
    code = "".join(f"line {n:05d} of the code\n" for n in range(650))
    prose = "".join(f"Sentence {n:05d} of the text.\n\n" for n in range(500))
    text = f"{prose}```python\n{code}```\n"
    daemon = await run(bot=f"async def reply(turn):\n    yield {text!r}\n")
    asked = await slack.say(USER, CHANNEL, "at length", mention=True)
    await slack.until(lambda: "line 00649" in "".join(said(slack, CHANNEL, asked.ts)))
    await daemon.stop()

    parts = said(slack, CHANNEL, asked.ts)
    lines = [line for part in parts for line in part.splitlines() if line[:4] in ("Sent", "line")]
    assert len(parts) > 2
    assert all(part.count("```") % 2 == 0 for part in parts)
    assert lines == [line for line in text.splitlines() if line[:4] in ("Sent", "line")]


async def test_an_answer_that_is_too_long_becomes_a_file(slack: LocalSlack, run: Run) -> None:
    text = "".join(f"Sentence {n:06d} of the text.\n\n" for n in range(5_000))
    daemon = await run(bot=f"async def reply(turn):\n    yield {text!r}\n")
    asked = await slack.say(USER, CHANNEL, "at length", mention=True)
    await slack.until(lambda: any(m.files for m in slack.answers(CHANNEL, asked.ts)))
    await daemon.stop()

    summary, file = slack.answers(CHANNEL, asked.ts)
    assert words(summary).startswith("Sentence 000000")
    assert file.files[0].content.decode().strip() == text.strip()


async def test_nobody_is_pinged(slack: LocalSlack, run: Run) -> None:
    """Not by a growing answer, not by a stream, not by the final text."""
    pieces = ["<!chan", "nel> and <!here", f"> and <@{USER}", "> and @everyone <!subteam^S1>"]
    bot = PIECES.format(pieces=pieces)
    edited, streamed = await run(bot=bot), slack.dm(USER)
    asked = await slack.say(USER, CHANNEL, "call them", mention=True)
    root = await slack.say(USER, streamed, "hello")
    await slack.say(USER, streamed, "call them", thread_ts=root.ts)
    await slack.until(lambda: slack.answers(streamed, root.ts) and slack.answers(CHANNEL, asked.ts))
    await edited.stop()

    answers = [*slack.answers(CHANNEL, asked.ts), *slack.answers(streamed, root.ts)]
    assert len(answers) == 2
    assert [ping for answer in answers for ping in answer.pings] == []


async def test_no_answer_is_told(slack: LocalSlack, run: Run) -> None:
    """Never an empty message, never silence."""
    daemon = await run(bot="async def reply(turn):\n    yield ''\n")
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await slack.until(lambda: bool(slack.answers(CHANNEL, asked.ts)))
    await daemon.stop()

    [answer] = said(slack, CHANNEL, asked.ts)
    assert "no answer" in answer


async def test_an_agent_that_fails(slack: LocalSlack, run: Run) -> None:
    """One line with the turn's id; nothing of what went wrong inside."""
    daemon = await run(
        bot="async def reply(turn):\n    yield 'well '\n    raise KeyError('secret')\n"
    )
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await slack.until(lambda: "turn" in "".join(said(slack, CHANNEL, asked.ts)))
    ended = await daemon.logged("turn ended")
    await daemon.stop()

    [answer] = said(slack, CHANNEL, asked.ts)
    assert ended["turn"] in answer
    assert "secret" not in answer


async def test_own_messages_and_edits_are_not_answered(slack: LocalSlack, run: Run) -> None:
    """Slack tells the bot of its own posts and edits too, and of everybody's later edits."""
    daemon = await run(bot=ECHO)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await heard(slack, ["hello"], CHANNEL, asked.ts)
    await slack.edit(asked, asked.text + " again")
    await slack.unfurl(asked)
    await slack.until(lambda: all(envelope.acked for envelope in slack.envelopes))
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["hello"]
