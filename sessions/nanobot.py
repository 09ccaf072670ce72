"""The session files of nanobot, all its versions: their names, their lines, their conversion. Pure.

    {"_type": "metadata", "key", "created_at", "updated_at", "metadata": {…},
     "last_archived", "last_consolidated"}          first; the oldest files have no key, no counts
    {"_type": "provider_state", "state": {…}}       opaque; not counted as a message
    {"role", "content", "timestamp", …}             a message; also anything else

A name is `base64url(key)` without padding, or the key with unsafe characters as `_`. The second
form is lossy: several keys share a name, so the key stored inside decides. Without a stored key
the first `_` of the name stands for the `:` of the key.

The counts say how many messages are behind the model. They were true when the file was written,
so a damaged line still counts as the message it was. Times without a zone are local times.

What a line holds beyond our own fields stays on it. A value that would be taken for one of ours
and is not is kept as `foreign_…`.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
from collections.abc import Iterator
from operator import lt
from typing import Any

import msgspec

from sessions import clock, disk, lines
from sessions.errors import InvalidKey
from sessions.key import SessionKey
from sessions.record import Outcome, Record
from sessions.session import Archived, Offset, Session, State, read_state

MAX_DEPTH = 200
"""Nesting of a value up to which every reader and writer of JSON here is safe."""
MAX_SEQ = 2**53

_UNSAFE = re.compile(r'[<>:"/\\|?*]')
_CHANNEL = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_BLANK = b" \t\r\n\0"
_METADATA_FIELDS = frozenset(
    [
        "_type",
        "version",
        "key",
        "created_at",
        "updated_at",
        "metadata",
        "last_archived",
        "last_consolidated",
    ]
)
# They tie rows together by number and turn, which only a log of ours has.
_TIES = ("seq", "settles", "replaces", "note", "turn")

_scanner = json.JSONDecoder()


# -- names ------------------------------------------------------------------------------------


def stems(key: SessionKey) -> tuple[str, ...]:
    """The names, without `.jsonl`, under which a version of nanobot may have kept this session."""
    raw = f"{key.channel}:{key.chat_id}"
    encoded = base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")
    lossy = raw.replace(":", "_").replace("/", "_")
    return tuple({encoded: 0, _UNSAFE.sub("_", raw).strip(): 0, lossy: 0})


def key_of_stem(stem: str) -> SessionKey | None:
    """Whose file this is if nothing inside tells."""
    encoded = _decode_stem(stem)
    return encoded if encoded is not None else _raw_key(stem.replace("_", ":", 1))


def _decode_stem(stem: str) -> SessionKey | None:
    try:
        raw = base64.urlsafe_b64decode(stem + "=" * (-len(stem) % 4)).decode()
    except ValueError:
        return None
    key = _raw_key(raw)
    # A short plain name can happen to be base64 too; it hardly ever decodes to a channel.
    plausible = key is not None and _CHANNEL.fullmatch(key.channel) and raw.isprintable()
    return key if plausible and key is not None and stem in stems(key) else None


def _raw_key(text: str) -> SessionKey | None:
    """nanobot writes keys as they are: nothing is percent-encoded."""
    channel, _, chat_id = text.partition(":")
    try:
        return SessionKey(channel, chat_id)
    except InvalidKey:
        return None


def _stored_key(metadata: dict[str, Any], text: str) -> SessionKey | None:
    if "version" not in metadata:
        return _raw_key(text)
    # Only our own lines have a version; this file has been ours before.
    try:
        return SessionKey.parse(text).chat
    except InvalidKey:
        return None


# -- lines ------------------------------------------------------------------------------------


class Content(msgspec.Struct):
    """What the lines of a file say."""

    rows: list[tuple[int, dict[str, Any]]] = []
    """Messages, each with its place in nanobot's count."""
    count: int = 0
    metadata: dict[str, Any] | None = None
    stored: tuple[dict[str, Any], str] | None = None
    """The last metadata line that names a key, and that key."""
    aside: list[bytes] = []
    """Lines that are damaged or opaque, as they were."""
    damaged: int = 0

    @property
    def is_session(self) -> bool:
        has_role = (isinstance(value.get("role"), str) for _, value in self.rows)
        return self.metadata is not None or any(has_role)


def read(data: bytes) -> Content:
    """Never raises. A line is lost only if it does not hold a single JSON object."""
    content = Content()
    for line in data.removeprefix(codecs.BOM_UTF8).split(b"\n"):
        if text := line.strip(_BLANK):
            _take(content, line, text)
    return content


def _take(content: Content, line: bytes, text: bytes) -> None:
    objects, damaged = _objects(text)
    opaque = any(value.get("_type") == "provider_state" for value in objects)
    if damaged or opaque:
        content.aside.append(line)
        content.damaged += damaged
    if not objects and not text.startswith(b'{"_type"'):
        content.count += 1
    for value in objects:
        if _is_metadata(value):
            content.metadata = value
            key = value.get("key")
            if isinstance(key, str) and key and not damaged:
                content.stored = value, key
        elif value.get("_type") != "provider_state":
            content.rows.append((content.count, value))
            content.count += 1


def _objects(line: bytes) -> tuple[list[dict[str, Any]], bool]:
    """The objects on a line, and whether anything else is on it too.

    A lost newline leaves two objects on a line. Bytes that are not UTF-8 are replaced, so that
    the words around them stay in the conversation.
    """
    try:
        text, damaged = line.decode(), False
    except UnicodeDecodeError:
        text, damaged = line.decode(errors="replace"), True
    objects: list[dict[str, Any]] = []
    position = 0
    while position < len(text):
        try:
            value, position = _scanner.raw_decode(text, position)
        except (ValueError, RecursionError):
            return objects, True
        if isinstance(value, dict) and not _too_deep(text, value):
            objects.append(value)
        else:
            damaged = True
        while position < len(text) and text[position] in " \t\r,":
            position += 1
    return objects, damaged


def _too_deep(text: str, value: object) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [item for parent in level for item in _children(parent)]
    return bool(level)


def _children(value: object) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _is_metadata(value: dict[str, Any]) -> bool:
    if "_type" in value:
        return bool(value["_type"] == "metadata")
    # Metadata that lost its type, not a message without a role.
    return not {"role", "content"} & value.keys() and isinstance(value.get("metadata"), dict)


# -- identity ---------------------------------------------------------------------------------


class Identity(msgspec.Struct, frozen=True):
    key: SessionKey | None = None
    updated_at: str = ""
    problem: str | None = None
    """Why this is no session that can be migrated."""
    unreadable: bool = False
    """There is something in the file, and no line of it can be read."""


def identify_by_head(data: bytes) -> Identity | None:
    """Whose file it is that starts with these bytes; None if only the whole file can tell."""
    head, newline, _ = data.partition(b"\n")
    content = read(head) if newline else Content()
    return _identity(content, "") if content.stored is not None else None


def identify(data: bytes, stem: str) -> Identity:
    """Whose file this is, by the key stored in it, else by its name."""
    found = identify_by_head(data)
    if found is not None:
        return found
    content = read(data)
    if content.is_session:
        return _identity(content, stem)
    if content.rows:
        return Identity(problem="no line of it is a message of a session")
    if content.aside:
        return Identity(problem="no line of it can be read", unreadable=True)
    return Identity(problem="it is empty")


def _identity(content: Content, stem: str) -> Identity:
    updated = clock.normal((content.metadata or {}).get("updated_at")) or ""
    key = _stored_key(*content.stored) if content.stored else key_of_stem(stem)
    if key is None:
        name = content.stored[1] if content.stored else stem
        return Identity(None, updated, f"{name[:80]!r} is not the key of a session")
    return Identity(key, updated)


# -- conversion -------------------------------------------------------------------------------


class Converted(msgspec.Struct, frozen=True):
    data: bytes
    """A log in our own form."""
    rows: int
    damaged: int
    aside: bytes
    """What has no place in a log; empty if everything has."""


def convert(data: bytes, key: SessionKey, *, name: str, modified: str, epoch: int = 0) -> Converted:
    """The log of `key` with everything the file says. Nothing in it is pending or undelivered.

    `name` and `modified` are the file's; the time stands in where lines have none. Never raises.
    """
    content = read(data)
    metadata = content.metadata or {}
    created, updated = (clock.normal(metadata.get(f"{word}_at")) for word in ("created", "updated"))
    numbered = _are_numbered(content)
    rows = list(_records(content, created or updated or modified, keep_numbers=numbered))

    session = Session(key)
    origin: dict[str, Any] = {"file": name, "sha256": disk.digest(data)}
    if foreign := _foreign_fields(metadata):
        origin["fields"] = foreign
    inner = metadata.get("metadata")
    inner = _with_goal(inner) if isinstance(inner, dict) else {}
    last = rows[-1] if rows else None
    session.state = msgspec.structs.replace(
        _state(inner.pop("parley", None), inner, numbered),
        log=session.state.log,
        consolidated=Offset(_offset(content, metadata, rows)),
        settled_through=last.seq if last else 0,
        delivered_through=last.seq if last else 0,
        epoch=epoch,
        origin=origin,
        damaged=content.damaged,
    )
    session.restart(rows)
    session.created_at = created or (rows[0].timestamp if last else modified)
    newest = max(filter(None, (updated, last.timestamp if last else None)), default=modified)
    line, _ = session.metadata_line(inner, session.state, rows, newest)
    # First and last, so that one damaged line costs neither the title nor the offset.
    log = [line, *(lines.encode([row]) for row in rows), line] if rows else [line]
    aside = b"".join(text + b"\n" for text in content.aside)
    return Converted(b"".join(log), len(rows), content.damaged, aside)


def _are_numbered(content: Content) -> bool:
    """True if this log was ours and its numbers can stay: they increase, new rows come after."""
    numbers = [_number(value) for _, value in content.rows]
    old = numbers[: numbers.index(0)] if 0 in numbers else numbers
    if not old or any(numbers[len(old) :]) or old[-1] >= MAX_SEQ:
        return False
    return all(map(lt, [0, *old], old))


def _number(value: dict[str, Any]) -> int:
    seq = value.get("seq")
    return seq if type(seq) is int else 0


def _records(content: Content, moment: str, *, keep_numbers: bool) -> Iterator[Record]:
    seq = 0
    for _, value in content.rows:
        seq = (keep_numbers and _number(value)) or seq + 1
        moment = clock.normal(value.get("timestamp")) or moment
        yield _record(value, seq, moment, keep_numbers=keep_numbers)


def _record(value: dict[str, Any], seq: int, moment: str, *, keep_numbers: bool) -> Record:
    value = dict(value)
    foreign = ["_type", "_extra"]
    if not keep_numbers:
        foreign += _TIES
    if value.get("timestamp") and clock.normal(value["timestamp"]) is None:
        foreign.append("timestamp")
    for name in foreign:
        if name in value:
            value[f"foreign_{name.lstrip('_')}"] = value.pop(name)
    record = msgspec.structs.replace(lines.to_record(value), seq=seq, timestamp=moment)
    if not record.role:
        return msgspec.structs.replace(record, role="system", command=True)
    if record.role == "user" and record.outcome is None:
        # nanobot answered it or did not; it is never ours to answer, whatever else gets lost.
        return msgspec.structs.replace(record, outcome=Outcome.ANSWERED)
    return record


def _offset(content: Content, metadata: dict[str, Any], rows: list[Record]) -> int:
    """The last row behind the model. A count that cannot be true hides nothing."""
    counts = (metadata.get(name) for name in ("last_archived", "last_consolidated"))
    count = next((count for count in counts if type(count) is int), 0)
    if not 0 <= count <= content.count:
        return 0
    behind = sum(1 for place, _ in content.rows if place < count)
    return rows[behind - 1].seq if behind else 0


def _state(parley: object, inner: dict[str, Any], numbered: bool) -> State:
    state = read_state(parley)
    # A value of ours that is not in our form must not come back in place of a good one.
    extra = {k: v for k, v in (state.extra or {}).items() if k not in State.__struct_fields__}
    state = msgspec.structs.replace(state, archived=Archived(), extra=extra or None)
    if not numbered:
        state = msgspec.structs.replace(
            state, conversation_start=0, continues=[], previous=None, usage={}, usage_through=0
        )
    summary = inner.get("_last_summary")
    text = summary.get("text") if isinstance(summary, dict) else None
    if state.summary is None and isinstance(text, str) and text:
        state = msgspec.structs.replace(state, summary=text)
    return state


def _with_goal(inner: dict[str, Any]) -> dict[str, Any]:
    """Older versions kept the goal as `thread_goal`, some as text that holds the JSON."""
    name = "goal_state" if "goal_state" in inner else "thread_goal"
    goal = inner.get(name)
    if isinstance(goal, str):
        objects, damaged = _objects(goal.encode(errors="replace"))
        goal = objects[0] if len(objects) == 1 and not damaged else None
    if not isinstance(goal, dict):
        return dict(inner)
    rest = {name: value for name, value in inner.items() if name != "thread_goal"}
    return {**rest, "goal_state": goal}


def _foreign_fields(metadata: dict[str, Any]) -> dict[str, Any]:
    """What a metadata line of ours has no place for."""
    fields = {name: value for name, value in metadata.items() if name not in _METADATA_FIELDS}
    if metadata.get("metadata") and not isinstance(metadata["metadata"], dict):
        fields["metadata"] = metadata["metadata"]
    for name in ("created_at", "updated_at"):
        if metadata.get(name) and clock.normal(metadata[name]) is None:
            fields[name] = metadata[name]
    return fields
