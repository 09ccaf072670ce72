"""Several workspaces behind one app, and what the app's Home says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.http.daemon import Daemon
from tests.slack.conftest import ECHO, Run, heard, restart
from tests.support.slack import CHANNEL, USER, LocalSlack
from tests.support.slack.limits import texts_of
from tests.support.slack.workspace import Workspace


def another(slack: LocalSlack) -> tuple[Workspace, dict[str, Any]]:
    """A second workspace, and the settings that name it."""
    second = slack.add_workspace()
    return second, {"workspaces": {second.team_id: {"bot_token": second.bot_token}}}


def person(workspace: Workspace) -> str:
    return next(user.id for user in workspace.users.values() if not user.is_bot)


def room(workspace: Workspace) -> str:
    return next(iter(workspace.channels))


def chats(daemon: Daemon) -> set[str]:
    return {path.name for path in Path(daemon.data / "sessions" / "slack").iterdir()}


async def test_each_workspace_is_answered_with_its_own_token(slack: LocalSlack, run: Run) -> None:
    """Their chats are told apart by the workspace in their keys."""
    second, settings = another(slack)
    daemon = await run(bot=ECHO, slack=settings)
    here = await slack.say(USER, CHANNEL, "here", mention=True)
    there = await slack.say(person(second), room(second), "there", mention=True)
    await heard(slack, ["here"], CHANNEL, here.ts)
    await heard(slack, ["there"], room(second), there.ts)

    first_chat = f"{slack.workspace.team_id}%2F{CHANNEL}%3A{here.ts}.jsonl"
    second_chat = f"{second.team_id}%2F{room(second)}%3A{there.ts}.jsonl"
    assert chats(daemon) == {first_chat, second_chat}


async def test_a_thread_goes_on_in_its_workspace_after_a_restart(
    slack: LocalSlack, run: Run
) -> None:
    """The key is the same, and so is the conversation."""
    second, settings = another(slack)
    daemon = await run(bot=ECHO, slack=settings)
    asked = await slack.say(person(second), room(second), "one", mention=True)
    await heard(slack, ["one"], room(second), asked.ts)
    await daemon.stop()
    await restart(daemon)
    await slack.say(person(second), room(second), "two", thread_ts=asked.ts)
    await heard(slack, ["one", "two"], room(second), asked.ts)

    assert len(chats(daemon)) == 1


async def test_a_button_acts_in_its_own_workspace(slack: LocalSlack, run: Run) -> None:
    """It names no chat; the workspace it was pressed in does."""
    second, settings = another(slack)
    await run(bot=ECHO, slack=settings)
    asked = await slack.say(person(second), room(second), "again", mention=True)
    await heard(slack, ["again"], room(second), asked.ts)
    answer = slack.answers(room(second), asked.ts)[0]
    await slack.press(person(second), answer, "parley_regenerate")

    await heard(slack, ["again", "again"], room(second), asked.ts)


async def test_a_refused_workspace_does_not_silence_the_others(slack: LocalSlack, run: Run) -> None:
    """Its token was revoked: one line says so, and readiness shows it."""
    second, settings = another(slack)
    slack.revoked[second.bot_token] = "token_revoked"
    daemon = await run(bot=ECHO, slack=settings)
    asked = await slack.say(USER, CHANNEL, "hello", mention=True)
    await heard(slack, ["hello"], CHANNEL, asked.ts)
    client = await daemon.client()
    state = (await client.get("/readyz")).json()["channels"]["slack"]

    refused = await daemon.logged("workspace refused")
    assert (refused["workspace"], refused["error"]) == (second.team_id, "token_revoked")
    assert state["state"] == "degraded"
    assert state["refused"] == {second.team_id: "token_revoked"}


async def test_a_token_of_another_workspace_is_refused(slack: LocalSlack, run: Run) -> None:
    """Answers would go to the wrong people."""
    second = slack.add_workspace()
    third = slack.add_workspace()
    settings = {"workspaces": {second.team_id: {"bot_token": third.bot_token}}}
    daemon = await run(bot=ECHO, slack=settings)

    refused = await daemon.logged("workspace refused")
    assert f"belongs to {third.team_id}" in refused["error"]


async def test_the_home_says_how_the_app_is(slack: LocalSlack, run: Run) -> None:
    """Also what does not work, and why."""
    slack.workspace.scopes.discard("files:read")
    await run(bot=ECHO)
    await slack.open_home(USER)
    await slack.until(lambda: USER in slack.workspace.views)

    shown = "\n".join(texts_of(slack.workspace.views[USER]["blocks"]))
    assert "*Status:* connected; no files from people (the scope files:read is missing)" in shown
