"""Slack as a channel of the gateway: its life, its health, and its answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection
from typing import Any

import aiohttp
import msgspec
from loguru import logger

from channels.channel import ChannelState, Delivery, Note, Reply, Tasks
from channels.errors import Later, Unavailable, Undeliverable
from channels.slack import context, keys
from channels.slack.api import Api, Fatal, SlackError, jitter
from channels.slack.connection import Connection
from channels.slack.delivery import SlackDelivery
from channels.slack.files import download
from channels.slack.inbound import NAME, Host, Inbox
from channels.slack.policy import Policy
from channels.slack.workspace import REQUIRED, Identity, Workspace

BACKOFF_SECONDS = (1.0, 60.0)
QUIET_SECONDS = 60.0
"""A socket without a sign of life for so long is deaf."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the channel, in its own words."""

    bot_tokens: dict[str, str]
    """By team id; "" is the one workspace whose id is not known beforehand."""
    app_token: str = ""
    api_base_url: str = "https://slack.com/api/"
    socket: bool = True
    streaming: str = "auto"
    edit_seconds: float = 1.2
    reactions: bool = True
    thread_messages: int = 30
    file_bytes: int = 20 * 1024 * 1024


class SlackChannel:
    name = NAME

    def __init__(
        self,
        host: Host,
        options: Options,
        policy: Callable[[], Policy],
        tasks: Callable[[str], Tasks],
    ) -> None:
        self._options = options
        self._make_tasks = tasks
        self._tasks = tasks("slack")
        self._session: aiohttp.ClientSession | None = None
        self._workspaces: dict[str, Workspace] = {}
        self._connection: Connection | None = None
        self._failed = ""
        self._reason = ""
        """Why we do not know yet who we are."""
        self._ready = False
        self._heard = 0.0
        """When an event last came by HTTP."""
        self._host = host
        self._inbox = Inbox(
            host, policy, self._workspace, self._names_teams, self._describe, self._tasks
        )

    # -- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Returns at once: the gateway never waits for Slack."""
        options = self._options
        # Proxies of the environment are for the world outside, which slack.com is.
        self._session = aiohttp.ClientSession(trust_env=not _is_local(options.api_base_url))
        for team, token in options.bot_tokens.items():
            api = Api(token, options.api_base_url, self._session)
            self._workspaces[team] = Workspace(api, options.edit_seconds)
        self._tasks.spawn(self._begin(), "begin")

    async def _begin(self) -> None:
        """Who we are first, then the socket: without it nobody could be answered."""
        attempt = 0
        while not self._ready:
            try:
                for team, workspace in self._workspaces.items():
                    if not workspace.refused and not workspace.identity.bot_user:
                        await self._introduce(team, workspace)
                if all(workspace.refused for workspace in self._workspaces.values()):
                    return
                self._ready = True
            except SlackError as error:
                self._reason = error.error
                first, most = BACKOFF_SECONDS
                pause = min(most, first * 2**attempt) * jitter()
                attempt += 1
                logger.bind(channel=NAME, reason=error.error, retry_after=round(pause, 1)).warning(
                    "channel disconnected"
                )
                await asyncio.sleep(pause)
        if self._options.socket and self._session is not None:
            app = Api(self._options.app_token, self._options.api_base_url, self._session)
            self._connection = Connection(
                app, self._inbox.handle, self._fail, self._make_tasks("slack-socket")
            )
            self._connection.start()
        else:
            logger.bind(channel=NAME).info("channel connected")

    async def _introduce(self, team: str, workspace: Workspace) -> None:
        """A workspace that refuses us does not keep the others from being served."""
        try:
            identity = await workspace.introduce()
            _check(team, identity)
        except Fatal as error:
            workspace.refuse(error.error)
            if all(other.refused for other in self._workspaces.values()):
                self._fail(error.error)
            else:
                logger.bind(channel=NAME, workspace=team, error=error.error).error(
                    "workspace refused"
                )
            return
        for feature, scopes in identity.missing.items():
            logger.bind(channel=NAME, feature=feature, scope=", ".join(sorted(scopes))).warning(
                "scope missing: add it and reinstall the app"
            )

    def _fail(self, reason: str) -> None:
        if not self._failed:
            self._failed = reason
            logger.bind(channel=NAME, error=reason).error("channel failed")

    async def stop_intake(self) -> None:
        self._inbox.open = False
        if self._connection is not None:
            await self._connection.stop()

    async def stop(self) -> None:
        await self.stop_intake()
        await self._tasks.cancel()
        if self._session is not None:
            await self._session.close()

    # -- health -------------------------------------------------------------------------------

    def status(self) -> ChannelState:
        found = self._connection_status()
        refused = {team: one.refused for team, one in self._workspaces.items() if one.refused}
        if not refused or self._failed:
            return found
        # The others are served, but an operator must see it.
        state = "degraded" if found.receives else found.state
        return ChannelState(state, {**found.details, "refused": refused})

    def _connection_status(self) -> ChannelState:
        details: dict[str, Any] = {}
        connection = self._connection
        if self._failed:
            return ChannelState("failed", {"reason": self._failed})
        if self._options.socket and connection is not None:
            details = {
                "sockets": connection.sockets,
                "reconnects": connection.reconnects,
                "last_event_seconds": _age(connection.last_event),
                "last_pong_seconds": _age(connection.last_pong),
            }
            if connection.others:
                details["other_processes"] = connection.others
            if connection.state != "connected":
                details["reason"] = connection.reason
                return ChannelState("degraded", details)
            if (details["last_pong_seconds"] or 0) > QUIET_SECONDS:
                return ChannelState("degraded", {**details, "reason": "no pong"})
            return ChannelState("connected", details)
        if self._reason and not self._ready:
            return ChannelState("degraded", {"reason": self._reason})
        if not self._ready or self._options.socket:
            return ChannelState("starting")
        return ChannelState("connected", {"last_event_seconds": _age(self._heard)})

    def _describe(self, workspace: Workspace) -> str:
        """For people who look at the app's Home."""
        state = self.status()
        said = [state.state]
        if reason := state.details.get("reason"):
            said.append(str(reason))
        for feature, scopes in workspace.identity.missing.items():
            said.append(f"no {feature} (the scope {', '.join(sorted(scopes))} is missing)")
        return "; ".join(said)

    # -- traffic ------------------------------------------------------------------------------

    async def take(self, envelope: dict[str, Any]) -> dict[str, Any] | None:
        """An envelope made of an HTTP request: what to answer it with, once it is stored.

        Raises Later if it was not: then Slack brings it again.
        """
        if not self._ready or not self._inbox.open:
            raise Later("not ready")
        self._heard = time.monotonic()
        answer: asyncio.Future[dict[str, Any] | None] = asyncio.get_running_loop().create_future()

        async def acknowledge(payload: dict[str, Any] | None) -> None:
            if not answer.done():
                answer.set_result(payload)

        work = self._inbox.begin(envelope, acknowledge)
        either: set[asyncio.Future[Any]] = {work, answer}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Later("not stored")
        return answer.result()

    def open(self, reply: Reply, note: Note) -> Delivery:
        try:
            where = keys.address(reply.chat_id)
        except ValueError as error:
            raise Undeliverable(str(error)) from error
        workspace = self._workspace(where.team or "")
        if workspace is None:
            raise Undeliverable(f"workspace {where.team} is not configured")
        options = self._options
        return SlackDelivery(
            workspace,
            reply,
            note,
            self._tasks,
            options.streaming,
            self._host.file,
            reactions=options.reactions,
        )

    def place(self, id: str) -> str | None:
        ts = context.original(id)
        return context.order(ts) if keys.is_ts(ts) else None

    def fetch(self, chat_id: str, item: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        workspace = self._workspace(keys.address(chat_id).team or "")
        if workspace is None:
            raise Unavailable("its workspace is not configured any more")
        options = self._options
        return download(
            workspace, item, api_base_url=options.api_base_url, limit=options.file_bytes
        )

    async def surroundings(self, chat_id: str, id: str, known: Collection[str]) -> str:
        where = keys.address(chat_id)
        workspace = self._workspace(where.team or "")
        if workspace is None:
            return ""
        most = self._options.thread_messages
        return await context.surroundings(workspace, where, id, known, most)

    def _names_teams(self) -> bool:
        return len(self._workspaces) > 1

    def _workspace(self, team: str) -> Workspace | None:
        if len(self._workspaces) == 1:
            return next(iter(self._workspaces.values()))
        found = self._workspaces.get(team)
        if found is not None:
            return found
        return next((w for w in self._workspaces.values() if w.identity.team == team), None)


def _check(team: str, identity: Identity) -> None:
    """Raises Fatal."""
    lacking = REQUIRED - (identity.scopes if identity.scopes is not None else REQUIRED)
    if lacking:
        raise Fatal(f"missing_scope: {', '.join(sorted(lacking))}; reinstall the app")
    if team and identity.team != team:
        raise Fatal(f"the token of workspaces.{team} belongs to {identity.team or 'another one'}")


def _age(moment: float) -> float | None:
    return round(time.monotonic() - moment, 1) if moment else None


def _is_local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1", "http://localhost", "http://[::1]"))
