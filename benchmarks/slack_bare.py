"""The least a Socket Mode client can do: it acknowledges every envelope and nothing else.

python -m benchmarks.slack_bare API_BASE_URL
"""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request

import uvloop
from websockets.asyncio.client import connect

from tests.support.slack import APP_TOKEN


def ticket(api_base_url: str) -> str:
    request = urllib.request.Request(
        f"{api_base_url}apps.connections.open",
        method="POST",
        headers={"Authorization": f"Bearer {APP_TOKEN}"},
    )
    with urllib.request.urlopen(request) as response:
        return str(json.load(response)["url"])


async def main() -> None:
    url = await asyncio.to_thread(ticket, sys.argv[1])
    async with connect(url, compression=None, proxy=None) as socket:
        async for text in socket:
            frame = json.loads(text)
            if "envelope_id" in frame:
                await socket.send(json.dumps({"envelope_id": frame["envelope_id"]}))


if __name__ == "__main__":
    uvloop.run(main())
