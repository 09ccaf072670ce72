"""From Slack's envelopes to the gateway: translate, decide, append, and only then acknowledge.

Envelopes of one chat are handled one after the other, in the order they came; chats side by side.
An envelope that could not be stored is not acknowledged, so Slack brings it again.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from loguru import logger

from channels.channel import Inbound, Sender, Tasks
from channels.errors import Refused
from channels.slack import blocks, keys
from channels.slack.api import SlackError
from channels.slack.fields import mapping, mappings, string
from channels.slack.policy import Action, Answer, Deny, Facts, Policy, decide, is_self
from channels.slack.translate import Delete, Edit, File, Ignored, Message, translate
from channels.slack.workspace import Workspace

NAME = "slack"
NAMES_SECONDS = 1.0
ENGAGED_SECONDS = 86_400.0
DENIED_EVERY_SECONDS = 3_600.0
MOST_DENIED = 10_000
TRY_AGAIN = frozenset({"storage_unavailable", "shutting_down", "internal"})
"""Refusals that are ours to mend: the envelope is not acknowledged and comes again."""

Acknowledge = Callable[[dict[str, Any] | None], Awaitable[None]]


class Host(Protocol):
    """What the channel asks of the gateway."""

    async def receive(self, inbound: Inbound) -> None:
        """Returns once the message is in the log, now or earlier. Raises Refused."""

    async def last_active(self, chat_id: str) -> float | None:
        """Seconds since anything happened in the chat; None if there is none."""

    async def edit(self, inbound: Inbound, original: str) -> None:
        """The sender changed the message of the id `original`."""

    async def take_back(self, chat_id: str, id: str) -> None: ...

    async def file(self, id: str) -> Path | None:
        """Where a file of an answer lies; None if it is gone."""

    async def stop(self, chat_id: str, delivery: str) -> bool:
        """Ends the answer under way; False if it is not that one, or none."""

    async def regenerate(self, inbound: Inbound, delivery: str) -> None:
        """The answer is wanted anew. Raises Refused, also if it is not the last one."""

    async def feedback(self, chat_id: str, delivery: str, user: str, *, good: bool) -> None: ...


class Inbox:
    def __init__(
        self,
        host: Host,
        policy: Callable[[], Policy],
        workspace: Callable[[str], Workspace | None],
        name_team: Callable[[], bool],
        status: Callable[[Workspace], str],
        tasks: Tasks,
    ) -> None:
        self._host, self._policy, self._workspace = host, policy, workspace
        self._name_team, self._status, self._tasks = name_team, status, tasks
        self._tails: dict[str, asyncio.Task[None]] = {}
        self._denied: OrderedDict[str, float] = OrderedDict()
        self._streaks: OrderedDict[str, int] = OrderedDict()
        self.open = True

    def handle(self, envelope: dict[str, Any], acknowledge: Acknowledge) -> None:
        """Takes an envelope of Socket Mode."""
        if self.open:
            self.begin(envelope, acknowledge)

    def begin(self, envelope: dict[str, Any], acknowledge: Acknowledge) -> asyncio.Task[None]:
        """The work on an envelope. If it ends without `acknowledge`, it was not stored."""
        body = mapping(envelope.get("payload"))
        kind = string(envelope, "type")
        place = _place(kind, body)
        before = self._tails.get(place)
        task = self._tasks.spawn(self._in_order(before, kind, body, acknowledge), "envelope")
        self._tails[place] = task
        task.add_done_callback(lambda done: self._forget(place, done))
        return task

    def _forget(self, place: str, task: asyncio.Task[None]) -> None:
        if self._tails.get(place) is task:
            del self._tails[place]

    async def _in_order(
        self,
        before: asyncio.Task[None] | None,
        kind: str,
        body: dict[str, Any],
        acknowledge: Acknowledge,
    ) -> None:
        if before is not None:
            await asyncio.wait([before])
        workspace = self._workspace(_team(body))
        if workspace is None:
            logger.bind(channel=NAME).debug("event of an unknown workspace")
            await acknowledge(None)
            return
        if kind == "events_api":
            await self._event(body, workspace, acknowledge)
        elif kind == "interactive":
            await acknowledge(None)
            await self._press(body, workspace)
        elif kind == "slash_commands":
            await self._command(body, workspace, acknowledge)
        else:
            await acknowledge(None)

    # -- events -------------------------------------------------------------------------------

    async def _event(
        self, body: dict[str, Any], workspace: Workspace, acknowledge: Acknowledge
    ) -> None:
        event = mapping(body.get("event"))
        if string(event, "type") == "app_home_opened":
            await acknowledge(None)
            await self._home(string(event, "user"), workspace)
            return
        bot_user = workspace.identity.bot_user
        found = translate(body, bot_user=bot_user)
        message = found.message if isinstance(found, Edit) else found
        if isinstance(message, Message) and message.user_ids:
            names = await self._names(message.user_ids, workspace)
            found = translate(body, bot_user=bot_user, names=names)
        try:
            match found:
                case Message():
                    await self._message(found, workspace)
                case Edit():
                    await self._edit(found, workspace)
                case Delete():
                    await self._host.take_back(self._chat(found), found.ts)
                case Ignored():
                    pass
        except Refused as refusal:
            if refusal.code in TRY_AGAIN:
                return
        await acknowledge(None)

    async def _message(self, message: Message, workspace: Workspace) -> None:
        chat_id = self._chat(message)
        decision = decide(message, self._policy(), await self._facts(message, chat_id, workspace))
        if isinstance(decision, Deny):
            await self._deny(decision, message.channel, message.user, workspace)
        if not isinstance(decision, Answer):
            return
        self._count_bots(chat_id, is_bot=bool(message.bot_id))
        try:
            await self._host.receive(await self._inbound(message, chat_id, workspace))
        except Refused as refusal:
            if refusal.code not in TRY_AGAIN:
                self._tell(refusal, message, workspace)
            raise

    async def _inbound(
        self, message: Message, chat_id: str, workspace: Workspace, id: str = ""
    ) -> Inbound:
        names = await self._names([message.user] if message.user else [], workspace)
        sender = Sender(message.user or message.bot_id, names.get(message.user, ""))
        media = [
            {"name": file.name, "mime": file.mime, "size": file.size, "source": _source(file)}
            for file in message.files
        ]
        return Inbound(
            channel=NAME,
            chat_id=chat_id,
            id=id or message.ts,
            sender=sender,
            text=message.text,
            media=media,
        )

    async def _edit(self, edit: Edit, workspace: Workspace) -> None:
        message = edit.message
        chat_id = self._chat(message)
        facts = await self._facts(message, chat_id, workspace)
        if is_self(message, facts):
            return
        if not isinstance(decide(message, self._policy(), facts), Answer):
            return
        name = f"{message.ts}/{edit.edited_ts}"
        await self._host.edit(await self._inbound(message, chat_id, workspace, name), message.ts)

    async def _facts(self, message: Message, chat_id: str, workspace: Workspace) -> Facts:
        engaged = False
        if message.thread_ts and not message.is_dm:
            seconds = await self._host.last_active(chat_id)
            engaged = seconds is not None and seconds < ENGAGED_SECONDS
        return workspace.identity.facts(
            engaged=engaged, external=False, bot_streak=self._streaks.get(chat_id, 0)
        )

    def _count_bots(self, chat_id: str, *, is_bot: bool) -> None:
        """Two bots that answer each other must come to an end."""
        if not is_bot:
            self._streaks.pop(chat_id, None)
            return
        self._streaks[chat_id] = self._streaks.get(chat_id, 0) + 1
        self._streaks.move_to_end(chat_id)
        if len(self._streaks) > MOST_DENIED:
            self._streaks.popitem(last=False)

    def _chat(self, where: Message | Delete) -> str:
        team = where.team if self._name_team() else None
        return keys.chat_id(
            where.channel, where.ts, where.thread_ts, channel_type=where.channel_type, team=team
        )

    async def _names(self, ids: Any, workspace: Workspace) -> dict[str, str]:
        """Never holds an acknowledgement up for long."""
        try:
            async with asyncio.timeout(NAMES_SECONDS):
                return await workspace.people.names(ids)
        except TimeoutError:
            return {}

    # -- telling people -----------------------------------------------------------------------

    async def _deny(self, deny: Deny, channel: str, user: str, workspace: Workspace) -> None:
        logger.bind(channel=NAME, user=user, reason=deny.reason).info("message rejected")
        now = time.monotonic()
        if not deny.notify or self._denied.get(user, 0.0) > now:
            return
        self._denied[user] = now + DENIED_EVERY_SECONDS
        if len(self._denied) > MOST_DENIED:
            self._denied.popitem(last=False)
        self._whisper(blocks.notice(blocks.DENIED[deny.reason]), channel, user, None, workspace)

    def _tell(self, refusal: Refused, message: Message, workspace: Workspace) -> None:
        hint = ""
        if refusal.retry_after:
            hint = f"Try again in {refusal.retry_after:.0f} seconds."
        payload = blocks.error(refusal.message, hint)
        thread = message.thread_ts
        self._whisper(payload, message.channel, message.user, thread, workspace)

    def _whisper(
        self,
        payload: blocks.Payload,
        channel: str,
        user: str,
        thread: str | None,
        workspace: Workspace,
    ) -> None:
        """Only the one person sees it. Best effort, beside everything else."""
        args = {**payload, "channel": channel, "user": user}
        if thread is not None:
            args["thread_ts"] = thread

        async def post() -> None:
            try:
                await workspace.api.call("chat.postEphemeral", args)
            except SlackError as error:
                logger.bind(channel=NAME, error=error.error).debug("notice not shown")

        self._tasks.spawn(post(), "notice")

    async def _home(self, user: str, workspace: Workspace) -> None:
        view = blocks.home(self._status(workspace))
        try:
            await workspace.api.call("views.publish", {"user_id": user, "view": view})
        except SlackError as error:
            logger.bind(channel=NAME, error=error.error).debug("home not shown")

    # -- buttons and commands -----------------------------------------------------------------

    async def _press(self, body: dict[str, Any], workspace: Workspace) -> None:
        if string(body, "type") != "block_actions":
            return
        user = mapping(body.get("user"))
        container = mapping(body.get("container"))
        channel = string(mapping(body.get("channel")), "id") or string(container, "channel_id")
        action = Action(channel=channel, user=string(user, "id"), user_team=string(user, "team_id"))
        message = mapping(body.get("message"))
        ts = string(message, "ts") or string(container, "message_ts")
        thread = string(message, "thread_ts") or string(container, "thread_ts") or None
        decision = decide(
            action,
            self._policy(),
            workspace.identity.facts(engaged=True, external=False, bot_streak=0),
        )
        if isinstance(decision, Deny):
            await self._deny(decision, channel, action.user, workspace)
            return
        team = workspace.identity.team if self._name_team() else None
        chat_id = keys.chat_id(channel, ts, thread, team=team)
        for pressed in mappings(body.get("actions")):
            await self._act(pressed, chat_id, action, thread, workspace)

    async def _act(
        self,
        pressed: dict[str, Any],
        chat_id: str,
        action: Action,
        thread: str | None,
        workspace: Workspace,
    ) -> None:
        which, delivery = string(pressed, "action_id"), string(pressed, "value")
        try:
            if which == blocks.STOP:
                if not await self._host.stop(chat_id, delivery):
                    notice = blocks.notice("This answer is already finished.")
                    self._whisper(notice, action.channel, action.user, thread, workspace)
            elif which == blocks.REGENERATE:
                # Pressed twice it is wanted once: the new answer has a button of its own.
                wish = Inbound(
                    channel=NAME,
                    chat_id=chat_id,
                    id=f"regenerate/{delivery}",
                    sender=Sender(action.user),
                    text="",
                    regenerate=True,
                )
                await self._host.regenerate(wish, delivery)
            elif which in (blocks.GOOD, blocks.BAD):
                good = which == blocks.GOOD
                await self._host.feedback(chat_id, delivery, action.user, good=good)
                notice = blocks.notice("Thank you.")
                self._whisper(notice, action.channel, action.user, thread, workspace)
        except Refused as refusal:
            notice = blocks.error(refusal.message)
            self._whisper(notice, action.channel, action.user, thread, workspace)

    async def _command(
        self, body: dict[str, Any], workspace: Workspace, acknowledge: Acknowledge
    ) -> None:
        """`/parley new`: acts on the direct message it is typed in; it carries no thread."""
        channel, user = string(body, "channel_id"), string(body, "user_id")
        action = Action(channel=channel, user=user, user_team=string(body, "team_id"))
        facts = workspace.identity.facts(engaged=True, external=False, bot_streak=0)
        decision = decide(action, self._policy(), facts)
        if isinstance(decision, Deny):
            await acknowledge({**blocks.notice(blocks.DENIED[decision.reason])})
            return
        words = string(body, "text").strip() or "help"
        if not action.is_dm and words != "help":
            hint = f"Write `!{words}` in the thread it is meant for."
            await acknowledge(blocks.notice("This command has no thread here.", hint))
            return
        if not action.is_dm:
            await acknowledge(blocks.notice("Mention me, or write `!help` in one of my threads."))
            return
        team = workspace.identity.team if self._name_team() else None
        chat_id = f"{team}/{channel}" if team else channel
        name = string(body, "trigger_id") or f"{time.time():.6f}"
        inbound = Inbound(
            channel=NAME,
            chat_id=chat_id,
            id=f"command/{name}"[:200],
            sender=Sender(user, string(body, "user_name")),
            text=f"/{words}",
        )
        try:
            await self._host.receive(inbound)
        except Refused as refusal:
            await acknowledge(blocks.error(refusal.message))
            return
        await acknowledge(None)


def _source(file: File) -> dict[str, Any]:
    """Enough to find it again. Its address stays out of the log, which others may read."""
    return {"id": file.id, "problem": file.problem} if file.problem else {"id": file.id}


def _team(body: dict[str, Any]) -> str:
    authorizations = mappings(body.get("authorizations"))
    installed = string(authorizations[0], "team_id") if authorizations else ""
    return installed or string(body, "team_id") or string(mapping(body.get("team")), "id")


def _place(kind: str, body: dict[str, Any]) -> str:
    """What is handled in order: everything of one chat, and of what has none its channel."""
    event = mapping(body.get("event"))
    inner = mapping(event.get("message")) or mapping(event.get("previous_message")) or event
    channel = string(event, "channel") or string(body, "channel_id")
    channel = channel or string(mapping(body.get("channel")), "id")
    ts = string(inner, "thread_ts") or string(inner, "ts")
    return f"{_team(body)}/{channel}" + ("" if channel.startswith("D") else f":{ts}")
