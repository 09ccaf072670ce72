"""What every session store promises, run on each of them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sessions.errors import (
    ConversationEnded,
    MessageConflict,
    SessionNotFound,
    StoreUnavailable,
)
from sessions.key import SessionKey
from sessions.record import NoteKind, Outcome, Record, closing, note, user
from sessions.session import Patch, Session
from sessions.store import Query, SessionStore
from sessions.store_jsonl import JsonlStore
from sessions.store_memory import MemoryStore

KEY = SessionKey("websocket", "chat")
OTHER = SessionKey("websocket", "other")
SLACK = SessionKey("slack", "C1:17.5")

BACKENDS = ["memory", "jsonl-interval", "jsonl-turn", "jsonl-none", "jsonl-capped"]


@pytest.fixture(params=BACKENDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionStore]:
    kind = request.param
    opened: SessionStore
    if kind == "memory":
        opened = MemoryStore()
    elif kind == "jsonl-capped":
        # Small enough that most tests cross the cap and read through the archive.
        opened = JsonlStore(tmp_path / "data", file_cap=6, cache_bytes=1)
    else:
        opened = JsonlStore(tmp_path / "data", sync=kind.removeprefix("jsonl-"), sync_seconds=0.01)
    await opened.open()
    yield opened
    await opened.close()


async def exchange(store: SessionStore, key: SessionKey, number: int, answer: str = "") -> int:
    """A question and its answer; returns the number of the answer."""
    asked = await store.append(key, [user(f"question {number}", id=f"{key}-{number}")])
    seq = asked.records[0].seq
    reply = closing(answer or f"answer {number}", {seq: Outcome.ANSWERED}, turn=f"t{number}")
    return (await store.append(key, [reply])).records[0].seq


async def texts(store: SessionStore, key: SessionKey, **cursor: Any) -> list[str]:
    page = await store.read(key, **cursor)
    return [row.text for row in page.records if not row.is_note]


async def existing(store: SessionStore, key: SessionKey) -> Session:
    session = await store.get(key)
    assert session is not None
    return session


# -- appending ------------------------------------------------------------------------------------


async def test_numbers_start_at_one_and_increase(store: SessionStore) -> None:
    """A record is numbered when it is appended, from 1, without gaps."""
    first = await store.append(KEY, [user("a"), user("b")])
    second = await store.append(KEY, [user("c")])

    assert [row.seq for row in (*first.records, *second.records)] == [1, 2, 3]


async def test_appended_rows_carry_the_time(store: SessionStore) -> None:
    """The store dates a row in UTC; a time the caller knows better is kept."""
    given = "2026-01-02T03:04:05.000000Z"
    appended = await store.append(KEY, [user("a"), user("b", timestamp=given)])

    assert appended.records[0].timestamp.endswith("Z")
    assert appended.records[1].timestamp == given


async def test_same_id_and_text_is_stored_once(store: SessionStore) -> None:
    """A message that is sent again keeps its number and is reported as a duplicate."""
    await store.append(KEY, [user("hello", id="m1")])
    again = await store.append(KEY, [user("hello", id="m1")])

    assert again.records == []
    assert again.duplicates == {"m1": 1}
    assert await texts(store, KEY) == ["hello"]


async def test_same_id_and_other_text_is_a_conflict(store: SessionStore) -> None:
    """An id stands for one text; the second text is refused and nothing of its batch is stored."""
    await store.append(KEY, [user("hello", id="m1")])

    with pytest.raises(MessageConflict) as caught:
        await store.append(KEY, [user("new", id="m2"), user("other", id="m1")])
    assert caught.value.seq == 1
    assert await texts(store, KEY) == ["hello"]


async def test_one_batch_may_hold_a_message_twice(store: SessionStore) -> None:
    """Inside a batch, too, an id is stored once."""
    appended = await store.append(KEY, [user("a", id="x"), user("a", id="x"), user("b", id="y")])

    assert [row.id for row in appended.records] == ["x", "y"]
    assert appended.duplicates == {"x": 1}


async def test_ids_are_known_after_many_messages(store: SessionStore) -> None:
    """A message stays a duplicate when the cap has moved it out of the live log."""
    for number in range(20):
        await exchange(store, KEY, number)
    again = await store.append(KEY, [user("question 0", id=f"{KEY}-0")])

    assert again.duplicates == {f"{KEY}-0": 1}


async def test_an_archived_id_still_conflicts(store: SessionStore) -> None:
    """The text behind an id is remembered as long as the id."""
    for number in range(20):
        await exchange(store, KEY, number)

    with pytest.raises(MessageConflict):
        await store.append(KEY, [user("something else", id=f"{KEY}-0")])


async def test_ids_belong_to_one_session(store: SessionStore) -> None:
    """The same id in two chats names two messages."""
    await store.append(KEY, [user("a", id="m1")])
    other = await store.append(OTHER, [user("b", id="m1")])

    assert other.duplicates == {}


async def test_rows_and_metadata_go_together(store: SessionStore) -> None:
    """A patch given with rows is in effect when they are."""
    await store.append(KEY, [user("a")], Patch(title="Plans", owner="ann"))
    session = await existing(store, KEY)

    assert (session.title, session.state.owner) == ("Plans", "ann")


async def test_a_decision_is_made_in_the_step_of_the_write(store: SessionStore) -> None:
    """Two who decide on what they see never decide on the same."""

    def first_only(session: Session) -> tuple[list[Record], Patch | None]:
        return ([user("first")] if session.last_seq == 0 else []), None

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(store.transact(KEY, first_only))

    assert await texts(store, KEY) == ["first"]


async def test_a_decision_may_refuse(store: SessionStore) -> None:
    """What a decision raises reaches the caller, and nothing is written."""

    def refuse(_session: Session) -> tuple[list[Record], Patch | None]:
        raise PermissionError

    with pytest.raises(PermissionError):
        await store.transact(KEY, refuse)
    assert await store.get(KEY) is None


async def test_only_a_message_creates_a_session(store: SessionStore) -> None:
    """A late answer does not revive a chat that is not there."""
    with pytest.raises(SessionNotFound):
        await store.append(KEY, [closing("late", {1: Outcome.ANSWERED})])
    with pytest.raises(SessionNotFound):
        await store.update(KEY, Patch(title="late"))
    assert await store.get(KEY) is None


async def test_a_proactive_delivery_creates_a_session(store: SessionStore) -> None:
    """The gateway may write first."""
    await store.append(SLACK, [Record("assistant", "Good morning", channel_delivery=True)])

    assert await texts(store, SLACK) == ["Good morning"]


async def test_listeners_hear_rows_in_order(store: SessionStore) -> None:
    """Every stored row is announced once, in the order of the numbers; duplicates are not."""
    heard: list[int] = []
    store.listen(lambda _session, rows: heard.extend(row.seq for row in rows))
    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(store.append(KEY, [user(f"{number}", id=f"{number}")]))
    await store.append(KEY, [user("3", id="3")])

    assert heard == list(range(1, 11))


async def test_a_cancelled_append_is_all_or_nothing(store: SessionStore) -> None:
    """Whoever gives up waiting leaves either no row or one that everybody hears of."""
    heard: list[int] = []
    store.listen(lambda _session, rows: heard.extend(row.seq for row in rows))
    await store.append(KEY, [user("first")])
    async with asyncio.TaskGroup() as group:
        task = group.create_task(store.append(KEY, [user("second")]))
        await asyncio.sleep(0)
        task.cancel()
    await store.append(KEY, [user("third")])

    rows = (await store.read(KEY)).records
    assert heard == [row.seq for row in rows]


async def test_many_tasks_append_to_many_sessions(store: SessionStore) -> None:
    """Sessions do not disturb each other's numbers."""
    keys = [SessionKey("websocket", f"c{n}") for n in range(20)]
    async with asyncio.TaskGroup() as group:
        for key in keys:
            for number in range(8):
                group.create_task(store.append(key, [user(f"{number}")]))

    for key in keys:
        page = await store.read(key, after=0)
        assert [row.seq for row in page.records] == list(range(1, 9))


async def test_any_text_comes_back_as_it_was(store: SessionStore) -> None:
    """Line breaks, controls, every script and even half a surrogate pair survive."""
    text = 'a\nb\r\n\u2028\x00\x1f"\\ 你好 🎈 \ud800 end'
    await store.append(KEY, [user(text, id="odd")])
    await store.invalidate(KEY)

    assert await texts(store, KEY) == [text]


async def test_a_closed_store_takes_nothing(store: SessionStore) -> None:
    """After close the sender is told to come back later."""
    await store.append(KEY, [user("a")])
    await store.close()

    with pytest.raises(StoreUnavailable):
        await store.append(KEY, [user("b")])


# -- reading --------------------------------------------------------------------------------------


@pytest.fixture
async def ten(store: SessionStore) -> SessionStore:
    for number in range(5):
        await exchange(store, KEY, number)
    return store


async def numbers(store: SessionStore, **cursor: Any) -> tuple[list[int], bool]:
    page = await store.read(KEY, **cursor)
    return [row.seq for row in page.records], page.more


async def test_reading_without_a_cursor_gives_the_last_rows(ten: SessionStore) -> None:
    """The newest page, in order."""
    assert await numbers(ten, limit=3) == ([8, 9, 10], True)
    assert await numbers(ten) == (list(range(1, 11)), False)


async def test_reading_forwards_misses_and_repeats_nothing(ten: SessionStore) -> None:
    """Pages after a number, put together, are the whole log."""
    seen: list[int] = []
    more = True
    while more:
        rows, more = await numbers(ten, after=seen[-1] if seen else 0, limit=3)
        seen += rows

    assert seen == list(range(1, 11))


async def test_reading_backwards_misses_and_repeats_nothing(ten: SessionStore) -> None:
    """Pages before a number, put together, are the whole log."""
    rows, more = await numbers(ten, limit=3)
    seen = rows
    while more:
        rows, more = await numbers(ten, before=seen[0], limit=3)
        seen = rows + seen

    assert seen == list(range(1, 11))


async def test_reading_between_two_numbers(ten: SessionStore) -> None:
    """Both bounds are exclusive."""
    assert await numbers(ten, after=3, before=7) == ([4, 5, 6], False)
    assert await numbers(ten, after=3, before=7, limit=2) == ([4, 5], True)


async def test_a_cursor_at_the_end_gives_nothing(ten: SessionStore) -> None:
    """There is nothing after the last row and nothing before the first."""
    assert await numbers(ten, after=10) == ([], False)
    assert await numbers(ten, before=1) == ([], False)


async def test_reading_what_is_not_there(store: SessionStore) -> None:
    """An unknown session is an error, not an empty page."""
    with pytest.raises(SessionNotFound):
        await store.read(KEY)


# -- what is left to do ---------------------------------------------------------------------------


async def pending(store: SessionStore) -> dict[str, list[int]]:
    return {str(key): [row.seq for row in rows] async for key, rows in store.pending()}


async def test_a_message_is_pending_until_it_is_settled(store: SessionStore) -> None:
    """Position says nothing: a message logged during another's turn is still to be answered."""
    await store.append(KEY, [user("one", id="1")])
    await store.append(KEY, [user("two", id="2")])
    await store.append(KEY, [closing("answer to one", {1: Outcome.ANSWERED}, turn="t")])

    assert await pending(store) == {str(KEY): [2]}


async def test_one_closing_record_settles_several(store: SessionStore) -> None:
    """Collected messages end together, each with its own outcome."""
    await store.append(KEY, [user("one"), user("two"), user("three")])
    settles: dict[int, str] = {1: Outcome.ANSWERED, 2: Outcome.MERGED, 3: Outcome.WITHDRAWN}
    await store.append(KEY, [closing("all", settles, turn="t")])

    assert await pending(store) == {}


async def test_pending_messages_outlive_the_cap(store: SessionStore) -> None:
    """However long the log grows, an unsettled message stays within reach."""
    await store.append(KEY, [user("forgotten", id="f")])
    for number in range(30):
        await exchange(store, KEY, number)

    assert await pending(store) == {str(KEY): [1]}
    assert [row.seq for row in (await store.read(KEY, after=0, limit=100)).records] == [
        *range(1, 62)
    ]


async def test_a_reply_is_undelivered_until_noted(store: SessionStore) -> None:
    """Push channels confirm each reply; other channels need not."""
    answer = await exchange(store, SLACK, 1)
    await exchange(store, KEY, 1)
    before = [(str(key), [row.seq for row in rows]) async for key, rows in store.undelivered()]
    await store.append(SLACK, [note(NoteKind.DELIVERED, seq=answer)])
    after = [key async for key, _ in store.undelivered()]

    assert before == [(str(SLACK), [answer])]
    assert after == []


async def test_the_end_of_a_message_is_delivered(store: SessionStore) -> None:
    """A turn without words ends visibly too; a message taken back needs no answer."""
    await store.append(SLACK, [user("a"), user("b")])
    await store.append(SLACK, [closing("", {1: Outcome.WITHDRAWN}, outcome="withdrawn")])
    await store.append(SLACK, [closing("", {2: Outcome.STOPPED}, outcome="stopped")])

    assert [[row.seq for row in rows] async for _, rows in store.undelivered()] == [[4]]


async def test_notes_are_rows_and_no_messages(store: SessionStore) -> None:
    """Notes have numbers, are read with the rest, and are not counted."""
    await store.append(KEY, [user("a")])
    await store.append(KEY, [note(NoteKind.ATTEMPT, turn="t", n=1)])
    session = await existing(store, KEY)

    assert session.message_count == 1
    assert (await store.read(KEY)).records[1].note == {"kind": "attempt", "turn": "t", "n": 1}


# -- metadata -------------------------------------------------------------------------------------


async def test_a_patch_changes_what_it_names(store: SessionStore) -> None:
    """What is unset stays; None clears."""
    await store.append(KEY, [user("a")], Patch(title="T", tags=["x"], agent="echo"))
    await store.update(KEY, Patch(tags=["y", "z"], custom={"ticket": 7}))
    session = await store.update(KEY, Patch(title=None))

    assert session.title == ""
    assert (session.state.tags, session.state.custom) == (["y", "z"], {"ticket": 7})
    assert session.state.agent == "echo"


async def test_metadata_outlives_the_cache(store: SessionStore) -> None:
    """Everything a session knows is in its log."""
    await store.append(KEY, [user("a", id="1")], Patch(title="T", owner="ann"))
    await store.update(KEY, Patch(state="suspended", metadata={"goal_state": {"status": "active"}}))
    await store.invalidate(KEY)
    session = await existing(store, KEY)

    assert (session.title, session.state.owner, session.state.state) == ("T", "ann", "suspended")
    assert session.metadata["goal_state"] == {"status": "active"}


async def test_usage_adds_up_for_ever(store: SessionStore) -> None:
    """Cumulative usage survives the cap and a reload."""
    for number in range(12):
        await store.append(KEY, [user(f"q{number}")])
        last = (await existing(store, KEY)).last_seq
        await store.append(
            KEY, [closing("a", {last: Outcome.ANSWERED}, turn=f"t{number}", usage={"tokens": 10})]
        )
    await store.invalidate(KEY)

    assert (await existing(store, KEY)).state.usage == {"tokens": 120}


async def test_the_offset_stays_on_its_message(store: SessionStore) -> None:
    """What is behind the model is known by number, whatever the file does."""
    for number in range(4):
        await exchange(store, KEY, number)
    await store.update(KEY, Patch(consolidated=4))
    for number in range(4, 10):
        await exchange(store, KEY, number)
    await store.invalidate(KEY)
    session = await existing(store, KEY)

    assert session.state.consolidated.seq == 4
    assert all(row.seq > 4 for row in session.view())


# -- one object per key ---------------------------------------------------------------------------


async def test_there_is_one_object_per_key(store: SessionStore) -> None:
    """Everybody who asks for a session holds the same one."""
    created = await store.get_or_create(KEY)
    await store.append(KEY, [user("a")])
    first, second = await asyncio.gather(store.get(KEY), store.get_or_create(KEY))

    assert first is second is created


async def test_a_held_session_survives_eviction(store: SessionStore) -> None:
    """A session that left the cache is the same object while somebody refers to it."""
    await store.append(KEY, [user("a")])
    held = await store.get(KEY)
    for number in range(20):
        await store.append(SessionKey("websocket", f"filler{number}"), [user("x" * 500)])
    await store.append(KEY, [user("b")])

    assert await store.get(KEY) is held
    assert held is not None
    assert [row.text for row in held.records] == ["a", "b"]


async def test_an_unused_new_session_leaves_no_trace(store: SessionStore) -> None:
    """A session exists from its first record on."""
    await store.get_or_create(KEY)

    assert await store.get(KEY) is None
    assert (await store.find()).sessions == []


async def test_invalidate_reads_anew_into_the_same_object(store: SessionStore) -> None:
    """Whoever holds the session sees what the log says."""
    await store.append(KEY, [user("a")])
    held = await existing(store, KEY)
    await store.invalidate(KEY)

    assert await store.get(KEY) is held
    assert [row.text for row in held.records] == ["a"]


async def test_a_view_is_detached(store: SessionStore) -> None:
    """A view does not change when the session does, and is not the cached object."""
    await store.append(KEY, [user("a")])
    seen = await store.view(KEY)
    await store.append(KEY, [user("b")])

    assert seen is not None
    assert [row.text for row in seen.records] == ["a"]
    assert seen is not await store.get(KEY)
    assert await store.view(OTHER) is None


async def test_a_pinned_session_stays(store: SessionStore) -> None:
    """While it is pinned a session is not evicted."""
    async with store.pin(KEY) as session:
        await store.append(KEY, [user("a")])
        for number in range(20):
            await store.append(SessionKey("websocket", f"filler{number}"), [user("x" * 500)])

        assert session.pins == 1
        assert await store.get(KEY) is session
    assert session.pins == 0


# -- conversations --------------------------------------------------------------------------------


async def start_new(store: SessionStore, *, listed: bool = True) -> None:
    draft = closing("Started anew.", {}, outcome=Outcome.COMMAND, command=True)
    await store.new_conversation(KEY, draft, listed=listed)


async def test_new_starts_the_next_conversation(store: SessionStore) -> None:
    """The model starts afresh; title, summary and goal stay with the conversation that ended."""
    await exchange(store, KEY, 1)
    goal = {"status": "active", "objective": "win"}
    await store.update(KEY, Patch(title="First", summary="s", metadata={"goal_state": goal}))
    await start_new(store)
    session = await existing(store, KEY)
    [ended] = await store.conversations(KEY)

    assert session.state.conversation == 2
    assert (session.title, session.state.summary) == ("", None)
    assert "goal_state" not in session.metadata
    assert list(await store.model_rows(KEY, 100)) == []
    assert (ended.number, ended.title, ended.summary, ended.goal) == (1, "First", "s", goal)


async def test_an_ended_conversation_is_read_by_its_number(store: SessionStore) -> None:
    """`key#n` is the rows of conversation n, read-only."""
    await exchange(store, KEY, 1)
    await start_new(store)
    await exchange(store, KEY, 2)
    await start_new(store)
    await exchange(store, KEY, 3)

    second = SessionKey.parse(f"{KEY}#2")
    assert await texts(store, second) == ["question 2", "answer 2", "Started anew."]
    assert await texts(store, second, after=0, limit=1) == ["question 2"]
    with pytest.raises(ConversationEnded):
        await store.append(second, [user("x")])


async def test_an_ended_conversation_can_be_viewed(store: SessionStore) -> None:
    """A view of `key#n` looks like an archived session."""
    await exchange(store, KEY, 1)
    await store.update(KEY, Patch(title="First"))
    await start_new(store)
    seen = await store.view(SessionKey.parse(f"{KEY}#1"))

    assert seen is not None
    assert (seen.title, seen.state.state) == ("First", "archived")
    assert [row.text for row in seen.records] == ["question 1", "answer 1", "Started anew."]


async def test_ended_conversations_are_listed(store: SessionStore) -> None:
    """`/new` hides nothing."""
    await exchange(store, KEY, 1)
    await start_new(store)

    listed = {info.key: info for info in (await store.find()).sessions}
    assert set(listed) == {str(KEY), f"{KEY}#1"}
    assert listed[f"{KEY}#1"].state == "archived"
    assert listed[f"{KEY}#1"].preview == "question 1"


async def test_reset_leaves_no_entry(store: SessionStore) -> None:
    """`/reset` is `/new` without a place in the list; the words stay in the log."""
    await exchange(store, KEY, 1)
    await start_new(store, listed=False)

    assert [info.key for info in (await store.find()).sessions] == [str(KEY)]
    with pytest.raises(SessionNotFound):
        await store.read(SessionKey.parse(f"{KEY}#1"))
    assert (await texts(store, KEY, after=0))[0] == "question 1"


async def test_restore_shows_the_model_an_old_conversation(store: SessionStore) -> None:
    """From the next message on the model sees conversation n again, then what is new."""
    await exchange(store, KEY, 1)
    await store.update(KEY, Patch(title="First"))
    await start_new(store)
    await exchange(store, KEY, 2)
    draft = closing("Restored.", {}, outcome=Outcome.COMMAND, command=True)
    await store.restore(SessionKey.parse(f"{KEY}#1"), draft)
    await exchange(store, KEY, 3)

    seen = [row.text for row in await store.model_rows(KEY, 100) if not row.command]
    session = await existing(store, KEY)
    assert seen == ["question 1", "answer 1", "question 3", "answer 3"]
    assert (session.title, session.state.conversation) == ("First", 3)


async def test_a_message_that_waited_belongs_to_the_next_conversation(store: SessionStore) -> None:
    """A message logged while `/new` runs is answered in the conversation that follows."""
    await exchange(store, KEY, 1)
    await store.append(KEY, [user("/new", command=True), user("still here?", id="late")])
    draft = closing("Started anew.", {3: Outcome.COMMAND}, outcome=Outcome.COMMAND, command=True)
    await store.new_conversation(KEY, draft)
    before = [row.text for row in await store.model_rows(KEY, 100)]
    await store.append(KEY, [closing("Yes.", {4: Outcome.ANSWERED}, turn="t")])

    assert before == ["still here?"]
    assert [row.text for row in await store.model_rows(KEY, 100)] == ["still here?", "Yes."]


async def test_what_the_model_may_see_is_bounded(store: SessionStore) -> None:
    """However long the log, only its end is given; what waits for an answer always is."""
    await store.append(KEY, [user("still waiting", id="w")])
    for number in range(20):
        await exchange(store, KEY, number)
    seen = [row.text for row in await store.model_rows(KEY, 4)]

    assert seen == ["still waiting", "question 18", "answer 18", "question 19", "answer 19"]


async def test_numbers_go_on_through_conversations(store: SessionStore) -> None:
    """No command makes a number come again."""
    await exchange(store, KEY, 1)
    await start_new(store)
    await start_new(store, listed=False)
    last = await exchange(store, KEY, 2)

    assert last == 6


# -- lists ----------------------------------------------------------------------------------------


async def test_lists_are_newest_first_and_complete(store: SessionStore) -> None:
    """A list knows everything that was appended before it was asked for."""
    for name in ("a", "b", "c"):
        await store.append(SessionKey("websocket", name), [user(f"hello {name}")])
    await store.append(SessionKey("websocket", "a"), [user("again")])
    listing = await store.find()

    assert [info.chat_id for info in listing.sessions] == ["a", "c", "b"]
    assert listing.sessions[0].preview == "hello a"
    assert listing.sessions[0].message_count == 2
    assert listing.sessions[0].pending == 2


async def test_pages_of_a_list_miss_and_repeat_nothing(store: SessionStore) -> None:
    """The cursor of a page leads to the next one."""
    for number in range(7):
        await store.append(SessionKey("websocket", f"{number}"), [user("x")])
    seen: list[str] = []
    cursor = None
    while True:
        page = await store.find(Query(limit=3, cursor=cursor))
        seen += [info.chat_id for info in page.sessions]
        cursor = page.next_cursor
        if cursor is None:
            break

    assert seen == ["6", "5", "4", "3", "2", "1", "0"]


async def test_a_false_cursor_is_refused(store: SessionStore) -> None:
    """A cursor that is not ours is an error of the caller's."""
    with pytest.raises(ValueError, match=r"."):
        await store.find(Query(cursor="nonsense!"))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (Query(channel="slack"), {"C1:17.5"}),
        (Query(user="ann"), {"chat"}),
        (Query(agent="support"), {"other"}),
        (Query(state="suspended"), {"other"}),
        (Query(tag="blue"), {"chat", "other"}),
        (Query(tag="blue", user="ann"), {"chat"}),
        (Query(tag="bl"), set()),
        (Query(created_after="2999-01-01T00:00:00Z"), set()),
        (Query(created_before="2999-01-01T00:00:00Z"), {"chat", "other", "C1:17.5"}),
    ],
)
async def test_lists_can_be_filtered(store: SessionStore, query: Query, found: set[str]) -> None:
    """Filters narrow a list and combine."""
    await store.append(KEY, [user("a")], Patch(owner="ann", tags=["blue", "red"]))
    await store.append(OTHER, [user("a")], Patch(agent="support", tags=["blue"], state="suspended"))
    await store.append(SLACK, [user("a")])

    assert {info.chat_id for info in (await store.find(query)).sessions} == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("invoice", {"chat"}),
        ("INVOICE", {"chat"}),
        ("voic", {"chat"}),
        ("overdue invoice", {"chat"}),
        ("invoice hello", set()),
        ("你好", {"other"}),
        ("是", {"other"}),
        ('say "hi"', {"other"}),
        ("50%", {"chat"}),
        ("holiday", {"chat"}),
        ("absent", set()),
    ],
)
async def test_search_finds_words_anywhere(store: SessionStore, text: str, found: set[str]) -> None:
    """All words must occur in one message, or in the title; parts of words count."""
    await store.append(KEY, [user("The invoice is overdue by 50%")], Patch(title="Holiday plans"))
    await store.append(OTHER, [user('hello, 你好是 they say "hi"')])
    listing = await store.find(Query(text=text))

    assert {info.chat_id for info in listing.sessions} == found


async def test_search_shows_where(store: SessionStore) -> None:
    """A match names the row and its surroundings, also of rows the cap has moved out."""
    await store.append(KEY, [user("a needle in the hay", id="n")])
    await store.append(KEY, [closing("ok", {1: Outcome.ANSWERED})])
    for number in range(20):
        await exchange(store, KEY, number)
    [info] = (await store.find(Query(text="needle"))).sessions

    assert [(match.seq, match.snippet) for match in info.matches] == [(1, "a needle in the hay")]


async def test_stats_count_everything(store: SessionStore) -> None:
    """Totals over all sessions."""
    await exchange(store, KEY, 1)
    await store.append(OTHER, [user("x")], Patch(state="suspended"))
    stats = await store.stats()

    assert (stats.total_sessions, stats.total_messages, stats.pending_messages) == (2, 3, 1)
    assert stats.sessions_by_state == {"active": 1, "suspended": 1}


# -- the end of a session -------------------------------------------------------------------------


async def test_an_archived_session_is_kept(store: SessionStore) -> None:
    """Archiving changes a state and loses nothing."""
    await exchange(store, KEY, 1)
    await store.archive(KEY)

    [info] = (await store.find(Query(state="archived"))).sessions
    assert info.key == str(KEY)
    assert await texts(store, KEY) == ["question 1", "answer 1"]


async def test_delete_removes_all_of_it(store: SessionStore) -> None:
    """Log, archive, conversations and what the search knows are gone."""
    for number in range(10):
        await exchange(store, KEY, number)
    await start_new(store)
    deleted = await store.delete(KEY)

    assert deleted
    assert await store.get(KEY) is None
    assert (await store.find()).sessions == []
    assert (await store.find(Query(text="question"))).sessions == []
    assert not await store.delete(KEY)


async def test_a_chat_can_begin_again_after_delete(store: SessionStore) -> None:
    """A deleted chat's next message starts another log with another id."""
    for number in range(10):
        await exchange(store, KEY, number)
    before = (await existing(store, KEY)).state.log
    await store.delete(KEY)
    appended = await store.append(KEY, [user("fresh", id=f"{KEY}-0")])

    assert appended.records[0].seq == 1
    assert await texts(store, KEY, after=0) == ["fresh"]
    assert (await existing(store, KEY)).state.log != before


async def test_what_a_deleted_session_was_is_told(store: SessionStore) -> None:
    """Whoever still holds the object can see that it is over."""
    await store.append(KEY, [user("a")])
    held = await existing(store, KEY)
    await store.delete(KEY)

    assert held.retired


async def test_old_sessions_expire(store: SessionStore) -> None:
    """Retention deletes what nobody touched for so long."""
    await exchange(store, KEY, 1)
    await exchange(store, OTHER, 1)
    kept = await store.expire(1)
    expired = await store.expire(-1)

    assert kept == []
    assert {str(key) for key in expired} == {str(KEY), str(OTHER)}
    assert (await store.find()).sessions == []


async def test_sessions_with_work_never_expire(store: SessionStore) -> None:
    """Neither an unanswered message nor an undelivered reply is too old to matter."""
    await store.append(KEY, [user("unanswered")])
    await exchange(store, SLACK, 1)
    async with store.pin(OTHER):
        await exchange(store, OTHER, 1)

        assert await store.expire(-1) == []


async def test_flush_counts(store: SessionStore) -> None:
    """Flush returns how many sessions it made durable and how many failed."""
    await store.append(KEY, [user("a")])
    flushed = await store.flush()

    assert flushed.failed == 0
