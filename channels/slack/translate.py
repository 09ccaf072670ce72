"""What Slack's Events API sends, as typed values.

`translate` takes the body of an event callback, the same in Socket Mode and over HTTP, and never
raises: what is not understood is `Ignored` with a reason. It decides nothing about who may speak;
that is `policy`. Text is for the model to read: Slack's control sequences become words and `&lt;`
becomes `<`. Call it again with `names` once the people in `user_ids` are known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from channels.slack.blocktext import block_text, quoted
from channels.slack.fields import mapping, mappings, string
from channels.slack.keys import is_dm, is_id, is_ts

_ACCEPTED = {"", "file_share", "thread_broadcast", "me_message", "bot_message"}
_CONTROL = re.compile(r"<([^<>]*)>")
_USER = re.compile(r"<@([A-Za-z0-9]+)(?:\|[^<>]*)?>")
_ENTITY = re.compile(r"&(amp|lt|gt);")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">"}


class File(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    mime: str = ""
    size: int = 0
    url: str = ""
    needs_info: bool = False
    """Slack sent only the id: `files.info` has the rest."""
    problem: str = ""
    """Why there is nothing to download, in words for the user; empty if there is."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wrote. Ids that Slack did not send are empty."""

    team: str
    channel: str
    channel_type: str = ""
    ts: str
    thread_ts: str | None = None
    user: str = ""
    user_team: str = ""
    """The workspace or organisation the author belongs to; empty if Slack does not say."""
    bot_id: str = ""
    app_id: str = ""
    client_msg_id: str = ""
    event_id: str = ""
    subtype: str = ""
    text: str = ""
    mentioned: bool = False
    files: tuple[File, ...] = ()
    user_ids: tuple[str, ...] = ()
    """The people whose names the text needs."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """One message arrives as `message` and as `app_mention`; this is equal for both."""
        return self.team, self.channel, self.ts

    @property
    def is_dm(self) -> bool:
        return is_dm(self.channel, self.channel_type)


class Edit(msgspec.Struct, frozen=True):
    """The message as it is now; its identity is that of the message first sent."""

    message: Message
    edited_ts: str = ""


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    team: str
    channel: str
    channel_type: str = ""
    ts: str
    thread_ts: str | None = None
    user: str = ""
    event_id: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        return self.team, self.channel, self.ts


class Ignored(msgspec.Struct, frozen=True):
    reason: str


Translated = Message | Edit | Delete | Ignored


class _Where(msgspec.Struct, frozen=True):
    """What an event says about its place, and who reads it."""

    team: str
    channel: str
    channel_type: str
    event_id: str
    bot_user: str
    names: Mapping[str, str]


def translate(
    body: object, *, bot_user: str = "", names: Mapping[str, str] | None = None
) -> Translated:
    callback = mapping(body)
    event = mapping(callback.get("event"))
    kind, subtype = string(event, "type"), string(event, "subtype")
    if kind not in ("message", "app_mention"):
        return Ignored(f"event {kind}" if kind else "not an event")
    where = _Where(
        team=_team(callback, event),
        channel=string(event, "channel"),
        channel_type=string(event, "channel_type"),
        event_id=string(callback, "event_id"),
        bot_user=bot_user,
        names=names or {},
    )
    if not is_id(where.channel) or (where.team and not is_id(where.team)):
        return Ignored("no channel")
    if subtype == "message_changed":
        return _edit(event, where)
    if subtype == "message_deleted":
        old = mapping(event.get("previous_message"))
        return _delete(old, string(event, "deleted_ts") or string(old, "ts"), where)
    if event.get("hidden"):
        return Ignored("hidden")
    return _message(event, where)


def _edit(event: dict[str, Any], where: _Where) -> Translated:
    new, old = mapping(event.get("message")), mapping(event.get("previous_message"))
    if string(new, "subtype") == "tombstone":
        # A deleted message that has replies stays as an empty root.
        return _delete(old, string(new, "ts") or string(old, "ts"), where)
    edited = mapping(new.get("edited"))
    if not edited:
        return Ignored("not edited by a person")
    message = _message(new, where)
    before = _message(old, where)
    if isinstance(message, Ignored):
        return message
    if isinstance(before, Message) and (before.text, before.files) == (message.text, message.files):
        return Ignored("nothing new to read")
    return Edit(message, string(edited, "ts"))


def _delete(old: dict[str, Any], ts: str, where: _Where) -> Delete | Ignored:
    if not is_ts(ts):
        return Ignored("no ts")
    return Delete(
        team=where.team,
        channel=where.channel,
        channel_type=where.channel_type,
        ts=ts,
        thread_ts=_thread(old),
        user=string(old, "user"),
        event_id=where.event_id,
    )


def _message(event: dict[str, Any], where: _Where) -> Message | Ignored:
    subtype, ts = string(event, "subtype"), string(event, "ts")
    if subtype not in _ACCEPTED:
        return Ignored(f"subtype {subtype}")
    if not is_ts(ts):
        return Ignored("no ts")
    raw = _raw_text(event)
    found = _USER.findall(raw)
    return Message(
        team=where.team,
        channel=where.channel,
        channel_type=where.channel_type,
        ts=ts,
        thread_ts=_thread(event),
        user=string(event, "user"),
        user_team=string(event, "user_team")
        or string(event, "source_team")
        or string(event, "team"),
        bot_id=string(event, "bot_id"),
        app_id=string(event, "app_id") or string(mapping(event.get("bot_profile")), "app_id"),
        client_msg_id=string(event, "client_msg_id"),
        event_id=where.event_id,
        subtype=subtype,
        text=expand(_without_mention(raw, where.bot_user), where.names),
        mentioned=string(event, "type") == "app_mention"
        or (bool(where.bot_user) and where.bot_user in found),
        files=_files(event),
        user_ids=tuple(dict.fromkeys(found)),
    )


def _team(callback: dict[str, Any], event: dict[str, Any]) -> str:
    """The workspace that installed the app: in a shared channel the author's is another one."""
    authorizations = mappings(callback.get("authorizations"))
    installed = string(authorizations[0], "team_id") if authorizations else ""
    return installed or string(callback, "team_id") or string(event, "team")


def _thread(event: dict[str, Any]) -> str | None:
    thread = string(event, "thread_ts")
    return thread if is_ts(thread) else None


def _raw_text(event: dict[str, Any]) -> str:
    """The text in Slack's notation; blocks and attachments where the text alone says nothing."""
    text = string(event, "text")
    if not text.strip():
        text = block_text(event.get("blocks"))
    attachments = mappings(event.get("attachments"))
    told = [one for one in attachments if one.get("is_share") or not text.strip()]
    return "\n\n".join(part for part in (text, *map(quoted, told)) if part.strip())


def _without_mention(raw: str, bot_user: str) -> str:
    if not bot_user:
        return raw.strip()
    return re.sub(rf"\A(?:\s*<@{re.escape(bot_user)}(?:\|[^<>]*)?>[\s:,]*)+", "", raw).strip()


def expand(raw: str, names: Mapping[str, str]) -> str:
    """Slack's notation as words. Entities come last: what they hide is never a control sequence."""
    words = _CONTROL.sub(lambda match: _words(match[1], names), raw)
    return _ENTITY.sub(lambda match: _ENTITIES[match[1]], words)


def _words(control: str, names: Mapping[str, str]) -> str:
    target, _, label = control.partition("|")
    if not target:
        return f"<{control}>"
    match target[0]:
        case "@":
            return "@" + (names.get(target[1:]) or label or target[1:])
        case "#":
            return "#" + (label or target[1:])
        case "!":
            return _special(target[1:], label)
    if not label or target in (label, f"http://{label}", f"https://{label}", f"mailto:{label}"):
        return label or target
    return f"{label} ({target})"


def _special(target: str, label: str) -> str:
    kind, *rest = target.split("^")
    if kind == "date":
        return label or _date(rest[0] if rest else "")
    if kind == "subteam":
        name = label or (rest[0] if rest else "")
        return name if name.startswith("@") else f"@{name}"
    return label if label.startswith("@") else f"@{label or kind}"


def _date(seconds: str) -> str:
    try:
        return datetime.fromtimestamp(int(seconds), UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return seconds


def _files(event: dict[str, Any]) -> tuple[File, ...]:
    shared = [one for one in mappings(event.get("attachments")) if one.get("is_share")]
    found = [file for holder in (event, *shared) for file in mappings(holder.get("files"))]
    return tuple(to_file(file) for file in found if string(file, "id"))


def to_file(file: dict[str, Any]) -> File:
    size, mode = file.get("size"), string(file, "mode")
    problems = {
        "tombstone": "it was deleted",
        "hidden_by_limit": "the workspace's storage limit hides it",
    }
    return File(
        id=string(file, "id"),
        name=string(file, "name") or string(file, "title"),
        mime=string(file, "mimetype"),
        size=size if type(size) is int and size > 0 else 0,
        url=string(file, "url_private_download") or string(file, "url_private"),
        needs_info=string(file, "file_access") == "check_file_info",
        problem=problems.get(mode, ""),
    )
