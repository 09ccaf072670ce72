"""What can go wrong between a channel and the gateway.

ChannelError
└── Refused   the sender must be told: `code` is one of the contract's error codes
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
