"""Which chat a Slack message belongs to, and the way back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.slack.keys import Address, address, chat_id

IDS = st.from_regex(r"[CDG][A-Z0-9]{1,10}", fullmatch=True)
STAMPS = st.from_regex(r"[0-9]{10}\.[0-9]{6}", fullmatch=True)


@pytest.mark.parametrize(
    ("channel", "ts", "thread", "channel_type", "team", "expected"),
    [
        ("D1", "1.1", None, "im", None, "D1"),
        ("D1", "1.1", None, "", None, "D1"),
        ("D1", "1.1", "1.1", "im", None, "D1"),
        ("D1", "2.1", "1.1", "im", None, "D1:1.1"),
        ("C1", "1.1", None, "channel", None, "C1:1.1"),
        ("C1", "2.1", "1.1", "channel", None, "C1:1.1"),
        ("G1", "1.1", None, "mpim", None, "G1:1.1"),
        ("C1", "2.1", "1.1", "", "T1", "T1/C1:1.1"),
        ("D1", "1.1", None, "im", "T1", "T1/D1"),
    ],
)
def test_chat_of_a_message(
    channel: str, ts: str, thread: str | None, channel_type: str, team: str | None, expected: str
) -> None:
    """A direct message has a top level; in a channel the opening message and its replies share."""
    assert chat_id(channel, ts, thread, channel_type=channel_type, team=team) == expected


@given(channel=IDS, ts=STAMPS, thread=st.none() | STAMPS, team=st.none() | st.just("T1"))
def test_address_is_the_way_back(
    channel: str, ts: str, thread: str | None, team: str | None
) -> None:
    """Where a chat's answers go can be read from its id alone, and leads to the same chat."""
    chat = chat_id(channel, ts, thread, team=team)
    where = address(chat)

    assert (where.channel, where.team, where.is_dm) == (channel, team, channel.startswith("D"))
    assert chat_id(channel, "0.0", where.thread_ts, team=where.team) == chat


def test_a_top_level_chat_is_a_direct_message() -> None:
    """A direct message whose id looks like a channel's is still one on the way back."""
    assert address(chat_id("C1", "1.1", channel_type="im")) == Address("C1", is_dm=True)


@pytest.mark.parametrize(
    "text", ["", ":", "C1:", "C1:x", "/C1", "T1/", "a/b/C1", "C 1", "C1:1.1:2"]
)
def test_a_foreign_chat_is_refused(text: str) -> None:
    """What is not a chat of Slack has no address."""
    with pytest.raises(ValueError, match="not a chat of Slack"):
        address(text)
