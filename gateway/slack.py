"""The Slack channel as the settings describe it."""

from __future__ import annotations

from collections.abc import Callable

from channels.slack.channel import Options, SlackChannel
from channels.slack.policy import Override, Policy
from gateway.config import Settings, SlackSettings
from gateway.push import PushHost
from sessions.tasks import Tasks


def make_channel(host: PushHost, settings: Callable[[], Settings]) -> SlackChannel:
    slack = settings().channels.slack
    return SlackChannel(host, options(slack), lambda: policy(settings().channels.slack), Tasks)


def options(slack: SlackSettings) -> Options:
    tokens = {"": slack.bot} if slack.bot else {}
    for team, workspace in slack.workspaces.items():
        tokens[team] = workspace.bot
    return Options(
        bot_tokens=tokens,
        app_token=slack.app,
        api_base_url=slack.api_base_url,
        socket=slack.mode == "socket",
        streaming=slack.streaming,
        edit_seconds=slack.edit_seconds,
        reactions=slack.reactions,
        thread_messages=slack.thread_messages,
        file_bytes=slack.file_bytes,
    )


def policy(slack: SlackSettings) -> Policy:
    """Read anew for every message, so that it can change while the gateway runs."""
    return Policy(
        dm=slack.dm,
        channels=frozenset(slack.channels),
        users=frozenset(slack.users),
        external_users=slack.external_users,
        mention=slack.mention,
        allow_bots=slack.allow_bots,
        overrides={
            channel: Override(
                mention=one.mention,
                users=None if one.users is None else frozenset(one.users),
                allow_bots=one.allow_bots,
            )
            for channel, one in slack.overrides.items()
        },
    )
