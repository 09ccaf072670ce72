"""What becomes of the lines of a nanobot session file."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions import clock, loader, nanobot
from sessions.key import SessionKey
from sessions.loader import Loaded
from sessions.session import Session, read_state
from tests.support import seed_reader

FIXTURES = Path(__file__).parents[1] / "fixtures" / "nanobot"
FILES = sorted(FIXTURES.rglob("*.jsonl"))
KEY = SessionKey("telegram", "1")
MODIFIED = "2026-01-02T03:04:05.000000Z"

WRITTEN_BY_NANOBOT = pytest.mark.parametrize(
    "path", FILES, ids=[f"{path.relative_to(FIXTURES)}" for path in FILES]
)


def convert(data: bytes, key: SessionKey = KEY) -> nanobot.Converted:
    return nanobot.convert(data, key, name="old.jsonl", modified=MODIFIED)


def lines_of(*values: Any) -> bytes:
    """A file with one value per line; bytes stand for themselves."""
    texts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in values]
    return b"".join(text + b"\n" for text in texts)


def metadata(**fields: Any) -> dict[str, Any]:
    inner = fields.pop("metadata", {})
    return {"_type": "metadata", "key": "telegram:1", "metadata": inner, **fields}


def message(text: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": text, "timestamp": "2026-01-01T10:00:00", **fields}


def load(made: nanobot.Converted) -> Loaded:
    """Reads the new log; it must be exactly as the store itself would have written it."""
    found = loader.load(made.data)
    assert found.intact
    assert not found.damage
    return found


def session_of(made: nanobot.Converted, key: SessionKey = KEY) -> Session:
    """The session as a store sees it whose channel needs its replies pushed."""
    found = load(made)
    assert found.metadata is not None
    session = Session(key, push=True)
    session.metadata = dict(found.metadata["metadata"])
    session.state = read_state(session.metadata.pop("parley"))
    session.restart(found.records)
    return session


def texts(made: nanobot.Converted) -> list[str]:
    return [row.text for row in load(made).records]


def objects(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.decode().split("\n") if line]


def messages(data: bytes) -> list[dict[str, Any]]:
    return [value for value in objects(data) if value.get("_type") not in SPECIAL]


SPECIAL = ("metadata", "provider_state")


@pytest.fixture
def central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One hour east of UTC, two in summer, without a database of time zones."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


# -- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "stem"),
    [
        (SessionKey("telegram", "12345"), "telegram_12345"),
        (SessionKey("matrix", '!a:b/c|"d"'), "matrix_!a_b_c__d_"),
        (SessionKey("matrix", "a|b/c"), "matrix_a|b_c"),
        (SessionKey("cli", "direct"), "Y2xpOmRpcmVjdA"),
        (SessionKey("slack", "C1:17.5"), "c2xhY2s6QzE6MTcuNQ"),
        (SessionKey("cli", "end "), "cli_end"),
    ],
)
def test_every_name_form_is_known(key: SessionKey, stem: str) -> None:
    """A key leads to each name a version of nanobot gave its file."""
    assert stem in nanobot.stems(key)


@given(st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable()))
def test_an_encoded_name_leads_back_to_its_key(chat_id: str) -> None:
    """The base64 form is lossless, so the name alone tells the key."""
    key = SessionKey("slack", chat_id)
    stem = base64.urlsafe_b64encode(f"slack:{chat_id}".encode()).decode().rstrip("=")

    assert nanobot.key_of_stem(stem) == key


@pytest.mark.parametrize("stem", ["telegram_a_b", "cli_direct", "slack_C012AB3CD", "x_y"])
def test_in_a_plain_name_the_first_underscore_is_the_colon(stem: str) -> None:
    """Plain names hardly ever look like base64 of a key."""
    channel, _, chat_id = stem.partition("_")

    assert nanobot.key_of_stem(stem) == SessionKey(channel, chat_id)


def test_a_name_without_channel_is_no_key() -> None:
    """nanobot has sessions that are no chats, such as its heartbeat."""
    assert nanobot.key_of_stem("heartbeat") is None


# -- identity ---------------------------------------------------------------------------------


def test_the_stored_key_decides() -> None:
    """The name is only asked if no line names a key."""
    named = nanobot.identify(lines_of(metadata(key="telegram:a:b")), "telegram_a_b")
    unnamed = nanobot.identify(lines_of({"_type": "metadata"}), "telegram_a_b")

    assert named.key == SessionKey("telegram", "a:b")
    assert unnamed.key == SessionKey("telegram", "a_b")


def test_a_stored_key_is_taken_literally() -> None:
    """nanobot encodes nothing; only a line of ours has the encoded form."""
    theirs = nanobot.identify(lines_of(metadata(key="web:50%2F50#2")), "x")
    ours = nanobot.identify(lines_of(metadata(key="web:50%2F50", version=1)), "x")

    assert theirs.key == SessionKey("web", "50%2F50#2")
    assert ours.key == SessionKey("web", "50/50")


def test_a_stored_key_without_channel_is_not_replaced_by_a_guess() -> None:
    """A session that is no chat is named in the problem, whatever its file is called."""
    found = nanobot.identify(lines_of(metadata(key="heartbeat"), message("x")), "heart_beat")

    assert found.key is None
    assert "heartbeat" in str(found.problem)


def test_a_damaged_key_is_not_believed() -> None:
    """A key with replaced bytes is another key; the name tells better."""
    line = json.dumps(metadata(key="telegram:1?")).encode().replace(b"1?", b"1\xff")

    assert nanobot.identify(line + b"\n" + lines_of(message("x")), "telegram_1").key == KEY


def test_a_file_of_other_things_is_no_session() -> None:
    """Lines without metadata and without any role are not ours to move."""
    found = nanobot.identify(lines_of({"cursor": 1, "content": "x"}), "memory_history")

    assert found.key is None
    assert not found.unreadable


@pytest.mark.parametrize("data", [b"", b"\n\n", b" \r\n", b"\0" * 4096])
def test_an_empty_file_is_not_unreadable(data: bytes) -> None:
    """Nothing can be lost from it."""
    assert nanobot.identify(data, "telegram_1") == nanobot.Identity(problem="it is empty")


def test_a_file_without_a_readable_line_is_unreadable() -> None:
    """It must not turn into an empty session."""
    assert nanobot.identify(b"\x80\x81\x82", "telegram_1").unreadable


# -- conversion -------------------------------------------------------------------------------


@WRITTEN_BY_NANOBOT
def test_every_row_nanobot_wrote_is_kept(path: Path) -> None:
    """Roles, contents and all other fields of its messages are in the new log, in order."""
    data = path.read_bytes()

    made = convert(data)

    rows = messages(made.data)
    assert [row["seq"] for row in rows] == [*range(1, made.rows + 1)]
    for before, after in zip(messages(data), rows, strict=True):
        assert {**after, **before, "timestamp": after["timestamp"]} == after


@WRITTEN_BY_NANOBOT
def test_its_metadata_is_kept(path: Path) -> None:
    """Title, summary and everything else nanobot stored about a session can be read again."""
    data = path.read_bytes()
    before = objects(data)[0]

    after = load(convert(data)).metadata

    assert after is not None
    inner = after["metadata"]
    for name, value in before["metadata"].items():
        if name != "thread_goal":
            assert inner[name] == value
    for name in ("created_at", "updated_at"):
        assert after[name] == clock.normal(before[name])


@WRITTEN_BY_NANOBOT
def test_nothing_is_pending_or_undelivered(path: Path) -> None:
    """An old conversation is never answered or delivered again, answered or not."""
    session = session_of(convert(path.read_bytes()))

    assert session.pending == []
    assert session.undelivered == {}
    assert session.state.settled_through == session.state.delivered_through == session.last_seq


@WRITTEN_BY_NANOBOT
def test_the_new_log_loads_under_seed_era_rules(path: Path) -> None:
    """The way back is open: same messages, same offset, same metadata."""
    before, data = seed_reader.read(path), path.read_bytes()
    before.messages = messages(data)

    after = seed_reader.parse(convert(data).data.decode())

    assert after.history == before.history
    assert after.last_consolidated == before.last_consolidated
    assert before.metadata.keys() - {"thread_goal"} <= after.metadata.keys()
    assert after.created_at == before.created_at.astimezone() if before.created_at else False


def test_unanswered_rows_stay_settled_without_any_metadata() -> None:
    """Even if every metadata line is lost later, no old message is answered."""
    made = convert(lines_of(metadata(), message("one"), message("two")))
    rows = b"".join(line for line in made.data.splitlines(True) if b"_type" not in line)

    session = Session(KEY)
    session.restart(loader.load(rows).records)

    assert len(session.records) == 2
    assert session.pending == []


def test_a_log_has_its_own_id_and_names_its_source() -> None:
    """The hash of the source lets a crashed migration be finished."""
    data = lines_of(metadata(), message("x"))

    first, second = session_of(convert(data)).state, session_of(convert(data)).state

    assert first.log != second.log
    assert first.origin == second.origin
    assert first.origin is not None
    assert first.origin["file"] == "old.jsonl"
    assert len(first.origin["sha256"]) == 64


def test_one_damaged_metadata_line_costs_nothing() -> None:
    """The metadata stands first and last in a new log."""
    made = convert(lines_of(metadata(metadata={"title": "T"}), message("x")))
    first, *rest = made.data.splitlines(True)

    for damaged in ([b"\xff" + first[1:], *rest], [first, *rest[:-1], rest[-1][:-9]]):
        found = loader.load(b"".join(damaged)).metadata

        assert found is not None
        assert found["metadata"]["title"] == "T"


# -- offset -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["last_consolidated", "last_archived"])
def test_the_offset_stays_on_its_message(name: str) -> None:
    """The count of messages behind the model becomes the number of the last of them."""
    made = convert(lines_of(metadata(**{name: 2}), *map(message, "abcd")))

    assert load(made).offset_seq == 2
    assert seed_reader.parse(made.data.decode()).history[0] == ("user", "c")


def test_the_newer_count_wins() -> None:
    """Where both names are on the line, nanobot reads last_archived."""
    made = convert(lines_of(metadata(last_archived=1, last_consolidated=3), *map(message, "abcd")))

    assert load(made).offset_seq == 1


def test_damaged_lines_count_as_the_messages_they_were() -> None:
    """Two of the four messages behind the model cannot be read; the model still starts at e."""
    rows = [json.dumps(message(text)).encode() for text in "abcdef"]
    rows[1] = rows[1][:20]
    rows[2] = b"\0\1\2" + rows[2][3:]

    made = convert(lines_of(metadata(last_consolidated=4), *rows))

    assert texts(made) == ["a", "d", "e", "f"]
    assert load(made).offset_seq == 2
    assert made.damaged == 2
    assert rows[1] in made.aside
    assert rows[2] in made.aside


def test_provider_state_is_no_message() -> None:
    """It is put aside, is no damage and does not move the offset."""
    state = {"_type": "provider_state", "state": {"payload": "sealed"}}

    made = convert(lines_of(metadata(last_archived=1), state, *map(message, "ab")))

    assert texts(made) == ["a", "b"]
    assert load(made).offset_seq == 1
    assert made.damaged == 0
    assert json.loads(made.aside) == state


@pytest.mark.parametrize("count", [-1, 3, True, "2", None, 1.0])
def test_a_count_that_cannot_be_true_hides_nothing(count: object) -> None:
    """nanobot shows the whole conversation then, and so do we."""
    made = convert(lines_of(metadata(last_consolidated=count), *map(message, "ab")))

    assert load(made).offset_seq == 0


# -- odd lines --------------------------------------------------------------------------------


def test_bytes_that_are_no_text_cost_only_themselves() -> None:
    """The words around them stay in the conversation; the line as it was is put aside."""
    line = json.dumps(message("good ? words")).encode().replace(b"?", b"\xe4\xff")

    made = convert(lines_of(metadata(), line))

    assert texts(made) == ["good \ufffd\ufffd words"]
    assert made.aside == line + b"\n"
    assert made.damaged == 1


def test_a_row_without_role_is_kept_out_of_the_model_s_view() -> None:
    """Older readers need a role; a command row of the system is shown to no model."""
    made = convert(lines_of(metadata(), {"content": "lost", "event": "x"}, message("found")))

    row = messages(made.data)[0]
    assert (row["role"], row["content"], row["event"]) == ("system", "lost", "x")
    assert seed_reader.parse(made.data.decode()).history == [("user", "found")]


def test_a_row_without_role_is_not_taken_for_metadata() -> None:
    """A message may have a field called metadata."""
    value = {"content": "x", "metadata": {"a": 1}}

    made = convert(lines_of(metadata(metadata={"title": "T"}), value))

    assert messages(made.data)[0]["metadata"] == {"a": 1}
    assert session_of(made).title == "T"


def test_two_objects_on_a_line_are_two_rows() -> None:
    """A lost newline costs nothing."""
    both = json.dumps(message("a")).encode() + json.dumps(message("b")).encode()

    assert texts(convert(lines_of(metadata(), both))) == ["a", "b"]


def test_an_object_before_a_torn_one_is_kept() -> None:
    """Only the torn rest is damage."""
    made = convert(lines_of(metadata(), json.dumps(message("a")).encode() + b'{"role": "us'))

    assert texts(made) == ["a"]
    assert made.damaged == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"_type": "summary"},
        {"_extra": {"seq": 99, "role": "system"}},
        {"seq": "first"},
        {"note": {"kind": "deleted", "seq": 1}},
        {"settles": {"1": "answered"}, "turn": "t"},
        {"timestamp": "yesterday"},
        {"timestamp": 1234567890.5},
    ],
)
def test_a_foreign_value_under_a_name_of_ours_is_kept_apart(fields: dict[str, Any]) -> None:
    """It can neither hide the row nor number it, and its value is still on the line."""
    made = convert(lines_of(metadata(), message("a", **fields), message("b")))

    row = messages(made.data)[0]
    assert texts(made) == ["a", "b"]
    assert [record.seq for record in load(made).records] == [1, 2]
    for name, value in fields.items():
        assert row[f"foreign_{name.lstrip('_')}"] == value


def test_content_of_another_form_is_kept() -> None:
    """What is no text and no list of blocks stays on its line."""
    made = convert(lines_of(metadata(), message("x", content={"parts": [1]})))

    assert messages(made.data)[0]["content"] == {"parts": [1]}


def test_hostile_values_are_harmless() -> None:
    """Lone surrogates, huge integers, NaN, long lines and a byte order mark are all read."""
    values = [
        b'{"role": "user", "content": "\\ud800", "big": ' + b"9" * 70 + b"}",
        b'{"role": "user", "content": "n", "nan": NaN}',
        message("x" * 5_000_000),
    ]

    made = convert(b"\xef\xbb\xbf" + lines_of(metadata(), *values))

    assert [len(text) for text in texts(made)] == [1, 1, 5_000_000]
    assert messages(made.data)[0]["big"] == int("9" * 70)
    assert made.damaged == 0


@pytest.mark.parametrize("depth", [150, 5_000, 200_000])
def test_deep_nesting_never_raises(depth: int) -> None:
    """A value no reader can take is put aside; what is readable is kept."""
    deep = b'{"role": "user", "content": ' + b"[" * depth + b"]" * depth + b"}"

    made = convert(lines_of(metadata(), deep, message("after")))

    assert texts(made)[-1] == "after"
    assert made.rows + made.damaged == 2


# -- metadata ---------------------------------------------------------------------------------


GOAL = {"status": "active", "objective": "Walk"}


@pytest.mark.parametrize(
    "inner",
    [
        {"goal_state": GOAL},
        {"thread_goal": GOAL},
        {"thread_goal": json.dumps(GOAL)},
        {"goal_state": json.dumps(GOAL), "thread_goal": {"objective": "older"}},
    ],
)
def test_a_goal_is_found_under_both_names(inner: dict[str, Any]) -> None:
    """The older name is read and rewritten, as an object or as text."""
    session = session_of(convert(lines_of(metadata(metadata=inner))))

    assert session.metadata == {"goal_state": GOAL}


def test_a_goal_that_cannot_be_read_is_left_alone() -> None:
    """It is kept as it was rather than dropped."""
    session = session_of(convert(lines_of(metadata(metadata={"thread_goal": "{"}))))

    assert session.metadata == {"thread_goal": "{"}


def test_the_summary_becomes_ours() -> None:
    """The model goes on with it, and nanobot could too."""
    summary = {"text": "So far.", "last_active": "2026-01-01T00:00:00"}
    session = session_of(convert(lines_of(metadata(metadata={"_last_summary": summary}))))

    assert session.state.summary == "So far."
    assert session.metadata["_last_summary"] == summary


def test_what_a_metadata_line_of_ours_has_no_place_for_is_kept() -> None:
    """Unknown fields and times that are none go with the origin."""
    session = session_of(convert(lines_of(metadata(created_at="once", color="red"))))

    assert session.state.origin is not None
    assert session.state.origin["fields"] == {"created_at": "once", "color": "red"}


@pytest.mark.parametrize("inner", [None, [], "text", 5])
def test_metadata_of_another_form_is_harmless(inner: object) -> None:
    """The rows are what counts."""
    assert texts(convert(lines_of(metadata(metadata=inner), message("x")))) == ["x"]


def test_marks_in_another_form_do_not_come_back() -> None:
    """A broken value of our own state cannot undo that everything is settled."""
    parley = {"settled_through": "none", "log": 5, "delivered_through": [], "mood": "good"}
    made = convert(lines_of(metadata(metadata={"parley": parley}), message("x")))

    state = session_of(made).state
    assert (state.settled_through, state.delivered_through) == (1, 1)
    assert isinstance(state.log, str)
    assert state.extra == {"mood": "good"}


# -- times ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("central_europe")
def test_a_time_without_zone_is_local() -> None:
    """Winter is one hour from UTC there, summer two."""
    winter, summer = "2026-01-15T12:00:00.5", "2026-07-15T12:00:00"
    rows = [message("a", timestamp=winter), message("b", timestamp=summer)]

    found = load(convert(lines_of(metadata(created_at=winter, updated_at=summer), *rows)))

    times = ["2026-01-15T11:00:00.500000Z", "2026-07-15T10:00:00.000000Z"]
    assert [row.timestamp for row in found.records] == times
    assert found.metadata is not None
    assert [found.metadata["created_at"], found.metadata["updated_at"]] == times


def test_a_row_without_time_gets_the_nearest_known_one() -> None:
    """The row before, else the session's start, else the file's time."""
    stamp = "2026-01-01T10:00:00+00:00"
    rows = [{"role": "user", "content": "a"}, message("b", timestamp=stamp)]
    created = metadata(created_at="2025-12-31T00:00:00+00:00")

    with_start = load(convert(lines_of(created, *rows, rows[0]))).records
    without = load(convert(lines_of(*rows))).records

    assert [row.timestamp[:10] for row in with_start] == ["2025-12-31", "2026-01-01", "2026-01-01"]
    assert without[0].timestamp == MODIFIED


def test_a_session_is_as_new_as_its_newest_line() -> None:
    """A metadata line that lags behind its messages does not make the session older."""
    updated, stamp = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
    data = lines_of(metadata(updated_at=updated), message("x", timestamp=stamp))

    after = seed_reader.parse(convert(data).data.decode())

    assert after.updated_at == datetime(2026, 2, 1, tzinfo=UTC)


# -- logs that were ours before -----------------------------------------------------------------


def test_numbers_of_a_log_that_was_ours_are_kept() -> None:
    """nanobot dropped the first rows, answered and asked; readers' cursors stay true."""
    rows = [message("c", seq=3), message("d", "assistant", seq=7, settles={"3": "answered"})]

    found = load(convert(lines_of(metadata(), *rows, message("e"), message("f"))))

    assert [row.seq for row in found.records] == [3, 7, 8, 9]
    assert found.records[1].settles == {3: "answered"}


@pytest.mark.parametrize(
    "numbers", [[1, 1], [2, 1], [0, 5], [1, None, 2], [-3], [2**70], [1, 2**63]]
)
def test_numbers_that_cannot_stay_are_replaced(numbers: list[int | None]) -> None:
    """No row is lost or moved for the sake of its number."""
    rows = [message(str(number), seq=number) for number in numbers]

    found = load(convert(lines_of(metadata(), *rows)))

    assert [row.text for row in found.records] == [str(number) for number in numbers]
    assert [row.seq for row in found.records] == [*range(1, len(numbers) + 1)]


# -- any bytes at all ---------------------------------------------------------------------------


PIECES = [
    b'{"_type": "metadata", "key": "a:b", "last_consolidated": 2, "metadata": {"title": "t"}}',
    b'{"_type": "provider_state", "state": {}}',
    b'{"role": "user", "content": "x", "timestamp": "2026-01-01T00:00:00"}',
    b'{"role": "assistant", "content": null, "seq": 3}',
    b'{"_type": null, "role": 1, "content": {}, "seq": 1e300, "settles": {"a": 1}}',
    b'{"metadata": {"parley": {"extra": 1, "continues": [[1]], "state": []}}}',
    b"\n",
    b"\r",
    b"\0",
    b"{}",
    b"{",
    b'"',
    b"[" * 300,
    b"\xff",
    b"NaN",
]


@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=30).map(b"".join))
def test_any_bytes_become_a_log(data: bytes) -> None:
    """Conversion never raises, and what it makes is a whole log for us and for older readers."""
    made = convert(data)

    found = load(made)
    seed = seed_reader.parse(made.data.decode())
    assert len(found.records) == len(seed.messages) == made.rows
    assert len(seed.history) <= made.rows
    assert session_of(made).pending == []


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["role", "content", "seq", "timestamp", "settles", "note", "turn", "id", "_type", "_extra"]
) | st.sampled_from(
    ["_command", "media", "tool_calls", "metadata", "outcome", "usage", "name"],
)
ROWS = st.dictionaries(NAMES | st.text(max_size=6), JSON, min_size=1)
DAMAGED = st.binary(max_size=12).filter(lambda text: b"\n" not in text and b"{" not in text)


@given(st.lists(ROWS | DAMAGED, max_size=8))
def test_no_well_formed_line_is_lost(values: list[dict[str, Any] | bytes]) -> None:
    """Whatever stands around it, a line keeps its place and every value that says something."""
    rows = [value for value in values if isinstance(value, dict) and not described(value)]

    made = convert(lines_of(*values))

    after = messages(made.data)
    assert made.rows == len(after) == len(rows)
    for before, row in zip(rows, after, strict=True):
        for name, value in before.items():
            if value and (name != "timestamp" or clock.normal(value) is None):
                assert value in (row.get(name), row.get(f"foreign_{name.lstrip('_')}"))


def described(value: dict[str, Any]) -> bool:
    """True for objects that are metadata by the rules of the format."""
    bare = not {"_type", "role", "content"} & value.keys()
    return bare and isinstance(value.get("metadata"), dict)
