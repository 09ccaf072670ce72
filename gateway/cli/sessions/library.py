"""The sessions of a data directory, to be read.

Works on the files alone: takes no lock, writes nothing, creates nothing. A daemon may be writing
meanwhile, and the directory may be read-only.
"""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gateway.cli.exits import Failure, Misconfigured
from sessions import conversations, lines, loader
from sessions.directory import DataDirectory
from sessions.errors import InvalidKey, SessionNotFound, SessionUnreadable
from sessions.index import MATCHES_SHOWN, describe, describe_conversation, searchable
from sessions.key import SessionKey
from sessions.log_files import LogFiles
from sessions.record import Record
from sessions.session import Archived, Session
from sessions.store import Conversation, Match, Query, SessionInfo, fits, snippet, words

PUSH_CHANNELS = frozenset({"slack"})
PAGE_ROWS = 1_000
MOST_SUGGESTIONS = 3

Progress = Callable[[int, int], None]


class Unreadable(msgspec.Struct, frozen=True):
    path: str
    reason: str


class Library:
    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self.files = LogFiles(directory, push_channels=PUSH_CHANNELS)
        self.unreadable: list[Unreadable] = []
        """What was met so far and could not be read."""

    @classmethod
    def at(cls, path: Path) -> Library:
        """Raises Failure if there is no data directory."""
        check(path)
        return cls(DataDirectory(path))

    # -- finding ------------------------------------------------------------------------------

    def paths(self, root: Path) -> list[Path]:
        """The log files under `sessions/` or `archive/`, in order."""
        found: list[Path] = []
        for channel in self._entries(root):
            if channel.is_dir(follow_symlinks=False):
                found += [
                    Path(entry.path)
                    for entry in self._entries(Path(channel.path))
                    if entry.name.endswith(".jsonl")
                ]
        return found

    def _entries(self, directory: Path) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(directory) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            return []
        except OSError as error:
            self._note(directory, error.strerror or str(error))
            return []

    def _note(self, path: Path, reason: str) -> None:
        self.unreadable.append(Unreadable(self.shown(path), reason))

    def shown(self, path: Path) -> str:
        """A file's place in the data directory."""
        inside = path.is_relative_to(self.directory.path)
        name = path.relative_to(self.directory.path) if inside else path
        return os.fsencode(name).decode(errors="replace")

    def key(self, text: str) -> SessionKey:
        """A session that exists. Raises InvalidKey or Failure, with what was perhaps meant."""
        try:
            key = SessionKey.parse(text)
        except InvalidKey as error:
            reason = error.reason + self._suggestion(text)
            raise InvalidKey(error.text, reason) from error
        if not os.path.lexists(self.directory.live_path(key.chat)):
            raise Failure(f"there is no session {key}{self._suggestion(str(key))}")
        if key.conversation is not None:
            self._conversation(key)
        return key

    def _suggestion(self, text: str) -> str:
        wanted = text.casefold().rpartition(":")[2].partition("#")[0] or text.casefold()
        chats: dict[str, list[str]] = {}
        for name in self._names():
            chats.setdefault(name.partition(":")[2].casefold(), []).append(name)
        inside = sorted((chat for chat in chats if wanted in chat), key=len)
        close = difflib.get_close_matches(wanted, chats, n=MOST_SUGGESTIONS, cutoff=0.7)
        found = [name for chat in dict.fromkeys([*inside, *close]) for name in chats[chat]]
        if not found:
            return "; parley sessions list shows what there is"
        return f"; did you mean {' or '.join(found[:MOST_SUGGESTIONS])}?"

    def _names(self) -> Iterator[str]:
        """Keys by the names of their files; those too long for one are left out."""
        for path in self.paths(self.directory.sessions):
            key = SessionKey.from_file(path.parent.name, path.stem)
            if key is not None:
                yield str(key)

    def _conversation(self, key: SessionKey) -> Conversation:
        ended = self.files.ended(key.chat)
        try:
            return conversations.find(ended, key)
        except SessionNotFound as error:
            numbers = ", ".join(f"#{one.number}" for one in ended if one.listed)
            has = f"its ended conversations are {numbers}" if numbers else "none has ended yet"
            raise Failure(
                f"{key.chat} has no ended conversation {key.conversation}; {has}"
            ) from error

    # -- lists --------------------------------------------------------------------------------

    def sessions(
        self, progress: Progress, *, whole: bool = False
    ) -> Iterator[tuple[Session, list[Record]]]:
        """Every session that can be read, with its rows; those of its archive too if `whole`."""
        paths = self.paths(self.directory.sessions)
        for done, path in enumerate(paths):
            progress(done, len(paths))
            try:
                yield self.files.view_file(path, with_archive=whole)
            except SessionNotFound:
                continue
            except SessionUnreadable as error:
                self._note(error.path, error.reason)
                if error.path != path:
                    yield self.files.view_file(path)
        progress(len(paths), len(paths))

    def find(self, query: Query, progress: Progress) -> list[SessionInfo]:
        """Newest first, as the store's `find`."""
        wanted = words(query.text)
        found: list[SessionInfo] = []
        for session, rows in self.sessions(progress, whole=bool(wanted)):
            infos = [msgspec.structs.replace(describe(session), matches=_matches(rows, wanted))]
            infos += [
                describe_conversation(session, ended)
                for ended in self.ended(session)
                if ended.listed
            ]
            found += [info for info in infos if fits(info, query)]
        found.sort(key=lambda info: (info.updated_at, info.key), reverse=True)
        return found[: query.limit] if query.limit > 0 else found

    def ended(self, session: Session) -> list[Conversation]:
        try:
            return self.files.ended(session.key.chat, session.records)
        except SessionUnreadable as error:
            self._note(error.path, error.reason)
            return []

    def stats(self, progress: Progress) -> dict[str, Any]:
        states: Counter[str] = Counter()
        totals: Counter[str] = Counter()
        for session, _ in self.sessions(progress):
            info = describe(session)
            states[info.state] += 1
            totals["messages"] += info.message_count
            totals["tokens"] += info.token_count
            totals["pending"] += info.pending
            totals["undelivered"] += info.undelivered
        return {
            "total_sessions": states.total(),
            "active_sessions": states["active"],
            "archived_sessions": states["archived"],
            "sessions_by_state": dict(states),
            "total_messages": totals["messages"],
            "total_tokens": totals["tokens"],
            "pending_messages": totals["pending"],
            "undelivered_messages": totals["undelivered"],
            "live_bytes": self._bytes(self.directory.sessions),
            "archive_bytes": self._bytes(self.directory.archive),
            "quarantined": len(self._entries(self.directory.quarantine)),
        }

    def _bytes(self, root: Path) -> int:
        return sum(path.lstat().st_size for path in self.paths(root) if path.exists())

    # -- one session --------------------------------------------------------------------------

    def session(self, key: SessionKey) -> Session:
        session = self.files.view(key.chat)
        if session is None:
            raise SessionNotFound(key)
        if key.conversation is None:
            return session
        ended = self._conversation(key)
        rows = self.files.page(key.chat, ended.first, ended.last + 1, ended.last)
        return conversations.view(session, key, ended, rows)

    def rows(self, session: Session) -> list[Record]:
        """Every row of a session or of an ended conversation, through the archive."""
        if session.key.conversation is not None:
            return session.records
        return self.files.view_file(session.file.path, with_archive=True)[1]

    def messages(
        self, session: Session, after: int | None, before: int | None, limit: int
    ) -> tuple[list[Record], bool]:
        """A page of rows that are messages, and whether there are more in that direction.

        With `after` from the front, else from the end. Without a limit: all of them.
        """
        if limit <= 0 or session.key.conversation is not None:
            found = [row for row in self.rows(session) if _between(row, after, before)]
            found = [row for row in found if not row.is_note]
        else:
            found = self._page(session.key, after, before, limit + 1)
        if limit <= 0 or len(found) <= limit:
            return found, False
        return (found[-limit:] if after is None else found[:limit]), True

    def _page(
        self, key: SessionKey, after: int | None, before: int | None, least: int
    ) -> list[Record]:
        found: list[Record] = []
        while len(found) < least:
            rows = self.files.page(key, after, before, PAGE_ROWS)
            messages = [row for row in rows if not row.is_note]
            found = messages + found if after is None else found + messages
            if len(rows) < PAGE_ROWS:
                break
            if after is None:
                before = rows[0].seq
            else:
                after = rows[-1].seq
        return found

    def raw(self, session: Session) -> Iterator[bytes]:
        """A log of its own: one metadata line, then the rows as they stand on the disk."""
        state = msgspec.structs.replace(session.state, archived=Archived())
        rows = self.rows(session)
        yield session.metadata_line(session.metadata, state, rows, session.updated_at)[0]
        wanted = {row.seq for row in rows}
        # Live before archive: what moves meanwhile is then found at least once.
        key = session.key.chat
        live = self._raw(self.directory.live_path(key))
        archived = self._raw(self.directory.archive_path(key))
        for seq, line in sorted({**live, **archived}.items()):
            if seq in wanted:
                yield line

    @staticmethod
    def _raw(path: Path) -> dict[int, bytes]:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return {}
        found = loader.load(data)
        raw = loader.raw_rows(data, found)
        return {row.seq: line for row, line in zip(found.records, raw, strict=True)}


def check(path: Path, *, may_create: bool = False) -> None:
    """Raises Failure unless this is a data directory, or can become one."""
    hint = "name the data directory with --data-dir or PARLEY_DATA_DIR"
    if may_create and (path.is_dir() or not path.exists()):
        return
    if not path.exists():
        raise Failure(f"there is no data directory {path}; {hint}")
    if not path.is_dir():
        raise Misconfigured(f"{path} is not a directory; {hint}")
    if not (path / "sessions").is_dir():
        raise Failure(f"{path} is not a data directory, it has no sessions/ in it; {hint}")


def _between(row: Record, after: int | None, before: int | None) -> bool:
    return (after is None or row.seq > after) and (before is None or row.seq < before)


def _matches(rows: Sequence[Record], wanted: Sequence[str]) -> list[Match]:
    """The newest messages that hold every word."""
    found: list[Match] = []
    for row in reversed(rows) if wanted else ():
        shown = snippet(row.text, wanted) if searchable(row) else None
        if shown is not None:
            found.append(Match(row.seq, shown))
            if len(found) == MATCHES_SHOWN:
                break
    return found


# -- as programs see it -----------------------------------------------------------------------


def info_object(info: SessionInfo) -> dict[str, Any]:
    """A session as lists show it. No limit of tokens is known to the files."""
    value: dict[str, Any] = msgspec.to_builtins(info)
    if not info.matches:
        value.pop("matches")
    return {**value, "max_tokens": None}


def session_object(session: Session, messages: Sequence[Record] | None = None) -> dict[str, Any]:
    state = session.state
    value = {
        **info_object(describe(session)),
        "summary": state.summary,
        "usage": state.usage,
        "goal": session.metadata.get("goal_state"),
        "conversation": state.conversation,
        "custom": state.custom,
    }
    if messages is not None:
        value["messages"] = [lines.plain(row) for row in messages]
    return value


def conversation_object(session: Session, ended: Conversation) -> dict[str, Any]:
    return {"key": f"{session.key.chat}#{ended.number}", **msgspec.to_builtins(ended)}
