"""`parley sessions …` as people and programs use it."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from gateway.cli import main, screen
from gateway.cli.sessions.transcript import Changes, markdown
from sessions import clock, directory, disk
from sessions.key import SessionKey
from sessions.log_files import LogFiles
from sessions.record import NoteKind, Record, closing, note, user
from sessions.session import Patch, Session
from tests.support.stores import (
    answer,
    archive_file,
    ask,
    doomed,
    idle,
    live_file,
    opened,
    rows_of,
)

ROOM = SessionKey("websocket", "room")
BUSY = SessionKey("slack", "C1:1712345678.000100")
ODD = SessionKey("websocket", "a/b #1 ü\n")
TURNS = 20
NEW = closing("", {}, outcome="command", command=True)


async def fill(path: Path) -> None:
    """One small session with a title, one with an archive and two conversations, one odd key."""
    async with opened(path, file_cap=20) as store:
        for number in range(TURNS):
            await ask(store, BUSY, number)
        await store.new_conversation(BUSY, NEW)
        await ask(store, BUSY, TURNS)
        await ask(store, ODD, 1)
        await store.append(ROOM, [user("When does the ferry to Lisbon leave?", id="q")])
        await store.append(ROOM, [answer(1, text="At **07:40**.")], Patch(title="Ferries"))
        await idle(store)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "data"
    asyncio.run(fill(path))
    return path


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    """A data directory whose owner has stopped."""
    path = tmp_path / "data"
    subprocess.run(["cp", "-a", str(template), str(path)], check=True)
    return path


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What whoever runs the tests prefers on their own screen does not matter here."""
    for name in ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "PARLEY_DATA_DIR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


def parley(data: Path, *arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(main, ["--data-dir", str(data), "sessions", *arguments], **options)


def parsed(result: Result) -> Any:
    return json.loads(result.stdout)


def failure(result: Result) -> str:
    """What a command that failed said: one line and nothing else."""
    [line] = result.stderr.splitlines()
    assert result.stdout == ""
    assert line.startswith("parley: ")
    return line.removeprefix("parley: ")


def fingerprint(path: Path) -> dict[str, Any]:
    """Every entry of a directory with its content, mode and time of change."""
    found: dict[str, Any] = {}
    for entry in [path, *sorted(path.rglob("*"))]:
        status = entry.lstat()
        content = hashlib.sha256(entry.read_bytes()).hexdigest() if entry.is_file() else ""
        found[str(entry)] = (content, status.st_mode, status.st_mtime_ns, status.st_ino)
    return found


def spoil(path: Path, line: int, text: bytes = b"\xff garbage") -> None:
    lines = path.read_bytes().split(b"\n")
    lines[line] = text
    path.write_bytes(b"\n".join(lines))


def legacy_file(folder: Path, key: str = "telegram:7") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{key.replace(':', '_')}.jsonl"
    head = {"_type": "metadata", "key": key, "created_at": "2026-01-01T10:00:00", "metadata": {}}
    row = {"role": "user", "content": "hello", "timestamp": "2026-01-01T10:00:00"}
    path.write_text(f"{json.dumps(head)}\n{json.dumps(row)}\n")
    return path


# -- reading ----------------------------------------------------------------------------------


def test_list_gives_programs_every_field_of_the_contract(data: Path) -> None:
    """`list --json` has one object per session and ended conversation, the newest first."""
    found = parsed(parley(data, "list", "--json"))["sessions"]

    fields = (
        "key channel chat_id user agent model state title preview tags message_count token_count "
        "max_tokens token_usage damaged created_at updated_at last_active_at compacted_at"
    )
    assert all(set(fields.split()) <= one.keys() for one in found)
    assert [one["key"] for one in found] == [str(ROOM), str(ODD), str(BUSY), f"{BUSY}#1"]


def test_list_filters(data: Path) -> None:
    """Filters leave only what fits all of them."""
    slack = parsed(parley(data, "list", "--json", "--channel", "slack"))["sessions"]
    active = parsed(parley(data, "list", "--json", "--channel", "slack", "--state", "active"))

    assert [one["key"] for one in slack] == [str(BUSY), f"{BUSY}#1"]
    assert [one["key"] for one in active["sessions"]] == [str(BUSY)]


@pytest.mark.parametrize("columns", [30, 60, 80, 120])
def test_the_list_fits_the_terminal(data: Path, columns: int) -> None:
    """No line is wider than the screen; the key is whole even where other columns are left out."""
    result = parley(data, "list", env={"COLUMNS": str(columns)})

    lines = result.stdout.splitlines()
    assert max(cell_len(line) for line in lines) <= columns
    assert str(BUSY) in "".join(line.split("  ")[0] for line in lines)
    assert ("Ferries" in result.stdout) == (columns >= 80)


def test_a_very_long_key_is_folded_and_does_not_widen_the_list(data: Path) -> None:
    """One long key takes more lines; every other session keeps its title."""
    live_file(data, ROOM).with_name(f"{'x' * 150}.jsonl").write_bytes(b"")

    result = parley(data, "list", env={"COLUMNS": "80"})

    assert "Ferries" in result.stdout
    assert result.stdout.count("x" * 15) > 5


def test_without_a_terminal_lines_are_whole_and_plain(data: Path) -> None:
    """Other programs get one line per session, without colour and without trailing space."""
    result = parley(data, "list")

    assert len(result.stdout.splitlines()) == 5
    assert "\x1b" not in result.stdout
    assert all(line == line.rstrip() for line in result.stdout.splitlines())


def test_show_prints_a_transcript(data: Path) -> None:
    """Title, key, speakers, numbers and texts, the newest message last."""
    shown = parley(data, "show", str(ROOM)).stdout

    places = [shown.index(part) for part in ("Ferries", str(ROOM), "#1  user", "Lisbon", "07:40")]
    assert places == sorted(places)


def test_show_gives_programs_the_session_with_its_messages(data: Path) -> None:
    """`show --json` reads all messages through the archive, as they stand on the disk."""
    shown = parsed(parley(data, "show", str(BUSY), "--json"))

    assert [row["seq"] for row in shown["messages"]] == list(range(1, 2 * TURNS + 4))
    assert shown["messages"][0]["content"] == "question 0"
    assert shown["message_count"] == len(shown["messages"])
    assert {"summary", "usage", "goal", "conversation", "custom"} <= shown.keys()


@pytest.mark.parametrize(
    ("arguments", "seqs"),
    [
        (["--limit", "3"], [41, 42, 43]),
        (["--limit", "2", "--before", "10"], [8, 9]),
        (["--limit", "2", "--after", "10"], [11, 12]),
        (["--after", "10", "--before", "13"], [11, 12]),
        (["--after", "43"], []),
    ],
)
def test_show_is_paged_by_number(data: Path, arguments: list[str], seqs: list[int]) -> None:
    """`--after` reads from the front, anything else from the end, also inside the archive."""
    shown = parsed(parley(data, "show", str(BUSY), "--json", *arguments))

    assert [row["seq"] for row in shown["messages"]] == seqs


def test_show_says_how_to_read_on(data: Path) -> None:
    """A page names the option that leads to the next one."""
    older = parley(data, "show", str(BUSY), "--limit", "2").stdout
    newer = parley(data, "show", str(BUSY), "--limit", "2", "--after", "4").stdout

    assert "--before 42" in older
    assert "--after 6" in newer


def test_an_ended_conversation_is_a_session_of_its_own(data: Path) -> None:
    """`key#n` shows the rows of that conversation only, in state archived."""
    shown = parsed(parley(data, "show", f"{BUSY}#1", "--json"))

    assert shown["state"] == "archived"
    assert shown["key"] == f"{BUSY}#1"
    assert shown["messages"][-1]["seq"] == 2 * TURNS + 1


def test_conversations_are_listed(data: Path) -> None:
    """Ended ones with their key and rows, and the number of the present one."""
    found = parsed(parley(data, "conversations", str(BUSY), "--json"))

    assert found["current"] == 2
    assert [one["key"] for one in found["conversations"]] == [f"{BUSY}#1"]
    assert f"{BUSY}#1" in parley(data, "conversations", str(BUSY)).stdout


def test_search_finds_archived_messages(data: Path) -> None:
    """Every word must occur in one message; matches name its number and surroundings."""
    found = parsed(parley(data, "search", "QUESTION 3", "--json"))["sessions"]

    assert [one["key"] for one in found] == [str(BUSY)]
    assert {"seq": 7, "snippet": "question 3"} in found[0]["matches"]
    assert parsed(parley(data, "search", "question nowhere", "--json")) == {"sessions": []}


def test_search_marks_what_it_found(data: Path) -> None:
    """On a terminal the words stand out; in a pipe the line is plain."""
    coloured = parley(data, "search", "lisbon", env={"FORCE_COLOR": "1", "COLUMNS": "80"})
    plain = parley(data, "search", "lisbon")

    assert "\x1b[1;33mLisbon\x1b[0m" in coloured.stdout
    assert "  #1  When does the ferry to Lisbon leave?" in plain.stdout


def test_stats_count_everything(data: Path) -> None:
    """Archived messages count too."""
    counted = parsed(parley(data, "stats", "--json"))

    assert counted["total_sessions"] == 3
    assert counted["total_messages"] == 2 * TURNS + 3 + 2 + 2
    assert counted["archive_bytes"] == archive_file(data, BUSY).stat().st_size


def test_an_odd_key_is_given_as_the_list_prints_it(data: Path) -> None:
    """Slashes, hashes and control characters are percent-encoded, and that text is accepted."""
    assert str(ODD) == "websocket:a%2Fb %231 ü%0A"
    assert parsed(parley(data, "show", str(ODD), "--json"))["chat_id"] == ODD.chat_id


def test_control_sequences_in_a_message_do_not_reach_the_terminal(tmp_path: Path) -> None:
    """What a sender wrote can neither colour the screen nor move the cursor."""

    async def write() -> None:
        async with opened(tmp_path) as store:
            await store.append(ROOM, [user("\x1b[2J\u202e\ud800 [bold]x[/bold]")])

    asyncio.run(write())
    shown = parley(tmp_path, "show", str(ROOM)).stdout

    assert "\x1b" not in shown
    assert "�[2J�� [bold]x[/bold]" in shown


# -- export -----------------------------------------------------------------------------------


def test_an_exported_log_is_a_log(data: Path, tmp_path: Path) -> None:
    """`jsonl` holds the raw lines in order through the archive and loads as a session."""
    lines = parley(data, "export", str(BUSY), "--format", "jsonl").stdout_bytes.splitlines(True)
    raw = archive_file(data, BUSY).read_bytes() + live_file(data, BUSY).read_bytes()
    live_file(tmp_path / "copy", BUSY).parent.mkdir(parents=True)
    live_file(tmp_path / "copy", BUSY).write_bytes(b"".join(lines))

    shown = parsed(parley(tmp_path / "copy", "show", str(BUSY), "--json"))
    assert all(line in raw for line in lines[1:])
    assert shown["messages"] == parsed(parley(data, "show", str(BUSY), "--json"))["messages"]
    assert parley(tmp_path / "copy", "verify").exit_code == 0


def test_an_ended_conversation_can_be_exported(data: Path) -> None:
    """Only its own rows, in every form."""
    lines = parley(data, "export", f"{BUSY}#1", "--format", "jsonl").stdout.splitlines()
    text = parley(data, "export", f"{BUSY}#1", "--format", "md").stdout

    assert [json.loads(line)["seq"] for line in lines[1:]] == list(range(1, 2 * TURNS + 2))
    assert f"question {TURNS - 1}" in text
    assert f"question {TURNS}\n" not in text


def test_exported_json_is_the_object_of_show(data: Path) -> None:
    """`--format json`, and `--json` as everywhere."""
    shown = parley(data, "show", str(ROOM), "--json").stdout

    assert parley(data, "export", str(ROOM), "--format", "json").stdout == shown
    assert parley(data, "export", str(ROOM), "--json").stdout == shown


def test_export_writes_a_file_as_a_whole(data: Path, tmp_path: Path) -> None:
    """`-o` replaces what was there and leaves nothing beside it."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "room.md").write_text("before")
    result = parley(data, "export", str(ROOM), "-o", str(folder / "room.md"))

    assert result.stdout == ""
    assert (folder / "room.md").read_text().startswith("# Ferries\n\n- **Session:**")
    assert os.listdir(folder) == ["room.md"]


def test_export_to_a_place_that_is_not_there_fails_in_one_line(data: Path, tmp_path: Path) -> None:
    """The line names the file that was asked for."""
    result = parley(data, "export", str(ROOM), "-o", str(tmp_path / "none" / "room.md"))

    assert result.exit_code == 1
    assert failure(result).startswith(f"{tmp_path}/none/room.md cannot be written")


def transcript(*rows: Record) -> str:
    session = Session(ROOM)
    session.apply([row for row in rows if row.timestamp], 0)
    messages = [row for row in rows if not row.is_note]
    return "\n\n".join(markdown(session, messages, Changes(rows)))


def at(seq: int, row: Record) -> Record:
    return msgspec.structs.replace(row, seq=seq, timestamp="2026-05-03T10:00:00.000000Z")


def test_markdown_folds_calls_and_results_as_code() -> None:
    """A call shows its name; arguments and results are code that opens on demand."""
    call = {"id": "c", "function": {"name": "look", "arguments": '{"at": "sea"}'}}
    text = transcript(
        at(1, user("Look!")),
        at(2, Record("assistant", "", tool_calls=[call])),
        at(3, Record("tool", "a ``` fence", tool_call_id="c", name="look")),
    )

    assert '<summary>Tool call: look</summary>\n\n```json\n{"at": "sea"}\n```' in text
    assert "<summary>Result</summary>\n\n````\na ``` fence\n````" in text
    assert "### User · 2026-05-03 10:00:00 UTC · #1\n\nLook!" in text


def test_markdown_closes_a_code_block_that_was_cut_off() -> None:
    """An interrupted answer does not swallow the rest of the transcript."""
    text = transcript(
        at(1, user("Code, please")),
        at(2, closing("~~~py\nprint(", {1: "interrupted"}, outcome="interrupted")),
        at(3, user("Go on")),
    )

    assert "print(\n~~~\n\n### User" in text
    assert "#2 · interrupted" in text


def test_markdown_follows_edits_and_deletions() -> None:
    """A changed message shows its new text; a deleted one says so."""
    text = transcript(
        at(1, user("frist")),
        at(2, user("oops")),
        at(3, note(NoteKind.EDITED, seq=1, content="first")),
        at(4, note(NoteKind.DELETED, seq=2)),
    )

    assert "#1 · edited\n\nfirst" in text
    assert "#2 · deleted by its sender" in text
    assert "frist" not in text.partition("###")[2]


# -- nothing is changed by reading ------------------------------------------------------------


READING = [
    ["list"],
    ["list", "--json"],
    ["show", str(BUSY)],
    ["search", "question"],
    ["export", str(BUSY), "--format", "jsonl"],
    ["conversations", str(BUSY)],
    ["stats"],
    ["verify"],
    ["migrate", "--dry-run", "--from", "."],
]


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_reading_changes_nothing(data: Path, arguments: list[str]) -> None:
    """Not a byte, not a time, not an entry, also where files are damaged."""
    spoil(live_file(data, BUSY), 2)
    spoil(archive_file(data, BUSY), 3)
    live_file(data, ROOM).write_bytes(live_file(data, ROOM).read_bytes()[:-5])
    before = fingerprint(data)

    parley(data, *arguments)

    assert fingerprint(data) == before


@pytest.mark.parametrize("arguments", READING[:-1], ids=" ".join)
def test_reading_works_beside_a_daemon(data: Path, arguments: list[str]) -> None:
    """No lock is needed to read."""
    with directory.DataDirectory(data) as held:
        held.open("interval")
        result = parley(data, *arguments)

    assert result.exit_code == 0
    assert result.stderr == ""


def test_reading_creates_no_data_directory(tmp_path: Path) -> None:
    """A missing one is an error that says how to name the right one."""
    results = [parley(tmp_path / "none", *arguments) for arguments in READING[:-1]]

    assert {result.exit_code for result in results} == {1}
    assert all("--data-dir or PARLEY_DATA_DIR" in failure(result) for result in results)
    assert not (tmp_path / "none").exists()


def test_an_unreadable_file_is_left_out_and_named(data: Path) -> None:
    """The other sessions are listed; one line on stderr says what is missing."""
    live_file(data, ROOM).unlink()
    live_file(data, ROOM).mkdir()
    result = parley(data, "list", "--json")

    assert len(parsed(result)["sessions"]) == 3
    assert "sessions/websocket/room.jsonl (Is a directory)" in result.stderr


# -- verify and repair ------------------------------------------------------------------------


def test_verify_is_content_with_a_whole_directory(data: Path) -> None:
    """Exit 0, the numbers of files, and how the last owner stopped."""
    found = parsed(parley(data, "verify", "--json"))

    assert found["ok"] is True
    assert (found["sessions"], found["archives"]) == (3, 1)
    assert found["stop"]["state"] == "clean"


def test_verify_names_line_and_byte_of_the_damage(data: Path) -> None:
    """In the live log and in the archive; exit 1."""
    spoil(live_file(data, ROOM), 1)
    spoil(archive_file(data, BUSY), 3)
    result = parley(data, "verify", "--json")

    places = [(one["path"].split("/")[0], one["line"]) for one in parsed(result)["damaged"]]
    offset = live_file(data, ROOM).read_bytes().index(b"\xff")
    assert result.exit_code == 1
    assert places == [("sessions", 2), ("archive", 4)]
    assert parsed(result)["damaged"][0]["offset"] == offset


def cut_the_end(data: Path) -> None:
    live_file(data, ROOM).write_bytes(live_file(data, ROOM).read_bytes()[:-9])


def drop_the_newline(data: Path) -> None:
    live_file(data, ROOM).write_bytes(live_file(data, ROOM).read_bytes()[:-1])


def join_two_lines(data: Path) -> None:
    path = live_file(data, ROOM)
    path.write_bytes(path.read_bytes().replace(b"\n", b"", 2))


def swap_archived_rows(data: Path) -> None:
    lines = archive_file(data, BUSY).read_bytes().split(b"\n")
    lines[2], lines[3] = lines[3], lines[2]
    archive_file(data, BUSY).write_bytes(b"\n".join(lines))


def shorten_the_archive(data: Path) -> None:
    lines = archive_file(data, BUSY).read_bytes().splitlines(True)
    archive_file(data, BUSY).write_bytes(b"".join(lines[:-3]))


def remove_the_archive(data: Path) -> None:
    archive_file(data, BUSY).unlink()


def fill_with_zeros(data: Path) -> None:
    with live_file(data, ROOM).open("ab") as file:
        file.write(b"\0" * 100)


MENDABLE = [
    cut_the_end,
    drop_the_newline,
    join_two_lines,
    swap_archived_rows,
    shorten_the_archive,
    remove_the_archive,
    fill_with_zeros,
]


@pytest.mark.parametrize("damage", MENDABLE)
def test_what_verify_finds_repair_mends(data: Path, damage: Callable[[Path], None]) -> None:
    """After one repair there is nothing left to find and nothing left to do."""
    damage(data)

    assert parley(data, "verify").exit_code == 1
    assert parley(data, "repair").exit_code == 0
    assert parley(data, "verify").exit_code == 0
    assert parsed(parley(data, "repair", "--json")) == {"repaired": [], "failed": []}


def test_repair_reports_what_was_put_aside(data: Path) -> None:
    """The quarantine file has the damaged bytes and the name that was reported."""
    spoil(live_file(data, ROOM), 1, b'{"role": broken')
    [repaired] = parsed(parley(data, "repair", "--json"))["repaired"]

    [name] = repaired["quarantine"]
    assert (repaired["key"], repaired["skipped"]) == (str(ROOM), 1)
    assert (data / "quarantine" / name).read_bytes() == b'{"role": broken'


def test_repair_costs_only_the_damaged_rows_of_an_archive(data: Path) -> None:
    """All other rows are where they were, byte for byte."""
    before = archive_file(data, BUSY).read_bytes().splitlines(True)
    spoil(archive_file(data, BUSY), 3)
    parley(data, "repair")

    after = archive_file(data, BUSY).read_bytes().splitlines(True)
    assert after[1:] == before[1:3] + before[4:]


def test_rows_missing_from_an_archive_leave_a_note(data: Path) -> None:
    """The loss is on record, and the rows around it read on."""
    shorten_the_archive(data)
    parley(data, "repair")

    seqs = [row["seq"] for row in parsed(parley(data, "show", str(BUSY), "--json"))["messages"]]
    last = json.loads(archive_file(data, BUSY).read_bytes().splitlines()[-1])
    assert last["note"] == {"kind": "damaged", "after": last["seq"] - 3}
    assert sorted(set(range(1, 44)) - set(seqs)) == [last["seq"] - n for n in (2, 1, 0)]


def test_verify_reports_what_repair_must_leave_to_people(data: Path) -> None:
    """An archive without its session and an unreadable file: exit 1 before and after a repair."""
    live_file(data, BUSY).unlink()
    live_file(data, ROOM).unlink()
    live_file(data, ROOM).mkdir()
    found = parsed(parley(data, "verify", "--json"))
    repaired = parley(data, "repair", "--json")

    assert "its session is gone" in found["damaged"][0]["reason"]
    assert found["unreadable"] == [
        {"path": "sessions/websocket/room.jsonl", "reason": "Is a directory"}
    ]
    assert repaired.exit_code == 1
    assert len(parsed(repaired)["failed"]) == 2


def test_strangers_are_named_and_do_no_harm(data: Path) -> None:
    """Files that are no sessions of ours are reported, and verify still exits 0."""
    (data / "sessions" / "telegram_7.jsonl").write_text("{}\n")
    (data / "sessions" / "websocket" / "notes.txt").write_text("mine")
    result = parley(data, "verify", "--json")

    paths = [one["path"] for one in parsed(result)["strangers"]]
    assert result.exit_code == 0
    assert paths == ["sessions/telegram_7.jsonl", "sessions/websocket/notes.txt"]


def test_a_second_file_of_a_session_is_reported(data: Path) -> None:
    """A copy that nobody reads could hold messages somebody misses."""
    twin = live_file(data, ROOM).with_name(f"{ROOM.hashed_stem}.jsonl")
    twin.write_bytes(live_file(data, ROOM).read_bytes())
    found = parsed(parley(data, "verify", "--json"))

    assert [one["path"] for one in found["damaged"]] == [f"sessions/websocket/{twin.name}"]


def test_verify_says_whether_the_last_stop_was_clean(data: Path) -> None:
    """An unclean stop is no damage."""
    (data / "CLEAN").unlink()
    result = parley(data, "verify", "--json")

    assert result.exit_code == 0
    assert parsed(result)["stop"]["state"] == "unclean"


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_reports_fit_the_terminal(data: Path, columns: int) -> None:
    """Damage and repair are readable on a narrow screen; no reason is cut off."""
    spoil(archive_file(data, BUSY), 3)
    cut_the_end(data)
    env = {"COLUMNS": str(columns)}
    texts = [parley(data, name, env=env).stdout for name in ("verify", "repair", "repair")]

    tables = [line for text in texts for line in text.partition("\n\n")[0].splitlines()]
    assert "torn write" in texts[0]
    assert "run parley sessions repair" in texts[0]
    assert "nothing to repair" in texts[2]
    assert max(cell_len(line) for line in tables[:-1]) <= columns


# -- changing ---------------------------------------------------------------------------------


def test_archive_and_restore_change_the_state(data: Path) -> None:
    """An archived session is listed as such and can become active again."""
    archived = parsed(parley(data, "archive", str(ROOM), "--json"))
    restored = parsed(parley(data, "restore", str(ROOM), "--json"))

    assert (archived["state"], restored["state"]) == ("archived", "active")
    assert parley(data, "verify").exit_code == 0


def test_restore_goes_on_with_an_ended_conversation(data: Path) -> None:
    """The model's view continues there; nothing is sent to anyone."""
    result = parley(data, "restore", f"{BUSY}#1")
    shown = parsed(parley(data, "show", str(BUSY), "--json"))

    assert "goes on with conversation 1" in result.stdout
    assert shown["conversation"] == 3
    assert shown["messages"][-1]["content"] == ""


def test_delete_removes_log_and_archive(data: Path) -> None:
    """With `--yes` nobody is asked."""
    result = parley(data, "delete", str(BUSY), "--yes", "--json")

    assert parsed(result) == {"deleted": str(BUSY)}
    assert not live_file(data, BUSY).exists()
    assert not archive_file(data, BUSY).exists()


def test_delete_refuses_where_nobody_can_be_asked(data: Path) -> None:
    """Without a terminal `--yes` is needed."""
    result = parley(data, "delete", str(ROOM))

    assert result.exit_code == 2
    assert "add --yes" in failure(result)
    assert live_file(data, ROOM).exists()


def test_an_ended_conversation_is_read_only(data: Path) -> None:
    """It can be neither archived nor deleted by itself."""
    archived = parley(data, "archive", f"{BUSY}#1")
    deleted = parley(data, "delete", f"{BUSY}#1", "--yes")

    assert "read-only" in failure(archived)
    assert "the whole chat" in failure(deleted)


@pytest.mark.parametrize("name", ["repair", "archive", "restore", "delete"])
def test_changing_creates_no_data_directory(tmp_path: Path, name: str) -> None:
    """A wrong path is an error, not a new directory."""
    result = parley(tmp_path / "none", name, *([] if name == "repair" else [str(ROOM)]))

    assert result.exit_code == 1
    assert "there is no data directory" in failure(result)
    assert not (tmp_path / "none").exists()


# -- migrate ----------------------------------------------------------------------------------


def test_migrate_moves_and_reports(tmp_path: Path) -> None:
    """The data directory is created, the source is gone, and nothing is pending."""
    source = legacy_file(tmp_path / "legacy")
    report = parsed(parley(tmp_path / "data", "migrate", "--from", str(source.parent), "--json"))
    [found] = parsed(parley(tmp_path / "data", "list", "--json"))["sessions"]

    assert [one["key"] for one in report["migrated"]] == ["telegram:7"]
    assert (report["skipped"], report["failed"]) == ([], [])
    assert (found["message_count"], found["pending"]) == (1, 0)
    assert not source.exists()


def test_migrate_keeps_the_source_if_asked(tmp_path: Path) -> None:
    """A second run says that there is nothing left to do."""
    source = legacy_file(tmp_path / "legacy")
    arguments = ["migrate", "--from", str(source.parent), "--keep", "--json"]
    parley(tmp_path / "data", *arguments)
    again = parsed(parley(tmp_path / "data", *arguments))

    assert source.exists()
    assert again["migrated"] == []
    assert again["skipped"][0].keys() == {"key", "path", "reason"}


def test_a_dry_run_creates_nothing(tmp_path: Path) -> None:
    """It says what would be done, and the source stays."""
    source = legacy_file(tmp_path / "legacy")
    result = parley(tmp_path / "data", "migrate", "--from", str(source.parent), "--dry-run")

    assert "1 would migrate" in result.stdout
    assert source.exists()
    assert not (tmp_path / "data").exists()


def test_migrate_looks_where_nanobot_keeps_its_sessions(tmp_path: Path) -> None:
    """Without `--from` that is a directory of the user's home."""
    legacy_file(tmp_path / "home" / ".nanobot" / "sessions")
    result = parley(tmp_path / "data", "migrate", "--json", env={"HOME": str(tmp_path / "home")})

    assert [one["key"] for one in parsed(result)["migrated"]] == ["telegram:7"]


def test_migrate_without_a_source_says_so(tmp_path: Path) -> None:
    """Nothing is created for a directory that is not there."""
    result = parley(tmp_path / "data", "migrate", "--from", str(tmp_path / "none"))

    assert result.exit_code == 1
    assert "--from" in failure(result)
    assert not (tmp_path / "data").exists()


def test_migrate_exits_1_if_a_file_failed(tmp_path: Path) -> None:
    """The others are migrated all the same."""
    folder = legacy_file(tmp_path / "legacy").parent
    (folder / "telegram_8.jsonl").mkdir()
    result = parley(tmp_path / "data", "migrate", "--from", str(folder))

    assert result.exit_code == 1
    assert "1 migrated, 0 skipped, 1 failed" in result.stdout


# -- what goes wrong --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "code", "expected"),
    [
        ("room", 2, f"did you mean {ROOM}?"),
        ("websocket:ruum", 1, "parley sessions list"),
        ("websocket:rooom", 1, f"did you mean {ROOM}?"),
        ("websocket:ROOM", 1, f"did you mean {ROOM}?"),
        ("websocket:a/b", 1, f"did you mean {ODD}?"),
        ("websocket:%zz", 2, "two hexadecimal digits"),
        (f"{BUSY}#7", 1, "its ended conversations are #1"),
        (f"{ROOM}#1", 1, "none has ended yet"),
        ("", 2, "channel:chat_id"),
        ("a:" + "x" * 600, 2, "at most 512"),
    ],
)
def test_a_wrong_key_is_answered_with_what_was_perhaps_meant(
    data: Path, key: str, code: int, expected: str
) -> None:
    """One line, exit 2 for a text that is no key, 1 for a session that is not there."""
    result = parley(data, "show", key)

    assert result.exit_code == code
    assert expected in failure(result)


def test_a_file_in_place_of_the_data_directory_is_a_configuration_error(tmp_path: Path) -> None:
    """Exit 78, for reading and for changing."""
    place = tmp_path / "file"
    place.write_text("")
    source = legacy_file(tmp_path / "legacy").parent

    assert parley(place, "list").exit_code == 78
    assert parley(place, "repair").exit_code == 78
    assert parley(place, "migrate", "--from", str(source)).exit_code == 78


def test_a_directory_without_sessions_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """Pointing at the wrong directory is noticed."""
    result = parley(tmp_path, "list")

    assert result.exit_code == 1
    assert "is not a data directory" in failure(result)


def test_a_network_file_system_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 78 and one line with the reason."""
    monkeypatch.setattr(directory, "file_system", lambda *_: "nfs4")
    result = parley(data, "archive", str(ROOM))

    assert result.exit_code == 78
    assert "network file system (nfs4)" in failure(result)


def test_a_failing_disk_is_one_line(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the system is no traceback."""

    def fail(*_: object) -> int:
        monkeypatch.undo()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(disk, "write", fail)
    result = parley(data, "archive", str(ROOM))

    assert result.exit_code == 1
    assert "Input/output error" in failure(result)


def test_the_data_directory_can_be_named_anywhere(data: Path) -> None:
    """By the environment, before or after the command; the innermost one counts."""
    runner = CliRunner(env={"PARLEY_DATA_DIR": "nowhere"})
    places = [
        ["--data-dir", str(data), "sessions", "list"],
        ["sessions", "--data-dir", str(data), "list"],
        ["--data-dir", "elsewhere", "sessions", "list", "--data-dir", str(data)],
    ]
    by_environment = CliRunner(env={"PARLEY_DATA_DIR": str(data)})

    assert all(runner.invoke(main, place).exit_code == 0 for place in places)
    assert by_environment.invoke(main, ["sessions", "list"]).exit_code == 0
    assert runner.invoke(main, ["sessions", "list"]).exit_code == 1


def test_every_command_has_help_and_json() -> None:
    """Each of them says what it does and offers `--json` and `--data-dir`."""
    group = main.commands["sessions"]
    texts = [CliRunner().invoke(group, [name, "--help"]).stdout for name in group.commands]  # type: ignore[attr-defined]

    assert len(texts) == 12
    assert all("--json" in text and "--data-dir" in text for text in texts)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (5, "just now"),
        (-5, "just now"),
        (150, "2 min ago"),
        (7_300, "2 h ago"),
        (100_000, "yesterday"),
        (300_000, "3 days ago"),
        (10_016_000, "2026-01-07"),
    ],
)
def test_times_are_told_as_people_do(seconds: int, expected: str) -> None:
    """Relative while that says more, else the date."""
    now = 1_777_800_000.0
    then = clock.from_epoch(now - seconds)

    assert screen.ago(then, now) == expected


# -- the real command -------------------------------------------------------------------------


def command(data: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "gateway", "--data-dir", str(data), "sessions", *arguments]
    return subprocess.run(line, check=False, capture_output=True, text=True, timeout=60, **options)


def test_a_locked_directory_exits_75(data: Path) -> None:
    """One line on stderr names the process and the path; nothing is changed."""
    with directory.DataDirectory(data) as held:
        held.open("interval")
        results = [command(data, "repair"), command(data, "delete", str(ROOM), "--yes")]

    line = (
        f"parley: {data} is in use by process {os.getpid()}; stop it first, then run this again\n"
    )
    assert [result.returncode for result in results] == [75, 75]
    assert [result.stderr for result in results] == [line, line]
    assert live_file(data, ROOM).exists()


def test_the_installed_command_is_the_module(data: Path) -> None:
    """`parley` and `python -m gateway` do the same."""
    installed = Path(sys.executable).with_name("parley")
    line = [str(installed), "--data-dir", str(data), "sessions", "list", "--json"]
    result = subprocess.run(line, check=False, capture_output=True, text=True, timeout=60)

    assert result.stdout == command(data, "list", "--json").stdout


def test_help_does_not_import_what_only_the_work_needs() -> None:
    """`parley sessions --help` is quick: neither the store nor rich is loaded for it."""
    code = (
        "import sys\nfrom gateway.cli import main\n"
        "main(['sessions', '--help'], standalone_mode=False)\n"
        "print(sorted({'rich', 'msgspec', 'loguru', 'sqlite3', 'asyncio'} & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )

    assert "Examples:" in result.stdout
    assert result.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_goes_away_is_no_traceback(data: Path) -> None:
    """`parley sessions export … | head -1` ends quietly."""
    line = f"{sys.executable} -m gateway --data-dir {data} sessions show {BUSY} --limit 0 | head -1"
    result = subprocess.run(
        line, check=False, shell=True, capture_output=True, text=True, timeout=60
    )

    assert result.stdout.startswith(str(BUSY))
    assert result.stderr == ""


def on_a_terminal(data: Path, *arguments: str, typed: bytes = b"", columns: int = 80) -> bytes:
    """What the command writes to a terminal of its own."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    line = [sys.executable, "-m", "gateway", "--data-dir", str(data), "sessions", *arguments]
    child = subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, typed)
    shown = b""
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:
        pass  # Linux reports the end of a terminal as an error.
    child.wait(timeout=60)
    os.close(ours)
    return shown


def test_delete_asks_on_a_terminal(data: Path) -> None:
    """The question says how much would go; no means no and yes means yes."""
    refused = on_a_terminal(data, "delete", str(ROOM), typed=b"n\n")
    kept = live_file(data, ROOM).exists()
    on_a_terminal(data, "delete", str(ROOM), typed=b"y\n")

    assert b"with 2 messages for ever?" in refused
    assert kept
    assert not live_file(data, ROOM).exists()


def test_a_terminal_gets_colour_and_its_own_width(data: Path) -> None:
    """The table is as wide as the window and not wider."""
    shown = on_a_terminal(data, "list", columns=70).decode()

    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in shown.splitlines()]
    assert "\x1b[36m" in shown
    assert max(cell_len(line) for line in lines) <= 70


def test_an_interrupted_migration_stops_between_two_files(tmp_path: Path) -> None:
    """Every session is in one place, and the directory is left clean."""
    for number in range(1_000):
        legacy_file(tmp_path / "legacy", f"telegram:{number}")
    arguments = ["--data-dir", str(tmp_path / "data"), "sessions", "migrate"]
    moved = tmp_path / "data" / "sessions" / "telegram"
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *arguments, "--from", str(tmp_path / "legacy")],
        stderr=subprocess.PIPE,
    ) as child:
        while not moved.is_dir():
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        child.wait(timeout=60)

    assert child.returncode == 1
    assert len(os.listdir(moved)) + len(os.listdir(tmp_path / "legacy")) == 1_000
    assert (tmp_path / "data" / "CLEAN").exists()


# Whoever runs the tests in the background has taught their children to ignore the signal.
INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from gateway.cli import main
main()
"""


# -- what these commands rely on --------------------------------------------------------------


async def test_mending_an_archive_puts_bytes_aside_before_the_file_changes(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the new file cannot be put in place, the archive is as it was and nothing is lost."""
    spoil(archive_file(data, BUSY), 3)
    before = archive_file(data, BUSY).read_bytes()
    replace = disk.replace

    def fail(source: Path, target: Path) -> None:
        if target.parent.parent.name == "archive":
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(disk, "replace", fail)
    async with opened(data) as store:
        with pytest.raises(Exception, match="cannot be repaired: No space left"):
            store.files.mend_archive(BUSY)

    assert archive_file(data, BUSY).read_bytes() == before
    assert [path.read_bytes() for path in (data / "quarantine").iterdir()] == [b"\xff garbage"]


async def test_an_archive_without_damage_is_not_touched(data: Path) -> None:
    """Mending what is whole does nothing; neither does mending what is not there."""
    before = fingerprint(data / "archive")
    async with opened(data) as store:
        done = [store.files.mend_archive(key) for key in (BUSY, ROOM, SessionKey("a", "b"))]

    assert done == [None, None, None]
    assert fingerprint(data / "archive") == before


async def test_an_archive_is_found_again_after_all_metadata_is_lost(data: Path) -> None:
    """Its rows stay within reach, cached or not, and count as messages."""
    path = live_file(data, BUSY)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join(line for line in lines if b'"_type"' not in line))
    viewed = LogFiles(directory.DataDirectory(data)).page(BUSY, 0, None, 1_000)
    async with opened(data) as store:
        session = await store.get(BUSY)
        loaded = await rows_of(store, BUSY)

    assert [row.seq for row in viewed] == [row.seq for row in loaded] == list(range(1, 44))
    assert session is not None
    assert session.message_count == 43


async def test_a_new_file_stays_open_when_all_others_are_in_use(tmp_path: Path) -> None:
    """Room is made by closing an older one."""
    async with opened(tmp_path, open_files=2) as store:
        for number in range(5):
            await store.append(SessionKey("websocket", str(number)), [user("hello")])

        assert len(store._writer) == 2


async def test_clean_is_written_only_once_a_predecessors_bytes_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an unclean stop files that nobody loaded may be in memory only: sync them all."""
    async with doomed(tmp_path) as store:
        await store.append(ROOM, [user("hello")])
    monkeypatch.setattr(disk, "can_sync_filesystem", False)
    async with opened(tmp_path):
        pass
    unclean = not (tmp_path / "CLEAN").exists()
    monkeypatch.setattr(disk, "can_sync_filesystem", True)
    synced: list[int] = []
    monkeypatch.setattr(disk, "sync_filesystem", synced.append)
    async with opened(tmp_path):
        pass

    assert unclean
    assert len(synced) == 1
    assert (tmp_path / "CLEAN").exists()


async def test_a_directory_is_released_even_if_clean_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk at the very end leaves an unclean directory, not a locked one."""

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with opened(tmp_path):
        monkeypatch.setattr(disk, "replace", fail)

    assert directory.owner_of(tmp_path) is None
    assert not (tmp_path / "CLEAN").exists()
