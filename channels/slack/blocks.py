"""What is posted: messages, buttons, notices and the App Home.

A payload is the content of a message (`text`, `blocks`), good for a post and for an edit alike;
the sender adds the place. Nothing here can ping anyone. Text that is to be cut into parts is
defused first, so that a part does not grow afterwards.
"""

from __future__ import annotations

from typing import Any

from channels.slack.mrkdwn import defuse, escape, mrkdwn
from channels.slack.policy import Denied

STOP = "parley_stop"
REGENERATE = "parley_regenerate"
GOOD = "parley_good"
BAD = "parley_bad"

FALLBACK_CHARACTERS = 3_000
PLAIN_CHARACTERS = 3_000
"""The most a part has that is sent by `plain`: `chat.update` takes 4,000 and escapes count."""
QUIET = {"unfurl_links": False, "unfurl_media": False}
"""For every post: a link preview would tell a server of somebody's choice what was said."""

EMPTY = "The agent gave no answer. Ask again, or say it in other words."
DENIED: dict[Denied, str] = {
    "dm": "I don't answer direct messages here. Mention me in a channel instead.",
    "channel": "I'm not set up to answer in this channel.",
    "user": "I'm not allowed to answer you. Ask the people who run me for access.",
    "external": "I only answer members of the workspace I belong to.",
}

Payload = dict[str, Any]


def answer(markdown: str, buttons: Payload | None = None) -> Payload:
    """An answer, or one part of it, of at most 11,000 characters."""
    if not markdown.strip():
        return notice(EMPTY)
    blocks = [{"type": "markdown", "text": defuse(markdown)}]
    return {"text": fallback(markdown), "blocks": [*blocks, *([buttons] if buttons else [])]}


def plain(markdown: str) -> Payload:
    """The same for a Slack that refuses the blocks; an edit takes the old blocks away."""
    if not markdown.strip():
        return notice(EMPTY)
    return {"text": mrkdwn(markdown) or escape(defuse(markdown)), "blocks": []}


def fallback(markdown: str) -> str:
    """What notifications and old clients show."""
    most = FALLBACK_CHARACTERS
    while True:
        clipped = _clipped(markdown, most)
        text = mrkdwn(clipped) or escape(defuse(clipped))
        if len(text) <= FALLBACK_CHARACTERS:
            return text
        # Cut before translation: half an entity or half a link would show.
        most = min(most - 1, most * FALLBACK_CHARACTERS // len(text))


def notice(what: str, hint: str = "", turn: str = "") -> Payload:
    """One short line: what happened, what to do about it, and the id to ask about."""
    said = " ".join(filter(None, [_one_line(what), _one_line(hint)]))
    text = f"{said} (turn `{_one_line(turn)}`)" if turn else said
    return {"text": text, "blocks": [_section(text)]}


def error(what: str, hint: str = "", turn: str = "") -> Payload:
    return notice(f"⚠️ {what}", hint, turn)


def stop_button(delivery: str) -> Payload:
    return _actions(_button("Stop", STOP, delivery) | {"style": "danger"})


def feedback_buttons(delivery: str) -> Payload:
    return _actions(
        _button("Regenerate", REGENERATE, delivery),
        _button("👍", GOOD, delivery, label="A good answer"),
        _button("👎", BAD, delivery, label="A bad answer"),
    )


def home(status: str, command: str = "/parley") -> Payload:
    """The view of the app's Home tab."""
    use = (
        "*How to use*\n"
        "• Write me a direct message, or mention me in a channel; I answer in the thread.\n"
        "• `!new` begins a new conversation, `!stop` ends a running answer, `!help` lists more.\n"
        f"• `{escape(command)} help` works everywhere and answers only you."
    )
    status_line = f"*Status:* {_one_line(status)}"
    header = {"type": "header", "text": {"type": "plain_text", "text": "Parley"}}
    blocks = [header, _section(status_line), {"type": "divider"}, _section(use)]
    return {"type": "home", "blocks": blocks}


def _section(text: str) -> Payload:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _actions(*buttons: Payload) -> Payload:
    return {"type": "actions", "elements": list(buttons)}


def _button(text: str, action: str, value: str, label: str = "") -> Payload:
    button: Payload = {
        "type": "button",
        "text": {"type": "plain_text", "text": text, "emoji": True},
        "action_id": action,
        "value": value,
    }
    return button | ({"accessibility_label": label} if label else {})


def _one_line(text: str) -> str:
    return escape(defuse(_clipped(" ".join(text.split()), 300)))


def _clipped(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: max(0, characters - 1)].rstrip() + "…"
