"""The names of people, asked once and kept for a while."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import msgspec

from channels.slack.api import Api, SlackError
from channels.slack.fields import mapping, string

KEEP_SECONDS = 3_600.0
RETRY_SECONDS = 60.0
MOST = 10_000


class Person(msgspec.Struct, frozen=True):
    name: str = ""
    external: bool = False
    """A guest from another organisation."""
    until: float = 0.0


class People:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: OrderedDict[str, Person] = OrderedDict()

    async def names(self, ids: Iterable[str]) -> dict[str, str]:
        """Those that are known; whoever is missing is called by the id."""
        found = {user: (await self.person(user)).name for user in ids}
        return {user: name for user, name in found.items() if name}

    async def person(self, user: str) -> Person:
        known = self._known.get(user)
        if known is not None and known.until > time.monotonic():
            return known
        try:
            answer = await self._api.call("users.info", {"user": user}, form=True)
            person = _person(mapping(answer.get("user")))
        except SlackError:
            old = known or Person()
            person = Person(old.name, old.external, time.monotonic() + RETRY_SECONDS)
        self._known[user] = person
        self._known.move_to_end(user)
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        return person


def _person(user: dict[str, Any]) -> Person:
    profile = mapping(user.get("profile"))
    name = string(profile, "display_name") or string(profile, "real_name") or string(user, "name")
    return Person(name, user.get("is_stranger") is True, time.monotonic() + KEEP_SECONDS)
