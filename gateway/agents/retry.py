"""When to try again, how long to wait before it, and what may be said about a failure."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from email.utils import parsedate_to_datetime

import msgspec

_TRANSIENT_STATUS = frozenset({408, 425, 429})
_DETAIL_CHARS = 300


class Backoff(msgspec.Struct, frozen=True):
    """Exponential, with jitter, so that many turns that failed together do not return together."""

    retries: int
    """Tries after the first one."""
    base_seconds: float = 0.5
    max_seconds: float = 8.0
    max_retry_after_seconds: float = 30.0
    """A server that wants a longer rest counts as unable to answer."""

    def pause(self, failures: int, retry_after: float | None = None) -> float | None:
        """Seconds to wait after this many failures; None means to give up."""
        if failures > self.retries:
            return None
        if retry_after is not None and retry_after > self.max_retry_after_seconds:
            return None
        longest = min(self.max_seconds, self.base_seconds * 2.0 ** (failures - 1))
        jittered = longest * random.uniform(0.5, 1)  # noqa: S311 - it spreads load, it is no secret
        # Never before the moment the server asked for.
        return jittered if retry_after is None else max(0.0, retry_after) + jittered / 4


def is_transient(status: int) -> bool:
    return status in _TRANSIENT_STATUS or status >= 500


def retry_after_seconds(value: str | None) -> float | None:
    """The header Retry-After: seconds, or a date. None if there is none that can be read."""
    if not value:
        return None
    if value.strip().isascii() and value.strip().isdigit():
        return float(value)
    try:
        moment = parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, moment - time.time())


def describe(error: BaseException, secrets: Iterable[str] = ()) -> str:
    """One short line for the log, in which none of `secrets` appears."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text if len(text) <= _DETAIL_CHARS else text[:_DETAIL_CHARS] + "…"
