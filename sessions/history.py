"""What the model sees of a conversation. Pure, and linear in the rows given.

`sessions/turns.py` puts rows into turns; here turns become rows in a provider's form and as many
of the newest turns are taken as fit. A turn is shown whole or not at all, with one exception: if
the turn before the one being answered is too long, its messages and as many of its last steps as
fit are shown, because the next message is often about that answer. A step is an assistant row with
the results of its calls. What is shown starts at a turn with a user message, or at the proactive
delivery just before it.

- Every tool call is followed at once by its result. A call without one, in the running turn or in
  an interrupted one, gets a made-up result saying that its outcome is unknown: it may have had
  its effect, so it must be neither run again nor forgotten. A result without a call is left out.
- Of media only a base name is shown, as `[image: name]` or `[file: name]`, on user rows.
- Content is always text. A user row without text and media, and an assistant row without text,
  calls, reasoning and thinking are left out: providers refuse them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal

import msgspec

from sessions import tokens
from sessions.record import Record
from sessions.turns import Turn, call_ids, group, usable_calls

HISTORY_MESSAGES = 120
CONTEXT_WINDOW = 256_000
LEGACY_CONTEXT_WINDOW = 8_000
"""An old default that was written into settings files; nobody chose it."""
MAX_TOKENS = 32_000
NAME_CHARS = 120

UNKNOWN_RESULT = (
    "[No result was recorded. The call was interrupted and may or may not have taken effect. "
    "Check before doing it again.]"
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    history_messages: int = HISTORY_MESSAGES
    """Rows shown at most; 0 or less means the default."""
    budget_tokens: int = CONTEXT_WINDOW - MAX_TOKENS
    """What rows may cost: see `available_tokens`."""
    strategy: Literal["window", "first+recent"] = "window"
    """`first+recent` also shows the first user message of the rows given, if it fits."""
    timestamps: bool = False
    """User rows begin with `[Message Time: …]`."""

    @property
    def limit(self) -> int:
        return self.history_messages if self.history_messages > 0 else HISTORY_MESSAGES


DEFAULTS = Options()


class ModelRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    role: str
    content: str
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    thinking_blocks: list[Any] | None = None
    seq: int = 0
    """The row of the log; 0 for a made-up result."""


class _Block(msgspec.Struct, frozen=True):
    """A turn in the form it is shown in."""

    rows: list[ModelRow]
    tokens: int
    delivery: bool

    @property
    def has_user(self) -> bool:
        return bool(self.rows) and self.rows[0].role == "user"


def available_tokens(context_window: int, max_tokens: int, *, reserved: int = 0) -> int:
    """What is left for rows beside the reply and `reserved`, never negative.

    `reserved` is the estimate of everything else that is sent: system prompt, memory, goal,
    summary and tool schemas. A reply never takes more than half of the window.
    """
    if context_window <= 0 or context_window == LEGACY_CONTEXT_WINDOW:
        context_window = CONTEXT_WINDOW
    reply = min(max_tokens if max_tokens > 0 else MAX_TOKENS, context_window // 2)
    return max(0, context_window - reply - reserved)


def select(
    rows: Sequence[Record],
    *,
    answering: Collection[int],
    settled_through: int,
    turn: str | None = None,
    options: Options = DEFAULTS,
) -> list[ModelRow]:
    """The rows to send, oldest first.

    `rows` are those the model has not left behind, in the order of their numbers. `answering` are
    the user records this request is for; they come last, followed by what `turn`, their turn, has
    logged before a crash. A user record above `settled_through` that nothing settles waits for
    its own turn and is left out; one below belongs to an older log. A message its sender took back
    is left out even if it is being answered.

    At most `history_messages` rows, then `budget_tokens`; a budget that forces a cut is used to
    three quarters, which leaves room for the results the turn is going to add. If no user turn
    fits, the newest is shown all the same, whole: half a question gets a wrong answer, a context
    that is too long gets an error the caller can see.
    """
    turns = group(rows, answering=answering, settled_through=settled_through, turn=turn)
    blocks = _recent(turns, options.limit, options.budget_tokens, options.timestamps)
    if options.strategy == "first+recent":
        blocks = _with_first(turns, blocks, options)
    return [row for block in blocks for row in block.rows]


def _recent(turns: list[Turn], limit: int, budget: int, timestamps: bool) -> list[_Block]:
    newest_first: list[_Block] = []
    dropped: _Block | None = None
    count = total = 0
    for turn in reversed(turns):
        block = _block(turn, timestamps)
        count += len(block.rows)
        total += block.tokens
        if count > limit or total > budget:
            # The limit of rows comes first: what it leaves may still fit the budget.
            target = budget if count > limit else budget * 3 // 4
            dropped = _cut(newest_first, target) or block
            break
        if block.rows:
            newest_first.append(block)
    kept = newest_first[::-1]
    if dropped is not None:
        kept = [*_abridged(dropped, kept, limit, budget * 3 // 4), *kept]
    return _from_user(kept) or _recovered(turns, kept, timestamps)


def _cut(newest_first: list[_Block], budget: int) -> _Block | None:
    """Removes the oldest turns until the rest fits; returns the one removed last."""
    total = sum(block.tokens for block in newest_first)
    dropped = None
    while newest_first and total > budget:
        dropped = newest_first.pop()
        total -= dropped.tokens
    return dropped


def _abridged(block: _Block, kept: list[_Block], limit: int, budget: int) -> Iterator[_Block]:
    """The turn just before `kept` with its last steps, if nothing else precedes the newest."""
    if sum(other.has_user for other in kept) != 1:
        return
    users = [row for row in block.rows if row.role == "user"]
    count = limit - len(users) - sum(len(other.rows) for other in kept)
    budget -= sum(map(_cost, users)) + sum(other.tokens for other in kept)
    start = len(block.rows)
    for index in range(len(block.rows) - 1, len(users) - 1, -1):
        count -= 1
        budget -= _cost(block.rows[index])
        if count < 0 or budget < 0:
            break
        if block.rows[index].role == "assistant":
            start = index
    if start < len(block.rows):
        rows = [*users, *block.rows[start:]]
        yield _Block(rows, sum(map(_cost, rows)), delivery=False)


def _from_user(kept: list[_Block]) -> list[_Block]:
    for index, block in enumerate(kept):
        if block.has_user:
            return kept[index - 1 if index and kept[index - 1].delivery else index :]
    return []


def _recovered(turns: list[Turn], kept: list[_Block], timestamps: bool) -> list[_Block]:
    """No turn in `kept` has a user message: put the nearest one that has before them."""
    for turn in reversed(turns):
        if turn.users and (block := _block(turn, timestamps)).has_user:
            return [block, *kept]
    return []


def _with_first(turns: list[Turn], blocks: list[_Block], options: Options) -> list[_Block]:
    users = (row for turn in turns for row in turn.users)
    row = next((shown for row in users for shown in _user(row, options.timestamps)), None)
    if row is None or any(row.seq == shown.seq for block in blocks for shown in block.rows):
        return blocks
    first = _Block([row], _cost(row), delivery=False)
    budget = options.budget_tokens - first.tokens
    rest = _recent(turns, options.limit - 1, budget, options.timestamps)
    count = sum(len(block.rows) for block in rest)
    fits = count < options.limit and sum(block.tokens for block in rest) <= budget
    return [first, *rest] if fits else blocks


def _block(turn: Turn, timestamps: bool) -> _Block:
    rows = [shown for row in turn.users for shown in _user(row, timestamps)]
    rows += _answer(turn.rows)
    return _Block(rows, sum(map(_cost, rows)), turn.delivery)


def _cost(row: ModelRow) -> int:
    return tokens.estimate_message(
        row.content, row.tool_calls, row.reasoning_content, row.thinking_blocks
    )


def _user(row: Record, timestamps: bool) -> Iterator[ModelRow]:
    parts = [_words(row.content), *(_breadcrumb(item) for item in row.media or ())]
    text = "\n".join(part for part in parts if part.strip())
    if text:
        yield ModelRow(
            role="user", content=(_time_prefix(row) if timestamps else "") + text, seq=row.seq
        )


def _answer(rows: list[Record]) -> Iterator[ModelRow]:
    for row, results in _steps(rows):
        calls = usable_calls(row.tool_calls or ())
        shown = ModelRow(
            role="assistant",
            content=scrub(row.text),
            tool_calls=calls or None,
            reasoning_content=row.reasoning_content or None,
            thinking_blocks=row.thinking_blocks or None,
            seq=row.seq,
        )
        if shown.content or calls or shown.reasoning_content or shown.thinking_blocks:
            yield shown
        yield from (_result(call, results.get(call["id"])) for call in calls)


def _steps(rows: list[Record]) -> list[tuple[Record, dict[str, Record]]]:
    """Each assistant row with the results of its calls. An id may be used again by a later row."""
    steps: list[tuple[Record, dict[str, Record]]] = []
    waiting: dict[str, dict[str, Record]] = {}
    for row in rows:
        if row.role == "assistant":
            results: dict[str, Record] = {}
            steps.append((row, results))
            waiting.update(dict.fromkeys(call_ids(row), results))
        elif row.tool_call_id is not None and row.tool_call_id in waiting:
            waiting.pop(row.tool_call_id)[row.tool_call_id] = row
    return steps


def _result(call: dict[str, Any], row: Record | None) -> ModelRow:
    if row is not None:
        return ModelRow(
            role="tool",
            content=_words(row.content),
            tool_call_id=call["id"],
            name=row.name,
            seq=row.seq,
        )
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else call.get("name")
    return ModelRow(
        role="tool",
        content=UNKNOWN_RESULT,
        tool_call_id=call["id"],
        name=name if isinstance(name, str) else None,
    )


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def _time_prefix(row: Record) -> str:
    time = _TIME.fullmatch(row.timestamp)
    return f"[Message Time: {time[1]}{time[2] or ''}]\n" if time else ""


_IMAGE_NAME = re.compile(r"[^\n]*\.(?:png|jpe?g|gif|webp|bmp|svg|heic|avif|tiff?)", re.IGNORECASE)
_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//[^?#]*", re.IGNORECASE)
_UNSAFE = re.compile(r"[\x00-\x1f\x7f\[\]]+")


def _breadcrumb(item: object) -> str:
    fields = item if isinstance(item, dict) else {"name": item}
    name = _base_name(fields.get("name") or fields.get("path") or fields.get("id"))
    mime = fields.get("mime")
    is_image = mime.startswith("image/") if isinstance(mime, str) else _IMAGE_NAME.fullmatch(name)
    return f"[{'image' if is_image else 'file'}: {name}]"


def _base_name(path: object) -> str:
    """The last part of a path or an address; nothing that could end the breadcrumb early."""
    if not isinstance(path, str) or path.startswith("data:"):
        return "unnamed"
    address = _URL.match(path)
    parts = re.split(r"[/\\]", (address[0] if address else path).rstrip("/\\"))
    name = " ".join(_UNSAFE.sub(" ", parts[-1]).split())
    return name[-NAME_CHARS:] or "unnamed"


_LOCAL_IMAGE = r"\[image: ([/~][^\]\n]*+)\]"
_LOCAL_IMAGES = re.compile(_LOCAL_IMAGE)


def _words(content: str | list[Any] | None) -> str:
    """The text of a user or tool row; images in it become breadcrumbs."""
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, map(_block_words, content or ())))


def _block_words(block: object) -> str:
    if not isinstance(block, dict):
        return block if isinstance(block, str) else ""
    text, kind, meta = block.get("text"), block.get("type"), block.get("_meta")
    if isinstance(text, str):
        # Older logs hold an image as a text block with the path it had on that machine.
        return _LOCAL_IMAGES.sub(lambda found: f"[image: {_base_name(found[1])}]", text)
    if isinstance(kind, str) and "image" in kind:
        return f"[image: {_base_name(meta.get('path') if isinstance(meta, dict) else None)}]"
    return ""


# Quantifiers are possessive and alternatives begin differently, so no input makes them backtrack.
_TIME_PREFIX = r"\[Message Time: [^\]\n]*+\]"
_QUOTED = r""""(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+'"""
_ECHOED_CALL = rf"(?:generate_image|message)\((?:[^()\"'\n]|{_QUOTED})*+\)"
_LEAK = rf"(?:{_LOCAL_IMAGE}|{_ECHOED_CALL})[^\S\n]*+(?:\n|\Z)"
_LEADING = re.compile(rf"(?:\s*+(?:{_TIME_PREFIX}|{_LEAK}))++")
_LINES = re.compile(rf"^[^\S\n]*+{_LEAK}", re.MULTILINE)


def scrub(text: str) -> str:
    """Assistant text without what leaked into it and would be imitated if it were shown again.

    That is a time prefix at the start, lines that are only a local image path, lines that are only
    an echoed `generate_image(…)` or `message(…)`, and outer whitespace. Scrubbing twice changes
    nothing more.
    """
    start = _LEADING.match(text)
    return _LINES.sub("", text[start.end() :] if start else text).strip()
