"""Files to people, each shown exactly once.

A file is uploaded first and shown in its place afterwards; only the second step is seen by anybody.
Between the two the file's id is noted. After a crash, or when Slack's answer was lost, the place is
searched for that id before anything is shown again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from loguru import logger

from channels.errors import Later
from channels.slack.api import Api, Away, Rejected, Unclear
from channels.slack.fields import mapping, mappings, string
from channels.slack.keys import Address

UPLOAD_SECONDS = 120.0
LOOK_AGAIN_SECONDS = 2.0
MOST_TRIES = 5
"""Then the sender is told, and what comes after it goes on."""
NOT_ALLOWED = "the scope files:write is missing, or the app was not reinstalled after adding it"

Messages = Callable[[], AsyncIterator[dict[str, Any]]]


class Uploads:
    """The files of one answer."""

    def __init__(
        self,
        api: Api,
        where: Address,
        handle: dict[str, Any],
        keep: Callable[[], Awaitable[None]],
        own: Messages,
    ) -> None:
        self._api, self._where, self._keep, self._own = api, where, keep, own
        self._done = [str(key) for key in handle.get("files") or ()]
        self._begun = {str(key): str(file) for key, file in mapping(handle.get("uploads")).items()}
        """Uploaded, and maybe shown: the file's id in Slack."""
        self._failed: dict[str, str] = {}
        self._tries: dict[str, int] = {}
        self._missed: set[str] = set()

    def handle(self) -> dict[str, Any]:
        return {"files": self._done, "uploads": self._begun}

    async def send(self, key: str, name: str, source: Path | bytes | None) -> str:
        """Why the file cannot be shown; empty if it is. Raises SlackError or Later."""
        if key in self._done or key in self._failed:
            return self._failed.get(key, "")
        if source is None:
            return "it is gone"
        try:
            await self._send(key, name, source)
        except Rejected as error:
            missing = error.error == "missing_scope"
            self._failed[key] = NOT_ALLOWED if missing else f"Slack refused it ({error.error})"
        except (Unclear, Away) as error:
            self._tries[key] = self._tries.get(key, 0) + 1
            if self._tries[key] < MOST_TRIES:
                raise
            self._failed[key] = f"Slack did not take it ({error.error})"
        return self._failed.get(key, "")

    async def _send(self, key: str, name: str, source: Path | bytes) -> None:
        file = self._begun.get(key)
        if file is None:
            file = await upload(self._api, name, source)
            self._begun[key] = file
            await self._keep()
            await self._show(file, name)
        elif not await self._is_shown(file):
            if key not in self._missed:
                self._missed.add(key)
                raise Later("looking for a file again", LOOK_AGAIN_SECONDS)
            await self._show(file, name)
        self._done.append(key)
        del self._begun[key]
        await self._keep()

    async def _is_shown(self, file: str) -> bool:
        try:
            async for message in self._own():
                if any(string(one, "id") == file for one in mappings(message.get("files"))):
                    return True
        except Rejected as error:
            logger.bind(channel="slack", error=error.error).warning("cannot look for a file")
        return False

    async def _show(self, file: str, name: str) -> None:
        args: dict[str, Any] = {
            "files": [{"id": file, "title": name}],
            "channel_id": self._where.channel,
        }
        if self._where.thread_ts is not None:
            args["thread_ts"] = self._where.thread_ts
        await self._api.call("files.completeUploadExternal", args)


async def upload(api: Api, name: str, source: Path | bytes) -> str:
    """Returns the id of a file nobody sees yet. Raises SlackError."""
    if isinstance(source, bytes):
        return await _upload(api, name, len(source), source)
    try:
        with await asyncio.to_thread(source.open, "rb") as content:
            size = os.fstat(content.fileno()).st_size
            return await _upload(api, name, size, content)
    except OSError as error:
        raise Away(type(error).__name__, "upload") from error


async def _upload(api: Api, name: str, size: int, content: Any) -> str:
    asked = {"filename": name, "length": size}
    ticket = await api.call("files.getUploadURLExternal", asked, form=True)
    url, file = string(ticket.data, "upload_url"), string(ticket.data, "file_id")
    timeout = aiohttp.ClientTimeout(total=UPLOAD_SECONDS)
    try:
        async with api.session.post(url, data=content, timeout=timeout) as response:
            if response.status != 200:
                raise Away(f"status {response.status}", "upload")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Away(type(error).__name__, "upload") from error
    return file
