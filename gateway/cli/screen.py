"""What people read: tables that fit the terminal, relative times, a bar while work is long.

Nothing a session holds reaches the terminal as a control sequence. Without a terminal there is no
colour, no bar and no folding, so that the lines can be searched and cut by other programs.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.table import Table
    from rich.text import Text

BAR_SECONDS = 0.5
GAP = 2
UNBOUNDED = 1 << 16

# Escape sequences, marks that turn the direction of text, and halves of characters.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def clean(text: str) -> str:
    return _CONTROLS.sub("\ufffd", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    return clean(" ".join(text.split()))


def console(*, stderr: bool = False) -> Console:
    file = sys.stderr if stderr else sys.stdout
    bounded = file.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return _console(file, None if bounded else UNBOUNDED)


@lru_cache(maxsize=2)
def _console(file: IO[str], width: int | None) -> Console:
    from rich.console import Console

    reconfigure = getattr(file, "reconfigure", None)
    if reconfigure is not None:
        # A terminal that cannot show a character must not end the command.
        reconfigure(errors="backslashreplace")
    return Console(file=file, width=width, highlight=False, emoji=False, markup=False)


def echo(text: str | Text = "", style: str | None = None, *, stderr: bool = False) -> None:
    """One paragraph, folded at words on a terminal."""
    screen = console(stderr=stderr)
    if screen.is_terminal:
        screen.print(text, style=style)
    else:
        screen.file.write(f"{text}\n")


# -- tables -----------------------------------------------------------------------------------


class Column(NamedTuple):
    """From left to right by importance: the rightmost column is the first one left out."""

    title: str
    least: int = 0
    """The width it can be cut to; 0: as wide as its widest cell."""
    share: float = 1.0
    """How much of the screen it takes at most before it is folded."""
    fold: bool = False
    """Continues on the next line instead of ending in an ellipsis."""
    right: bool = False
    style: str = ""


def table(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]]) -> None:
    screen = console()
    cells = [[_cell(value) for value in row] for row in rows]
    widths = _fit(columns, cells, screen.width)
    if screen.is_terminal:
        screen.print(_table(columns, cells, widths))
    elif screen.width < UNBOUNDED:
        with screen.capture() as captured:
            screen.print(_table(columns, cells, widths))
        print_lines(line.rstrip() for line in captured.get().splitlines())
    else:
        titles = [[_cell(column.title) for column in columns]] if _titled(columns) else []
        print_lines(_plain(columns, row, widths) for row in [*titles, *cells])


def _table(columns: Sequence[Column], cells: list[list[Text]], widths: list[int]) -> Table:
    from rich.table import Table

    shown = Table(
        box=None,
        show_header=_titled(columns),
        show_edge=False,
        pad_edge=False,
        padding=(0, GAP, 0, 0),
    )
    for column, width in zip(columns, widths, strict=False):
        shown.add_column(
            column.title,
            header_style="bold",
            justify="right" if column.right else "left",
            style=column.style,
            width=width,
            no_wrap=not column.fold,
            overflow="fold" if column.fold else "ellipsis",
        )
    for row in cells:
        shown.add_row(*row[: len(widths)])
    return shown


def _plain(columns: Sequence[Column], row: Sequence[Text], widths: Sequence[int]) -> str:
    """A line for other programs: whole cells, columns under each other."""
    parts = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        space = " " * (width - cell.cell_len)
        parts.append(space + cell.plain if column.right else cell.plain + space)
    return (" " * GAP).join(parts).rstrip()


def _titled(columns: Sequence[Column]) -> bool:
    return any(column.title for column in columns)


def print_lines(lines: Iterable[str]) -> None:
    """Exactly these lines: not folded, not styled."""
    console().file.writelines(f"{line}\n" for line in lines)


def _cell(value: str | Text) -> Text:
    from rich.text import Text

    return value if isinstance(value, Text) else Text(one_line(value))


def _fit(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int) -> list[int]:
    """The widths of the columns that find room, from the left."""
    most = [
        _widest(column, [row[place].cell_len for row in rows], width)
        for place, column in enumerate(columns)
    ]
    least = [
        min(wide, column.least) if column.least else wide
        for column, wide in zip(columns, most, strict=True)
    ]
    widths: list[int] = []
    room = width
    for wanted in least:
        if widths and wanted > room:
            break
        widths.append(wanted)
        room -= wanted + GAP
    room += GAP
    for place, wanted in enumerate(widths):
        more = max(0, min(room, most[place] - wanted))
        widths[place] += more
        room -= more
    return widths


def _widest(column: Column, cells: Sequence[int], width: int) -> int:
    """A few cells that must be folded anyway do not make the column wide for all others."""
    limit = max(8, int(width * column.share))
    if not column.fold or width >= UNBOUNDED:
        return max([len(column.title), *(min(cell, limit) for cell in cells)])
    return max([len(column.title), *(cell for cell in cells if cell <= limit)], default=limit)


# -- times ------------------------------------------------------------------------------------


def moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def ago(text: str, now: float | None = None) -> str:
    """How long ago, in one short piece; the date if that says more."""
    found = moment(text)
    if found is None:
        return "–"
    seconds = (time.time() if now is None else now) - found.timestamp()
    if seconds < 0:
        return "just now" if seconds > -60 else found.astimezone().strftime("%Y-%m-%d")
    for limit, unit, name in _UNITS:
        if seconds < limit:
            return f"{int(seconds // unit)} {name} ago" if unit else name
    return found.astimezone().strftime("%Y-%m-%d")


_UNITS = (
    (60, 0, "just now"),
    (3_600, 60, "min"),
    (86_400, 3_600, "h"),
    (2 * 86_400, 0, "yesterday"),
    (30 * 86_400, 86_400, "days"),
)


def utc(text: str) -> str:
    found = moment(text)
    return found.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if found else "–"


def count(number: int, noun: str, plural: str = "") -> str:
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def size(number: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} GiB"


# -- progress ---------------------------------------------------------------------------------


class Bar:
    """Appears on stderr once the work has taken a moment; never without a terminal."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._started = time.monotonic()
        self._shown: Progress | None = None
        self._task: TaskID | None = None
        self._terminal = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        if not self._terminal or time.monotonic() - self._started < BAR_SECONDS:
            return
        if self._shown is None or self._task is None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._shown = Progress(*columns, console=console(stderr=True), transient=True)
            self._task = self._shown.add_task(self._label, total=total)
            self._shown.start()
        self._shown.update(self._task, completed=done, total=total)

    def stop(self) -> None:
        if self._shown is not None:
            self._shown.stop()


@contextmanager
def bar(label: str) -> Iterator[Bar]:
    shown = Bar(label)
    try:
        yield shown
    finally:
        shown.stop()


# -- programs ---------------------------------------------------------------------------------


def print_json(value: dict[str, Any]) -> None:
    import click

    from sessions.lines import encode_object

    click.echo(encode_object(value), nl=False)
