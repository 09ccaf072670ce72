"""One workspace the app is installed in: who we are there, and how we speak."""

from __future__ import annotations

import msgspec

from channels.slack.api import Answered, Api
from channels.slack.fields import string
from channels.slack.pace import Pace
from channels.slack.people import People
from channels.slack.policy import Facts

REQUIRED = frozenset({"chat:write"})
SCOPES: dict[str, frozenset[str]] = {
    "direct messages": frozenset({"im:history"}),
    "mentions": frozenset({"app_mentions:read"}),
    "replies in channels": frozenset({"channels:history"}),
    "names": frozenset({"users:read"}),
    "files from people": frozenset({"files:read"}),
    "files to people": frozenset({"files:write"}),
    "reactions": frozenset({"reactions:write"}),
    "commands": frozenset({"commands"}),
}
"""What each feature needs. Without it the feature is off; the rest works."""


class Identity(msgspec.Struct, frozen=True):
    team: str = ""
    organisation: str = ""
    bot_user: str = ""
    bot_id: str = ""
    app_id: str = ""
    scopes: frozenset[str] | None = None
    """None if Slack does not tell."""

    @property
    def missing(self) -> dict[str, frozenset[str]]:
        """Features that are off, and what they lack."""
        if self.scopes is None:
            return {}
        lacking = {name: needed - self.scopes for name, needed in SCOPES.items()}
        return {name: scopes for name, scopes in lacking.items() if scopes}

    def has(self, scope: str) -> bool:
        return self.scopes is None or scope in self.scopes

    def facts(self, *, engaged: bool, external: bool, bot_streak: int) -> Facts:
        teams = frozenset(filter(None, (self.team, self.organisation)))
        return Facts(
            bot_user=self.bot_user,
            bot_id=self.bot_id,
            app_id=self.app_id,
            teams=teams,
            engaged=engaged,
            external=external,
            bot_streak=bot_streak,
        )


def identity(answer: Answered) -> Identity:
    """Of an answer to `auth.test`."""
    scopes = answer.headers.get("x-oauth-scopes")
    return Identity(
        team=string(answer.data, "team_id"),
        organisation=string(answer.data, "enterprise_id"),
        bot_user=string(answer.data, "user_id"),
        bot_id=string(answer.data, "bot_id"),
        app_id=string(answer.data, "app_id"),
        scopes=None
        if scopes is None
        else frozenset(scope.strip() for scope in scopes.split(",") if scope.strip()),
    )


class Workspace:
    def __init__(self, api: Api, edit_seconds: float) -> None:
        self.api = api
        self.identity = Identity()
        """Empty until Slack has told us: then nobody is answered."""
        self.refused = ""
        """Why Slack does not let us in, if it does not."""
        self.pace = Pace(edit_seconds)
        self.people = People(api)
        self.native_refused_until = 0.0
        """Streams are not tried before this moment of the monotonic clock."""

    async def introduce(self) -> Identity:
        """Learns who we are. Raises SlackError."""
        self.identity = identity(await self.api.call("auth.test", form=True))
        return self.identity

    def refuse(self, reason: str) -> None:
        self.identity, self.refused = Identity(), reason
