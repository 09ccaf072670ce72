"""The tokens of mode `token`, and the logins made with them.

`<data_dir>/tokens.json` holds a hash of every token, its name and its role; `logins.json` holds a
hash of every login cookie. Both are replaced as a whole and are on the disk before anybody is told
of a change. The command line changes the token file while a gateway runs, so it is read again when
it has changed. A token is 256 random bits: a plain hash of it cannot be turned back.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gateway.users import User
from sessions import clock, disk

TOKEN_PREFIX = "parley_"  # noqa: S105 - what tokens begin with, so that a leaked one is recognised
LOGIN_SECONDS = 30 * 86_400
MOST_LOGINS = 10_000
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


class TokenError(Exception):
    """The token cannot be made or revoked; the text says why."""


class Token(msgspec.Struct, frozen=True):
    name: str
    role: str
    hash: str
    created_at: str


class Login(msgspec.Struct, frozen=True):
    token: str
    """The hash of the token it was made with: a revoked token ends its logins."""
    expires: float


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class Tokens:
    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / "tokens.json"
        self._logins_path = data_dir / "logins.json"
        self._stamp: tuple[int, int, int] | None = None
        self._tokens: list[Token] = []
        self._logins: dict[str, Login] = {}

    # -- who somebody is ----------------------------------------------------------------------

    def user(self, token: str) -> User | None:
        found = self._find(hash_of(token))
        return None if found is None else User(found.name, found.role)

    def _find(self, hashed: str) -> Token | None:
        """Compares with every one, so that the time taken says nothing."""
        found = None
        for token in self.known():
            if hmac.compare_digest(token.hash, hashed):
                found = token
        return found

    def known(self) -> list[Token]:
        """Read again only if the file has changed."""
        stamp = _stamp(self.path)
        if stamp != self._stamp:
            self._tokens = _read(self.path, list[Token]) or []
            self._stamp = stamp
        return self._tokens

    # -- changing the file --------------------------------------------------------------------

    def new(self, name: str, role: str = "user") -> str:
        """Returns the token; only its hash is kept. Raises TokenError."""
        if not _NAME.fullmatch(name) or name != name.strip():
            raise TokenError("a name has 1 to 200 characters, without control characters")
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        with self._changing() as tokens:
            if any(other.name == name for other in tokens):
                raise TokenError(f"there is a token named {name} already; revoke it first")
            tokens.append(Token(name, role, hash_of(token), clock.now()))
        return token

    def revoke(self, name: str) -> None:
        """Raises TokenError if there is none of that name."""
        with self._changing() as tokens:
            left = [token for token in tokens if token.name != name]
            if len(left) == len(tokens):
                raise TokenError(f"there is no token named {name}")
            tokens[:] = left

    def first(self, data_dir: Path) -> Path | None:
        """Makes an administrator's token if there is none at all; returns the file it is in."""
        if self.known():
            return None
        path = data_dir / "admin-token"
        write_durably(path, self.new("admin", "admin").encode() + b"\n")
        return path

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """One process at a time; nothing is written if the body raises."""
        disk.make_directory(self.path.parent)
        lock = self.path.with_name(".tokens.lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            tokens = list(_read(self.path, list[Token]) or [])
            yield tokens
            write_durably(self.path, msgspec.json.format(msgspec.json.encode(tokens)) + b"\n")
        finally:
            os.close(descriptor)

    # -- logins -------------------------------------------------------------------------------

    def load_logins(self) -> None:
        self._logins = _read(self._logins_path, dict[str, Login]) or {}

    def login(self, token: str) -> str | None:
        """A new cookie for the owner of a valid token. Blocks for the disk."""
        found = self._find(hash_of(token))
        if found is None:
            return None
        cookie = TOKEN_PREFIX + "login_" + secrets.token_urlsafe(32)
        logins = self._current()
        while len(logins) >= MOST_LOGINS:
            logins.pop(next(iter(logins)))
        logins[hash_of(cookie)] = Login(found.hash, time.time() + LOGIN_SECONDS)
        self._keep(logins)
        return cookie

    def logout(self, cookie: str) -> None:
        """Blocks for the disk."""
        logins = self._current()
        if logins.pop(hash_of(cookie), None) is not None:
            self._keep(logins)

    def logged_in(self, cookie: str) -> User | None:
        login = self._logins.get(hash_of(cookie))
        if login is None or login.expires < time.time():
            return None
        found = self._find(login.token)
        return None if found is None else User(found.name, found.role)

    def _current(self) -> dict[str, Login]:
        now = time.time()
        known = {token.hash for token in self.known()}
        return {
            name: login
            for name, login in self._logins.items()
            if login.expires > now and login.token in known
        }

    def _keep(self, logins: dict[str, Login]) -> None:
        write_durably(self._logins_path, msgspec.json.encode(logins))
        self._logins = logins


def write_durably(path: Path, data: bytes) -> None:
    """Replaces the file as a whole; readable by its owner alone; on the disk on return."""
    disk.make_directory(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        disk.write_file(temporary, data)
        disk.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    disk.sync_directory(path.parent)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _read(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TokenError(f"{path} cannot be read: {error}") from error
