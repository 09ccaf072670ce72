"""Where a log is cut: never through a turn, never past what is still to be done."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions import cap, disk, lines
from sessions.cap import Cut, plan, superseded
from sessions.directory import DataDirectory
from sessions.key import SessionKey
from sessions.log_files import LogFiles
from sessions.record import NoteKind, Outcome, Record, closing, note, user


def numbered(*drafts: Record) -> list[Record]:
    return [msgspec.structs.replace(row, seq=seq) for seq, row in enumerate(drafts, 1)]


def answer(*settles: int, **fields: Any) -> Record:
    return closing("ok", dict.fromkeys(settles, Outcome.ANSWERED.value), **fields)


def call(*ids: str, **fields: Any) -> Record:
    return Record("assistant", None, tool_calls=[{"id": one} for one in ids], **fields)


def result(id: str, **fields: Any) -> Record:
    return Record("tool", "done", tool_call_id=id, **fields)


def pairs(count: int) -> list[Record]:
    """Questions, each with its answer."""
    drafts = [row for at in range(count) for row in (user("q"), answer(2 * at + 1))]
    return numbered(*drafts)


def torn(rows: Sequence[Record], index: int) -> list[str]:
    """What a cut before this index would tear apart, found without any cleverness."""
    left, right = rows[:index], rows[index:]
    gone = {row.seq for row in left}
    found = [f"turn {row.turn}" for row in left if row.turn and row.turn in {r.turn for r in right}]
    found += [f"settled {seq}" for row in right for seq in row.settles or () if seq in gone]
    settled_by = {row.turn for row in left if row.turn and row.settles}
    found += [f"row of {row.turn}" for row in right if row.turn in settled_by]
    asked = {one: at for at, row in enumerate(left) for one in cap.call_ids(row)}
    for row in right:
        if row.tool_call_id in asked:
            found.append(f"call {row.tool_call_id}")
        for one in cap.call_ids(row):
            asked.pop(one, None)
    return found


# -- examples ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cap_rows", [0, -1])
def test_no_cap(cap_rows: int) -> None:
    """A cap of zero is none."""
    assert plan(pairs(100), cap_rows, ()) is None


def test_below_the_cap() -> None:
    """A log that is not full stays as it is."""
    assert plan(pairs(49), 100, ()) is None


def test_cut_to_eight_tenths() -> None:
    """A full log of whole turns keeps 0.8 of the cap."""
    assert plan(pairs(50), 100, ()) == Cut(20, [])


def test_cut_moves_on_to_the_end_of_a_turn() -> None:
    """If 0.8 of the cap would tear a turn apart, the cut comes right after it."""
    rows = numbered(
        *(user("q") for _ in range(15)),
        *(Record("assistant", "", turn="t") for _ in range(9)),
        answer(*range(1, 16), turn="t"),
        *(Record("system", "x") for _ in range(75)),
    )

    assert plan(rows, 100, ()) == Cut(25, [])


def test_cut_before_the_first_row_that_is_held() -> None:
    """A waiting message stays, and what comes after it stays with it."""
    assert plan(pairs(50), 100, {13}) == Cut(12, [])


def test_no_place_to_cut_yet() -> None:
    """A log without a legal place may grow to twice the cap."""
    rows = numbered(*(Record("assistant", "", turn="t") for _ in range(199)))

    assert plan(rows, 100, ()) is None
    assert plan([*rows, Record("user", "", seq=200)], 100, ()) is not None


def test_forced_cut_keeps_what_is_held() -> None:
    """At twice the cap the log is cut all the same: held rows are archived and stay."""
    rows = numbered(user("waiting"), *(Record("assistant", "", turn="t") for _ in range(199)))

    assert plan(rows, 100, {1}) == Cut(120, [0])


def test_forced_cut_keeps_open_calls() -> None:
    """A call whose result stays or is still to come stays, with the results it has."""
    filler = [Record("assistant", "", turn="t") for _ in range(189)]
    rows = numbered(
        call("done", turn="t"),
        result("done", turn="t"),
        call("half", "open", turn="t"),
        result("half", turn="t"),
        call("late", turn="t"),
        *filler,
        result("late", turn="t"),
        *filler[:5],
    )

    assert plan(rows, 100, ()) == Cut(120, [2, 3, 4])


def test_forced_cut_with_call_ids_used_again() -> None:
    """A result belongs to the last call of its id: older calls of that id may leave."""
    turn = [call("c0", turn="t"), result("c0", turn="t")]
    rows = numbered(*(row for _ in range(100) for row in turn))

    assert plan(rows, 100, ()) == Cut(120, [])


def test_forced_cut_lets_calls_of_closed_turns_leave() -> None:
    """A call that was never answered is open only as long as its turn is."""
    rows = numbered(
        call("lost", turn="old"),
        answer(turn="old"),
        *(Record("assistant", "", turn="t") for _ in range(198)),
    )
    rows[0] = msgspec.structs.replace(rows[0], turn="old")

    assert plan(rows, 100, ()) == Cut(120, [])


def test_forced_cut_keeps_notes_about_what_stays() -> None:
    """How often a turn was tried, and how a waiting message was edited, stays known."""
    rows = numbered(
        user("waiting"),
        note(NoteKind.EDITED, seq=1, content="better"),
        note(NoteKind.ATTEMPT, turn="t", n=1),
        note(NoteKind.STREAM, turn="t", handle="x"),
        note(NoteKind.EDITED, seq=999, content="gone"),
        *(Record("assistant", "", turn="t") for _ in range(195)),
    )

    assert plan(rows, 100, {1}) == Cut(120, [0, 1, 2, 3])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 50])
@pytest.mark.parametrize("cap_rows", [1, 2, 3])
def test_a_row_stays_in_the_smallest_log(size: int, cap_rows: int) -> None:
    """The last row never leaves: the next number is taken from it."""
    rows = numbered(*(Record("assistant", "", turn="t") for _ in range(size)))

    cut = plan(rows, cap_rows, ())

    assert cut is None or cut.leaving < size


def test_rows_of_older_logs_go_with_their_question() -> None:
    """Rows that carry no turn stay with the user's message before them."""
    turn = [user("q"), call("c"), result("c"), Record("assistant", "a")]
    rows = numbered(*(row for _ in range(25) for row in turn))

    cut = plan(rows, 90, ())

    assert cut is not None
    assert cut.leaving % 4 == 0


def test_odd_calls_are_no_calls() -> None:
    """Calls of a foreign form have no ids."""
    row = Record("assistant", "", tool_calls=["x", {}, {"id": None}, {"id": 7}])

    assert cap.call_ids(row) == ["7"]


# -- laws -------------------------------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """Turns that overlap: messages come while another turn runs, tools answer late."""
    rows: list[Record] = []
    waiting: list[int] = []
    turns: dict[str, list[str]] = {}
    for _ in range(draw(st.integers(0, 60))):
        kind = draw(st.sampled_from(["user", "call", "result", "close", "note", "old", "delivery"]))
        name = draw(st.sampled_from(["t1", "t2"]))
        turn = f"{name}.{sum(row.turn == name for row in rows)}"
        open_calls = turns.setdefault(name, [])
        if kind == "user":
            waiting.append(len(rows) + 1)
            rows.append(user("q"))
        elif kind == "call":
            open_calls.append(f"c{draw(st.integers(0, 2))}")
            rows.append(call(open_calls[-1], turn=turn))
        elif kind == "result" and open_calls:
            rows.append(result(open_calls.pop(0), turn=turn))
        elif kind == "close" and waiting:
            count = draw(st.integers(1, len(waiting)))
            rows.append(answer(*waiting[:count], turn=turn))
            del waiting[:count]
        elif kind == "note":
            rows.append(note(NoteKind.ATTEMPT, turn=turn, n=1))
        elif kind == "old":
            rows.append(Record("assistant", "older"))
        else:
            rows.append(Record("assistant", "news", channel_delivery=True))
    return numbered(*rows)


def unsettled(rows: Sequence[Record]) -> set[int]:
    settled = {seq for row in rows for seq in row.settles or ()}
    return {row.seq for row in rows if row.role == "user"} - settled


def legal(rows: Sequence[Record], index: int, held: Collection[int]) -> bool:
    if any(row.seq in held for row in rows[:index]) or torn(rows, index):
        return False
    return not cap._continues(rows[index]) or rows[index].turn is not None


@given(logs(), st.integers(1, 40), st.data())
def test_a_cut_is_legal_or_forced(rows: list[Record], cap_rows: int, data: st.DataObject) -> None:
    """A cut tears nothing apart and moves nothing out that is held, or it is forced."""
    replies = [row.seq for row in rows if row.is_reply]
    undelivered = data.draw(st.sets(st.sampled_from(replies), max_size=3)) if replies else set()
    held = unsettled(rows) | undelivered

    cut = plan(rows, cap_rows, held)

    if cut is None:
        target = len(rows) - max(1, int(0.8 * cap_rows))
        last = min(len(rows) - 1, target + int(0.3 * cap_rows))
        places = range(max(1, len(rows) - cap_rows + 1), last + 1)
        assert len(rows) < 2 * cap_rows
        assert len(rows) < cap_rows or not any(legal(rows, place, held) for place in places)
    elif not torn(rows, cut.leaving) and not any(r.seq in held for r in rows[: cut.leaving]):
        assert len(rows) - cut.leaving < max(cap_rows, 2)
    else:
        check_forced(rows, cut, cap_rows, held)


def check_forced(rows: list[Record], cut: Cut, cap_rows: int, held: Collection[int]) -> None:
    stays = {*cut.kept, *range(cut.leaving, len(rows))}
    assert len(rows) >= 2 * cap_rows
    assert cut.kept == sorted(set(cut.kept))
    assert all(place < cut.leaving for place in cut.kept)
    assert all(place in stays for place, row in enumerate(rows) if row.seq in held)
    asked: dict[str, int] = {}
    for place, row in enumerate(rows):
        if row.tool_call_id in asked and place in stays:
            assert asked[row.tool_call_id or ""] in stays
        asked.update(dict.fromkeys(cap.call_ids(row), place))


@given(logs(), st.integers(1, 40))
def test_the_nearest_legal_cut(rows: list[Record], cap_rows: int) -> None:
    """Of the legal places at or after 0.8 of the cap the first is taken, else the last before."""
    held = unsettled(rows)
    cut = plan(rows, cap_rows, held)
    if cut is None or cut.kept or torn(rows, cut.leaving) or len(rows) >= 2 * cap_rows:
        return
    wanted = len(rows) - max(1, int(0.8 * cap_rows))
    between = (
        range(wanted, cut.leaving) if cut.leaving >= wanted else range(cut.leaving + 1, wanted)
    )

    assert not any(legal(rows, place, held) for place in between if place > 0)


@given(logs())
def test_open_is_what_a_cut_tears(rows: list[Record]) -> None:
    """The count per place is zero exactly where a cut tears nothing apart."""
    counts = cap._open(rows)
    for place in range(1, len(rows)):
        assert (counts[place] == 0) == legal(rows, place, ())


# -- notes that say nothing any more ----------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "gone"),
    [
        (note(NoteKind.DELIVERED, seq=5), True),
        (note(NoteKind.DELIVERED, seq=6), False),
        (note(NoteKind.DELIVERED, seq="5"), False),
        (note(NoteKind.DELIVERED), False),
        (note(NoteKind.ATTEMPT, turn="closed", n=1), True),
        (note(NoteKind.ATTEMPT, turn="open", n=1), False),
        (note(NoteKind.ATTEMPT, turn=["closed"], n=1), False),
        (note(NoteKind.STREAM, turn="closed"), True),
        (note(NoteKind.EDITED, seq=1, content="x"), False),
        (note(NoteKind.DELETED, seq=1), False),
        (note(NoteKind.DAMAGED), False),
        (answer(1, note={"kind": "delivered", "seq": 1}), False),
        (user("x"), False),
    ],
)
def test_superseded(row: Record, gone: bool) -> None:
    """Deliveries before the mark and facts about closed turns may leave; nothing else may."""
    assert superseded(row, delivered_through=5, closed={"closed"}) is gone


def test_a_rewrite_keeps_the_last_number(tmp_path: Path) -> None:
    """A last row that says nothing any more stays: its number must not be given out again."""
    key = SessionKey("slack", "C1")
    directory = DataDirectory(tmp_path)
    files = LogFiles(directory)
    rows = numbered(user("q"), answer(1, turn="t"), note(NoteKind.DELIVERED, seq=2))
    directory.live_path(key).parent.mkdir(parents=True)
    directory.tmp.mkdir()
    directory.live_path(key).write_bytes(
        b'{"_type":"metadata","key":"slack:C1","metadata":{"parley":{"log":"1"}}}\n'
        + lines.encode(rows)
    )
    session = files.load(key)
    assert session is not None

    rewritten, kept = files.rewrite(session, None, session.state)

    disk.close(rewritten.descriptor)
    assert kept[-1].seq == 3
    again = files.load(key)
    assert again is not None
    assert again.next_seq == 4
