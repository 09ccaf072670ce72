"""Who can reach the gateway, and whether it can listen."""

from __future__ import annotations

import errno
import http.client
import json
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.config import LOOPBACK
from gateway.doctor.check import Facts, Result, fail, ok, warn
from gateway.tokens import TokenError, Tokens

ANSWER_SECONDS = 3.0
OTHER_FILES = 1_000
"""Descriptors besides those of connections: logs, threads, agents."""


def access(facts: Facts) -> Iterator[Result]:
    settings = facts.settings
    host, mode = settings.server.host, settings.auth.mode
    outside = host not in LOOPBACK
    if mode == "none" and outside:
        yield fail("access", f"{host} is open to everybody", "set auth.mode to token or proxy")
    elif outside and not settings.server.allowed_hosts:
        detail = f"mode {mode} on {host}, but only loopback names are served"
        yield warn("access", detail, "name your host in server.allowed_hosts")
    else:
        yield ok("access", f"mode {mode} on {host}")
    if mode == "token":
        yield _tokens(facts)


def _tokens(facts: Facts) -> Result:
    try:
        known = Tokens(facts.data_dir).known()
    except (TokenError, OSError) as error:
        return fail("tokens", str(error), "restore tokens.json from a back-up, or move it away")
    if not known:
        return ok("tokens", "none yet; the first start makes one in admin-token")
    admins = sum(token.role == "admin" for token in known)
    if not admins:
        fix = "parley token new --name NAME --role admin"
        return warn("tokens", f"{len(known)}, none of them an administrator's", fix)
    return ok("tokens", f"{len(known)}, {admins} of them administrators'")


def port(facts: Facts) -> Iterator[Result]:
    host, number = facts.settings.server.host, facts.settings.server.port
    name, shown = "port", f"{host}:{number}"
    running = _readiness_by_socket(facts)
    if running is not None:
        yield _ready(running)
    if number == 0:
        yield ok(name, "any free one")
        return
    problem = _cannot_bind(host, number)
    if problem is None and running is not None:
        detail = f"{shown} is free although a gateway runs"
        yield warn(name, detail, "it listens elsewhere; restart it to use these settings")
    elif problem is None:
        yield ok(name, f"{shown} is free")
    elif problem.errno != errno.EADDRINUSE:
        reason = problem.strerror or str(problem)
        yield fail(name, f"{shown}: {reason}", "choose another server.host or server.port")
    elif running is not None and _readiness_by_port(host, number) is not None:
        yield ok(name, f"{shown} is served by a gateway")
    else:
        fix = "stop that program, or choose another server.port"
        yield fail(name, f"{shown} is taken by another program", fix)


def _ready(found: dict[str, Any]) -> Result:
    status = str(found.get("status"))
    if status == "ok":
        return ok("gateway", "it runs and is ready")
    store = found.get("store")
    reason = store.get("reason") if isinstance(store, dict) else None
    fix = "look at its log"
    if status in ("degraded", "starting", "stopping"):
        return warn("gateway", f"it runs and is {status}", fix)
    return fail("gateway", f"it runs and takes no messages: {reason or status}", fix)


def _cannot_bind(host: str, number: int) -> OSError | None:
    try:
        found = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)
        family, *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        with socket.socket(family, socket.SOCK_STREAM) as trying:
            trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trying.bind(address)
    except OSError as error:
        return error
    return None


def readiness(facts: Facts) -> dict[str, Any] | None:
    """What a running gateway says of itself; None if none answers on the directory or the port."""
    server = facts.settings.server
    return _readiness_by_socket(facts) or _readiness_by_port(server.host, server.port)


def _readiness_by_socket(facts: Facts) -> dict[str, Any] | None:
    """None if no gateway runs on this data directory."""
    from gateway.cli.admin import RunningGateway
    from gateway.cli.exits import Failure

    try:
        found = RunningGateway(facts.data_dir, ANSWER_SECONDS).get("/readyz")[1]
    except Failure:
        return None
    return found if isinstance(found, dict) and "status" in found else None


def _readiness_by_port(host: str, number: int) -> dict[str, Any] | None:
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - what it means
    connection = http.client.HTTPConnection(reached, number, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", "/readyz", headers={"Host": "localhost"})
        found = json.loads(connection.getresponse().read(65_536))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return found if isinstance(found, dict) and "store" in found else None


def descriptors(facts: Facts) -> Iterator[Result]:
    allowed = _allowed_files(facts)
    wanted = facts.settings.limits.connections + OTHER_FILES
    if allowed is None or allowed >= wanted:
        yield ok("open files", f"{allowed:,} allowed" if allowed else "no limit")
        return
    detail = f"{allowed:,} allowed, {wanted:,} needed for limits.connections"
    yield warn("open files", detail, "raise LimitNOFILE or ulimit -n, or lower the setting")


def _allowed_files(facts: Facts) -> int | None:
    """Of the running gateway if there is one, else of this process; None: any number."""
    if facts.owner:
        try:
            for line in Path(f"/proc/{facts.owner}/limits").read_text().splitlines():
                if line.startswith("Max open files"):
                    found = line.split()[3]
                    return None if found == "unlimited" else int(found)
        except (OSError, ValueError, IndexError):
            pass
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft
