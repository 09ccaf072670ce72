"""The life of the process: start, signals, and every way out."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Callable

import pytest

from tests.http.conftest import Start
from tests.http.daemon import Daemon

SLOW = {"default": {"kind": "echo", "delay_ms": 60_000}}
HUNG = """
import time

async def reply(turn):
    yield "started "
    time.sleep(0) or await __import__("asyncio").to_thread(time.sleep, 3600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_cleanly(daemon: Daemon, number: int) -> None:
    """Exit code 0, and the log says so."""
    daemon.signal(number)

    assert await daemon.ended() == 0
    assert [event["event"] for event in daemon.events][-1] == "parley stopped"
    assert (daemon.data / "CLEAN").exists()


async def test_a_stop_waits_for_running_turns(start: Start) -> None:
    """Up to its deadline; whoever watches sees the end of the answer before the connection ends."""
    daemon = await start(agents={"default": {"kind": "echo", "delay_ms": 100}})
    chat = await daemon.chat()
    await chat.send("send", chat_id="c", id="1", text="one two three four")
    await chat.frame("delta")

    daemon.signal(signal.SIGTERM)
    end = await chat.frame("turn_end")

    assert end["outcome"] == "ok"
    assert await chat.closed() == 1001
    assert await daemon.ended() == 0


async def test_a_second_signal_stops_at_once(start: Start) -> None:
    """Without waiting for the turn; what was acknowledged is in the log."""
    daemon = await start(agents=SLOW, server={"shutdown_seconds": 600})
    chat = await daemon.chat()
    await chat.send("send", chat_id="c", id="1", text="slow words")
    await chat.frame("turn_start")

    daemon.signal(signal.SIGTERM)
    await daemon.logged("parley stopping")
    daemon.signal(signal.SIGTERM)

    assert await daemon.ended() == 1
    assert await daemon.logged("parley stopped at once")
    log = (daemon.data / "sessions" / "websocket" / "c.jsonl").read_text()
    assert any(json.loads(line).get("content") == "slow words" for line in log.splitlines())


async def test_an_agent_that_hangs_in_a_thread_does_not_keep_the_process(
    prepare: Callable[..., Daemon],
) -> None:
    """The deadline passes, what was shown is kept, and the process is gone."""
    daemon = prepare(
        agents={"default": {"kind": "python", "path": "hung:reply"}},
        server={"shutdown_seconds": 0.1},
    )
    (daemon.directory / "hung.py").write_text(HUNG)
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    await daemon.start(PYTHONPATH=f"{root}:{daemon.directory}")
    chat = await daemon.chat()
    await chat.send("send", chat_id="c", id="1", text="hello")
    await chat.frame("delta")

    assert await daemon.stop() == 0
    assert (await daemon.logged("turn ended"))["outcome"] == "interrupted"


async def test_a_client_that_never_reads_does_not_keep_the_process(start: Start) -> None:
    """Nor does one that holds an idle HTTP connection."""
    daemon = await start(limits={"messages_per_minute": 0})
    chat, http = await daemon.chat(), await daemon.client()
    await http.get("/healthz")
    chat.socket.transport.pause_reading()
    for number in range(30):
        await chat.send("send", chat_id="c", id=str(number), text="word " * 5_000)

    assert await daemon.stop() == 0


async def test_a_taken_directory_is_told_by_the_exit_code(
    daemon: Daemon, prepare: Callable[..., Daemon]
) -> None:
    """Even if the port is taken as well."""
    port = int(daemon.url.rpartition(":")[2])
    second = prepare(data_dir=str(daemon.data), server={"port": port})
    await second.launch()

    assert await second.ended() == 75
    assert str(daemon.data) in "".join(second.lines)


async def test_a_taken_port_is_told(daemon: Daemon, prepare: Callable[..., Daemon]) -> None:
    """The directory is left as it was found: clean."""
    second = prepare(server={"port": int(daemon.url.rpartition(":")[2])})
    await second.launch()

    assert await second.ended() == 1
    assert "in use" in (await second.logged("parley cannot listen"))["error"]
    assert (second.data / "CLEAN").exists()


async def test_bad_settings_are_told_one_per_line(prepare: Callable[..., Daemon]) -> None:
    """With the exit code for it; the values are not repeated."""
    daemon = prepare(limits={"text": "hunter2", "typo": 1}, auth={"mode": "open"})
    await daemon.launch()

    assert await daemon.ended() == 78
    assert len(daemon.lines) == 3
    assert "hunter2" not in "".join(daemon.lines)


async def test_an_agent_that_cannot_be_made_is_a_configuration_error(
    prepare: Callable[..., Daemon],
) -> None:
    """It is found at the start, not by the first user."""
    daemon = prepare(agents={"default": {"kind": "python", "path": "nowhere:reply"}})
    await daemon.launch()

    assert await daemon.ended() == 78
    assert any("nowhere" in line for line in daemon.lines)


async def test_damaged_tokens_let_nobody_in(start: Start) -> None:
    """A token file that cannot be read is an error at the start and a refusal later."""
    daemon = await start(auth={"mode": "token"})
    token = daemon.token("ann")
    http = await daemon.client(token)
    assert (await http.get("/api/v1/me")).status_code == 200

    (daemon.data / "tokens.json").write_text("{damaged")

    assert (await http.get("/api/v1/me")).status_code == 401
    await daemon.logged("tokens unreadable")
    await daemon.stop()
    await daemon.launch()
    assert await daemon.ended() == 78


async def test_limits_apply_without_a_restart(start: Start) -> None:
    """SIGHUP; what needs a restart is named."""
    daemon = await start()
    chat = await daemon.chat()
    daemon.configure({"limits": {"text": 3}, "server": {"shutdown_seconds": 1}})

    daemon.signal(signal.SIGHUP)
    reloaded = await daemon.logged("settings reloaded")
    await chat.send("send", chat_id="c", id="1", text="too long")

    assert (await chat.frame("error"))["code"] == "too_large"
    assert (reloaded["applied"], reloaded["restart"]) == (["limits"], ["server"])


async def test_the_data_directory_is_private(daemon: Daemon) -> None:
    """Nobody else on the machine reads what is said here."""
    await (await daemon.chat()).say("c", "hello")

    modes = {
        path: stat.S_IMODE(path.stat().st_mode) & 0o077
        for path in [daemon.data, *daemon.data.rglob("*")]
    }
    assert {str(path): mode for path, mode in modes.items() if mode} == {}
