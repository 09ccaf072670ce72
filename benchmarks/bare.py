"""What the same server does without a gateway: uvicorn and an application of a few lines.

    python -m benchmarks.bare echo|fastapi PORT FRAMES

`echo` answers every frame with the frames of the file FRAMES, and a POST by sending the last of
them to every connection. `fastapi` accepts connections and keeps them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI, WebSocket
from starlette.types import Receive, Scope, Send


class Echo:
    def __init__(self, frames: list[str]) -> None:
        self._frames = frames
        self._open: set[Send] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._talk(receive, send)
        else:
            await self._answer(scope, send)

    async def _talk(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        self._open.add(send)
        while (await receive())["type"] == "websocket.receive":
            for frame in self._frames:
                await send({"type": "websocket.send", "text": frame})
        self._open.discard(send)

    async def _answer(self, scope: Scope, send: Send) -> None:
        if scope["method"] == "POST":
            for other in list(self._open):
                await other({"type": "websocket.send", "text": self._frames[-1]})
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def fastapi() -> FastAPI:
    app = FastAPI()

    @app.get("/")
    def ready() -> str:
        return "ready"

    @app.websocket("/ws")
    async def keep(socket: WebSocket) -> None:
        await socket.accept()
        async for text in socket.iter_text():
            await socket.send_text(text)

    return app


def main() -> None:
    kind, port, frames = sys.argv[1:]
    app: Any = fastapi() if kind == "fastapi" else Echo(json.loads(Path(frames).read_text()))
    config = uvicorn.Config(
        app,
        port=int(port),
        http="httptools",
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
    )
    uvloop.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    main()
