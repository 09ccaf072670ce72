"""What can go wrong between a channel and the gateway.

ChannelError
├── Refused         the sender must be told: `code` is one of the contract's error codes
├── Later           it could not be done now; it is tried again
├── Undeliverable   a delivery can never be made: its place is gone, or closed to us
└── Unavailable     a file somebody sent cannot be had: `reason` is for people to read
"""

from __future__ import annotations


class ChannelError(Exception):
    """Base of everything this package raises on purpose."""


class Refused(ChannelError):
    def __init__(self, code: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(code, message)
        self.code, self.message, self.retry_after = code, message, retry_after

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class Later(ChannelError):
    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.retry_after = reason, retry_after


class Undeliverable(ChannelError):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Unavailable(ChannelError):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
