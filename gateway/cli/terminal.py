"""The two ends of `parley chat`: lines of a person or a pipe in, pieces of text out.

Lines are read in a thread of their own, because reading blocks and answers go on meanwhile. The
thread waits until a line is taken before it reads the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

from gateway.chat_view import Piece

PROMPT = "> "
_ERASE_LINE = "\r\x1b[K"


class Pipe:
    """Answers on standard output, everything else on standard error."""

    def lines(self) -> Iterator[str]:
        with open(0, encoding="utf-8", errors="replace", closefd=False) as file:
            yield from file

    def write(self, pieces: Sequence[Piece], *, idle: bool) -> None:
        for piece in pieces:
            stream = sys.stderr if piece.dim else sys.stdout
            stream.write(piece.text)
            stream.flush()

    def close(self) -> None:
        """Nothing to restore."""


class Terminal:
    """A prompt that makes way for what is written and comes back below it."""

    def __init__(self) -> None:
        import termios

        self._readline = _readline()
        self._modes = termios.tcgetattr(0)
        self._prompt_shown = False
        self._coloured = "NO_COLOR" not in os.environ

    def lines(self) -> Iterator[str]:
        while True:
            self._prompt_shown = True
            try:
                yield input(PROMPT)
            except EOFError:
                return

    def write(self, pieces: Sequence[Piece], *, idle: bool) -> None:
        """`idle`: nothing more is about to follow on this line, so the prompt comes back."""
        text = "".join(self._styled(piece) for piece in pieces)
        if self._prompt_shown and text:
            text = _ERASE_LINE + text
            self._prompt_shown = False
        if idle and not self._prompt_shown:
            text += PROMPT + (self._readline.get_line_buffer() if self._readline else "")
            self._prompt_shown = True
        sys.stdout.write(text)
        sys.stdout.flush()

    def close(self) -> None:
        """The line editor of the other thread may still hold the terminal in its own mode."""
        import termios

        termios.tcsetattr(0, termios.TCSADRAIN, self._modes)
        sys.stdout.write("\n")

    def _styled(self, piece: Piece) -> str:
        return f"\x1b[2m{piece.text}\x1b[0m" if piece.dim and self._coloured else piece.text


def open_terminal() -> Terminal | Pipe:
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            # A byte that is no text must not end the conversation.
            reconfigure(errors="replace")
    return Terminal() if sys.stdin.isatty() and sys.stdout.isatty() else Pipe()


def _readline() -> ModuleType | None:
    """Importing it gives `input` its line editing."""
    try:
        import readline
    except ImportError:
        return None
    return readline


def read_lines(lines: Callable[[], Iterator[str]], queue: asyncio.Queue[str | None]) -> None:
    """Puts every line into the queue, then None."""
    loop = asyncio.get_running_loop()

    def put(line: str | None) -> None:
        asyncio.run_coroutine_threadsafe(queue.put(line), loop).result()

    def read() -> None:
        # The loop may be gone by the time a line comes.
        with contextlib.suppress(RuntimeError, asyncio.CancelledError):
            try:
                for line in lines():
                    put(line)
            finally:
                put(None)

    threading.Thread(target=read, name="lines", daemon=True).start()
