"""The end of the process, in every way, and what its users see afterwards."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.http.conftest import Start
from tests.http.daemon import Chat, Daemon

BOT = '''
import asyncio, os, time
from pathlib import Path
from gateway.agents.agent import Calls, Delta, ToolResult, ToolStarted

async def hangs(turn):
    yield "so far "
    await asyncio.sleep(3600)

async def silent(turn):
    await asyncio.sleep(3600)
    yield ""

async def once(turn):
    """Hangs in the first life of the process, answers in the second."""
    if turn.attempt == 1:
        await asyncio.sleep(3600)
    yield f"attempt {turn.attempt}: {turn.text}"

async def kills(turn):
    os._exit(9)
    yield ""

async def works(turn):
    """Calls a tool with a side effect, then hangs; continues from what is logged."""
    done = any(row.role == "tool" for row in turn.messages)
    if not done:
        call = {"id": "call_1", "type": "function", "function": {"name": "pay", "arguments": "{}"}}
        yield Calls([call])
        yield ToolStarted("call_1", "pay")
        with Path("paid").open("a") as file:
            file.write("x")
        yield ToolResult("call_1", "pay", "paid")
        await asyncio.sleep(3600)
    yield "paid once"
'''


def rows_on_disk(data: Path, chat_id: str) -> list[dict[str, Any]]:
    lines = (data / f"sessions/websocket/{chat_id}.jsonl").read_text().splitlines()
    return [row for line in lines if "role" in (row := json.loads(line)) and "note" not in row]


async def kill(daemon: Daemon) -> None:
    daemon.signal(signal.SIGKILL)
    await daemon.ended()


async def ended_turn(chat: Chat, chat_id: str) -> list[dict[str, Any]]:
    """Attaches and waits until nothing is pending; the messages in order."""
    await chat.send("attach", chat_id=chat_id, since=0)
    rows: list[dict[str, Any]] = []
    asked, settled = set[int](), set[int]()
    while not asked or asked - settled:
        row = await chat.frame("message")
        rows.append(row)
        if row["role"] == "user":
            asked.add(row["seq"])
        settled |= {int(seq) for seq in row.get("settles") or ()}
    return rows


async def test_what_was_acknowledged_survives_kill_9(start: Start) -> None:
    """Every acknowledged message is in the log once, in order, and answered after the restart."""
    daemon = await start(agents={"default": {"kind": "echo", "delay_ms": 20}})
    chat = await daemon.chat()
    for number in range(20):
        await chat.send("send", chat_id="c", id=str(number), text=f"text {number}")
    for _ in range(20):
        await chat.frame("ack")
    await kill(daemon)
    stored = [row["id"] for row in rows_on_disk(daemon.data, "c") if row["role"] == "user"]
    await daemon.start()
    rows = await ended_turn(await daemon.chat(), "c")

    assert stored == [str(number) for number in range(20)]
    answers = [row["content"] for row in rows if row["role"] == "assistant"]
    assert answers == [f"text {number}" for number in range(20)]


async def test_a_turn_is_taken_up_again_after_a_crash(bot: Any) -> None:
    """The same turn, a second attempt, one answer."""
    daemon = await bot("once")
    chat = await daemon.chat()
    await chat.send("send", chat_id="c", id="1", text="hello")
    await chat.frame("turn_start")
    await kill(daemon)
    await daemon.start()
    rows = await ended_turn(await daemon.chat(), "c")

    assert [row["content"] for row in rows] == ["hello", "attempt 2: hello"]
    assert any(event["event"] == "turn recovered" for event in daemon.events)


async def test_a_message_that_kills_the_process_is_given_up(bot: Any) -> None:
    """Three attempts, then a visible end; the gateway is not caught in a loop."""
    daemon = await bot("kills")
    chat = await daemon.chat()
    await chat.send("send", chat_id="c", id="1", text="boom")
    await daemon.ended()
    for _ in range(2):
        await daemon.launch()
        await daemon.ended()
    await daemon.start()
    rows = await ended_turn(await daemon.chat(), "c")

    assert rows[-1]["outcome"] == "failed"
    assert "stopped each time" in rows[-1]["error"]


async def test_a_side_effect_is_not_repeated(bot: Any) -> None:
    """A rerun goes on from the rows the first attempt has logged."""
    daemon = await bot("works")
    chat = await daemon.chat()
    await chat.send("send", chat_id="c", id="1", text="pay")
    while (await chat.frame("message"))["role"] != "tool":
        pass
    await kill(daemon)
    await daemon.start()
    rows = await ended_turn(await daemon.chat(), "c")

    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "assistant"]
    assert (daemon.directory / "paid").read_text() == "x"


async def test_old_work_is_closed_and_not_answered_late(bot: Any) -> None:
    """After resume_max_age a pending message gets a note instead of an answer."""
    daemon = await bot("once", sessions={"resume_max_age": 0})
    chat = await daemon.chat()
    await chat.send("send", chat_id="c", id="1", text="hello")
    await chat.frame("turn_start")
    await kill(daemon)
    await daemon.start()
    rows = await ended_turn(await daemon.chat(), "c")

    assert rows[-1]["outcome"] == "failed"
    assert "too much time has passed" in rows[-1]["error"]


async def test_sigterm_waits_for_running_turns(start: Start) -> None:
    """A turn that ends before the deadline ends as if nothing had happened."""
    daemon = await start(agents={"default": {"kind": "echo", "delay_ms": 20}})
    chat = await daemon.chat()
    await chat.send("send", chat_id="c", id="1", text="one two three four five")
    await chat.frame("delta")
    daemon.signal(signal.SIGTERM)
    end = await chat.frame("turn_end")
    code = await chat.closed()

    assert end["outcome"] == "ok"
    assert code == 1001
    assert await daemon.ended() == 0


@pytest.mark.parametrize(("agent", "outcome"), [("hangs", "interrupted"), ("silent", None)])
async def test_sigterm_with_a_hanging_turn(bot: Any, agent: str, outcome: str | None) -> None:
    """What was shown is kept as interrupted; what was not shown is left for the next start."""
    daemon = await bot(agent, server={"shutdown_seconds": 0.2})
    chat = await daemon.chat()
    await chat.send("send", chat_id="c", id="1", text="go")
    await chat.frame("delta" if agent == "hangs" else "turn_start")
    code = await daemon.stop()
    rows = rows_on_disk(daemon.data, "c")

    assert code == 0
    assert [row.get("outcome") for row in rows[1:]] == ([outcome] if outcome else [])
    assert (daemon.data / "CLEAN").exists()


async def test_intake_ends_before_the_turns_do(bot: Any) -> None:
    """Whoever sends during a shutdown is told so."""
    daemon = await bot("hangs", server={"shutdown_seconds": 5})
    chat = await daemon.chat()
    await chat.send("send", chat_id="c", id="1", text="go")
    await chat.frame("delta")
    daemon.signal(signal.SIGTERM)
    await daemon.logged("parley stopping")
    await chat.send("send", chat_id="c", id="2", text="too late?")
    error = await chat.frame("error")

    assert error["code"] == "shutting_down"


async def test_a_client_that_never_reads_holds_nothing_up(start: Start) -> None:
    """It is cut off, the others go on, and SIGTERM still ends the process."""
    daemon = await start(limits={"messages_per_minute": 0})
    deaf = await daemon.chat(max_queue=1)
    deaf.socket.transport.pause_reading()
    await deaf.send("send", chat_id="c", id="0", text="x")
    talker = await daemon.chat()
    for number in range(1, 60):
        await talker.say("c", "y" * 60_000, id=str(number))
    client = await daemon.client()
    async with asyncio.timeout(60):
        while (await client.get("/readyz")).json()["channels"]["websocket"]["connections"] > 1:
            await asyncio.sleep(0)

    assert await daemon.stop() == 0


async def test_resuming_by_cursor_misses_and_repeats_nothing(start: Start) -> None:
    """The highest number seen is always a safe place to go on from."""
    daemon = await start(agents={"default": {"kind": "echo", "delay_ms": 1}})
    talker = await daemon.chat()
    seen: list[int] = []
    for number in range(15):
        await talker.send("send", chat_id="c", id=str(number), text=f"a b {number}")
        if not number:
            await talker.frame("ack")  # A chat that is not there cannot be attached to.
        reader = await daemon.chat()
        await reader.send("attach", chat_id="c", since=seen[-1] if seen else 0)
        if number:
            row = await reader.frame("message")
            seen.append(row["seq"])
        await reader.socket.close()
    for _ in range(15):
        await talker.frame("turn_end")
    reader = await daemon.chat()
    await reader.send("attach", chat_id="c", since=seen[-1])
    while seen[-1] < 30:
        seen.append((await reader.frame("message"))["seq"])

    assert seen == list(range(1, 31))


async def test_two_clients_see_the_same(start: Start) -> None:
    """Everything that happens in a chat reaches everybody who watches it."""
    daemon = await start()
    first, second = await daemon.chat(), await daemon.chat()
    await first.say("c", "hello", id="1")
    await second.send("attach", chat_id="c", since=0)
    await second.frame("message")
    await second.frame("message")
    await first.say("c", "one two three", id="2")
    await second.frame("turn_end")

    def shown(chat: Chat) -> list[Any]:
        kinds = ("delta", "message", "turn_end", "turn_start")
        frames = [frame for frame in chat.frames if frame["type"] in kinds]
        return frames[frames.index(next(f for f in frames if f.get("id") == "2")) :]

    assert shown(first) == shown(second)


async def test_received_is_outcomes_plus_pending(bot: Any) -> None:
    """Conservation holds while turns run, after refusals, and after a crash."""
    daemon = await bot("hangs", sessions={"mailbox_depth": 2})
    chat = await daemon.chat()
    for number in range(4):
        await chat.send("send", chat_id="c", id=str(number), text="x")
    for _ in range(2):
        await chat.frame("error")
    counted = [await conservation(daemon)]
    await kill(daemon)
    await daemon.start()
    await daemon.logged("turn recovered")
    counted.append(await conservation(daemon))

    assert counted[0] == (4, 2, 2)
    assert counted[1] == (2, 0, 2)


async def conservation(daemon: Daemon) -> tuple[int, int, int]:
    text = (await (await daemon.client()).get("/metrics")).text
    numbers = {"received_total": 0.0, "outcome_total": 0.0, "pending": 0.0}
    for line in text.splitlines():
        for name in numbers:
            if line.startswith(f"parley_messages_{name}"):
                numbers[name] += float(line.rsplit(" ", 1)[1])
    received, outcomes, pending = (int(value) for value in numbers.values())
    assert received == outcomes + pending
    return received, outcomes, pending
