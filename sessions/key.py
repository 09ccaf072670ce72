"""The name of a session: `channel:chat_id`, and `channel:chat_id#n` for an ended conversation.

Three forms, each lossless:

- parts: `channel` (1-64 bytes) and `chat_id` (1-512 bytes of UTF-8, any characters);
- text: `%`, `/`, `#` and control characters of the chat part are percent-encoded, so that the
  text is one line, one path segment and never looks like an ended conversation by accident;
- file: a directory and a stem of ASCII letters, digits and `._=+@,-%`. A stem that would be too
  long for a file system ends in `~` and a hash; the key is then only inside the file.
"""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote_to_bytes

import msgspec

from sessions.errors import InvalidKey

MAX_CHANNEL_BYTES = 64
MAX_CHAT_BYTES = 512
MAX_STEM_BYTES = 200

_TEXT_UNSAFE = re.compile(r"[%/#\x00-\x1f\x7f-\x9f]")
_CHANNEL_UNSAFE = re.compile(r"[:%/#\x00-\x1f\x7f-\x9f]")
_FILE_UNSAFE = re.compile(r"[^A-Za-z0-9._=+@,-]")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def _unpercent(text: str, whole: str) -> str:
    if _ESCAPE.search(text):
        raise InvalidKey(whole, "a % must be followed by two hexadecimal digits")
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError as error:
        raise InvalidKey(whole, "the percent-encoded bytes are not UTF-8") from error
    except UnicodeEncodeError as error:
        raise InvalidKey(whole, "it is not valid Unicode") from error


class SessionKey(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    channel: str
    chat_id: str
    conversation: int | None = None

    def __post_init__(self) -> None:
        if not self.channel or _CHANNEL_UNSAFE.search(self.channel):
            raise InvalidKey(
                self.channel, "a channel is a non-empty name without : % / # or controls"
            )
        self._check_bytes("channel", self.channel, MAX_CHANNEL_BYTES)
        if not self.chat_id:
            raise InvalidKey(self.channel, "the chat id after the first : is empty")
        self._check_bytes("chat id", self.chat_id, MAX_CHAT_BYTES)
        if self.conversation is not None and self.conversation < 1:
            raise InvalidKey(str(self.conversation), "conversations are numbered from 1")

    @staticmethod
    def _check_bytes(part: str, text: str, limit: int) -> None:
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidKey(text, f"the {part} is not valid Unicode") from error
        if size > limit:
            raise InvalidKey(text, f"the {part} has {size} bytes, at most {limit} are allowed")

    @classmethod
    def parse(cls, text: str) -> SessionKey:
        channel, colon, rest = text.partition(":")
        if not colon:
            raise InvalidKey(text, "it has the form channel:chat_id")
        chat, mark, number = rest.partition("#")
        if mark and not _NUMBER.fullmatch(number):
            raise InvalidKey(text, "after # stands the number of a conversation")
        return cls(channel, _unpercent(chat, text), int(number) if mark else None)

    @classmethod
    def from_file(cls, directory: str, stem: str) -> SessionKey | None:
        """The key a file of ours was named after; None if the name is shortened or not ours."""
        try:
            key = cls(_unpercent(directory, directory), _unpercent(stem, stem))
        except InvalidKey:
            return None
        return key if (key.directory, key.stem) == (directory, stem) else None

    def __str__(self) -> str:
        text = f"{self.channel}:{_TEXT_UNSAFE.sub(_percent, self.chat_id)}"
        return text if self.conversation is None else f"{text}#{self.conversation}"

    @property
    def chat(self) -> SessionKey:
        """The key of the whole chat an ended conversation belongs to."""
        return self if self.conversation is None else SessionKey(self.channel, self.chat_id)

    @property
    def directory(self) -> str:
        return _file_name(self.channel)

    @property
    def stem(self) -> str:
        name = _file_name(self.chat_id)
        return name if len(name) <= MAX_STEM_BYTES else self.hashed_stem

    @property
    def hashed_stem(self) -> str:
        """The stem used when `stem` is too long, or taken by a key that differs only in case."""
        digest = hashlib.sha256(str(self.chat).encode()).hexdigest()[:32]
        return f"{_file_name(self.chat_id)[: MAX_STEM_BYTES - 33]}~{digest}"


def _file_name(text: str) -> str:
    name = _FILE_UNSAFE.sub(_percent, text)
    return "%2E" + name[1:] if name.startswith(".") else name
