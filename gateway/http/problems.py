"""Everything that goes wrong over HTTP, as RFC 9457 problem details.

`code` is one of the contract's error codes, the same words the WebSocket uses. A problem never
repeats what the client sent.
"""

from __future__ import annotations

import http
import math
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from loguru import logger
from starlette.exceptions import HTTPException
from starlette.responses import Response

from channels.errors import Refused
from gateway.http.answers import encode
from sessions.errors import (
    ConversationEnded,
    InvalidKey,
    MessageConflict,
    SessionError,
    SessionNotFound,
    StoreUnavailable,
)

MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 20

_STATUS = {
    "bad_frame": 422,
    "unauthorized": 401,
    "not_found": 404,
    "conflict": 409,
    "too_large": 413,
    "busy": 409,
    "queue_full": 429,
    "rate_limited": 429,
    "shutting_down": 503,
    "storage_unavailable": 503,
    "internal": 500,
}
_CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "too_large",
    422: "bad_request",
    429: "rate_limited",
    500: "internal",
    501: "not_available",
    503: "unavailable",
}


class Problem(HTTPException):
    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: str | None = None,
        retry_after: float | None = None,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(status, detail, headers)
        self.code = code or _CODES.get(status, "error")
        self.retry_after = retry_after
        self.fields = fields

    def response(self) -> Response:
        phrase = http.HTTPStatus(self.status_code).phrase
        value = {
            "type": "about:blank",
            "title": phrase,
            "status": self.status_code,
            "detail": self.detail,
            "code": self.code,
            **self.fields,
        }
        headers = dict(self.headers or {})
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after)))
            value["retry_after"] = self.retry_after
        if self.status_code == 401:
            headers.setdefault("WWW-Authenticate", 'Bearer realm="parley"')
        return Response(encode(value), self.status_code, headers, MEDIA_TYPE)


def no_session() -> Problem:
    """The one answer for a session that is not there and for one that is somebody else's."""
    return Problem(404, "There is no such session.")


def refused(refusal: Refused) -> Problem:
    status = _STATUS.get(refusal.code, 400)
    code = "bad_request" if refusal.code == "bad_frame" else refusal.code
    return Problem(status, refusal.message, code=code, retry_after=refusal.retry_after)


def of_session(error: SessionError) -> Problem:
    if isinstance(error, SessionNotFound | InvalidKey):
        return no_session()
    if isinstance(error, ConversationEnded):
        return Problem(409, "This conversation has ended and can only be read.")
    if isinstance(error, MessageConflict):
        return Problem(409, "This id was used for another message.")
    if isinstance(error, StoreUnavailable):
        return Problem(
            503,
            "The session store does not accept this now.",
            code="storage_unavailable",
            retry_after=error.retry_after_seconds,
        )
    logger.bind(error=str(error)).error("session unreadable")
    return Problem(503, "This session cannot be read.", code="storage_unavailable")


def install(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for nothing else
        if isinstance(error, Problem):
            return error.response()
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(sorted(_methods(routers, request.scope["path"])))
        detail = _DETAILS.get(error.status_code, str(error.detail))
        return Problem(error.status_code, detail, headers=headers).response()

    async def on_invalid(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for nothing else
        return _invalid(error).response()

    async def on_refused(_request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)  # noqa: S101 - registered for nothing else
        return refused(error).response()

    async def on_session(_request: Request, error: Exception) -> Response:
        assert isinstance(error, SessionError)  # noqa: S101 - registered for nothing else
        return of_session(error).response()

    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(Refused, on_refused)
    app.add_exception_handler(SessionError, on_session)


def _methods(routers: Sequence[APIRouter], path: str) -> set[str]:
    """What can be done at this path; the framework names only one of its routes."""
    found: set[str] = set()
    for route in (route for router in routers for route in router.routes):
        if isinstance(route, APIRoute) and route.path_regex.match(path):
            found |= route.methods or set()
    return found


_DETAILS = {404: "There is nothing here.", 405: "This cannot be done here."}


def _invalid(error: RequestValidationError) -> Problem:
    """Names the places and what is wrong there, never the values."""
    errors = [
        {"place": ".".join(str(part) for part in item["loc"]), "message": str(item["msg"])}
        for item in error.errors()[:MOST_ERRORS]
    ]
    return Problem(422, "The request does not have the form it must have.", errors=errors)
