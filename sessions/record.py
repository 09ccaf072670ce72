"""One row of a session: a message, or a note about one.

A record is numbered once and never renumbered. Before the store numbers it, `seq` is 0 and the
record is called a draft. Records never change; a fact learned later is another record.

- A *closing record* ends a turn, a command or a cancellation. It is an assistant row (its content
  may be empty) whose `settles` names every user record it disposes of, with the outcome.
- A *note* is a fact that is no message: a delivery, an attempt, an edit, a stream handle. It is
  written as an empty `_command` row of the system, which older readers keep and never show.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

MAX_SEQ = 2**53
"""Numbers from here on are not believed: readers in other languages cannot tell them apart."""


class Outcome(StrEnum):
    """How a user record ended. Exactly one of these for every message ever acknowledged."""

    ANSWERED = "answered"
    COMMAND = "command"
    MERGED = "merged"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"
    REJECTED = "rejected"


class NoteKind(StrEnum):
    DELIVERED = "delivered"
    """`seq`: the reply that reached its push channel, or was given up with `undeliverable`."""
    ATTEMPT = "attempt"
    """`turn`, `n`: attempt n of a turn is about to run. `answers`: the messages it is for, if they
    are not the first that wait."""
    STREAM = "stream"
    """`turn` and the channel's handle of a message opened before its answer is complete."""
    EDITED = "edited"
    """`seq`, `content`: the sender changed that message."""
    DELETED = "deleted"
    """`seq`: the sender took that message back."""
    CONTEXT = "context"
    """`seq`: what belongs to that message beside its words. The model reads `before` in front of it
    and `after` behind it; `media` are its files, fetched from where it was sent."""
    FEEDBACK = "feedback"
    """`delivery`, `user`, `good`: what somebody thinks of an answer."""
    ERROR = "error"
    """On a closing row: `message`, why the turn failed, as its user is told."""
    CONVERSATION = "conversation"
    """On a closing row: `ended`, `first`, `title`, … of the conversation that ends with it."""
    DAMAGED = "damaged"
    """On a row that stands where a damaged closing record was: what it settled is still known."""


if TYPE_CHECKING:
    Word = str
else:

    class Word(StrEnum):
        """A text that is mostly one of a few. Rows that are read share these instead of having
        a copy each, which is a tenth of what they take up. Any other text is as good."""

        USER, ASSISTANT, TOOL, SYSTEM = "user", "assistant", "tool", "system"
        ANSWERED, COMMAND, MERGED, STOPPED = "answered", "command", "merged", "stopped"
        INTERRUPTED, FAILED, WITHDRAWN = "interrupted", "failed", "withdrawn"

        @classmethod
        def _missing_(cls, value):
            word = str.__new__(cls, value)
            word._name_ = word._value_ = str(value)
            return word


class Record(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, forbid_unknown_fields=True):
    # The order of the fields is the order on disk.
    # Content has no default because older readers expect it on every line, empty or not.
    role: Word
    content: str | list[Any] | None
    timestamp: str = ""
    seq: int = 0

    id: str | None = None
    sender: str | dict[str, Any] | None = None
    media: list[Any] | None = None
    replaces: int | None = None

    turn: str | None = None
    outcome: Word | None = None
    settles: dict[int, str] | None = None
    usage: dict[str, Any] | None = None
    latency_ms: int | None = None
    conversation: int | None = None

    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    thinking_blocks: list[Any] | None = None

    command: bool = msgspec.field(default=False, name="_command")
    channel_delivery: bool = msgspec.field(default=False, name="_channel_delivery")
    note: dict[str, Any] | None = None

    # What a foreign writer put on the line and we have no field for; written back as it was.
    extra: dict[str, Any] | None = msgspec.field(default=None, name="_extra")

    @property
    def is_note(self) -> bool:
        """True for rows that are no message; a closing row may carry a note and stays one."""
        return self.note is not None and self.role == "system"

    @property
    def is_reply(self) -> bool:
        """True if a push channel must carry this row to its reader."""
        if self.role != "assistant" or not (self.outcome is not None or self.channel_delivery):
            return False
        if self.content or self.media or self.error:
            return True
        # An answer without words is told to the reader too; a message taken back is not.
        return bool(self.settles) and self.outcome != "withdrawn"

    @property
    def error(self) -> str | None:
        """Why the turn that this row closes has failed."""
        if self.note is None or self.note.get("kind") != NoteKind.ERROR:
            return None
        return str(self.note.get("message", ""))

    @property
    def text(self) -> str:
        """The words of the content, whatever its form."""
        if isinstance(self.content, str):
            return self.content
        blocks = self.content or ()
        texts = (block.get("text") for block in blocks if isinstance(block, dict))
        return "\n".join(text for text in texts if isinstance(text, str))


def user(text: str, *, id: str | None = None, **fields: Any) -> Record:
    return Record("user", text, id=id, **fields)


def closing(
    text: str, settles: dict[int, str], *, outcome: str = Outcome.ANSWERED, **fields: Any
) -> Record:
    return Record("assistant", text, settles=settles, outcome=outcome, **fields)


def note(kind: NoteKind, **facts: Any) -> Record:
    return Record("system", "", command=True, note={"kind": kind.value, **facts})


KNOWN_FIELDS = frozenset(Record.__struct_encode_fields__) - {"_extra"}
