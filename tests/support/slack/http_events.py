"""Slack's side of the HTTP Events API: signed requests to a URL of ours."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp

from tests.support.slack.socket_mode import Envelope

TIMEOUT = aiohttp.ClientTimeout(total=3)


@dataclass(frozen=True)
class Posted:
    status: int
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def sign(secret: str, timestamp: str, body: bytes) -> str:
    signed = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


async def post(
    url: str,
    body: bytes,
    secret: str,
    content_type: str = "application/json",
    headers: Mapping[str, str | None] | None = None,
) -> Posted:
    """`headers` override the right ones; None leaves one out."""
    timestamp = str(int(time.time()))
    chosen = {
        "Content-Type": content_type,
        "X-Slack-Request-Timestamp": timestamp,
        "X-Slack-Signature": sign(secret, timestamp, body),
        **(headers or {}),
    }
    sent = {name: value for name, value in chosen.items() if value is not None}
    async with (
        aiohttp.ClientSession(timeout=TIMEOUT) as session,
        session.post(url, data=body, headers=sent) as response,
    ):
        return Posted(response.status, await response.text())


async def deliver(url: str, secret: str, envelope: Envelope, attempt: int, reason: str) -> Posted:
    """One attempt to tell, in the form Slack uses for this kind of envelope."""
    headers = {"X-Slack-Retry-Num": str(attempt), "X-Slack-Retry-Reason": reason} if attempt else {}
    if envelope.type == "events_api":
        body, kind = json.dumps(envelope.payload).encode(), "application/json"
    else:
        payload = envelope.payload
        fields = {"payload": json.dumps(payload)} if envelope.type == "interactive" else payload
        body, kind = urlencode(fields).encode(), "application/x-www-form-urlencoded"
    return await post(url, body, secret, kind, headers)
