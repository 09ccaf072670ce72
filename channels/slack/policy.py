"""Who is answered, and where.

`decide` sees one message, button press or slash command at a time and knows nothing but what it
is given. A message that is not meant for the bot is ignored before anyone is denied: people who
talk to each other never get a notice from us.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from channels.slack.keys import is_dm
from channels.slack.translate import Message

Mention = Literal["mention", "strict", "all"]
Bots = Literal["off", "mentions", "all"]
Denied = Literal["dm", "channel", "user", "external"]


class Override(msgspec.Struct, frozen=True):
    """What one channel does differently; None leaves the general setting."""

    mention: Mention | None = None
    users: frozenset[str] | None = None
    allow_bots: Bots | None = None


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    dm: Literal["open", "allowlist", "off"] = "open"
    channels: frozenset[str] = frozenset({"*"})
    """Ids of the channels the bot answers in; `*` is all of them."""
    users: frozenset[str] = frozenset()
    """Ids of the people who are answered; empty is everybody (and nobody for dm `allowlist`)."""
    external_users: bool = False
    """Whether people of other workspaces are answered without being listed in `users`."""
    mention: Mention = "mention"
    allow_bots: Bots = "off"
    bot_streak: int = 5
    """Messages of bots in a row, in one chat, after which only a person is answered again."""
    overrides: Mapping[str, Override] = {}


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known at the moment of the decision."""

    bot_user: str
    bot_id: str = ""
    app_id: str = ""
    teams: frozenset[str] = frozenset()
    """Our workspace and its organisation: whoever belongs to another one is external."""
    engaged: bool = False
    """The bot takes part in this thread, and not too long ago."""
    external: bool = False
    """Slack's profile of the user says that they are a stranger."""
    bot_streak: int = 0
    """How many messages of bots in a row this chat has just seen."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """A button press or a slash command."""

    channel: str
    user: str
    user_team: str = ""

    @property
    def is_dm(self) -> bool:
        return is_dm(self.channel)


class Answer(msgspec.Struct, frozen=True):
    pass


class Listen(msgspec.Struct, frozen=True):
    """Not answered, but part of a conversation the bot takes part in."""


class Deny(msgspec.Struct, frozen=True):
    reason: Denied
    notify: bool
    """Whether the sender spoke to the bot and so is told, at most once an hour."""


class Ignore(msgspec.Struct, frozen=True):
    reason: str


Decision = Answer | Listen | Deny | Ignore


def decide(request: Message | Action, policy: Policy, facts: Facts) -> Decision:
    override = policy.overrides.get(request.channel) or Override()
    if isinstance(request, Message):
        bots = override.allow_bots or policy.allow_bots
        mention = override.mention or policy.mention
        refused = _sender(request, policy, bots, facts) or _gate(request, mention, facts)
        if refused is not None:
            return refused
    denied = _denied(request, policy, override, facts)
    return Deny(denied, notify=_told(request)) if denied else Answer()


def is_self(message: Message, facts: Facts) -> bool:
    """Whether we wrote it: also true for the edits Slack reports of our own messages."""
    pairs = (
        (message.user, facts.bot_user),
        (message.bot_id, facts.bot_id),
        (message.app_id, facts.app_id),
    )
    return any(theirs and theirs == ours for theirs, ours in pairs)


def _sender(message: Message, policy: Policy, bots: Bots, facts: Facts) -> Ignore | None:
    if not facts.bot_user:
        # Neither a mention nor an own message can be told from others: answer nobody.
        return Ignore("own user unknown")
    if is_self(message, facts):
        return Ignore("self")
    if message.user == "USLACKBOT":
        return Ignore("slackbot")
    if _is_bot(message):
        if bots == "off" or (bots == "mentions" and not message.mentioned):
            return Ignore("bot")
        return Ignore("bot loop") if facts.bot_streak >= policy.bot_streak else None
    return None if message.user else Ignore("no sender")


def _gate(message: Message, mention: Mention, facts: Facts) -> Listen | Ignore | None:
    """None if the message is meant for the bot."""
    if message.is_dm or message.mentioned or mention == "all":
        return None
    if not (facts.engaged and message.thread_ts):
        return Ignore("not addressed")
    return Listen() if mention == "strict" else None


def _denied(
    request: Message | Action, policy: Policy, override: Override, facts: Facts
) -> Denied | None:
    users = policy.users if override.users is None else override.users
    listed = request.user in users
    if request.is_dm:
        if policy.dm == "off":
            return "dm"
        if policy.dm == "allowlist" and not listed:
            return "user"
    elif policy.channels.isdisjoint({"*", request.channel}):
        return "channel"
    if users and not listed:
        return "user"
    external = facts.external or _elsewhere(request.user_team, facts)
    return "external" if external and not (listed or policy.external_users) else None


def _elsewhere(team: str, facts: Facts) -> bool:
    return bool(team and facts.teams) and team not in facts.teams


def _told(request: Message | Action) -> bool:
    if isinstance(request, Action):
        return True
    return not _is_bot(request) and (request.is_dm or request.mentioned)


def _is_bot(message: Message) -> bool:
    return bool(message.bot_id) or message.subtype == "bot_message"
