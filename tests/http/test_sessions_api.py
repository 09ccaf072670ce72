"""Sessions over HTTP: lists, pages, changes, exports and proactive messages."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.http.conftest import Start
from tests.http.daemon import Daemon

ONE = "/api/v1/sessions/websocket:one"


async def test_a_list_is_read_page_by_page(daemon: Daemon) -> None:
    """Newest first, every session once, and filters apply."""
    chat, http = await daemon.chat(), await daemon.client()
    for number in range(5):
        await chat.say(f"c{number}", f"word{number} common", id=f"m{number}")

    seen: list[str] = []
    cursor: str | None = None
    while cursor is not None or not seen:
        query = {"limit": "2", **({"cursor": cursor} if cursor else {})}
        page = (await http.get("/api/v1/sessions", params=query)).json()
        seen += [one["chat_id"] for one in page["sessions"]]
        cursor = page["next_cursor"]
    found = (await http.get("/api/v1/sessions?q=word3")).json()["sessions"]

    assert seen == ["c4", "c3", "c2", "c1", "c0"]
    assert [one["chat_id"] for one in found] == ["c3"]
    assert found[0]["matches"][0]["seq"] == 2
    assert found[0]["preview"] == "word3 common"


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1000",
        "limit=x",
        "cursor=%25%25",
        "cursor=AAAA",
        "created_after=yesterday",
        "created_before=99999999999999",
    ],
)
async def test_a_wrong_question_is_told_so(daemon: Daemon, query: str) -> None:
    """The problem names the place and never repeats the value."""
    answer = await (await daemon.client()).get(f"/api/v1/sessions?{query}")

    assert answer.status_code == 422
    assert answer.json()["code"] == "bad_request"


async def test_messages_are_read_in_both_directions(daemon: Daemon) -> None:
    """Pages neither repeat nor leave out, forwards by `after` and backwards by `before`."""
    chat, http = await daemon.chat(), await daemon.client()
    for number in range(10):
        await chat.say("one", f"m{number}", id=f"m{number}")

    async def page(**query: int) -> tuple[list[int], bool]:
        found = (await http.get(f"{ONE}/messages", params=query)).json()
        return [row["seq"] for row in found["messages"]], found["more"]

    assert await page(after=0, limit=7) == ([1, 2, 3, 4, 5, 6, 7], True)
    assert await page(after=7, limit=100) == (list(range(8, 21)), False)
    assert await page(limit=3) == ([18, 19, 20], True)
    assert await page(before=18, limit=20) == (list(range(1, 18)), False)
    assert await page(after=3, before=6) == ([4, 5], False)
    assert await page(after=99) == ([], False)


async def test_old_messages_are_read_through_the_archive(start: Start) -> None:
    """What the cap moved out of the live file is still there."""
    daemon = await start(sessions={"file_cap": 20}, limits={"messages_per_minute": 0})
    chat, http = await daemon.chat(), await daemon.client()
    for number in range(30):
        await chat.say("one", f"m{number}", id=f"m{number}")

    found = (await http.get(f"{ONE}/messages?after=0&limit=1000")).json()["messages"]

    assert [row["seq"] for row in found] == list(range(1, 61))


async def test_a_session_is_changed_by_what_is_named(daemon: Daemon) -> None:
    """The rest stays; null removes; every list on a screen learns of it."""
    chat, http = await daemon.chat(), await daemon.client()
    await chat.say("one", "hello")

    first = await http.patch(ONE, json={"title": "  A  title ", "custom": {"a": 1, "b": 2}})
    second = await http.patch(ONE, json={"tags": ["x", "x", "y"], "custom": {"a": None}})
    third = await http.patch(ONE, json={"title": None})

    assert (first.json()["title"], first.json()["custom"]) == ("A title", {"a": 1, "b": 2})
    assert second.json()["title"] == "A title"
    assert (second.json()["tags"], second.json()["custom"]) == (["x", "y"], {"b": 2})
    assert third.json()["title"] == ""
    while (await chat.frame("session"))["title"] != "A title":
        pass
    tagged = (await http.get("/api/v1/sessions?tag=y")).json()["sessions"]
    assert [one["key"] for one in tagged] == ["websocket:one"]


async def test_a_wrong_change_changes_nothing(daemon: Daemon) -> None:
    """Unknown fields, wrong types and too much are refused."""
    chat, http = await daemon.chat(), await daemon.client()
    await chat.say("one", "hello")

    for body, status in [
        ({"owner": "me"}, 422),
        ({"title": 5}, 422),
        ({"title": "x" * 201}, 422),
        ({"tags": "x"}, 422),
        ({"tags": None}, 422),
        ({"tags": ["x"] * 33}, 422),
        ({"custom": []}, 422),
        ({"custom": {"x": "y" * 20_000}}, 413),
        ([], 422),
    ]:
        assert (await http.patch(ONE, json=body)).status_code == status, body
    broken = await http.patch(ONE, content=b"{", headers={"Content-Type": "application/json"})
    assert broken.status_code == 422
    assert (await http.get(ONE)).json()["custom"] == {}


async def test_states_follow_each_other_as_told(daemon: Daemon) -> None:
    """A suspended or archived session takes no message; what does not fit is a conflict."""
    chat, http = await daemon.chat(), await daemon.client()
    await chat.say("one", "hello")

    for action, status, state in [
        ("suspend", 200, "suspended"),
        ("restore", 409, "suspended"),
        ("resume", 200, "active"),
        ("archive", 200, "archived"),
        ("suspend", 409, "archived"),
        ("resume", 409, "archived"),
        ("restore", 200, "active"),
        ("restore", 200, "active"),
        ("suspend", 200, "suspended"),
    ]:
        assert (await http.post(f"{ONE}/{action}")).status_code == status, action
        assert (await http.get(ONE)).json()["state"] == state, action
    await chat.send("send", chat_id="one", id="2", text="are you there?")
    assert (await chat.frame("error"))["code"] == "conflict"
    message = {"key": "websocket:one", "text": "psst"}
    assert (await http.post("/api/v1/messages", json=message)).status_code == 409


async def test_conversations_are_reset_and_restored(daemon: Daemon) -> None:
    """An ended conversation is read by `key#n` and can be gone on with."""
    chat, http = await daemon.chat(), await daemon.client()
    await chat.say("one", "first conversation", id="1")
    await chat.say("one", "/new", id="2")
    ended = "/api/v1/sessions/websocket:one%231"

    shown = (await http.get(ended)).json()
    messages = (await http.get(f"{ended}/messages")).json()["messages"]
    reset = (await http.post(f"{ONE}/reset")).json()
    restored = await http.post(f"{ended}/restore")

    assert (shown["state"], shown["conversation"]) == ("archived", 1)
    assert [row["content"] for row in messages[:2]] == ["first conversation"] * 2
    assert reset["conversation"] == 3
    assert restored.json()["conversation"] == 4
    assert (await http.patch(ended, json={"title": "x"})).status_code == 409
    assert (await http.delete(ended)).status_code == 409
    assert (await http.get("/api/v1/sessions/websocket:one%2399")).status_code == 404


async def test_a_running_turn_is_not_reset_under_its_feet(start: Start) -> None:
    """It is a conflict until the turn has ended."""
    daemon = await start(agents={"default": {"kind": "echo", "delay_ms": 60_000}})
    chat, http = await daemon.chat(), await daemon.client()
    await chat.send("send", chat_id="one", id="1", text="slow words")
    await chat.frame("turn_start")

    answer = await http.post(f"{ONE}/reset")

    assert (answer.status_code, answer.json()["code"]) == (409, "busy")


async def test_deleting_ends_everything_about_a_session(start: Start) -> None:
    """The running turn stops, waiting messages are withdrawn, and nothing can be read any more."""
    daemon = await start(agents={"default": {"kind": "echo", "delay_ms": 60_000}})
    chat, http = await daemon.chat(), await daemon.client()
    await chat.send("send", chat_id="one", id="1", text="slow words")
    await chat.frame("turn_start")
    await chat.send("send", chat_id="one", id="2", text="waiting")
    while (await chat.frame("ack"))["id"] != "2":
        pass

    deleted = await http.delete(ONE)

    assert deleted.status_code == 204
    assert (await http.get(ONE)).status_code == 404
    assert (await http.get("/api/v1/sessions")).json()["sessions"] == []
    metrics = (await http.get("/metrics")).text
    assert 'parley_messages_outcome_total{channel="websocket",outcome="withdrawn"} 1.0' in metrics
    assert 'parley_messages_outcome_total{channel="websocket",outcome="stopped"} 1.0' in metrics
    assert "parley_messages_pending 0.0" in metrics


async def test_a_session_is_exported_in_three_forms(daemon: Daemon) -> None:
    """For people, as its log, and as one object; always whole, always a download."""
    chat, http = await daemon.chat(), await daemon.client()
    await chat.say("one", "```\nunfinished")

    markdown = await http.get(f"{ONE}/export?format=md")
    log = (await http.get(f"{ONE}/export?format=jsonl")).text.splitlines()
    whole = (await http.get(f"{ONE}/export?format=json")).json()

    assert [line for line in markdown.text.splitlines() if line.startswith("```")] == ["```"] * 4
    assert markdown.headers["content-disposition"].startswith("attachment")
    assert [json.loads(line).get("role") for line in log] == [None, "user", "assistant"]
    assert [row["role"] for row in whole["messages"]] == ["user", "assistant"]
    assert (await http.get(f"{ONE}/export?format=exe")).status_code == 422


async def test_a_proactive_message_is_delivered_once(daemon: Daemon) -> None:
    """The same id is the same message; another text under it is a conflict; watchers see it."""
    chat, http = await daemon.chat(), await daemon.client()
    await chat.say("one", "hello")
    message = {"key": "websocket:one", "text": "by the way", "id": "d1"}

    first = await http.post("/api/v1/messages", json=message)
    second = await http.post("/api/v1/messages", json=message)
    other = await http.post("/api/v1/messages", json={**message, "text": "something else"})
    unnamed = await http.post("/api/v1/messages", json={"key": "websocket:new", "text": "hi"})

    assert first.status_code == second.status_code == 202
    assert first.json() == {
        "delivery_id": "d1",
        "key": "websocket:one",
        "seq": 3,
        "duplicate": False,
    }
    assert second.json() == {**first.json(), "duplicate": True}
    assert other.status_code == 409
    assert unnamed.json()["delivery_id"]
    shown = await chat.frame("message")
    assert (shown["role"], shown["content"], shown["seq"]) == ("assistant", "by the way", 3)


async def test_a_proactive_message_has_limits(start: Start) -> None:
    """Too long, empty, or to no chat at all."""
    daemon = await start(limits={"text": 10})
    http = await daemon.client()

    for message, status in [
        ({"key": "websocket:a", "text": "x" * 11}, 413),
        ({"key": "websocket:a", "text": "   "}, 422),
        ({"key": "websocket:a", "text": ""}, 422),
        ({"key": "websocket:a"}, 422),
        ({"key": "nothing", "text": "x"}, 404),
        ({"key": "websocket:a#1", "text": "x"}, 409),
        ({"key": "websocket:a", "text": "x", "id": ""}, 422),
        ({"key": "websocket:a", "text": "x", "to": "y"}, 422),
    ]:
        assert (await http.post("/api/v1/messages", json=message)).status_code == status, message


async def test_half_characters_do_not_break_an_answer(prepare: Callable[..., Daemon]) -> None:
    """A lone surrogate of an old log is shown as a replacement; a new one is refused."""
    daemon = prepare()
    file = daemon.data / "sessions" / "websocket" / "one.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text(
        '{"_type":"metadata","key":"websocket:one","metadata":{"title":"half \\ud83d"}}\n'
        '{"role":"user","content":"half \\ud83d of it","seq":1}\n'
    )
    http = await (await daemon.start()).client()
    new = b'{"key": "websocket:one", "text": "half \\ud83d of it"}'
    kind = {"Content-Type": "application/json"}

    assert (await http.get(ONE)).json()["title"] == "half ?"
    for path in ("/messages", "/export?format=json"):
        shown = (await http.get(f"{ONE}{path}")).json()["messages"]
        assert shown[0]["content"] == "half ? of it"
    assert (await http.get(f"{ONE}/export?format=md")).status_code == 200
    assert "\\ud83d of it" in (await http.get(f"{ONE}/export?format=jsonl")).text
    assert (await http.post("/api/v1/messages", content=new, headers=kind)).status_code == 422
