"""Markdown as Slack's notation, and text that pings nobody."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.slack.mrkdwn import JOINER, Defuser, defuse, mrkdwn


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("a < b & c > d", "a &lt; b &amp; c &gt; d"),
        ("**bold *both* x** ~~gone~~", "*bold _both_ x* ~gone~"),
        ("# A **bold** head", "*A bold head*"),
        ("a*b*c", "a\u200b_b_\u200bc"),
        ("2 * 3 * 4 and snake_case_name", "2 * 3 * 4 and snake_case_name"),
        ("`a < **b** & _c_`", "`a &lt; **b** &amp; _c_`"),
        ("``a ` b``", "`a ˋ b`"),
        ("```py\nif a < b: *x*\n\n    y\n```", "```\nif a &lt; b: *x*\n\n    y\n```"),
        ("````\n```\n````", f"```\n``{JOINER}`\n```"),
        ("[a|b>c](https://x.y/?a=1&b=2)", "<https://x.y/?a=1&amp;b=2|a|b&gt;c>"),
        ("<https://x.y>", "<https://x.y>"),
        ("![alt](https://x.y/i.png)", "<https://x.y/i.png|alt>"),
        ("[here](/docs)", "here (/docs)"),
        ("[all](!channel)", "all (!channel)"),
        ("[all](@U1)", "all (@U1)"),
        ("- a\n  - b\n    1. c\n- d", "• a\n    • b\n        1. c\n• d"),
        ("3. a\n4. b", "3. a\n4. b"),
        ("- a\n\n  ```\n  x\n    y\n  ```", "• a\n```\nx\n  y\n```"),
        ("> q\n> r\n>\n> s", "> q\n> r\n> \n> s"),
        ("| a | b |\n|---|--:|\n| 日本 | `x` |", "```\na    | b\n-----+--\n日本 | x\n```"),
        ("---", "———"),
        ("<b>x</b>", "&lt;b&gt;x&lt;/b&gt;"),
        ("", ""),
    ],
)
def test_mrkdwn(markdown: str, expected: str) -> None:
    """Each construct becomes what Slack shows for it; code is only escaped."""
    assert mrkdwn(markdown) == expected


PINGS = [
    "<!channel>",
    "<!here|here>",
    "<!everyone>",
    "<!group>",
    "<!subteam^S1|@ops>",
    "<@U1>",
    "<@W1|bob>",
    "@channel",
    "@here",
    "@everyone",
    "@HERE",
    "&lt;!channel&gt;",
    "&#60;!here>",
    "&#x3C;@U1>",
    "<\\!channel>",
    "&commat;channel",
]


@pytest.mark.parametrize("ping", PINGS)
@pytest.mark.parametrize("frame", ["{}", "a {} b", "`{}`", "```\n{}\n```", "**{}**", "[x]({})"])
def test_defuse(ping: str, frame: str) -> None:
    """A mention is broken wherever it stands, and reads the same."""
    text = frame.format(ping)
    safe = defuse(text)

    assert ping not in safe
    assert safe.replace(JOINER, "") == text
    assert defuse(safe) == safe
    assert ping not in mrkdwn(text)


@pytest.mark.parametrize(
    "text",
    [
        "me@here.com",
        "@hereabouts",
        "a < b",
        "<!-- x -->",
        "<!doctype html>",
        "@Ada",
        "<https://a.b>",
    ],
)
def test_harmless(text: str) -> None:
    """What pings nobody is left alone."""
    assert defuse(text) == text


def test_allowed_people() -> None:
    """The mention of somebody who may be mentioned stays, also in a stream; others don't."""
    allowed = frozenset({"U12"})
    stream = Defuser(allowed)
    pieces = [stream.feed(char) for char in "<@U12> <@U1> <!here>"]

    assert defuse("<@U12> <@U1>", allowed) == f"<@U12> <{JOINER}@U1>"
    assert "".join(pieces) + stream.flush() == f"<@U12> <{JOINER}@U1> <{JOINER}!here>"


@given(
    st.lists(
        st.sampled_from(
            [
                *PINGS,
                "<",
                "@",
                "!",
                "&",
                "&lt;",
                "he",
                "re",
                "chan",
                "nel",
                "U1",
                ">",
                " ",
                "x",
                "\\",
            ]
        )
        | st.text(max_size=3),
        max_size=12,
    ),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_a_stream_is_defused_like_the_whole(words: list[str], cuts: list[int]) -> None:
    """However a text is cut into pieces, the same mentions are broken."""
    text = "".join(words)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    stream = Defuser()
    out = [stream.feed(text[a:b]) for a, b in pairwise(edges)]

    assert "".join(out) + stream.flush() == defuse(text)


@given(st.text(alphabet="ab *_~`<>&|#-[]()!@\n1.", max_size=80))
def test_any_text_is_rendered_safely(text: str) -> None:
    """Nothing raises, and no control sequence comes out but links."""
    for token in mrkdwn(text).split("<")[1:]:
        assert token[:1] not in ("!", "@", "#")
