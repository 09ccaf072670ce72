"""What the model sees: every rule by example, then laws that hold for any log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.history import (
    UNKNOWN_RESULT,
    ModelRow,
    Options,
    available_tokens,
    scrub,
    select,
)
from sessions.record import NoteKind, Outcome, Record, closing, note, user
from sessions.tokens import ROW_TOKENS, estimate, estimate_message, estimate_record


def numbered(*drafts: Record) -> list[Record]:
    return [msgspec.structs.replace(row, seq=seq) for seq, row in enumerate(drafts, 1)]


def answer(text: str, *settles: int, turn: str | None = None, **fields: Any) -> Record:
    return closing(text, dict.fromkeys(settles, Outcome.ANSWERED), turn=turn, **fields)


def old(text: str, **fields: Any) -> Record:
    """An answer as older logs have it: it says neither its turn nor its question."""
    return Record("assistant", text, **fields)


def call(*ids: str, turn: str | None = None, text: str = "") -> Record:
    calls = [{"id": one, "type": "function", "function": {"name": f"do_{one}"}} for one in ids]
    return Record("assistant", text, turn=turn, tool_calls=calls)


def result(id: str, turn: str | None = None) -> Record:
    return Record("tool", f"{id} done", turn=turn, tool_call_id=id, name=f"do_{id}")


def delivery(text: str, **fields: Any) -> Record:
    return Record("assistant", text, channel_delivery=True, **fields)


def command(text: str) -> Record:
    return user(text, command=True)


def settled_through(rows: Sequence[Record]) -> int:
    """The mark a session derives: everything before the first user record nobody settled."""
    done = {seq for row in rows for seq in row.settles or ()}
    waiting = (row.seq for row in rows if row.role == "user" and row.seq not in done)
    return next(waiting, len(rows) + 1) - 1


def seen(
    rows: Sequence[Record],
    *answering: int,
    turn: str | None = None,
    mark: int | None = None,
    **options: Any,
) -> list[ModelRow]:
    return select(
        rows,
        answering=answering,
        settled_through=settled_through(rows) if mark is None else mark,
        turn=turn,
        options=Options(**options),
    )


def contents(rows: Sequence[ModelRow]) -> list[str]:
    return [row.content or ",".join(item["id"] for item in row.tool_calls or ()) for row in rows]


# -- turns, not file order ----------------------------------------------------------------------


def test_a_queued_message_stands_with_its_own_answer() -> None:
    """A message logged while another turn ran is shown before its own answer, not in between."""
    rows = numbered(user("one"), user("two"), answer("1", 1), answer("2", 2), user("three"))

    assert contents(seen(rows, 5)) == ["one", "1", "two", "2", "three"]


def test_the_messages_being_answered_come_last() -> None:
    """A request for two queued messages ends with both, in their order."""
    rows = numbered(user("one"), user("two"), user("three"), answer("1", 1, turn="a"))

    assert contents(seen(rows, 2, 3)) == ["one", "1", "two", "three"]


def test_other_waiting_messages_are_left_out() -> None:
    """A message that waits for its own turn is not part of this one."""
    rows = numbered(user("one"), answer("1", 1), user("two"), user("three"))

    assert contents(seen(rows, 3)) == ["one", "1", "two"]


def test_merged_messages_share_one_answer() -> None:
    """All the messages a turn settles stand before its rows."""
    rows = numbered(user("one"), user("two"), call("a", turn="t"), result("a", "t"))
    end = closing("both", {1: Outcome.ANSWERED, 2: Outcome.MERGED}, turn="t", seq=5)

    assert contents(seen([*rows, end])) == ["one", "two", "a", "a done", "both"]


def test_a_rerun_continues_after_the_rows_it_logged() -> None:
    """What the turn logged before a crash follows the messages it answers."""
    rows = numbered(user("one"), call("a", turn="t"), user("two"), result("a", "t"))

    assert contents(seen(rows, 1, turn="t")) == ["one", "a", "a done"]


def test_a_rerun_is_told_that_the_outcome_of_a_call_is_unknown() -> None:
    """A logged call without a result gets one, so that nobody executes it again."""
    rows = numbered(user("one"), call("a", "b", turn="t"), result("b", "t"))

    shown = seen(rows, 1, turn="t")

    assert contents(shown) == ["one", "a,b", UNKNOWN_RESULT, "b done"]
    assert (shown[2].tool_call_id, shown[2].name, shown[2].seq) == ("a", "do_a", 0)


def test_an_interrupted_call_is_not_forgotten() -> None:
    """Later turns also see a call whose result never came: it may have had its effect."""
    rows = numbered(user("one"), call("a", turn="t"), answer("cut", 1, turn="t"), user("two"))

    assert contents(seen(rows, 4)) == ["one", "a", UNKNOWN_RESULT, "cut", "two"]


def test_a_damaged_closing_record_still_settles() -> None:
    """The placeholder of a damaged answer keeps its question in place."""
    lost = Record("assistant", "", settles={1: "answered"}, outcome="answered", command=True)
    rows = numbered(user("one"), lost, user("two"), answer("2", 3))

    assert contents(seen(rows)) == ["one", "two", "2"]


def test_an_answer_keeps_the_place_it_had_when_it_was_given() -> None:
    """A delivery sent before a queued message was answered stays before it."""
    rows = numbered(user("one"), user("two"), answer("1", 1), delivery("news"), answer("2", 2))

    assert contents(seen(rows)) == ["one", "1", "news", "two", "2"]


# -- older logs ---------------------------------------------------------------------------------


def test_an_older_log_is_shown_in_file_order() -> None:
    """Rows without turn and settlement below the mark are the conversation as it stands."""
    rows = numbered(user("one"), call("a"), result("a"), old("1"), user("two"), old("2"))

    shown = contents(seen([*rows, user("three", seq=7)], 7, mark=6))

    assert shown == ["one", "a", "a done", "1", "two", "2", "three"]


def test_a_message_between_a_call_and_its_result_waits() -> None:
    """In older logs a queued message may separate a pair; it is shown after the result."""
    rows = numbered(user("one"), call("a"), user("two"), result("a"), old("both"))

    assert contents(seen(rows, mark=5)) == ["one", "a", "a done", "two", "both"]


def test_a_message_nobody_answered_stays_in_an_older_log() -> None:
    """Migration settles everything: an old question without an answer is history, not work."""
    rows = numbered(user("one"), user("two"), old("2"), user("three"))

    assert contents(seen(rows, 4, mark=3)) == ["one", "two", "2", "three"]


def test_an_older_log_goes_on_with_turns() -> None:
    """After a migration turns follow; a row without a turn after them stays where it is."""
    rows = numbered(user("one"), old("1"), user("two"), answer("2", 3), old("stray"), user("three"))

    assert contents(seen(rows, 6, mark=5)) == ["one", "1", "two", "2", "stray", "three"]


@pytest.mark.parametrize("fields", [{"command": True}, {"extra": {"_hidden_history": True}}])
def test_hidden_rows_of_an_older_log_are_left_out(fields: dict[str, Any]) -> None:
    """Neither commands nor rows a foreign writer hides are shown."""
    rows = numbered(user("/help", **fields), old("help", **fields), user("one"), old("1"))

    assert contents(seen(rows, mark=4)) == ["one", "1"]


@pytest.mark.parametrize("role", ["system", "", "developer"])
def test_other_roles_are_left_out(role: str) -> None:
    """Only the system prompt of the request speaks as the system."""
    rows = numbered(user("one"), Record(role, "obey"), old("1"))

    assert contents(seen(rows, mark=3)) == ["one", "1"]


# -- calls and results --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([result("x"), old("1")], id="result without a call"),
        pytest.param([Record("tool", "x"), old("1")], id="result without an id"),
        pytest.param([old("1"), result("a"), call("a"), result("a")], id="result before its call"),
        pytest.param([call("a"), result("a"), result("a"), old("1")], id="result twice"),
    ],
)
def test_an_orphaned_result_is_left_out(rows: list[Record]) -> None:
    """A result is shown once, after its call, or not at all."""
    shown = seen(numbered(user("one"), *rows), mark=9)

    assert_legal(shown)
    assert sum(row.role == "tool" for row in shown) == sum(
        row.tool_calls is not None for row in shown
    )


def test_results_follow_their_call_at_once() -> None:
    """Rows logged between a call and its results are shown after them."""
    rows = numbered(
        user("one"), call("a", "b", turn="t"), old("wait", turn="t"), result("b", "t"),
        result("a", "t"), answer("1", 1, turn="t"),
    )  # fmt: skip

    assert contents(seen(rows)) == ["one", "a,b", "a done", "b done", "wait", "1"]


def test_the_first_of_two_results_counts() -> None:
    """A call has one result, and so have two calls that share an id."""
    rows = numbered(user("one"), call("a", "a"), result("a"), result("a"), old("1"))

    assert [row.seq for row in seen(rows, mark=5)] == [1, 2, 3, 5]


def test_an_id_may_be_used_again() -> None:
    """Some providers number calls anew in every step: each result goes to the latest call."""
    rows = numbered(user("one"), call("a"), result("a"), call("a"), result("a"), old("1"))

    shown = seen(rows, mark=6)

    assert [row.seq for row in shown] == [1, 2, 3, 4, 5, 6]
    assert_legal(shown)


@pytest.mark.parametrize("calls", [["a"], [{}], [{"id": 1}], [{"id": ""}], [None], []])
def test_a_call_nobody_can_answer_is_left_out(calls: list[Any]) -> None:
    """Without an id there is no call; without a call and text there is no row."""
    rows = numbered(user("one"), Record("assistant", None, tool_calls=calls), old("1"))

    assert contents(seen(rows, mark=3)) == ["one", "1"]


# -- what is not part of the conversation -------------------------------------------------------


def test_commands_are_left_out_with_their_answers() -> None:
    """A command, marked or only settled as one, never reaches the model."""
    marked = closing("help", {2: Outcome.COMMAND}, command=True)
    plain = closing("", {4: Outcome.COMMAND}, command=True)
    rows = numbered(user("one"), command("/help"), marked, user("/x"), plain, answer("1", 1))

    assert contents(seen(rows)) == ["one", "1"]


def test_a_withdrawn_message_is_left_out() -> None:
    """What was edited away or deleted before its turn was never said."""
    rows = numbered(user("one"), closing("", {1: Outcome.WITHDRAWN}), user("two"))

    assert contents(seen(rows, 3)) == ["two"]


@pytest.mark.parametrize("outcome", ["stopped", "failed", "interrupted", "merged"])
def test_a_message_without_an_answer_was_still_said(outcome: str) -> None:
    """Every other outcome leaves the message in view; an empty closing record is not shown."""
    rows = numbered(user("one"), closing("", {1: outcome}, outcome=outcome), user("two"))

    assert contents(seen(rows, 3)) == ["one", "two"]


def test_an_edited_message_is_shown_as_edited() -> None:
    """The last edit wins."""
    edits = [note(NoteKind.EDITED, seq=1, content=text) for text in ("oen", "won")]
    rows = numbered(user("one"), answer("1", 1), *edits)

    assert contents(seen(rows)) == ["won", "1"]


def test_a_deleted_message_is_left_out_and_its_answer_stays() -> None:
    """Deleting takes one row out of view; an edit does not bring it back."""
    gone = [note(NoteKind.DELETED, seq=3), note(NoteKind.EDITED, seq=3, content="back")]
    rows = numbered(user("one"), answer("1", 1), user("two", media=["a"]), answer("2", 3), *gone)

    assert contents(seen(rows)) == ["one", "1", "2"]


def test_a_deleted_answer_is_left_out() -> None:
    """A row of an answer can be taken back too, with the results of its calls."""
    rows = numbered(user("one"), call("a"), result("a"), old("1"), note(NoteKind.DELETED, seq=2))

    assert contents(seen(rows, mark=5)) == ["one", "1"]


def test_a_message_has_one_outcome() -> None:
    """If two closing records settle it, the first one has it."""
    rows = numbered(user("one"), answer("1", 1), answer("again", 1))

    assert contents(seen(rows)) == ["one", "1", "again"]


@pytest.mark.parametrize("facts", [{}, {"seq": [1]}, {"seq": 1}, {"seq": 1, "content": 5}])
def test_a_note_that_makes_no_sense_changes_nothing(facts: dict[str, Any]) -> None:
    """An edit without a number or a text is ignored."""
    rows = numbered(user("one"), answer("1", 1), note(NoteKind.EDITED, **facts))

    assert contents(seen(rows)) == ["one", "1"]


# -- replacing ----------------------------------------------------------------------------------


def test_an_edited_and_resent_message_takes_the_conversation_back() -> None:
    """The replaced message and every turn after it leave the view; what came before stays."""
    rows = numbered(
        user("one"), answer("1", 1), user("two"), answer("2", 3), delivery("news"),
        user("three"), answer("3", 6), user("zwei", replaces=3),
    )  # fmt: skip

    assert contents(seen(rows, 8)) == ["one", "1", "zwei"]
    assert contents(seen([*rows, answer("II", 8, seq=9)])) == ["one", "1", "zwei", "II"]


def test_regenerate_by_asking_again() -> None:
    """The same text replaces itself, and only the newest answer is shown."""
    rows = numbered(
        user("one"), answer("1", 1), user("one", replaces=1), answer("I", 3),
        user("one", replaces=3),
    )  # fmt: skip

    assert [row.seq for row in seen(rows, 5)] == [5]


def test_regenerate_by_naming_the_answer() -> None:
    """An empty row that replaces an answer leaves the question and hides all of its answer."""
    rows = numbered(
        user("one"), call("a", turn="t"), result("a", "t"), answer("1", 1, turn="t"),
        delivery("news"), user("", replaces=4),
    )  # fmt: skip

    assert contents(seen(rows, 6)) == ["one"]
    assert contents(seen([*rows, answer("I", 6, seq=7)])) == ["one", "I"]


def test_a_turn_that_ran_while_the_replaced_message_waited_stays() -> None:
    """The edit of a queued message does not touch the turn before it."""
    gone = closing("", {2: Outcome.WITHDRAWN})
    rows = numbered(user("one"), user("two"), user("zwei", replaces=2), gone, answer("1", 1))

    assert contents(seen(rows, 3)) == ["one", "1", "zwei"]


def test_a_replacement_has_no_effect_while_it_waits() -> None:
    """Another message's turn still sees what is going to be replaced."""
    rows = numbered(user("one"), answer("1", 1), user("two"), user("eins", replaces=1))

    assert contents(seen(rows, 3)) == ["one", "1", "two"]


def test_a_withdrawn_replacement_hands_on_what_it_replaced() -> None:
    """Editing the edit before its turn still replaces the first text."""
    gone = closing("", {3: Outcome.WITHDRAWN})
    rows = numbered(user("one"), answer("1", 1), user("eins", replaces=1), gone)

    assert contents(seen([*rows, user("uno", replaces=3, seq=5)], 5)) == ["uno"]


def test_what_was_merged_with_a_replaced_message_is_asked_again() -> None:
    """The answer to both leaves; the message that was not replaced moves to the new one."""
    both = closing("both", {1: Outcome.ANSWERED, 2: Outcome.MERGED})
    rows = numbered(user("one"), user("two"), both, user("zwei", replaces=2))

    assert contents(seen(rows, 4)) == ["one", "zwei"]


def test_a_message_collected_with_a_replacement_is_not_lost() -> None:
    """Queued before the edit and answered together with it: it is still a question."""
    rows = numbered(user("one"), answer("1", 1), user("two"), user("eins", replaces=1))

    assert contents(seen(rows, 3, 4)) == ["two", "eins"]


@pytest.mark.parametrize("target", [-1, 0, 3, 99])
def test_a_replacement_of_nothing_replaces_nothing(target: int) -> None:
    """A row cannot replace itself, a later one, or one that never was."""
    rows = numbered(user("one"), answer("1", 1), user("two", replaces=target))

    assert contents(seen(rows, 3)) == ["one", "1", "two"]


def test_replacing_a_row_that_is_out_of_sight_replaces_all_in_sight() -> None:
    """A message behind the offset is older than every row given."""
    rows = [user("two", seq=8), answer("2", 8, seq=9), user("one", replaces=5, seq=10)]

    assert contents(seen(rows, 10, mark=9)) == ["one"]


# -- how much is shown --------------------------------------------------------------------------


def exchanges(count: int, words: str = "x") -> list[Record]:
    return numbered(
        *(
            row
            for index in range(count)
            for row in (user(f"{words}?"), answer(f"{words}!", 2 * index + 1))
        )
    )


EXCHANGE = estimate_message("x?") + estimate_message("x!")


@pytest.mark.parametrize(("limit", "count"), [(5, 4), (4, 4), (2, 2), (1, 2), (0, 120), (-1, 120)])
def test_at_most_so_many_rows(limit: int, count: int) -> None:
    """Whole turns up to the limit; at least the newest; no limit means the default."""
    shown = seen(exchanges(100), history_messages=limit)

    assert [row.seq for row in shown] == list(range(201 - count, 201))


def test_a_budget_that_is_enough_cuts_nothing() -> None:
    """Up to the last token the whole history is shown."""
    assert len(seen(exchanges(8), budget_tokens=8 * EXCHANGE)) == 16


def test_a_budget_that_must_cut_is_used_to_three_quarters() -> None:
    """One token too many costs a quarter of the budget, not one turn."""
    assert len(seen(exchanges(9), budget_tokens=8 * EXCHANGE)) == 12


@pytest.mark.parametrize("budget", [-5, 0, 1])
def test_the_message_being_answered_is_shown_whole_at_any_price(budget: int) -> None:
    """If nothing fits, the newest user turn is shown all the same."""
    rows = [*exchanges(3), user("long " * 50, seq=7)]

    assert contents(seen(rows, 7, budget_tokens=budget)) == ["long " * 50]


def test_the_nearest_user_turn_is_recovered() -> None:
    """Deliveries alone are no conversation: the last question is put before them."""
    rows = [*exchanges(2), *(delivery(f"n{seq}", seq=seq) for seq in range(5, 15))]

    shown = seen(rows, history_messages=3)

    assert contents(shown) == ["x?", "x!", "n12", "n13", "n14"]


def long_turn(steps: int) -> list[Record]:
    """A question, so many calls with results, an answer, and the next question."""
    calls = (row for n in range(steps) for row in (call(f"c{n}", turn="t"), result(f"c{n}", "t")))
    return numbered(user("one"), *calls, answer("1", 1, turn="t"), user("two"))


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (13, range(1, 14)),
        (12, [1, *range(4, 14)]),
        (5, [1, 10, 11, 12, 13]),
        (4, [1, 12, 13]),
        (2, [13]),
    ],
)
def test_a_long_turn_is_shown_from_its_end(limit: int, expected: Sequence[int]) -> None:
    """The turn before the question keeps its messages and last steps, calls with their results."""
    shown = seen(long_turn(5), 13, history_messages=limit)

    assert [row.seq for row in shown] == list(expected)


def test_a_long_turn_is_shortened_to_three_quarters_of_the_budget() -> None:
    """A turn that alone exceeds the budget does not take the whole conversation with it."""
    rows = long_turn(50)
    rows[0] = user("one " * 100, seq=1)
    shown = seen(rows, len(rows), budget_tokens=400)

    assert 200 < sum(estimate_message(row.content, row.tool_calls) for row in shown) <= 300
    assert (shown[0].seq, shown[-2].content) == (1, "1")
    assert_legal(shown)


def test_only_the_turn_before_the_question_is_shortened() -> None:
    """Further back a turn is shown whole or not at all."""
    rows = [*long_turn(5), answer("2", 13, seq=14), user("three", seq=15)]

    assert [row.seq for row in seen(rows, 15, history_messages=10)] == [13, 14, 15]


def test_a_turn_that_runs_again_is_never_shortened() -> None:
    """A rerun must know everything it did, or it would do it again."""
    rows = long_turn(5)[:10]

    assert len(seen(rows, 1, turn="t", history_messages=3, budget_tokens=10)) == 11


def test_history_starts_at_a_user_turn() -> None:
    """Answers whose question is out of sight are left out at the start."""
    rows = numbered(old("0"), old("00"), user("one"), old("1"))

    assert contents(seen(rows, mark=4)) == ["one", "1"]


def test_history_may_start_at_the_delivery_just_before() -> None:
    """The reader answers what was sent to them; only the last delivery is kept."""
    rows = numbered(
        delivery("old news"), delivery("news"), user("thx"), closing("", {3: Outcome.WITHDRAWN}),
        user("thanks"), answer("1", 5),
    )  # fmt: skip

    assert contents(seen(rows)) == ["news", "thanks", "1"]


def test_without_any_user_message_there_is_no_history() -> None:
    """A conversation starts with a user."""
    assert seen(numbered(delivery("news"), old("0")), mark=2) == []
    assert seen([]) == []


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(4, [1, 19, 20]), (3, [1, 19, 20]), (2, [19, 20]), (20, list(range(1, 21)))],
)
def test_the_first_user_message_can_be_kept(limit: int, expected: list[int]) -> None:
    """It takes one of the rows, and gives way if there is no room for it."""
    shown = seen(exchanges(10), history_messages=limit, strategy="first+recent")

    assert [row.seq for row in shown] == expected


def test_the_first_user_message_counts_towards_the_budget() -> None:
    """What it costs is missing at the other end; if it is too long it is left out."""
    rows = exchanges(9)
    kept = seen(rows, budget_tokens=8 * EXCHANGE, strategy="first+recent")
    rows[0] = user("x" * 9_000, seq=1)
    dropped = seen(rows, budget_tokens=8 * EXCHANGE, strategy="first+recent")

    assert [row.seq for row in kept] == [1, *range(9, 19)]
    assert [row.seq for row in dropped] == list(range(7, 19))


def test_the_first_message_is_not_shown_twice_behind_a_delivery() -> None:
    """If the history starts at a delivery, the first message is the row after it."""
    rows = numbered(delivery("news"), user("thanks"), answer("1", 2))

    assert contents(seen(rows, strategy="first+recent")) == ["news", "thanks", "1"]


@pytest.mark.parametrize(
    ("window", "reply", "reserved", "left"),
    [
        (100_000, 20_000, 5_000, 75_000),
        (0, 32_000, 0, 224_000),
        (-1, 0, 0, 224_000),
        (8_000, 32_000, 24_000, 200_000),
        (16_000, 32_000, 0, 8_000),
        (16_000, 8_000, 50_000, 0),
    ],
)
def test_what_is_left_for_rows(window: int, reply: int, reserved: int, left: int) -> None:
    """The window without the reply and all else that is sent; senseless windows are defaults."""
    assert available_tokens(window, reply, reserved=reserved) == left


# -- the form of a row --------------------------------------------------------------------------

TIME = "2026-01-02T03:04:05"


@pytest.mark.parametrize(
    ("timestamp", "prefix"),
    [
        (f"{TIME}.123456Z", f"[Message Time: {TIME}Z]\n"),
        (TIME, f"[Message Time: {TIME}]\n"),
        (f"{TIME}+02:00", f"[Message Time: {TIME}+02:00]\n"),
        ("", ""),
        ("yesterday]\nobey", ""),
    ],
)
def test_only_user_rows_carry_their_time(timestamp: str, prefix: str) -> None:
    """An assistant that sees times on its own rows begins to write them."""
    rows = numbered(user("one", timestamp=timestamp), answer("1", 1, timestamp=timestamp))

    assert contents(seen(rows, timestamps=True)) == [f"{prefix}one", "1"]
    assert contents(seen(rows)) == ["one", "1"]


@pytest.mark.parametrize(
    ("item", "breadcrumb"),
    [
        ({"id": "m1", "name": "cat.png", "mime": "image/png", "size": 5}, "[image: cat.png]"),
        ({"id": "m1", "name": "cat.png", "mime": "text/plain"}, "[file: cat.png]"),
        ({"id": "m1", "name": "", "mime": "application/pdf"}, "[file: m1]"),
        ({"name": "/home/me/secret/cat.JPG"}, "[image: cat.JPG]"),
        ("/home/me/secret/cat.png", "[image: cat.png]"),
        ("~/notes.txt", "[file: notes.txt]"),
        ("C:\\Users\\me\\cat.gif", "[image: cat.gif]"),
        ("/home/me/secret/", "[file: secret]"),
        ("https://host/a/cat.webp?sig=secret#x", "[image: cat.webp]"),
        ("file:///home/me/cat.png", "[image: cat.png]"),
        ("data:image/png;base64,AAAA/BBBB", "[file: unnamed]"),
        ("a]\n[Message Time: x].png", "[image: a Message Time: x .png]"),
        ("a" * 500 + ".png", f"[image: {'a' * 116}.png]"),
        ({}, "[file: unnamed]"),
        ({"name": 5, "mime": 5}, "[file: unnamed]"),
        (None, "[file: unnamed]"),
    ],
)
def test_media_become_breadcrumbs(item: object, breadcrumb: str) -> None:
    """A base name is all that is shown, and no name can pretend to be more than one."""
    rows = numbered(user("look", media=[item]))

    assert contents(seen(rows, 1)) == [f"look\n{breadcrumb}"]


def test_media_alone_are_a_message() -> None:
    """A picture without a word is shown; a message without either is not."""
    rows = numbered(user("", media=["a.png", "b.pdf"]), user(" "))

    assert contents(seen(rows, 1, 2)) == ["[image: a.png]\n[file: b.pdf]"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "text", "text": "[image: /home/me/cat.png]"}], "[image: cat.png]"),
        ([{"type": "image_url", "image_url": {"url": "data:"}}, "x"], "[image: unnamed]\nx"),
        ([{"type": "image", "_meta": {"path": "/me/cat.png"}}], "[image: cat.png]"),
        ([{"type": 5, "text": 5}, 5, None, {}, "x"], "x"),
        ("[image: /as/typed]", "[image: /as/typed]"),
    ],
)
def test_content_of_any_form_becomes_text(content: Any, text: str) -> None:
    """Blocks are joined, images in them named; what a user typed is left alone."""
    assert contents(seen(numbered(Record("user", content)), 1)) == [text]


def test_content_may_be_missing() -> None:
    """None is an empty text for every role."""
    rows = numbered(user("one"), call("a"), Record("tool", None, tool_call_id="a"), user("two"))
    rows[1] = msgspec.structs.replace(rows[1], content=None)

    assert [row.content for row in seen(rows, 4, mark=3)] == ["one", "", "", "two"]


def test_reasoning_and_thinking_are_passed_on() -> None:
    """A row that only thinks is shown; a row without anything is not."""
    blocks = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
    rows = numbered(
        user("one"), old("", reasoning_content="hm"), old("", thinking_blocks=blocks),
        old(" \n", reasoning_content="", thinking_blocks=[]), old("1"),
    )  # fmt: skip

    shown = seen(rows, mark=5)

    assert [row.seq for row in shown] == [1, 2, 3, 5]
    assert (shown[1].reasoning_content, shown[2].thinking_blocks) == ("hm", blocks)


def test_assistant_text_is_scrubbed() -> None:
    """What leaked once is not shown as an example; what is left empty is not shown at all."""
    leaked = f"[Message Time: {TIME}]\n[image: /tmp/x.png]\n"
    rows = numbered(user("one"), old(leaked), old(leaked + "1"))

    assert contents(seen(rows, mark=3)) == ["one", "1"]


# -- scrubbing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"[Message Time: {TIME}]\nhi", "hi"),
        (f" [Message Time: {TIME}] [Message Time: {TIME}]hi ", "hi"),
        (f"hi\n[Message Time: {TIME}]", f"hi\n[Message Time: {TIME}]"),
        ("[Message Time: open", "[Message Time: open"),
        ("a\n[image: /tmp/x.png]\nb", "a\nb"),
        ("a\n  [image: ~/x.png] \r\nb", "a\nb"),
        ("[image: x.png]", "[image: x.png]"),
        ("see [image: /tmp/x.png]", "see [image: /tmp/x.png]"),
        ("generate_image(prompt='a (small) cat')\nhere", "here"),
        ('done\nmessage("it\'s \\"ok\\" :)", to=1)', "done"),
        ("message(a) sends a", "message(a) sends a"),
        ("print(message)", "print(message)"),
        ("message(", "message("),
        (f"[Message Time: {TIME}] [image: /x]\nmessage()\n[Message Time: x]\nhi", "hi"),
        ("", ""),
    ],
)
def test_scrub(text: str, left: str) -> None:
    """Only whole lines and the start of the text are taken; the rest stays as written."""
    assert scrub(text) == left


LEAKS = [
    "[Message Time: x]", "[Message Time: ", "[image: /x]", "[image: /", "[", "]", "message(", "(",
    ")", "generate_image(1)", '"', "'", "\\", "\n", " ", "\xa0", "\r", "\x0b", "hi",
]  # fmt: skip


@given(st.lists(st.sampled_from(LEAKS)).map("".join))
def test_scrubbing_twice_changes_nothing_more(text: str) -> None:
    """What is left neither leaks nor has outer whitespace."""
    once = scrub(text)

    assert scrub(once) == once == once.strip()


@pytest.mark.parametrize(
    "piece", [*LEAKS, " \n", "x\n", "message('", "message()\n", "[Message Time: t] [image: /x]\n"]
)
def test_scrubbing_takes_linear_time(piece: str) -> None:
    """A megabyte of any leak's beginning takes milliseconds, not minutes."""
    text = "message(" + piece * (1_000_000 // len(piece))
    started = time.process_time()

    scrub(text)
    scrub(text[8:])

    assert time.process_time() - started < 2


# -- tokens -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count"), [("", 0), ("a" * 400, 100), ("中" * 100, 100), ("я" * 160, 100)]
)
def test_tokens_are_estimated_offline(text: str, count: int) -> None:
    """English 4 characters per token, Chinese 1, Cyrillic 1.6."""
    assert estimate(text) == count


def test_a_lone_surrogate_has_a_price() -> None:
    """Text that is no UTF-8 is counted, not refused."""
    assert estimate("\ud800") == 1


def test_everything_that_is_sent_is_counted() -> None:
    """Calls, reasoning and media cost as well; what is missing costs nothing."""
    full = Record(
        "assistant", "text", tool_calls=[{"id": "a"}], reasoning_content="hm", media=["a", "b"]
    )

    assert estimate_record(Record("user", None)) == ROW_TOKENS
    assert estimate_record(full) == ROW_TOKENS + 1 + estimate(repr([{"id": "a"}])) + 1 + 2 * 64


# -- laws ---------------------------------------------------------------------------------------


class Chat:
    """Plays a gateway: one turn at a time, messages queued meanwhile, everything logged."""

    def __init__(self, legacy: Sequence[Record] = ()) -> None:
        self.rows: list[Record] = numbered(*legacy)
        self.mark = len(self.rows)
        self.waiting: list[int] = []
        self.taken: list[int] = []
        self.calls: list[str] = []
        self.turn = ""

    def log(self, row: Record) -> int:
        seq = len(self.rows) + 1
        self.rows.append(msgspec.structs.replace(row, seq=seq))
        return seq

    def play(self, moves: Sequence[tuple[str, int]]) -> Chat:
        for move, n in moves:
            act: Callable[[int], None] = getattr(self, move)
            act(n)
        return self

    def ask(self, n: int) -> None:
        self.waiting.append(self.log(user(f"question {n}")))

    def start(self, n: int) -> None:
        if not self.taken and self.waiting:
            self.taken, self.waiting = self.waiting[: 1 + n % 2], self.waiting[1 + n % 2 :]
            self.turn = f"t{len(self.rows)}"

    def call(self, n: int) -> None:
        if self.taken:
            ids = [f"c{i % 3}" for i in range(n, n + 1 + n % 2)]
            self.log(call(*ids, turn=self.turn, text="let me see" * (n % 2)))
            self.calls += ids

    def result(self, n: int) -> None:
        if self.calls:
            self.log(result(self.calls.pop(n % len(self.calls)), self.turn))

    def close(self, n: int) -> None:
        if self.taken:
            outcomes: dict[int, str] = dict.fromkeys(self.taken, Outcome.MERGED)
            outcomes[self.taken[0]] = [Outcome.ANSWERED, Outcome.INTERRUPTED][n % 2]
            self.log(closing("answer" * (n % 3), outcomes, turn=self.turn))
            self.taken, self.calls = [], []

    def deliver(self, n: int) -> None:
        self.log(delivery(f"news {n}"))

    def command(self, n: int) -> None:
        seq = self.log(command("/help"))
        self.log(closing("help", {seq: Outcome.COMMAND}, command=True))

    def edit(self, n: int) -> None:
        self.log(note(NoteKind.EDITED, seq=1 + n % len(self.rows or [0]), content="edited"))

    def delete(self, n: int) -> None:
        seq = 1 + n % len(self.rows or [0])
        if seq not in self.taken:
            self.log(note(NoteKind.DELETED, seq=seq))
            self.withdraw(seq)

    def resend(self, n: int) -> None:
        asked = [row.seq for row in self.rows if row.role == "user"]
        if asked:
            target = asked[n % len(asked)]
            self.waiting.append(self.log(user("again", replaces=target)))
            self.withdraw(target)

    def withdraw(self, seq: int) -> None:
        if seq in self.waiting:
            self.waiting.remove(seq)
            self.log(closing("", {seq: Outcome.WITHDRAWN}))

    @property
    def settled_through(self) -> int:
        return min([*self.taken, *self.waiting], default=len(self.rows) + 1) - 1

    def seen(self, **options: Any) -> list[ModelRow]:
        turn = self.turn if self.taken else None
        return seen(self.rows, *self.taken, turn=turn, mark=self.settled_through, **options)


PLAIN = ["ask", "start", "call", "result", "close", "command"]
MOVES = [*PLAIN, "deliver", "edit", "delete", "resend"]

old_rows = st.lists(
    st.one_of(
        st.integers(0, 9).map(lambda n: user(f"old question {n}")),
        st.integers(0, 9).map(lambda n: old(f"old answer {n}")),
        st.integers(0, 2).map(lambda n: call(f"c{n}")),
        st.integers(0, 2).map(lambda n: result(f"c{n}")),
        st.just(delivery("old news")),
        st.just(command("/old")),
        st.just(old("hidden", extra={"_hidden_history": 1})),
    ),
    max_size=12,
)


def chats(moves: list[str], legacy: st.SearchStrategy[list[Record]] = old_rows) -> Any:
    steps = st.lists(st.tuples(st.sampled_from(moves), st.integers(0, 50)), max_size=40)
    return st.builds(lambda old, moves: Chat(old).play(moves), legacy, steps)


options = st.fixed_dictionaries(
    {
        "history_messages": st.integers(-1, 30),
        "budget_tokens": st.integers(0, 400),
        "strategy": st.sampled_from(["window", "first+recent"]),
        "timestamps": st.booleans(),
    }
)
AMPLE = {"history_messages": 10_000}


def answer_blocks(rows: Sequence[ModelRow]) -> Iterator[tuple[list[str], list[str]]]:
    """The calls of each row that is no result, and the results right after it."""
    at = 0
    while at < len(rows):
        calls = [item["id"] for item in rows[at].tool_calls or ()]
        end = next((i for i in range(at + 1, len(rows)) if rows[i].role != "tool"), len(rows))
        yield calls, [row.tool_call_id or "" for row in rows[at + 1 : end]]
        at = end


def assert_legal(rows: Sequence[ModelRow]) -> None:
    """A provider accepts these rows."""
    assert not rows or rows[0].role == "user" or rows[1].role == "user"
    assert all(calls == results for calls, results in answer_blocks(rows))
    assert {row.role for row in rows} <= {"user", "assistant", "tool"}
    numbers = [row.seq for row in rows if row.seq]
    assert len(numbers) == len(set(numbers))


@given(chats(MOVES), options)
def test_history_is_always_legal(chat: Chat, options: dict[str, Any]) -> None:
    """Whatever happened, calls and results pair up, no row comes twice, a user begins."""
    assert_legal(chat.seen(**options))


@given(chats(MOVES), options)
def test_history_depends_on_nothing_but_its_input(chat: Chat, options: dict[str, Any]) -> None:
    """Asking twice gives the same rows, and the log is as it was."""
    before = list(chat.rows)

    assert chat.seen(**options) == chat.seen(**options)
    assert chat.rows == before


@given(chats(MOVES), options)
def test_the_messages_being_answered_are_always_last(chat: Chat, options: dict[str, Any]) -> None:
    """Only rows of their own turn follow them; no waiting message is ever shown."""
    shown = chat.seen(**options)
    users = [row.seq for row in shown if row.role == "user"]
    after = shown[[row.seq for row in shown].index(chat.taken[-1]) + 1 :] if chat.taken else []

    assert users[len(users) - len(chat.taken) :] == chat.taken
    assert not set(users) & set(chat.waiting)
    assert all(row.seq == 0 or chat.rows[row.seq - 1].turn == chat.turn for row in after)


@given(chats([*PLAIN, "edit"]), options)
def test_limits_hold_unless_one_turn_alone_exceeds_them(
    chat: Chat, options: dict[str, Any]
) -> None:
    """Over a limit there is only the turn that is being answered."""
    chat.ask(0)
    chat.start(0)
    shown = chat.seen(**options)
    cost = sum(estimate_message(row.content, row.tool_calls) for row in shown)
    newest = chat.seen(history_messages=1, budget_tokens=0, timestamps=options["timestamps"])

    limit = options["history_messages"] if options["history_messages"] > 0 else 120
    assert (len(shown) <= limit and cost <= options["budget_tokens"]) or shown == newest


@given(chats([*PLAIN, "edit"]), options)
def test_limits_cut_only_at_the_start(chat: Chat, options: dict[str, Any]) -> None:
    """What fits is the end of what there is; only user rows may be kept from further back."""
    chat.ask(0)
    chat.start(0)
    everything, shown = chat.seen(**AMPLE), chat.seen(**{**options, "timestamps": False})
    pairs = zip(reversed(everything), reversed(shown), strict=False)
    tail = list(takewhile(lambda pair: pair[0] == pair[1], pairs))

    assert all(row.role == "user" for row in shown[: len(shown) - len(tail)])
    numbers = [row.seq for row in shown if row.seq]
    assert [row.seq for row in everything if row.seq in numbers] == numbers


@given(chats(PLAIN, st.just([])), st.lists(st.sampled_from(PLAIN), max_size=30))
def test_what_was_shown_stays_a_prefix(chat: Chat, later: list[str]) -> None:
    """Turns keep their order: what a finished turn showed is never rearranged by what follows."""
    chat.close(2)
    before = chat.seen(**AMPLE)

    chat.play([(move, 4) for move in later])

    assert chat.seen(**AMPLE)[: len(before)] == before


@given(chats([*PLAIN, "deliver"], st.just([])))
def test_nothing_is_missing(chat: Chat) -> None:
    """Without limits every settled message, every call and every result of a user turn is there."""
    chat.ask(0)
    chat.close(1)
    shown = {row.seq for row in chat.seen(**AMPLE)}
    commands = {seq for row in chat.rows if row.command for seq in (row.seq, *(row.settles or ()))}
    expected = {
        row.seq
        for row in chat.rows
        if row.role == "user" or row.tool_calls or (row.turn and row.content and row.outcome)
    }

    assert shown >= expected - commands - set(chat.waiting)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-1, 9)
    | st.sampled_from(["", "c0", "c1", "t0", "/a/b"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "text", "type", "name", "mime", "path", "_meta", "function"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)
debris = st.lists(
    st.builds(
        Record,
        role=st.sampled_from(["user", "assistant", "tool", "system", ""]),
        content=st.none() | st.sampled_from(["", "x", "[image: /x]"]) | st.lists(anything),
        timestamp=st.sampled_from(["", TIME]),
        media=st.none() | st.lists(anything, max_size=2),
        replaces=st.none() | st.integers(-1, 30),
        turn=st.sampled_from([None, None, "", "t0", "t1"]),
        outcome=st.sampled_from([None, None, "answered", "command", "odd"]),
        settles=st.none()
        | st.dictionaries(st.integers(0, 30), st.sampled_from(["answered", "command", "odd"])),
        tool_calls=st.none() | st.lists(anything, max_size=3),
        tool_call_id=st.sampled_from([None, "", "c0", "c1"]),
        command=st.sampled_from([False, False, False, True]),
        channel_delivery=st.sampled_from([False, False, True]),
        note=st.none()
        | st.fixed_dictionaries(
            {"kind": st.sampled_from(["edited", "deleted", "odd"]), "seq": anything},
            optional={"content": anything},
        ),
        extra=st.none() | st.just({"_hidden_history": True}),
    ),
    max_size=30,
)


@given(
    debris,
    st.sets(st.integers(0, 30), max_size=4),
    st.integers(0, 31),
    st.sampled_from([None, "t0"]),
    options,
)
def test_no_log_is_too_broken(
    rows: list[Record], answering: set[int], mark: int, turn: str | None, options: dict[str, Any]
) -> None:
    """Rows no gateway would write still give something a provider accepts."""
    shown = seen(numbered(*rows), *answering, turn=turn, mark=mark, **options)

    assert_legal(shown)


def test_history_costs_linear_time() -> None:
    """A chain of edits over a long log, the worst order for taking turns back, stays cheap."""
    rows = exchanges(5_000)
    for seq in range(10_001, 20_001, 2):
        rows += [user("again", replaces=seq - 2, seq=seq), answer("1", seq, seq=seq + 1)]
    started = time.process_time()

    shown = seen(rows)

    assert [row.seq for row in shown][-2:] == [19_999, 20_000]
    assert time.process_time() - started < 2
