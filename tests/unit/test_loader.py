"""A log file cut, flipped, torn and shuffled in every way: what is not hit stays as it was."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessions import lines, numbering
from sessions.key import SessionKey
from sessions.loader import Loaded, load
from sessions.record import MAX_SEQ, NoteKind, Outcome, Record, closing, note, user
from sessions.session import Offset, Session, read_state

KEY = SessionKey("websocket", "tëst")
TIME = "2026-03-01T12:00:00.000000Z"


# -- files as the store writes them -----------------------------------------------------------


def numbered(*drafts: Record, first: int = 1) -> list[Record]:
    return [
        msgspec.structs.replace(row, seq=seq, timestamp=TIME)
        for seq, row in enumerate(drafts, first)
    ]


def answer(text: str, *settles: int, **fields: Any) -> Record:
    return closing(text, dict.fromkeys(settles, Outcome.ANSWERED.value), **fields)


def metadata_line(rows: Sequence[Record], offset: int = 0, **facts: Any) -> bytes:
    session = Session(KEY)
    session.created_at = TIME
    session.restart(rows)
    state = msgspec.structs.replace(session.state, log="0123456789abcdef", owner="ann")
    state = msgspec.structs.replace(state, consolidated=Offset(offset))
    return session.metadata_line(facts, state, rows, TIME)[0]


def conversation() -> bytes:
    """Two turns, a tool call, notes, a waiting message, and an offset that was moved."""
    call = {"id": "c1", "type": "function", "function": {"name": "get", "arguments": '{"a":1}'}}
    rows = numbered(
        user("hello", id="m1", sender="ann"),
        answer("hi", 1, turn="t1", usage={"input": 3}),
        user('naïve "quotes" \\ 😀', id="m2"),
        Record("assistant", None, turn="t2", tool_calls=[call]),
        Record("tool", "42", turn="t2", tool_call_id="c1", name="get"),
        user("merged", id="m3"),
        answer("多", 3, 6, turn="t2", latency_ms=12),
        note(NoteKind.DELIVERED, seq=7),
        user("waiting", id="m4"),
    )
    moved = metadata_line(rows[:7], 2, title="Greetings")
    return b"".join(
        [
            metadata_line(()),
            lines.encode(rows[:2]),
            metadata_line(rows[:2], 0, title="Hi"),
            lines.encode(rows[2:7]),
            moved,
            moved,
            lines.encode(rows[7:]),
        ]
    )


def rewritten() -> bytes:
    """A file the cap has cut: numbers begin late, metadata first and last."""
    rows = numbered(
        user("a", id="x1"),
        answer("b", 41),
        user("c", id="x2"),
        answer("", 43, outcome=Outcome.STOPPED.value),
        first=41,
    )
    line = metadata_line(rows, 42)
    return line + lines.encode(rows) + line


FILES = [conversation(), rewritten()]


# -- what must hold for any damage ------------------------------------------------------------


class Log:
    """A file, its lines and what they say before anything happens to it."""

    def __init__(self, data: bytes) -> None:
        self.data, self.found = data, load(data)
        ends = [at + 1 for at, byte in enumerate(data) if byte == 10]
        self.spans = list(itertools.pairwise([0, *ends]))
        by_seq = {row.seq: row for row in self.found.records}
        self.records = [by_seq.get(lines.seq_of(data[a:b])) for a, b in self.spans]
        assert self.found.intact
        assert not self.found.damage

    def hit(self, start: int, end: int) -> set[int]:
        """The lines these bytes belong to; a newline belongs to both its neighbours."""
        return {
            index
            for index, (first, last) in enumerate(self.spans)
            if first <= end and start <= last - 1 and (start < last and end > first - 1)
        }


def messages(found: Loaded) -> list[Record]:
    """The rows, without those that stand where a damaged one was."""
    return [row for row in found.records if row.note != {"kind": "damaged"}]


def waiting(records: Sequence[Record]) -> set[int]:
    settled = {seq for row in records for seq in row.settles or ()}
    users = {row.seq for row in records if row.role == "user" and row.outcome is None}
    return users - settled


def written(found: Loaded) -> list[str]:
    """The records in a form in which NaN equals NaN."""
    return [json.dumps(lines.plain(row), sort_keys=True) for row in found.records]


def repaired(data: bytes, found: Loaded) -> bytes:
    """What the store leaves in place of a file like this."""
    if found.rows is None:
        return data[: found.cut] + b"\n" * found.missing_newline
    session = Session(KEY)
    inner = (found.metadata or {}).get("metadata")
    state = read_state(inner.get("parley") if isinstance(inner, dict) else None)
    session.state = msgspec.structs.replace(
        state, log=state.log or "1", consolidated=Offset(found.offset_seq)
    )
    session.restart(found.records)
    line, _ = session.metadata_line({}, session.state, found.records, TIME)
    return b"".join([line, *found.rows, line] if found.rows else [line])


def check_sound(data: bytes) -> Loaded:
    """True of any bytes whatever: numbers increase, nothing vanishes, a repair is final."""
    found = load(data)
    numbers = [row.seq for row in found.records]
    assert all(a < b for a, b in itertools.pairwise([0, *numbers]))
    assert all(row.role for row in found.records)
    check_damage(data, found)
    again = load(repaired(data, found))
    assert again.intact
    assert not again.damage
    assert written(again) == written(found)
    assert again.offset_seq == found.offset_seq
    return found


def check_damage(data: bytes, found: Loaded) -> None:
    """Every byte is blank, or in a line that was read, or handed back."""
    rest = bytearray(data.removeprefix(b"\xef\xbb\xbf").rjust(len(data)))
    for damage in found.damage:
        end = damage.offset + len(damage.data)
        assert data[damage.offset : end] == damage.data
        rest[damage.offset : end] = b" " * len(damage.data)
    for line in bytes(rest).split(b"\n"):
        text = line.strip(b" \t\r\0,")
        assert not text or text[:1] + text[-1:] == b"{}", text


def check_contained(log: Log, data: bytes, hit: set[int]) -> Loaded:
    """Lines that were not hit are read as before, and mean the same."""
    found = check_sound(data)
    safe = [row for i, row in enumerate(log.records) if row is not None and i not in hit]
    touched = {row.seq for i, row in enumerate(log.records) if row is not None and i in hit}
    assert [row for row in found.records if row in safe] == safe
    assert len(messages(found)) <= len(messages(log.found))
    assert found.offset_seq == log.found.offset_seq
    settled_by_hit = {seq for i in hit if (row := log.records[i]) for seq in row.settles or ()}
    assert waiting(found.records) & {row.seq for row in safe} <= (
        waiting(log.found.records) | settled_by_hit
    )
    assert waiting(log.found.records) - touched <= waiting(found.records)
    return found


LOGS = [Log(data) for data in FILES]


@pytest.fixture(params=LOGS, ids=["conversation", "rewritten"])
def log(request: pytest.FixtureRequest) -> Log:
    found: Log = request.param
    return found


# -- one hit ----------------------------------------------------------------------------------

HITS: dict[str, Callable[[int], int]] = {
    "lowest bit": lambda byte: byte ^ 0x01,
    "letter case": lambda byte: byte ^ 0x20,
    "highest bit": lambda byte: byte ^ 0x80,
    "zero": lambda _: 0,
    "newline": lambda _: 0x0A,
    "quote": lambda _: 0x22,
}


@pytest.mark.parametrize("hit", HITS.values(), ids=HITS.keys())
def test_every_byte_flipped(log: Log, hit: Callable[[int], int]) -> None:
    """A flipped byte, wherever it is, costs at most the lines it belongs to."""
    for at, byte in enumerate(log.data):
        data = log.data[:at] + bytes([hit(byte)]) + log.data[at + 1 :]

        check_contained(log, data, log.hit(at, at + 1))


@pytest.mark.parametrize("inserted", [b"", b"X", b"\n", b"0", b"\0", b'"', b"}", b"\xff"])
def test_a_byte_more_or_less_anywhere(log: Log, inserted: bytes) -> None:
    """A byte that is missing or was put in costs at most the lines it belongs to."""
    for at in range(len(log.data)):
        data = log.data[:at] + inserted + log.data[at + (not inserted) :]

        check_contained(log, data, log.hit(at, at + (not inserted)))


def test_cut_at_every_offset(log: Log) -> None:
    """Of a torn file every whole line is kept; the rest is set aside and settles nothing."""
    for at in range(len(log.data)):
        data = log.data[:at]
        whole = sum(end - (at < len(log.data)) <= at for _, end in log.spans)
        kept = [row for row in log.records[:whole] if row is not None]

        found = check_sound(data)

        assert found.records == kept
        start = log.spans[whole][0] if whole < len(log.spans) else at
        torn = data[start:]
        assert [damage.data for damage in found.damage] == ([torn] if torn else [])
        assert found.missing_newline == (bool(data) and not torn and not data.endswith(b"\n"))


def test_tail_full_of_zeros(log: Log) -> None:
    """Power loss may leave zeros where the end of the file was; whole lines before them stay."""
    for at in range(len(log.data)):
        whole = sum(end - 1 <= at for _, end in log.spans)
        kept = [row for row in log.records[:whole] if row is not None]

        found = check_sound(log.data[:at].ljust(len(log.data), b"\0"))

        assert found.records == kept


@pytest.mark.parametrize("size", [16, 64, 512])
def test_block_of_zeros(log: Log, size: int) -> None:
    """A block the disk gave back as zeros costs the lines it touches and no other."""
    for at in range(0, len(log.data) - size, 3):
        data = log.data[:at] + bytes(size) + log.data[at + size :]
        hit = log.hit(at, at + size)

        found = check_sound(data)

        safe = [row for i, row in enumerate(log.records) if row is not None and i not in hit]
        assert [row for row in found.records if row in safe] == safe
        assert len(found.records) <= len(log.found.records)


def test_page_of_zeros_or_of_another_file() -> None:
    """Whole pages go wrong on real disks, and rows are longer than pages."""
    rows = numbered(*(user("x" * size, id=str(size)) for size in range(10, 6000, 397)))
    log = Log(metadata_line(rows) + lines.encode(rows) + metadata_line(rows))
    for at in range(0, len(log.data), 4096):
        for page in (bytes(4096), random.Random(at).randbytes(4096), b"\n" * 4096):
            data = (log.data[:at] + page + log.data[at + 4096 :])[: len(log.data)]
            hit = log.hit(at, at + 4096)

            found = check_sound(data)

            safe = [row for i, row in enumerate(log.records) if row is not None and i not in hit]
            assert [row for row in found.records if row in safe] == safe


def test_two_lines_swapped(log: Log) -> None:
    """Rows that changed places go back to where their numbers belong."""
    texts = [log.data[start:end] for start, end in log.spans]
    for one, other in itertools.combinations(range(1, len(texts)), 2):
        swapped = list(texts)
        swapped[one], swapped[other] = swapped[other], swapped[one]

        found = check_sound(b"".join(swapped))

        if log.records[one] is not None and log.records[other] is not None:
            assert found.records == log.found.records
        assert not found.damage


def test_a_line_twice(log: Log) -> None:
    """A line that is there twice counts once, wherever its copy stands."""
    texts = [log.data[start:end] for start, end in log.spans]
    for line, place in itertools.product(range(len(texts)), range(1, len(texts) + 1)):
        if log.records[line] is not None:
            found = check_sound(b"".join([*texts[:place], texts[line], *texts[place:]]))

            assert found.records == log.found.records
            assert not found.damage


def test_whole_file_twice(log: Log) -> None:
    """A file copied onto its own end says what it said."""
    found = check_sound(log.data + log.data)

    assert found.records == log.found.records
    assert found.offset_seq == log.found.offset_seq
    assert not found.damage


def test_all_newlines_lost(log: Log) -> None:
    """Objects one after the other are taken apart, whatever blank is between them."""
    for blank in (b"", b" ", b"\0", b"\t\r ", b",", b"\0\0\0"):
        found = check_sound(log.data.replace(b"\n", blank))

        assert found.records == log.found.records
        assert found.offset_seq == log.found.offset_seq
        assert not found.damage


def test_line_ends_of_another_system(log: Log) -> None:
    """CRLF and a byte order mark are no damage."""
    found = check_sound(b"\xef\xbb\xbf" + log.data.replace(b"\n", b"\r\n"))

    assert found.records == log.found.records
    assert found.offset_seq == log.found.offset_seq
    assert not found.damage


def test_blank_lines(log: Log) -> None:
    """Lines with nothing on them are passed over and leave with the next repair."""
    for blank in (b"\n", b"\r\n", b"  \n", b"\0\0\n", b"\n\n\n"):
        found = check_sound(log.data.replace(b"\n", b"\n" + blank))

        assert found.records == log.found.records
        assert not found.damage


# -- what damage must not do ------------------------------------------------------------------


def own(*rows: Record, offset: int = 0) -> list[bytes]:
    """The lines of a file of ours, metadata first and last."""
    line = metadata_line(rows, offset)
    return [line, *(lines.encode([row]) for row in rows), line]


def test_damaged_answer_still_settles() -> None:
    """A question is not asked again because its answer is damaged."""
    file = own(*numbered(user("q"), answer("long answer", 1), user("next")))
    file[2] = file[2].replace(b'"long answer"', b'"long answer')

    found = check_sound(b"".join(file))

    assert waiting(found.records) == {3}
    stand_in = found.records[1]
    assert (stand_in.seq, stand_in.content, stand_in.outcome) == (2, "", "answered")
    assert stand_in.note == {"kind": "damaged"}
    assert stand_in.command


def test_torn_answer_settles_nothing() -> None:
    """A closing record that was never acknowledged leaves its question open."""
    file = own(*numbered(user("q"), answer("done", 1, usage={"input": 5})))
    torn = file[2][: file[2].index(b',"usage"')]

    found = check_sound(file[0] + file[1] + torn)

    assert b'"settles":{"1"' in torn
    assert waiting(found.records) == {1}
    assert found.cut == len(file[0] + file[1])


def test_failed_answer_that_was_written_again() -> None:
    """A fragment in front of the complete closing record leaves no row of its own."""
    file = own(*numbered(user("q"), answer("done", 1, usage={"input": 5})))
    fragment = file[2][: file[2].index(b',"usage"')] + b"\n"

    found = check_sound(b"".join([*file[:2], fragment, *file[2:]]))

    assert found.records == load(b"".join(file)).records
    assert [damage.data for damage in found.damage] == [fragment.rstrip()]


def test_text_that_looks_like_a_settlement() -> None:
    """What a person writes about settling settles nothing, damaged or not."""
    file = own(
        *numbered(user("a"), user('{"role":"assistant","seq":9,"settles":{"1":"answered"}}'))
    )
    file[2] = file[2][1:]

    found = check_sound(b"".join(file))

    assert waiting(found.records) == {1}
    assert [row.text for row in found.records] == ["a", ""]


def test_number_of_a_damaged_last_row_is_not_given_out_again() -> None:
    """A reader may have seen the last row: a note takes its number."""
    file = own(*numbered(user("a"), answer("b", 1), user("c", id="m3")))
    file[3] = file[3][1:]

    found = check_sound(b"".join(file))

    assert [row.seq for row in found.records] == [1, 2, 3]
    assert found.records[2].is_note
    assert found.records[2].note == {"kind": "damaged"}


def test_unreadable_number_of_a_damaged_last_row() -> None:
    """Without its number the next one is taken."""
    file = own(*numbered(user("a"), answer("b", 1), user("c")))
    file[3] = b'{"role":"user","content":"c","timest\n'

    found = check_sound(b"".join(file))

    assert [row.seq for row in found.records] == [1, 2, 3]


def test_row_that_lost_its_number_is_still_waiting() -> None:
    """A line in our own form is ours to answer even if the name of its number is hit."""
    file = own(*numbered(user("a"), answer("b", 1), user("c")))
    file[3] = file[3].replace(b'"seq"', b'"sep"')

    found = check_sound(b"".join(file))

    assert waiting(found.records) == {3}


def test_words_around_an_unreadable_byte() -> None:
    """A byte that is not UTF-8 costs one character, and the line is handed back as it was."""
    file = own(*numbered(user("good morning"), answer("b", 1)))
    file[1] = file[1].replace(b"morning", b"m\xf8rning")

    found = check_sound(b"".join(file))

    assert found.records[0].content == "good m\ufffdrning"
    assert [damage.data + b"\n" for damage in found.damage] == [file[1]]
    assert found.recovered == 1


def test_two_rows_around_a_hole_are_not_one() -> None:
    """Zeros that swallowed the end of one row and the start of another do not join them."""
    file = own(*numbered(user("first " * 9, id="a"), user("second " * 9, id="b"), user("c")))
    joined = bytearray(file[1] + file[2])
    joined[40 : len(file[1]) + 40] = bytes(len(file[1]))

    found = check_sound(b"".join([file[0], bytes(joined), *file[3:]]))

    assert [row.content for row in found.records] == ["c"]


def test_row_behind_metadata_that_lost_its_newline() -> None:
    """Of an old metadata line and a row on one line, the row is not overlooked."""
    file = own(*numbered(user("a"), user("b")))

    found = check_sound(b"".join(file).replace(file[0], file[0][:-1] + b"#", 1))

    assert [row.content for row in found.records] == ["a", "b"]
    assert [damage.data for damage in found.damage] == [b"#"]


def test_metadata_that_lost_our_state() -> None:
    """A last line without our part gives way to the one before it."""
    file = own(*numbered(user("a"), answer("b", 1)), offset=2)
    for part in (b'"parley"', b'"metadata":{', b'"log"'):
        hurt = file[-1].replace(part, part.replace(b"e", b"E").replace(b"l", b"L"), 1)

        found = load(b"".join([*file[:-1], hurt]))

        assert found.metadata == json.loads(file[0])
        assert found.offset_seq == 2


def test_every_metadata_line_damaged() -> None:
    """Rows outlive their metadata; only characters are missing from metadata that is mended."""
    file = own(*numbered(user("a"), answer("b", 1)))

    found = check_sound(b"".join([b"#", *file[:-1], file[-1].replace(b"ann", b"a\xffn")]))

    assert [row.content for row in found.records] == ["a", "b"]
    assert found.metadata is not None
    assert found.metadata["metadata"]["parley"]["owner"] == "ann"


def test_no_metadata_at_all() -> None:
    """Rows without any metadata line are read, and the offset is at the start."""
    rows = numbered(user("a"), answer("b", 1))

    found = check_sound(lines.encode(rows))

    assert found.records == rows
    assert (found.metadata, found.offset_seq, found.keys) == (None, 0, [])
    assert not found.intact


# -- numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([1, 2, 7, 4, 5], [1, 2, 3, 4, 5]),
        ([1, 2, 4, 4, 5], [1, 2, 3, 4, 5]),
        ([1, 2, 3, 3, 5], [1, 2, 3, 4, 5]),
        ([1, 2, 3, 4, 2], [1, 2, 3, 4, 5]),
        ([9, 2, 3], [1, 2, 3]),
        ([90, 42, 43], [41, 42, 43]),
        ([41, 2, 43, 44], [41, 42, 43, 44]),
        ([1, 9, 3, 9, 5], [1, 2, 3, 4, 5]),
        ([2**53, 2, 2**63, 10**70], [1, 2, 3, 4]),
        ([-5, 1, -1, 2], [3, 1, 4, 2]),
        ([1001, 5, 2003], [1001, 1002, 2003]),
    ],
)
def test_wrong_number_is_mended_by_its_neighbours(numbers: list[int], expected: list[int]) -> None:
    """A number that cannot be right is replaced by one that fits where the row stands."""
    rows = [Record("user", str(place), TIME, seq) for place, seq in enumerate(numbers)]
    line = metadata_line(())

    found = check_sound(line + lines.encode(rows) + line)

    assert {row.content: row.seq for row in found.records} == {
        str(place): seq for place, seq in enumerate(expected)
    }
    assert not found.damage


def test_first_number_is_not_taken_from_the_archive() -> None:
    """Rows in front of the live file are numbered after the archived ones."""
    [line, *rest] = own(*numbered(user("b"), user("c"), first=43))
    line = line.replace(b'"owner"', b'"archived":{"seq":40,"messages":40},"owner"')
    peers = b'{"role": "user", "content": "p"}\n' * 4

    found = check_sound(line + peers + rest[0] + rest[1] + line)

    assert [row.seq for row in found.records] == [41, 42, 43, 44, 45, 46]


@pytest.mark.parametrize("seq", ["1.0", "true", '"1"', "null", "[1]", "-0", "1e0", "0"])
def test_number_that_is_none(seq: str) -> None:
    """A row whose number is no number is kept, and numbered by its place."""
    odd = f'{{"role": "user", "content": "x", "seq": {seq}}}\n'.encode()
    file = own(*numbered(user("a"), user("c", id="m")))
    file[2] = file[2].replace(b'"seq":2', b'"seq":3')

    found = check_sound(b"".join([*file[:2], odd, *file[2:]]))

    assert [row.seq for row in found.records] == [1, 2, 3]
    assert [row.text for row in found.records] == ["a", "x", "c"]
    assert waiting(found.records) == {1, 3}


def brute_force(numbers: list[int]) -> int:
    valid = [number for number in numbers if 0 < number < MAX_SEQ]
    best = 0
    for size in range(len(valid) + 1):
        chains = itertools.combinations(valid, size)
        if any(all(a < b for a, b in itertools.pairwise(chain)) for chain in chains):
            best = size
    return best


@given(st.lists(st.integers(-1, 9) | st.just(MAX_SEQ), max_size=9))
def test_longest_increasing_is_the_longest(numbers: list[int]) -> None:
    """No larger set of rows could have been believed."""
    chain = numbering.longest_increasing(numbers)

    chosen = [numbers[index] for index in chain]
    assert chain == sorted(set(chain))
    assert all(a < b for a, b in itertools.pairwise([0, *chosen]))
    assert len(chain) == brute_force(numbers)


class Counted(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) > int(other)


@pytest.mark.parametrize("shape", ["falling", "rising", "saw", "random"])
def test_order_of_many_rows_is_found_quickly(shape: str) -> None:
    """The work grows like n log n, in whatever order the numbers are."""
    count = 20_000
    shapes: dict[str, list[int]] = {
        "falling": list(range(count, 0, -1)),
        "rising": list(range(1, count + 1)),
        "saw": [place % 100 + place // 2 + 1 for place in range(count)],
        "random": random.Random(1).choices(range(1, count), k=count),
    }
    Counted.compared = 0

    numbering.longest_increasing([Counted(number) for number in shapes[shape]])

    assert Counted.compared < count * 50


# -- rows a peer wrote ------------------------------------------------------------------------


def as_peer(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def saved_by_peer(data: bytes, *more: dict[str, Any], **changes: Any) -> bytes:
    """What a peer leaves of a file of ours: it keeps every field, in its own form."""
    found = load(data)
    assert found.metadata is not None
    rows = [lines.plain(row) for row in found.records]
    head = {**found.metadata, **changes}
    return b"".join(as_peer(value) for value in [head, *rows, *more])


PEER_ROWS: list[dict[str, Any]] = [
    {"role": "user", "content": "from the peer", "timestamp": "2026-03-02T10:00:00.123456"},
    {"role": "assistant", "content": "answered there", "tools_used": ["a"], "x": float("nan")},
]


def test_rows_a_peer_appended(log: Log) -> None:
    """They are adopted after ours, keep their fields, and are never waiting."""
    found = check_sound(log.data + b"".join(map(as_peer, PEER_ROWS)))

    last = log.found.records[-1].seq
    assert found.records[:-2] == log.found.records
    assert [row.seq for row in found.records[-2:]] == [last + 1, last + 2]
    assert waiting(found.records) == waiting(log.found.records)
    assert (found.records[-1].extra or {})["tools_used"] == ["a"]
    assert str((found.records[-1].extra or {})["x"]) == "nan"
    assert not found.damage


def test_rows_a_peer_put_in_between(log: Log) -> None:
    """They are adopted wherever they stand: no number of ours changes, nothing is lost."""
    for index in range(1, len(log.spans)):
        at = log.spans[index][0]
        data = log.data[:at] + b"".join(map(as_peer, PEER_ROWS)) + log.data[at:]

        found = check_sound(data)

        texts = [row.text for row in found.records]
        assert [row for row in found.records if row in log.found.records] == log.found.records
        assert {"from the peer", "answered there"} < set(texts)
        assert waiting(found.records) == waiting(log.found.records)
        assert found.offset_seq == log.found.offset_seq
        assert not found.damage


def test_file_saved_by_a_peer(log: Log) -> None:
    """Our numbers, our state and the offset come back from a peer that knows none of them."""
    found = check_sound(saved_by_peer(log.data, *PEER_ROWS))

    assert found.records[:-2] == log.found.records
    assert found.metadata == log.found.metadata
    assert found.offset_seq == log.found.offset_seq
    assert waiting(found.records) == waiting(log.found.records)


@pytest.mark.parametrize("name", ["last_consolidated", "last_archived"])
@pytest.mark.parametrize(("count", "seq"), [(0, 0), (1, 1), (3, 3), (9, 9), (-1, 2), (99, 2)])
def test_offset_moved_by_a_peer(name: str, count: int, seq: int) -> None:
    """The peer's count wins over our mark, unless it cannot be true."""
    data = saved_by_peer(conversation(), **{name: count})

    found = check_sound(data)

    assert found.offset_seq == seq


@pytest.mark.parametrize("count", [None, "3", 3.0, True, [3]])
def test_count_that_is_no_count(count: object) -> None:
    """Then our own mark is the offset."""
    found = check_sound(saved_by_peer(conversation(), last_consolidated=count))

    assert found.offset_seq == 2


def test_count_of_a_peer_before_rows_it_put_in() -> None:
    """Rows that had to move to the end are not what the offset points at."""
    rows = numbered(*(user(str(number)) for number in range(1, 7)))
    values = [lines.plain(row) for row in rows]
    head = json.loads(metadata_line(rows)) | {"last_consolidated": 4}
    file = [head, *values[:2], PEER_ROWS[0], *values[2:]]

    found = check_sound(b"".join(map(as_peer, file)))

    assert [row.seq for row in found.records] == [1, 2, 3, 4, 5, 6, 7]
    assert found.offset_seq == 3


def test_peers_count_and_damaged_lines() -> None:
    """A damaged line counts as the message it was, one that is torn in two counts once."""
    values = [lines.plain(row) for row in numbered(*(user(str(n) * 40) for n in range(9)))]
    head = json.loads(metadata_line(())) | {"last_consolidated": 5}
    texts = [as_peer(value) for value in [head, *values]]
    for line, place in itertools.product([2, 3, 4], [1, 30, 60]):
        whole = texts[line]
        for hurt in (whole[:place] + b"\n" + whole[place:], b"#" + whole[1:], whole[:-2] + b"\n"):
            found = check_sound(b"".join([*texts[:line], hurt, *texts[line + 1 :]]))

            assert found.offset_seq == 5, hurt


def test_copies_of_the_offset() -> None:
    """A last line whose offset contradicts the rows gives way to the line before it."""
    file = own(*numbered(*(user(str(n)) for n in range(30))), offset=12)
    for hurt, mended in [
        (b'"seq":12,"index":12', b'"seq":13,"index":12'),
        (b'"seq":12,"index":12', b'"seq":12,"index":13'),
        (b'"last_consolidated":12', b'"last_consolidated":2'),
        (b'"last_consolidated":12', b'"last_consolidatee":12'),
        (b'"consolidated"', b'"consolidatee"'),
    ]:
        data = b"".join([*file[:-1], file[-1].replace(hurt, mended)])

        assert load(data).offset_seq == 12
        assert load(data + file[1].replace(b'"seq":1,', b'"seq":31,')).offset_seq == 12


def test_offset_beyond_the_rows() -> None:
    """A mark above every row would hide rows to come: it is brought down to the last one."""
    [line, *rows, _] = own(*numbered(user("a"), user("b")), offset=2)
    line = line.replace(b'"seq":2,"index":2', b'"seq":92,"index":2')

    found = check_sound(b"".join([line, *rows]))

    assert found.offset_seq == 2


def test_a_peers_file() -> None:
    """A peer's rows are numbered and never pending; lines that are no messages are set aside."""
    values: list[dict[str, Any]] = [
        {"_type": "metadata", "created_at": TIME, "metadata": {}, "last_consolidated": 1},
        {"_type": "provider_state", "state": {"x": 1}},
        {"role": "user", "content": "a"},
        {"state": 2, "_type": "provider_state"},
        {"role": "assistant", "content": "b"},
    ]

    found = load(b"".join(map(as_peer, values)))

    assert [(row.seq, row.role) for row in found.records] == [(1, "user"), (2, "assistant")]
    assert found.offset_seq == 1
    assert [json.loads(damage.data) for damage in found.damage] == [values[1], values[3]]
    assert not waiting(found.records)


def test_metadata_without_its_type() -> None:
    """An object without a role that holds metadata is metadata."""
    head = json.loads(metadata_line((), title="T"))
    del head["_type"]
    rows = numbered(user("a"))

    found = check_sound(as_peer(head) + lines.encode(rows))

    assert found.metadata == head
    assert found.keys == [str(KEY)]
    assert found.records == rows


# -- anything at all --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"\n\n\r\n \n",
        bytes(5000),
        b"\0\n\0\n",
        b'[1,2]\n3\n"x"\nnull\n{}\n',
        b"\xff\xfe\x00{\n",
        b"{" * 100_000,
        b"{}",
        b'{"role":5,"seq":1}\n{"role":null}\n{"role":"","content":"x","seq":1}\n',
        b'{"role":"user","content":"a","content":"b","seq":1,"seq":2}\n',
        b'{"role":"user","content":{"a":1},"seq":1,"settles":[1],"note":"x","_extra":{"seq":7}}\n',
        b'{"_type":"metadata","metadata":{"parley":[]},"last_consolidated":{"a":1}}\n',
        b'{"_type":"metadata","metadata":{"parley":{"consolidated":{"seq":-4}}}}\n',
        b'{"_type":"metadata","last_consolidated":-4}\n{"role":"user","content":"a","seq":1}\n',
        b'{"_type":"note","role":"user","content":"x","seq":1}\n',
        b'{"role":"user","content":[NaN,-Infinity,1e999,%s],"seq":1}\n' % (b"9" * 70),
        b'{"role":"user","content":"\\ud800","seq":1}\n{"role":"user","content":"\\udc80x"}\n',
        b'{"role":"user","content":%s,"seq":1}\n' % (b"7" * 5000),
        b'{"role":"\\ud800","content":"a","seq":1,"outcome":"\\ud800","settles":{"1":"\\ud800"}}\n',
    ],
)
def test_odd_files(data: bytes) -> None:
    """No bytes make loading fail, and nothing of them is forgotten."""
    check_sound(data)


def test_foreign_values_survive_repair() -> None:
    """A row that must be written anew keeps what it held: NaN, long integers, lone surrogates."""
    line = b'{"role":"user","content":["\\ud800",NaN,%s],"x":Infinity}\n' % (b"9" * 70)

    found = check_sound(line)

    [row] = load(repaired(line, found)).records
    assert repr(row.content) == repr(["\ud800", float("nan"), int("9" * 70)])
    assert row.extra == {"x": float("inf")}


@pytest.mark.parametrize("depth", [150, 500, 850, 900, 940, 960, 980, 1000, 100_000])
def test_nesting(depth: int) -> None:
    """Nesting that no reader could take costs its line, and no other."""
    deep = b'"content":' + b"[" * depth + b"]" * depth
    file = own(*numbered(user("a"), user("b")))
    for form in (
        b'{"role":"user",%s,"seq":2}\n',
        b'{"role": "user", %s}\n',
        b'{"role":"user",%s\n',
    ):
        data = b"".join([*file[:2], form % deep, file[2].replace(b'"seq":2', b'"seq":9')])

        found = load(data)

        assert [row.content for row in found.records if row.text] == ["a", "b"]


def test_long_lines_and_many_of_them() -> None:
    """Reading takes time in proportion to the file: 5 MB in a line, 200,000 lines, joined lines."""
    row = b'{"role":"user","content":"a","seq":%d}'
    many = [row % number for number in range(1, 100_001)]
    long = row.replace(b"a", b"\xc3\xa9" * 2_500_000) % 1
    files = {
        1: [long + b"\n", long + b"#\n"],
        200_000: [b"".join(row % number + b"\n" for number in range(1, 200_001))],
        100_000: [
            b"\0".join(many),
            b"#".join(many),
            b"#\n".join(many),
            b"\n".join(many[::-1]),
            b"\n".join(many + many),
        ],
    }
    for count, datas in files.items():
        for data in datas:
            assert len(load(metadata_line(()) + data).records) == count


def test_a_line_made_to_be_slow() -> None:
    """Objects that begin and never end are given up before they cost time."""
    nested = (b'{"role":[' + b"1," * 2000) * 900
    starts = b'{"role":"x' * 200_000
    pairs = b'{"role":"user","seq":"1"}#' * 100_000
    for line in (nested, starts, pairs, b'{"role":' * 300_000):
        [damage] = load(metadata_line(()) + line + b"\n").damage

        assert damage.data == line


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    """Any bytes are a file."""
    check_sound(data)


@given(
    st.lists(
        st.sampled_from(
            [
                b"{",
                b"}",
                b'"',
                b":",
                b",",
                b"\n",
                b"\0",
                b"1",
                b'"role":"user"',
                b'"seq":',
                b'{"role":"user","content":"',
                b'"settles":{"1":"x"}',
                b'{"_type":"metadata",',
                b'"metadata":{"parley":{',
                b'"content":""',
                b"\xff",
                b" ",
            ]
        ),
        max_size=30,
    )
)
def test_random_tokens(parts: list[bytes]) -> None:
    """Fragments of our own lines in any order are a file, too."""
    check_sound(b"".join(parts))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Valid lines in any order, hit several times."""
    texts = [line + b"\n" for data in FILES for line in data.splitlines()]
    texts += [as_peer(value) for value in PEER_ROWS]
    data = bytearray(b"".join(draw(st.lists(st.sampled_from(texts), max_size=12))))
    for _ in range(draw(st.integers(0, 5))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 600)))
        kind = draw(st.sampled_from(["cut", "zeros", "noise", "copy", "newline"]))
        piece = bytes(data[start:end])
        data[start:end] = {
            "cut": b"",
            "zeros": bytes(len(piece)),
            "noise": bytes(byte ^ 0x15 for byte in piece[:3]) + piece[3:],
            "copy": piece + piece,
            "newline": piece + b"\n",
        }[kind]
    return bytes(data)


@settings(max_examples=400)
@given(mutated())
def test_random_mutations(data: bytes) -> None:
    """However lines are mixed and hit, reading is sound and a repair is final."""
    check_sound(data)
