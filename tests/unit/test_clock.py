"""Times sort as text and survive every form a peer writes them in."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions import clock

FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
MOMENTS = st.datetimes(
    datetime(1, 1, 2),  # noqa: DTZ001 – hypothesis adds the zone itself
    datetime(9999, 12, 30),  # noqa: DTZ001 – hypothesis adds the zone itself
    timezones=st.integers(-14, 14).map(lambda hours: timezone(timedelta(hours=hours))),
)


@given(MOMENTS, MOMENTS)
def test_text_sorts_like_time(one: datetime, other: datetime) -> None:
    """Earlier times are smaller texts, in whatever zone they were written."""
    first, second = clock.normal(one.isoformat()), clock.normal(other.isoformat())

    assert first is not None
    assert second is not None
    assert (first < second) == (one < other)
    assert FORM.fullmatch(first)


@given(MOMENTS)
def test_normal_is_lossless_and_final(moment: datetime) -> None:
    """A time in the log's form is the same moment, and stays as it is."""
    text = clock.normal(moment.isoformat())

    assert text is not None
    assert datetime.fromisoformat(text) == moment
    assert clock.normal(text) == text


def test_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The present has six digits after the second, never seven, at any fraction."""
    for moment in (0.0, 0.9999999, 1.0, 1_800_000_000.999_999_9, 1_800_000_001.000_001):
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)

        text = clock.now()

        assert FORM.fullmatch(text)
        assert abs(clock.seconds(text) - moment) < 2e-6


def test_now_across_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of consecutive moments never go back."""
    moments = [1000.0 + step / 7 for step in range(30)]
    texts = []
    for moment in moments:
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)
        texts.append(clock.now())

    assert texts == sorted(texts)
    assert len(set(texts)) == len(texts)


@given(st.floats(0, 4_000_000_000))
def test_epoch_and_back(moment: float) -> None:
    """Seconds since the epoch come back to the microsecond."""
    assert abs(clock.seconds(clock.from_epoch(moment)) - moment) < 2e-6


def test_naive_time_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer's time without a zone is the machine's local time."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert clock.normal("2026-03-01T09:00:00") == "2026-03-01T00:00:00.000000Z"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    "text", [None, "", 5, True, [], "yesterday", "2026-13-01", "2026-03-01T25:00:00", "9" * 400]
)
def test_no_time(text: object) -> None:
    """What is no time has no normal form and lies at the epoch."""
    assert clock.normal(text) is None
    assert clock.seconds(text if isinstance(text, str) else "") == 0.0


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_time_at_the_edge(text: str) -> None:
    """A time that cannot be told in UTC is no time."""
    assert clock.normal(text) is None


def test_early_years_sort_too() -> None:
    """Years before 1000 are padded, or they would sort last."""
    assert clock.normal("0999-01-01T00:00:00+00:00") == "0999-01-01T00:00:00.000000Z"
    assert clock.from_epoch(0) == "1970-01-01T00:00:00.000000Z"
    assert datetime.fromisoformat(clock.now()).tzinfo == UTC
