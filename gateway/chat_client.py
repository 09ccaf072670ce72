"""What a client of the WebSocket has to remember about one chat, without a socket.

The cursor is the highest number seen, and a row at or below it is never shown again. A message is
unsettled until a row of the log settles it, however often the connection ends in between; until
the gateway has acknowledged it, it is sent again with the same id on every new connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Frame = dict[str, Any]

NOT_TAKEN_YET = frozenset({"shutting_down", "rate_limited"})
"""Refusals after which the same message is to be sent again, later."""


@dataclass(slots=True)
class Said:
    """An own message the log has not settled yet."""

    id: str
    text: str
    seq: int | None = None
    """Its number; None until the gateway has acknowledged it."""


class Conversation:
    def __init__(self, chat_id: str) -> None:
        self.chat_id = chat_id
        self.log: str | None = None
        self.cursor: int | None = None
        self.history_until = 0
        """Rows up to this number were there before this client first attached."""
        self.running: str | None = None
        """The turn that is being answered."""
        self.closing: str | None = None
        """The turn whose closing row has come and whose end has not."""
        self.own: set[str] = set()
        self.unsettled: dict[str, Said] = {}
        self.failed = False
        """A message of ours was refused, or its turn failed."""

    # -- frames to send -----------------------------------------------------------------------

    def attach(self) -> Frame:
        known = {"since": self.cursor, "log": self.log}
        chosen = {name: value for name, value in known.items() if value is not None}
        return {"type": "attach", "chat_id": self.chat_id, **chosen}

    def say(self, id: str, text: str) -> None:
        self.own.add(id)
        self.unsettled[id] = Said(id, text)

    def send(self, id: str) -> Frame:
        text = self.unsettled[id].text
        return {"type": "send", "chat_id": self.chat_id, "id": id, "text": text}

    def unacknowledged(self) -> list[Frame]:
        return [self.send(said.id) for said in self.unsettled.values() if said.seq is None]

    def stop(self) -> Frame:
        return {"type": "stop", "chat_id": self.chat_id}

    # -- frames received ----------------------------------------------------------------------

    def take(self, frame: Frame) -> bool:
        """Remembers what the frame says. False: it has been seen, or is not about this chat."""
        if frame.get("chat_id", self.chat_id) != self.chat_id:
            return False
        match frame["type"]:
            case "attached":
                self._attached(frame)
            case "ack":
                self._acknowledged(frame["id"], frame["seq"])
            case "message":
                return self._row(frame)
            case "turn_start":
                self.running = frame["turn"]
            case "turn_end":
                self._ended(frame["turn"])
            case "error":
                self._refused(frame)
        return True

    def missing(self) -> None:
        """The gateway knows no such chat: what we say next begins it."""
        self.log = self.cursor = self.running = self.closing = None
        for said in self.unsettled.values():
            said.seq = None

    def _attached(self, frame: Frame) -> None:
        self.running = self.closing = None
        if frame["reset"]:
            self.missing()
        if self.log is None:
            self.history_until = frame["last_seq"]
        self.log = frame["log"]
        if self.cursor is None:
            self.cursor = 0
        elif frame["gap"]:
            self._skip(frame["first_seq"])

    def _skip(self, first: int) -> None:
        """Too much was missed to be sent. What it settled is in the log, out of our sight."""
        for said in list(self.unsettled.values()):
            if said.seq is not None and said.seq < first:
                del self.unsettled[said.id]

    def _acknowledged(self, id: str, seq: int) -> None:
        if (said := self.unsettled.get(id)) is not None:
            said.seq = seq

    def _row(self, row: Frame) -> bool:
        if self.cursor is not None and row["seq"] <= self.cursor:
            return False
        self.cursor = row["seq"]
        if row["role"] == "user" and "id" in row:
            self._acknowledged(row["id"], row["seq"])
        if "settles" in row:
            self._settle({int(seq) for seq in row["settles"]}, row)
        return True

    def settled_by(self, row: Frame) -> bool:
        """Whether the row settles a message of ours. Ask before `take`."""
        numbers = {int(seq) for seq in row.get("settles") or ()}
        return any(said.seq in numbers for said in self.unsettled.values())

    def _settle(self, numbers: set[int], row: Frame) -> None:
        for said in list(self.unsettled.values()):
            if said.seq in numbers:
                del self.unsettled[said.id]
                self.failed |= row.get("outcome") == "failed"
        if row.get("turn") == self.running:
            self.closing = self.running

    def _ended(self, turn: str) -> None:
        if turn == self.running:
            self.running = self.closing = None

    def _refused(self, frame: Frame) -> None:
        if frame["code"] in NOT_TAKEN_YET:
            return
        if self.unsettled.pop(frame.get("id", ""), None) is not None:
            self.failed = True
