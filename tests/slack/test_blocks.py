"""What is posted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.slack import blocks


def test_answer() -> None:
    """An answer is a Markdown block, a text for notifications, and its buttons."""
    found = blocks.answer("**hi** a < b", blocks.stop_button("d1"))

    assert found["text"] == "*hi* a &lt; b"
    assert found["blocks"][0] == {"type": "markdown", "text": "**hi** a < b"}
    assert [button["action_id"] for button in found["blocks"][1]["elements"]] == [blocks.STOP]


def test_buttons_carry_the_delivery() -> None:
    """Every button says which delivery it belongs to."""
    shown = [*blocks.feedback_buttons("d1")["elements"], *blocks.stop_button("d1")["elements"]]

    assert {button["value"] for button in shown} == {"d1"}
    assert [button["action_id"] for button in shown] == [
        blocks.REGENERATE,
        blocks.GOOD,
        blocks.BAD,
        blocks.STOP,
    ]


@pytest.mark.parametrize("text", ["", " \n "])
def test_an_empty_answer_is_a_notice(text: str) -> None:
    """There is never an empty message."""
    assert blocks.answer(text)["text"] == blocks.plain(text)["text"] == blocks.EMPTY


def test_plain() -> None:
    """Where blocks are refused the text says everything, and an edit removes the blocks."""
    assert blocks.plain("**hi**\n\n- a") == {"text": "*hi*\n\n• a", "blocks": []}


@pytest.mark.parametrize("unit", ["word ", "<&>", "[a](https://x.y) ", "`x` ", "日"])
def test_fallback_is_short(unit: str) -> None:
    """The text beside the blocks is cut where neither an entity nor a link breaks."""
    found = blocks.fallback(unit * 5_000)

    assert 500 < len(found) <= blocks.FALLBACK_CHARACTERS
    assert found.endswith("…")
    assert found.count("&") == found.count(";")


def test_error_is_one_line() -> None:
    """An error says what failed, what to do, and the turn to ask about."""
    found = blocks.error("The model\nfailed <!here>", "Try again.", "t1")

    assert found["text"] == "⚠️ The model failed &lt;\u2060!here&gt; Try again. (turn `t1`)"
    assert found["blocks"][0]["text"]["text"] == found["text"]


def test_home() -> None:
    """The Home tab shows the status and how to use the bot."""
    view = blocks.home("connected")

    assert view["type"] == "home"
    assert "connected" in json.dumps(view)
    assert "!new" in json.dumps(view)


@given(st.text(alphabet="<!@>channelhereU1 `*|\n", max_size=60))
def test_nothing_pings(text: str) -> None:
    """Whatever the model wrote, no payload holds a mention."""
    payloads = [blocks.answer(text), blocks.plain(text), blocks.error(text, text, text)]

    shown = json.dumps(payloads)
    assert not any(ping in shown for ping in ("<!channel", "<!here", "<@U", "<@W"))
    assert all(payload["text"].strip() for payload in payloads)
