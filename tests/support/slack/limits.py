"""What Slack refuses in the content of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MARKDOWN_LIMIT = 12_000
TEXT_LIMIT = 40_000
UPDATE_TEXT_LIMIT = 4_000
SECTION_LIMIT = 3_000
BLOCKS_LIMIT = 50
KNOWN_BLOCKS = {
    "actions",
    "context",
    "context_actions",
    "divider",
    "file",
    "header",
    "image",
    "input",
    "markdown",
    "plan",
    "rich_text",
    "section",
    "table",
    "task_card",
    "video",
}


class SlackError(Exception):
    """What Slack answers as `ok: false`."""

    def __init__(self, error: str, **fields: Any) -> None:
        super().__init__(error)
        self.error, self.fields = error, fields


def check_content(args: Mapping[str, Any], text_limit: int = TEXT_LIMIT) -> None:
    text, markdown = args.get("text") or "", args.get("markdown_text") or ""
    blocks = args.get("blocks") or []
    if markdown and (text or blocks):
        raise SlackError("markdown_text_conflict")
    if not (text or markdown or blocks or args.get("attachments")):
        raise SlackError("no_text")
    if len(text) > text_limit or len(markdown) > MARKDOWN_LIMIT:
        raise SlackError("msg_too_long")
    check_blocks(blocks)
    check_metadata(args.get("metadata"))


def check_blocks(blocks: Any) -> None:
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise SlackError("invalid_blocks_format")
    problems = [problem for n, block in enumerate(blocks) for problem in _problems(n, block)]
    if len(blocks) > BLOCKS_LIMIT:
        problems.append(f"no more than {BLOCKS_LIMIT} items allowed [json-pointer:/blocks]")
    if problems:
        messages = [f"[ERROR] {problem}" for problem in problems]
        details = {"messages": messages}
        raise SlackError("invalid_blocks", errors=problems, response_metadata=details)
    if sum(len(block["text"]) for block in blocks if block["type"] == "markdown") > MARKDOWN_LIMIT:
        raise SlackError("msg_blocks_too_long")


def _problems(number: int, block: Mapping[str, Any]) -> list[str]:
    where = f"[json-pointer:/blocks/{number}]"
    kind, text = block.get("type"), block.get("text")
    if kind not in KNOWN_BLOCKS:
        return [f"unsupported type: {kind} {where}"]
    if kind == "markdown" and not (isinstance(text, str) and text):
        return [f"must be more than 0 characters {where}"]
    if kind == "section" and text is not None:
        if not isinstance(text, dict) or not text.get("text"):
            return [f"must be more than 0 characters {where}"]
        if len(text["text"]) > SECTION_LIMIT:
            return [f"must be less than {SECTION_LIMIT + 1} characters {where}"]
    if kind == "actions" and not 1 <= len(block.get("elements") or []) <= 25:
        return [f"must have 1 to 25 elements {where}"]
    return []


def check_metadata(metadata: Any) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict) or not {"event_type", "event_payload"} <= metadata.keys():
        raise SlackError("invalid_metadata_format")
    if not isinstance(metadata["event_payload"], dict):
        raise SlackError("invalid_metadata_schema")


def texts_of(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Everything people read in these blocks, in order."""
    found: list[str] = []
    for block in blocks:
        _collect(block, found)
    return found


def _collect(value: Any, found: list[str]) -> None:
    if isinstance(value, list):
        for item in value:
            _collect(item, found)
    elif isinstance(value, dict):
        if isinstance(text := value.get("text"), str):
            found.append(text)
        for key in ("text", "fields", "elements", "title"):
            if isinstance(value.get(key), (dict, list)):
                _collect(value[key], found)
