"""The local Slack in a process of its own. Its first line of output is its URL."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from tests.support.slack.server import LocalSlack


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    slack = await LocalSlack(parser.parse_args().port).start()
    sys.stdout.write(slack.url("") + "\n")
    sys.stdout.flush()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    await slack.stop()


asyncio.run(main())
