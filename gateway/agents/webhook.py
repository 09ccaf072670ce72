"""The agent that is somebody's HTTP service.

Each turn is one signed POST. The answer is a JSON object with the text, or a stream of events, one
per line (NDJSON) or per SSE message. A stream has to say `end`: without it nobody can tell an
answer from half of one. A request is made again only before the first word; the service sees the
same Parley-Turn and may know it by that. Redirects are not followed: a signed conversation goes to
the configured address or nowhere.

aiohttp, because it is there for Slack already and hands over the body as it arrives, so lines and
bodies can be bounded while they are read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import aiohttp
from loguru import logger

from gateway.agents.agent import AgentEvent, AgentFailed, Delta, Reasoning, TurnContext, Usage
from gateway.agents.fallback import AgentUnavailable
from gateway.agents.retry import Backoff, describe, is_transient, retry_after_seconds
from gateway.agents.webhook_wire import (
    MAX_BODY_BYTES,
    BadAnswer,
    Event,
    Lines,
    body_of,
    decode,
    headers_of,
)
from gateway.config import WebhookAgentSettings

_UNREACHABLE = "The agent cannot be reached."
_INVALID = "The agent gave an answer that cannot be read."
_BROKE_OFF = "The answer broke off."


class WebhookAgent:
    def __init__(
        self, name: str, settings: WebhookAgentSettings, backoff: Backoff | None = None
    ) -> None:
        self.name = name
        self._url = settings.url
        self._secret = settings.secret.get_secret_value() if settings.secret else None
        self._headers = {key: value.get_secret_value() for key, value in settings.headers.items()}
        self._connect_seconds = settings.connect_seconds
        self._backoff = backoff or Backoff(settings.retries)
        self._session: aiohttp.ClientSession | None = None

    async def run(self, turn: TurnContext) -> AsyncIterator[AgentEvent]:
        body = body_of(turn)
        failures = 0
        while True:
            shown = False
            try:
                async with aclosing(self._post(turn, body)) as events:
                    async for event in events:
                        shown = shown or isinstance(event, Delta | Reasoning)
                        yield event
                return
            except _TryFailed as failure:
                failures += 1
                self._log(failure, failures)
                if shown:
                    raise AgentFailed(failure.after or _BROKE_OFF) from failure
                pause = None
                if failure.again:
                    pause = self._backoff.pause(failures, failure.retry_after)
                if pause is None:
                    raise AgentUnavailable(failure.message) from failure
            await asyncio.sleep(pause)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _post(self, turn: TurnContext, body: bytes) -> AsyncGenerator[AgentEvent, None]:
        """One try. Raises _TryFailed."""
        headers = {**self._headers, **headers_of(turn, body, self._secret, int(time.time()))}
        try:
            async with self._connections().post(
                self._url, data=body, headers=headers, allow_redirects=False
            ) as response:
                _check_status(response)
                async with aclosing(_events(response)) as events:
                    async for event in events:
                        yield event
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _TryFailed(_UNREACHABLE, again=True) from error
        except BadAnswer as error:
            raise _TryFailed(_INVALID) from error

    def _connections(self) -> aiohttp.ClientSession:
        """Made at the first turn, because it belongs to the running loop."""
        if self._session is None:
            # How long an answer may take is the turn's concern.
            limits = aiohttp.ClientTimeout(total=None, connect=self._connect_seconds)
            self._session = aiohttp.ClientSession(
                timeout=limits, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
            )
        return self._session

    def _log(self, failure: _TryFailed, failures: int) -> None:
        hidden = [self._url, self._secret or "", *self._headers.values()]
        error = describe(failure.__cause__ or failure, hidden)
        logger.bind(agent=self.name, error=error, attempt=failures).warning("webhook failed")


class _TryFailed(Exception):
    def __init__(
        self,
        message: str,
        *,
        again: bool = False,
        retry_after: float | None = None,
        after: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        """For the user, if nothing was shown."""
        self.again = again
        self.retry_after = retry_after
        self.after = after
        """For the user, if something was shown."""


def _check_status(response: aiohttp.ClientResponse) -> None:
    if response.status == 200:
        return
    again = is_transient(response.status)
    message = "The agent is overloaded. Please try again later." if again else _INVALID
    wait = retry_after_seconds(response.headers.get("Retry-After"))
    failure = _TryFailed(message, again=again, retry_after=wait)
    raise failure from BadAnswer(f"status {response.status}")


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[AgentEvent, None]:
    if response.content_type == "application/json":
        event = decode(await _whole(response))
        if event.type == "error":
            raise _reported(event)
        if event.text:
            yield Delta(event.text)
        if event.usage:
            yield Usage(event.usage)
        return
    lines = Lines(response.content_type)
    async for chunk in response.content.iter_any():
        for event in lines.feed(chunk):
            match event.type:
                case "delta" if event.text:
                    yield Delta(event.text)
                case "reasoning" if event.text:
                    yield Reasoning(event.text)
                case "error":
                    raise _reported(event)
                case "end":
                    if event.usage:
                        yield Usage(event.usage)
                    return
    raise _TryFailed(_UNREACHABLE, again=True) from BadAnswer("the stream ended without `end`")


async def _whole(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise BadAnswer(f"the body is larger than {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _reported(event: Event) -> _TryFailed:
    """The service says itself what is wrong, in words meant for its users."""
    message = event.message or "The agent could not answer."
    return _TryFailed(message, after=message)
