"""Numbers for Prometheus; every name begins with `parley_`.

What the gateway knows anyway is read from its live objects in one step of the event loop, so that
in every scrape received = outcomes + pending. Only durations are counted as they happen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)

from sessions.store import Stats

if TYPE_CHECKING:
    from gateway.app import Gateway

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._turns = self._histogram("turn_seconds", "Time a turn took.", _SECONDS, ["outcome"])
        self._first = self._histogram(
            "turn_first_token_seconds", "Time until a turn showed its first word.", _SECONDS
        )
        self._connects = self._counter(
            "websocket_connections", "WebSocket connections that were accepted."
        )
        self._resumes = self._counter(
            "websocket_reconnects", "Chats a client came back to with a cursor."
        )
        self._requests = self._counter(
            "http_requests", "HTTP requests that were answered.", ["method", "status"]
        )

    # -- as it happens ------------------------------------------------------------------------

    def observe_turn(
        self, outcome: str, latency_seconds: float, first_shown_seconds: float | None = None
    ) -> None:
        self._turns.labels(outcome).observe(latency_seconds)
        if first_shown_seconds is not None:
            self._first.observe(first_shown_seconds)

    def count_connection(self) -> None:
        self._connects.inc()

    def count_reconnect(self) -> None:
        self._resumes.inc()

    def count_request(self, method: str, status: int) -> None:
        known = method if method in _METHODS else "other"
        self._requests.labels(known, str(status)).inc()

    # -- as it is -----------------------------------------------------------------------------

    def expose(self, gateway: Gateway, stats: Stats | None) -> bytes:
        """Everything as text. Nothing else runs meanwhile, so the numbers belong together."""
        view = _View(gateway, stats)
        self.registry.register(view)
        try:
            return generate_latest(self.registry)
        finally:
            self.registry.unregister(view)

    def add_process(self) -> None:
        """Memory, processor time and open files of the process this runs in."""
        ProcessCollector("parley", pid=os.getpid, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: Iterable[float], labels: Iterable[str] = ()
    ) -> Histogram:
        return Histogram(
            f"parley_{name}", text, labels, buckets=tuple(buckets), registry=self.registry
        )

    def _counter(self, name: str, text: str, labels: Iterable[str] = ()) -> Counter:
        return Counter(f"parley_{name}", text, labels, registry=self.registry)


_METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "PUT", "DELETE", "OPTIONS"})


class _View:
    """The live objects of a gateway, as Prometheus reads them."""

    def __init__(self, gateway: Gateway, stats: Stats | None) -> None:
        self._gateway, self._stats = gateway, stats

    def collect(self) -> Iterator[Metric]:
        yield from self._messages()
        yield from self._work()
        if self._stats is not None:
            yield from self._sessions(self._stats)

    def _messages(self) -> Iterator[Metric]:
        ledger = self._gateway.ledger
        received = CounterMetricFamily(
            "parley_messages_received", "Messages that came in.", labels=["channel"]
        )
        for channel, count in ledger.received.items():
            received.add_metric([channel], count)
        yield received
        outcomes = CounterMetricFamily(
            "parley_messages_outcome", "How messages ended.", labels=["channel", "outcome"]
        )
        for (channel, outcome), count in ledger.outcomes.items():
            outcomes.add_metric([channel, outcome], count)
        yield outcomes
        yield _gauge("messages_pending", "Messages that have not ended yet.", ledger.pending)

    def _work(self) -> Iterator[Metric]:
        gateway = self._gateway
        lanes = getattr(gateway, "lanes", None)
        ready = gateway.state == "serving"
        yield _gauge("ready", "1 while messages are taken in.", 1 if ready else 0)
        yield _gauge("connections", "Open WebSocket connections.", len(gateway.connections))
        receives = GaugeMetricFamily(
            "parley_channel_receives", "1 while a channel can receive.", labels=["channel"]
        )
        for name, channel in gateway.channels().items():
            receives.add_metric([name], 1 if channel.receives else 0)
        yield receives
        if lanes is None:
            return
        running = list(lanes.turns.values())
        answering = sum(len(turn.answering) for turn in running)
        queued = max(0, gateway.ledger.pending - answering)
        yield _gauge("turns_running", "Turns that run now.", len(running))
        yield _gauge("turns_waiting", "Chats that wait for a free slot.", lanes.slots.waiting)
        yield _gauge("turns_limit", "Turns that may run at once.", lanes.slots.limit)
        yield _gauge("queue_depth", "Messages that wait for their turn.", queued)

    @staticmethod
    def _sessions(stats: Stats) -> Iterator[Metric]:
        sessions = GaugeMetricFamily("parley_sessions", "Sessions by state.", labels=["state"])
        for state, count in stats.sessions_by_state.items():
            sessions.add_metric([state], count)
        yield sessions
        yield _gauge("stored_messages", "Messages in all logs.", stats.total_messages)
        yield _gauge("undelivered_messages", "Replies not delivered.", stats.undelivered_messages)
        yield _gauge("cached_sessions", "Sessions kept in memory.", stats.cached_sessions)
        yield _gauge("cached_bytes", "Memory of the sessions kept.", stats.cached_bytes)
        yield _gauge("unsynced_bytes", "Bytes that wait for the disk.", stats.unsynced_bytes)
        yield _gauge("open_files", "Session logs that are open.", stats.open_files)
        yield SummaryMetricFamily(
            "parley_append_seconds",
            "Time spent in writes to session logs.",
            count_value=stats.appends,
            sum_value=stats.append_seconds,
        )
        yield SummaryMetricFamily(
            "parley_sync_seconds",
            "Time spent in syncs of session logs.",
            count_value=stats.syncs,
            sum_value=stats.sync_seconds,
        )


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"parley_{name}", text, value=value)
