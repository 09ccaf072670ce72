"""A whole session as a file, a piece at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from gateway.bus import message_fields
from gateway.http.answers import encode
from sessions import lines
from sessions.record import Record
from sessions.session import Archived, Session

MEDIA_TYPES = {
    "md": "text/markdown; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "json": "application/json",
}


def pieces(
    form: str, session: Session, head: bytes, rows: AsyncIterator[Record]
) -> AsyncIterator[bytes]:
    if form == "jsonl":
        return _log(session, rows)
    return _object(head, rows) if form == "json" else _markdown(session, rows)


async def _log(session: Session, rows: AsyncIterator[Record]) -> AsyncIterator[bytes]:
    """A log of its own: one metadata line, then every row as it stands in the file."""
    state = msgspec.structs.replace(session.state, archived=Archived())
    yield session.metadata_line(session.metadata, state, session.records, session.updated_at)[0]
    async for row in rows:
        yield lines.encode([row])


async def _object(head: bytes, rows: AsyncIterator[Record]) -> AsyncIterator[bytes]:
    yield head[:-1] + b',"messages":['
    comma = b""
    async for row in rows:
        if not row.is_note:
            yield comma + encode(message_fields(row))
            comma = b","
    yield b"]}\n"


async def _markdown(session: Session, rows: AsyncIterator[Record]) -> AsyncIterator[bytes]:
    title = session.title or session.state.preview or str(session.key)
    yield _bytes(f"# {' '.join(title.split())}\n")
    yield _bytes(f"\n- Session: `{session.key}`\n- Started: {session.created_at}\n")
    async for row in rows:
        if not row.is_note:
            yield _bytes(_section(row))


def _section(row: Record) -> str:
    who = {"user": "User", "assistant": "Assistant", "tool": f"Tool {row.name or ''}".strip()}
    parts = [f"\n## {who.get(row.role, row.role)} · {row.timestamp} · #{row.seq}\n"]
    if row.text:
        parts.append(f"\n{_closed(row.text)}\n")
    parts += [
        f"\n*[{item.get('mime', 'file')} {item.get('name', '')}]*\n"
        for item in row.media or ()
        if isinstance(item, dict)
    ]
    return "".join(parts)


def _closed(text: str) -> str:
    """An answer that was cut off inside a code block must not swallow what follows."""
    fences = sum(1 for line in text.split("\n") if line.lstrip().startswith("```"))
    return f"{text}\n```" if fences % 2 else text


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
