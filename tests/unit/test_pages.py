"""Reading a page of a file gives what reading all of it would give."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions import lines, pages
from sessions.key import SessionKey
from sessions.record import Record, user
from sessions.session import Session

SIZES = [0, 30, 500, 4_000, 20_000, 33_000, 70_000, 140_000, 300_000]


def metadata_line(title: str = "") -> bytes:
    session = Session(SessionKey("websocket", "a"))
    return session.metadata_line({"title": title}, session.state, (), "")[0]


class File:
    """A log file and what is in it."""

    def __init__(self, path: Path, rows: Sequence[Record], data: bytes) -> None:
        path.write_bytes(data)
        self.rows, self.size, self.data = list(rows), len(data), data
        self.descriptor = os.open(path, os.O_RDONLY)

    def after(self, seq: int, limit: int) -> list[int]:
        return [row.seq for row in pages.after(self.descriptor, self.size, seq, limit)]

    def before(self, seq: int | None, limit: int) -> list[int]:
        return [row.seq for row in pages.before(self.descriptor, self.size, seq, limit)]

    def check(self, seq: int, limit: int) -> None:
        numbers = [row.seq for row in self.rows]
        assert self.after(seq, limit) == [n for n in numbers if n > seq][:limit]
        assert self.before(seq, limit) == [n for n in numbers if n < seq][-limit:]


Open = Callable[..., File]


@pytest.fixture
def open_file(tmp_path: Path) -> Iterator[Open]:
    opened: list[File] = []

    def make(rows: Sequence[Record], data: bytes | None = None) -> File:
        whole = metadata_line() + lines.encode(rows) if data is None else data
        opened.append(File(tmp_path / "log.jsonl", rows, whole))
        return opened[-1]

    yield make
    for file in opened:
        os.close(file.descriptor)


def random_file(seed: int, count: int, sizes: Sequence[int]) -> tuple[list[Record], bytes]:
    """Rows of all lengths, gaps between numbers, metadata lines in between."""
    chance = random.Random(seed)
    rows, parts, seq = [], [metadata_line()], chance.choice([0, 40])
    for _ in range(count):
        seq += chance.choice([1, 1, 1, 2, 1000])
        rows.append(user("x" * chance.choice(sizes), seq=seq))
        parts.append(lines.encode(rows[-1:]))
        if chance.random() < 0.2:
            parts.append(metadata_line("t" * chance.choice(sizes)))
    return rows, b"".join(parts)


@pytest.mark.parametrize("seed", range(12))
def test_every_cursor_of_a_file_with_long_rows(seed: int, open_file: Open) -> None:
    """Rows from 50 bytes to 300 KB: each cursor gives exactly the rows on its side."""
    rows, data = random_file(seed, 25, SIZES)
    file = open_file(rows, data)
    for row in rows:
        for seq in (row.seq - 1, row.seq, row.seq + 1):
            for limit in (1, 3, 100):
                file.check(seq, limit)


@pytest.mark.parametrize("seed", range(3))
def test_cursors_of_a_file_with_many_rows(seed: int, open_file: Open) -> None:
    """2,000 short rows: the places found by bisection are the right ones."""
    rows, data = random_file(seed, 2_000, SIZES[:3])
    file = open_file(rows, data)
    for row in rows[::37]:
        file.check(row.seq, 5)
        file.check(row.seq + 1, 5)
    file.check(0, 50)
    file.check(rows[-1].seq + 99, 50)


def test_the_last_rows_of_all(open_file: Open) -> None:
    """Without a cursor a page is the end of the file."""
    rows, data = random_file(7, 300, SIZES[:5])
    file = open_file(rows, data)

    assert file.before(None, 7) == [row.seq for row in rows[-7:]]
    assert file.before(None, 1_000) == [row.seq for row in rows]


def test_pages_cover_the_file(open_file: Open) -> None:
    """Going on from the last number seen gives every row once, in both directions."""
    rows, data = random_file(3, 120, SIZES[:7])
    file = open_file(rows, data)
    forwards: list[int] = []
    while page := file.after(forwards[-1] if forwards else 0, 9):
        forwards += page
    backwards: list[int] = []
    while page := file.before(backwards[0] if backwards else None, 9):
        backwards = page + backwards

    assert forwards == backwards == [row.seq for row in rows]


def test_rows_are_read_whole(open_file: Open) -> None:
    """A page has the records themselves, foreign fields and lone surrogates too."""
    rows = [
        Record("user", "a\ud800", seq=1),
        Record("assistant", None, seq=2, extra={"tools_used": ["x"], "n": 10**70}),
        Record("user", [{"type": "text", "text": "多"}], seq=3),
    ]
    file = open_file(rows)

    assert pages.after(file.descriptor, file.size, 0, 9) == rows
    assert pages.before(file.descriptor, file.size, None, 9) == rows


@pytest.mark.parametrize("data", [b"", b"\n", b"\n\n\n"])
def test_file_without_rows(open_file: Open, data: bytes) -> None:
    """There is nothing on any page of it."""
    file = open_file([], data)

    file.check(0, 5)
    file.check(7, 5)
    assert file.before(None, 5) == []
    assert pages.last_seq(file.descriptor, file.size) == 0
    assert pages.last_metadata(file.descriptor, file.size) is None
    assert pages.last_line_end(file.descriptor, file.size) == file.size


ROWS = [user(str(seq), seq=seq) for seq in range(1, 6)]
WHOLE = metadata_line() + lines.encode(ROWS)


@pytest.mark.parametrize(
    "bad",
    [
        b"#\n",
        b"[]\n",
        b"\0\0\0\n",
        b'{"role":"user","content":"no number"}\n',
        b'{"role":"user","content":"x","seq":-3}\n',
        b'{"role":"user","content":"x","seq":"3"}\n',
        b'{"role":"","content":"x","seq":3}\n',
        b'{"content":"x","seq":3}\n',
        b'{"role":"user","content":"x","seq":3,"_type":"x"}\n',
        b'{"role":"user","content":"out of order","seq":1}\n',
        b'{"role":"user","content":"\xff","seq":3}\n',
        b'{"_type": "metadata", "key": "websocket:a"}\n',
        b'{"role":"user","content":%s,"seq":3}\n' % (b"[" * 50_000 + b"]" * 50_000),
        lines.encode(ROWS[1:2])[:-1] + lines.encode(ROWS[2:3]),
    ],
)
def test_untidy_line(open_file: Open, bad: bytes) -> None:
    """A line that is not a row in its place is left to the reader of whole files."""
    data = metadata_line() + lines.encode(ROWS[:2]) + bad + lines.encode(ROWS[2:])
    file = open_file(ROWS, data)

    with pytest.raises(pages.Untidy):
        file.after(0, 10)
    with pytest.raises(pages.Untidy):
        file.before(None, 10)


def test_cut_at_every_offset(open_file: Open) -> None:
    """Whole lines are read without a final newline; a torn one makes the file untidy."""
    ends = [at + 1 for at, byte in enumerate(WHOLE) if byte == 10]
    for at in range(len(metadata_line()), len(WHOLE)):
        file = open_file(ROWS, WHOLE[:at])
        whole = max(end for end in ends if end <= at)

        assert pages.last_line_end(file.descriptor, file.size) == whole
        if at == whole or at + 1 in ends:
            assert file.after(0, 9) == list(range(1, sum(end - 1 <= at for end in ends)))
        else:
            with pytest.raises(pages.Untidy):
                file.after(0, 9)


@pytest.mark.parametrize("seed", range(6))
def test_last_number_and_last_metadata(seed: int, open_file: Open) -> None:
    """Both are found from the end, over lines of any length."""
    rows, data = random_file(seed, 10, SIZES)
    file = open_file(rows, data)
    heads = [line for line in data.split(b"\n") if line.startswith(lines.METADATA_PREFIX)]

    assert pages.last_seq(file.descriptor, file.size) == rows[-1].seq
    assert pages.last_metadata(file.descriptor, file.size) == heads[-1]


def test_spoilt_metadata_gives_way_to_the_line_before(open_file: Open) -> None:
    """The last metadata line counts only if it is complete and has our state."""
    good, bad = metadata_line("good"), metadata_line("bad")
    for spoilt in (
        bad[:-1],
        bad[:-2] + b"\n",
        bad[:-2] + b"#\n",
        bad.replace(b'"parley"', b'"parlex"'),
        bad.replace(b'"metadata":{', b'"metadatb":{'),
        bad.replace(b"{", b"[", 2),
    ):
        file = open_file(ROWS, metadata_line() + good + spoilt)

        assert pages.last_metadata(file.descriptor, file.size) == good.rstrip()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_file_any_cursor(data: st.DataObject, tmp_path: Path) -> None:
    """Random files, random cursors: a page equals the slice of a full read."""
    seed, count = data.draw(st.integers(0, 10**6)), data.draw(st.integers(0, 60))
    sizes: list[Any] = data.draw(st.lists(st.sampled_from(SIZES[:8]), min_size=1, max_size=3))
    rows, content = random_file(seed, count, sizes)
    file = File(tmp_path / "log.jsonl", rows, content)
    top = rows[-1].seq + 5 if rows else 5
    for seq in data.draw(st.lists(st.integers(0, top), max_size=8)):
        file.check(seq, data.draw(st.integers(1, 20)))
    os.close(file.descriptor)
