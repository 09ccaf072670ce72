"""Which chat a Slack message belongs to, and where the answers of a chat go.

    D1                    the top level of a direct message
    D1:1700.1             a thread inside a direct message
    C1:1700.1             a thread of a channel, from the message that opens it
    T1/C1:1700.1          any of them, when several workspaces are configured

`chat_id` and `address` are each other's inverse; gate, router and sender use nothing else.
"""

from __future__ import annotations

import re

import msgspec

_ID = re.compile(r"[A-Za-z0-9]{1,64}")
_TS = re.compile(r"[0-9]{1,20}\.[0-9]{1,20}")


class Address(msgspec.Struct, frozen=True):
    channel: str
    thread_ts: str | None = None
    """The thread to answer in; None for the top level of a direct message."""
    team: str | None = None
    """Only where the key names its workspace."""
    is_dm: bool = False


def is_id(text: str) -> bool:
    """Whether this can be the id of a channel or a workspace."""
    return _ID.fullmatch(text) is not None


def is_ts(text: str) -> bool:
    return _TS.fullmatch(text) is not None


def is_dm(channel: str, channel_type: str = "") -> bool:
    """An `app_mention` or a button has no channel type, so the id counts too."""
    return channel_type == "im" or channel.startswith("D")


def chat_id(
    channel: str,
    ts: str,
    thread_ts: str | None = None,
    *,
    channel_type: str = "",
    team: str | None = None,
) -> str:
    """The chat of the message `ts`; pass `team` when several workspaces are configured."""
    place = f"{team}/{channel}" if team else channel
    if is_dm(channel, channel_type):
        # A root that got replies names itself as its thread; it still stands at the top level.
        thread = thread_ts if thread_ts != ts else None
    else:
        thread = thread_ts or ts
    return f"{place}:{thread}" if thread else place


def address(chat_id: str) -> Address:
    """Raises ValueError if the chat is not one of Slack's."""
    place, _, thread = chat_id.partition(":")
    team, slash, channel = place.rpartition("/")
    known = is_id(channel) and (not slash or is_id(team)) and (":" not in chat_id or is_ts(thread))
    if not known:
        raise ValueError(f"{chat_id!r} is not a chat of Slack")
    return Address(
        channel=channel,
        thread_ts=thread or None,
        team=team or None,
        # Only a direct message has a top level that is a chat of its own.
        is_dm=is_dm(channel) or not thread,
    )
