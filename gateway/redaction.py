"""Secrets are cut out of everything that is logged or shown.

By value, for those the settings and the environment hold; by form, for those that are recognised
wherever they come from: bearer tokens, keys of providers, Slack's tokens, passwords in addresses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, SecretStr

MASK = "***"
SHORTEST = 6
DEEPEST = 6

_SECRET_NAME = re.compile(
    r"(?i)^(?:.*[_-])?(?:authorization|cookie|api[_-]?key|token|secret|passw(?:or)?d)$"
)
_FORMS = (
    r"(?i:\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{6,}",
    r"\bparley_[A-Za-z0-9_-]{20,}",
    r"\bxox[a-z]-[A-Za-z0-9-]{6,}",
    r"\bxapp-[A-Za-z0-9-]{6,}",
    r"\bsk-[A-Za-z0-9_-]{12,}",
    r"(?<=://)[^\s/@:]*:[^\s/@]+(?=@)",
    r"(?i:(?<=[?&]sig=)|(?<=[?&]token=)|(?<=[?&]key=))[^&\s\"']+",
    (
        r"(?i:\b(?:authorization|set-cookie|cookie|x-api-key|api[_-]?key|access[_-]?token|password)"
        r"[\"']?\s*[:=]\s*)(?:[\"'][^\"']+[\"']|(?!\s)[^\"',;)}\]\r\n]+)"
    ),
)


# Nearly every text holds none of these, which is found out ten times as fast.
_MARKS = (
    "bearer",
    "basic",
    "parley_",
    "xox",
    "xapp-",
    "sk-",
    "://",
    "sig=",
    "token",
    "key",
    "authorization",
    "cookie",
    "password",
)
_pattern = re.compile("|".join(_FORMS))


class Redactor:
    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # The longest first: one secret can be the beginning of another.
        known = {text for text in secrets if len(text) >= SHORTEST}
        self._known = sorted(known, key=len, reverse=True)

    def text(self, text: str) -> str:
        for secret in self._known:
            if secret in text:
                text = text.replace(secret, MASK)
        folded = text.lower()
        for mark in _MARKS:
            if mark in folded:
                return _pattern.sub(MASK, text)
        return text

    def value(self, value: Any, depth: int = 0) -> Any:
        """The same for everything inside; what is no plain value becomes text."""
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool | int | float):
            return value
        if depth < DEEPEST and isinstance(value, dict):
            named = ((str(name), item) for name, item in value.items())
            return {name: self.field(name, item, depth + 1) for name, item in named}
        if depth < DEEPEST and isinstance(value, list | tuple | set | frozenset):
            return [self.value(item, depth + 1) for item in value]
        return self.text(str(value))

    def field(self, name: str, value: Any, depth: int = 0) -> Any:
        if is_secret_name(name) and isinstance(value, str | bytes) and value:
            return MASK
        return self.value(value, depth)


@lru_cache(maxsize=1_024)
def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.match(name) is not None


def secrets_in(value: Any) -> Iterator[str]:
    """Every secret of the settings, wherever it stands."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from secrets_in(getattr(value, name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from secrets_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from secrets_in(item)


def secrets_in_environment() -> Iterator[str]:
    """Providers' libraries read their keys from there."""
    for name, value in os.environ.items():
        if is_secret_name(name):
            yield value
