"""What can go wrong with a session, one class per reaction the caller can take.

SessionError
├── InvalidKey            the text is no session key: refuse the request
├── SessionNotFound       no such session or conversation: answer "not found"
├── MessageConflict       the id is taken by another text: tell the sender
├── ConversationEnded     `key#n` is read-only: write to the chat itself
├── SessionUnreadable     the file is there and cannot be read: an operator must look
└── StoreError
    ├── StoreUnavailable  nothing was acknowledged: try again later
    │   └── StoreReadOnly stays so until the process is restarted
    ├── StoreLocked       another process owns the directory: exit 75
    └── StoreRefused      the directory cannot keep the promise: a configuration error
"""

from __future__ import annotations

from pathlib import Path


class SessionError(Exception):
    """Base of everything this package raises on purpose."""


class InvalidKey(SessionError, ValueError):
    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text, reason)
        self.text, self.reason = text, reason

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= 80 else self.text[:79] + "…"
        return f"{shown!r} is not a session key: {self.reason}"


class SessionNotFound(SessionError):
    def __init__(self, key: object) -> None:
        super().__init__(key)
        self.key = str(key)

    def __str__(self) -> str:
        return f"there is no session {self.key}"


class MessageConflict(SessionError):
    def __init__(self, key: object, message_id: str, seq: int) -> None:
        super().__init__(key, message_id, seq)
        self.key, self.message_id, self.seq = str(key), message_id, seq

    def __str__(self) -> str:
        return f"message id {self.message_id!r} of {self.key} already stands for another text"


class ConversationEnded(SessionError):
    def __init__(self, key: object) -> None:
        super().__init__(key)
        self.key = str(key)

    def __str__(self) -> str:
        return f"{self.key} has ended and is read-only"


class SessionUnreadable(SessionError):
    """The file stays exactly as it is: it is neither treated as empty nor overwritten."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path} cannot be read: {self.reason}; see docs/storage.md"


class StoreError(SessionError):
    """Base of the errors that concern the whole store."""


class StoreUnavailable(StoreError):
    def __init__(self, reason: str, retry_after_seconds: float = 1.0) -> None:
        super().__init__(reason, retry_after_seconds)
        self.reason, self.retry_after_seconds = reason, retry_after_seconds

    def __str__(self) -> str:
        return f"the session store does not accept writes: {self.reason}"


class StoreReadOnly(StoreUnavailable):
    def __init__(self, reason: str) -> None:
        super().__init__(reason, retry_after_seconds=60.0)

    def __str__(self) -> str:
        return f"the session store is read-only until a restart: {self.reason}"


class StoreLocked(StoreError):
    def __init__(self, path: Path, pid: int | None) -> None:
        super().__init__(path, pid)
        self.path, self.pid = path, pid

    def __str__(self) -> str:
        owner = f"process {self.pid}" if self.pid else "another process"
        return f"{self.path} is in use by {owner}"


class StoreRefused(StoreError):
    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path} cannot hold sessions: {self.reason}"
