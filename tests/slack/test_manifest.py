"""The shipped manifest asks for what the channel needs, and for nothing else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from channels.slack.workspace import REQUIRED, SCOPES
from gateway.doctor.slack import MORE_SCOPES
from tests.support.slack.people import SUBSCRIPTIONS
from tests.support.slack.workspace import SCOPES as GRANTED

ROOT = Path(__file__).parents[2]
MANIFEST: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "slack-manifest.yaml").read_text())
SCOPE = re.compile(r"`([a-z_]+:[a-z]+|commands)`")
SECTIONS = {
    "_metadata": {"major_version", "minor_version"},
    "display_information": {"name", "description", "long_description", "background_color"},
    "features": {"app_home", "bot_user", "slash_commands"},
    "oauth_config": {"scopes"},
    "settings": {
        "event_subscriptions",
        "interactivity",
        "org_deploy_enabled",
        "socket_mode_enabled",
        "token_rotation_enabled",
    },
}


def asked() -> list[str]:
    scopes: list[str] = MANIFEST["oauth_config"]["scopes"]["bot"]
    return scopes


def test_every_scope_the_channel_uses_is_asked_for() -> None:
    """Neither the channel nor doctor warns about an app made from the manifest."""
    used = {
        scope for table in (SCOPES, MORE_SCOPES) for needed in table.values() for scope in needed
    }

    assert (used | REQUIRED) - set(asked()) == set()


def test_the_local_slack_grants_what_the_manifest_asks_for() -> None:
    """So what works in the tests works with the shipped app."""
    assert set(asked()) == GRANTED
    assert set(MANIFEST["settings"]["event_subscriptions"]["bot_events"]) == SUBSCRIPTIONS


def test_the_page_explains_every_scope() -> None:
    """The table in docs/slack.md and the manifest name the same scopes."""
    page = (ROOT / "docs" / "slack.md").read_text()
    table = page.partition("## Scopes")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    explained = {scope for row in rows for scope in SCOPE.findall(row.split("|")[1])}

    assert explained == set(asked())


def test_the_manifest_has_the_form_slack_takes() -> None:
    """Only known sections, names within Slack's limits, a bot people can write to."""
    about, home = MANIFEST["display_information"], MANIFEST["features"]["app_home"]
    [command] = MANIFEST["features"]["slash_commands"]

    assert all(found.keys() <= SECTIONS[name] for name, found in MANIFEST.items())
    assert len(about["name"]) <= 35
    assert len(about["description"]) <= 140
    assert home["messages_tab_enabled"]
    assert not home["messages_tab_read_only_enabled"]
    assert command["command"] == "/parley"
    assert MANIFEST["settings"]["socket_mode_enabled"]
    assert len(asked()) == len(set(asked()))
