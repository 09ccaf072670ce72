"""`parley chat` and `parley send`, as processes of their own, against a real gateway."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.http.conftest import Start
from tests.http.daemon import PATIENCE_SECONDS, ROOT, Daemon

BOT = """
import asyncio

async def once(turn):
    if turn.attempt == 1:
        yield "one two "
        await asyncio.sleep(3600)
    yield f"one two {turn.text}"

async def hangs(turn):
    yield "so far "
    await asyncio.sleep(3600)

async def fails(turn):
    yield "half"
    raise RuntimeError("a secret detail")
"""


class Command:
    """A `parley` process whose ends are pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    def type(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())

    async def line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            return (await self.process.stdout.readline()).decode()

    async def done(self) -> tuple[int, str, str]:
        """At the end of its input: exit code, output, errors."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            out, err = await self.process.communicate(b"")
        assert self.process.returncode is not None
        return self.process.returncode, out.decode(), err.decode()


def surroundings() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PARLEY_")}
    return {**kept, "PYTHONPATH": str(ROOT)}


Parley = Callable[..., Awaitable[Command]]


@pytest.fixture
async def parley(tmp_path: Path) -> AsyncIterator[Parley]:
    """Runs the command in an empty directory, without settings of the person who runs the tests."""
    started: list[Command] = []

    async def run(*arguments: str, **environment: str) -> Command:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", *arguments),
            cwd=tmp_path,
            env={**surroundings(), **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(Command(process))
        return started[-1]

    yield run
    for command in started:
        if command.process.returncode is None:
            command.process.kill()
            await command.process.communicate()


class Screen:
    """A `parley` process at a terminal."""

    def __init__(self, process: asyncio.subprocess.Process, master: int) -> None:
        self.process, self._master = process, master
        self._text = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    async def shows(self, text: str) -> None:
        """Waits until this is shown, after what was waited for before."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while text not in self._text:
                await self._readable()
                self._text += os.read(self._master, 65_536).decode(errors="replace")
        self._text = self._text.split(text, 1)[1]

    async def _readable(self) -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._master, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._master)


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Screen]]]:
    """Runs the command at a terminal of its own."""
    opened: list[tuple[Screen, int]] = []

    async def run(*arguments: str) -> Screen:
        master, slave = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway", *arguments),
            cwd=tmp_path,
            env={**surroundings(), "TERM": "xterm"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        opened.append((Screen(process, master), master))
        return opened[-1][0]

    yield run
    for screen, master in opened:
        if screen.process.returncode is None:
            screen.process.kill()
            await screen.process.wait()
        os.close(master)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


async def rows(daemon: Daemon, key: str) -> list[dict[str, Any]]:
    client = await daemon.client()
    answer = await client.get(f"/api/v1/sessions/{key}/messages")
    found: list[dict[str, Any]] = answer.json()["messages"]
    return found


async def kill(daemon: Daemon) -> None:
    daemon.signal(signal.SIGKILL)
    await daemon.ended()


async def test_a_line_from_a_pipe_gets_its_answer(start: Start, parley: Parley) -> None:
    """It is printed, alone, and the command ends with the input."""
    chat = await parley("chat", "--url", (await start()).url)
    chat.type("hello there")

    assert await chat.done() == (0, "hello there\n", "")


async def test_lines_and_commands_are_answered_in_order(start: Start, parley: Parley) -> None:
    """Every line waits for the one before it; a slash command is the gateway's business."""
    daemon = await start(sessions={"when_busy": "reject"})
    chat = await parley("chat", "--url", daemon.url, "--chat", "c")
    chat.type("one\n/title Tea\n\ntwo\n/new\nthree\n")
    code, out, err = await chat.done()

    answers = [row["content"] for row in await rows(daemon, "websocket:c") if row["role"] != "user"]
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "one"
    assert out.splitlines()[-1] == "three"
    assert answers[-1] == "three"


async def test_what_was_said_before_is_not_printed_again(start: Start, parley: Parley) -> None:
    """A pipe gets the answers to its own lines only."""
    daemon = await start()
    for text in ("first\n", "second\n"):
        chat = await parley("chat", "--url", daemon.url)
        chat.type(text)

        assert await chat.done() == (0, text, "")


async def test_a_crash_in_the_middle_of_an_answer(bot: Any, parley: Parley) -> None:
    """The command finds the gateway again, and prints the one answer once."""
    daemon = await bot("once", server={"port": free_port()})
    chat = await parley("chat", "--url", daemon.url, "--chat", "c")
    chat.type("hello\n")
    await daemon.logged("turn started")
    await kill(daemon)
    await daemon.start()
    answer = await chat.line()
    code, rest, err = await chat.done()

    assert (code, answer, rest) == (0, "one two hello\n", "")
    assert err == "parley: the connection is lost; trying again\n"
    assert [row["role"] for row in await rows(daemon, "websocket:c")] == ["user", "assistant"]


async def test_a_line_typed_while_the_gateway_is_away(start: Start, parley: Parley) -> None:
    """It is delivered once when the gateway is back."""
    daemon = await start(server={"port": free_port()})
    chat = await parley("chat", "--url", daemon.url, "--chat", "c")
    chat.type("before\n")
    before = await chat.line()
    await kill(daemon)
    chat.type("meanwhile\n")
    await daemon.start()
    meanwhile = await chat.line()
    code, rest, _ = await chat.done()

    said = [row["content"] for row in await rows(daemon, "websocket:c") if row["role"] == "user"]
    assert (before, meanwhile, rest, code) == ("before\n", "meanwhile\n", "", 0)
    assert said == ["before", "meanwhile"]


async def test_an_interrupt_stops_the_running_turn(bot: Any, terminal: Any) -> None:
    """At a terminal the answer streams, Ctrl-C stops it, Ctrl-D leaves."""
    daemon = await bot("hangs")
    screen = await terminal("chat", "--url", daemon.url, "--chat", "c")
    await screen.shows("> ")
    screen.type("go\r")
    await screen.shows("so far ")
    screen.process.send_signal(signal.SIGINT)
    await screen.shows("(stopped)")
    await screen.shows("> ")
    screen.type("\x04")

    assert await screen.process.wait() == 0
    assert (await rows(daemon, "websocket:c"))[-1]["outcome"] == "stopped"


async def test_a_second_interrupt_leaves(start: Start, terminal: Any) -> None:
    """With nothing to stop, Ctrl-C ends the command; what was said before was shown."""
    daemon = await start()
    await (await daemon.chat()).say("c", "from before")
    screen = await terminal("chat", "--url", daemon.url, "--chat", "c")
    await screen.shows("from before")
    await screen.shows("> ")
    screen.process.send_signal(signal.SIGINT)

    assert await screen.process.wait() == 0


async def test_a_failed_turn_is_told(bot: Any, parley: Parley) -> None:
    """What there is of the answer is printed, the reason apart from it."""
    chat = await parley("chat", "--url", (await bot("fails")).url)
    chat.type("go\n")

    assert await chat.done() == (1, "half\n", "(failed: The agent failed.)\n")


@pytest.mark.parametrize("arguments", [("chat",), ("send", "websocket:c", "hello")])
async def test_without_a_gateway(parley: Parley, arguments: tuple[str, ...]) -> None:
    """One line says how to start one."""
    command = await parley(*arguments, "--url", f"http://127.0.0.1:{free_port()}")
    code, out, err = await command.done()

    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "make run or parley serve" in err


@pytest.mark.parametrize("arguments", [("chat",), ("send", "websocket:c", "hello")])
async def test_a_token_is_asked_for(
    start: Start, parley: Parley, arguments: tuple[str, ...]
) -> None:
    """Without one, and with a wrong one, a line says where to put it."""
    daemon = await start(auth={"mode": "token"})
    for environment in ({}, {"PARLEY_TOKEN": "wrong"}):
        command = await parley(*arguments, "--url", daemon.url, **environment)
        code, out, err = await command.done()

        assert (code, out, err.count("\n")) == (1, "", 1)
        assert "PARLEY_TOKEN" in err


async def test_every_place_of_a_token_lets_in(start: Start, parley: Parley, tmp_path: Path) -> None:
    """The environment, a file, and the data directory of a gateway on the same machine."""
    daemon = await start(auth={"mode": "token"})
    secret = daemon.token("ada")
    (tmp_path / "token").write_text(f"{secret}\n")
    ways = [
        await parley("chat", "--url", daemon.url, "--chat", "ada", PARLEY_TOKEN=secret),
        await parley("chat", "--url", daemon.url, "--chat", "ada", "--token-file", "token"),
        await parley("chat", "--url", daemon.url, "--data-dir", str(daemon.data)),
    ]
    for chat in ways:
        chat.type("hello\n")

        assert await chat.done() == (0, "hello\n", "")


async def test_a_message_is_sent_once(start: Start, parley: Parley) -> None:
    """Whoever watches the chat sees it; the same id again delivers nothing."""
    daemon = await start()
    watcher = await daemon.chat()
    await watcher.say("c", "hello")
    arguments = ("send", "websocket:c", "Tea is ready", "--id", "tea", "--url", daemon.url)
    first = await (await parley(*arguments)).done()
    seen = await watcher.frame("message")
    again = json.loads((await (await parley(*arguments, "--json")).done())[1])

    assert first == (0, "tea\n", "")
    assert (seen["role"], seen["content"]) == ("assistant", "Tea is ready")
    assert (again["delivery_id"], again["duplicate"]) == ("tea", True)


async def test_a_refused_message_says_why(start: Start, parley: Parley) -> None:
    """With the gateway's own words."""
    daemon = await start()
    code, out, err = await (await parley("send", "websocket:c", " ", "--url", daemon.url)).done()

    assert (code, out, err) == (1, "", "parley: The message is empty.\n")
