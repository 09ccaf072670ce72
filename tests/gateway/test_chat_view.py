"""What `parley chat` remembers and shows, without a gateway."""

from __future__ import annotations

from typing import Any

from gateway.chat_client import Conversation
from gateway.chat_view import TerminalView

TURN = {"turn": "t", "chat_id": "c"}


def start(text: str = "") -> dict[str, Any]:
    return {"type": "turn_start", **TURN, "text": text, "reasoning": "", "tools": [], "n": 0}


def delta(text: str) -> dict[str, Any]:
    return {"type": "delta", **TURN, "text": text, "n": 0}


def closing(text: str, **fields: Any) -> dict[str, Any]:
    row = {"seq": 2, "role": "assistant", "content": text, "settles": {"1": "answered"}}
    return {"type": "message", **TURN, **row, **fields}


def attached(**fields: Any) -> dict[str, Any]:
    known = {"log": "a", "last_seq": 0, "first_seq": 1, "gap": False, "reset": False}
    return {"type": "attached", "chat_id": "c", **known, **fields}


def shown(*frames: dict[str, Any]) -> str:
    view, conversation = TerminalView(), Conversation("c")
    taken = [frame for frame in frames if conversation.take(frame)]
    pieces = [view.take(frame, conversation, ours=False) for frame in taken]
    return "".join(piece.text for some in pieces for piece in some)


def test_a_turn_that_begins_again_goes_on_where_the_screen_ends() -> None:
    """The words that are on the screen are not shown twice."""
    text = shown(start(), delta("one "), delta("two "), start(), delta("one "), delta("two three"))

    assert text == "one two three"


def test_another_answer_than_before_is_shown_whole() -> None:
    """On a line of its own, and it says so."""
    text = shown(start(), delta("one "), start(), delta("two"), closing("two"))

    assert text == "one \nthe answer begins again\ntwo\n"


def test_the_closing_row_brings_what_was_missed() -> None:
    """Deltas that were lost with a connection are in it; a row seen twice is shown once."""
    assert shown(start(), delta("one "), closing("one two"), closing("one two")) == "one two\n"


def test_control_sequences_do_not_reach_the_terminal() -> None:
    """Whatever the answer holds."""
    assert "\x1b" not in shown(start(), delta("\x1b]0;x\x07"), closing("\x1b]0;x\x07"))


def test_only_what_is_not_acknowledged_is_sent_again() -> None:
    """With the same id; after a reset everything that is not settled."""
    conversation = Conversation("c")
    for name in ("1", "2"):
        conversation.say(name, "text")
    conversation.take(attached())
    conversation.take({"type": "ack", "chat_id": "c", "id": "1", "seq": 1})
    resumed = [frame["id"] for frame in conversation.unacknowledged()]
    conversation.take(attached(log="b", reset=True))

    assert resumed == ["2"]
    assert [frame["id"] for frame in conversation.unacknowledged()] == ["1", "2"]


def test_the_cursor_is_the_highest_number_seen() -> None:
    """And belongs to the log it was seen in."""
    conversation = Conversation("c")
    first = conversation.attach()
    conversation.take(attached())
    conversation.take(closing("x", seq=7))

    assert "since" not in first
    assert (conversation.attach()["since"], conversation.attach()["log"]) == (7, "a")
