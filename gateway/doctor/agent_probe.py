"""A process that makes one agent and says on its standard output why that cannot be done."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from gateway.agents.registry import Agents
from gateway.config import ConfigError, Settings

MADE = b"made"


def main() -> int:
    # What the imported code prints is not our answer.
    answer = os.dup(1)
    os.dup2(2, 1)
    wanted = json.load(sys.stdin)
    settings = Settings.model_validate(wanted["settings"])
    name = wanted["name"]
    alone = settings.model_copy(update={"agents": {name: settings.agents[name]}})
    try:
        asyncio.run(Agents.load(alone))
    except ConfigError as error:
        os.write(answer, str(error).encode(errors="replace"))
        return 1
    os.write(answer, MADE)
    return 0


if __name__ == "__main__":
    os._exit(main())
