"""A session in memory: whatever follows from the log follows from it again after a restart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions import tokens
from sessions.errors import MessageConflict
from sessions.key import SessionKey
from sessions.record import NoteKind, Outcome, Record, closing, note, user
from sessions.session import (
    END,
    MAX_OLDER_IDS,
    PREVIEW_CHARS,
    Archived,
    Offset,
    Patch,
    Session,
    State,
    preview,
    read_state,
)

KEY = SessionKey("slack", "C1")


def answer(*settles: int, text: str = "ok", **fields: Any) -> Record:
    return closing(text, dict.fromkeys(settles, Outcome.ANSWERED.value), **fields)


def append(session: Session, *drafts: Record) -> list[Record]:
    records, _ = session.admit(drafts)
    if records:
        session.apply(records, 10 * len(records))
    return records


def chat(*drafts: Record) -> Session:
    session = Session(KEY, push=True)
    append(session, *drafts)
    return session


def on_disk(session: Session) -> tuple[dict[str, Any], State]:
    """The metadata line as a reader finds it."""
    line, _ = session.metadata_line(session.metadata, session.state, session.records, "now")
    value = json.loads(line)
    return value, read_state(value["metadata"]["parley"])


def reloaded(session: Session, state: State, records: Sequence[Record]) -> Session:
    found = Session(session.key, push=True)
    found.state = state
    found.restart(records)
    return found


def derived(session: Session) -> dict[str, Any]:
    """Everything that must not depend on how the session came about."""
    return {
        "unsettled": session.unsettled,
        "undelivered": session.undelivered,
        "usage": session.state.usage,
        "usage_through": session.state.usage_through,
        "visible": session.visible,
        "preview": session.state.preview,
        "ids": session.ids,
        "numbers": (session.last_seq, session.next_seq),
        "marks": (session.settled_through, session.delivered_through),
        "records": session.records,
        "tokens": session.token_count(),
    }


# -- numbering and duplicates -----------------------------------------------------------------


def test_numbers_and_times() -> None:
    """New drafts are numbered from the next number on; a time they have is kept."""
    session = chat(user("a"))
    session.next_seq = 11

    records, duplicates = session.admit([user("b", timestamp="then"), user("c")])

    assert [row.seq for row in records] == [11, 12]
    assert records[0].timestamp == "then"
    assert records[1].timestamp.endswith("Z")
    assert not duplicates


def test_admitting_changes_nothing() -> None:
    """Until the rows are in the log the session is as it was."""
    session = chat(user("a", id="1"), answer(1))
    before = derived(session)

    session.admit([user("b", id="2"), user("a", id="1")])

    assert derived(session) == before


def test_message_that_is_already_there() -> None:
    """The same id with the same text is the same message."""
    session = chat(user("a", id="1"))

    records, duplicates = session.admit([user("b", id="2"), user("a", id="1"), user("c")])

    assert [(row.content, row.seq) for row in records] == [("b", 2), ("c", 3)]
    assert duplicates == {"1": 1}


@pytest.mark.parametrize("other", [user("b", id="1"), user("a", id="1", media=[{"id": "m"}])])
def test_id_that_stands_for_something_else(other: Record) -> None:
    """The same id with another text or other media is a conflict, in a batch too."""
    session = chat(user("a", id="1"))

    with pytest.raises(MessageConflict) as caught:
        session.admit([user("new", id="2"), other])
    with pytest.raises(MessageConflict):
        Session(KEY).admit([user("a", id="1"), other])

    assert (caught.value.message_id, caught.value.seq) == ("1", 1)


def test_message_twice_in_a_batch() -> None:
    """It is written once, and the second is told the number of the first."""
    records, duplicates = Session(KEY).admit(
        [user("a", id="1"), user("b", id="2"), user("a", id="1"), user("c")]
    )

    assert [row.content for row in records] == ["a", "b", "c"]
    assert [row.seq for row in records] == sorted({row.seq for row in records})
    assert duplicates == {"1": 1}


def test_only_users_have_ids() -> None:
    """Rows of others may carry any id: they are never taken for duplicates."""
    session = chat(Record("assistant", "x", id="1"), user("a", id="2"))

    records, duplicates = session.admit([Record("assistant", "y", id="2"), user("z", id="1")])

    assert len(records) == 2
    assert not duplicates


def test_ids_of_archived_rows() -> None:
    """Rows that left the live file are still known by their id and text."""
    session = chat(user("a", id="1"), answer(1), user("b", id="2"), answer(3))

    session.replace_rows(session.records[2:])

    assert session.ids == {"2": 3}
    assert session.known_id(user("a", id="1")) == 1
    assert session.known_id(user("b", id="2")) == 3
    assert session.known_id(user("new", id="3")) is None
    with pytest.raises(MessageConflict):
        session.known_id(user("other", id="1"))


def test_the_last_thousand_ids_are_kept() -> None:
    """Older ids are forgotten, oldest first."""
    session = chat(*(user("a", id=str(number)) for number in range(MAX_OLDER_IDS + 5)))

    session.replace_rows([])

    assert len(session.older_ids or ()) == MAX_OLDER_IDS
    assert session.known_id(user("a", id="4")) is None
    assert session.known_id(user("a", id="5")) == 6


# -- metadata ---------------------------------------------------------------------------------


def test_patch_keeps_what_is_unset() -> None:
    """An empty patch changes nothing."""
    session = chat(user("a"))
    session.metadata = {"title": "T", "goal_state": {"x": 1}}
    session.state = msgspec.structs.replace(session.state, owner="ann", tags=["x"], summary="s")

    metadata, state = session.patched(Patch(), 1)

    assert metadata == session.metadata
    assert state == session.state


def test_patch_clears_with_none() -> None:
    """None removes a value; other keys stay."""
    session = chat(user("a"))
    session.metadata = {"title": "T", "goal_state": {"x": 1}, "peer": 1}
    session.state = msgspec.structs.replace(session.state, owner="ann", summary="s")

    metadata, state = session.patched(
        Patch(title=None, owner=None, summary=None, metadata={"goal_state": None, "new": 2}), 1
    )

    assert metadata == {"peer": 1, "new": 2}
    assert (state.owner, state.summary) == (None, None)
    assert session.title == "T"


def test_patch_moves_the_offset() -> None:
    """To a number, never below zero, or to the end of the batch it is written with."""
    session = chat(user("a"), answer(1))

    offsets = [session.patched(Patch(consolidated=seq), 7)[1] for seq in (1, -9, END)]

    assert [state.consolidated.seq for state in offsets] == [1, 0, 7]


def test_new_conversation_starts_at_the_end() -> None:
    """Its first row comes after the last one of the batch."""
    _, state = chat(user("a")).patched(Patch(conversation=2, preview=""), 5)

    assert (state.conversation, state.conversation_start) == (2, 5)
    assert state.conversation_at


def test_metadata_line_is_complete() -> None:
    """A reader of the last metadata line needs no other."""
    session = chat(user("a"), answer(1), user("b"))
    session.metadata = {"title": "T", "peer": {"x": 1}}
    session.state = msgspec.structs.replace(
        session.state, consolidated=Offset(2), tags=["x"], extra={"later": 5}
    )

    value, state = on_disk(session)

    assert list(value) == [
        "_type",
        "version",
        "key",
        "created_at",
        "updated_at",
        "metadata",
        "last_consolidated",
    ]
    assert (value["_type"], value["key"], value["last_consolidated"]) == ("metadata", "slack:C1", 2)
    assert value["metadata"]["title"] == "T"
    assert value["metadata"]["peer"] == {"x": 1}
    assert value["metadata"]["parley"]["later"] == 5
    assert state.consolidated == Offset(2, 2)
    assert (state.settled_through, state.delivered_through) == (2, 1)


@given(st.lists(st.integers(1, 50), unique=True).map(sorted), st.integers(0, 60))
def test_peers_count_of_rows_behind_the_model(numbers: list[int], offset: int) -> None:
    """`last_consolidated` is how many rows of the file are numbered up to the offset."""
    session = Session(KEY)
    session.state = msgspec.structs.replace(session.state, consolidated=Offset(offset))
    rows = [user("x", seq=seq) for seq in numbers]

    line, state = session.metadata_line({}, session.state, rows, "now")

    count = sum(seq <= offset for seq in numbers)
    assert json.loads(line)["last_consolidated"] == count
    assert state.consolidated == Offset(offset, count)


@given(st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=3)))
def test_state_of_any_origin(value: dict[str, Any]) -> None:
    """What is not ours is kept beside our state and written back."""
    state = read_state({**value, "log": "1", "tags": 5, "usage": {"input": 3}})

    assert (state.log, state.tags, state.usage) == ("1", [], {"input": 3})
    known = set(State.__struct_fields__) - {"extra"}
    assert (state.extra or {}) == {name: item for name, item in value.items() if name not in known}


@pytest.mark.parametrize("value", [None, 5, [], "x", {"consolidated": 7, "archived": [1]}])
def test_state_that_is_none(value: object) -> None:
    """Values of another form are the defaults."""
    state = read_state(value)

    assert (state.consolidated, state.archived) == (Offset(), Archived())


# -- what follows from the rows ---------------------------------------------------------------


def test_pending_is_what_nothing_settles() -> None:
    """Position says nothing: a message logged while another turn runs is still waiting."""
    session = chat(user("u1"), user("u2"), answer(1))

    assert [row.content for row in session.pending] == ["u2"]
    assert session.settled_through == 1


def test_rows_that_are_never_pending() -> None:
    """A message with an outcome, from a peer, is not waiting."""
    assert not chat(user("a", outcome="answered")).pending


def test_undelivered_replies() -> None:
    """A reply for a push channel waits for its delivery note; other channels push nothing."""
    rows = [user("a"), answer(1), user("b"), answer(3, text=""), note(NoteKind.DELIVERED, seq=2)]

    assert list(chat(*rows[:4]).undelivered) == [2, 4]
    assert list(chat(*rows).undelivered) == [4]
    pulled = Session(KEY)
    append(pulled, *rows)
    assert not pulled.undelivered


@pytest.mark.parametrize("seq", [None, "2", [2], {"a": 1}, 99, True])
def test_delivery_of_nothing(seq: object) -> None:
    """A delivery note that names no reply changes nothing."""
    session = chat(user("a"), answer(1), note(NoteKind.DELIVERED, seq=seq))

    assert list(session.undelivered) == [2]


def test_usage_adds_up() -> None:
    """Only whole numbers count, and each row once."""
    session = chat(
        user("a"),
        answer(1, usage={"input": 3, "cost": 0.5, "ok": True}),
        answer(usage={"input": 4}),
    )

    assert session.state.usage == {"input": 7}
    session.restart(session.records)
    assert session.state.usage == {"input": 7}


def test_preview_is_the_first_message_of_the_conversation() -> None:
    """Commands are not shown, and a new conversation begins a new preview."""
    session = chat(user("/help", command=True), user("  hello\n world "), user("more"))
    shown = session.state.preview
    session.metadata, session.state = session.patched(
        Patch(conversation=2, preview=""), session.last_seq
    )
    append(session, user("again"))

    assert shown == "hello world"
    assert session.state.preview == "again"


@given(st.text(max_size=400))
def test_preview_is_short(text: str) -> None:
    """A preview is one line of bounded length."""
    shown = preview(text)

    assert len(shown) <= PREVIEW_CHARS
    assert shown == " ".join(shown.split())


def test_visible_messages() -> None:
    """Notes are no messages, closing rows with a note are; archived rows are counted there."""
    session = chat(
        user("a"), answer(1, note={"kind": "conversation"}), note(NoteKind.ATTEMPT, turn="t", n=1)
    )
    session.state = msgspec.structs.replace(session.state, archived=Archived(1, 1))
    session.restart(session.records)

    assert session.visible == 1
    assert session.message_count == 2


def test_find_a_row() -> None:
    """Rows are found by number, over gaps."""
    session = Session(KEY)
    session.apply([user("a", seq=3), user("b", seq=9)], 0)

    assert [session.position(seq) for seq in (0, 3, 8, 9, 99)] == [0, 1, 1, 2, 2]
    assert session.record(9) == session.records[1]
    assert [session.record(seq) for seq in (0, 4, 10)] == [None, None, None]


def test_tokens_are_counted_once() -> None:
    """The count follows new rows, the offset and rewrites; command rows cost nothing."""
    session = chat(user("hello"), user("/x", command=True))
    expected = [tokens.estimate_record(user("hello"))]
    counts = [session.token_count(), session.token_count()]
    append(session, user("world"))
    counts.append(session.token_count())
    session.state = msgspec.structs.replace(session.state, consolidated=Offset(2))
    counts.append(session.token_count())
    session.replace_rows(session.records[1:])
    counts.append(session.token_count())

    assert counts == [expected[0], expected[0], 2 * expected[0], expected[0], expected[0]]


@pytest.mark.parametrize(
    "marks",
    [
        {"settled_through": 50},
        {"delivered_through": 50},
        {"consolidated": Offset(50, 3)},
        {"archived": Archived(50, 9)},
    ],
)
@pytest.mark.parametrize("rows", [[], [user("a", seq=41)]])
def test_numbers_are_not_given_out_again(marks: dict[str, Any], rows: list[Record]) -> None:
    """A mark above the last row proves that rows are gone: their numbers stay taken."""
    session = Session(KEY)
    session.state = msgspec.structs.replace(session.state, **marks)

    session.restart(rows)

    assert session.next_seq == 51


def test_mark_that_cannot_be_true() -> None:
    """A number no row can have is no proof of anything."""
    session = Session(KEY)
    session.state = msgspec.structs.replace(session.state, settled_through=10**70)

    session.restart([user("a", seq=4)])

    assert session.next_seq == 5


# -- laws -------------------------------------------------------------------------------------


@st.composite
def batches(draw: st.DrawFn) -> list[list[Record]]:
    """What a busy chat appends: questions, answers, deliveries, retries with the same id."""
    found: list[list[Record]] = []
    seq, users, replies = 0, [0], [0]
    for _ in range(draw(st.integers(0, 8))):
        batch: list[Record] = []
        for _ in range(draw(st.integers(1, 4))):
            seq += 1
            kind = draw(st.sampled_from(["user", "retry", "close", "deliver", "push", "tool"]))
            if kind == "user":
                users.append(seq)
                batch.append(user(f"text {seq}", id=draw(st.sampled_from([None, f"m{seq}"]))))
            elif kind == "retry":
                batch.append(user("again", id="m0"))
            elif kind == "close":
                settled = draw(st.sets(st.sampled_from(users), max_size=3))
                text = draw(st.sampled_from(["", "done"]))
                batch.append(answer(*settled, text=text, usage={"input": seq, "x": 1}))
                replies.append(seq)
            elif kind == "deliver":
                batch.append(note(NoteKind.DELIVERED, seq=draw(st.sampled_from(replies))))
            elif kind == "push":
                batch.append(Record("assistant", "news", channel_delivery=True))
            else:
                batch.append(Record("tool", "x", turn="t", tool_call_id="c"))
        found.append(batch)
    return found


@given(batches(), st.data())
def test_restart_gives_the_same_session(log: list[list[Record]], data: st.DataObject) -> None:
    """Rows and any earlier metadata line lead to what following the log led to."""
    session = Session(KEY, push=True)
    states = [on_disk(session)[1]]
    for batch in log:
        append(session, *batch)
        states.append(on_disk(session)[1])

    found = reloaded(session, data.draw(st.sampled_from(states)), session.records)

    assert derived(found) == derived(session)


@given(batches(), st.data())
def test_rows_that_leave_change_nothing_else(log: list[list[Record]], data: st.DataObject) -> None:
    """After a cut the session waits for, delivers, counts and recognises what it did before."""
    session = Session(KEY, push=True)
    for batch in log:
        append(session, *batch)
    held = {*session.unsettled, *session.undelivered}
    leaving = data.draw(st.integers(0, max(0, len(session.records) - 1)))
    before = derived(session)
    count, known = session.message_count, dict(session.ids)
    left = session.records[:leaving]
    if left:
        visible = sum(not row.is_note for row in left)
        session.state = msgspec.structs.replace(
            session.state, archived=Archived(left[-1].seq, visible)
        )
    kept = [row for row in left if row.seq in held] + session.records[leaving:]

    session.replace_rows(kept)

    after = derived(session)
    for name in ("unsettled", "undelivered", "usage", "preview", "numbers", "marks"):
        assert after[name] == before[name]
    assert session.message_count == count
    assert all(
        session.known_id(user(f"text {seq}", id=f"m{seq}")) == seq
        for name, seq in known.items()
        if name == f"m{seq}"
    )
    assert derived(reloaded(session, on_disk(session)[1], kept)) == after
