"""What goes in and out over HTTP, as the OpenAPI document describes it.

Bodies that come in are checked against these; answers are built elsewhere and only described here.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_NUMBER = 2**53
MAX_CUSTOM_BYTES = 16_384


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


Tag = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class SessionChange(Body):
    title: Annotated[str, StringConstraints(max_length=200)] | None = None
    """null or empty removes it."""
    tags: Annotated[list[Tag], Field(max_length=32)] | None = None
    """All of them; those left out are removed."""
    custom: dict[str, Any] | None = None
    """Fields to set; null removes one."""


class ProactiveMessage(Body):
    key: Annotated[str, StringConstraints(min_length=1, max_length=2_048)]
    text: Annotated[str, StringConstraints(min_length=1)]
    id: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    """The same message sent again has the same id and is delivered once."""


class Compaction(Body):
    prompt: str | None = None
    dry_run: bool = False


class LoginBody(Body):
    token: Annotated[str, StringConstraints(min_length=1, max_length=512)]


class FieldError(BaseModel):
    place: str
    message: str


class ProblemDetails(Answer):
    type: str
    title: str
    status: int
    detail: str
    code: str
    retry_after: float | None = None
    errors: list[FieldError] | None = None


class Snippet(BaseModel):
    seq: int
    snippet: str


class SessionShape(Answer):
    key: str
    channel: str
    chat_id: str
    user: str | None
    agent: str | None
    model: str | None
    state: str
    title: str
    preview: str
    tags: list[str]
    message_count: int
    token_count: int
    max_tokens: int
    token_usage: dict[str, int]
    damaged: int
    created_at: str
    updated_at: str
    last_active_at: str
    compacted_at: str | None
    matches: list[Snippet] | None = None


class SessionDetails(SessionShape):
    summary: str | None
    usage: dict[str, int]
    goal: Any
    conversation: int
    custom: dict[str, Any]


class SessionList(BaseModel):
    sessions: list[SessionShape]
    next_cursor: str | None


class MediaShape(Answer):
    id: str
    name: str
    mime: str
    size: int
    url: str


class MessageShape(Answer):
    seq: int
    role: str
    content: str
    timestamp: str
    id: str | None = None
    turn: str | None = None
    outcome: str | None = None
    latency_ms: int | None = None
    media: list[Any] | None = None


class MessageList(BaseModel):
    messages: list[MessageShape]
    more: bool


class StatsShape(Answer):
    total_sessions: int
    active_sessions: int
    idle_sessions: int
    archived_sessions: int
    suspended_sessions: int
    total_messages: int
    total_tokens: int
    running_turns: int
    queued_messages: int
    connections: int


class LogList(BaseModel):
    events: list[dict[str, Any]]


class Delivery(BaseModel):
    delivery_id: str
    key: str
    seq: int
    duplicate: bool


class Me(BaseModel):
    user: str
    role: str
    mode: str


class Readiness(Answer):
    status: str
    store: dict[str, Any]
    channels: dict[str, dict[str, Any]]


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {
        "description": text,
        "content": {
            "application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}
        },
    }
    for status, text in {
        400: "Cannot be understood",
        401: "No valid token",
        403: "Not allowed",
        404: "Not there, or not yours",
        405: "Cannot be done here",
        409: "Does not fit the present state",
        413: "Too large",
        422: "Not the right form",
        429: "Too many",
        501: "Not available yet",
        503: "Not now",
    }.items()
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems a route can answer with, besides those of every route."""
    return {status: PROBLEMS[status] for status in (*statuses, 400, 401, 403, 422, 429, 503)}
