"""Files that people send and files that agents make, through a real gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.http.daemon import Daemon
from tests.slack.conftest import Run, crash, heard, restart, said
from tests.support.slack import (
    CHANNEL,
    USER,
    Fault,
    LocalSlack,
    drop_after,
    drop_before,
    hang,
    http_error,
    refused,
)

READER = """
import json, pathlib

async def reply(turn):
    asked = [row.content for row in turn.messages if row.role == "user"]
    seen = {"text": turn.text, "asked": asked, "media": turn.media, "attempt": turn.attempt}
    with pathlib.Path("turns.jsonl").open("a") as file:
        file.write(json.dumps(seen) + "\\n")
    yield "read"
"""
"""Writes down what it was given."""
MAKER = """
from gateway.agents.agent import Produced

async def reply(turn):
    yield "done"
    yield Produced("chart.csv", "text/csv", b"a,b")
    yield Produced("notes.txt", "text/plain", b"more")
"""


def turns(daemon: Daemon) -> list[dict[str, Any]]:
    lines = (daemon.directory / "turns.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def stored(daemon: Daemon, item: dict[str, Any]) -> bytes:
    return Path(daemon.data / "media" / item["id"][:2] / item["id"]).read_bytes()


# -- from people -------------------------------------------------------------------------------


async def test_an_agent_is_given_the_files_of_a_message(slack: LocalSlack, run: Run) -> None:
    """They are on our disk, under ids of ours, when the agent is asked."""
    daemon = await run(bot=READER)
    files = [slack.file("a.txt", b"alpha"), slack.file("b.bin", b"\0" * 200_000, "x/y")]
    asked = await slack.say(USER, CHANNEL, "look", mention=True, files=files)
    await heard(slack, ["read"], CHANNEL, asked.ts)

    [turn] = turns(daemon)
    first, second = turn["media"]
    assert (first["name"], stored(daemon, first)) == ("a.txt", b"alpha")
    assert (second["name"], second["size"]) == ("b.bin", 200_000)
    assert turn["asked"] == ["look\n[file: a.txt]\n[file: b.bin]"]


async def test_the_download_comes_after_the_acknowledgement(slack: LocalSlack, run: Run) -> None:
    """Slack never waits for it."""
    await run(bot=READER)
    slack.faults.put("files.info", hang())
    asked = await slack.say(USER, slack.dm(USER), "look", files=[slack.file()])
    await slack.acked(asked)
    await slack.until(lambda: slack.called("files.info"))

    [envelope] = slack.told(asked)
    assert (envelope.ack_order or 0) < slack.called("files.info")[0].order


async def test_a_login_page_instead_of_a_file_is_told(slack: LocalSlack, run: Run) -> None:
    """The user and the model learn what is missing; the answer comes all the same."""
    daemon = await run(bot=READER)
    slack.faults.put("download", http_error(200))
    asked = await slack.say(USER, CHANNEL, "look", mention=True, files=[slack.file("a.txt")])
    await slack.until(lambda: len(said(slack, CHANNEL, asked.ts)) == 2)
    await slack.until(lambda: "read" in said(slack, CHANNEL, asked.ts))

    problem = "The file a.txt could not be read: the scope files:read is missing"
    [told] = [text for text in said(slack, CHANNEL, asked.ts) if text != "read"]
    [turn] = turns(daemon)
    assert problem in told
    assert turn["text"].startswith(f"look\n\n[{problem}")
    assert turn["asked"][0].startswith("look\n\n[The file a.txt could not be read")
    assert turn["media"] == []


@pytest.mark.parametrize(
    ("content", "declared"), [(b"x" * 11, None), (b"x" * 500_000, 3)], ids=["declared", "streamed"]
)
async def test_a_file_that_is_too_large_is_told(
    slack: LocalSlack, run: Run, content: bytes, declared: int | None
) -> None:
    """By what Slack says of it, and by what really comes; nothing of it stays on our disk."""
    daemon = await run(bot=READER, slack={"file_bytes": 10})
    big, small = slack.file("big.txt", content), slack.file("small.txt", b"tiny")
    big.declared_size = declared
    asked = await slack.say(USER, CHANNEL, "look", mention=True, files=[big, small])
    await slack.until(lambda: len(said(slack, CHANNEL, asked.ts)) == 2)
    await slack.until(lambda: "read" in said(slack, CHANNEL, asked.ts))

    [turn] = turns(daemon)
    assert [item["name"] for item in turn["media"]] == ["small.txt"]
    assert "big.txt could not be read: it is larger than 10 bytes" in turn["text"]
    assert list((daemon.data / "tmp").glob("upload-*")) == []


async def test_a_missing_scope_is_told_without_trying(slack: LocalSlack, run: Run) -> None:
    """Slack said at the start which scopes there are."""
    slack.workspace.scopes.discard("files:read")
    daemon = await run(bot=READER)
    asked = await slack.say(USER, CHANNEL, "look", mention=True, files=[slack.file("a.txt")])
    await slack.until(lambda: len(said(slack, CHANNEL, asked.ts)) == 2)

    [turn] = turns(daemon)
    assert "the scope files:read is missing" in turn["text"]
    assert slack.called("files.info") == []


async def test_a_broken_download_is_tried_again(slack: LocalSlack, run: Run) -> None:
    """A connection that is cut says nothing about the file."""
    daemon = await run(bot=READER)
    slack.faults.put("download", drop_before(), times=2)
    asked = await slack.say(USER, CHANNEL, "look", mention=True, files=[slack.file("a.txt")])
    await heard(slack, ["read"], CHANNEL, asked.ts)

    [turn] = turns(daemon)
    assert stored(daemon, turn["media"][0]) == b"text"


@pytest.fixture
async def elsewhere() -> AsyncIterator[tuple[str, list[str | None]]]:
    """A server that is not Slack, and the tokens it was shown."""
    shown: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        shown.append(request.headers.get("Authorization"))
        return web.Response(body=b"from elsewhere", content_type="text/plain")

    app = web.Application()
    app.router.add_get("/file", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/file", shown
    await runner.cleanup()


async def test_a_redirect_never_takes_the_token_along(
    slack: LocalSlack, run: Run, elsewhere: tuple[str, list[str | None]]
) -> None:
    """The file may lie elsewhere; who keeps it there is not shown our token."""
    url, shown = elsewhere
    daemon = await run(bot=READER)
    slack.faults.put("download", Fault(status=302, headers={"Location": url}))
    asked = await slack.say(USER, CHANNEL, "look", mention=True, files=[slack.file("a.txt")])
    await heard(slack, ["read"], CHANNEL, asked.ts)

    [turn] = turns(daemon)
    assert stored(daemon, turn["media"][0]) == b"from elsewhere"
    assert shown == [None]


async def test_a_file_kept_elsewhere_is_not_asked_for(
    slack: LocalSlack, run: Run, elsewhere: tuple[str, list[str | None]]
) -> None:
    """An address that is not Slack's is not even tried."""
    url, shown = elsewhere
    daemon = await run(bot=READER)
    file = slack.file("a.txt")
    file.url = url
    asked = await slack.say(USER, CHANNEL, "look", mention=True, files=[file])
    await slack.until(lambda: len(said(slack, CHANNEL, asked.ts)) == 2)

    assert "it is not kept in Slack" in turns(daemon)[0]["text"]
    assert shown == []


async def test_a_download_cut_by_a_crash_is_made_again(slack: LocalSlack, run: Run) -> None:
    """The message carries the file's id; whoever takes up the turn fetches it."""
    daemon = await run(bot=READER)
    slack.faults.put("download", hang())
    asked = await slack.say(USER, CHANNEL, "look", mention=True, files=[slack.file("a.txt")])
    await slack.acked(asked)
    await slack.until(lambda: [call for call in slack.called("files.info") if call.ended])
    await crash(daemon)
    await restart(daemon)
    await heard(slack, ["read"], CHANNEL, asked.ts)

    [turn] = turns(daemon)
    assert stored(daemon, turn["media"][0]) == b"text"


async def test_the_sender_is_told_once_also_across_a_crash(slack: LocalSlack, run: Run) -> None:
    """The turn runs twice; the note about the file is in the log since the first time."""
    waiting = READER.replace('yield "read"', 'yield "read"\n    await asyncio.sleep(60)')
    daemon = await run(bot="import asyncio\n" + waiting)
    slack.faults.put("files.info", refused("file_deleted"), times=None)
    asked = await slack.say(USER, CHANNEL, "look", mention=True, files=[slack.file("a.txt")])
    await slack.until(lambda: len(said(slack, CHANNEL, asked.ts)) == 2)
    await crash(daemon)
    (daemon.directory / "bot.py").write_text(READER)
    await restart(daemon)
    await daemon.logged("turn ended")
    await daemon.stop()

    first, second = turns(daemon)
    assert len(slack.answers(CHANNEL, asked.ts)) == 2
    assert second["text"] == first["text"]
    assert len(slack.called("files.info")) == 1


async def test_stop_ends_a_turn_that_waits_for_a_file(slack: LocalSlack, run: Run) -> None:
    """Fetching is part of the turn, so it ends with it."""
    daemon = await run(bot=READER)
    dm = slack.dm(USER)
    slack.faults.put("files.info", hang())
    await slack.say(USER, dm, "look", files=[slack.file()])
    await slack.until(lambda: slack.called("files.info"))
    await slack.say(USER, dm, "!stop")
    ended = await daemon.logged("turn ended")

    assert ended["outcome"] == "stopped"


async def test_nobody_else_sees_where_a_file_came_from(slack: LocalSlack, run: Run) -> None:
    """Neither the log nor the API holds an address or a token of Slack."""
    daemon = await run(bot=READER)
    dm = slack.dm(USER)
    await slack.say(USER, dm, "look", files=[slack.file("a.txt")])
    await heard(slack, ["read"], dm)
    client = await daemon.client()
    answer = await client.get(f"/api/v1/sessions/slack:{dm}/messages")
    log = (daemon.data / "sessions" / "slack" / f"{dm}.jsonl").read_text()

    [shown] = answer.json()["messages"][0]["media"]
    assert shown == {"name": "a.txt", "mime": "text/plain", "size": 4}
    assert all(word not in log for word in ("files-pri", "xoxb", "url_private"))


async def test_deleting_a_session_deletes_the_files_people_sent(
    slack: LocalSlack, run: Run
) -> None:
    """They are ours only as long as the conversation is."""
    daemon = await run(bot=READER)
    dm = slack.dm(USER)
    await slack.say(USER, dm, "look", files=[slack.file("a.txt")])
    await heard(slack, ["read"], dm)
    client = await daemon.client()
    answer = await client.delete(f"/api/v1/sessions/slack:{dm}")

    assert answer.status_code == 204
    assert [path for path in (daemon.data / "media").rglob("*") if path.is_file()] == []


# -- to people ---------------------------------------------------------------------------------


def sent(slack: LocalSlack, channel: str, thread: str) -> list[tuple[str, bytes]]:
    """The files people see there, in order."""
    shown = slack.answers(channel, thread)
    return [(file.name, file.content) for message in shown for file in message.files]


BOTH = [("chart.csv", b"a,b"), ("notes.txt", b"more")]


async def test_the_files_of_an_answer_follow_it_into_the_thread(
    slack: LocalSlack, run: Run
) -> None:
    """Each once, in the order in which they were made."""
    daemon = await run(bot=MAKER)
    asked = await slack.say(USER, CHANNEL, "draw", mention=True)
    await slack.until(lambda: len(sent(slack, CHANNEL, asked.ts)) == 2)
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["done", "", ""]
    assert sent(slack, CHANNEL, asked.ts) == BOTH


async def test_an_answer_of_files_alone_needs_no_words(slack: LocalSlack, run: Run) -> None:
    """Nobody is told that there is no answer."""
    daemon = await run(bot=MAKER.replace('yield "done"', ""))
    asked = await slack.say(USER, CHANNEL, "draw", mention=True)
    await slack.until(lambda: len(sent(slack, CHANNEL, asked.ts)) == 2)
    await daemon.stop()

    assert said(slack, CHANNEL, asked.ts) == ["", ""]


async def test_a_lost_answer_of_slack_does_not_double_a_file(slack: LocalSlack, run: Run) -> None:
    """It was shown, but we were not told: it is looked for before it is shown again."""
    daemon = await run(bot=MAKER)
    slack.faults.put("files.completeUploadExternal", drop_after())
    asked = await slack.say(USER, CHANNEL, "draw", mention=True)
    await slack.until(lambda: len(sent(slack, CHANNEL, asked.ts)) == 2)
    await daemon.stop()

    assert sent(slack, CHANNEL, asked.ts) == BOTH


@pytest.mark.parametrize("processed", [True, False])
async def test_a_crash_while_a_file_is_shown_leaves_it_there_once(
    slack: LocalSlack, run: Run, processed: bool
) -> None:
    """Whether Slack had shown it already or not."""
    daemon = await run(bot=MAKER)
    slack.faults.put("files.completeUploadExternal", hang(processed))
    asked = await slack.say(USER, CHANNEL, "draw", mention=True)
    await slack.until(lambda: slack.called("files.completeUploadExternal"))
    await slack.until(lambda: len(sent(slack, CHANNEL, asked.ts)) == int(processed))
    await crash(daemon)
    await restart(daemon)
    await slack.until(lambda: len(sent(slack, CHANNEL, asked.ts)) == 2)
    await daemon.stop()

    assert sent(slack, CHANNEL, asked.ts) == BOTH
    assert said(slack, CHANNEL, asked.ts).count("done") == 1


async def test_a_file_slack_refuses_is_told_in_one_line(slack: LocalSlack, run: Run) -> None:
    """The words and the other files arrive all the same."""
    daemon = await run(bot=MAKER)
    slack.faults.put("files.getUploadURLExternal", refused("missing_scope", needed="files:write"))
    asked = await slack.say(USER, CHANNEL, "draw", mention=True)
    await slack.until(lambda: len(said(slack, CHANNEL, asked.ts)) == 3)
    await daemon.stop()

    first, second, third = said(slack, CHANNEL, asked.ts)
    assert (first, third) == ("done", "")
    assert "chart.csv could not be sent: the scope files:write is missing" in second
    assert sent(slack, CHANNEL, asked.ts) == BOTH[1:]
