"""A small MCP server: `python mcp_server.py` speaks on standard input and output.

Its tools leave traces in the file named by MCP_TRACE, so a test can see what really ran.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ImageContent

PIXEL = base64.b64encode(b"\x89PNG pixel").decode()


def build(trace: Path | None = None) -> MCPServer:
    server = MCPServer("scripted")

    def note(text: str) -> None:
        if trace is not None:
            with trace.open("a") as file:
                file.write(text + "\n")

    @server.tool()
    def add(a: int, b: int) -> str:
        """Adds two numbers."""
        note(f"add {a} {b}")
        return str(a + b)

    @server.tool()
    def fail() -> str:
        """Always fails."""
        raise ToolError("out of paper")

    @server.tool()
    def secret_admin() -> str:
        """Nobody should see this."""
        return "root"

    @server.tool()
    def environment(name: str) -> str:
        """One environment variable."""
        return os.environ.get(name, "unset")

    @server.tool()
    def picture() -> ImageContent:
        """A picture."""
        return ImageContent(type="image", data=PIXEL, mime_type="image/png")

    @server.tool()
    async def wait() -> str:
        """Never answers."""
        note("wait")
        await asyncio.Event().wait()
        return "never"

    @server.tool()
    def die() -> str:
        """Ends the server in the middle of the call, once."""
        note("die")
        if trace is not None and trace.read_text().count("die") > 1:
            return "alive"
        os._exit(1)

    return server


if __name__ == "__main__":
    path = os.environ.get("MCP_TRACE")
    sys.stderr.write("the server is up\n")
    build(Path(path) if path else None).run("stdio")
