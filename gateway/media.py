"""Files people send and agents make.

    <data_dir>/media/<aa>/<id>       the bytes        <id>.json  what is known of them

An id is 128 random bits; a file is on the disk before its id is told to anybody. It belongs to who
uploaded it: to everybody else its id looks like one that was never given out. Reading goes through
links that carry a signature and an end, so that a page can show them without a token in the URL.
Names are only ever shown, never used as paths.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from channels.errors import Refused
from gateway.agents.agent import Produced
from gateway.config import Settings
from gateway.tokens import write_durably
from gateway.users import User
from sessions import clock, disk

SOURCE = "source"
"""Beside a file that is still with its channel: what that channel needs to fetch it."""
LINK_SECONDS = 3_600
NAME_CHARS = 120
_ID = re.compile(r"[0-9a-f]{32}")
_MIME = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,63}")
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
INLINE = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class MediaFile(msgspec.Struct, frozen=True):
    """The sidecar of a stored file."""

    owner: str | None
    name: str
    mime: str
    size: int
    sha256: str
    created_at: str


class Incoming:
    """A file on its way in: written to `tmp/`, kept only by `Media.keep`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.head = b""
        self._hash = hashlib.sha256()
        self._file: BinaryIO = os.fdopen(disk.create(path), "wb")

    def write(self, data: bytes) -> None:
        if len(self.head) < 16:
            self.head += data[: 16 - len(self.head)]
        self.size += len(data)
        self._hash.update(data)
        self._file.write(data)

    def finish(self) -> str:
        """On the disk on return; the hash of the bytes."""
        self._file.flush()
        disk.fdatasync(self._file.fileno())
        self._file.close()
        return self._hash.hexdigest()

    def discard(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


class Media:
    def __init__(self, path: Path, settings: Callable[[], Settings]) -> None:
        self._path, self._settings = path, settings
        self._tmp = path.parent / "tmp"
        given = settings().server.secret
        secret = given.get_secret_value().encode() if given else server_secret(path.parent)
        self._key = hmac.digest(secret, b"media links", "sha256")

    # -- in -----------------------------------------------------------------------------------

    def receive(self) -> Incoming:
        """Blocks for the disk, like everything that is not `async` here."""
        disk.make_directory(self._tmp)
        return Incoming(self._tmp / f"upload-{secrets.token_hex(8)}")

    def keep(self, incoming: Incoming, owner: str | None, name: str, mime: str) -> dict[str, Any]:
        """Takes the file over; it is durable on return."""
        digest = incoming.finish()
        facts = MediaFile(
            owner=owner,
            name=clean_name(name),
            mime=sniff(incoming.head) or declared(mime),
            size=incoming.size,
            sha256=digest,
            created_at=clock.now(),
        )
        name = secrets.token_hex(16)
        place = self._place(name)
        if disk.make_directory(place.parent):
            disk.sync_directory(self._path)
        disk.replace(incoming.path, place)
        # The sidecar comes last: without it the file is not there for anybody.
        write_durably(place.with_suffix(".json"), msgspec.json.encode(facts))
        return describe(name, facts)

    async def stage(self, produced: Produced) -> dict[str, Any]:
        """A file an agent made; nobody owns it, whoever reads the chat gets a link."""
        return await asyncio.to_thread(self._stage, produced)

    def _stage(self, produced: Produced) -> dict[str, Any]:
        incoming = self.receive()
        try:
            incoming.write(produced.data)
            return self.keep(incoming, None, produced.name, produced.mime)
        except BaseException:
            incoming.discard()
            raise

    async def take(self, pieces: AsyncIterator[bytes], name: str, mime: str) -> dict[str, Any]:
        """A file that comes from elsewhere; nobody owns it. Raises what `pieces` raises."""
        incoming = await asyncio.to_thread(self.receive)
        try:
            async for piece in pieces:
                await asyncio.to_thread(incoming.write, piece)
            return await asyncio.to_thread(self.keep, incoming, None, name, mime)
        except BaseException:
            incoming.discard()
            raise

    # -- out ----------------------------------------------------------------------------------

    async def resolve(self, user: User, ids: list[str]) -> list[dict[str, Any]]:
        """What a message says of the files it carries. Raises Refused."""
        most = self._settings().limits.media_per_message
        if len(ids) > most:
            raise Refused("too_large", f"A message has at most {most} files.")
        return await asyncio.to_thread(self._resolve, user, ids)

    def _resolve(self, user: User, ids: list[str]) -> list[dict[str, Any]]:
        found = []
        for name in ids:
            facts = self.facts(name)
            if facts is None or facts.owner != user.id:
                raise Refused("not_found", "There is no such file.")
            found.append(describe(name, facts))
        return found

    def facts(self, id: str) -> MediaFile | None:
        if not _ID.fullmatch(id):
            return None
        try:
            data = disk.read_file(self._place(id).with_suffix(".json"))
            return msgspec.json.decode(data, type=MediaFile)
        except (OSError, msgspec.MsgspecError):
            return None

    def file(self, id: str) -> Path:
        """Only for an id that `facts` knows."""
        return self._place(id)

    # -- links --------------------------------------------------------------------------------

    def url(self, item: dict[str, Any]) -> str:
        """A link to a file of a message, good for one to two hours; within an hour the same."""
        expires = (int(time.time()) // LINK_SECONDS + 2) * LINK_SECONDS
        return f"/api/v1/media/{item['id']}?exp={expires}&sig={self.sign(item['id'], expires)}"

    def shown(self, items: Iterable[Any] | None) -> list[Any]:
        """The files of a message with links, as clients see them."""
        return [self._shown(item) if isinstance(item, dict) else item for item in items or ()]

    def _shown(self, item: dict[str, Any]) -> dict[str, Any]:
        """Where a file came from is between us and the channel it came through."""
        fields = {name: value for name, value in item.items() if name != SOURCE}
        return {**fields, "url": self.url(item)} if isinstance(item.get("id"), str) else fields

    def sign(self, id: str, expires: int) -> str:
        digest = hmac.digest(self._key, f"{id}.{expires}".encode(), "sha256")
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def is_signed(self, id: str, expires: int, signature: str) -> bool:
        right = hmac.compare_digest(
            self.sign(id, expires).encode(), signature.encode("utf-8", "replace")
        )
        return right and expires > time.time()

    # -- gone ---------------------------------------------------------------------------------

    def delete(self, ids: Iterable[str]) -> int:
        return delete_files(self._path, ids)

    def _place(self, id: str) -> Path:
        return _place(self._path, id)


def delete_files(root: Path, ids: Iterable[str]) -> int:
    """Removes files for good. Returns how many there were."""
    count = 0
    for name in ids:
        if _ID.fullmatch(name):
            place = _place(root, name)
            # The sidecar first: a file without one is not there for anybody.
            for path in (place.with_suffix(".json"), place):
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
                    count += path == place
    return count


def _place(root: Path, id: str) -> Path:
    return root / id[:2] / id


def describe(id: str, facts: MediaFile) -> dict[str, Any]:
    return {"id": id, "name": facts.name, "mime": facts.mime, "size": facts.size}


def sniff(head: bytes) -> str | None:
    """Only what a browser may show in place is recognised; everything else is a download."""
    for signature, mime in _SIGNATURES:
        if head.startswith(signature):
            return mime
    return "image/webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else None


def declared(mime: str) -> str:
    """What the sender calls it; never one of the kinds that are shown in place."""
    found = mime.partition(";")[0].strip().lower()
    if not _MIME.fullmatch(found) or found in INLINE:
        return "application/octet-stream"
    return found


def clean_name(name: str) -> str:
    """The last part of a path, without what could mislead who reads or saves it."""
    last = re.split(r"[/\\]", name)[-1]
    kept = "".join(
        sign for sign in last if sign.isprintable() and unicodedata.category(sign) != "Cf"
    )
    kept = " ".join(kept.split()).strip(". ")
    if len(kept) > NAME_CHARS:
        stem, dot, ending = kept.rpartition(".")
        ending = dot + ending if dot and len(ending) <= 10 else ""
        kept = (stem if ending else kept)[: NAME_CHARS - len(ending)].rstrip() + ending
    return kept or "file"


def server_secret(data_dir: Path) -> bytes:
    """Made once and kept: links stay good over a restart."""
    path = data_dir / "secret"
    with contextlib.suppress(FileNotFoundError):
        if found := disk.read_file(path).strip():
            return found
    made = secrets.token_urlsafe(32).encode()
    write_durably(path, made + b"\n")
    return made
