"""`POST /slack/events`: what Slack tells an app that has no socket.

Requests come from Slack's servers, mostly through a proxy, so neither their Host nor their peer
says anything about them: the signature does. It is checked over the raw body, before anything is
parsed. The answer is the acknowledgement, and goes out once the event is in the log; anything but
200 makes Slack send it again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from starlette.responses import Response

from channels.errors import Later
from gateway.config import SlackSettings
from gateway.http.answers import answer
from gateway.http.context import InContext
from gateway.http.problems import Problem

if TYPE_CHECKING:
    from channels.slack.channel import SlackChannel

PATH = "/slack/events"
MAX_BYTES = 1_048_576
MOST_FIELDS = 100

router = APIRouter(include_in_schema=False)


@router.post(PATH)
async def take_event(request: Request, context: InContext) -> Response:
    settings = context.gateway.settings.channels.slack
    if not is_served(settings):
        raise Problem(404, "There is nothing here.")
    body = await request.body()
    if not is_signed(body, request, settings):
        raise Problem(401, "The request is not signed by Slack.")
    payload = read(body, request.headers.get("content-type", ""))
    if payload.get("type") == "url_verification":
        return answer({"challenge": str(payload.get("challenge") or "")})
    envelope = as_envelope(payload)
    if envelope is None:
        return Response(status_code=200)
    # Only `make_channel` puts something under this name.
    channel: SlackChannel = context.gateway.push["slack"]  # type: ignore[assignment]
    try:
        said = await channel.take(envelope)
    except Later as error:
        raise Problem(503, "The event could not be stored.", retry_after=1.0) from error
    return Response(status_code=200) if said is None else answer(said)


def is_served(settings: SlackSettings) -> bool:
    return settings.enabled and settings.mode == "http"


def is_signed(body: bytes, request: Request, settings: SlackSettings) -> bool:
    from slack_sdk.signature import SignatureVerifier  # Only who uses it pays for its import.

    verifier = SignatureVerifier(settings.signing_secret.get_secret_value().strip())
    try:
        return verifier.is_valid(
            body,
            request.headers.get("x-slack-request-timestamp"),
            request.headers.get("x-slack-signature"),
        )
    except (ValueError, TypeError):
        # A time stamp that is no number, a body or a signature of bytes that are no text.
        return False


def read(body: bytes, content_type: str) -> dict[str, Any]:
    """Events are JSON; buttons and commands are forms."""
    try:
        if content_type.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded":
            found: Any = dict(
                parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
            )
        else:
            found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Problem(400, "The body cannot be read.") from error
    if not isinstance(found, dict):
        raise Problem(400, "The body cannot be read.")
    return found


def as_envelope(payload: dict[str, Any]) -> dict[str, Any] | None:
    """The form the same thing has on a socket; None for what asks for nothing."""
    if "payload" in payload:
        try:
            pressed = json.loads(payload["payload"])
        except (ValueError, TypeError, RecursionError) as error:
            raise Problem(400, "The body cannot be read.") from error
        return {"type": "interactive", "payload": pressed}
    if "command" in payload:
        return {"type": "slash_commands", "payload": payload}
    if payload.get("type") == "event_callback":
        return {"type": "events_api", "payload": payload}
    return None
