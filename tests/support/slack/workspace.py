"""The state of one workspace: people, channels, messages, files."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Any

from tests.support.slack.limits import SlackError, texts_of

APP_ID = "A0APP00001"
APP_TOKEN = "xapp-1-A0APP00001-local"
BOT_TOKEN = "xoxb-local-1"
BOT_USER = "U0BOT00001"
USER = "U000000001"
OTHER_USER = "U000000002"
CHANNEL = "C000000001"
KINDS = {"channel": "channels", "group": "groups", "im": "im", "mpim": "mpim"}
STREAM_SECONDS = 300
PING = re.compile(r"<!(?:channel|here|everyone|subteam\^[^>]*)[^>]*>|<@[UW][A-Z0-9]+[^>]*>")
# What the shipped manifest asks for.
SCOPES = {
    "app_mentions:read",
    "channels:history",
    "channels:read",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:read",
    "im:write",
    "mpim:history",
    "mpim:read",
    "reactions:write",
    "users:read",
}


class Clock:
    """The time of the local Slack. A test can move it forward."""

    def __init__(self) -> None:
        self.offset_seconds = 0.0
        self._last = 0

    def now(self) -> float:
        return time.time() + self.offset_seconds

    def ts(self) -> str:
        """A new time stamp: unique, increasing, in Slack's form."""
        self._last = max(int(self.now() * 1_000_000), self._last + 100)
        return f"{self._last // 1_000_000}.{self._last % 1_000_000:06d}"


@dataclass
class User:
    id: str
    name: str
    team_id: str
    is_bot: bool = False
    is_stranger: bool = False
    """From another organisation, through Slack Connect."""
    deleted: bool = False

    def as_json(self) -> dict[str, Any]:
        profile = {"display_name": self.name, "real_name": self.name, "team": self.team_id}
        return {
            "id": self.id,
            "team_id": self.team_id,
            "name": self.name,
            "real_name": self.name,
            "deleted": self.deleted,
            "is_bot": self.is_bot,
            "is_stranger": self.is_stranger,
            "profile": profile,
        }


@dataclass
class Channel:
    id: str
    name: str
    kind: str = "channel"
    members: set[str] = field(default_factory=set)
    is_archived: bool = False
    is_shared: bool = False


@dataclass
class File:
    id: str
    name: str
    mimetype: str
    content: bytes
    url: str
    user: str = ""
    declared_size: int | None = None
    """What Slack claims, if that differs from what it sends."""

    def as_json(self) -> dict[str, Any]:
        size = len(self.content) if self.declared_size is None else self.declared_size
        return {
            "id": self.id,
            "name": self.name,
            "title": self.name,
            "mimetype": self.mimetype,
            "filetype": self.name.rpartition(".")[2],
            "user": self.user,
            "mode": "hosted",
            "is_external": False,
            "size": size,
            "url_private": self.url,
            "url_private_download": f"{self.url}/download",
        }


@dataclass
class Message:
    channel: str
    ts: str
    user: str
    text: str
    team: str = ""
    thread_ts: str | None = None
    bot_id: str | None = None
    subtype: str | None = None
    blocks: list[dict[str, Any]] = field(default_factory=list)
    attachments: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] | None = None
    files: list[File] = field(default_factory=list)
    reactions: dict[str, list[str]] = field(default_factory=dict)
    edited_ts: str | None = None
    deleted: bool = False
    ephemeral_to: str | None = None
    """Only this person sees it."""
    stream_until: float | None = None
    """While it is a native stream: when Slack ends it."""
    versions: list[str] = field(default_factory=list)
    """Everything it has ever shown, in order."""

    @property
    def shown(self) -> str:
        """What people read: the blocks if there are any, else the text."""
        return "\n".join(texts_of(self.blocks)) if self.blocks else self.text

    @property
    def pings(self) -> list[str]:
        """Whom any version of it would have notified."""
        return [ping for version in self.versions for ping in PING.findall(version)]

    def remember(self) -> None:
        self.versions.append("\n".join([self.text, *texts_of(self.blocks)]))

    def as_json(self, metadata: bool = False) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "type": "message",
            "ts": self.ts,
            "text": self.text,
            "user": self.user,
            "team": self.team,
            "blocks": self.blocks or None,
            "attachments": self.attachments or None,
            "thread_ts": self.thread_ts,
            "bot_id": self.bot_id,
            "subtype": self.subtype,
            "files": [file.as_json() for file in self.files] or None,
            "metadata": self.metadata if metadata else None,
        }
        if self.bot_id is not None and self.bot_id.startswith("B0BOT"):
            fields["app_id"] = APP_ID
        if self.edited_ts:
            fields["edited"] = {"user": self.user, "ts": self.edited_ts}
        if self.reactions:
            fields["reactions"] = [
                {"name": name, "users": users, "count": len(users)}
                for name, users in self.reactions.items()
            ]
        return {name: value for name, value in fields.items() if value is not None}


class Workspace:
    def __init__(self, number: int = 1, clock: Clock | None = None) -> None:
        self.number = number
        self.team_id = f"T{number:09d}"
        self.bot_user = f"U0BOT{number:05d}"
        self.bot_id = f"B0BOT{number:05d}"
        self.bot_token = f"xoxb-local-{number}"
        self.clock = clock or Clock()
        self.scopes = set(SCOPES)
        self.users: dict[str, User] = {}
        self.channels: dict[str, Channel] = {}
        self.log: dict[tuple[str, str], Message] = {}
        """Every message there ever was, by channel and ts, deleted ones too."""
        self.ephemerals: list[Message] = []
        self.files: dict[str, File] = {}
        self.statuses: dict[tuple[str, str], str] = {}
        self.views: dict[str, dict[str, Any]] = {}
        self.users[self.bot_user] = User(self.bot_user, "parley", self.team_id, is_bot=True)
        self._numbers = (number - 1) * 1_000_000
        for n in (1, 2):
            self.add_user(name=f"person-{n}")
        self.add_channel("general")
        self._numbers += 100

    def number_new(self) -> int:
        self._numbers += 1
        return self._numbers

    def add_user(self, name: str = "", is_stranger: bool = False, is_bot: bool = False) -> User:
        number = len(self.users) + (self.number - 1) * 1_000_000
        team = "T999999999" if is_stranger else self.team_id
        user = User(f"U{number:09d}", name or f"person-{number}", team, is_bot, is_stranger)
        self.users[user.id] = user
        return user

    def add_channel(
        self, name: str = "", kind: str = "channel", bot_is_member: bool = True
    ) -> Channel:
        number = self.number_new()
        letter = {"channel": "C", "group": "G", "mpim": "G", "im": "D"}[kind]
        channel = Channel(f"{letter}{number:09d}", name or f"room-{number}", kind)
        channel.members = set(self.users) if bot_is_member else set(self.users) - {self.bot_user}
        self.channels[channel.id] = channel
        return channel

    def dm(self, user: str) -> Channel:
        """The direct conversation of this person with the bot."""
        if user not in self.users:
            raise SlackError("user_not_found")
        for channel in self.channels.values():
            if channel.kind == "im" and user in channel.members:
                return channel
        channel = self.add_channel(f"dm-{user}", kind="im")
        channel.members = {user, self.bot_user}
        return channel

    def channel(self, id: str) -> Channel:
        """Raises SlackError for one the bot cannot see."""
        if id in self.users:
            return self.dm(id)
        channel = self.channels.get(id)
        if channel is None or (channel.kind != "channel" and self.bot_user not in channel.members):
            raise SlackError("channel_not_found")
        return channel

    def writable(self, id: str) -> Channel:
        channel = self.channel(id)
        if channel.is_archived:
            raise SlackError("is_archived")
        if self.bot_user not in channel.members:
            raise SlackError("not_in_channel")
        return channel

    def find(self, channel: str, ts: str, error: str = "message_not_found") -> Message:
        message = self.log.get((channel, ts))
        if message is None or message.deleted:
            raise SlackError(error)
        return message

    def post(self, message: Message) -> Message:
        thread = message.thread_ts
        if thread is not None:
            root = self.log.get((message.channel, thread))
            if root is None:
                raise SlackError("thread_not_found")
            if root.thread_ts not in (None, root.ts):
                raise SlackError("cannot_reply_to_message")
            root.thread_ts = root.ts
        message.team = message.team or self.team_id
        message.remember()
        self.log[message.channel, message.ts] = message
        return message

    def messages(self, channel: str, thread_ts: str | None = None) -> list[Message]:
        """What people see now: the channel's own messages, or a thread with its root."""
        return [
            message
            for message in self.log.values()
            if message.channel == channel and not message.deleted and _belongs(message, thread_ts)
        ]

    def streaming(self, message: Message) -> bool:
        return message.stream_until is not None and self.clock.now() < message.stream_until


def _belongs(message: Message, thread_ts: str | None) -> bool:
    if thread_ts is not None:
        return thread_ts in (message.ts, message.thread_ts)
    return message.thread_ts in (None, message.ts) or message.subtype == "thread_broadcast"
