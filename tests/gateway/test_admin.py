"""The admin socket: commands that change sessions work beside a running gateway, as without one."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from gateway import admin
from tests.http.conftest import Start
from tests.http.daemon import ROOT, Daemon

TIMES = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+Z")


class Ended(NamedTuple):
    code: int
    out: bytes
    err: bytes


async def parley(data: Path, *arguments: str) -> Ended:
    """The command in a process of its own; what differs from run to run is left out."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gateway", "sessions", *arguments, "--data-dir", str(data)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=data.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    hidden = [
        TIMES.sub(b"TIME", text).replace(os.fsencode(data.parent), b"DIR") for text in (out, err)
    ]
    return Ended(process.returncode, *hidden)


def admin_client(daemon: Daemon) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(daemon.data / "admin.sock"))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60)


async def talked(start: Start, **settings: Any) -> Daemon:
    """A gateway that holds a chat of two turns and an ended conversation in its cache."""
    daemon = await start(**settings)
    chat = await daemon.chat()
    await chat.say("a", "first words", id="1")
    await chat.say("a", "/new", id="2")
    await chat.say("a", "second words", id="3")
    await chat.say("b", "beside it", id="1")
    return daemon


def spoil(data: Path) -> None:
    """Bytes that are no record, in the middle of a log."""
    path = data / "sessions" / "websocket" / "a.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"\xff garbage\n", *lines[2:]]))


def legacy_file(data: Path) -> None:
    folder = data.parent / "old"
    folder.mkdir(exist_ok=True)
    facts = {"_type": "metadata", "key": "telegram:7", "metadata": {}, "last_consolidated": 0}
    row = {"role": "user", "content": "hello", "timestamp": "2025-01-01T00:00:00"}
    text = "\n".join(json.dumps(line) for line in (facts, row)) + "\n"
    (folder / "telegram_7.jsonl").write_text(text)


async def test_the_socket_is_there_while_the_gateway_runs(start: Start) -> None:
    """Its mode is 0600, one that a dead process left is replaced, and a stop removes it."""
    daemon = await start()
    path = daemon.data / "admin.sock"
    mode = stat.S_IMODE(path.stat().st_mode)
    daemon.signal(signal.SIGKILL)
    await daemon.ended()
    left = path.exists()
    await daemon.start()
    async with admin_client(daemon) as client:
        answered = (await client.get("/readyz")).status_code
    code = await daemon.stop()

    assert (mode, left, answered, code) == (0o600, True, 200, 0)
    assert not path.exists()


async def test_the_socket_has_an_administrators_rights(start: Start) -> None:
    """In mode token nobody needs one there; over TCP everybody does."""
    daemon = await start(auth={"mode": "token"})
    client = await daemon.client()

    async with admin_client(daemon) as operator:
        me = (await operator.get("/api/v1/me")).json()
        listed = (await operator.get("/api/v1/sessions")).status_code
    refused = (await client.get("/api/v1/sessions")).status_code

    assert (me["role"], listed, refused) == ("admin", 200, 401)


async def test_upkeep_is_out_of_reach_over_tcp(start: Start) -> None:
    """Not even an administrator repairs or migrates through the port."""
    daemon = await start()
    client = await daemon.client()

    answers = [
        await client.post(f"/api/v1/admin/{name}", json={"source": "/"})
        for name in ("repair", "migrate")
    ]

    assert [answer.status_code for answer in answers] == [404, 404]


async def test_an_open_connection_does_not_hold_up_a_stop(start: Start) -> None:
    """Neither one that says nothing nor one that has asked and does not read."""
    daemon = await talked(start)
    silent, asking = (admin.connect(daemon.data) for _ in range(2))
    assert silent is not None
    assert asking is not None
    asking.sendall(b"GET /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\n\r\n")

    code = await daemon.stop()

    assert code == 0
    silent.close()
    asking.close()


async def test_a_long_path_has_a_socket_too(prepare: Callable[..., Daemon]) -> None:
    """A data directory whose socket's name fits in no address can be reached all the same."""
    daemon = prepare()
    daemon.data = daemon.directory / ("d" * 100) / ("e" * 100)
    daemon.configure({})
    await daemon.start()

    found = admin.connect(daemon.data)
    ended = await parley(daemon.data, "repair", "--json")

    assert found is not None
    found.close()
    assert (ended.code, json.loads(ended.out)) == (0, {"repaired": [], "failed": []})


def test_something_else_of_that_name_is_left_alone(tmp_path: Path) -> None:
    """A file that is no socket was put there by somebody."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "admin.sock").write_text("mine")

    with pytest.raises(FileExistsError):
        admin.listen(tmp_path)

    assert (tmp_path / "admin.sock").read_text() == "mine"


def test_the_other_end_is_known() -> None:
    """The kernel says that the process at the other end of a socket is our own user's."""
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        assert admin.is_ours(one)


SCENARIOS: dict[str, tuple[Callable[[Path], None] | None, list[list[str]]]] = {
    "state": (
        None,
        [
            ["archive", "websocket:a"],
            ["archive", "websocket:a", "--json"],
            ["restore", "websocket:a"],
            ["restore", "websocket:a", "--json"],
            ["list", "--json"],
        ],
    ),
    "conversation": (
        None,
        [
            ["archive", "websocket:a#1"],
            ["restore", "websocket:a#1"],
            ["archive", "websocket:a"],
            ["restore", "websocket:a#1", "--json"],
            ["restore", "websocket:a#9"],
        ],
    ),
    "delete": (
        None,
        [
            ["delete", "websocket:a"],
            ["delete", "websocket:a#1", "--yes"],
            ["delete", "websocket:a", "--yes"],
            ["delete", "websocket:a", "--yes", "--json"],
            ["delete", "websocket:b", "--yes", "--json"],
            ["list", "--json"],
        ],
    ),
    "repair": (
        spoil,
        [
            ["repair", "--json"],
            ["repair"],
            ["show", "websocket:a", "--json"],
        ],
    ),
    "migrate": (
        legacy_file,
        [
            ["migrate", "--from", "old", "--dry-run", "--json"],
            ["migrate", "--from", "old", "--keep"],
            ["migrate", "--from", "old", "--json"],
            ["migrate", "--from", "nowhere"],
            ["show", "telegram:7", "--json"],
        ],
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_command_does_the_same_with_and_without_a_gateway(start: Start, name: str) -> None:
    """Same output, same JSON, same exit code; only times differ."""
    prepare_files, commands = SCENARIOS[name]
    daemon = await talked(start)
    twin = daemon.directory / "twin" / "data"
    shutil.copytree(daemon.data, twin, ignore=shutil.ignore_patterns("admin.sock", ".lock"))
    for data in (daemon.data, twin):
        if prepare_files is not None:
            prepare_files(data)

    beside = [await parley(daemon.data, *command) for command in commands]
    alone = [await parley(twin, *command) for command in commands]

    assert beside == alone
    assert (await parley(daemon.data, "verify")).code == 0


async def test_a_repair_reaches_a_chat_in_use(start: Start) -> None:
    """The gateway reads the mended log anew and goes on writing to it, with higher numbers."""
    daemon = await talked(start)
    chat = await daemon.chat()
    before = await chat.say("a", "third", id="4")
    spoil(daemon.data)

    ended = await parley(daemon.data, "repair", "--json")
    after = await chat.say("a", "fourth", id="5")
    shown = json.loads((await parley(daemon.data, "show", "websocket:a", "--json")).out)

    assert [one["skipped"] for one in json.loads(ended.out)["repaired"]] == [1]
    assert after["seq"] > before["seq"]
    assert [row["content"] for row in shown["messages"]][-3:] == ["third", "fourth", "fourth"]


async def test_a_number_lost_from_the_file_is_not_given_out_again(start: Start) -> None:
    """A reader has seen the last row; what takes its place in the log has a higher number."""
    daemon = await talked(start)
    chat = await daemon.chat()
    before = await chat.say("a", "third", id="4")
    path = daemon.data / "sessions" / "websocket" / "a.jsonl"
    path.write_bytes(path.read_bytes()[:-20])

    await parley(daemon.data, "repair")
    after = await chat.say("a", "fourth", id="5")

    assert after["seq"] > before["seq"] + 1


async def test_clients_see_a_chat_deleted_by_the_operator(start: Start) -> None:
    """Whoever has the chat in their list is told, as if it had been deleted over HTTP."""
    daemon = await talked(start)
    chat = await daemon.chat()
    await chat.send("attach", chat_id="a")
    await chat.frame("attached")

    ended = await parley(daemon.data, "delete", "websocket:a", "--yes")
    frame = await chat.frame("session")

    assert ended.code == 0
    assert frame["state"] == "deleted"


async def test_what_was_migrated_is_there_at_once(start: Start) -> None:
    """The running gateway lists, finds and shows it without a restart."""
    daemon = await talked(start)
    client = await daemon.client()
    legacy_file(daemon.data)

    await parley(daemon.data, "migrate", "--from", "old")
    found = (await client.get("/api/v1/sessions", params={"q": "hello"})).json()

    assert [one["key"] for one in found["sessions"]] == ["telegram:7"]


async def test_deleting_without_a_gateway_removes_the_files_of_the_chat(start: Start) -> None:
    """Uploads go with their chat, whoever deletes it."""
    daemon = await start()
    client = await daemon.client()
    files = {"file": ("note.txt", b"some words", "text/plain")}
    made = (await client.post("/api/v1/media", files=files)).json()
    chat = await daemon.chat()
    await chat.say("a", "look", media=[made["id"]])
    await daemon.stop()
    stored = [path for path in (daemon.data / "media").rglob("*") if path.is_file()]

    ended = await parley(daemon.data, "delete", "websocket:a", "--yes")

    assert ended.code == 0
    assert stored
    assert not any(path.exists() for path in stored)


async def test_another_owner_of_the_directory_is_still_in_the_way(start: Start) -> None:
    """A process that holds the lock and has no socket: exit 75, as ever."""
    daemon = await talked(start)
    (daemon.data / "admin.sock").unlink()

    ended = await parley(daemon.data, "archive", "websocket:a")

    assert ended.code == 75
