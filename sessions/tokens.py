"""How many tokens a text costs, estimated offline.

A tokenizer needs a download and milliseconds per message; budgets need neither. The estimate is
a quarter of a token per character plus three eighths per byte beyond the first of a character:
English comes to 4 characters per token, Chinese to 1, Cyrillic to 1.6. Calls and thinking are
counted in their printed form.
"""

from __future__ import annotations

from sessions.record import Record

ROW_TOKENS = 4
"""What a provider's framing adds to each message."""
MEDIA_TOKENS = 64


def estimate(text: str) -> int:
    characters = len(text)
    size = characters if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return (2 * characters + 3 * (size - characters) + 7) // 8


def estimate_message(text: str, *parts: object) -> int:
    """A message and what goes with its text: calls, reasoning, thinking. None costs nothing."""
    count = ROW_TOKENS + estimate(text)
    for part in parts:
        if part:
            count += estimate(part if isinstance(part, str) else repr(part))
    return count


def estimate_record(record: Record) -> int:
    count = estimate_message(
        record.text, record.tool_calls, record.reasoning_content, record.thinking_blocks
    )
    return count + MEDIA_TOKENS * len(record.media or ())
