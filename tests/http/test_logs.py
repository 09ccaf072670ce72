"""Logs: their form, what is kept, and what must never be in them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import Settings
from gateway.log_output import MOST_WAITING_BYTES, Output
from gateway.logs import as_json, as_text
from gateway.redaction import MASK, Redactor, secrets_in
from tests.http.conftest import Start
from tests.http.daemon import ROOT, Daemon

PLANTED = {
    "server": "server-secret-7f3a",
    "key": "provider-key-91bd",
    "webhook": "webhook-secret-22c4",
    "header": "header-secret-55e1",
    "slack": "xoxb-1234567890-slacktoken",
}


async def test_a_line_is_one_event_with_its_fields(daemon: Daemon) -> None:
    """Programs read `ts`, `level`, `event` and what belongs to it; text of people is not in it."""
    chat = await daemon.chat()

    await chat.say("c", "the quick brown fox")
    ended = await daemon.logged("turn ended")

    assert list(ended)[:3] == ["ts", "level", "event"]
    assert ended["level"] == "INFO"
    assert ended["session"] == "websocket:c"
    assert ended["outcome"] == "answered"
    assert ended["turn"] and ended["agent"] == "default"  # noqa: PT018 - two fields of one line
    assert "quick brown" not in "".join(daemon.lines)


async def test_recent_events_can_be_asked_for(daemon: Daemon) -> None:
    """By level, the newest last, as many as wanted."""
    chat, http = await daemon.chat(), await daemon.client()
    await chat.say("c", "hello")

    events = (await http.get("/api/v1/logs")).json()["events"]
    last = (await http.get("/api/v1/logs?limit=1&level=INFO")).json()["events"]
    none = (await http.get("/api/v1/logs?level=ERROR")).json()["events"]

    assert [event["event"] for event in events] == ["parley started", "turn started", "turn ended"]
    assert [event["event"] for event in last] == ["turn ended"]
    assert none == []
    assert (await http.get("/api/v1/logs?level=LOUD")).status_code == 422


FAILING_AGENT = """
import logging, os
from loguru import logger

async def reply(turn):
    logger.bind(api_key=os.environ["PLANTED_API_KEY"], note="Bearer abcdef123456").warning(
        "the key is " + os.environ["PLANTED_API_KEY"]
    )
    logging.getLogger("library").warning("Authorization: Bearer %s", "qwertyuiop123")
    raise RuntimeError("cannot use " + os.environ["PLANTED_API_KEY"] + " or xoxb-99999999-zzzz")
    yield ""
"""


async def test_planted_secrets_never_reach_the_log(prepare: Callable[..., Daemon]) -> None:
    """Not in texts, fields or exceptions, whoever logs them; neither in the recent events."""
    daemon = prepare(
        server={"secret": PLANTED["server"]},
        agents={
            "default": {"kind": "python", "path": "leaky:reply"},
            "hook": {
                "kind": "webhook",
                "url": "http://user:hunter2secret@127.0.0.1:1/",
                "secret": PLANTED["webhook"],
                "headers": {"X-Key": PLANTED["header"]},
            },
        },
        channels={"slack": {"bot_token": PLANTED["slack"]}},
        logging={"level": "DEBUG"},
    )
    (daemon.directory / "leaky.py").write_text(FAILING_AGENT)
    environment = {"PLANTED_API_KEY": PLANTED["key"]}
    await daemon.start(**environment, PYTHONPATH=f"{ROOT}:{daemon.directory}")
    chat = await daemon.chat("parley_" + "t" * 43)

    end = await chat.say("c", "hello")
    await daemon.logged("agent failed")
    events = (await (await daemon.client()).get("/api/v1/logs")).text

    text = "".join(daemon.lines)
    for secret in [
        *PLANTED.values(),
        "abcdef123456",
        "qwertyuiop123",
        "99999999-zzzz",
        "t" * 43,
        "hunter2secret",
    ]:
        assert secret not in text, secret
        assert secret not in events, secret
    assert "RuntimeError: cannot use *** or ***" in text
    assert end["outcome"] == "failed"


TO_A_FILE = """
import sys
from loguru import logger
from gateway.config import Settings
from gateway.logs import Logs

wanted = {"file": sys.argv[1], "format": "json", "rotation": "2 KB", "retention": "1 day"}
Logs().configure(Settings.model_validate({"logging": wanted}))
for number in range(100):
    logger.bind(number=number).info("line")
"""


def test_a_file_is_written_and_rotated(tmp_path: Path) -> None:
    """Standard error stays silent; old files are kept beside the new one, line by line."""
    path = tmp_path / "logs" / "parley.log"

    done = subprocess.run(
        [sys.executable, "-c", TO_A_FILE, str(path)],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    files = list(path.parent.iterdir())
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(files) > 2
    assert sorted(line["number"] for line in lines) == list(range(100))
    assert done.stderr == b""


async def test_a_log_that_cannot_be_written_is_a_configuration_error(
    prepare: Callable[..., Daemon],
) -> None:
    """It is told before anything is opened."""
    daemon = prepare(logging={"file": "parley.log", "retention": "for ever and a day"})
    await daemon.launch()

    assert await daemon.ended() == 78
    assert "logging:" in "".join(daemon.lines)


async def test_a_new_level_applies_without_a_restart(start: Start) -> None:
    """SIGHUP reads the settings again."""
    daemon = await start()
    daemon.configure({"logging": {"level": "WARNING"}})

    daemon.signal(signal.SIGHUP)
    await daemon.logged("settings reloaded", lambda event: event["applied"] == ["logging"])
    await (await daemon.chat()).say("c", "hello")

    assert [event["event"] for event in daemon.events] == ["parley started", "settings reloaded"]


async def test_bad_settings_change_nothing(start: Start) -> None:
    """What is wrong is logged and the last good settings stay."""
    daemon = await start()
    daemon.config.write_text("limits: {text: many}\n")

    daemon.signal(signal.SIGHUP)
    rejected = await daemon.logged("settings rejected")

    assert "limits.text" in rejected["error"]
    await (await daemon.chat()).say("c", "hello")


# -- forms --------------------------------------------------------------------------------------


def test_nobody_writes_a_line_of_their_own() -> None:
    """Newlines and control characters of a value stay inside its quotes."""
    event = {"ts": "T", "level": "INFO", "event": "x\ny\x1b[2J", "user": 'a\nb "c"', "n": 1}

    assert as_text(event) == 'T INFO    x\\ny\\x1b[2J user="a\\nb \\"c\\"" n=1'
    assert json.loads(as_json(event)) == event


@given(st.dictionaries(st.text(), st.one_of(st.text(), st.integers(), st.floats(), st.none())))
def test_every_event_is_one_line(fields: dict[str, object]) -> None:
    """Whatever the values are."""
    event = {"ts": "T", "level": "INFO", "event": "x", **{f"f{n}": v for n, v in fields.items()}}

    assert "\n" not in as_json(event)
    assert "\n" not in as_text(event)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.def-123456", f"{MASK}"),
        ("header authorization='Bearer abcdef99'", f"header {MASK}"),
        ("token parley_" + "a" * 43, f"token {MASK}"),
        ("slack xoxp-12-34-abcdef!", f"slack {MASK}!"),
        ("app xapp-1-A0-abcdef", f"app {MASK}"),
        ("sk-proj-abcdefghijkl failed", f"{MASK} failed"),
        ("postgres://user:pa55@db/x", f"postgres://{MASK}@db/x"),
        ("GET /api/v1/media/1?exp=5&sig=abcdef", f"GET /api/v1/media/1?exp=5&sig={MASK}"),
        ('{"api_key": "abcdef"}', '{"' + MASK + "}"),
        ("nothing to hide: token count 5", "nothing to hide: token count 5"),
        ("session websocket:sk-1", "session websocket:sk-1"),
    ],
)
def test_secrets_are_known_by_their_form(text: str, shown: str) -> None:
    """Wherever they come from."""
    assert Redactor().text(text) == shown


def test_secrets_are_known_by_their_value() -> None:
    """Those of the settings, the longest first; a short one would blot out half the log."""
    settings = Settings.model_validate(
        {
            "server": {"secret": "abcdefgh"},
            "agents": {
                "default": {"kind": "model", "model": "openai:x", "api_key": "abcdefgh-longer"},
                "tools": {
                    "kind": "model",
                    "model": "openai:x",
                    "mcp_servers": {"m": {"command": "x", "env": {"K": "inner-secret"}}},
                    "api_key": "ab",
                },
            },
        }
    )
    redactor = Redactor(secrets_in(settings))

    assert redactor.text("abcdefgh-longer abcdefgh inner-secret ab") == "*** *** *** ab"
    assert redactor.value({"password": "x", "list": [{"a": "abcdefgh"}]}) == {
        "password": MASK,
        "list": [{"a": MASK}],
    }


def test_a_reader_that_stalls_holds_nobody_up() -> None:
    """Lines wait, then the oldest are dropped; when it reads again, lines are whole."""
    reading, writing = os.pipe()
    output = Output(writing)
    line = b"x" * 999 + b"\n"
    count = 3 * MOST_WAITING_BYTES // len(line)
    seen: list[bytes] = []

    for _ in range(count):
        output.write(line)
    dropped = output.dropped

    def read() -> None:
        with open(reading, "rb", closefd=False) as stream:
            seen.extend(stream)

    reader = threading.Thread(target=read)
    reader.start()
    while output._waiting:
        output.flush()
    os.close(writing)
    reader.join()
    os.close(reading)

    assert dropped > 0
    assert len(seen) == count - dropped
    assert set(seen) == {line}


def test_a_reader_that_is_gone_is_no_error() -> None:
    """There is nowhere left to complain."""
    reading, writing = os.pipe()
    output = Output(writing)
    os.close(reading)

    output.write(b"x" * 10 + b"\n")

    os.close(writing)
    assert sys.stderr is not None
