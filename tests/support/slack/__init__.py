"""A Slack of the tests' own: Web API, Socket Mode, HTTP events, and everything that goes wrong.

    slack = await LocalSlack().start()        # port 0; slack.api_base_url points a client at it
    message = await slack.say(USER, CHANNEL, "hello", mention=True)
    await slack.until(lambda: slack.answers(CHANNEL, message.ts))
    slack.faults.put("chat.update", rate_limited(60), times=1)
    await slack.stop()                        # start() again: same port, same workspace

`python -m tests.support.slack --port 0` runs the same in a process of its own.
"""

from tests.support.slack.faults import (
    Fault,
    delayed,
    drop_after,
    drop_before,
    hang,
    http_error,
    missing_scope,
    rate_limited,
    refused,
)
from tests.support.slack.server import LocalSlack
from tests.support.slack.workspace import (
    APP_TOKEN,
    BOT_TOKEN,
    BOT_USER,
    CHANNEL,
    OTHER_USER,
    USER,
    Message,
)

__all__ = [
    "APP_TOKEN",
    "BOT_TOKEN",
    "BOT_USER",
    "CHANNEL",
    "OTHER_USER",
    "USER",
    "Fault",
    "LocalSlack",
    "Message",
    "delayed",
    "drop_after",
    "drop_before",
    "hang",
    "http_error",
    "missing_scope",
    "rate_limited",
    "refused",
]
