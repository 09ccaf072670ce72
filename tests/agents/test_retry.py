"""How long to wait, and what may be said."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from gateway.agents.retry import Backoff, describe, is_transient, retry_after_seconds


def test_pauses_grow_and_stay_bounded() -> None:
    """Each pause lies between half and all of its turn's length, which doubles up to a limit."""
    backoff = Backoff(retries=9, base_seconds=1, max_seconds=4)

    pauses = [backoff.pause(failures) for failures in range(1, 6)]

    for pause, longest in zip(pauses, (1, 2, 4, 4, 4), strict=True):
        assert pause is not None
        assert longest / 2 <= pause <= longest


def test_after_the_last_try_there_is_no_pause() -> None:
    """Two retries mean three failures."""
    backoff = Backoff(retries=2)

    assert backoff.pause(2) is not None
    assert backoff.pause(3) is None
    assert Backoff(retries=0).pause(1) is None


def test_the_server_decides_within_reason() -> None:
    """Never earlier than Retry-After says; not at all if it says too much."""
    backoff = Backoff(retries=2)
    pause = backoff.pause(1, retry_after=20)

    assert pause is not None
    assert 20 <= pause < 21
    assert backoff.pause(1, retry_after=31) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [("7", 7.0), (" 7 ", 7.0), (None, None), ("", None), ("soon", None), ("-3", None)],
)
def test_retry_after_in_seconds(value: str | None, expected: float | None) -> None:
    """A number is taken, nonsense is not."""
    assert retry_after_seconds(value) == expected


def test_retry_after_as_a_date() -> None:
    """A date in the past means now, one in the future means until then."""
    later = retry_after_seconds(formatdate(time.time() + 3600, usegmt=True))

    assert retry_after_seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert later is not None
    assert 3000 < later <= 3600


def test_which_statuses_pass() -> None:
    """A server's trouble passes; a request's fault does not."""
    assert all(map(is_transient, (408, 425, 429, 500, 503, 529)))
    assert not any(map(is_transient, (301, 400, 401, 403, 404, 413, 422)))


def test_a_description_is_short_and_without_secrets() -> None:
    """The log line holds neither the key nor a whole page."""
    error = ValueError("key sk-1234 of sk-12345 said\nno " + "x" * 1000)

    text = describe(error, ["sk-1234", "sk-12345", ""])

    assert text.startswith("ValueError: key *** of *** said no xxx")
    assert len(text) < 320
