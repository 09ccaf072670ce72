"""A session's key in a URL is one segment, whatever characters it holds."""

from __future__ import annotations

from urllib.parse import quote

from sessions.key import SessionKey
from tests.http.daemon import Daemon

NASTY = [
    "plain",
    "../../etc",
    "..",
    "a/messages",
    "a%2Fmessages",
    "%2F",
    "%",
    "a#1",
    "a?b=c&d",
    "grüße 漢字 🙂",
    "a:b:c",
    "\x00\n",
    " ",
    "a/export",
    "//",
]


def segment(chat_id: str) -> str:
    return quote(str(SessionKey("websocket", chat_id)), safe="")


async def test_every_key_reaches_its_own_session_and_no_other(daemon: Daemon) -> None:
    """Each of these chats is read, listed and changed by its key alone."""
    chat, http = await daemon.chat(), await daemon.client()
    for number, chat_id in enumerate(NASTY):
        await chat.say(chat_id, f"I am {number}", id=f"m{number}")

    for number, chat_id in enumerate(NASTY):
        found = (await http.get(f"/api/v1/sessions/{segment(chat_id)}")).json()
        messages = (await http.get(f"/api/v1/sessions/{segment(chat_id)}/messages")).json()
        changed = await http.patch(
            f"/api/v1/sessions/{segment(chat_id)}", json={"title": f"t{number}"}
        )

        assert found["chat_id"] == chat_id
        assert [row["content"] for row in messages["messages"]] == [f"I am {number}"] * 2
        assert changed.json()["title"] == f"t{number}"
    listed = (await http.get("/api/v1/sessions")).json()["sessions"]
    assert {(one["chat_id"], one["title"]) for one in listed} == {
        (chat_id, f"t{number}") for number, chat_id in enumerate(NASTY)
    }


async def test_what_is_no_key_is_not_found(daemon: Daemon) -> None:
    """A path that names no session exactly leads nowhere, least of all to another session."""
    chat, http = await daemon.chat(), await daemon.client()
    await chat.say("a", "secret of a")

    for path in [
        "/api/v1/sessions/websocket:a/messages/messages",
        "/api/v1/sessions/websocket%3Aa%2Fmessages",
        "/api/v1/sessions/websocket%3Aa/%6dessages",
        "/api/v1/sessions/websocket:a%252",
        "/api/v1/sessions/websocket:%ff",
        "/api/v1/sessions/websocket:",
        "/api/v1/sessions/nocolon",
        "/api/v1/sessions/websocket:a%23x",
        "/api/v1/sessions//messages",
        "/api/v1/sessions/..%2F..%2Fetc%2Fpasswd",
    ]:
        answer = await http.get(path)

        assert answer.status_code == 404, path
        assert "secret" not in answer.text
