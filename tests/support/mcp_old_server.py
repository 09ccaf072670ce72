"""An MCP server of the first generation, by hand: it knows `initialize`, and no newer greeting."""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {"name": "shout", "inputSchema": {"type": "object", "properties": {"text": {}}}}


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": "2024-11-05",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "old", "version": "1"},
            }
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            text = params["arguments"]["text"].upper()
            return {"content": [{"type": "text", "text": text}]}
        case _:
            return None


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        found = result(request["method"], request.get("params", {}))
        if found is None:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        else:
            answer["result"] = found
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
