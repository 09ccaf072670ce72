"""The frames of a chat as text: streamed for a person at a terminal, answers only for a pipe.

A terminal cannot take back what it has shown. A turn that begins again after a crash goes on
behind the text on the screen if it says the same, and on a new line if it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from gateway.chat_client import Conversation, Frame
from gateway.cli.screen import clean, one_line

HISTORY_ROWS = 20
_TOLD = {
    "stopped": "stopped",
    "interrupted": "interrupted",
    "failed": "failed",
}


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    dim: bool = False
    """Not part of the answer."""


class View(Protocol):
    def take(self, frame: Frame, conversation: Conversation, *, ours: bool) -> list[Piece]:
        """What to write for a frame the conversation has taken; `ours`: it settles our message."""

    def notice(self, text: str) -> list[Piece]:
        """A line about the connection."""


class PipeView:
    """The whole answer to each of our messages, once it is in the log, and nothing else."""

    def __init__(self) -> None:
        self._rows: dict[str, list[str]] = {}

    def take(self, frame: Frame, conversation: Conversation, *, ours: bool) -> list[Piece]:
        if frame["type"] == "error":
            waits = "id" in frame and frame["id"] in conversation.unsettled
            return [] if waits else self.notice(frame["message"])
        if frame["type"] != "message" or frame["role"] != "assistant":
            return []
        rows = self._rows.setdefault(frame.get("turn", ""), [])
        if frame["content"]:
            rows.append(frame["content"])
        if "settles" not in frame:
            return []
        self._rows.pop(frame.get("turn", ""), None)
        if not ours:
            return []
        pieces = [Piece(f"{clean(row)}\n") for row in rows]
        return pieces + [Piece(f"{line}\n", dim=True) for line in outcome(frame)]

    def notice(self, text: str) -> list[Piece]:
        return [Piece(f"parley: {one_line(text)}\n", dim=True)]


class TerminalView:
    def __init__(self) -> None:
        self._turn: str | None = None
        self._shown = ""
        """The text of this turn on the screen since its last row."""
        self._said = ""
        """The same as the gateway tells it; shorter while a turn that began again catches up."""
        self._in_line = False
        """Something was written on this line that an answer continues or an aside breaks."""
        self._aside = False
        """That something is reasoning."""

    def take(self, frame: Frame, conversation: Conversation, *, ours: bool) -> list[Piece]:
        match frame["type"]:
            case "message":
                return self._row(frame, conversation)
            case "turn_start":
                return self._start(frame)
            case "delta":
                return self._catch_up(self._said + frame["text"])
            case "reasoning":
                return self._reasoning(frame["text"])
            case "tool":
                return self._line(tool(frame), dim=True)
            case "error":
                return self._line(frame["message"], dim=True)
            case "attached" if frame["gap"] and conversation.cursor:
                return self._line("there is more before this; parley sessions show has all of it")
        return []

    def notice(self, text: str) -> list[Piece]:
        return self._line(text, dim=True)

    # -- live frames --------------------------------------------------------------------------

    def _start(self, frame: Frame) -> list[Piece]:
        pieces = []
        if frame["turn"] != self._turn:
            self._turn, self._shown = frame["turn"], ""
            pieces = self._fresh()
        return pieces + self._catch_up(frame["text"])

    def _catch_up(self, said: str) -> list[Piece]:
        self._said = said
        if self._shown.startswith(said):
            return []
        return self._complete(said) if said.startswith(self._shown) else self._again(said)

    def _complete(self, text: str) -> list[Piece]:
        """What is missing on the screen of a text that begins with what is shown."""
        rest = text[len(self._shown) :]
        self._shown = text
        if not rest:
            return []
        pieces = self._fresh() if self._aside else []
        self._in_line, self._aside = not rest.endswith("\n"), False
        return [*pieces, Piece(clean(rest))]

    def _again(self, text: str) -> list[Piece]:
        pieces = [*self._fresh(), *self._line("the answer begins again", dim=True)]
        self._shown = ""
        return pieces + self._complete(text)

    def _reasoning(self, text: str) -> list[Piece]:
        pieces = [] if self._aside else self._fresh()
        self._in_line = self._aside = True
        return [*pieces, Piece(clean(text.replace("\n", " ")), dim=True)]

    # -- rows ---------------------------------------------------------------------------------

    def _row(self, row: Frame, conversation: Conversation) -> list[Piece]:
        if row["seq"] <= conversation.history_until - HISTORY_ROWS or row["role"] == "tool":
            return []
        if row["role"] != "assistant":
            mine = row.get("id") in conversation.own
            return [] if mine else self._line(f"> {row['content']}", dim=True, fold=False)
        if row.get("turn") is None or row.get("turn") != self._turn:
            pieces = self._line(row["content"], fold=False) if row["content"] else []
        elif row["content"].startswith(self._shown):
            pieces = [*self._complete(row["content"]), *self._fresh()]
        else:
            pieces = [*self._again(row["content"]), *self._fresh()]
        if row.get("turn") == self._turn:
            self._shown = self._said = ""
        return pieces + [piece for line in outcome(row) for piece in self._line(line, dim=True)]

    # -- lines --------------------------------------------------------------------------------

    def _fresh(self) -> list[Piece]:
        """Ends the line if something is on it."""
        ended = [Piece("\n")] if self._in_line else []
        self._in_line = self._aside = False
        return ended

    def _line(self, text: str, *, dim: bool = False, fold: bool = True) -> list[Piece]:
        shown = one_line(text) if fold else clean(text)
        return [*self._fresh(), Piece(shown, dim), Piece("\n")]

    @property
    def in_line(self) -> bool:
        return self._in_line


def outcome(row: Frame) -> list[str]:
    """Lines under an answer: its files, and how it ended if that was not well."""
    lines = [
        f"file: {file['name']} {file.get('url', '')}".rstrip() for file in row.get("media", ())
    ]
    told = _TOLD.get(row.get("outcome", ""))
    if row.get("error"):
        return [*lines, one_line(f"({told or 'failed'}: {row['error']})")]
    return [*lines, f"({told})"] if told else lines


def tool(frame: dict[str, Any]) -> str:
    mark = {"start": "…", "end": "✓", "ask": "?"}.get(frame["phase"], "·")
    return f"{mark} {frame['name']} {frame.get('summary') or ''}".rstrip()
