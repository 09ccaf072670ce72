"""What the commands print for people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from gateway.cli import screen
from gateway.cli.screen import Column, count, echo, one_line, table
from gateway.cli.sessions import transcript
from gateway.cli.sessions.inspection import Inspection
from gateway.cli.sessions.library import Library
from gateway.cli.sessions.repair import Repaired
from gateway.cli.sessions.repair import Report as RepairReport
from sessions import legacy
from sessions.index import describe
from sessions.record import Record
from sessions.session import Session
from sessions.store import Conversation, SessionInfo, words

MOST_ROWS = 50
KEY = Column("KEY", share=0.7, fold=True, style="cyan")


def unreadable(library: Library) -> None:
    """One line for what a reading command had to leave out."""
    if library.unreadable:
        first = library.unreadable[0]
        others = len(library.unreadable) - 1
        more = f" and {count(others, 'other')}" if others else ""
        text = f"parley: left out {first.path} ({first.reason}){more}; see parley sessions verify"
        echo(one_line(text), "yellow", stderr=True)


def sessions(found: Sequence[SessionInfo], path: Path, *, filtered: bool) -> None:
    if not found:
        echo("No session fits." if filtered else f"There are no sessions in {path}.")
        return
    columns = [
        KEY,
        Column("UPDATED"),
        Column("MSGS", right=True),
        Column("STATE", least=8),
        Column("TITLE", least=12),
    ]
    table(columns, [_row(info) for info in found])


def _row(info: SessionInfo) -> list[str | Text]:
    ended = "#" in info.key
    messages = "" if ended else f"{info.message_count:,}"
    return [info.key, screen.ago(info.updated_at), messages, _state(info), _title(info)]


def _state(info: SessionInfo) -> Text:
    state = Text("ended" if "#" in info.key else info.state)
    if info.pending:
        state.append(f" {info.pending} pending", style="yellow")
    if info.undelivered:
        state.append(f" {info.undelivered} undelivered", style="yellow")
    if info.damaged:
        state.append(f" {info.damaged} damaged", style="red")
    return state


def _title(info: SessionInfo) -> Text:
    if info.title:
        return Text(one_line(info.title))
    return Text(one_line(info.preview), style="dim")


def matches(found: Sequence[SessionInfo], text: str) -> None:
    if not found:
        echo(f"Nothing found for {one_line(text)!r}.")
        return
    for number, info in enumerate(found):
        if number:
            echo()
        head = Text().append(info.key, style="cyan")
        head.append(f"  {screen.ago(info.updated_at)}", style="dim")
        if info.title:
            head.append("  ").append(_marked(info.title, text))
        echo(head)
        for match in info.matches:
            echo(
                Text().append(f"  #{match.seq}  ", style="dim").append(_marked(match.snippet, text))
            )


def _marked(snippet: str, text: str) -> Text:
    shown = Text(one_line(snippet))
    shown.highlight_words(words(text), style="bold yellow", case_sensitive=False)
    return shown


# -- one session ------------------------------------------------------------------------------


def conversation(
    session: Session, messages: Sequence[Record], *, more: bool, forwards: bool
) -> None:
    info = describe(session)
    if session.title:
        echo(one_line(session.title), "bold")
    facts = [
        str(session.key),
        info.state,
        count(info.message_count, "message"),
        f"updated {screen.ago(info.updated_at)}",
        f"{info.pending} pending" if info.pending else "",
        f"{info.undelivered} undelivered" if info.undelivered else "",
        f"{info.damaged} damaged" if info.damaged else "",
    ]
    echo(" · ".join(fact for fact in facts if fact), "dim")
    if more and not forwards:
        echo(f"Older messages: --before {messages[0].seq}, or --limit 0 for all", "yellow")
    echo()
    if not messages:
        echo("No messages.")
    transcript.show(session, messages, transcript.Changes([*session.records, *messages]))
    if more and forwards:
        echo(f"Newer messages: --after {messages[-1].seq}", "yellow")


def conversations(session: Session, ended: Sequence[Conversation]) -> None:
    columns = [
        KEY,
        Column("STARTED"),
        Column("ENDED"),
        Column("ROWS", right=True),
        Column("TITLE", least=12),
    ]
    rows = [
        [
            f"{session.key.chat}#{one.number}",
            screen.ago(one.started_at),
            screen.ago(one.ended_at),
            f"{one.first + 1}–{one.last}",
            one.title or one.preview,
        ]
        for one in ended
    ]
    started = session.state.conversation_at or session.created_at
    title = session.title or session.state.preview
    span = f"{session.state.conversation_start + 1}–"
    table(columns, [*rows, [str(session.key), screen.ago(started), "–", span, title]])


def stats(counted: dict[str, Any]) -> None:
    states = ", ".join(f"{n:,} {name}" for name, n in counted["sessions_by_state"].items())
    rows = [
        ("Sessions", f"{counted['total_sessions']:,}" + (f" ({states})" if states else "")),
        ("Messages", f"{counted['total_messages']:,}"),
        ("Tokens the agents see", f"{counted['total_tokens']:,}"),
        ("Pending messages", f"{counted['pending_messages']:,}"),
        ("Undelivered replies", f"{counted['undelivered_messages']:,}"),
        ("Live logs", screen.size(counted["live_bytes"])),
        ("Archives", screen.size(counted["archive_bytes"])),
        ("Quarantined pieces", f"{counted['quarantined']:,}"),
    ]
    table([Column(""), Column("", least=10)], rows)


# -- files ------------------------------------------------------------------------------------

_STOPS = {
    "clean": "The last stop was clean.",
    "unclean": "The last stop was not clean; the next start sees to it.",
    "unused": "No process has owned this directory yet.",
}


def inspection(found: Inspection, path: Path) -> None:
    columns = [
        Column("FILE", share=0.5, fold=True, style="cyan"),
        Column("LINE", right=True),
        Column("BYTE", right=True),
        Column("PROBLEM", least=16, fold=True),
    ]
    rows = [
        [problem.path, _number(problem.line), _number(problem.offset), problem.reason]
        for problem in found.damaged
    ]
    rows += [[one.path, "", "", f"unreadable: {one.reason}"] for one in found.unreadable]
    rows += [[one.path, "", "", f"left alone: {one.reason}"] for one in found.strangers]
    if rows:
        table(columns, rows)
        echo()
    files = f"{count(found.sessions, 'session')} and {count(found.archives, 'archive')}"
    echo(f"Checked {files} in {path}, {screen.size(found.bytes)}.")
    if found.quarantined:
        echo(f"quarantine/ holds {count(found.quarantined, 'damaged piece')}.")
    owner = f"Process {found.stop.pid} is using this directory."
    echo(_STOPS.get(found.stop.state, owner))
    _verdict(found)


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _verdict(found: Inspection) -> None:
    if found.ok:
        echo("Everything is whole.", "green")
        return
    if found.damaged:
        files = len({problem.path for problem in found.damaged})
        text = f"{count(files, 'file')} damaged: run parley sessions repair, see docs/storage.md."
        echo(text, "bold red")
    if found.unreadable:
        text = f"{count(len(found.unreadable), 'file')} unreadable: see docs/storage.md."
        echo(text, "bold red")


def repaired(report: RepairReport, path: Path) -> None:
    if report.repaired:
        columns = [
            KEY,
            Column("PUT ASIDE", right=True),
            Column("MENDED", right=True),
            Column("PROBLEM", least=16, fold=True),
        ]
        rows = [
            [one.key, str(one.skipped), str(one.recovered), _problems(one)]
            for one in report.repaired
        ]
        table(columns, rows)
        echo()
        for one in report.repaired:
            for name in one.quarantine:
                echo(str(path / "quarantine" / name), "dim")
    for failed in report.failed:
        echo(f"{one_line(failed.path)} is not repaired: {one_line(failed.reason)}", "bold red")
    if not report.repaired and not report.failed:
        echo("Everything is whole; there was nothing to repair.", "green")
    elif report.repaired:
        echo(f"{count(len(report.repaired), 'file')} repaired.", "green")


def _problems(one: Repaired) -> str:
    """Each kind of problem once."""
    place = "in the archive: " if one.path.startswith("archive/") else ""
    return place + "; ".join(dict.fromkeys(one.problems))


def migrated(report: legacy.Report, source: Path, *, dry_run: bool, keep: bool) -> None:
    columns = [
        Column("FILE", share=0.45, fold=True),
        Column("RESULT"),
        Column("DETAIL", least=16, fold=True),
    ]
    rows: list[list[str | Text]] = []
    done = "would migrate" if dry_run else "migrated"
    if len(report.migrated) <= MOST_ROWS:
        rows += [
            [_inside(one.path, source), Text(done, "green"), _detail(one, keep=keep)]
            for one in report.migrated
        ]
    for skip in report.skipped:
        key = f"{skip.key}: " if skip.key else ""
        rows.append([_inside(skip.path, source), Text("skipped", "yellow"), key + skip.reason])
    for failure in report.failed:
        rows.append([_inside(failure.path, source), Text("failed", "red"), failure.reason])
    if rows:
        table(columns, rows)
        echo()
    counts = f"{len(report.skipped):,} skipped, {len(report.failed):,} failed"
    echo(f"{source}: {len(report.migrated):,} {done}, {counts}.")


def _detail(one: legacy.Migrated, *, keep: bool) -> str:
    parts = [f"{one.key}, {count(one.rows, 'row')}"]
    if one.damaged:
        parts.append(f"{count(one.damaged, 'line')} put aside")
    if one.left and not keep:
        parts.append(f"source left: {one.left}")
    return "; ".join(parts)


def _inside(path: str, source: Path) -> str:
    return path.removeprefix(f"{source}/")
