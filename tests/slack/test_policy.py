"""Who is answered, and where."""

from typing import Any

import pytest

from channels.slack.policy import (
    Action,
    Answer,
    Decision,
    Deny,
    Facts,
    Ignore,
    Listen,
    Override,
    Policy,
    decide,
)
from channels.slack.translate import Message

FACTS: dict[str, Any] = {
    "bot_user": "U9",
    "bot_id": "B9",
    "app_id": "A9",
    "teams": frozenset({"T1", "E1"}),
}
ANYONE = {"team": "T1", "channel": "C1", "ts": "2.1", "user": "U1", "text": "hi"}
DM = {"channel": "D1"}
MENTION = {"mentioned": True}
REPLY = {"thread_ts": "1.1"}
BOT = {"user": "", "bot_id": "B2"}


def decided(
    message: dict[str, Any], policy: dict[str, Any], facts: dict[str, Any] | None = None
) -> Decision:
    return decide(Message(**(ANYONE | message)), Policy(**policy), Facts(**(FACTS | (facts or {}))))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"user": "U9"} | DM, "self"),
        ({"bot_id": "B9"} | DM, "self"),
        ({"app_id": "A9"} | MENTION, "self"),
        ({"user": "USLACKBOT"} | DM, "slackbot"),
        (BOT | MENTION, "bot"),
        ({"subtype": "bot_message"} | MENTION, "bot"),
        ({"user": ""} | DM, "no sender"),
        ({}, "not addressed"),
        (REPLY, "not addressed"),
    ],
)
def test_what_is_not_for_us(message: dict[str, Any], reason: str) -> None:
    """Own messages, other bots, Slackbot and talk between people are ignored by default."""
    assert decided(message, {}) == Ignore(reason)


@pytest.mark.parametrize("message", [DM, MENTION, DM | MENTION, DM | REPLY, MENTION | REPLY])
@pytest.mark.parametrize("mention", ["mention", "strict", "all"])
def test_spoken_to(message: dict[str, Any], mention: str) -> None:
    """A direct message and a mention are answered in every mode."""
    assert decided(message, {"mention": mention}) == Answer()


@pytest.mark.parametrize(
    ("mention", "message", "engaged", "expected"),
    [
        ("mention", REPLY, True, Answer()),
        ("mention", {}, True, Ignore("not addressed")),
        ("strict", REPLY, True, Listen()),
        ("strict", REPLY, False, Ignore("not addressed")),
        ("all", {}, False, Answer()),
        ("all", REPLY, False, Answer()),
    ],
)
def test_mention_modes(
    mention: str, message: dict[str, Any], engaged: bool, expected: Decision
) -> None:
    """Without a mention it depends on the mode, and on whether the bot takes part."""
    assert decided(message, {"mention": mention}, {"engaged": engaged}) == expected


@pytest.mark.parametrize("message", [DM, MENTION, REPLY, {}])
def test_own_user_unknown(message: dict[str, Any]) -> None:
    """Without knowing who we are nobody is answered, even where everything is."""
    assert decided(message, {"mention": "all"}, {"bot_user": ""}) == Ignore("own user unknown")


@pytest.mark.parametrize(
    ("policy", "message", "expected"),
    [
        ({"dm": "off"}, DM, Deny("dm", notify=True)),
        ({"dm": "off"}, MENTION, Answer()),
        ({"dm": "allowlist"}, DM, Deny("user", notify=True)),
        ({"dm": "allowlist", "users": frozenset({"U1"})}, DM, Answer()),
        ({"users": frozenset({"U2"})}, DM, Deny("user", notify=True)),
        ({"users": frozenset({"U2"})}, MENTION, Deny("user", notify=True)),
        ({"users": frozenset({"U2"})}, {}, Ignore("not addressed")),
        ({"users": frozenset({"U2"}), "mention": "all"}, {}, Deny("user", notify=False)),
        ({"channels": frozenset({"C2"})}, MENTION, Deny("channel", notify=True)),
        ({"channels": frozenset({"C2"})}, {}, Ignore("not addressed")),
        ({"channels": frozenset({"C1"})}, MENTION, Answer()),
        ({"channels": frozenset()}, MENTION, Deny("channel", notify=True)),
        ({"channels": frozenset()}, DM, Answer()),
        ({}, DM | {"user_team": "T2"}, Deny("external", notify=True)),
        ({}, DM | {"user_team": "E1"}, Answer()),
        ({"external_users": True}, DM | {"user_team": "T2"}, Answer()),
        ({"users": frozenset({"U1"})}, DM | {"user_team": "T2"}, Answer()),
    ],
)
def test_who_is_denied(policy: dict[str, Any], message: dict[str, Any], expected: Decision) -> None:
    """Only somebody who spoke to the bot is told that they are denied."""
    assert decided(message, policy) == expected


def test_stranger_by_profile() -> None:
    """A stranger whose message does not say so is known by their profile."""
    assert decided(DM, {}, {"external": True}) == Deny("external", notify=True)


@pytest.mark.parametrize(
    ("bots", "message", "streak", "expected"),
    [
        ("mentions", MENTION, 0, Answer()),
        ("mentions", DM, 0, Ignore("bot")),
        ("mentions", MENTION, 5, Ignore("bot loop")),
        ("all", DM, 4, Answer()),
        ("all", {}, 0, Ignore("not addressed")),
        ("all", MENTION, 5, Ignore("bot loop")),
    ],
)
def test_bots(bots: str, message: dict[str, Any], streak: int, expected: Decision) -> None:
    """Bots are answered where that is allowed, until they have gone on for too long."""
    assert decided(BOT | message, {"allow_bots": bots}, {"bot_streak": streak}) == expected


def test_a_denied_bot_is_not_told() -> None:
    """A notice to a bot could begin a loop."""
    policy = {"allow_bots": "all", "users": frozenset({"U2"})}

    assert decided(BOT | MENTION, policy) == Deny("user", notify=False)


@pytest.mark.parametrize(
    ("override", "message", "expected"),
    [
        (Override(mention="all"), {}, Answer()),
        (Override(users=frozenset({"U2"})), MENTION, Deny("user", notify=True)),
        (Override(allow_bots="all"), BOT | MENTION, Answer()),
        (Override(mention="strict"), {"channel": "C2"} | MENTION, Answer()),
    ],
)
def test_a_channel_of_its_own(
    override: Override, message: dict[str, Any], expected: Decision
) -> None:
    """A channel may differ from the general settings."""
    assert decided(message, {"overrides": {"C1": override}}) == expected


@pytest.mark.parametrize(
    ("policy", "action", "expected"),
    [
        ({}, Action(channel="C1", user="U1"), Answer()),
        ({"mention": "strict"}, Action(channel="C1", user="U1"), Answer()),
        ({"users": frozenset({"U2"})}, Action(channel="C1", user="U1"), Deny("user", notify=True)),
        ({"dm": "off"}, Action(channel="D1", user="U1"), Deny("dm", notify=True)),
        ({}, Action(channel="C1", user="U1", user_team="T2"), Deny("external", notify=True)),
    ],
)
def test_buttons_and_commands(policy: dict[str, Any], action: Action, expected: Decision) -> None:
    """A press or a command needs no mention, but the same permission."""
    assert decide(action, Policy(**policy), Facts(**FACTS)) == expected
