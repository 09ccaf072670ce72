"""Estimates of tokens: cheap, offline, and never in the way of odd text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.record import Record
from sessions.tokens import MEDIA_TOKENS, ROW_TOKENS, estimate, estimate_message, estimate_record

ANY_TEXT = st.text(st.characters())


@given(ANY_TEXT, ANY_TEXT)
def test_estimate_grows_with_the_text(one: str, other: str) -> None:
    """More text never costs less, and cutting a text gains at most a token of rounding."""
    both = estimate(one + other)

    assert both >= max(estimate(one), estimate(other))
    assert both <= estimate(one) + estimate(other) <= both + 1
    assert (estimate(one) == 0) == (one == "")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a", 1), ("word" * 100, 100), ("多" * 100, 100), ("я" * 160, 100), ("😀", 2)],
)
def test_estimate_by_script(text: str, tokens: int) -> None:
    """English is 4 characters to a token, Chinese 1, Cyrillic 1.6."""
    assert estimate(text) == tokens


def test_lone_surrogates_are_counted() -> None:
    """Text that cannot be encoded costs what text of its size costs."""
    assert estimate("\ud800" * 8) == estimate("多" * 8)


def test_message_with_parts() -> None:
    """Calls and thinking count in their printed form; nothing costs nothing."""
    calls = [{"id": "c", "function": {"name": "f"}}]

    assert estimate_message("", None, [], "") == ROW_TOKENS
    assert estimate_message("hi", calls) == ROW_TOKENS + estimate("hi") + estimate(repr(calls))


def test_record_of_any_form() -> None:
    """Blocks count by their text, media by the piece, and empty rows by their frame."""
    blocks = Record("user", [{"type": "text", "text": "hello"}, "x", {"text": 5}], media=[1, 2])

    assert estimate_record(Record("assistant", None)) == ROW_TOKENS
    assert estimate_record(blocks) == ROW_TOKENS + estimate("hello") + 2 * MEDIA_TOKENS
