"""A model that answers at once, for the peer: it says the words it was given, one per chunk.

python -m benchmarks.fake_model PORT WORDS
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

import uvloop


def answer(words: list[str]) -> bytes:
    """The whole response, made once."""
    chunks = [_chunk({"content": word}) for word in words]
    stream = b"".join([*chunks, _chunk({}, "stop"), b"data: [DONE]\n\n"])
    head = (
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n"
        f"Content-Length: {len(stream)}\r\n\r\n"
    )
    return head.encode() + stream


def _chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    value = {
        "id": "1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "instant",
        "choices": [choice],
    }
    return f"data: {json.dumps(value)}\n\n".encode()


async def main() -> None:
    port, words = int(sys.argv[1]), sys.argv[2].split()
    response = answer([word if at == 0 else f" {word}" for at, word in enumerate(words)])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The peer opens a connection for every request anyway.
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            _, _, rest = head.partition(b"content-length:")
            await reader.readexactly(int(rest.partition(b"\r\n")[0]))
            writer.write(response)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
