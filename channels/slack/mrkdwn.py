"""Markdown as Slack's own notation, and text that pings nobody.

`mrkdwn` is for the places where Slack does not take Markdown: the fallback of a message and its
notifications. It walks the tokens of a real Markdown parser, so that code stays as it was written.
The notation has no escapes: a literal `*` next to a word may still be read as bold.

`defuse` leaves the text readable and puts an invisible character where a mention would begin. It
is applied to everything a model wrote, whichever way it goes out. It is idempotent.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

JOINER = "\u2060"
SPACE = "\u200b"

_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_LINKED = re.compile(r"(?:https?|mailto|tel|slack):", re.IGNORECASE)
_CODE = ("fence", "code_block")

_AT = r"@|&\#0{0,4}64;|&\#x0{0,4}40;|&commat;"
_LESS = r"<|&lt;|&\#0{0,4}60;|&\#x0{0,4}3c;"
_MENTION = re.compile(
    rf"(?:{_LESS})(?=\\?(?:!(?:channel|here|everyone|group|subteam)"
    rf"|(?:{_AT})(?P<user>[UWB][A-Z0-9]*)))"
    rf"|(?<!\w)(?:{_AT})(?=(?:channel|here|everyone)\b)",
    re.IGNORECASE,
)
# The longest opening of a mention that may still become one, entities and all.
_UNDECIDED_CHARACTERS = 40
_UNDECIDED = re.compile(r"[<&@][\w!@&#;\\]*\Z")


def defuse(text: str, allowed: frozenset[str] = frozenset()) -> str:
    """The same text with every mention broken, but those of the users in `allowed`."""
    return _MENTION.sub(
        lambda match: match[0] if match["user"] in allowed else match[0] + JOINER, text
    )


class Defuser:
    """`defuse` for a stream: a mention that comes in pieces is broken too.

    What may be the beginning of a mention is kept until the next piece or `flush`; the pieces
    given out are together exactly what `defuse` makes of the whole text.
    """

    def __init__(self, allowed: frozenset[str] = frozenset()) -> None:
        self._allowed = allowed
        self._kept = ""
        self._before = ""

    def feed(self, piece: str) -> str:
        text = self._kept + piece
        opening = _UNDECIDED.search(text, max(0, len(text) - _UNDECIDED_CHARACTERS))
        return self._release(text, opening.start() if opening else len(text))

    def flush(self) -> str:
        return self._release(self._kept, len(self._kept))

    def _release(self, text: str, cut: int) -> str:
        ready, self._kept = text[:cut], text[cut:]
        # Whether an @ begins a mention depends on the character before it.
        before = self._before
        self._before = text[cut - 1] if cut else before
        return defuse(before + ready, self._allowed)[len(before) :]


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def mrkdwn(markdown: str) -> str:
    tree = SyntaxTreeNode(_MARKDOWN.parse(markdown))
    return defuse(_blocks(tree.children))


def _blocks(nodes: Iterable[SyntaxTreeNode], between: str = "\n\n") -> str:
    return between.join(filter(None, map(_block, nodes)))


def _block(node: SyntaxTreeNode) -> str:
    match node.type:
        case "heading":
            text = _inline(node, bold=True)
            return f"*{text}*" if text else ""
        case "fence" | "code_block":
            return _code_block(node.content)
        case "blockquote":
            return "\n".join(f"> {line}" for line in _blocks(node.children).split("\n"))
        case "bullet_list" | "ordered_list":
            return _list(node)
        case "table":
            return _code_block(_table(node))
        case "hr":
            return "———"
    return _inline(node)


def _code_block(code: str) -> str:
    code = code.replace("```", f"``{JOINER}`").rstrip("\n")
    return f"```\n{escape(code)}\n```"


def _list(node: SyntaxTreeNode) -> str:
    start = int(str(node.attrs.get("start", 1)))
    ordered = node.type == "ordered_list"
    marks = (f"{start + n}." if ordered else "•" for n in range(len(node.children)))
    return "\n".join(_item(mark, item) for mark, item in zip(marks, node.children, strict=True))


def _item(mark: str, item: SyntaxTreeNode) -> str:
    """Everything after the first line stands a step further in, but code stays as it is."""
    parts = [
        _block(child) if child.type in _CODE else _block(child).replace("\n", "\n    ")
        for child in item.children
    ]
    lines = [
        part if child.type in _CODE or number == 0 else f"    {part}"
        for number, (child, part) in enumerate(zip(item.children, parts, strict=True))
    ]
    return f"{mark} " + "\n".join(lines)


def _table(node: SyntaxTreeNode) -> str:
    rows = [
        [_plain(cell) for cell in row.children] for part in node.children for row in part.children
    ]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines = [_row(row, widths) for row in rows]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])


def _row(cells: list[str], widths: list[int]) -> str:
    padded = (
        cell + " " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)
    )
    return " | ".join(padded).rstrip()


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def _plain(node: SyntaxTreeNode) -> str:
    if node.type in ("softbreak", "hardbreak"):
        return " "
    return "".join(map(_plain, node.children)) if node.children else node.content


def _inline(node: SyntaxTreeNode, *, bold: bool = False) -> str:
    text = ""
    for child in node.children:
        piece = _span(child, bold=bold)
        # Slack reads a mark only next to a space or a sign: inside a word it needs a gap.
        if text and piece and _touches(text[-1], piece[0]):
            text += SPACE
        text += piece
    return text


def _touches(left: str, right: str) -> bool:
    return (left in "*_~`" and right.isalnum()) or (left.isalnum() and right in "*_~`")


def _span(node: SyntaxTreeNode, *, bold: bool) -> str:
    match node.type:
        case "inline":
            return _inline(node, bold=bold)
        case "strong":
            text = _inline(node, bold=True)
            return text if bold or not text else f"*{text}*"
        case "em" | "s":
            mark, text = "_" if node.type == "em" else "~", _inline(node, bold=bold)
            return f"{mark}{text}{mark}" if text else ""
        case "code_inline":
            # A backtick would end the code, and the notation has no other way to write it.
            return f"`{escape(node.content.replace('`', 'ˋ'))}`"
        case "link":
            return _link(str(node.attrs.get("href", "")), _plain(node))
        case "image":
            return _link(str(node.attrs.get("src", "")), _plain(node))
        case "softbreak" | "hardbreak":
            return "\n"
    return escape(node.content)


def _link(url: str, label: str) -> str:
    # Without a scheme `<…>` would be a mention: [all](!channel).
    if not _LINKED.match(url):
        return escape(f"{label} ({url})" if label and url else label or url)
    target = escape(url.replace("|", "%7C").replace(" ", "%20"))
    return f"<{target}>" if label in ("", url) else f"<{target}|{escape(label)}>"
