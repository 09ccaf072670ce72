"""What a message needs before it is answered: its files, and what was said around it.

Both are fetched through the channel the message came by, as part of its turn, so after it was
acknowledged. What came of it is one note in the log: a turn that runs again after a crash goes on
with it, and later turns show the model the same. In the step of that note the sender is told of
every file that could not be had; so they are told once, whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from loguru import logger

from channels.channel import PushChannel
from channels.errors import Later, Unavailable
from gateway.media import Media, clean_name
from sessions.key import SessionKey
from sessions.record import NoteKind, Record, note
from sessions.session import Session
from sessions.store import SessionStore

FILES_SECONDS = 60.0
"""For all files of a message."""
TRIES = 3
PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 10.0


class Prepared(msgspec.Struct, frozen=True):
    """One message, made ready."""

    before: str = ""
    after: str = ""
    media: list[dict[str, Any]] = []

    def text(self, words: str) -> str:
        """The message as its agent is asked it."""
        return "\n\n".join(part for part in (words, self.after) if part)


class Preparation:
    def __init__(
        self, store: SessionStore, media: Media, channels: Mapping[str, PushChannel]
    ) -> None:
        self._store, self._media, self._channels = store, media, channels

    async def prepare(self, session: Session, rows: Sequence[Record]) -> list[Prepared]:
        """In the order of the rows. Raises SessionError."""
        channel = self._channels.get(session.key.channel)
        if channel is None:
            return [Prepared(media=row.media or []) for row in rows]
        done = _noted(session, {row.seq for row in rows})
        for at, row in enumerate(rows):
            if row.seq not in done:
                done[row.seq] = await self._prepare(channel, session, row, first=at == 0)
        return [done[row.seq] for row in rows]

    async def _prepare(
        self, channel: PushChannel, session: Session, row: Record, *, first: bool
    ) -> Prepared:
        key, before = session.key, ""
        if first and row.id is not None and row.replaces is None:
            before = await channel.surroundings(key.chat_id, row.id, session.ids)
        media, problems = await self._fetch_all(channel, key, row.media or ())
        prepared = Prepared(before, "\n".join(f"[{problem}]" for problem in problems), media)
        if prepared != Prepared():
            facts = {name: value for name, value in msgspec.to_builtins(prepared).items() if value}
            told = [_told(problems)] if problems else []
            await self._store.append(key, [note(NoteKind.CONTEXT, seq=row.seq, **facts), *told])
        return prepared

    async def _fetch_all(
        self, channel: PushChannel, key: SessionKey, items: Sequence[Any]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """The files that are here now, and a sentence for each that is not."""
        media: list[dict[str, Any]] = []
        problems: list[str] = []
        deadline = time.monotonic() + FILES_SECONDS
        for item in items:
            name = clean_name(str(item.get("name") or ""))
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    media.append(await self._fetch(channel, key, item, name))
            except (Unavailable, TimeoutError, OSError) as error:
                reason = _reason(error)
                logger.bind(session=str(key), reason=reason).warning("file not fetched")
                problems.append(f"The file {name} could not be read: {reason}.")
        return media, problems

    async def _fetch(
        self, channel: PushChannel, key: SessionKey, item: dict[str, Any], name: str
    ) -> dict[str, Any]:
        tries = 0
        while True:
            try:
                async with contextlib.aclosing(channel.fetch(key.chat_id, item)) as pieces:
                    return await self._media.take(pieces, name, str(item.get("mime") or ""))
            except Later as error:
                tries += 1
                pause = PAUSE_SECONDS if error.retry_after is None else error.retry_after
                if tries == TRIES or pause > LONGEST_PAUSE_SECONDS:
                    raise Unavailable(error.reason) from error
            await asyncio.sleep(pause)


def _noted(session: Session, seqs: set[int]) -> dict[int, Prepared]:
    """What an earlier attempt has fetched."""
    found: dict[int, Prepared] = {}
    for row in session.records[session.position(min(seqs)) :] if seqs else ():
        facts = row.note if row.is_note else None
        if facts is not None and facts.get("kind") == NoteKind.CONTEXT and facts.get("seq") in seqs:
            found[facts["seq"]] = Prepared(
                str(facts.get("before") or ""),
                str(facts.get("after") or ""),
                list(facts.get("media") or ()),
            )
    return found


def _told(problems: list[str]) -> Record:
    """For the sender alone: the model has it in the message itself."""
    text = "\n".join(f"⚠️ {problem}" for problem in problems)
    return Record("assistant", text, command=True, channel_delivery=True)


def _reason(error: Exception) -> str:
    if isinstance(error, Unavailable):
        return error.reason
    return "it took too long" if isinstance(error, TimeoutError) else "it could not be stored"
