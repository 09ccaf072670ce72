"""Calls of Slack's Web API, and what their failures mean.

SlackError
├── Fatal     Slack refuses our credentials: nothing will work until the operator acts
├── Limited   asked too often: wait `retry_after` seconds
├── Away      nothing was done: Slack is unreachable or out of order
├── Unclear   the answer was lost: it may have been done
└── Rejected  Slack understood and said no: `error` is its word for it

Nothing is retried here. A call sent twice may post twice; who retries must know what it means.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

CALL_SECONDS = 15.0
FATAL = frozenset(
    {
        "invalid_auth",
        "not_authed",
        "account_inactive",
        "token_revoked",
        "token_expired",
        "not_allowed_token_type",
        "link_disabled",
        "app_uninstalled",
    }
)
AWAY = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"}
)


class SlackError(Exception):
    def __init__(self, error: str, method: str = "") -> None:
        super().__init__(error)
        self.error, self.method = error, method


class Fatal(SlackError):
    pass


class Limited(SlackError):
    def __init__(self, method: str, retry_after: float) -> None:
        super().__init__("ratelimited", method)
        self.retry_after = retry_after


class Away(SlackError):
    pass


class Unclear(SlackError):
    pass


class Rejected(SlackError):
    def __init__(self, error: str, method: str, data: dict[str, Any]) -> None:
        super().__init__(error, method)
        self.data = data


class Answered:
    """What Slack said: the body, and the headers some facts hide in."""

    def __init__(self, data: dict[str, Any], headers: dict[str, str]) -> None:
        self.data, self.headers = data, headers

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.data.get(name, default)


class Api:
    """One token's view of the Web API, over one pool of connections."""

    def __init__(self, token: str, base_url: str, session: aiohttp.ClientSession) -> None:
        self.token = token
        self.session = session
        self._client = AsyncWebClient(
            token,
            base_url=base_url if base_url.endswith("/") else base_url + "/",
            session=session,
            retry_handlers=[],
            timeout=int(CALL_SECONDS),
        )

    async def call(
        self, method: str, args: dict[str, Any] | None = None, *, form: bool = False
    ) -> Answered:
        """Raises a SlackError. `form` for the methods that take no JSON."""
        args = args or {}
        try:
            async with asyncio.timeout(CALL_SECONDS):
                if form:
                    response = await self._client.api_call(method, params=args)
                else:
                    response = await self._client.api_call(method, json=args)
        except SlackApiError as error:
            raise _meaning(error, method) from error
        except aiohttp.ClientConnectorError as error:
            raise Away("unreachable", method) from error
        except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unclear(type(error).__name__, method) from error
        except (ValueError, AttributeError, TypeError) as error:
            # The SDK stumbles over an answer that is no JSON object.
            raise Unclear("unreadable answer", method) from error
        data = response.data
        if not isinstance(data, dict):
            raise Unclear("no answer", method)
        headers = {str(name).lower(): str(value) for name, value in response.headers.items()}
        return Answered(data, headers)


def jitter() -> float:
    """A factor that keeps many from trying again at the same moment."""
    return random.uniform(0.7, 1.3)  # noqa: S311 - nothing secret


def _meaning(raised: SlackApiError, method: str) -> SlackError:
    response = raised.response
    data = getattr(response, "data", None)
    data = data if isinstance(data, dict) else {}
    status = getattr(response, "status_code", 0)
    headers = {str(k).lower(): v for k, v in (getattr(response, "headers", None) or {}).items()}
    error = str(data.get("error") or "")
    if status == 429 or error in ("ratelimited", "rate_limited"):
        return Limited(method, _seconds(headers.get("retry-after")))
    if error in FATAL:
        return Fatal(error, method)
    if error and error not in AWAY:
        return Rejected(error, method, data)
    return Unclear(error or f"status {status}", method)


def _seconds(text: object) -> float:
    if isinstance(text, list):
        text = text[0] if text else ""
    try:
        return max(1.0, float(str(text)))
    except ValueError:
        return 30.0
