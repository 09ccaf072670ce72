"""What can go wrong with a request, and when.

Names are Web API methods, or `socket.upgrade`, `socket.hello`, `upload`, `download`,
`response_url`; `*` is every Web API method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LOGIN_PAGE = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Sign in</body></html>"


@dataclass(frozen=True)
class Fault:
    """Waits `delay_seconds`, then either answers by itself or lets the request be processed."""

    delay_seconds: float = 0
    status: int | None = None
    """Answer with this status instead of processing the request."""
    body: Mapping[str, Any] | str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    processed: bool = False
    """Process the request before `lost` takes its answer away."""
    lost: str = ""
    """`drop` cuts the connection instead of answering, `hang` never answers."""


def rate_limited(retry_after_seconds: int) -> Fault:
    headers = {"Retry-After": str(retry_after_seconds)}
    return Fault(status=429, body={"ok": False, "error": "ratelimited"}, headers=headers)


def refused(error: str, **fields: Any) -> Fault:
    """`ok: false` on HTTP 200, the way Slack says almost everything."""
    return Fault(status=200, body={"ok": False, "error": error, **fields})


def missing_scope(needed: str, provided: str = "chat:write") -> Fault:
    return refused("missing_scope", needed=needed, provided=provided)


def http_error(status: int = 500, body: str = LOGIN_PAGE) -> Fault:
    return Fault(status=status, body=body, headers={"Content-Type": "text/html; charset=utf-8"})


def delayed(seconds: float) -> Fault:
    return Fault(delay_seconds=seconds)


def drop_before() -> Fault:
    return Fault(lost="drop")


def drop_after() -> Fault:
    return Fault(lost="drop", processed=True)


def hang(processed: bool = False) -> Fault:
    return Fault(lost="hang", processed=processed)


@dataclass
class _Plan:
    fault: Fault
    times: int | None
    when: Callable[[Mapping[str, Any]], bool]


class Faults:
    def __init__(self) -> None:
        self._plans: dict[str, list[_Plan]] = {}

    def put(
        self,
        name: str,
        fault: Fault,
        times: int | None = 1,
        when: Callable[[Mapping[str, Any]], bool] = lambda _: True,
    ) -> None:
        """Applies to the next `times` requests (None: to all) that `when` accepts."""
        self._plans.setdefault(name, []).append(_Plan(fault, times, when))

    def clear(self, name: str | None = None) -> None:
        if name is None:
            self._plans.clear()
        else:
            self._plans.pop(name, None)

    def take(self, name: str, args: Mapping[str, Any]) -> Fault:
        """The fault of this request. The first one planned comes first; none is a plain one."""
        for plan in [*self._plans.get(name, []), *self._plans.get("*", [])]:
            if plan.times == 0 or not plan.when(args):
                continue
            if plan.times is not None:
                plan.times -= 1
            return plan.fault
        return Fault()
