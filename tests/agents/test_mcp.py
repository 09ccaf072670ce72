"""Tools from MCP servers, over standard input and output and over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvicorn
from loguru import logger

from gateway.agents.agent import Calls, Produced, ToolResult
from gateway.agents.mcp import McpToolbox, tool_name
from gateway.agents.model import ModelAgent
from gateway.agents.tools import Outcome
from gateway.config import McpServerSettings, ModelAgentSettings
from tests.support import mcp_old_server, mcp_server
from tests.support.model_server import answer, call, words
from tests.support.scripted_http import ScriptedServer
from tests.support.turns import collect, text_of

SCRIPT = str(Path(mcp_server.__file__))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace"
    path.touch()
    return path


@asynccontextmanager
async def toolbox(**servers: dict[str, Any]) -> AsyncGenerator[McpToolbox, None]:
    """A toolbox that does not rest after a failed connection."""
    settings = {name: McpServerSettings.model_validate(fields) for name, fields in servers.items()}
    box = McpToolbox(settings, rest_seconds=0)
    try:
        yield box
    finally:
        await box.close()


def stdio(trace: Path, **fields: Any) -> dict[str, Any]:
    environment = {"MCP_TRACE": str(trace), **fields.pop("env", {})}
    return {"command": sys.executable, "args": [SCRIPT], "env": environment, **fields}


class HttpServer:
    """The same tools over HTTP, on a port that survives a restart."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace
        self._port = 0
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/mcp"

    async def start(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        started = asyncio.Event()
        app = mcp_server.build(self._trace).streamable_http_app()

        class Server(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                started.set()

        self._server = Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))
        self._task = asyncio.get_running_loop().create_task(self._server.serve([listener]))
        await started.wait()

    async def stop(self) -> None:
        assert self._server is not None
        assert self._task is not None
        self._server.should_exit = True
        await self._task


@pytest.fixture
async def http(trace: Path) -> AsyncIterator[HttpServer]:
    server = HttpServer(trace)
    await server.start()
    yield server
    await server.stop()


async def run(box: McpToolbox, tool: str, /, **arguments: Any) -> Outcome:
    return await (await box.tools())[tool].call(arguments)


def children() -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE and SCRIPT in child.cmdline()
    ]


async def test_tools_are_named_after_their_server(trace: Path) -> None:
    """The model sees server and tool in one name, with description and schema."""
    async with toolbox(calc=stdio(trace)) as box:
        tools = await box.tools()

    tool = tools["calc_add"]
    assert tool.description == "Adds two numbers."
    assert set(tool.schema["properties"]) == {"a", "b"}
    assert not tool.read_only


async def test_a_tool_is_called(trace: Path) -> None:
    """Arguments go there and the text comes back."""
    async with toolbox(calc=stdio(trace)) as box:
        outcome = await run(box, "calc_add", a=2, b=3)

    assert outcome == Outcome("5")
    assert trace.read_text() == "add 2 3\n"


async def test_a_server_of_the_first_generation() -> None:
    """Most servers know only the old greeting; they are understood all the same."""
    old = {"command": sys.executable, "args": [str(Path(mcp_old_server.__file__))]}
    async with toolbox(old=old) as box:
        outcome = await run(box, "old_shout", text="hello")

    assert outcome == Outcome("HELLO")


async def test_patterns_decide_what_the_model_may_use(trace: Path) -> None:
    """`deny` is stronger than `allow`, and `read_only` marks what a crash may repeat."""
    fields = {"allow": ["a*", "secret_*"], "deny": ["*admin"], "read_only": ["ad?"]}
    async with toolbox(calc=stdio(trace, **fields)) as box:
        tools = await box.tools()

    assert list(tools) == ["calc_add"]
    assert tools["calc_add"].read_only


async def test_a_child_sees_its_settings_and_not_our_environment(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Secrets of the gateway are not handed to every tool server."""
    monkeypatch.setenv("PARLEY_TOKEN", "secret")
    async with toolbox(calc=stdio(trace, env={"TEAM": "blue"})) as box:
        ours = await run(box, "calc_environment", name="PARLEY_TOKEN")
        theirs = await run(box, "calc_environment", name="TEAM")

    assert (ours.text, theirs.text) == ("unset", "blue")


async def test_a_failing_tool_is_a_result(trace: Path) -> None:
    """The model reads what went wrong, and the server stays connected."""
    async with toolbox(calc=stdio(trace)) as box:
        failed = await run(box, "calc_fail")
        wrong = await run(box, "calc_add", a="x")
        [child] = children()
        fine = await run(box, "calc_add", a=1, b=1)

        assert children() == [child]

    assert failed.failed
    assert "out of paper" in failed.text
    assert wrong.failed
    assert fine.text == "2"


async def test_a_picture_is_a_file(trace: Path) -> None:
    """The user gets the file, the model is told its name."""
    async with toolbox(calc=stdio(trace)) as box:
        outcome = await run(box, "calc_picture")

    assert outcome.files == [Produced("file-1.png", "image/png", b"\x89PNG pixel")]
    assert outcome.text == "[file: file-1.png]"


async def test_a_dead_child_is_started_again(trace: Path) -> None:
    """A server that was killed between two turns is there again in the next one."""
    async with toolbox(calc=stdio(trace)) as box:
        await run(box, "calc_add", a=1, b=1)
        [child] = children()
        child.send_signal(signal.SIGKILL)
        child.wait()
        outcome = await run(box, "calc_add", a=2, b=2)

    assert outcome.text == "4"


async def test_a_call_that_kills_the_server_is_not_repeated(trace: Path) -> None:
    """Nobody knows what it did, so the result says that; the next call finds a new server."""
    async with toolbox(calc=stdio(trace)) as box:
        tools = await box.tools()
        died = await tools["calc_die"].call({})
        after = await tools["calc_add"].call({"a": 1, "b": 1})

    assert died.failed
    assert "may or may not have taken effect" in died.text
    assert after.text == "2"
    assert trace.read_text() == "die\nadd 1 1\n"


async def test_a_read_only_call_is_repeated_on_a_new_connection(trace: Path) -> None:
    """A tool without side effects gets a second chance by itself."""
    async with toolbox(calc=stdio(trace, read_only=["die"])) as box:
        outcome = await run(box, "calc_die")

    assert outcome.text == "alive"
    assert trace.read_text() == "die\ndie\n"


async def test_a_tool_that_never_answers_is_given_up(trace: Path) -> None:
    """After its time the turn goes on, and the result tells that the outcome is unknown."""
    async with toolbox(calc=stdio(trace)) as box:
        tools = await box.tools()
        server = tools["calc_wait"]._server  # type: ignore[attr-defined]  # inside
        server.settings = server.settings.model_copy(update={"timeout_seconds": 0.05})
        outcome = await tools["calc_wait"].call({})

    assert outcome.failed
    assert "did not answer within 0.05 s" in outcome.text


@pytest.mark.parametrize(
    "broken",
    [
        {"command": "/nonexistent/mcp-server"},
        {"command": "true"},
        {"command": "echo", "args": ["hello"]},
        {"command": "sleep", "args": ["1000"], "timeout_seconds": 0.05},
        {"url": "http://127.0.0.1:1/mcp"},
    ],
    ids=["not there", "ends at once", "speaks something else", "says nothing", "refuses"],
)
async def test_a_server_that_cannot_be_reached_costs_only_its_tools(
    trace: Path, broken: dict[str, Any]
) -> None:
    """The others are there, and nothing is raised."""
    async with toolbox(calc=stdio(trace, allow=["add"]), broken=broken) as box:
        tools = await box.tools()

    assert list(tools) == ["calc_add"]


async def test_what_a_child_says_goes_to_the_log(trace: Path) -> None:
    """Its standard error becomes log lines and does not mix with ours."""
    said = asyncio.Event()
    lines: list[str] = []

    def hear(line: str) -> None:
        lines.append(line)
        if "mcp server said" in line:
            said.set()

    handler = logger.add(hear, format="{message} {extra}", level="DEBUG")
    async with toolbox(calc=stdio(trace)) as box:
        await box.tools()
        async with asyncio.timeout(30):
            await said.wait()
    logger.remove(handler)

    assert any("the server is up" in line and "calc" in line for line in lines)


async def test_a_server_that_went_away_fails_its_tools_clearly(trace: Path) -> None:
    """Tools that were known stay offered; calling them says that the server is not there."""
    async with toolbox(calc=stdio(trace)) as box:
        await box.tools()
        server = (await box.tools())["calc_add"]._server  # type: ignore[attr-defined]  # inside
        server.settings = server.settings.model_copy(update={"command": "/nonexistent"})
        [child] = children()
        child.send_signal(signal.SIGKILL)
        child.wait()
        outcome = await run(box, "calc_add", a=1, b=1)

    assert outcome == Outcome.failure("The tool server calc is not available.")


async def test_a_server_that_failed_is_left_alone_for_a_while(trace: Path) -> None:
    """Every turn would otherwise wait for it; during its rest no child is started."""
    box = McpToolbox({"calc": McpServerSettings(command="/nonexistent")}, rest_seconds=3600)
    await box.tools()
    server = box._servers[0]
    server.settings = McpServerSettings.model_validate(stdio(trace))

    assert await box.tools() == {}
    await box.close()


async def test_closing_ends_the_children(trace: Path) -> None:
    """After a shutdown no tool server is left behind."""
    async with toolbox(calc=stdio(trace), other=stdio(trace)) as box:
        await box.tools()
        running = children()

    assert len(running) == 2
    assert children() == []


async def test_a_cancelled_turn_leaves_the_connection_to_the_others(tmp_path: Path) -> None:
    """Stopping one turn in the middle of a call does not end the server."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    async with toolbox(calc=stdio(pipe)) as box:
        tools = await box.tools()
        task = asyncio.get_running_loop().create_task(tools["calc_wait"].call({}))
        # The tool writes here when it runs, and both sides wait for each other.
        assert await asyncio.to_thread(pipe.read_text) == "wait\n"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        [child] = children()
        outcome = await tools["calc_environment"].call({"name": "TEAM"})

        assert children() == [child]

    assert outcome.text == "unset"


async def test_turns_side_by_side_share_one_child(trace: Path) -> None:
    """The first use of a server by many turns starts it once."""
    async with toolbox(calc=stdio(trace)) as box:
        outcomes = await asyncio.gather(*(run(box, "calc_add", a=n, b=0) for n in range(10)))
        running = children()

    assert [outcome.text for outcome in outcomes] == [str(n) for n in range(10)]
    assert len(running) == 1


async def test_a_server_over_http(http: HttpServer) -> None:
    """The same tools at an address."""
    async with toolbox(calc={"url": http.url}) as box:
        outcome = await run(box, "calc_add", a=2, b=3)

    assert outcome.text == "5"


async def test_a_restart_over_http_is_survived(http: HttpServer) -> None:
    """The next turn connects anew and does not lose its call."""
    async with toolbox(calc={"url": http.url}) as box:
        await run(box, "calc_add", a=1, b=1)
        await http.stop()
        away = await run(box, "calc_add", a=1, b=1)
        await http.start()
        back = await run(box, "calc_add", a=2, b=2)

    assert away.failed
    assert back.text == "4"


async def test_the_model_uses_a_tool_of_a_server(trace: Path) -> None:
    """From the settings to the answer: the call is told, runs, and its result goes back."""
    script = [
        answer(call("c1", "calc_add", '{"a": 2, "b": 3}'), finish="tool_calls"),
        answer(words("five")),
    ]
    async with ScriptedServer(*script) as server:
        settings = ModelAgentSettings.model_validate(
            {"kind": "model", "base_url": server.url, "mcp_servers": {"calc": stdio(trace)}}
        )
        agent = await asyncio.to_thread(ModelAgent.load, "support", settings)
        events = await collect(agent)
        await agent.close()

    assert any(isinstance(event, Calls) for event in events)
    assert ToolResult("c1", "calc_add", "5", "5") in events
    assert text_of(events) == "five"
    assert server.requests[1].json["messages"][-1]["content"] == "5"


def test_long_and_strange_names_become_legal() -> None:
    """A name fits what providers accept, and two names never become one."""
    long, other = tool_name("s", "x" * 90), tool_name("s", "x" * 91)

    assert tool_name("files", "read-file") == "files_read-file"
    assert len(long) == 64
    assert long != other
    assert tool_name("s", "a.b") != tool_name("s", "a/b")
