"""An answer shown by Slack's own streaming: words are appended to a message that is open.

A stream dies after about five minutes, and one that ends stays as it is until it is edited. So it
is only a way to show an answer while it grows; the delivery edits the message to its final form.
"""

from __future__ import annotations

import time
from typing import Any

from loguru import logger

from channels.channel import Reply
from channels.slack.api import Rejected
from channels.slack.fields import string
from channels.slack.keys import Address
from channels.slack.workspace import Workspace

LIFE_SECONDS = 240.0
MOST_CHARACTERS = 11_000
OVER = "message_not_in_streaming_state"


class Stream:
    def __init__(self, workspace: Workspace, where: Address, reply: Reply) -> None:
        self.ts: str | None = None
        self.refused = False
        """Slack does not stream here: no use to try again soon."""
        self._api = workspace.api
        self._where = where
        self._recipient = reply.recipient
        self._team = where.team or workspace.identity.team
        self._shown = ""
        self._opened = 0.0
        self._closed = False

    async def show(self, text: str) -> bool:
        """False if the stream is over; what was opened is closed then. May raise."""
        grown = text.startswith(self._shown)
        old = self.ts is not None and time.monotonic() - self._opened > LIFE_SECONDS
        if not grown or old or len(text) > MOST_CHARACTERS:
            await self.close()
            return False
        added = text[len(self._shown) :]
        if not added:
            return True
        try:
            await self._append(added)
        except Rejected as error:
            self.refused = error.error != OVER
            logger.bind(channel="slack", error=error.error).info("streaming refused")
            await self.close()
            return False
        self._shown = text
        return True

    async def _append(self, added: str) -> None:
        place: dict[str, Any] = {"channel": self._where.channel, "markdown_text": added}
        if self.ts is not None:
            await self._api.call("chat.appendStream", {**place, "ts": self.ts})
            return
        answered = await self._api.call(
            "chat.startStream",
            {
                **place,
                "thread_ts": self._where.thread_ts,
                "recipient_user_id": self._recipient,
                "recipient_team_id": self._team,
            },
        )
        self.ts = string(answered.data, "ts")
        self._opened = time.monotonic()

    async def close(self) -> None:
        """A message that streams cannot be edited. Closing one that is closed does no harm."""
        if self.ts is None or self._closed:
            return
        try:
            await self._api.call("chat.stopStream", {"channel": self._where.channel, "ts": self.ts})
        except Rejected as error:
            logger.bind(channel="slack", error=error.error).debug("stream was over")
        self._closed = True
