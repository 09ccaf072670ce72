"""`parley doctor`: what it finds, what it says to do, and how it ends."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.config import Settings
from gateway.doctor import Report, examine
from gateway.doctor import check as checks
from sessions.directory import DataDirectory
from tests.gateway.test_admin import spoil, talked
from tests.http.conftest import Start
from tests.http.daemon import ROOT


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("COLUMNS", "FORCE_COLOR", "OPENAI_API_KEY", "PARLEY_CONFIG", "PARLEY_DATA_DIR")
    for name in names:
        monkeypatch.delenv(name, raising=False)


def doctor(directory: Path, *options: str, **settings: Any) -> Result:
    path = directory / "config.yaml"
    values = {"data_dir": str(directory / "data"), "server": {"port": 0}, **settings}
    path.write_text(yaml.safe_dump(values))
    return CliRunner().invoke(main, ["doctor", "--config", str(path), *options])


def found(directory: Path, name: str, **settings: Any) -> dict[str, Any]:
    """The one result of this name."""
    results = json.loads(doctor(directory, "--json", **settings).stdout)["checks"]
    [result] = [one for one in results if one["name"] == name]
    return dict(result)


def owned(path: Path) -> Path:
    """A data directory that a gateway has used and left."""
    with DataDirectory(path) as directory:
        directory.open("interval")
        directory.mark_clean()
    return path


def test_a_fresh_machine_has_no_failure(tmp_path: Path) -> None:
    """Before the first start: exit 0, every check has the four fields, nothing is created."""
    result = doctor(tmp_path, "--json")
    value = json.loads(result.stdout)

    assert result.exit_code == 0
    assert value["status"] in ("ok", "warn")
    assert {frozenset(one) for one in value["checks"]} == {
        frozenset({"name", "status", "detail", "fix"})
    }
    assert not (tmp_path / "data").exists()


def test_what_is_not_ok_says_what_to_do(tmp_path: Path) -> None:
    """Every warning and failure has a way out, and a failure is exit 1."""
    agents = {"default": {"kind": "python", "path": "no_such_module:reply"}}
    result = doctor(tmp_path, "--json", agents=agents, storage={"url": "memory:"})
    value = json.loads(result.stdout)
    troubles = [one for one in value["checks"] if one["status"] != "ok"]

    assert (result.exit_code, value["status"]) == (1, "fail")
    assert {one["name"] for one in troubles} >= {"storage", "agent default"}
    assert all(one["fix"] for one in troubles)


def test_wrong_settings_are_named_one_by_one(tmp_path: Path) -> None:
    """Each problem is a failure; the machine is looked at all the same."""
    values = json.loads(doctor(tmp_path, "--json", nonsense=1, limits={"text": "x"}).stdout)
    names = [one["name"] for one in values["checks"]]

    assert names.count("settings") == 2
    assert "python" in names


def test_no_authentication_off_loopback_is_a_failure(tmp_path: Path) -> None:
    """Nobody can start such a gateway, and doctor says why."""
    result = doctor(tmp_path, "--json", server={"host": "0.0.0.0", "port": 0})

    assert result.exit_code == 1
    assert "auth.mode" in json.loads(result.stdout)["checks"][0]["detail"]


def test_a_taken_port_is_a_failure(tmp_path: Path) -> None:
    """Another program listens there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = found(tmp_path, "port", server={"port": port})

    assert result["status"] == "fail"
    assert "another program" in result["detail"]


@pytest.mark.parametrize("name", ["secret", "admin-token", "tokens.json"])
def test_a_secret_others_can_read_is_a_failure(tmp_path: Path, name: str) -> None:
    """The fix is the command that closes it."""
    path = owned(tmp_path / "data") / name
    path.write_text("[]")
    path.chmod(0o644)

    result = found(tmp_path, "secrets")

    assert (result["status"], result["fix"]) == ("fail", f"chmod 600 {path}")


@pytest.mark.parametrize(("clean", "status"), [(True, "ok"), (False, "warn")])
def test_the_last_stop_is_told(tmp_path: Path, clean: bool, status: str) -> None:
    """A gateway that was killed left no CLEAN."""
    data = owned(tmp_path / "data")
    if not clean:
        (data / "CLEAN").unlink()

    assert found(tmp_path, "last stop")["status"] == status


def test_a_quarantine_that_is_not_empty_is_a_warning(tmp_path: Path) -> None:
    """Somebody should look at what was put aside."""
    (owned(tmp_path / "data") / "quarantine" / "piece").write_bytes(b"?")

    assert found(tmp_path, "quarantine")["status"] == "warn"


def test_a_data_directory_open_to_everybody_is_a_warning(tmp_path: Path) -> None:
    """Conversations are nobody else's business."""
    owned(tmp_path / "data").chmod(0o755)

    assert found(tmp_path, "data directory")["status"] == "warn"


def test_a_file_in_place_of_the_data_directory_is_a_failure(tmp_path: Path) -> None:
    """The other checks go on."""
    (tmp_path / "data").write_text("")

    assert found(tmp_path, "data directory")["status"] == "fail"


AGENTS: dict[str, dict[str, Any]] = {
    "no key": {"kind": "model", "model": "openai:gpt-5"},
    "no module": {"kind": "python", "path": "no_such_module:reply"},
    "no function": {"kind": "python", "path": "json:no_such_name"},
    "ends the process": {"kind": "python", "path": "leaver:reply"},
}


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_that_cannot_be_made_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Even code that ends the process it is imported in ends only the probe."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaver.py").write_text("import os\nprint('noise')\nos._exit(0)\n")

    result = found(tmp_path, "agent default", agents={"default": AGENTS[name]})

    assert result["status"] == "fail"


def test_an_agent_that_can_be_made_is_ok(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module beside the settings is found, as it is by the gateway."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mybot.py").write_text("async def reply(turn):\n    yield 'hello'\n")

    result = found(
        tmp_path, "agent default", agents={"default": {"kind": "python", "path": "mybot:reply"}}
    )

    assert result["status"] == "ok"


def test_a_webhook_nobody_listens_at_is_a_warning(tmp_path: Path) -> None:
    """It may be started later than the gateway."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/turn"
        result = found(
            tmp_path, "agent default", agents={"default": {"kind": "webhook", "url": url}}
        )

    assert result["status"] == "warn"


def test_a_tool_server_that_is_not_installed_is_a_failure(tmp_path: Path) -> None:
    """Its command is looked for where the gateway would look."""
    server = {"command": "no-such-program-anywhere"}
    model = {"kind": "model", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    agents = {"default": {**model, "mcp_servers": {"files": server}}}

    result = found(tmp_path, "tools default.files", agents=agents)

    assert result["status"] == "fail"


def test_too_few_open_files_are_a_warning(tmp_path: Path) -> None:
    """Each connection needs a descriptor."""
    result = found(tmp_path, "open files", limits={"connections": 2_000_000_000})

    assert result["status"] == "warn"


async def test_a_running_gateway_is_asked(start: Start) -> None:
    """Its port is its own, its lock has an owner, and it says that it is ready."""
    daemon = await talked(start)
    values = yaml.safe_load(daemon.config.read_text())
    values["server"]["port"] = int(daemon.url.rpartition(":")[2])
    daemon.config.write_text(yaml.safe_dump(values))

    ended = CliRunner().invoke(main, ["doctor", "--config", str(daemon.config), "--json"])
    results = {one["name"]: one for one in json.loads(ended.stdout)["checks"]}

    assert ended.exit_code == 0
    assert [results[name]["status"] for name in ("owner", "gateway", "port")] == ["ok"] * 3
    assert "served by a gateway" in results["port"]["detail"]


async def test_damaged_sessions_are_counted(start: Start) -> None:
    """They are a failure until they are repaired."""
    daemon = await talked(start)
    await daemon.stop()
    spoil(daemon.data)

    ended = CliRunner().invoke(main, ["doctor", "--config", str(daemon.config), "--json"])
    results = {one["name"]: one for one in json.loads(ended.stdout)["checks"]}

    assert ended.exit_code == 1
    assert "1 damaged or unreadable in 2 of 2 files" in results["sessions"]["detail"]


def test_a_check_that_breaks_does_not_hide_the_others() -> None:
    """It counts as failed itself."""

    def broken(_: checks.Facts) -> Iterator[checks.Result]:
        raise RuntimeError("oh")

    def fine(_: checks.Facts) -> Iterator[checks.Result]:
        yield checks.ok("fine", "as it should be")

    results = list(examine(Settings(), None, [broken, fine]))

    assert [one.status for one in results] == ["ok", "fail", "ok"]
    assert Report(results).status == "fail"


def test_the_table_fits_80_columns_and_has_no_colour(tmp_path: Path) -> None:
    """Without a terminal nothing but text is written."""
    agents = {"default": {"kind": "python", "path": "no_such_module:reply"}}
    (tmp_path / "config.yaml").write_text(
        yaml.safe_dump({"data_dir": str(tmp_path / "data"), "agents": agents})
    )

    ended = subprocess.run(
        [sys.executable, "-m", "gateway", "doctor"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 1
    assert max(map(len, ended.stdout.splitlines())) <= 80
    assert "\x1b" not in ended.stdout
