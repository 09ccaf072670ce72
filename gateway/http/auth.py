"""Who a request comes from.

none   one local user; only from loopback, and never through a proxy.
token  a bearer token, or the cookie of a login made with one.
proxy  the header of a proxy, believed only if the socket's own peer is that proxy.

A token never stands in a URL. What a client claims about its own address is never looked at.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from pathlib import Path

from loguru import logger
from starlette.requests import HTTPConnection

from gateway.config import AuthSettings
from gateway.tokens import TokenError, Tokens
from gateway.users import ADMIN, LOCAL, User

COOKIE = "parley_login"
OPERATOR = "parley.operator"
"""In the scope of what came through the admin socket; no client can put it there."""
MAX_USER_BYTES = 256
FAILURES_PER_MINUTE = 10
MOST_PEERS = 10_000


class Authenticator:
    def __init__(self, settings: AuthSettings, data_dir: Path) -> None:
        self.mode = settings.mode
        self.tokens = Tokens(data_dir)
        self.failures = Failures()
        self._header = settings.header.lower().encode("latin-1")
        self._admins = frozenset(settings.admins)
        self._proxies = [
            ipaddress.ip_network(text, strict=False) for text in settings.trusted_peers
        ]
        self._logins = asyncio.Lock()

    def user(self, connection: HTTPConnection) -> User | None:
        """Who this is; None if that is not known."""
        if self.mode == "none":
            return LOCAL
        if OPERATOR in connection.scope:
            return ADMIN
        if self.mode == "proxy":
            return self._named_by_proxy(connection)
        try:
            return self._by_token(connection)
        except TokenError as error:
            logger.bind(error=str(error)).error("tokens unreadable")
            return None

    def of_token(self, token: str) -> User | None:
        """Who holds this token: the first frame of a WebSocket carries one."""
        try:
            return self.tokens.user(token) if self.mode == "token" else None
        except TokenError as error:
            logger.bind(error=str(error)).error("tokens unreadable")
            return None

    async def login(self, token: str) -> str | None:
        async with self._logins:
            return await asyncio.to_thread(self.tokens.login, token)

    async def logout(self, cookie: str) -> None:
        async with self._logins:
            await asyncio.to_thread(self.tokens.logout, cookie)

    def _by_token(self, connection: HTTPConnection) -> User | None:
        """A bearer token counts alone: a request that carries one is never judged by its cookie."""
        if "authorization" in connection.headers:
            token = bearer(connection)
            return None if token is None else self.tokens.user(token)
        cookie = connection.cookies.get(COOKIE)
        return None if cookie is None else self.tokens.logged_in(cookie)

    def _named_by_proxy(self, connection: HTTPConnection) -> User | None:
        address = peer(connection)
        if address is None or not any(address in network for network in self._proxies):
            return None
        values = [value for name, value in connection.scope["headers"] if name == self._header]
        if len(values) != 1 or len(values[0]) > MAX_USER_BYTES:
            return None
        try:
            name = values[0].decode("utf-8").strip()
        except UnicodeDecodeError:
            return None
        if not name or not name.isprintable():
            return None
        return User(name, "admin" if name in self._admins else "user")


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def peer(connection: HTTPConnection) -> Address | None:
    """The address at the other end of the socket itself."""
    client = connection.scope.get("client")
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0]) if client else None
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if mapped is not None else address


def is_loopback(connection: HTTPConnection) -> bool:
    address = peer(connection)
    return address is not None and address.is_loopback


def is_forwarded(connection: HTTPConnection) -> bool:
    """True if a proxy says that it passes this request on."""
    return any(
        name == b"forwarded" or name.startswith(b"x-forwarded-")
        for name, _ in connection.scope["headers"]
    )


def bearer(connection: HTTPConnection) -> str | None:
    values = connection.headers.getlist("authorization")
    scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


class Failures:
    """Wrong tokens by the address they come from.

    A right token is always let in: an address is often a proxy that many people share, and one of
    them must not lock out the others.
    """

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def add(self, connection: HTTPConnection) -> float:
        """Counts one; the seconds to wait if there were too many, else 0."""
        name, now = str(peer(connection)), time.monotonic()
        count, at = self._counts.pop(name, (0.0, now))
        count = max(0.0, count - (now - at) * FAILURES_PER_MINUTE / 60) + 1
        self._counts[name] = (min(count, FAILURES_PER_MINUTE + 1.0), now)
        if len(self._counts) > MOST_PEERS:
            self._counts.popitem(last=False)
        excess = count - FAILURES_PER_MINUTE
        return excess * 60 / FAILURES_PER_MINUTE if excess > 0 else 0.0
