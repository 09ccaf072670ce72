"""What the routes stand on, and what they ask for by their parameters."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import unquote_to_bytes

import msgspec
from fastapi import Depends, Path
from starlette.requests import HTTPConnection

from gateway.app import Gateway
from gateway.http.auth import COOKIE, Authenticator
from gateway.http.problems import Problem, no_session
from gateway.logs import Logs
from gateway.telemetry import Metrics
from gateway.users import User
from sessions.errors import InvalidKey, SessionNotFound
from sessions.key import SessionKey
from sessions.session import Session


class Context(msgspec.Struct, frozen=True):
    gateway: Gateway
    auth: Authenticator
    metrics: Metrics
    logs: Logs


async def get_context(connection: HTTPConnection) -> Context:
    found: Context = connection.app.state.context
    return found


InContext = Annotated[Context, Depends(get_context)]


async def get_user(connection: HTTPConnection, context: InContext) -> User:
    user = context.auth.user(connection)
    if user is not None:
        return user
    if "authorization" in connection.headers or COOKIE in connection.cookies:
        wait = context.auth.failures.add(connection)
        if wait:
            raise Problem(429, "Too many wrong tokens.", retry_after=wait)
    raise Problem(401, "This needs a valid token.")


CurrentUser = Annotated[User, Depends(get_user)]


async def get_admin(user: CurrentUser) -> User:
    if not user.admin:
        raise Problem(403, "This is for administrators.")
    return user


CurrentAdmin = Annotated[User, Depends(get_admin)]


async def get_key(
    key: Annotated[str, Path(description="The session's key, percent-encoded as one segment.")],
) -> SessionKey:
    """The segment as it was sent is decoded here, once, after routing."""
    try:
        return SessionKey.parse(unquote_to_bytes(key).decode("utf-8"))
    except (InvalidKey, UnicodeDecodeError) as error:
        raise no_session() from error


InKey = Annotated[SessionKey, Depends(get_key)]


async def get_session(key: InKey, user: CurrentUser, context: InContext) -> Session:
    """A session this user may see. One that is somebody else's looks like one that is not there."""
    try:
        session = await context.gateway.store.get(key)
    except SessionNotFound:
        session = None
    if session is None or not user.may_read(session):
        raise no_session()
    return session


InSession = Annotated[Session, Depends(get_session)]
