"""`parley serve`, `parley config` and `parley token`."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gateway.cli.config import config
from gateway.cli.token import token
from gateway.tokens import Tokens


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("PARLEY_"):
            monkeypatch.delenv(name)


def test_defaults_are_valid() -> None:
    """Without any file."""
    done = CliRunner().invoke(config, ["check"])

    assert (done.exit_code, done.output) == (0, "the settings are valid\n")


def test_every_problem_is_a_line() -> None:
    """On standard error, with the place, without the value; exit code 78."""
    Path("config.yaml").write_text("limits: {text: hunter2, typo: 1}\nserver: {port: -1}\n")

    done = CliRunner().invoke(config, ["check"])

    assert done.exit_code == 78
    assert len(done.stderr.splitlines()) == 3
    assert "limits.typo: there is no such setting" in done.stderr
    assert "hunter2" not in done.stderr


def test_a_missing_file_and_an_unset_variable_are_named(tmp_path: Path) -> None:
    """So that the person who reads it knows what to write where."""
    Path("config.yaml").write_text("agents: {default: {kind: model, model: x:y, api_key: '${NO}'}}")

    unset = CliRunner().invoke(config, ["check"])
    missing = CliRunner().invoke(config, ["check", "--config", "nowhere.yaml"])

    assert "agents.default.api_key: the environment variable NO is not set" in unset.stderr
    assert (missing.exit_code, "nowhere.yaml" in missing.stderr) == (78, True)


def test_shown_settings_hold_no_secret() -> None:
    """As YAML and as JSON; passwords inside addresses count."""
    Path("config.yaml").write_text(
        yaml.safe_dump(
            {
                "server": {"secret": "hunter2secret"},
                "agents": {
                    "default": {"kind": "webhook", "url": "http://me:hunter2secret@localhost/"}
                },
            }
        )
    )

    shown = CliRunner().invoke(config, ["show", "--data-dir", "elsewhere"])
    as_json = CliRunner().invoke(config, ["show", "--json"])

    assert "hunter2" not in shown.output + as_json.output
    assert yaml.safe_load(shown.output)["data_dir"] == "elsewhere"
    assert json.loads(as_json.output)["agents"]["default"]["url"] == "http://***@localhost/"


def test_the_schema_describes_the_settings() -> None:
    """For editors that complete and check while one writes."""
    schema = json.loads(CliRunner().invoke(config, ["schema"]).output)

    assert schema["additionalProperties"] is False
    assert "mailbox_depth" in schema["$defs"]["SessionSettings"]["properties"]


def test_a_token_is_shown_once() -> None:
    """Its hash is kept, privately; its name and role can be listed."""
    made = CliRunner().invoke(token, ["new", "--name", "ann", "--role", "admin"])
    listed = json.loads(CliRunner().invoke(token, ["list", "--json"]).output)

    secret = made.output.strip()
    kept = Path("data/tokens.json")
    assert secret not in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [(one["name"], one["role"]) for one in listed["tokens"]] == [("ann", "admin")]
    found = Tokens(Path("data")).user(secret)
    assert found is not None
    assert (found.id, found.role) == ("ann", "admin")


def test_names_are_given_once_and_taken_back() -> None:
    """A second token of a name, or a revocation of nothing, is an error that says so."""
    runner = CliRunner()
    secret = runner.invoke(token, ["new", "--name", "ann"]).output.strip()

    twice = runner.invoke(token, ["new", "--name", "ann"])
    revoked = runner.invoke(token, ["revoke", "ann"])
    again = runner.invoke(token, ["revoke", "ann"])
    bad = runner.invoke(token, ["new", "--name", "a\nb"])

    assert (twice.exit_code, "already" in twice.stderr) == (1, True)
    assert (revoked.exit_code, again.exit_code, bad.exit_code) == (0, 1, 1)
    assert Tokens(Path("data")).user(secret) is None
    assert "no tokens" in runner.invoke(token, ["list"]).stderr
