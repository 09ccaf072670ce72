"""Slack: whether both tokens work, what they may do, and who else uses them.

Nothing is posted and nothing acknowledged. A socket is opened for a moment only if no gateway runs
on these settings: while it is open Slack may send it an event, which then comes again later.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from channels.slack.api import Api, Away, Fatal, Limited, Rejected, SlackError, Unclear
from channels.slack.fields import mapping, string
from channels.slack.workspace import REQUIRED, SCOPES, Identity, identity
from gateway.config import LOOPBACK, SlackSettings
from gateway.doctor import network
from gateway.doctor.check import Facts, Result, fail, ok, warn
from gateway.slack import options

STEP_SECONDS = 10.0
ALL_SECONDS = 45.0
MOST_CHANNELS = 50
MORE_SCOPES: Mapping[str, frozenset[str]] = {
    "private channels": frozenset({"groups:history"}),
    "group messages": frozenset({"mpim:history"}),
    "memberships": frozenset({"channels:read", "groups:read"}),
}
REINSTALL = "add it under OAuth & Permissions of the app, then reinstall the app"
FIXES = {
    "invalid_auth": "copy it again from the app's pages; see docs/slack.md",
    "not_authed": "copy it again from the app's pages; see docs/slack.md",
    "account_inactive": "install the app in the workspace again and copy the new token",
    "token_revoked": "install the app in the workspace again and copy the new token",
    "token_expired": "turn token rotation off for the app and copy the new token",
    "not_allowed_token_type": "bot_token begins with xoxb-, app_token with xapp-",
    "link_disabled": "turn Socket Mode on in the app's settings",
}

Names = dict[str, Api]
"""The workspaces by team id; "" is the only one."""


def slack(facts: Facts) -> Iterator[Result]:
    settings = facts.settings.channels.slack
    if settings.enabled:
        yield from asyncio.run(_within(facts, settings))


async def _within(facts: Facts, settings: SlackSettings) -> list[Result]:
    found: list[Result] = []
    try:
        async with asyncio.timeout(ALL_SECONDS):
            await _examine(facts, settings, found)
    except TimeoutError:
        detail = f"not everything could be asked within {ALL_SECONDS:.0f} s"
        found.append(warn("slack", detail, "run this again"))
    return found


async def _examine(facts: Facts, settings: SlackSettings, found: list[Result]) -> None:
    chosen = options(settings)
    local = urlsplit(settings.api_base_url).hostname in LOOPBACK
    async with aiohttp.ClientSession(trust_env=not local) as session:
        apps: set[str] = set()
        workspaces: Names = {}
        for team, token in chosen.bot_tokens.items():
            api = Api(token, settings.api_base_url, session)
            app = await _bot(api, team, found)
            if app is not None:
                workspaces[team] = api
                apps.add(app)
        if settings.mode == "http":
            found.append(ok("slack events", "they come as requests to /slack/events"))
        else:
            app_token = Api(chosen.app_token, settings.api_base_url, session)
            found += await _socket(facts, app_token, apps, local=local)
        await _memberships(settings, workspaces, found)


# -- a bot token --------------------------------------------------------------------------------


async def _bot(api: Api, team: str, found: list[Result]) -> str | None:
    """The id of its app, empty if Slack does not tell; None if the token does not work."""
    name = f"slack bot token {team}".strip()
    try:
        async with asyncio.timeout(STEP_SECONDS):
            answer = await api.call("auth.test", form=True)
    except (SlackError, TimeoutError) as error:
        found.append(_refusal(name, error))
        return None
    who = identity(answer)
    if team and who.team and team != who.team:
        detail = f"it belongs to workspace {who.team}"
        found.append(fail(name, detail, f"move it to workspaces.{who.team}"))
        return None
    shown = f"{string(answer.data, 'user') or who.bot_user} in {string(answer.data, 'team')}"
    found.append(ok(name, f"{shown} ({who.team})"))
    found += _scopes(f"slack scopes {team}".strip(), who)
    return who.app_id or await _app_id(api, who)


def _scopes(name: str, who: Identity) -> Iterator[Result]:
    if who.scopes is None:
        yield ok(name, "Slack does not tell which there are")
        return
    lacking = {"answers": REQUIRED, **SCOPES, **MORE_SCOPES}
    missing = {feature: needed - who.scopes for feature, needed in lacking.items()}
    for feature, scopes in missing.items():
        if scopes:
            detail = f"missing {', '.join(sorted(scopes))}: {feature} will not work"
            verdict = fail if scopes & REQUIRED else warn
            yield verdict(name, detail, REINSTALL)
    if not any(missing.values()):
        yield ok(name, f"all that is needed, {len(who.scopes)} in all")


async def _app_id(api: Api, who: Identity) -> str:
    try:
        async with asyncio.timeout(STEP_SECONDS):
            answer = await api.call("bots.info", {"bot": who.bot_id}, form=True)
    except (SlackError, TimeoutError):
        return ""
    return string(mapping(answer.get("bot")), "app_id")


# -- the app token ------------------------------------------------------------------------------


async def _socket(facts: Facts, app: Api, bots: set[str], *, local: bool) -> list[Result]:
    running = await asyncio.to_thread(network.readiness, facts)
    if running is not None:
        return [_connected(running), *_same_app(bots, _named(app.token))]
    if facts.owner is not None:
        detail = "not tried: the process that holds the data directory may be connected"
        return [warn("slack socket", detail, "run this again when it serves or has ended")]
    try:
        hello = await _dial(app, local=local)
    except (SlackError, WebSocketException, OSError, ValueError, TimeoutError) as error:
        return [_refusal("slack app token", error), *_same_app(bots, _named(app.token))]
    told = string(mapping(hello.get("connection_info")), "app_id")
    return [_greeted(hello.get("num_connections")), *_same_app(bots, told or _named(app.token))]


async def _dial(app: Api, *, local: bool) -> dict[str, Any]:
    """The `hello` of a socket that is closed at once. What else it is sent is not acknowledged."""
    async with asyncio.timeout(STEP_SECONDS):
        ticket = await app.call("apps.connections.open", form=True)
    url = ticket.get("url")
    if not isinstance(url, str):
        raise Away("no socket address")
    proxy: Literal[True] | None = None if local else True
    dialled = connect(url, proxy=proxy, open_timeout=STEP_SECONDS, close_timeout=1)
    async with dialled as socket, asyncio.timeout(STEP_SECONDS):
        while True:
            frame = mapping(json.loads(await socket.recv()))
            if string(frame, "type") == "hello":
                return frame


def _greeted(count: object) -> Result:
    others = count - 1 if isinstance(count, int) else 0
    return _shared(others) if others > 0 else ok("slack socket", "Slack says hello; no other")


def _shared(others: int) -> Result:
    whom = "another process is" if others == 1 else f"{others} other processes are"
    detail = f"{whom} connected as this app: each event reaches only one of you"
    return warn("slack socket", detail, "stop the other one, or give it an app of its own")


def _connected(running: dict[str, Any]) -> Result:
    """By the word of the gateway itself: a second socket would take events from it."""
    name, state = "slack socket", mapping(mapping(running.get("channels")).get("slack"))
    if not state:
        fix = "restart it to use these settings"
        return warn(name, "the running gateway has no Slack channel", fix)
    status, refused = string(state, "state"), mapping(state.get("refused"))
    reason = string(state, "reason") or ", ".join(f"{team} {why}" for team, why in refused.items())
    detail = f"the running gateway is {status}" + (f": {reason}" if reason else "")
    if status == "failed":
        return fail(name, detail, FIXES.get(reason, "correct it, then restart the gateway"))
    if status != "connected":
        return warn(name, detail, "look at its log and at the tokens above")
    others = state.get("other_processes")
    return _shared(others) if isinstance(others, int) and others else ok(name, detail)


def _named(token: str) -> str:
    """The app an app token names: xapp-1-A0123-…"""
    parts = token.split("-")
    return parts[2] if len(parts) > 3 and parts[2].startswith("A") else ""


def _same_app(bots: set[str], app: str) -> Iterator[Result]:
    known = sorted(filter(None, bots))
    if not app or not known:
        return
    if known == [app]:
        yield ok("slack app", f"both tokens belong to {app}")
    else:
        detail = f"app_token belongs to {app}, bot_token to {', '.join(known)}"
        yield fail("slack app", detail, "take both tokens from the same app")


# -- channels -----------------------------------------------------------------------------------


async def _memberships(settings: SlackSettings, workspaces: Names, found: list[Result]) -> None:
    wanted = dict.fromkeys([*settings.channels, *settings.overrides])
    named = [channel for channel in wanted if channel != "*"]
    for channel in named[:MOST_CHANNELS] if workspaces else ():
        answers = [await _member(api, channel) for api in workspaces.values()]
        found.append(min(answers, key=lambda one: one.status != "ok"))


async def _member(api: Api, channel: str) -> Result:
    name, invite = f"slack channel {channel}", "write /invite @ and the bot's name in that channel"
    try:
        async with asyncio.timeout(STEP_SECONDS):
            answer = await api.call("conversations.info", {"channel": channel}, form=True)
    except Rejected as error:
        if error.error == "channel_not_found":
            detail = "not found: a wrong id, or a private channel without the bot"
            return warn(name, detail, f"see whether the id is right; {invite}")
        return _refusal(name, error)
    except (SlackError, TimeoutError) as error:
        return _refusal(name, error)
    facts = mapping(answer.get("channel"))
    if facts.get("is_archived") is True:
        return warn(name, "it is archived", "take it out of the settings")
    if facts.get("is_member") is True or facts.get("is_im") is True:
        return ok(name, f"the bot is a member of {string(facts, 'name') or channel}")
    return warn(name, "the bot is not a member, so nothing is heard there", invite)


# -- what Slack's refusals mean -----------------------------------------------------------------


def _refusal(name: str, error: Exception) -> Result:
    if isinstance(error, Fatal):
        return fail(name, f"Slack refuses it: {error.error}", FIXES.get(error.error, REINSTALL))
    if isinstance(error, Limited):
        fix = f"run this again in {error.retry_after:.0f} s"
        return warn(name, "Slack was asked too often", fix)
    if isinstance(error, Rejected):
        return _rejected(name, error)
    reason = error.error if isinstance(error, Unclear | Away) else str(error)
    fix = "see whether this machine reaches api_base_url, and its proxy; else try again later"
    return fail(name, f"Slack does not answer: {reason or type(error).__name__}", fix)


def _rejected(name: str, error: Rejected) -> Result:
    if error.error != "missing_scope":
        return fail(name, f"Slack refuses it: {error.error}", FIXES.get(error.error, REINSTALL))
    needed = string(error.data, "needed")
    if error.method == "apps.connections.open":
        needed = needed or "connections:write"
        fix = f"make a new app-level token that has {needed} under Basic Information"
        return fail(name, f"missing {needed}", fix)
    return warn(name, f"missing {needed}: it cannot be asked", REINSTALL)
