"""What every request passes before it is routed, and every answer on its way out.

The path is routed as it was sent: a session's key is one segment, and a percent-encoded slash in
it stays what it is. Decoding comes after routing, so no key can reach another session's routes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from urllib.parse import urlsplit

from loguru import logger
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.config import Settings
from gateway.http import slack
from gateway.http.auth import OPERATOR, bearer, is_forwarded, is_loopback
from gateway.http.problems import Problem

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
UPLOAD_PATH = "/api/v1/media"
UPLOAD_EXTRA_BYTES = 64 * 1024
ALWAYS_ANSWERED = frozenset({"/healthz", "/readyz", "/metrics"})
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Gate:
    def __init__(
        self,
        app: ASGIApp,
        settings: Callable[[], Settings],
        state: Callable[[], str],
        on_answer: Callable[[str, int], None],
    ) -> None:
        self._app = app
        self._settings, self._state = settings, state
        self._on_answer = on_answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        exchange = _Exchange(scope, receive, send, self._body_limit(scope), self._on_answer)
        try:
            self._check(HTTPConnection(scope))
            exchange.check_length()
            await self._app(scope, exchange.receive, exchange.send)
        except Problem as problem:
            await problem.response()(scope, receive, exchange.send)
        except Exception as error:
            if exchange.started:
                raise
            logger.opt(exception=error).error("request failed")
            await Problem(500, "Something went wrong.").response()(scope, receive, exchange.send)

    def _check(self, connection: HTTPConnection) -> None:
        settings = self._settings()
        if not self._is_signed(connection.scope):
            check_host(connection, settings.server.allowed_hosts)
            if settings.auth.mode == "none" and OPERATOR not in connection.scope:
                check_local(connection)
            if changes_something(connection):
                check_origin(connection, settings.server.allowed_origins)
        self._check_state(connection)

    def _is_signed(self, scope: Scope) -> bool:
        """Where a signature over the whole request says who sent it, nothing else counts."""
        return scope["path"] == slack.PATH and slack.is_served(self._settings().channels.slack)

    def _check_state(self, connection: HTTPConnection) -> None:
        state = self._state()
        if state == "serving" or connection.scope["path"] in ALWAYS_ANSWERED:
            return
        if state == "starting":
            raise Problem(503, "The gateway is starting.", code="starting", retry_after=1)
        if state == "stopped" or changes_something(connection):
            raise Problem(503, "The gateway is stopping.", code="shutting_down", retry_after=5)

    def _body_limit(self, scope: Scope) -> int:
        limits = self._settings().limits
        if scope["path"] == UPLOAD_PATH:
            return limits.upload + UPLOAD_EXTRA_BYTES
        if self._is_signed(scope):
            return slack.MAX_BYTES
        return limits.frame


class _Exchange:
    """One request and its answer: counts what comes in, adds headers to what goes out."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        limit: int,
        on_answer: Callable[[str, int], None],
    ) -> None:
        self.started = False
        self._scope, self._receive, self._send = scope, receive, send
        self._limit, self._left = limit, limit
        self._on_answer = on_answer

    def check_length(self) -> None:
        length = HTTPConnection(self._scope).headers.get("content-length", "0")
        if length.isdecimal() and len(length) < 20 and int(length) > self._limit:
            raise self._too_large()

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                raise self._too_large()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self.started = True
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            self._on_answer(self._scope.get("method", "GET"), message["status"])
        elif message["type"] == "websocket.accept":
            self.started = True
        await self._send(message)

    def _too_large(self) -> Problem:
        # The rest is read and dropped by the server: a client that is cut off while it sends
        # would never see this answer.
        return Problem(413, f"A request has at most {self._limit} bytes.")


# -- who may talk to us, by whom it was sent ---------------------------------------------------


def changes_something(connection: HTTPConnection) -> bool:
    """A WebSocket counts: frames change things, and browsers let any page open one."""
    scope = connection.scope
    return scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS


def check_local(connection: HTTPConnection) -> None:
    """Mode `none` is for this machine alone; a proxy would let the world in."""
    if not is_loopback(connection):
        raise Problem(403, "Without authentication only this machine may connect.")
    if is_forwarded(connection):
        raise Problem(403, "Without authentication nothing may be forwarded here.")


def check_host(connection: HTTPConnection, allowed: list[str]) -> None:
    """A page of another site that resolves its own name to this machine names that site here."""
    values = connection.headers.getlist("host")
    if len(values) != 1 or not is_known_host(values[0], allowed):
        raise Problem(403, "The Host header names no host of this gateway.")


def is_known_host(value: str, allowed: list[str]) -> bool:
    host = host_name(value)
    if host is None:
        return False
    names = {name.lower().rstrip(".") for name in allowed}
    return is_loopback_name(host) or host in names or value.lower() in names


def is_loopback_name(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def host_name(value: str) -> str | None:
    """The host of a `host:port`, in lower case; an IPv6 address keeps its brackets."""
    if value.startswith("["):
        inside, bracket, port = value[1:].partition("]")
        if not bracket or not _is_port(port):
            return None
        return f"[{inside.lower()}]"
    host, colon, port = value.partition(":")
    if not host or not _is_port(colon + port):
        return None
    return host.lower().rstrip(".")


def _is_port(text: str) -> bool:
    return not text or (text[0] == ":" and text[1:].isascii() and text[1:].isdecimal())


def check_origin(connection: HTTPConnection, allowed: list[str]) -> None:
    """Refuses what another site's page sends in the name of its visitor.

    Browsers name the origin whenever one could be harmed; other programs name none and are let
    in. A request that carries a bearer token cannot have been made by another site's page.
    """
    headers = connection.headers
    if connection.scope["type"] == "http" and bearer(connection) is not None:
        return
    origins = headers.getlist("origin")
    if not origins and headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return
    if len(origins) != 1 or not is_own_origin(origins[0], headers.get("host", ""), allowed):
        raise Problem(403, "Pages of other sites may change nothing here.")


def is_own_origin(origin: str, host: str, allowed: list[str]) -> bool:
    if origin.lower() in {name.lower().rstrip("/") for name in allowed}:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    default = {"http": ":80", "https": ":443"}.get(parts.scheme)
    if default is None or origin.lower() != f"{parts.scheme}://{parts.netloc}".lower():
        return False
    return parts.netloc.lower().removesuffix(default) == host.lower().removesuffix(default)
