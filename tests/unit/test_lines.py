"""A line of the log: what is written is what is read, whatever is in it."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions import lines
from sessions.lines import LineError, Piece, decode, decode_all, encode, parse, pieces, seq_of
from sessions.lines import to_record as read
from sessions.record import KNOWN_FIELDS, NoteKind, Outcome, Record, closing, note, user

# Two lone surrogates side by side are one character as soon as they are JSON.
TEXT = st.text(st.characters(exclude_categories=["Cs"])) | st.builds(
    lambda a, b: a + "\ud800" + b,
    st.text(st.characters(exclude_categories=["Cs"])),
    st.text(st.characters(exclude_categories=["Cs"])),
)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)
FOREIGN = st.dictionaries(TEXT.filter(lambda name: name not in KNOWN_FIELDS), JSON, max_size=3)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


RECORDS = st.builds(
    Record,
    st.sampled_from(["user", "assistant", "tool", "system"]) | WORDS,
    maybe(TEXT | st.lists(JSON, max_size=3)),
    timestamp=TEXT,
    seq=st.integers(0, 10**70),
    id=maybe(TEXT),
    sender=maybe(TEXT | OBJECTS),
    media=maybe(st.lists(JSON, max_size=2)),
    replaces=maybe(st.integers()),
    turn=maybe(TEXT),
    outcome=maybe(st.sampled_from([outcome.value for outcome in Outcome])),
    settles=maybe(st.dictionaries(st.integers(0, 10**12), WORDS, max_size=3)),
    usage=maybe(OBJECTS),
    latency_ms=maybe(st.integers()),
    conversation=maybe(st.integers()),
    tool_calls=maybe(st.lists(JSON, max_size=2)),
    tool_call_id=maybe(TEXT),
    name=maybe(TEXT),
    reasoning_content=maybe(TEXT),
    thinking_blocks=maybe(st.lists(JSON, max_size=2)),
    command=st.booleans(),
    channel_delivery=st.booleans(),
    note=maybe(OBJECTS),
    extra=st.none() | FOREIGN.filter(bool),
)


def back(line: bytes) -> Record:
    """As every reader of the log does: fast, else leniently."""
    try:
        return decode(line)
    except lines.UNREADABLE_ERRORS:
        return read(parse(line))


@given(RECORDS)
def test_round_trip(record: Record) -> None:
    """Any record comes back as it was, foreign fields and lone surrogates too."""
    line = encode([record])

    assert back(line) == record
    assert line.count(b"\n") == 1
    assert line.endswith(b"}\n")


@given(st.lists(RECORDS, max_size=5))
def test_a_batch_is_its_lines(records: list[Record]) -> None:
    """A batch in one write is the same bytes as its records one by one."""
    assert encode(records) == b"".join(encode([record]) for record in records)


@given(RECORDS)
def test_peers_can_read_a_line(record: Record) -> None:
    """Every line is JSON for the standard library and has the fields older readers expect."""
    value = json.loads(encode([record]))

    assert {"role", "content"} <= value.keys()
    assert "_extra" not in value
    assert "_type" not in value or "_type" in (record.extra or {})


@given(RECORDS)
def test_plain_is_the_object_on_the_line(record: Record) -> None:
    """`plain` is what is written, so that exports and the log agree."""
    assert json.loads(json.dumps(lines.plain(record))) == json.loads(encode([record]))


def test_many_lines_at_once() -> None:
    """Reading a block of lines gives the records of its lines."""
    records = [
        user("多\n", seq=1),
        closing("", {1: "answered"}, seq=2),
        note(NoteKind.EDITED, seq=1),
    ]

    assert decode_all(encode(records)) == records


def test_fields_are_written_in_order() -> None:
    """A line begins with role and content, and leaves out what is not set."""
    assert encode([user("hi", id="m1", seq=3, timestamp="t")]) == (
        b'{"role":"user","content":"hi","timestamp":"t","seq":3,"id":"m1"}\n'
    )
    assert encode([Record("assistant", None)]) == b'{"role":"assistant","content":null}\n'


def test_form_of_a_note() -> None:
    """A note is an empty command row of the system, which peers keep and never show."""
    row = msgspec.structs.replace(note(NoteKind.DELIVERED, seq=7), seq=8, timestamp="t")

    assert encode([row]) == (
        b'{"role":"system","content":"","timestamp":"t","seq":8,"_command":true,'
        b'"note":{"kind":"delivered","seq":7}}\n'
    )
    assert row.is_note
    assert not row.is_reply


@pytest.mark.parametrize("kind", list(NoteKind))
def test_every_kind_of_note_is_a_message_for_a_peer(kind: NoteKind) -> None:
    """A peer takes a line without `_type` as a message; a command row is not shown to a model."""
    value = json.loads(encode([note(kind, seq=1)]))

    assert value["role"] == "system"
    assert value["content"] == ""
    assert value["_command"] is True
    assert "_type" not in value


def test_form_of_a_closing_record() -> None:
    """What a record settles is an object from number to outcome."""
    row = closing("done", {3: Outcome.ANSWERED, 4: Outcome.MERGED}, turn="t1", seq=5)

    assert encode([row]) == (
        b'{"role":"assistant","content":"done","seq":5,"turn":"t1","outcome":"answered",'
        b'"settles":{"3":"answered","4":"merged"}}\n'
    )


# -- foreign lines ----------------------------------------------------------------------------

WRONG = {
    "content": 5,
    "timestamp": 17.5,
    "id": 12,
    "media": "x",
    "settles": {"x": "answered"},
    "usage": [1],
    "latency_ms": 1.5,
    "tool_calls": {"id": 1},
    "_command": "yes",
    "note": "text",
    "turn": ["t"],
    "outcome": {},
    "_extra": {"role": "evil", "seq": 99},
}
LONE = {"outcome": "\ud800", "settles": {"1": "\ud800"}}


@pytest.mark.parametrize(("name", "odd"), [*WRONG.items(), *LONE.items()])
def test_value_that_does_not_fit_a_field_of_ours(name: str, odd: object) -> None:
    """It costs that field only, and the value stays on the line."""
    value = {"role": "user", "content": "x", "seq": 4, "sender": "ann", name: odd}

    record = read(value)

    assert (record.role, record.seq, record.sender) == ("user", 4, "ann")
    assert odd in (record.extra or {}).values() or lines.plain(record)[name] == odd
    assert back(encode([record])) == record


@pytest.mark.parametrize("name", ["seq", "role", "timestamp"])
def test_wrong_value_never_stands_in_for_ours(name: str) -> None:
    """Number, role and time on a line are ours; a foreign value is kept under another name."""
    record = read({"role": "user", "content": "x", name: ["odd"]})
    mended = msgspec.structs.replace(record, role="user", seq=3, timestamp="t")

    value = json.loads(encode([mended]))

    assert (value["role"], value["seq"], value["timestamp"]) == ("user", 3, "t")
    assert value[f"foreign_{name}"] == ["odd"]


def test_hidden_fields_of_ours() -> None:
    """The name we keep foreign fields under is foreign itself on a line."""
    line = b'{"role":"user","content":"x","seq":1,"_extra":{"role":"admin","seq":9}}\n'

    with pytest.raises(msgspec.ValidationError):
        decode(line)
    assert json.loads(encode([back(line)])) == json.loads(line)


def test_role_that_is_no_text() -> None:
    """A role that cannot be written is kept as foreign, and the row with it."""
    record = read({"role": "\ud800", "content": "x", "seq": 1})

    assert (record.content, record.seq) == ("x", 1)
    assert "\ud800" in (record.role, (record.extra or {}).get("foreign_role"))


def test_missing_role_and_content() -> None:
    """An object without them is a record with empty ones."""
    record = read({"x": 1})

    assert (record.role, record.content, record.extra) == ("", "", {"x": 1})


def test_values_json_does_not_know() -> None:
    """NaN, infinity and 70-digit integers are read; all but NaN and infinity are written."""
    line = b'{"role":"user","content":"x","a":NaN,"b":-Infinity,"c":%s}\n' % (b"9" * 70)

    record = back(line)

    extra = record.extra or {}
    assert math.isnan(extra["a"])
    assert (extra["b"], extra["c"]) == (-math.inf, int("9" * 70))
    assert json.loads(lines.encode_foreign(record))["b"] == -math.inf
    assert json.loads(encode([record]))["c"] == int("9" * 70)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"{",
        b"[]",
        b"3",
        b'"x"',
        b"null",
        b"{}{}",
        b'{"a":1}x',
        b'{"a":"\xff"}',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a":%s}' % (b"9" * 5_000),
    ],
)
def test_no_object(line: bytes) -> None:
    """What is not exactly one object is refused, and has no number."""
    with pytest.raises(LineError):
        parse(line)
    assert seq_of(line) == 0


@pytest.mark.parametrize(
    ("line", "seq"),
    [
        (b'{"role":"user","content":"x","seq":7}', 7),
        (b'{"seq": 7, "role": "user"}\r', 7),
        (b'{"role":"user"}', 0),
        (b'{"seq":"7"}', 0),
        (b'{"seq":7.0}', 0),
        (b'{"seq":true}', 0),
        (b'{"seq":null}', 0),
        (b'{"note":{"seq":7}}', 0),
        (b'{"x":NaN,"seq":7}', 7),
        (b'{"x":"\\ud800","seq":7}', 7),
        (b'{"seq":%s}' % (b"7" * 70), int("7" * 70)),
    ],
)
def test_number_of_a_line(line: bytes, seq: int) -> None:
    """The number is read without the rest of the row."""
    assert seq_of(line) == seq


# -- pieces -----------------------------------------------------------------------------------

ROW = encode([user("a", seq=1)])[:-1]
OTHER = encode([user("é😀", seq=2)])[:-1]


@pytest.mark.parametrize("between", [b"", b" ", b",", b"\0\0", b" ,\t\r"])
def test_two_objects_on_a_line(between: bytes) -> None:
    """They are taken apart, with the place of each."""
    line = ROW + between + OTHER

    found = pieces(line)

    assert [line[piece.start : piece.end] for piece in found] == [ROW, OTHER]
    assert [piece.value for piece in found] == [json.loads(ROW), json.loads(OTHER)]
    assert not any(piece.mended for piece in found)


def test_fragments_around_objects() -> None:
    """Bytes that are no object are pieces of their own."""
    line = OTHER[:-9] + ROW + b"\xff#" + OTHER + b"}"

    found = pieces(line)

    assert [line[piece.start : piece.end] for piece in found] == [
        OTHER[:-9],
        ROW,
        b"\xff#",
        OTHER,
        b"}",
    ]
    assert [piece.value is None for piece in found] == [True, False, True, False, True]


def test_objects_inside_a_damaged_line() -> None:
    """Among damage only a row or metadata counts: what a row contains is not a row."""
    line = b'{"role":"user","content":[{"role":"user"},{"role":"x","text":"y"}]'

    assert pieces(line) == [Piece(0, len(line))]
    assert pieces(b'#{"role":"us er","seq":1}') == [Piece(0, 25)]
    assert pieces(b'#{"role":"user","seq":"1"}') == [Piece(0, 26)]


def test_unreadable_characters() -> None:
    """A few of them are replaced; more of them are a hole, and a hole is no text."""
    few, hole = ROW.replace(b'"a"', b'"a\xff\0b"'), ROW.replace(b'"a"', b'"a%sb"' % bytes(99))

    [mended] = pieces(few)
    [lost] = pieces(hole)

    assert mended.mended
    assert (mended.value or {})["content"] == "a\ufffd\ufffdb"
    assert lost == Piece(0, len(hole))


@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from([ROW, OTHER, b"#", b"\0", b"{", b"\xff"]), max_size=6).map(b"".join)
)
def test_pieces_cover_the_line(line: bytes) -> None:
    """Pieces are in order, do not overlap, and leave out only blanks and commas."""
    found = pieces(line)

    at = 0
    for piece in found:
        assert at <= piece.start < piece.end <= len(line)
        assert not line[at : piece.start].strip(b" \t\r\0,")
        at = piece.end
    assert not line[at:].strip(b" \t\r\0,")
