"""A conversation as people read it: on the terminal, and as Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.cli import screen
from gateway.cli.screen import clean, one_line
from sessions.index import read_conversation
from sessions.record import NoteKind, Outcome, Record
from sessions.session import Session

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

TOOL_LINES = 6
TOOL_CHARS = 600
_STYLES = {"user": "bold cyan", "assistant": "bold green", "tool": "magenta"}
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class Call(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class Changes:
    """What the senders changed later: notes say so, the rows stay as they were."""

    def __init__(self, rows: Iterable[Record]) -> None:
        self.edited: dict[int, str] = {}
        self.deleted: set[int] = set()
        for row in rows:
            note = row.note or {}
            seq, content = note.get("seq"), note.get("content")
            if not isinstance(seq, int):
                continue
            if note.get("kind") == NoteKind.DELETED:
                self.deleted.add(seq)
            elif note.get("kind") == NoteKind.EDITED and isinstance(content, str):
                self.edited[seq] = content

    def text(self, row: Record) -> str:
        return self.edited.get(row.seq, row.text)


def facts(row: Record, changes: Changes) -> Iterator[str]:
    """What is worth knowing of a message beside who wrote it and when."""
    if (row.note or {}).get("kind") == NoteKind.DAMAGED:
        yield "damaged, its bytes are in quarantine/"
    elif row.command:
        yield "command"
    if row.seq in changes.edited:
        yield "edited"
    if row.seq in changes.deleted:
        yield "deleted by its sender"
    if row.replaces is not None:
        yield f"replaces #{row.replaces}"
    if row.outcome is not None and row.outcome not in (Outcome.ANSWERED, Outcome.COMMAND):
        yield row.outcome
    if row.latency_ms:
        yield f"{row.latency_ms / 1000:.1f} s"


def speaker(row: Record) -> str:
    if row.role == "tool":
        return f"tool {row.name}" if row.name else "tool"
    sender = row.sender.get("name") or row.sender.get("id") if isinstance(row.sender, dict) else ""
    sender = row.sender if isinstance(row.sender, str) else sender
    return f"{row.role} ({sender})" if sender else row.role


def calls(row: Record) -> list[Call]:
    return [_call(call) for call in row.tool_calls or () if isinstance(call, dict)]


def _call(call: dict[str, Any]) -> Call:
    inner = call.get("function")
    values = inner if isinstance(inner, dict) else call
    found = next((values[name] for name in _ARGUMENTS if name in values), "")
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return Call(str(values.get("name") or "?"), text)


_ARGUMENTS = ("arguments", "args", "input")


def attachments(row: Record) -> list[str]:
    blocks = row.content if isinstance(row.content, list) else ()
    named = [_attachment(item) for item in row.media or ()]
    return named + [
        f"[{block.get('type', 'attachment')}]"
        for block in blocks
        if isinstance(block, dict) and not isinstance(block.get("text"), str)
    ]


def _attachment(item: object) -> str:
    if not isinstance(item, dict):
        return f"[{str(item)[:80]}]"
    parts = [str(item[name]) for name in ("mime", "name", "id") if item.get(name)]
    return f"[{' '.join(parts[:2]) or 'attachment'}]"


def turned(row: Record) -> int | None:
    """The number of the conversation that begins after this row."""
    ended = read_conversation(row)
    return None if ended is None else ended.number + 1


# -- on the terminal --------------------------------------------------------------------------


def show(session: Session, messages: Sequence[Record], changes: Changes) -> None:
    console = screen.console()
    day = ""
    for row in messages:
        time = screen.moment(row.timestamp)
        local = time.astimezone() if time else None
        today = local.strftime("%A, %d %B %Y") if local else ""
        if today and today != day:
            console.print(today, style="dim")
            day = today
        _print(console, _head(row, changes, local.strftime("%H:%M:%S") if local else "", session))
        for line in _body(row, changes):
            _print(console, line, indent=2)
        if number := turned(row):
            _print(console, _text(f"— conversation {number} begins —", "dim"), indent=2)
        console.print()


def _head(row: Record, changes: Changes, time: str, session: Session) -> Text:
    head = _text("").append(f"#{row.seq}  ", style="dim")
    head.append(one_line(speaker(row)), style=_STYLES.get(row.role, "bold"))
    noted = [time, *facts(row, changes)]
    if row.seq in session.unsettled:
        noted.append("pending")
    if row.seq in session.undelivered:
        noted.append("not delivered yet")
    return head.append("  " + " · ".join(one_line(fact) for fact in noted if fact), style="dim")


def _body(row: Record, changes: Changes) -> Iterator[Text]:
    if row.reasoning_content:
        yield _text(_shortened(one_line(row.reasoning_content), 200), "dim italic")
    text = clean(changes.text(row)).strip("\n")
    if row.role == "tool":
        text = _folded(text)
    if text:
        yield _text(text)
    for call in calls(row):
        yield _text(
            f"→ {one_line(call.name)} {_shortened(one_line(call.arguments), 400)}", "magenta"
        )
    for name in attachments(row):
        yield _text(one_line(name), "blue")


def _text(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(text, style=style)


def _print(console: Console, text: Text, indent: int = 0) -> None:
    from rich.padding import Padding

    if console.is_terminal:
        console.print(Padding(text, (0, 0, 0, indent)))
        return
    margin = " " * indent
    plain = "\n".join(margin + line if line else "" for line in text.plain.split("\n"))
    console.print(plain, soft_wrap=True)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _folded(text: str) -> str:
    shown = "\n".join(text[:TOOL_CHARS].split("\n")[:TOOL_LINES])
    if len(shown) == len(text):
        return text
    return f"{shown}\n… {len(text) - len(shown):,} more characters; export shows them"


# -- as Markdown ------------------------------------------------------------------------------


def markdown(session: Session, messages: Sequence[Record], changes: Changes) -> Iterator[str]:
    """The whole conversation, in paragraphs."""
    yield f"# {_inline(session.title or session.state.preview or str(session.key))}"
    about = [
        ("Session", f"`{session.key}`"),
        ("State", session.state.state),
        ("Started", screen.utc(session.created_at)),
        ("Last message", screen.utc(messages[-1].timestamp if messages else session.updated_at)),
        ("Messages", f"{len(messages):,}"),
    ]
    if session.state.tags:
        about.append(("Tags", ", ".join(_inline(tag) for tag in session.state.tags)))
    yield "\n".join(f"- **{name}:** {value}" for name, value in about)
    if session.state.summary:
        yield "## Summary"
        yield _closed(clean(session.state.summary))
    for row in messages:
        yield from _section(row, changes)
        if number := turned(row):
            yield "---"
            yield f"*Conversation {number} begins.*"


def _section(row: Record, changes: Changes) -> Iterator[str]:
    who = speaker(row)
    when = [screen.utc(row.timestamp)] if row.timestamp else []
    noted = [*when, f"#{row.seq}", *facts(row, changes)]
    yield f"### {_inline(who[:1].upper() + who[1:])} · {_inline(' · '.join(noted))}"
    if row.reasoning_content:
        yield from _details("Reasoning", clean(row.reasoning_content), "")
    text = clean(changes.text(row)).strip("\n")
    if row.role == "tool":
        yield from _details("Result", text, "json" if _is_json(text) else "")
    elif text:
        yield _closed(text)
    for call in calls(row):
        arguments = clean(call.arguments)
        kind = "json" if _is_json(arguments) else ""
        yield from _details(f"Tool call: {call.name}", arguments, kind)
    for name in attachments(row):
        yield f"*{_inline(name)}*"


def _details(title: str, text: str, kind: str) -> Iterator[str]:
    """A piece of code that is folded away until someone wants it."""
    runs = re.findall(r"`{3,}", text)
    fence = "`" * max([3, *(len(run) + 1 for run in runs)])
    yield f"<details><summary>{_inline(title)}</summary>"
    yield f"{fence}{kind}\n{text}\n{fence}"
    yield "</details>"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return text.lstrip().startswith(("{", "["))


def _inline(text: str) -> str:
    return re.sub(r"([\\`*_<>\[\]|])", r"\\\1", one_line(text))


def _closed(text: str) -> str:
    """The text with its last code block closed: an interrupted one must not swallow the rest."""
    fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if found is None:
            continue
        if not fence:
            fence = found[1]
        elif found[1][0] == fence[0] and len(found[1]) >= len(fence) and line.strip() == found[1]:
            fence = ""
    return f"{text}\n{fence}" if fence else text
