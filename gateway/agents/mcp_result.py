"""What an MCP tool gave, as text for the model and files for the user. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

import msgspec
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)

from gateway.agents.agent import Produced
from gateway.agents.tools import Outcome

MAX_FILES = 10
MAX_FILE_BYTES = 20 * 1024 * 1024
_ILLEGAL = re.compile(r"[^\w. -]+")


def outcome_of(result: CallToolResult) -> Outcome:
    texts: list[str] = []
    files: list[Produced] = []
    for block in result.content:
        match block:
            case TextContent(text=text):
                texts.append(text)
            case ImageContent(data=data, mime_type=mime) | AudioContent(data=data, mime_type=mime):
                texts.append(_keep(files, f"file-{len(files) + 1}", mime, data))
            case EmbeddedResource(resource=BlobResourceContents(uri=uri, blob=data) as resource):
                mime = resource.mime_type or "application/octet-stream"
                texts.append(_keep(files, _base_name(str(uri)), mime, data))
            case EmbeddedResource(resource=resource):
                texts.append(getattr(resource, "text", ""))
            case ResourceLink(uri=uri):
                texts.append(str(uri))
    if not texts and result.structured_content is not None:
        texts.append(_json(result.structured_content))
    text = "\n".join(filter(None, texts)) or "(no output)"
    return Outcome(text, files, failed=result.is_error)


def _keep(files: list[Produced], name: str, mime: str, data: str) -> str:
    """Adds the file and returns what the model is told about it."""
    if len(files) >= MAX_FILES or len(data) > MAX_FILE_BYTES * 4 // 3 + 4:
        return "[A file was too large and left out.]"
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return "[A file was damaged and left out.]"
    files.append(Produced(_with_suffix(name, mime), mime, content))
    return f"[file: {files[-1].name}]"


def _with_suffix(name: str, mime: str) -> str:
    kind = mime.partition("/")[2].partition(";")[0].partition("+")[0]
    if "." in name or not kind.isalnum() or len(kind) > 5:
        return name
    return f"{name}.{kind}"


def _base_name(uri: str) -> str:
    name = uri.partition("?")[0].rstrip("/").rpartition("/")[2]
    return _ILLEGAL.sub("_", name)[-100:].lstrip(".") or "file"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
