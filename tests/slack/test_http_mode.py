"""Slack without a socket: signed requests to a real gateway."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.http.daemon import Daemon
from tests.slack.conftest import ECHO, Run, crash, heard, restart
from tests.support.slack import CHANNEL, USER, LocalSlack, refused
from tests.support.slack import events as slack_events
from tests.support.slack.http_events import post, sign

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
HTTP = {"mode": "http", "signing_secret": SECRET, "app_token": ""}


async def serve(slack: LocalSlack, run: Run, **settings: Any) -> tuple[Daemon, str]:
    """A gateway Slack tells everything by requests, and where they go."""
    daemon = await run(bot=ECHO, slack=HTTP, **settings)
    url = f"{daemon.url}/slack/events"
    slack.use_http(url, SECRET)
    return daemon, url


async def test_a_mention_by_http_gets_exactly_one_reply(slack: LocalSlack, run: Run) -> None:
    """The same as over the socket, which there is none of."""
    daemon, _ = await serve(slack, run)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await slack.acked(asked)
    await heard(slack, ["hello"], CHANNEL, asked.ts)
    await daemon.stop()

    assert len(slack.answers(CHANNEL, asked.ts)) == 1
    assert slack.called("apps.connections.open") == []


async def test_what_was_answered_with_200_is_in_the_log(slack: LocalSlack, run: Run) -> None:
    """Killed right after the acknowledgement, it answers after the restart."""
    daemon, _ = await serve(slack, run)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await slack.acked(asked)
    await crash(daemon)
    slack.faults.clear()
    await restart(daemon)

    await heard(slack, ["hello"], CHANNEL, asked.ts)


async def test_an_event_sent_twice_is_answered_once(slack: LocalSlack, run: Run) -> None:
    """Slack sends again whatever it has no answer for."""
    daemon, url = await serve(slack, run)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await heard(slack, ["hello"], CHANNEL, asked.ts)
    again = await slack.post_event(
        url, slack.told(asked)[0].payload, SECRET, {"X-Slack-Retry-Num": "1"}
    )
    await daemon.stop()

    assert again.status == 200
    assert len(slack.answers(CHANNEL, asked.ts)) == 1


async def test_slack_can_verify_the_address(slack: LocalSlack, run: Run) -> None:
    """When the address is entered in Slack's settings, it must say the challenge."""
    _, url = await serve(slack, run)
    answer = await slack.verify_url(url, SECRET)

    assert (answer.status, answer.json) == (200, {"challenge": "challenge-1"})


def _signed_at(timestamp: str, body: bytes) -> dict[str, str]:
    return {
        "X-Slack-Request-Timestamp": timestamp,
        "X-Slack-Signature": sign(SECRET, timestamp, body),
    }


BODY = json.dumps({"type": "url_verification", "challenge": "x"}).encode()
UNSIGNED: dict[str, tuple[bytes, dict[str, str | None]]] = {
    "no signature": (BODY, {"X-Slack-Signature": None}),
    "no time": (BODY, {"X-Slack-Request-Timestamp": None}),
    "another secret": (BODY, {"X-Slack-Signature": sign("other", str(int(time.time())), BODY)}),
    "of another body": (b"{}", {**_signed_at(str(int(time.time())), BODY)}),
    "too old": (BODY, {**_signed_at(str(int(time.time()) - 400), BODY)}),
    "of the future": (BODY, {**_signed_at(str(int(time.time()) + 4_000), BODY)}),
    "time is no number": (BODY, {**_signed_at("soon", BODY)}),
    "body is no text": (b"\xff\xfe{}", {}),
    "signature is no text": (BODY, {"X-Slack-Signature": "v0=\u00e9"}),
}


@pytest.mark.parametrize("name", UNSIGNED)
async def test_a_request_slack_did_not_sign_is_refused(
    slack: LocalSlack, run: Run, name: str
) -> None:
    """Before anything of it is read."""
    _, url = await serve(slack, run)
    body, headers = UNSIGNED[name]
    answer = await post(url, body, SECRET, headers=headers)

    assert answer.status == 401


async def test_a_request_that_is_too_large_is_refused(slack: LocalSlack, run: Run) -> None:
    """However well it is signed."""
    daemon, url = await serve(slack, run)
    body = b" " * (1_048_576 + 1)
    client = await daemon.client(headers=_signed_at(str(int(time.time())), body))
    answer = await client.post(url, content=body)

    assert answer.status_code == 413


@pytest.mark.parametrize("body", [b"{", b"[]", b"\x00", b'"text"'])
async def test_a_signed_request_that_makes_no_sense_is_refused(
    slack: LocalSlack, run: Run, body: bytes
) -> None:
    """With an answer, not with a crash."""
    _, url = await serve(slack, run)

    assert (await post(url, body, SECRET)).status == 400


async def test_requests_come_through_a_proxy(slack: LocalSlack, run: Run) -> None:
    """Its Host and its Forwarded headers would be refused anywhere else."""
    _, url = await serve(slack, run)
    headers = {"Host": "bot.example.com", "X-Forwarded-For": "3.3.3.3", "Origin": "https://x.y"}
    answer = await post(url, BODY, SECRET, headers=headers)
    elsewhere = await post(
        url.replace("/slack/events", "/api/v1/me"), BODY, SECRET, headers=headers
    )

    assert (answer.status, elsewhere.status) == (200, 403)


async def test_with_a_socket_there_is_no_such_address(slack: LocalSlack, run: Run) -> None:
    """A secret that was left in the settings opens nothing."""
    daemon = await run(bot=ECHO, slack={"signing_secret": SECRET})
    answer = await post(f"{daemon.url}/slack/events", BODY, SECRET)

    assert answer.status == 404


async def test_a_button_works_by_http(slack: LocalSlack, run: Run) -> None:
    """It comes as a form with JSON inside."""
    await serve(slack, run)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await heard(slack, ["hello"], CHANNEL, asked.ts)
    pressed = await slack.press(USER, slack.answers(CHANNEL, asked.ts)[0], "parley_good")
    await slack.until(lambda: pressed.acked and slack.ephemerals)

    assert slack.ephemerals[0].shown == "Thank you."


async def test_a_slash_command_is_answered_in_the_response(slack: LocalSlack, run: Run) -> None:
    """In a channel it says where to type; only who typed it sees that."""
    await serve(slack, run)
    command = await slack.command(USER, CHANNEL, "new")
    await slack.until(lambda: command.acked and slack.ephemerals)

    assert "!new" in slack.ephemerals[0].shown


async def test_before_we_know_who_we_are_nothing_is_taken(slack: LocalSlack, run: Run) -> None:
    """It could not be told whom a message is meant for: Slack is asked to send it again."""
    slack.faults.put("auth.test", refused("internal_error"), times=None)
    daemon = await run(bot=ECHO, slack=HTTP, connected=False)
    await daemon.logged("channel disconnected")
    message = slack_events.callback(slack.workspace, {"type": "message", "channel": CHANNEL})
    early = await slack.post_event(f"{daemon.url}/slack/events", message, SECRET)
    slack.faults.clear()
    await daemon.logged("channel connected")
    slack.use_http(f"{daemon.url}/slack/events", SECRET)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await heard(slack, ["hello"], CHANNEL, asked.ts)

    assert early.status == 503


async def test_a_process_that_comes_back_gets_what_it_missed(slack: LocalSlack, run: Run) -> None:
    """Slack tries again until it is answered."""
    daemon, _ = await serve(slack, run)
    await crash(daemon)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await slack.until(lambda: all(envelope.ids for envelope in slack.told(asked)))
    await restart(daemon)
    slack.use_http(f"{daemon.url}/slack/events", SECRET)

    await heard(slack, ["hello"], CHANNEL, asked.ts)
