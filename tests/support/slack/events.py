"""The forms in which Slack tells an app what happened."""

from __future__ import annotations

import json
from typing import Any

from tests.support.slack.workspace import APP_ID, Message, Workspace

Event = dict[str, Any]
SUBSCRIPTION = {
    "channel": "message.channels",
    "group": "message.groups",
    "im": "message.im",
    "mpim": "message.mpim",
}


def callback(workspace: Workspace, event: Event) -> dict[str, Any]:
    """What surrounds every event."""
    number = workspace.number_new()
    channel = workspace.channels.get(str(event.get("channel")))
    authorization = {
        "enterprise_id": None,
        "team_id": workspace.team_id,
        "user_id": workspace.bot_user,
        "is_bot": True,
        "is_enterprise_install": False,
    }
    return {
        "token": "deprecated",
        "team_id": workspace.team_id,
        "context_team_id": workspace.team_id,
        "api_app_id": APP_ID,
        "event": event,
        "type": "event_callback",
        "event_id": f"Ev{number:09d}",
        "event_time": int(workspace.clock.now()),
        "authorizations": [authorization],
        "is_ext_shared_channel": channel is not None and channel.is_shared,
        "event_context": f"4-{number}",
    }


def message(workspace: Workspace, posted: Message) -> Event:
    channel = workspace.channels[posted.channel]
    event = {
        **posted.as_json(),
        "channel": channel.id,
        "channel_type": channel.kind,
        "event_ts": posted.ts,
    }
    if posted.bot_id is None:
        event["client_msg_id"] = f"local-{posted.ts}"
        event.setdefault("blocks", [_rich_text(posted.text)])
    if posted.thread_ts and posted.thread_ts != posted.ts:
        event["parent_user_id"] = workspace.log[channel.id, posted.thread_ts].user
    return event


def _rich_text(text: str) -> dict[str, Any]:
    section = {"type": "rich_text_section", "elements": [{"type": "text", "text": text}]}
    return {"type": "rich_text", "block_id": "b1", "elements": [section]}


def app_mention(workspace: Workspace, posted: Message) -> Event:
    told = message(workspace, posted)
    kept = {name: told[name] for name in told if name not in ("channel_type", "subtype")}
    return {**kept, "type": "app_mention"}


def changed(workspace: Workspace, now: Message, before: dict[str, Any]) -> Event:
    fields = {"message": now.as_json(), "previous_message": before}
    return _hidden(workspace, now.channel, "message_changed", fields)


def deleted(workspace: Workspace, gone: Message, before: dict[str, Any]) -> Event:
    fields = {"deleted_ts": gone.ts, "previous_message": before}
    return _hidden(workspace, gone.channel, "message_deleted", fields)


def tombstone(workspace: Workspace, gone: Message, before: dict[str, Any]) -> Event:
    """What a deleted message with replies becomes."""
    text = "This message was deleted."
    left = {**before, "subtype": "tombstone", "text": text, "hidden": True, "user": "USLACKBOT"}
    fields = {"message": left, "previous_message": before}
    return _hidden(workspace, gone.channel, "message_changed", fields)


def _hidden(workspace: Workspace, channel: str, subtype: str, fields: Event) -> Event:
    ts = workspace.clock.ts()
    kind = workspace.channels[channel].kind
    head = {"type": "message", "subtype": subtype, "hidden": True, "channel": channel}
    return {**head, "channel_type": kind, "ts": ts, "event_ts": ts, **fields}


def reaction(workspace: Workspace, kind: str, user: str, name: str, on: Message) -> Event:
    item = {"type": "message", "channel": on.channel, "ts": on.ts}
    ts = workspace.clock.ts()
    return {
        "type": kind,
        "user": user,
        "reaction": name,
        "item": item,
        "item_user": on.user,
        "event_ts": ts,
    }


def home_opened(workspace: Workspace, user: str) -> Event:
    ts = workspace.clock.ts()
    channel = workspace.dm(user).id
    return {
        "type": "app_home_opened",
        "user": user,
        "channel": channel,
        "tab": "home",
        "event_ts": ts,
    }


def block_actions(
    workspace: Workspace, user: str, on: Message, action: dict[str, Any], response_url: str
) -> dict[str, Any]:
    channel = workspace.channels[on.channel]
    name = workspace.users[user].name
    container = {
        "type": "message",
        "message_ts": on.ts,
        "channel_id": channel.id,
        "is_ephemeral": on.ephemeral_to is not None,
    }
    if on.thread_ts:
        container["thread_ts"] = on.thread_ts
    return {
        "type": "block_actions",
        "user": {"id": user, "username": name, "name": name, "team_id": workspace.team_id},
        "api_app_id": APP_ID,
        "token": "deprecated",
        "container": container,
        "trigger_id": f"{workspace.number_new()}.local",
        "team": {"id": workspace.team_id, "domain": "local"},
        "enterprise": None,
        "is_enterprise_install": False,
        "channel": {"id": channel.id, "name": channel.name},
        "message": on.as_json(),
        "state": {"values": {}},
        "response_url": response_url,
        "actions": [{**action, "action_ts": workspace.clock.ts()}],
    }


def slash_command(
    workspace: Workspace, user: str, channel: str, command: str, text: str, response_url: str
) -> dict[str, Any]:
    return {
        "token": "deprecated",
        "team_id": workspace.team_id,
        "team_domain": "local",
        "channel_id": channel,
        "channel_name": workspace.channels[channel].name,
        "user_id": user,
        "user_name": workspace.users[user].name,
        "command": command,
        "text": text,
        "api_app_id": APP_ID,
        "is_enterprise_install": "false",
        "response_url": response_url,
        "trigger_id": f"{workspace.number_new()}.local",
    }


def find_action(blocks: list[dict[str, Any]], action_id: str) -> dict[str, Any] | None:
    """The button with this id, in whatever block it is."""
    waiting: list[Any] = [*blocks]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, dict):
            if item.get("action_id") == action_id:
                copied: dict[str, Any] = json.loads(json.dumps(item))
                return copied
            waiting.extend(item.values())
    return None
