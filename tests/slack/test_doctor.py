"""`parley doctor` and Slack: each trouble is named exactly, and a running gateway is left alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway import config
from gateway.config import ConfigError, Settings
from gateway.doctor import examine
from gateway.doctor.check import Facts, Result
from gateway.doctor.slack import REINSTALL
from gateway.doctor.slack import slack as check
from sessions.directory import DataDirectory
from tests.slack.conftest import Run
from tests.support.slack import (
    APP_TOKEN,
    BOT_TOKEN,
    CHANNEL,
    USER,
    Fault,
    LocalSlack,
    hang,
    missing_scope,
    rate_limited,
)
from tests.support.slack.workspace import APP_ID

OTHER_APP = "A0OTHER001"


def settings(slack: LocalSlack, directory: Path, **values: Any) -> Settings:
    channel = {
        "enabled": True,
        "bot_token": BOT_TOKEN,
        "app_token": APP_TOKEN,
        "api_base_url": slack.api_base_url,
        **values,
    }
    return Settings.model_validate(
        {"data_dir": str(directory / "none"), "server": {"port": 0}, "channels": {"slack": channel}}
    )


async def results(found: Settings) -> dict[str, list[Result]]:
    """By name. In a thread: the local Slack is served by this one."""
    listed = await asyncio.to_thread(lambda: list(check(Facts(found, None))))
    return {one.name: [same for same in listed if same.name == one.name] for one in listed}


async def one(found: Settings, name: str) -> Result:
    [result] = (await results(found))[name]
    return result


async def test_a_good_set_up_has_nothing_to_do(slack: LocalSlack, tmp_path: Path) -> None:
    """Token, scopes, socket, app and the named channel are all ok."""
    found = await results(settings(slack, tmp_path, channels=[CHANNEL]))

    assert {name: [one.status for one in same] for name, same in found.items()} == {
        "slack bot token": ["ok"],
        "slack scopes": ["ok"],
        "slack socket": ["ok"],
        "slack app": ["ok"],
        f"slack channel {CHANNEL}": ["ok"],
    }


async def test_it_leaves_no_socket_and_acknowledges_nothing(
    slack: LocalSlack, tmp_path: Path
) -> None:
    """An event that comes while it looks is left for the gateway."""
    await slack.say(USER, slack.dm(USER), "hello")

    await results(settings(slack, tmp_path))
    await slack.until(lambda: not slack.sockets)

    assert slack.socket_mode.dials == [101]
    assert slack.acks == []


def test_a_channel_that_is_off_is_not_asked_about() -> None:
    """Without channels.slack.enabled there is nothing to say."""
    assert list(check(Facts(Settings(), None))) == []


def test_swapped_tokens_are_named(tmp_path: Path) -> None:
    """No gateway starts with them, and doctor says which is which."""
    swapped = {"enabled": True, "bot_token": APP_TOKEN, "app_token": BOT_TOKEN}
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(ConfigError) as raised:
        config.load(tmp_path / "empty.yaml", {"channels": {"slack": swapped}})

    listed = list(examine(raised.value, None))

    assert "bot_token and app_token are swapped" in listed[0].detail
    assert listed[0].status == "fail"


@pytest.mark.parametrize("error", ["invalid_auth", "token_revoked", "account_inactive"])
async def test_a_bot_token_slack_refuses_is_a_failure(
    slack: LocalSlack, tmp_path: Path, error: str
) -> None:
    """Slack's word for it, and what to do."""
    slack.revoked[BOT_TOKEN] = error

    result = await one(settings(slack, tmp_path), "slack bot token")

    assert (result.status, result.detail) == ("fail", f"Slack refuses it: {error}")
    assert "token" in result.fix or "copy it again" in result.fix


async def test_an_app_token_slack_refuses_is_a_failure(slack: LocalSlack, tmp_path: Path) -> None:
    """The bot's token is found good all the same."""
    slack.revoked[APP_TOKEN] = "invalid_auth"

    found = await results(settings(slack, tmp_path))

    assert found["slack bot token"][0].status == "ok"
    assert found["slack app token"][0].detail == "Slack refuses it: invalid_auth"


async def test_an_app_token_without_its_scope_is_a_failure(
    slack: LocalSlack, tmp_path: Path
) -> None:
    """An app-level token gets its scope only when it is made."""
    slack.faults.put("apps.connections.open", missing_scope("connections:write"))

    result = await one(settings(slack, tmp_path), "slack app token")

    assert (result.status, result.detail) == ("fail", "missing connections:write")
    assert "new app-level token" in result.fix


@pytest.mark.parametrize(
    ("scope", "feature"),
    [
        ("files:read", "files from people"),
        ("reactions:write", "reactions"),
        ("groups:history", "private channels"),
        ("mpim:history", "group messages"),
    ],
)
async def test_a_missing_scope_is_named_with_its_feature(
    slack: LocalSlack, tmp_path: Path, scope: str, feature: str
) -> None:
    """A warning: the rest works."""
    slack.workspace.scopes.discard(scope)

    result = await one(settings(slack, tmp_path), "slack scopes")

    assert (result.status, result.fix) == ("warn", REINSTALL)
    assert result.detail == f"missing {scope}: {feature} will not work"


async def test_a_missing_required_scope_is_a_failure(slack: LocalSlack, tmp_path: Path) -> None:
    """Without chat:write nobody is answered at all."""
    slack.workspace.scopes.discard("chat:write")

    result = await one(settings(slack, tmp_path), "slack scopes")

    assert (result.status, result.fix) == ("fail", REINSTALL)
    assert result.detail.startswith("missing chat:write:")


async def test_tokens_of_two_apps_are_a_failure(slack: LocalSlack, tmp_path: Path) -> None:
    """The app of each is named."""
    slack.app_token = f"xapp-1-{OTHER_APP}-local"
    slack.faults.put("socket.upgrade", Fault(status=503))

    found = settings(slack, tmp_path, app_token=slack.app_token)
    result = await one(found, "slack app")

    assert result.status == "fail"
    assert result.detail == f"app_token belongs to {OTHER_APP}, bot_token to {APP_ID}"


async def test_the_app_is_asked_for_if_the_token_does_not_name_it(
    slack: LocalSlack, tmp_path: Path
) -> None:
    """Slack's auth.test does not always tell; bots.info does."""
    who = {"ok": True, "team_id": "T1", "user_id": "U1", "bot_id": "B1"}
    slack.faults.put("auth.test", Fault(status=200, body=who))
    bot = {"ok": True, "bot": {"id": "B1", "app_id": OTHER_APP}}
    slack.faults.put("bots.info", Fault(status=200, body=bot))

    result = await one(settings(slack, tmp_path), "slack app")

    assert result.detail == f"app_token belongs to {APP_ID}, bot_token to {OTHER_APP}"


async def test_a_second_process_is_a_warning(slack: LocalSlack, tmp_path: Path, run: Run) -> None:
    """A gateway somewhere else uses the same app: each event reaches only one of them."""
    await run()

    result = await one(settings(slack, tmp_path), "slack socket")

    assert result.status == "warn"
    assert "another process is connected as this app" in result.detail


async def test_a_running_gateway_is_asked_instead_of_slack(slack: LocalSlack, run: Run) -> None:
    """No second socket is opened that could take its events."""
    daemon = await run()

    result = await one(config.load(daemon.config), "slack socket")

    assert (result.status, result.detail) == ("ok", "the running gateway is connected")
    assert slack.socket_mode.dials == [101]


async def test_a_running_gateway_tells_of_a_second_process(slack: LocalSlack, run: Run) -> None:
    """What it was told at its hello is what doctor says."""
    slack.socket_mode.num_connections = 2
    daemon = await run()

    result = await one(config.load(daemon.config), "slack socket")

    assert result.status == "warn"
    assert "another process" in result.detail


async def test_a_running_gateway_whose_channel_failed_is_a_failure(
    slack: LocalSlack, run: Run
) -> None:
    """With the reason it gives itself."""
    slack.revoked[BOT_TOKEN] = "invalid_auth"
    daemon = await run(connected=False)
    await daemon.logged("channel failed")

    result = await one(config.load(daemon.config), "slack socket")

    assert (result.status, result.detail) == ("fail", "the running gateway is failed: invalid_auth")


async def test_a_workspace_the_running_gateway_cannot_serve_is_named(
    slack: LocalSlack, run: Run
) -> None:
    """The other one is served; the check of its token says what to do."""
    second = slack.add_workspace()
    slack.revoked[second.bot_token] = "token_revoked"
    tokens = {one.team_id: {"bot_token": one.bot_token} for one in slack.workspaces}
    daemon = await run(slack={"bot_token": "", "workspaces": tokens})

    found = await results(config.load(daemon.config))

    [socket] = found["slack socket"]
    assert socket.status == "warn"
    assert socket.detail.endswith(f"{second.team_id} token_revoked")
    assert found[f"slack bot token {second.team_id}"][0].status == "fail"


async def test_nothing_is_dialled_while_a_process_holds_the_directory(
    slack: LocalSlack, tmp_path: Path
) -> None:
    """It may be a gateway that starts or stops, and is connected."""
    with DataDirectory(tmp_path / "none") as directory:
        directory.open("interval")
        result = await one(settings(slack, tmp_path), "slack socket")

    assert result.status == "warn"
    assert slack.socket_mode.dials == []


async def test_a_socket_that_is_not_greeted_is_a_failure(
    slack: LocalSlack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as connected only after hello."""
    monkeypatch.setattr("gateway.doctor.slack.STEP_SECONDS", 1.0)
    slack.faults.put("socket.hello", hang())

    result = await one(settings(slack, tmp_path), "slack app token")

    assert result.status == "fail"
    assert "does not answer" in result.detail


async def test_a_slack_that_asks_to_wait_is_a_warning(slack: LocalSlack, tmp_path: Path) -> None:
    """With the time it asks for."""
    slack.faults.put("auth.test", rate_limited(30))

    result = await one(settings(slack, tmp_path), "slack bot token")

    assert (result.status, result.fix) == ("warn", "run this again in 30 s")


async def test_channels_without_the_bot_are_named(slack: LocalSlack, tmp_path: Path) -> None:
    """One it was not invited to, one that does not exist, one that is archived."""
    workspace = slack.workspace
    outside = workspace.add_channel("outside")
    outside.members.discard(workspace.bot_user)
    old = workspace.add_channel("old")
    old.is_archived = True
    listed = [outside.id, "C0NOWHERE1", old.id]

    found = await results(settings(slack, tmp_path, channels=listed))

    details = [found[f"slack channel {channel}"][0].detail for channel in listed]
    assert "not a member" in details[0]
    assert "not found" in details[1]
    assert "archived" in details[2]


async def test_a_slack_that_is_away_is_a_failure(slack: LocalSlack, tmp_path: Path) -> None:
    """It is told at once, not waited for."""
    found = settings(slack, tmp_path)
    await slack.stop()

    result = await one(found, "slack bot token")

    assert result.status == "fail"
    assert "does not answer" in result.detail


async def test_a_token_in_the_wrong_workspace_is_a_failure(
    slack: LocalSlack, tmp_path: Path
) -> None:
    """Its own team is named."""
    found = settings(slack, tmp_path, bot_token="", workspaces={"T0X": {"bot_token": BOT_TOKEN}})

    result = await one(found, "slack bot token T0X")

    assert result.fix == f"move it to workspaces.{slack.workspace.team_id}"


async def test_http_mode_needs_no_socket(slack: LocalSlack, tmp_path: Path) -> None:
    """Nothing is dialled."""
    found = settings(slack, tmp_path, mode="http", signing_secret="s", app_token="")

    result = await one(found, "slack events")

    assert result.status == "ok"
    assert slack.socket_mode.dials == []
