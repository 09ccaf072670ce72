"""The connection to Slack, and everything that can happen to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.http.daemon import Daemon
from tests.slack.conftest import ECHO, Run, heard, said
from tests.support.slack import (
    APP_TOKEN,
    BOT_TOKEN,
    CHANNEL,
    USER,
    LocalSlack,
    hang,
    http_error,
    missing_scope,
)

WATCHFUL = """
connection.PING_SECONDS, connection.PONG_SECONDS = 0.2, 1.0

async def reply(turn):
    yield turn.text
"""


async def state(daemon: Daemon, strict: bool = False) -> tuple[int, dict[str, Any]]:
    client = await daemon.client()
    answer = await client.get("/readyz", params={"strict": int(strict)})
    found: dict[str, Any] = answer.json()
    return answer.status_code, found["channels"]["slack"]


async def answers(slack: LocalSlack, text: str = "hello") -> None:
    asked = await slack.say(USER, CHANNEL, text, mention=True)
    await heard(slack, [text], CHANNEL, asked.ts)


def errors(daemon: Daemon) -> list[dict[str, Any]]:
    return [event for event in daemon.events if event["level"] == "ERROR"]


async def test_slack_goes_away_and_comes_back(slack: LocalSlack, run: Run) -> None:
    """Meanwhile the gateway says so; afterwards it answers what was said in between."""
    daemon = await run(bot=ECHO)
    healthy = await state(daemon, strict=True)
    await slack.stop()
    await daemon.logged("channel disconnected")
    deaf, strictly = await state(daemon), await state(daemon, strict=True)
    asked = await slack.say(USER, CHANNEL, "anyone?", mention=True)
    await slack.start()
    await heard(slack, ["anyone?"], CHANNEL, asked.ts)

    assert (healthy[0], healthy[1]["state"]) == (200, "connected")
    assert (deaf[0], deaf[1]["state"]) == (200, "degraded")
    assert strictly[0] == 503


async def test_slack_is_away_at_the_start(slack: LocalSlack, run: Run) -> None:
    """The gateway serves at once and connects later."""
    await slack.stop()
    daemon = await run(bot=ECHO, connected=False)
    await daemon.logged("channel disconnected")
    chat = await daemon.chat()
    ended = await chat.say("web", "hello")
    found = await state(daemon)
    await slack.start()
    await answers(slack)

    assert ended["outcome"] == "ok"
    assert found[1]["state"] == "degraded"


@pytest.mark.parametrize("where", ["socket.upgrade", "apps.connections.open", "auth.test"])
async def test_slack_is_out_of_order(slack: LocalSlack, run: Run, where: str) -> None:
    """An error page where an answer was expected: it tries again, with a new ticket."""
    slack.faults.put(where, http_error(503), times=2)
    await run(bot=ECHO)
    await answers(slack)

    assert slack.socket_mode.dials[-1] == 101
    assert 403 not in slack.socket_mode.dials


async def test_a_socket_without_hello(slack: LocalSlack, run: Run) -> None:
    """It does not count as connected; another one is opened."""
    slack.faults.put("socket.hello", hang())
    daemon = await run(bot=ECHO)
    await answers(slack)
    await slack.until(lambda: len(slack.sockets) == 1)

    assert len(slack.socket_mode.dials) == 2
    assert (await state(daemon))[1]["sockets"] == 1


async def test_a_socket_that_never_pongs(slack: LocalSlack, run: Run) -> None:
    """A deaf socket is replaced, although nobody closed it."""
    slack.socket_mode.pongs = False
    daemon = await run(bot=WATCHFUL)
    await daemon.logged("channel disconnected")
    slack.socket_mode.pongs = True
    await answers(slack)
    await slack.until(lambda: len(slack.sockets) == 1)

    assert (await state(daemon))[1]["reconnects"] >= 1


async def test_a_storm_of_disconnects(slack: LocalSlack, run: Run) -> None:
    """The next socket is there before the old one goes: no event is lost, one socket is left."""
    daemon = await run(bot=ECHO)
    dm = slack.dm(USER)
    texts = [f"message {n}" for n in range(20)]
    for n, text in enumerate(texts):
        await slack.disconnect("warning" if n % 2 else "refresh_requested", close=n % 5 == 4)
        await slack.say(USER, dm, text)
        await slack.until(lambda n=n: len(slack.socket_mode.dials) > n)  # type: ignore[misc]  # n is bound now
    await slack.until(lambda: len(said(slack, dm)) == len(texts))
    await slack.until(lambda: len(slack.sockets) == 1)

    assert sorted(said(slack, dm)) == sorted(texts)
    assert (await state(daemon))[1]["state"] == "connected"


async def test_events_during_a_change_of_sockets(slack: LocalSlack, run: Run) -> None:
    """While the next socket is being opened the old one still works."""
    await run(bot=ECHO)
    slack.faults.put("socket.hello", hang())
    await slack.disconnect("warning")
    await slack.until(lambda: len(slack.sockets) == 2)
    await answers(slack)
    await slack.until(lambda: len(slack.socket_mode.dials) == 3 and len(slack.sockets) == 1)
    await answers(slack, "again")

    assert all(len(envelope.ids) == 1 for envelope in slack.envelopes)


@pytest.mark.parametrize("token", [BOT_TOKEN, APP_TOKEN], ids=["bot", "app"])
async def test_a_token_slack_refuses(slack: LocalSlack, run: Run, token: str) -> None:
    """The channel fails at once, with one line; the rest of the gateway is unharmed."""
    slack.revoked[token] = "invalid_auth"
    daemon = await run(bot=ECHO, connected=False)
    failed = await daemon.logged("channel failed")
    chat = await daemon.chat()
    ended = await chat.say("web", "hello")
    found = await state(daemon, strict=True)
    await daemon.stop()

    assert failed["error"] == "invalid_auth"
    assert len(errors(daemon)) == 1
    assert ended["outcome"] == "ok"
    assert (found[0], found[1]["state"]) == (503, "failed")


async def test_an_app_token_without_its_scope(slack: LocalSlack, run: Run) -> None:
    """The line names what is missing."""
    slack.faults.put("apps.connections.open", missing_scope("connections:write"), times=None)
    daemon = await run(bot=ECHO, connected=False)
    failed = await daemon.logged("channel failed")
    await daemon.stop()

    assert "connections:write" in failed["error"]
    assert len(errors(daemon)) == 1


async def test_scopes_that_are_missing(slack: LocalSlack, run: Run) -> None:
    """A feature without its scope is off, one warning each; what is left works."""
    slack.workspace.scopes -= {"reactions:write", "users:read"}
    daemon = await run(bot=ECHO)
    await answers(slack)

    warned = [event for event in daemon.events if event["event"].startswith("scope missing")]
    assert {event["scope"] for event in warned} >= {"reactions:write", "users:read"}
    assert not slack.called("reactions.add")


async def test_socket_mode_is_switched_off(slack: LocalSlack, run: Run) -> None:
    """Somebody has to act: it fails with one line and does not dial again."""
    daemon = await run(bot=ECHO)
    await slack.disconnect("link_disabled")
    failed = await daemon.logged("channel failed")
    await slack.until(lambda: not slack.sockets)
    await daemon.stop()

    assert failed["error"] == "link_disabled"
    assert len(slack.socket_mode.dials) == 1


async def test_another_process_with_the_same_token(slack: LocalSlack, run: Run) -> None:
    """Slack would give each event to only one of them: it is said."""
    slack.socket_mode.num_connections = 2
    daemon = await run(bot=ECHO)
    await daemon.logged("another process uses this Slack app")

    assert (await state(daemon))[1]["other_processes"] == 1


@pytest.mark.parametrize(
    ("bot", "app"), [(APP_TOKEN, BOT_TOKEN), ("nonsense", APP_TOKEN), (BOT_TOKEN, "")]
)
async def test_tokens_of_the_wrong_form(tmp_path: Path, bot: str, app: str) -> None:
    """The gateway does not start."""
    slack = {"enabled": True, "bot_token": bot, "app_token": app}
    daemon = Daemon(tmp_path, {"channels": {"slack": slack}})
    await daemon.launch()
    code = await daemon.ended()

    assert code == 78
    assert "token" in "".join(daemon.lines)
