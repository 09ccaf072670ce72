"""The local Slack does what Slack does, seen through the clients people use for it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from slack_sdk.errors import SlackApiError
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.support.slack import (
    APP_TOKEN,
    BOT_TOKEN,
    BOT_USER,
    CHANNEL,
    USER,
    LocalSlack,
    drop_after,
    http_error,
    missing_scope,
    rate_limited,
    refused,
)
from tests.support.slack.control import Remote
from tests.support.slack.faults import hang

Dial = Callable[[], Awaitable[ClientConnection]]


@pytest.fixture
def client(slack: LocalSlack) -> AsyncWebClient:
    return AsyncWebClient(BOT_TOKEN, base_url=slack.api_base_url, retry_handlers=[])


@pytest.fixture
async def dial(slack: LocalSlack) -> AsyncIterator[Dial]:
    """Opens a socket with a fresh ticket."""
    async with AsyncExitStack() as opened:

        async def begin() -> ClientConnection:
            return await opened.enter_async_context(connect(await ticket(slack), proxy=None))

        yield begin
        await slack.kill_sockets()


async def ticket(slack: LocalSlack) -> str:
    app = AsyncWebClient(APP_TOKEN, base_url=slack.api_base_url)
    return str((await app.apps_connections_open(app_token=APP_TOKEN))["url"])


async def frame(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(30):
        found: dict[str, Any] = json.loads(await socket.recv())
    return found


async def ack(socket: ClientConnection, envelope: dict[str, Any], **payload: Any) -> None:
    answer = {"envelope_id": envelope["envelope_id"]}
    await socket.send(json.dumps({**answer, "payload": payload} if payload else answer))


async def error_of(call: Awaitable[Any]) -> str:
    with pytest.raises(SlackApiError) as refusal:
        await call
    return str(refusal.value.response["error"])


# -- the Web API ------------------------------------------------------------------------------


async def test_tokens_are_checked(slack: LocalSlack, client: AsyncWebClient) -> None:
    """The bot token is known with its scopes; a wrong one and the app's own are refused."""
    known = await client.auth_test()

    assert (known["user_id"], known["bot_id"]) == (BOT_USER, slack.workspace.bot_id)
    assert "chat:write" in known.headers["x-oauth-scopes"]
    assert await error_of(client.auth_test(token="xoxb-other")) == "invalid_auth"
    assert await error_of(client.auth_test(token=APP_TOKEN)) == "not_allowed_token_type"
    assert (await error_of(client.apps_connections_open(app_token=BOT_TOKEN))).startswith("not_all")


async def test_a_threaded_answer_is_posted_and_edited(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    """What people see is the newest text; metadata comes back to those who ask for it."""
    root = await slack.say(USER, CHANNEL, "question")
    note = {"event_type": "delivery", "event_payload": {"id": "d1"}}
    posted = await client.chat_postMessage(
        channel=CHANNEL, text="…", thread_ts=root.ts, metadata=note
    )
    await client.chat_update(channel=CHANNEL, ts=posted["ts"], text="answer")
    asked: dict[str, Any] = {"channel": CHANNEL, "ts": root.ts}
    plain = await client.conversations_replies(**asked)
    full = await client.conversations_replies(**asked, include_all_metadata=True)

    assert [m.shown for m in slack.messages(CHANNEL, root.ts)] == ["question", "answer"]
    assert [m.shown for m in slack.messages(CHANNEL)] == ["question"]
    assert posted["ts"] > root.ts
    assert "metadata" not in plain["messages"][1]
    assert full["messages"][1]["metadata"] == note


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ({"text": "x" * 40_001}, "msg_too_long"),
        ({"text": "x", "markdown_text": "x"}, "markdown_text_conflict"),
        ({"text": "x", "blocks": [{"type": "markdown", "text": "x" * 6_001}] * 2}, "msg_blocks"),
        ({"text": "x", "blocks": [{"type": "markdown", "text": ""}]}, "invalid_blocks"),
        ({"text": "x", "metadata": {"event_type": "x"}}, "invalid_metadata_format"),
        ({"text": "x", "thread_ts": "1.000001"}, "thread_not_found"),
        ({"text": "x", "channel": "C999999999"}, "channel_not_found"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_content_slack_does_not_take(
    slack: LocalSlack, client: AsyncWebClient, content: dict[str, Any], error: str
) -> None:
    """Too long, empty or misplaced content is refused with Slack's own word, and not posted."""
    got = await error_of(client.chat_postMessage(**{"channel": CHANNEL, **content}))

    assert got.startswith(error)
    assert slack.messages(CHANNEL) == []


async def test_messages_that_cannot_be_changed(slack: LocalSlack, client: AsyncWebClient) -> None:
    """Other people's messages, unknown ones and archived channels stay as they are."""
    theirs = await slack.say(USER, CHANNEL, "mine")
    own = await client.chat_postMessage(channel=CHANNEL, text="own")
    update = client.chat_update

    assert await error_of(update(channel=CHANNEL, ts=theirs.ts, text="x")) == "cant_update_message"
    assert await error_of(update(channel=CHANNEL, ts="1.000001", text="x")) == "message_not_found"
    assert await error_of(update(channel=CHANNEL, ts=own["ts"], text="x" * 4_001)) == "msg_too_long"
    slack.workspace.channels[CHANNEL].is_archived = True
    assert await error_of(update(channel=CHANNEL, ts=own["ts"], text="x")) == "is_archived"


async def test_a_native_stream_lives_for_five_minutes(
    slack: LocalSlack, client: AsyncWebClient
) -> None:
    """While it runs it cannot be edited; afterwards it can be edited but not continued."""
    root = await slack.say(USER, CHANNEL, "question")
    person: dict[str, Any] = {
        "recipient_user_id": USER,
        "recipient_team_id": slack.workspace.team_id,
    }
    started = await client.chat_startStream(channel=CHANNEL, thread_ts=root.ts, **person)
    here: dict[str, Any] = {"channel": CHANNEL, "ts": started["ts"]}
    await client.chat_appendStream(**here, markdown_text="**so")

    assert await error_of(client.chat_update(**here, text="x")) == "streaming_state_conflict"
    slack.advance(301)
    late = client.chat_appendStream(**here, markdown_text=" far**")
    assert await error_of(late) == "message_not_in_streaming_state"
    await client.chat_update(**here, text="done")
    assert [m.shown for m in slack.answers(CHANNEL, root.ts)] == ["done"]


async def test_files_need_the_token(slack: LocalSlack, client: AsyncWebClient) -> None:
    """Uploads arrive whole; a download without the token is a login page with status 200."""
    await client.files_upload_v2(content="long text", filename="a.md", channel=CHANNEL)
    [message] = slack.messages(CHANNEL)
    [file] = message.files
    async with aiohttp.ClientSession() as session:
        async with session.get(file.url) as page:
            stranger = await page.text()
        async with session.get(file.url, headers={"Authorization": f"Bearer {BOT_TOKEN}"}) as page:
            content = await page.text()

    assert (page.status, content) == (200, "long text")
    assert stranger.startswith("<!DOCTYPE html>")


async def test_a_missing_scope_is_named(slack: LocalSlack, client: AsyncWebClient) -> None:
    """An app that was not granted a scope hears which one it needs."""
    slack.workspace.scopes.remove("users:read")
    with pytest.raises(SlackApiError) as refusal:
        await client.users_info(user=USER)

    assert refusal.value.response["needed"] == "users:read"
    assert "chat:write" in refusal.value.response["provided"]


# -- faults -----------------------------------------------------------------------------------


async def test_answers_that_go_wrong(slack: LocalSlack, client: AsyncWebClient) -> None:
    """Each planned fault answers one call of its method, in order; then all is well again."""
    slack.faults.put("auth.test", rate_limited(7))
    slack.faults.put("auth.test", refused("ratelimited"))
    slack.faults.put("auth.test", missing_scope("chat:write"))
    slack.faults.put("auth.test", http_error(500))
    with pytest.raises(SlackApiError) as limited:
        await client.auth_test()

    assert limited.value.response.headers["Retry-After"] == "7"
    assert await error_of(client.auth_test()) == "ratelimited"
    assert await error_of(client.auth_test()) == "missing_scope"
    with pytest.raises(SlackApiError, match="500"):
        await client.auth_test()
    assert (await client.auth_test())["ok"]


async def test_a_lost_answer_to_a_processed_post(slack: LocalSlack) -> None:
    """The SDK's own retry posts twice when the connection drops after the message was posted."""
    slack.faults.put("chat.postMessage", drop_after())
    await AsyncWebClient(BOT_TOKEN, base_url=slack.api_base_url).chat_postMessage(
        channel=CHANNEL, text="once?"
    )

    assert [m.shown for m in slack.messages(CHANNEL)] == ["once?", "once?"]
    assert [call.status for call in slack.called("chat.postMessage")] == [None, 200]


async def test_upgrades_that_fail(slack: LocalSlack, dial: Dial) -> None:
    """A ticket is good for one dial, also for a refused one."""
    slack.faults.put("socket.upgrade", http_error(503))
    address = await ticket(slack)
    statuses = []
    for _ in range(2):
        with pytest.raises(InvalidStatus) as refusal:
            await connect(address, proxy=None)
        statuses.append(refusal.value.response.status_code)

    assert statuses == [503, 403]
    assert (await frame(await dial()))["type"] == "hello"


async def test_sockets_that_are_deaf(slack: LocalSlack, dial: Dial) -> None:
    """A socket can stay without hello and without pongs, and is told nothing then."""
    slack.faults.put("socket.hello", hang())
    slack.socket_mode.pongs = False
    silent = await dial()
    await silent.ping()
    message = await slack.say(USER, slack.dm(USER), "anyone?")
    slack.socket_mode.num_connections = 3
    hello = await frame(await dial())

    assert hello["num_connections"] == 3
    assert [envelope.sockets for envelope in slack.told(message)] == [[2]]
    assert len(slack.sockets) == 2


# -- events -----------------------------------------------------------------------------------


async def test_a_mention_arrives_as_two_events(slack: LocalSlack, dial: Dial) -> None:
    """In a channel: the message and the mention, with one ts and two event ids."""
    socket = await dial()
    await frame(socket)
    message = await slack.say(USER, CHANNEL, "hello", mention=True)
    envelopes = [await frame(socket), await frame(socket)]
    for envelope in envelopes:
        await ack(socket, envelope)
    await slack.acked(message)
    events = [envelope["payload"]["event"] for envelope in envelopes]

    assert [event["type"] for event in events] == ["message", "app_mention"]
    assert {event["ts"] for event in events} == {message.ts}
    assert len({envelope["payload"]["event_id"] for envelope in envelopes}) == 2


async def test_what_is_not_acknowledged_comes_again(slack: LocalSlack, dial: Dial) -> None:
    """On the next socket, under a new envelope id, with its retry number."""
    slack.socket_mode.retry_seconds = 0.05
    first = await dial()
    await frame(first)
    message = await slack.say(USER, slack.dm(USER), "hello")
    lost = await frame(first)
    await slack.kill_sockets()
    second = await dial()
    assert (await frame(second))["type"] == "hello"
    again = await frame(second)
    await ack(second, again)
    await slack.acked(message)

    assert (lost["retry_attempt"], lost["retry_reason"]) == (0, "")
    assert (again["retry_attempt"], again["retry_reason"]) == (1, "timeout")
    assert again["envelope_id"] != lost["envelope_id"]
    assert again["payload"]["event_id"] == lost["payload"]["event_id"]


async def test_acks_and_calls_have_one_order(
    slack: LocalSlack, client: AsyncWebClient, dial: Dial
) -> None:
    """Whether an answer was sent before the message was acknowledged can be told."""
    socket = await dial()
    await frame(socket)
    message = await slack.say(USER, slack.dm(USER), "hello")
    await ack(socket, await frame(socket))
    await slack.acked(message)
    await client.chat_postMessage(channel=message.channel, text="answer")
    [envelope] = slack.told(message)
    [call] = slack.called("chat.postMessage")

    assert envelope.ack_order is not None
    assert envelope.ack_order < call.order
    assert (await frame(socket))["payload"]["event"]["bot_id"] == slack.workspace.bot_id


async def test_edits_previews_and_deletions(slack: LocalSlack, dial: Dial) -> None:
    """Each is a hidden event about the message; only a person's edit carries `edited`."""
    message = await slack.say(USER, CHANNEL, "helo")
    await slack.unfurl(message)
    await slack.edit(message, "hello")
    await slack.delete(message)
    socket = await dial()
    await frame(socket)
    events = [(await frame(socket))["payload"]["event"] for _ in range(4)]

    assert [event.get("subtype") for event in events] == [
        None,
        "message_changed",
        "message_changed",
        "message_deleted",
    ]
    assert ["edited" in event["message"] for event in events[1:3]] == [False, True]
    assert events[3]["deleted_ts"] == message.ts
    assert slack.messages(CHANNEL) == []


async def test_buttons_and_commands_are_answered(
    slack: LocalSlack, client: AsyncWebClient, dial: Dial
) -> None:
    """A button's response URL replaces the message; a command can be answered in its ack."""
    slack.echo = False
    socket = await dial()
    await frame(socket)
    text = {"type": "plain_text", "text": "Stop"}
    button = {"type": "button", "action_id": "stop", "value": "t1", "text": text}
    blocks = [{"type": "actions", "elements": [button]}]
    await client.chat_postMessage(channel=CHANNEL, text="…", blocks=blocks)
    await slack.press(USER, slack.messages(CHANNEL)[0], "stop")
    pressed = (await frame(socket))["payload"]
    async with aiohttp.ClientSession() as session:
        await session.post(pressed["response_url"], json={"replace_original": True, "text": "done"})
    await slack.command(USER, CHANNEL, "status")
    await ack(socket, await frame(socket), text="well")
    await slack.until(lambda: slack.ephemerals)

    assert pressed["actions"][0]["value"] == "t1"
    assert [m.shown for m in slack.messages(CHANNEL)] == ["done"]
    assert [(m.shown, m.ephemeral_to) for m in slack.ephemerals] == [("well", USER)]


async def test_a_disconnect_is_announced(slack: LocalSlack, dial: Dial) -> None:
    """The reason comes as a frame; the end comes with it or is left to the client."""
    socket = await dial()
    await frame(socket)
    await slack.disconnect("warning")
    warning = await frame(socket)
    await slack.disconnect("link_disabled", close=True)
    last = await frame(socket)

    assert (warning["type"], warning["reason"]) == ("disconnect", "warning")
    assert last["reason"] == "link_disabled"
    with pytest.raises(ConnectionClosed):
        await frame(socket)


async def test_events_over_http_are_signed(slack: LocalSlack) -> None:
    """The SDK's verifier accepts the signature; what was not taken is posted again."""
    verifier = SignatureVerifier("secret")
    seen: list[tuple[bool, str | None]] = []

    async def take(request: web.Request) -> web.Response:
        valid = verifier.is_valid_request(await request.read(), dict(request.headers))
        seen.append((valid, request.headers.get("X-Slack-Retry-Num")))
        return web.Response(status=200 if valid and len(seen) > 1 else 500)

    async with listening(take) as url:
        slack.socket_mode.retry_seconds = 0.01
        slack.use_http(url, "secret")
        await slack.acked(await slack.say(USER, slack.dm(USER), "hello"))
        wrong = await slack.post_event(url, {}, "other secret")

    assert seen == [(True, None), (True, "1"), (False, None)]
    assert wrong.status == 500


@asynccontextmanager
async def listening(
    handler: Callable[[web.Request], Awaitable[web.Response]],
) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


# -- its life ---------------------------------------------------------------------------------


async def test_it_comes_back_as_it_was(slack: LocalSlack, client: AsyncWebClient) -> None:
    """After a stop and a start the port, the tokens and the messages are the same."""
    await client.chat_postMessage(channel=CHANNEL, text="before")
    await slack.stop()
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.auth_test()
    await slack.start()
    history = await client.conversations_history(channel=CHANNEL)

    assert [message["text"] for message in history["messages"]] == ["before"]


async def test_it_runs_in_a_process_of_its_own() -> None:
    """It prints its URL; another process acts in it through the control route."""
    command = [sys.executable, "-m", "tests.support.slack", "--port", "0"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with aiohttp.ClientSession() as session:
            remote = Remote((await process.stdout.readline()).decode().strip(), session)
            await remote.do("say", user=USER, channel=CHANNEL, text="hello")
            client = AsyncWebClient(BOT_TOKEN, base_url=remote.api_base_url)
            await client.chat_postMessage(channel=CHANNEL, text="answer")
            seen = await remote.do("messages", channel=CHANNEL)
            state = await remote.do("state")
    finally:
        process.terminate()
        await process.wait()

    assert [message["shown"] for message in seen] == ["hello", "answer"]
    assert (state["calls"], state["envelopes"]) == (1, 2)
