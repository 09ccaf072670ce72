"""The words inside blocks and attachments, in the notation of a message's `text`.

Literal text is escaped and people, channels and links are written `<…>`, so that everything a
message says goes through one expansion afterwards. Unknown blocks give nothing.
"""

from __future__ import annotations

from typing import Any

from channels.slack.fields import mapping, mappings, string


def block_text(blocks: object) -> str:
    return "\n".join(text for block in mappings(blocks) if (text := _block(block)).strip())


def quoted(attachment: dict[str, Any]) -> str:
    """A forwarded message, or another attachment that says something, as a quotation."""
    inside = [mapping(item.get("message")) for item in mappings(attachment.get("message_blocks"))]
    said = (
        string(attachment, "text")
        or block_text(attachment.get("blocks"))
        or "\n".join(block_text(message.get("blocks")) for message in inside)
        or escape(string(attachment, "title"))
        or string(attachment, "fallback")
    )
    if not said.strip():
        return ""
    author = escape(string(attachment, "author_name") or string(attachment, "author_id"))
    head = "Forwarded message" if attachment.get("is_share") else "Attachment"
    lines = [f"{head} from {author}:" if author else f"{head}:"]
    return "\n".join([*lines, *(f"&gt; {line}" for line in said.splitlines())])


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _block(block: dict[str, Any]) -> str:
    match string(block, "type"):
        case "rich_text":
            return "\n".join(_rich(part) for part in mappings(block.get("elements")))
        case "section":
            fields = [_text_object(field) for field in mappings(block.get("fields"))]
            return "\n".join(filter(None, [_text_object(mapping(block.get("text"))), *fields]))
        case "context":
            return " ".join(map(_text_object, mappings(block.get("elements")))).strip()
        case "header":
            return _text_object(mapping(block.get("text")))
        case "markdown":
            return escape(string(block, "text"))
        case "image" | "video":
            return escape(string(block, "alt_text"))
    return ""


def _text_object(holder: dict[str, Any]) -> str:
    text = string(holder, "text")
    return text if string(holder, "type") == "mrkdwn" else escape(text)


def _rich(part: dict[str, Any]) -> str:
    match string(part, "type"):
        case "rich_text_list":
            return _list(part)
        case "rich_text_quote":
            return "\n".join(f"&gt; {line}" for line in _leaves(part).splitlines())
        case "rich_text_preformatted":
            return f"```\n{_leaves(part)}\n```"
    return _leaves(part)


def _list(part: dict[str, Any]) -> str:
    indent = part.get("indent")
    lead = "    " * (indent if type(indent) is int and 0 < indent < 10 else 0)
    ordered = string(part, "style") == "ordered"
    items = enumerate(mappings(part.get("elements")), start=1)
    return "\n".join(
        f"{lead}{f'{number}.' if ordered else '-'} {_leaves(item)}" for number, item in items
    )


def _leaves(section: dict[str, Any]) -> str:
    return "".join(map(_leaf, mappings(section.get("elements"))))


def _leaf(leaf: dict[str, Any]) -> str:
    text = escape(string(leaf, "text"))
    match string(leaf, "type"):
        case "user":
            return f"<@{escape(string(leaf, 'user_id'))}>"
        case "channel":
            return f"<#{escape(string(leaf, 'channel_id'))}>"
        case "usergroup":
            return f"<!subteam^{escape(string(leaf, 'usergroup_id'))}>"
        case "broadcast":
            return f"<!{escape(string(leaf, 'range'))}>"
        case "link":
            url = escape(string(leaf, "url"))
            return f"<{url}|{text}>" if text else f"<{url}>"
        case "emoji":
            return f":{escape(string(leaf, 'name'))}:"
        case "date":
            return escape(string(leaf, "fallback"))
        case _ if mapping(leaf.get("style")).get("code"):
            return f"`{text}`"
    return text
