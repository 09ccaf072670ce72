"""The catalogue: lists, filters and full-text search over all sessions. Disposable.

`index.sqlite` is derived from the logs by a thread of its own and can be deleted at any time. The
event loop only names sessions that changed; the thread reads them, writes rows in batches, and
compares the files on the disk with what it knows after every start. A search finds words anywhere
(trigrams); words of one or two letters are looked for in what the other words found.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from loguru import logger

from sessions.errors import StoreUnavailable
from sessions.record import NoteKind, Record
from sessions.session import Session, preview
from sessions.store import (
    Conversation,
    Listing,
    Match,
    Query,
    SessionInfo,
    Stats,
    make_cursor,
    read_cursor,
    snippet,
    words,
)

T = TypeVar("T")

SCHEMA = 2
DELAY_SECONDS = 0.2
RETRY_SECONDS = 5.0
SCAN_PAUSE = 64
CACHE_KIB = 8 * 1024
MATCHES_SHOWN = 3
MOST_MATCHES = 20_000

# What questions are about. What a list shows of a session is its `info`, in one piece.
_COLUMNS = (
    "key, channel, user, agent, state, title, tags, message_count, token_count, created_at, "
    "updated_at, pending, undelivered"
)
_NAMES = _COLUMNS.split(", ")
_TABLES = f"""
create table about (schema integer);
create table sessions (
    id integer primary key, path text, size integer, mtime integer, indexed_seq integer, log text,
    info blob, {_COLUMNS},
    unique (key)
);
create index by_time on sessions (updated_at desc, key desc);
create index by_path on sessions (path);
create index by_work on sessions (pending, undelivered) where pending > 0 or undelivered > 0;
create virtual table words using fts5 (text, tokenize = "trigram");
"""
# A row of `words` is found by session and number: no second table is needed.
_SHIFT = 33


def describe(session: Session) -> SessionInfo:
    """The session as lists show it. Called by the index's thread: reads nothing twice."""
    state, key = session.state, session.key
    shown = state.preview or next(
        (preview(row.text) for row in session.records[:50] if row.role == "assistant" and row.text),
        "",
    )
    return SessionInfo(
        key=str(key),
        channel=key.channel,
        chat_id=key.chat_id,
        user=state.owner,
        agent=state.agent,
        model=state.model,
        state=state.state,
        title=session.title,
        preview=shown,
        tags=state.tags,
        message_count=session.message_count,
        token_count=session.token_count(),
        token_usage=state.usage,
        damaged=state.damaged,
        created_at=session.created_at,
        updated_at=session.updated_at,
        last_active_at=session.updated_at,
        compacted_at=state.compacted_at,
        pending=len(session.unsettled),
        undelivered=len(session.undelivered),
    )


def describe_conversation(session: Session, ended: Conversation) -> SessionInfo:
    key = session.key
    return SessionInfo(
        key=f"{key}#{ended.number}",
        channel=key.channel,
        chat_id=key.chat_id,
        user=session.state.owner,
        agent=session.state.agent,
        model=session.state.model,
        state="archived",
        title=ended.title,
        preview=ended.preview,
        created_at=ended.started_at,
        updated_at=ended.ended_at,
        last_active_at=ended.ended_at,
    )


def read_conversation(row: Record) -> Conversation | None:
    """The conversation that ended with this row."""
    facts = row.note
    if facts is None or facts.get("kind") != NoteKind.CONVERSATION:
        return None
    try:
        return msgspec.convert(
            {
                **{name: facts[name] for name in facts if name in _CONVERSATION},
                "number": facts.get("ended"),
                "last": row.seq,
                "ended_at": row.timestamp,
            },
            Conversation,
        )
    except msgspec.ValidationError:
        return None


_CONVERSATION = frozenset(Conversation.__struct_fields__)


class Index:
    """Methods named with `ask_` run on a thread of the caller's; the others on the event loop."""

    def __init__(
        self,
        path: Path,
        root: Path,
        read: Callable[[Path, bool], tuple[Session, Sequence[Record]] | None],
    ) -> None:
        """`read` gives a session and its rows; archived ones too if its second argument says so."""
        self.scanned = asyncio.Event()
        """Set once every file on the disk has been compared."""
        self._path, self._root, self._read = path, root, read
        self.failed = False
        self._opened = threading.Event()
        self._scan_done = False
        self._loop = asyncio.get_running_loop()
        self._wake = threading.Condition()
        self._touched: dict[int, Session] = {}
        self._gone: list[str] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._stop = False
        self._write: sqlite3.Connection
        self._lock = threading.Lock()
        self._readers: list[sqlite3.Connection] = []
        self._thread = threading.Thread(target=self._run, name="parley-index", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # -- on the event loop --------------------------------------------------------------------

    def touch(self, session: Session) -> None:
        """The session has changed. Cheap: the thread reads it when it gets to it."""
        touched = self._touched
        if id(session) not in touched:
            with self._wake:
                self._touched[id(session)] = session

    def forget(self, key: str) -> None:
        with self._wake:
            self._gone.append(key)

    async def caught_up(self, seconds: float | None = 1.0) -> bool:
        """Waits until everything touched so far is in the index, or the time is over."""
        future: asyncio.Future[None] = self._loop.create_future()
        with self._wake:
            self._waiting.append(future)
            self._wake.notify()
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        with self._wake:
            self._stop = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)
        for reader in self._readers:
            reader.close()

    # -- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        """The index never fails a turn. After an error it begins anew with a scan of the files."""
        while not self._stop:
            try:
                self._follow()
            except Exception as error:  # noqa: BLE001 - whatever it is, it concerns the index alone
                self.failed = True
                logger.bind(error=repr(error)).error("session index failed")
                self._loop.call_soon_threadsafe(self._release)
                with self._wake:
                    self._wake.wait_for(lambda: self._stop, RETRY_SECONDS)
        self._loop.call_soon_threadsafe(self._release)

    def _follow(self) -> None:
        self._write = self._connect()
        try:
            self._opened.set()
            self._scan_done = False
            scan = self._scan()
            while self._round(scan):
                pass
        finally:
            self._write.close()

    def _round(self, scan: Iterator[None]) -> bool:
        """One batch of changes and one piece of the scan; False at the end."""
        with self._wake:
            if self._scan_done:
                # It looks for itself: waking it would cost a writer more than its write.
                while not self._wake.wait_for(self._urgent, DELAY_SECONDS):
                    if self._touched or self._gone:
                        break
            touched, self._touched = self._touched, {}
            gone, self._gone = self._gone, []
            waiting, self._waiting = self._waiting, []
            stop = self._stop
        # What is left at the end shows in the files: the next start finds it there.
        if (touched or gone) and not stop:
            self._store(list(touched.values()), gone)
        for future in waiting:
            self._loop.call_soon_threadsafe(_set, future)
        if not self._scan_done and not stop and next(scan, True):
            self._scan_done = True
            self.failed = False
            self._loop.call_soon_threadsafe(self.scanned.set)
        return not stop

    def _urgent(self) -> bool:
        return bool(self._waiting or self._stop)

    def _release(self) -> None:
        """Nobody waits for an index that cannot answer."""
        self.scanned.set()
        with self._wake:
            waiting, self._waiting = self._waiting, []
        for future in waiting:
            _set(future)

    def _connect(self) -> sqlite3.Connection:
        for attempt in (1, 2):
            try:
                return self._open()
            except sqlite3.DatabaseError as error:
                if attempt == 2:
                    raise
                logger.bind(error=str(error)).warning("session index rebuilt")
                for suffix in ("", "-wal", "-shm"):
                    Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        raise AssertionError("unreachable")

    def _open(self) -> sqlite3.Connection:
        connection = _connection(self._path)
        os.chmod(self._path, 0o600)
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = normal")
        tables = connection.execute("select count(*) from sqlite_master").fetchone()[0]
        if not tables:
            connection.executescript(
                f"begin; {_TABLES} insert into about values ({SCHEMA}); commit"  # noqa: S608 - constants
            )
        if connection.execute("select schema from about").fetchone() != (SCHEMA,):
            raise sqlite3.DatabaseError("written by another version")
        return connection

    def _store(self, sessions: Sequence[Session], gone: Sequence[str]) -> None:
        with self._transaction():
            for key in gone:
                self._drop(key)
            for session in sessions:
                if not session.retired and session.file is not None:
                    path = session.file.path
                    # Stamped before it is read: what is appended meanwhile shows as a difference.
                    stamp = _stamp(path)
                    self._put(session, session.records, path, stamp)

    def _transaction(self) -> _Transaction:
        return _Transaction(self._write)

    def _put(
        self, session: Session, rows: Sequence[Record], path: Path, stamp: tuple[int, int]
    ) -> None:
        info = _readable(describe(session))
        number, indexed = self._known(info.key, session.state.log)
        if indexed < session.state.archived.seq and (not rows or rows[0].seq > indexed + 1):
            # Rows left for the archive before this thread saw them.
            found = self._read(path, True)
            rows = found[1] if found is not None else rows
        last = max(rows[-1].seq if rows else 0, indexed)
        values = [_name(path), *stamp, last, session.state.log, *_values(info)]
        if number is None:
            marks = ", ".join("?" * len(values))
            sql = f"insert into sessions ({_STORED}) values ({marks})"  # noqa: S608 - constants
            number = int(self._write.execute(sql, values).lastrowid or 0)
        else:
            sql = f"update sessions set {_SET} where id = ?"  # noqa: S608 - constants
            self._write.execute(sql, [*values, number])
        start = bisect_right(rows, indexed, key=_seq)
        self._put_words(number, rows[start:], session)

    def _known(self, key: str, log: str) -> tuple[int | None, int]:
        row = self._write.execute(
            "select id, indexed_seq, log from sessions where key = ?", (key,)
        ).fetchone()
        if row is None:
            return None, 0
        if row[2] != log:
            # Another log under the same key: nothing known of the old one holds for it.
            self._drop(key)
            return None, 0
        return row[0], row[1]

    def _put_words(self, number: int, rows: Sequence[Record], session: Session) -> None:
        base = number << _SHIFT
        self._write.executemany(
            "insert or replace into words (rowid, text) values (?, ?)",
            [(base + row.seq, _encodable(row.text)) for row in rows if searchable(row)],
        )
        for row in rows:
            ended = read_conversation(row)
            if ended is not None and ended.listed:
                info = _readable(describe_conversation(session, ended))
                self._write.execute("delete from sessions where key = ?", (info.key,))
                self._write.execute(
                    f"insert into sessions ({_STORED}) "  # noqa: S608 - constants
                    f"values ('', 0, 0, ?, '', ?, {', '.join('?' * len(_NAMES))})",
                    [ended.last, *_values(info)],
                )

    def _drop(self, key: str) -> None:
        row = self._write.execute("select id from sessions where key = ?", (key,)).fetchone()
        if row is not None:
            base = row[0] << _SHIFT
            self._write.execute(
                "delete from words where rowid between ? and ?", (base, base + (1 << _SHIFT) - 1)
            )
        self._write.execute(
            "delete from sessions where key = ? or (key >= ? and key < ?)",
            (key, key + "#", key + "$"),
        )

    # -- comparing with the files -------------------------------------------------------------

    def _scan(self) -> Iterator[None]:
        """Reads every file whose size or time differs from what is known, a few at a time."""
        known = {
            row[0]: (row[1], row[2])
            for row in self._write.execute(
                "select path, size, mtime from sessions where path != ''"
            )
        }
        changed: list[tuple[Path, bool]] = []
        for number, entry in enumerate(_files(self._root)):
            path = Path(entry.path)
            stamp = known.pop(_name(path), None)
            if stamp is None or stamp != _stamp(path):
                changed.append((path, stamp is None))
            if len(changed) >= SCAN_PAUSE or number % 1024 == 1023:
                self._read_files(changed)
                changed = []
                yield
        self._read_files(changed)
        self._forget_files(list(known))

    def _read_files(self, paths: Sequence[tuple[Path, bool]]) -> None:
        with self._transaction():
            for path, new in paths:
                stamp = _stamp(path)
                found = self._read(path, new)
                if found is not None:
                    self._put(found[0], found[1], path, stamp)
                time.sleep(0)

    def _forget_files(self, names: Sequence[str]) -> None:
        with self._transaction():
            for name in names:
                if not (self._root / name).exists():
                    for (key,) in self._write.execute(
                        "select key from sessions where path = ?", (name,)
                    ).fetchall():
                        self._drop(key)

    # -- questions, asked from any thread -----------------------------------------------------

    def _reader(self) -> sqlite3.Connection:
        if not self._opened.wait(timeout=10):
            raise StoreUnavailable("the session index is not ready")
        with self._lock:
            if self._readers:
                return self._readers.pop()
        return _connection(self._path)

    def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        reader = self._reader()
        try:
            return question(reader)
        finally:
            with self._lock:
                self._readers.append(reader)

    def ask_list(self, query: Query) -> Listing:
        return self._ask(lambda reader: _list(reader, query))

    def ask_stats(self) -> Stats:
        return self._ask(_stats)

    def ask_keys(self, where: str, values: Sequence[Any] = ()) -> list[str]:
        sql = f"select key from sessions where path != '' and {where}"  # noqa: S608 - constants of ours
        return [row[0] for row in self._ask(lambda reader: reader.execute(sql, values).fetchall())]


class _Transaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("begin immediate")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._connection.execute("rollback" if kind else "commit")


def _seq(row: Record) -> int:
    return row.seq


def searchable(row: Record) -> bool:
    return row.role in ("user", "assistant") and not row.command and bool(row.text)


def _connection(path: Path) -> sqlite3.Connection:
    found = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
    found.execute(f"pragma cache_size = -{CACHE_KIB}")
    return found


_STORED = f"path, size, mtime, indexed_seq, log, info, {_COLUMNS}"
_SET = ", ".join(f"{name} = ?" for name in _STORED.split(", "))


def _readable(info: SessionInfo) -> SessionInfo:
    values = {name: getattr(info, name) for name in info.__struct_fields__}
    return SessionInfo(**{name: _encodable(value) for name, value in values.items()})


def _encodable(value: Any) -> Any:
    """Half a surrogate pair is no text for SQLite: a question mark stands for it here."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_encodable(name): _encodable(item) for name, item in value.items()}
    return value


def _values(info: SessionInfo) -> list[Any]:
    columns = (getattr(info, name) for name in _NAMES)
    return [
        _encode_info(info),
        *(_encode_info(value).decode() if isinstance(value, list) else value for value in columns),
    ]


_encode_info = msgspec.json.Encoder().encode
_decode_info = msgspec.json.Decoder(SessionInfo).decode


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return (0, 0)
    return (status.st_size, status.st_mtime_ns)


def _files(root: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(root) as channels:
        for channel in channels:
            if channel.is_dir(follow_symlinks=False):
                with os.scandir(channel.path) as entries:
                    for entry in entries:
                        if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False):
                            yield entry


def _conditions(query: Query) -> tuple[list[str], list[Any]]:
    pairs = [
        ("channel = ?", query.channel),
        ("agent = ?", query.agent),
        ("user = ?", query.user),
        ("state = ?", query.state),
        ("created_at > ?", query.created_after),
        ("created_at < ?", query.created_before),
        ("exists (select 1 from json_each(tags) where value = ?)", query.tag),
    ]
    conditions = [sql for sql, value in pairs if value is not None]
    values = [value for _, value in pairs if value is not None]
    if query.cursor is not None:
        conditions.append("(updated_at, key) < (?, ?)")
        values.extend(read_cursor(query.cursor))
    return conditions, values


def _list(reader: sqlite3.Connection, query: Query) -> Listing:
    conditions, values = _conditions(query)
    matches: dict[int, list[Match]] = {}
    wanted = _encodable(words(query.text))
    if wanted:
        matches = _search(reader, wanted)
        titles = " and ".join("instr(lower(title), ?)" for _ in wanted)
        numbers = ",".join(map(str, matches))
        conditions.append(f"(id in ({numbers}) or (title != '' and {titles}))")
        values.extend(wanted)
    where = f"where {' and '.join(conditions)}" if conditions else ""
    limit = "" if query.limit <= 0 else f"limit {int(query.limit) + 1}"
    rows = reader.execute(
        f"select id, info from sessions {where} "  # noqa: S608 - constants and placeholders
        f"order by updated_at desc, key desc {limit}",
        values,
    )
    if matches:
        found = [
            msgspec.structs.replace(_decode_info(info), matches=matches.get(number, []))
            for number, info in rows
        ]
    else:
        found = [_decode_info(info) for _, info in rows]
    if query.limit > 0 and len(found) > query.limit:
        found = found[: query.limit]
        return Listing(found, make_cursor(found[-1]))
    return Listing(found, None)


def _search(reader: sqlite3.Connection, wanted: Sequence[str]) -> dict[int, list[Match]]:
    """The sessions in which some message has every word, with the newest such messages."""
    long = [word for word in wanted if len(word) >= 3]
    if long:
        phrase = " AND ".join('"' + word.replace('"', '""') + '"' for word in long)
        rows = reader.execute(
            "select rowid, text from words where words match ? order by rowid desc limit ?",
            (phrase, MOST_MATCHES),
        )
    else:
        likes = " and ".join("text like ? escape '\\'" for _ in wanted)
        patterns = [f"%{_escape(word)}%" for word in wanted]
        rows = reader.execute(
            f"select rowid, text from words where {likes} order by rowid desc limit ?",  # noqa: S608 - placeholders
            [*patterns, MOST_MATCHES],
        )
    matches: dict[int, list[Match]] = {}
    for number, text in rows:
        found = matches.get(number >> _SHIFT)
        if found is not None and len(found) >= MATCHES_SHOWN:
            continue
        shown = snippet(text, wanted)
        if shown is not None:
            match = Match(number & ((1 << _SHIFT) - 1), shown)
            matches.setdefault(number >> _SHIFT, []).append(match)
    return matches


def _escape(word: str) -> str:
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _stats(reader: sqlite3.Connection) -> Stats:
    counts = dict(
        reader.execute(
            "select state, count(*) from sessions where path != '' group by state"
        ).fetchall()
    )
    totals = reader.execute(
        "select count(*), total(message_count), total(token_count), total(pending), "
        "total(undelivered) from sessions where path != ''"
    ).fetchone()
    numbers = [int(value) for value in totals]
    return Stats(
        total_sessions=numbers[0],
        sessions_by_state=counts,
        total_messages=numbers[1],
        total_tokens=numbers[2],
        pending_messages=numbers[3],
        undelivered_messages=numbers[4],
    )


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
