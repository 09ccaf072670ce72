"""A long answer as several messages, each of which is whole Markdown.

The parts' bodies together are exactly the text. A part that begins inside a fence opens it again
with the same info string, a part that begins inside a table repeats its header, and a fence that
is open at the end of a part is closed there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

PART_CHARACTERS = 11_000
MOST_PARTS = 8
"""A longer answer goes up as a file, with `summary` as the message."""
SUMMARY_CHARACTERS = 1_500

_FENCE = re.compile(
    r"(?P<lead>[ \t]*(?:(?:>|[-*+]|[0-9]{1,9}[.)])[ \t]+)*)"
    r"(?P<mark>`{3,32}(?=[^`]*$)|~{3,32}(?!~))(?P<info>.{0,200})$"
)
_DASHES = re.compile(r":?-+:?")
_SENTENCE = re.compile(r"[.!?…。！？][\"')\]]*\s+(?=[^\s`~])")
_SPACE = re.compile(r"\s(?=[^\s`~])")
_LINE = re.compile(r".*\n|.+")
_RUN = re.compile(r"(?<!\\)`+")


class Fence(msgspec.Struct, frozen=True):
    lead: str
    mark: str
    info: str
    indent: int
    """Columns its lines stand in because of a list; a part of its own has no list."""

    @property
    def opening(self) -> str:
        return f"{self.lead}{self.mark}{self.info}\n"

    @property
    def closing(self) -> str:
        return f"{self.lead}{self.mark}"

    def closed_by(self, line: str) -> bool:
        inside = line.strip(" \t>\r\n" if self.lead else " \t\r\n")
        indent = len(line) - len(line.lstrip(" \t"))
        near = bool(self.lead) or indent <= self.indent + 3
        return near and len(inside) >= len(self.mark) and not inside.strip(self.mark[0])


class Line(msgspec.Struct, frozen=True):
    """A place where a part could begin."""

    start: int
    rank: int
    fence: Fence | None = None
    """The fence a part is in that begins here."""
    header: str = ""
    """The table header a part repeats that begins here."""


class Part(msgspec.Struct, frozen=True):
    body: str
    prefix: str = ""
    suffix: str = ""
    indent: int = 0
    """Columns taken off every line of a fence that was opened again."""

    @property
    def text(self) -> str:
        return f"{self.prefix}{self._shifted()}{self.suffix}"

    def _shifted(self) -> str:
        if not self.indent:
            return self.body
        taken = re.compile(rf"[ \t]{{1,{self.indent}}}")
        lines = _LINE.findall(self.body)
        inside = _fenced_lines(lines, self.prefix)
        return "".join(
            taken.sub("", line, count=1) if number <= inside and taken.match(line) else line
            for number, line in enumerate(lines)
        )


PARAGRAPH, LINE, INSIDE, NEVER = range(4)


def split(text: str, limit: int = PART_CHARACTERS) -> list[str]:
    """Parts of at most `limit` characters, in order, none of them empty."""
    return [part.text for part in parts(text, limit) if part.body.strip()]


def parts(text: str, limit: int = PART_CHARACTERS) -> list[Part]:
    """Raises ValueError for a limit that leaves no room for a fence and a table header."""
    if limit < 400:
        raise ValueError("a part has at least 400 characters")
    lines = _lines(text, most_header=limit // 4)
    found: list[Part] = []
    here = Line(0, PARAGRAPH)
    while here.start < len(text):
        prefix = here.fence.opening if here.fence else here.header
        there = _next(text, lines, here, limit - len(prefix))
        body = text[here.start : there.start]
        found.append(
            Part(
                body,
                prefix,
                _suffix(body, there.fence),
                here.fence.indent if here.fence else 0,
            )
        )
        here = there
    return found


def summary(text: str, characters: int = SUMMARY_CHARACTERS) -> str:
    """The beginning of an answer that is too long for messages, and where the rest is."""
    head = split(text, max(400, characters))[0].rstrip() if text.strip() else ""
    note = f"_The whole answer ({len(text):,} characters) is in the attached file._"
    return f"{head}\n\n{note}" if head else note


def close_open(text: str) -> str:
    """A text that still grows, with its open fence or code span closed.

    Half-written marks at the end are left out: they would show as an empty block for a moment.
    """
    head, last = text[: text.rfind("\n") + 1], text[text.rfind("\n") + 1 :]
    fence = _lines(text)[-1].fence
    if fence is None:
        return _close_span(text)
    if _lines(head)[-1].fence is None:
        # Nothing is inside yet.
        return head.rstrip() or f"{text}\n{fence.closing}"
    if last.strip() and not last.strip(" \t>" + fence.mark[0]):
        text = head
    return text + _suffix(text, fence)


def _close_span(text: str) -> str:
    lines = _lines(text)
    # The line after the last one that a fence holds; the last of all is the end of the text.
    after = max((number for number, line in enumerate(lines) if line.fence), default=-1) + 1
    start = max(lines[after].start, text.rfind("\n\n") + 1)
    runs = list(_RUN.finditer(text, start))
    while runs:
        opening = runs.pop(0)
        closing = next((n for n, run in enumerate(runs) if run[0] == opening[0]), None)
        if closing is not None:
            runs = runs[closing + 1 :]
        elif opening.end() == len(text):
            kept = text[: opening.start()].rstrip()
            return kept or text
        else:
            return text + opening[0]
    return text


def _suffix(body: str, fence: Fence | None) -> str:
    if fence is None:
        return ""
    return fence.closing if body.endswith("\n") else f"\n{fence.closing}"


def _next(text: str, lines: list[Line], here: Line, room: int) -> Line:
    """Where the next part begins: as late as possible, at the best kind of place."""
    end = lines[-1]
    reserve = 1 + max((len(line.fence.closing) for line in lines if line.fence), default=0)
    if len(text) - here.start + (reserve if end.fence else 0) <= room:
        return end
    latest = here.start + room - reserve
    half = here.start + room // 2
    places = [line for line in lines if here.start < line.start <= latest]
    for rank in (PARAGRAPH, LINE, INSIDE):
        late = [line for line in places if line.rank == rank and line.start >= half]
        if late:
            return late[-1]
    for pattern in (_SENTENCE, _SPACE):
        ends = [match.end() for match in pattern.finditer(text, half, latest)]
        if ends:
            return _inside(lines, ends[-1])
    early = [line for line in places if line.rank != NEVER]
    return early[-1] if early else _inside(lines, latest)


def _inside(lines: list[Line], position: int) -> Line:
    """A place in the middle of a line, in whatever fence that line is."""
    line = [line for line in lines if line.start <= position][-1]
    return line if line.start == position else Line(position, NEVER, line.fence)


def _lines(text: str, most_header: int = 0) -> list[Line]:
    """Every line of the text, and its end as a last one."""
    return list(_walk(text, most_header))


def _walk(text: str, most_header: int) -> Iterator[Line]:
    fence: Fence | None = None
    opened = False
    header, rows = "", 0
    before = ""
    start = 0
    for line in _LINE.findall(text):
        bare = line.rstrip("\r\n")
        if fence:
            closes = fence.closed_by(bare)
            yield Line(start, NEVER if opened or closes else INSIDE, fence)
            fence, opened = (None if closes else fence), False
        elif match := _FENCE.match(bare):
            yield Line(start, LINE if before.strip() else PARAGRAPH)
            fence, opened, header = _fence(match), True, ""
        elif header and "|" in bare:
            rows += 1
            yield Line(start, INSIDE if rows > 1 else NEVER, None, header if rows > 1 else "")
        elif "|" in before and "|" in bare and _is_delimiter(bare):
            header, rows = before + line, 0
            if len(header) > most_header:
                header = ""
            yield Line(start, NEVER)
        else:
            header = ""
            yield Line(start, LINE if before.strip() else PARAGRAPH)
        before = line
        start += len(line)
    yield Line(start, NEVER, fence)


def _is_delimiter(line: str) -> bool:
    """Whether this is the row of dashes under a table's header."""
    return all(_DASHES.fullmatch(cell.strip()) for cell in line.strip(" \t>|").split("|"))


def _fence(match: re.Match[str]) -> Fence:
    lead, info = match["lead"], match["info"].strip()
    # In a quotation every line carries its mark; in a list only the columns remain.
    quote = lead if lead.strip(" \t") and not lead.strip(" \t>") and len(lead) <= 16 else ""
    return Fence(
        lead=quote,
        mark=match["mark"],
        info=info if len(info) <= 64 else "",
        indent=0 if quote else len(lead),
    )


def _fenced_lines(lines: list[str], opening: str) -> int:
    """The number of the line that closes the fence a part begins in."""
    match = _FENCE.match(opening.rstrip("\n"))
    fence = _fence(match) if match else None
    return next((n for n, line in enumerate(lines) if fence and fence.closed_by(line)), len(lines))
