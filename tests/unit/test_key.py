"""Keys: parts, text and file name are three forms of one thing."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessions.errors import InvalidKey
from sessions.key import MAX_CHANNEL_BYTES, MAX_CHAT_BYTES, SessionKey

NASTY = [":", "/", "%", "#", "..", ".", "~", "\0", "\n", "\x7f", "\x85", " ", "\\", "%2F", "é", "İ"]
NASTY += ["e\u0301", "😀", "\u202e", "\ufeff", "\uffff", "con", "A", "a", "#1", "\u2028"]


def fits(limit: int) -> st.SearchStrategy[str]:
    plain = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=limit)
    mixed = st.lists(st.sampled_from(NASTY), min_size=1, max_size=60).map("".join)
    return (plain | mixed).filter(lambda text: len(text.encode()) <= limit)


CHATS = fits(MAX_CHAT_BYTES)
CHANNELS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters=":%/#"),
    min_size=1,
    max_size=MAX_CHANNEL_BYTES,
).filter(lambda text: len(text.encode()) <= MAX_CHANNEL_BYTES)
KEYS = st.builds(SessionKey, CHANNELS, CHATS)


@given(CHANNELS, CHATS)
@example("slack", "..")
@example("slack", "~")
@example("slack", ".hidden")
@example("slack", "trailing ")
@example("slack", "\0")
@example("slack", "a:b:c")
@example("..", "..")
def test_text_is_lossless(channel: str, chat_id: str) -> None:
    """A key written as text and read again is the same key; the text is one path segment."""
    text = str(SessionKey(channel, chat_id))

    key = SessionKey.parse(text)
    assert (key.channel, key.chat_id, key.conversation) == (channel, chat_id, None)
    assert not set(text) & {"/", "#", "\n", "\0", "\x7f", "\x85"}


@given(KEYS, st.integers(1, 999_999_999))
def test_ended_conversation(key: SessionKey, number: int) -> None:
    """`key#n` names conversation n and no other chat."""
    ended = SessionKey(key.channel, key.chat_id, number)

    assert SessionKey.parse(f"{key}#{number}") == ended
    assert str(ended) == f"{key}#{number}"
    assert ended.chat == key
    assert key.chat is key
    assert (ended.directory, ended.stem, ended.hashed_stem) == (
        key.directory,
        key.stem,
        key.hashed_stem,
    )


@given(KEYS, KEYS)
@example(SessionKey("a", "b%2F"), SessionKey("a", "b/"))
@example(SessionKey("a", "b#1"), SessionKey("a", "b%231"))
@example(SessionKey("a", ".x"), SessionKey("a", "%2Ex"))
@example(SessionKey("a", "é"), SessionKey("a", "e\u0301"))
@example(SessionKey("a", "x" * 400), SessionKey("a", "x" * 401))
def test_no_two_keys_share_a_name(one: SessionKey, other: SessionKey) -> None:
    """Different keys have different texts and different files."""
    same = one == other

    assert (str(one) == str(other)) == same
    assert ((one.directory, one.stem) == (other.directory, other.stem)) == same
    assert ((one.directory, one.hashed_stem) == (other.directory, other.hashed_stem)) == same


@given(st.text("aAbB", min_size=1, max_size=6), st.text("aAbB", min_size=1, max_size=6))
def test_keys_that_differ_in_case(one: str, other: str) -> None:
    """The hashed name tells keys apart even where a file system folds case."""
    first, second = SessionKey("a", one), SessionKey("a", other)

    assert (first.hashed_stem.lower() == second.hashed_stem.lower()) == (one == other)
    assert first.stem.lower() != second.hashed_stem.lower()


@given(KEYS)
@example(SessionKey("a" * 64, "x" * 512))
@example(SessionKey("é" * 32, "é" * 256))
@example(SessionKey("\u07ff" * 32, "😀" * 128))
def test_file_names_are_safe(key: SessionKey) -> None:
    """Names are short ASCII, stay in their directory and look the same in every normal form."""
    for name in (key.directory, f"{key.stem}.jsonl", f"{key.hashed_stem}.jsonl"):
        assert 0 < len(os.fsencode(name)) <= 255
        assert name.isascii()
        assert not name.startswith(".")
        assert not set(name) & set('/\\:*?"<>|\0 #')
        assert unicodedata.normalize("NFKD", name) == name
    root = Path("/data/sessions")
    path = Path(os.path.normpath(root / key.directory / f"{key.stem}.jsonl"))
    assert path.parent.parent == root


@given(KEYS)
def test_file_name_is_lossless_unless_shortened(key: SessionKey) -> None:
    """A file tells its key by its name, unless the name had to be shortened."""
    found = SessionKey.from_file(key.directory, key.stem)

    assert found == (None if "~" in key.stem else key)
    assert SessionKey.from_file(key.directory, key.hashed_stem) is None


@given(st.text(max_size=40), st.text(max_size=40))
@example("slack", "a%2f")
@example("slack", "%2E%2E")
@example("slack", "%41")
@example("slack", ".x")
@example("slack", "%ff")
@example("slack", "not-utf8-\udcff")
@example("\udcff", "x")
@example("slack", "%")
@example("slack", "")
@example("a:b", "c")
def test_only_our_own_names_are_keys(directory: str, stem: str) -> None:
    """A file name is a key only in the one form we would give it."""
    key = SessionKey.from_file(directory, stem)

    assert key is None or (key.directory, key.stem) == (directory, stem)


@given(st.text(max_size=80) | st.lists(st.sampled_from(NASTY), max_size=9).map("".join))
def test_parsing_any_text(text: str) -> None:
    """Any text is a key or is refused, and what is a key says so again."""
    try:
        key = SessionKey.parse(text)
    except InvalidKey:
        return

    assert SessionKey.parse(str(key)) == key


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "channel:chat_id"),
        ("slack", "channel:chat_id"),
        (":x", "a channel is"),
        ("slack:", "empty"),
        ("slack:#1", "empty"),
        ("sl%61ck:x", "a channel is"),
        ("a/b:x", "a channel is"),
        ("a\nb:x", "a channel is"),
        ("slack:%", "two hexadecimal digits"),
        ("slack:%2", "two hexadecimal digits"),
        ("slack:%zz", "two hexadecimal digits"),
        ("slack:a%+1b", "two hexadecimal digits"),
        ("slack:%ff", "not UTF-8"),
        ("slack:%ED%A0%80", "not UTF-8"),
        ("slack:\ud800", "not valid Unicode"),
        ("\ud800:x", "not valid Unicode"),
        ("slack:x#", "number of a conversation"),
        ("slack:x#0", "number of a conversation"),
        ("slack:x#01", "number of a conversation"),
        ("slack:x#-1", "number of a conversation"),
        ("slack:x#1#2", "number of a conversation"),
        ("slack:x#١", "number of a conversation"),
        ("slack:x#1\n", "number of a conversation"),
        ("slack:x#9999999999", "number of a conversation"),
        ("slack:" + "x" * 513, "513 bytes"),
        ("slack:" + "é" * 257, "514 bytes"),
        ("é" * 33 + ":x", "66 bytes"),
    ],
)
def test_texts_that_are_no_keys(text: str, reason: str) -> None:
    """Each is refused with what is wrong with it, in one short line."""
    with pytest.raises(InvalidKey, match=reason) as caught:
        SessionKey.parse(text)

    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_limits() -> None:
    """The limits are in bytes, and the largest key fits."""
    key = SessionKey("é" * 32, "é" * 256)

    assert SessionKey.parse(str(key)) == key
    with pytest.raises(InvalidKey):
        SessionKey("x" * 65, "x")
    with pytest.raises(InvalidKey):
        SessionKey("x", "x", 0)


@pytest.mark.parametrize("text", ["slack:a/b", "slack:a\x01b", "slack:a%62"])
def test_lenient_texts_mean_the_same_key(text: str) -> None:
    """What need not be encoded may be, and the other way round; the text of the key is one."""
    key = SessionKey.parse(text)

    assert SessionKey.parse(str(key)) == key
    assert str(SessionKey.parse(str(key))) == str(key)


def test_keys_are_ordered_and_hashable() -> None:
    """Lists of keys sort, and equal keys are one in a set."""
    keys = [SessionKey("b", "1"), SessionKey("a", "2"), SessionKey("a", "1")]

    assert [str(key) for key in sorted(keys)] == ["a:1", "a:2", "b:1"]
    assert len({SessionKey("a", "1"), SessionKey("a", "1")}) == 1
