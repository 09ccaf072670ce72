"""One answer in Slack: shown while it grows, finished exactly once, in the right thread.

Every message carries the delivery id and the number of its part in its metadata, and its `ts` is
noted as soon as it is known. So after a crash, or when an answer of Slack was lost, what is there
already is found and edited instead of posted again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from loguru import logger

from channels.channel import Answer, Event, Note, Reply, Tasks
from channels.errors import Later, Undeliverable
from channels.slack import blocks, keys
from channels.slack.api import Away, Fatal, Limited, Rejected, SlackError, Unclear
from channels.slack.fields import mapping, mappings, string
from channels.slack.mrkdwn import defuse
from channels.slack.split import MOST_PARTS, PART_CHARACTERS, close_open, split, summary
from channels.slack.stream import Stream
from channels.slack.upload import Uploads
from channels.slack.workspace import Workspace

EVENT = "parley_answer"
WHOLE = "answer.md"
"""An answer too long for messages."""
PAGE_MESSAGES = 200
MOST_PAGES = 20
NATIVE_RETRY_SECONDS = 3_600.0
LOOK_AGAIN_SECONDS = 2.0
"""A post whose answer was lost may appear a moment later: what is missing is looked for twice."""
BLOCKS_REFUSED = frozenset(
    {"invalid_blocks", "msg_blocks_too_long", "invalid_blocks_format", "msg_too_long"}
)
STREAMS = "streaming_state_conflict"
"""Slack's word for an edit of a message that is still open."""
GONE = frozenset(
    {
        "channel_not_found",
        "is_archived",
        "not_in_channel",
        "is_inactive",
        "restricted_action",
        "thread_not_found",
        "user_is_bot",
        "cannot_dm_bot",
        "messages_tab_disabled",
        "no_permission",
        "user_not_found",
        "cannot_reply_to_message",
    }
)
"""Places nothing can be said in any more."""


class SlackDelivery:
    def __init__(
        self,
        workspace: Workspace,
        reply: Reply,
        note: Note,
        tasks: Tasks,
        streaming: str,
        file: Callable[[str], Awaitable[Path | None]],
        *,
        reactions: bool = True,
    ) -> None:
        self._workspace, self._reply, self._note = workspace, reply, note
        self._tasks, self._streaming, self._reactions = tasks, streaming, reactions
        self._api = workspace.api
        self._where = keys.address(reply.chat_id)
        wanted = streaming == "native" or (streaming == "auto" and self._where.is_dm)
        self._streams_here = wanted and self._where.thread_ts is not None
        """Whether this process or an earlier one may have streamed the answer."""
        self._posted: dict[int, str] = {
            int(part): str(ts) for part, ts in mapping(reply.handle.get("parts")).items()
        }
        """The ts of each part that is out there."""
        self._file = file
        self._uploads = Uploads(self._api, self._where, reply.handle, self._keep_handle, self._own)
        self._doubtful = reply.doubtful
        """Something may be out there that we do not know of."""
        self._missed: set[int] = set()
        """Parts that were looked for and not found."""
        self._painted: blocks.Payload = {}
        self._text: list[str] = []
        self._dirty = asyncio.Event()
        self._calling = asyncio.Lock()
        self._painter: asyncio.Task[None] | None = None
        self._stream: Stream | None = None
        self._ended = False
        self._busy_sign: str | None = None
        self._plain = False

    # -- while it grows -----------------------------------------------------------------------

    def show(self, event: Event) -> None:
        if event.kind == "turn_start":
            self._tasks.spawn(self._show_busy(), "busy")
            text = event.fields.get("text") or ""
        elif event.kind == "delta":
            text = event.fields["text"]
        else:
            return
        if not text or self._streaming == "off":
            return
        self._text.append(text)
        self._dirty.set()
        if self._painter is None and not self._ended:
            self._workspace.pace.enter()
            self._painter = self._tasks.spawn(self._paint(), "paint")
            self._painter.add_done_callback(lambda _: self._workspace.pace.leave())

    async def _paint(self) -> None:
        """Shows the newest text, at the workspace's pace; errors here never fail a turn."""
        last = 0.0
        while True:
            await self._dirty.wait()
            await self._workspace.pace.wait(last)
            async with self._calling:
                self._dirty.clear()
                if not await self._paint_once():
                    return
            last = time.monotonic()

    async def _paint_once(self) -> bool:
        """False if it is no use to go on."""
        try:
            if not await self._paint_native():
                await self._paint_edit()
        except Limited as error:
            self._workspace.pace.pause(error.retry_after)
            self._dirty.set()
        except Unclear:
            self._doubtful = self._doubtful or 0 not in self._posted
            self._leave_stream()
        except SlackError as error:
            logger.bind(channel="slack", error=error.error).debug("progress not shown")
            return error.error not in GONE and not isinstance(error, Fatal)
        return True

    async def _stop_painting(self) -> None:
        self._ended = True
        # A call in flight is waited for: cancelled, nobody would know what became of it.
        async with self._calling:
            if self._painter is not None:
                self._painter.cancel()
                self._painter = None

    async def _paint_native(self) -> bool:
        """False if this answer is shown by edits."""
        if self._stream is None and not self._may_stream():
            return False
        text = defuse("".join(self._text))
        if self._stream is None:
            self._stream = Stream(self._workspace, self._where, self._reply)
        stream = self._stream
        showed = await stream.show(text)
        if stream.ts is not None and self._posted.get(0) != stream.ts:
            await self._keep(0, stream.ts)
        if not showed:
            if stream.refused:
                self._workspace.native_refused_until = time.monotonic() + NATIVE_RETRY_SECONDS
            self._leave_stream()
        return showed

    def _leave_stream(self) -> None:
        """Shown by edits from here on, in the same message if there is one."""
        if self._stream is not None:
            self._stream = None
            self._streaming = "edit"

    def _may_stream(self) -> bool:
        if self._streaming not in ("auto", "native") or self._posted or self._doubtful:
            return False
        if time.monotonic() < self._workspace.native_refused_until or not self._reply.recipient:
            return False
        return self._streams_here

    async def _paint_edit(self) -> None:
        text = close_open(split(defuse("".join(self._text)))[0])
        payload = blocks.answer(text, blocks.stop_button(self._reply.delivery))
        if len(text) > PART_CHARACTERS or payload == self._painted:
            return
        if 0 in self._posted:
            await self._update(payload, 0)
        elif not self._doubtful:
            await self._keep(0, await self._post(payload, 0))
        self._painted = payload

    async def _keep(self, part: int, ts: str) -> None:
        self._posted[part] = ts
        await self._keep_handle()

    async def _keep_handle(self) -> None:
        parts = {str(part): ts for part, ts in self._posted.items()}
        await self._note({"parts": parts, **self._uploads.handle()})

    # -- the sign that something happens ------------------------------------------------------

    async def _show_busy(self) -> None:
        """A status where Slack has one, else an eyes reaction. Best effort."""
        if self._asked is None:
            return
        if self._where.thread_ts is not None and self._where.is_dm:
            args = {"channel_id": self._where.channel, "thread_ts": self._where.thread_ts}
            try:
                await self._api.call(
                    "assistant.threads.setStatus", {**args, "status": "is thinking…"}
                )
            except SlackError:
                pass
            else:
                return  # Slack takes it away with the next message.
        if not self._may_react():
            return
        self._busy_sign = self._asked
        try:
            await self._api.call("reactions.add", self._reaction())
        except SlackError:
            return
        if self._ended:
            await self._hide_busy()

    def _may_react(self) -> bool:
        return self._reactions and self._workspace.identity.has("reactions:write")

    async def _hide_busy(self) -> None:
        if self._busy_sign is None:
            return
        try:
            await self._api.call("reactions.remove", self._reaction())
        except SlackError as error:
            logger.bind(channel="slack", error=error.error).debug("reaction left")

    def _reaction(self) -> dict[str, Any]:
        return {"channel": self._where.channel, "timestamp": self._busy_sign, "name": "eyes"}

    # -- the end ------------------------------------------------------------------------------

    async def leave(self) -> None:
        await self._stop_painting()
        await self._hide_busy()

    async def finish(self, answer: Answer) -> dict[str, Any]:
        await self._stop_painting()
        if self._reply.doubtful and self._may_react():
            self._busy_sign = self._asked  # Maybe put there by a process that died.
        try:
            if self._stream is not None:
                await self._stream.close()
                self._stream = None
            await self._finish(answer)
        except Fatal as error:
            raise Later(error.error, 60.0) from error
        except Limited as error:
            self._workspace.pace.pause(error.retry_after)
            raise Later(error.error, error.retry_after) from error
        except Unclear as error:
            self._doubtful = True
            self._missed.clear()
            raise Later(error.error) from error
        except Away as error:
            raise Later(error.error) from error
        except Rejected as error:
            if error.error in GONE:
                raise Undeliverable(error.error) from error
            raise Later(error.error) from error
        self._tasks.spawn(self._hide_busy(), "busy")
        return {"ts": self._posted.get(0, "")}

    async def _finish(self, answer: Answer) -> None:
        text = shown(answer, self._reply.turn)
        limit = blocks.PLAIN_CHARACTERS if self._plain else PART_CHARACTERS
        parts = split(defuse(text), limit) if text else [""]
        if not text and answer.media and 0 not in self._posted:
            parts = []
        whole = None
        if len(parts) > MOST_PARTS:
            whole, parts = text, [summary(defuse(text))]
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            await self._show_part(number, self._payload(part, answer, last=last))
        await self._send_files(answer, whole, len(parts))

    async def _send_files(self, answer: Answer, whole: str | None, part: int) -> None:
        """Below the words. One that cannot be sent is told of instead, as parts from `part` on."""
        files = [(string(item, "id"), string(item, "name") or "file") for item in answer.media]
        if whole is not None:
            files.insert(0, (WHOLE, WHOLE))
        for number, (key, name) in enumerate(files, part):
            source = whole.encode() if whole and key == WHOLE else await self._file(key)
            problem = await self._uploads.send(key, name, source)
            if problem:
                await self._show_part(number, blocks.error(f"{name} could not be sent: {problem}."))

    def _payload(self, part: str, answer: Answer, *, last: bool) -> blocks.Payload:
        if not part:
            return blocks.notice(_empty(answer), turn=self._reply.turn if answer.error else "")
        if self._plain:
            return blocks.plain(part)
        finished = last and not answer.command and bool(self._reply.answers)
        buttons = blocks.feedback_buttons(self._reply.delivery) if finished else None
        return blocks.answer(part, buttons)

    async def _show_part(self, number: int, payload: blocks.Payload) -> None:
        if number not in self._posted and self._doubtful:
            await self._look_for(number)
        try:
            await self._put(number, payload)
        except Rejected as error:
            if error.error not in BLOCKS_REFUSED:
                raise
            if self._plain:
                raise Undeliverable(error.error) from error
            self._plain = True
            raise Later(error.error, 0.0) from error

    async def _look_for(self, part: int) -> None:
        """Learns where a part is. Raises Later until it is sure enough that it is nowhere."""
        try:
            found = await self._find(part)
        except Rejected as error:
            if error.error in GONE:
                raise
            logger.bind(channel="slack", error=error.error).warning("cannot look for an answer")
            return
        if found is not None:
            await self._keep(part, found)
        elif part not in self._missed:
            self._missed.add(part)
            raise Later("looking for it again", LOOK_AGAIN_SECONDS)

    async def _put(self, number: int, payload: blocks.Payload) -> None:
        if number in self._posted:
            try:
                await self._update(payload, number)
            except Rejected as error:
                if error.error in GONE or error.error in BLOCKS_REFUSED:
                    raise
                # It was deleted, or cannot be edited any more: the words still arrive.
                logger.bind(channel="slack", error=error.error).warning("answer posted anew")
                del self._posted[number]
            else:
                return
        await self._keep(number, await self._post(payload, number))

    async def _update(self, payload: blocks.Payload, part: int) -> None:
        ts = self._posted[part]
        args = {**payload, **self._mark(part), "channel": self._where.channel, "ts": ts}
        try:
            await self._api.call("chat.update", args)
        except Rejected as error:
            if error.error != STREAMS:
                raise
            # A process that died left it open.
            await self._api.call("chat.stopStream", {"channel": self._where.channel, "ts": ts})
            await self._api.call("chat.update", args)

    def _mark(self, part: int) -> dict[str, Any]:
        """Also put on a stream once it is finished: then it is never taken for another answer."""
        payload = {"delivery": self._reply.delivery, "part": part}
        return {"metadata": {"event_type": EVENT, "event_payload": payload}}

    async def _post(self, payload: blocks.Payload, part: int) -> str:
        args: dict[str, Any] = {
            **payload,
            **blocks.QUIET,
            **self._mark(part),
            "channel": self._where.channel,
        }
        if self._where.thread_ts is not None:
            args["thread_ts"] = self._where.thread_ts
        answered = await self._api.call("chat.postMessage", args)
        return string(answered.data, "ts")

    async def _find(self, part: int) -> str | None:
        """The ts of a part that is out there without our knowing."""
        unmarked = None
        async for message in self._own():
            payload = mapping(mapping(message.get("metadata")).get("event_payload"))
            if payload.get("delivery") == self._reply.delivery and payload.get("part") == part:
                return string(message, "ts")
            if not payload and not message.get("files"):
                unmarked = max(unmarked or "", string(message, "ts"))
        # A stream carries no mark before it is finished: it is our newest message without one.
        may_be = part == 0 and self._asked is not None and self._streams_here
        return unmarked if may_be else None

    @property
    def _asked(self) -> str | None:
        asked = self._reply.answers
        return asked if asked is not None and keys.is_ts(asked) else None

    async def _own(self) -> AsyncIterator[dict[str, Any]]:
        """Our messages in this place since the question."""
        bot = self._workspace.identity.bot_user
        args: dict[str, Any] = {
            "channel": self._where.channel,
            "include_all_metadata": True,
            "limit": PAGE_MESSAGES,
        }
        if self._asked is not None:
            args["oldest"] = self._asked
        method = "conversations.history"
        if self._where.thread_ts is not None:
            method, args["ts"] = "conversations.replies", self._where.thread_ts
        for _ in range(MOST_PAGES):
            page = await self._api.call(method, args, form=True)
            for message in mappings(page.get("messages")):
                # The first message of a thread comes along whatever its age.
                if string(message, "user") == bot and string(message, "ts") > (self._asked or ""):
                    yield message
            cursor = string(mapping(page.get("response_metadata")), "next_cursor")
            if not cursor:
                return
            args["cursor"] = cursor


def shown(answer: Answer, turn: str) -> str:
    """The words people read: the answer, and how it ended if that is not plain to see."""
    text = answer.text.strip()
    if answer.error:
        hint = f"⚠️ {answer.error} (turn `{turn}`)"
        return f"{text}\n\n{hint}" if text else hint
    if text and answer.outcome in ("stopped", "interrupted"):
        return f"{text}\n\n_{answer.outcome.capitalize()}._"
    return text


def _empty(answer: Answer) -> str:
    if answer.outcome in ("stopped", "interrupted"):
        return f"{answer.outcome.capitalize()}."
    return "The files are below." if answer.media else blocks.EMPTY
