"""Slack's events as typed values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.slack.translate import Delete, Edit, File, Ignored, Message, translate

NAMES = {"U1": "Ada", "U9": "Parley"}


def body(**event: Any) -> dict[str, Any]:
    told = {"type": "message", "channel": "C1", "ts": "1.1", "user": "U1"} | event
    return {"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": told}


def message(**event: Any) -> Message:
    found = translate(body(**event), bot_user="U9", names=NAMES)
    assert isinstance(found, Message)
    return found


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("<@U9> hello", "hello"),
        ("  <@U9|parley>: <@U9>, hello ", "hello"),
        ("ask <@U9> and <@U1>", "ask @Parley and @Ada"),
        ("<@U2> and <@U3|bob>", "@U2 and @bob"),
        ("<#C2|general> <#C3>", "#general #C3"),
        ("<!subteam^S1|@ops> <!subteam^S2>", "@ops @S2"),
        ("<!here> <!channel|@channel> <!everyone>", "@here @channel @everyone"),
        ("<https://a.b/c|the page>", "the page (https://a.b/c)"),
        ("<http://a.b|a.b> <https://a.b>", "a.b https://a.b"),
        ("<mailto:x@a.b|x@a.b>", "x@a.b"),
        ("<!date^0^{date}|yesterday> <!date^0^{date}>", "yesterday 1970-01-01T00:00:00+00:00"),
        ("<!date^99999999999999999999^x>", "99999999999999999999"),
        ("a &lt; b &amp;&amp; c &gt; d", "a < b && c > d"),
        ("&lt;@U1&gt; &amp;lt;", "<@U1> &lt;"),
        ("<https://a.b/?x=1&amp;y=2>", "https://a.b/?x=1&y=2"),
        ("", ""),
        ("<> <|> <!> <@>", "<> <|> @ @"),
    ],
)
def test_text_for_the_model(raw: str, text: str) -> None:
    """Control sequences become words, entities come last, our own leading mention is gone."""
    assert message(text=raw).text == text


def test_ids_of_a_message() -> None:
    """A message carries every id Slack gave, and the people whose names it needs."""
    found = message(
        text="<@U9> hi <@U2> <@U2>",
        thread_ts="1.0",
        channel_type="channel",
        client_msg_id="m",
        user_team="T2",
    )

    assert found.mentioned
    assert found.user_ids == ("U9", "U2")
    assert (found.team, found.channel, found.ts, found.thread_ts) == ("T1", "C1", "1.1", "1.0")
    assert (found.client_msg_id, found.event_id, found.user_team) == ("m", "Ev1", "T2")


def test_one_message_told_twice() -> None:
    """`message` and `app_mention` have one identity, and both are mentions."""
    both = [message(type=kind, text="<@U9> hi") for kind in ("message", "app_mention")]

    assert both[0].identity == both[1].identity == ("T1", "C1", "1.1")
    assert all(found.mentioned for found in both)


def test_shared_channel_names_two_workspaces() -> None:
    """The chat belongs to the workspace that installed the app, the author to their own."""
    shared = body(text="hi", user_team="T2", team="T2") | {"authorizations": [{"team_id": "T1"}]}
    found = translate(shared | {"team_id": "T2"})

    assert isinstance(found, Message)
    assert (found.team, found.user_team) == ("T1", "T2")


@pytest.mark.parametrize(
    "subtype", ["", "file_share", "thread_broadcast", "me_message", "bot_message"]
)
def test_subtypes_that_are_messages(subtype: str) -> None:
    """What a person or a bot said is a message, whatever Slack calls it."""
    assert message(subtype=subtype, text="hi").subtype == subtype


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        ({"subtype": "channel_join"}, "subtype channel_join"),
        ({"subtype": "channel_topic"}, "subtype channel_topic"),
        ({"subtype": "message_replied"}, "subtype message_replied"),
        ({"hidden": True}, "hidden"),
        ({"type": "reaction_added"}, "event reaction_added"),
        ({"type": 3}, "not an event"),
        ({"channel": None}, "no channel"),
        ({"channel": "C1:2/3"}, "no channel"),
        ({"ts": "soon"}, "no ts"),
        ({"subtype": "message_deleted", "hidden": True}, "no ts"),
    ],
)
def test_what_is_ignored(event: dict[str, Any], reason: str) -> None:
    """What nobody said to anyone is ignored with a reason."""
    assert translate(body(**event)) == Ignored(reason)


def changed(new: dict[str, Any], old: dict[str, Any]) -> object:
    told = {"ts": "1.1", "user": "U1"}
    event = body(
        subtype="message_changed",
        hidden=True,
        ts="9.9",
        message=told | new,
        previous_message=told | old,
    )
    return translate(event, bot_user="U9")


def test_edit() -> None:
    """An edit has the identity of the message it changes, and the new text."""
    found = changed({"text": "new", "edited": {"ts": "8.8"}}, {"text": "old"})

    assert isinstance(found, Edit)
    assert (found.message.identity, found.message.text) == (("T1", "C1", "1.1"), "new")
    assert found.edited_ts == "8.8"


@pytest.mark.parametrize("edited", [{}, {"edited": {"ts": "8.8"}}])
def test_unfurl_is_no_edit(edited: dict[str, Any]) -> None:
    """A link preview changes nothing that was said, before or after a real edit."""
    found = changed({"text": "x", "attachments": [{"text": "page"}]} | edited, {"text": "x"})

    assert isinstance(found, Ignored)


def test_delete() -> None:
    """A deletion names the message that is gone, and its thread."""
    old = {"ts": "1.1", "thread_ts": "1.0", "user": "U1"}
    event = body(subtype="message_deleted", hidden=True, deleted_ts="1.1", previous_message=old)

    assert translate(event) == Delete(
        team="T1", channel="C1", ts="1.1", thread_ts="1.0", user="U1", event_id="Ev1"
    )


def test_deleted_root() -> None:
    """A deleted message that has replies is reported as an edit, and is a deletion."""
    found = changed({"subtype": "tombstone"}, {"text": "old"})

    assert isinstance(found, Delete)
    assert found.ts == "1.1"


BLOCKS = [
    {
        "type": "rich_text",
        "elements": [
            {
                "type": "rich_text_section",
                "elements": [
                    {"type": "user", "user_id": "U9"},
                    {"type": "text", "text": " if a < b see "},
                    {"type": "link", "url": "https://a.b", "text": "this"},
                    {"type": "text", "text": "x()", "style": {"code": True}},
                ],
            },
            {
                "type": "rich_text_list",
                "style": "ordered",
                "elements": [
                    {
                        "type": "rich_text_section",
                        "elements": [{"type": "user", "user_id": "U1"}],
                    }
                ],
            },
        ],
    },
    {"type": "section", "text": {"type": "mrkdwn", "text": "&lt;ok&gt; <@U1>"}},
    {"type": "markdown", "text": "**a** <b>"},
]


def test_blocks_when_there_is_no_text() -> None:
    """A message without text says what its blocks say; a mention in them counts."""
    found = message(text="", blocks=BLOCKS)

    assert found.text == ("if a < b see this (https://a.b)`x()`\n1. @Ada\n<ok> @Ada\n**a** <b>")
    assert found.mentioned


def test_forwarded_message() -> None:
    """What was forwarded is quoted after the comment, with its files."""
    shared = {
        "is_share": True,
        "author_name": "Ada",
        "text": "line &lt;1&gt;\nline 2",
        "files": [{"id": "F1"}],
    }
    found = message(text="look", attachments=[shared, {"text": "a preview"}])

    assert found.text == "look\n\nForwarded message from Ada:\n> line <1>\n> line 2"
    assert found.files == (File("F1"),)


def test_attachment_of_a_bot() -> None:
    """A message that consists of attachments only says what they say."""
    found = message(bot_id="B1", attachments=[{"title": "Disk full"}])

    assert found.text == "Attachment:\n> Disk full"


def test_files() -> None:
    """A file has what is needed to fetch it, or the reason why it cannot be fetched."""
    found = message(
        files=[
            {"id": "F1", "name": "a.txt", "mimetype": "text/plain", "size": 3, "url_private": "u"},
            {"id": "F2", "file_access": "check_file_info"},
            {"id": "F3", "mode": "tombstone"},
            {"name": "without an id"},
        ]
    ).files

    assert found[0] == File("F1", "a.txt", "text/plain", 3, "u")
    assert found[1].needs_info
    assert found[2].problem == "it was deleted"
    assert len(found) == 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(
    ["message", "message_changed", "message_deleted", "C1", "1.1", "rich_text", "rich_text_list"]
)
KEYS = st.sampled_from(
    [
        "type",
        "subtype",
        "channel",
        "ts",
        "text",
        "user",
        "blocks",
        "attachments",
        "files",
        "message",
        "previous_message",
        "edited",
        "elements",
        "style",
        "is_share",
        "message_blocks",
        "fields",
        "deleted_ts",
        "bot_profile",
        "hidden",
    ]
)
EVENTS = st.recursive(
    JSON | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)


@given(JSON)
def test_any_json_is_ignored(value: object) -> None:
    """Whatever arrives, nothing is raised."""
    assert isinstance(translate(value), Ignored)


@given(st.dictionaries(KEYS, EVENTS, max_size=6), st.text())
def test_any_event_is_survived(event: dict[str, Any], text: str) -> None:
    """Any value in any field of an event gives one of the four."""
    bodies = [body(**event), body(**({"text": text} | event)), {"event": event}]

    for value in bodies:
        assert isinstance(translate(value, bot_user="U9"), Message | Edit | Delete | Ignored)
