"""Logs: one event per line, a fixed short text and fields, no secret.

`text` is for people, `json` for programs. The last events stay in memory for `/api/v1/logs`. What
other libraries log through the standard library comes out the same way.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from loguru import logger

from gateway.config import ConfigError, LoggingSettings, Settings
from gateway.log_output import Output
from gateway.redaction import Redactor, secrets_in, secrets_in_environment
from sessions import clock

if TYPE_CHECKING:
    from loguru import Message, Record

RECENT_EVENTS = 1_000
LINE = "line"
"""The field that carries the finished line from the formatter to the output."""

# What these say below a warning is of use only to somebody who looks for a fault in them.
QUIET_LIBRARIES = (
    "asyncio",
    "httpcore",
    "httpx",
    "httpx2",
    "urllib3",
    "uvicorn",
    "uvicorn.access",
    "uvicorn.asgi",
    "websockets",
)
# What these warn of is what a client sent; anybody could fill the log with it.
SILENT_LIBRARIES = ("python_multipart", "uvicorn.error")
_STANDARD = {"TRACE": 5}


class Logs:
    def __init__(self) -> None:
        self.recent: deque[dict[str, Any]] = deque(maxlen=RECENT_EVENTS)
        self._redactor = Redactor()
        self._output: Output | None = None
        self._json = False
        self._handler: int | None = None

    def configure(self, settings: Settings) -> None:
        """Again after every change of the settings. Raises ConfigError; then nothing changes."""
        self._redactor = Redactor([*secrets_in(settings), *secrets_in_environment()])
        try:
            handler = self._add(settings.logging)
        except (ValueError, OSError) as error:
            raise ConfigError([f"logging: {error}"]) from error
        self._json = settings.logging.format == "json"
        if self._handler is None:
            logger.remove(0)
        else:
            logger.remove(self._handler)
        self._handler = handler
        intercept(settings.logging.level)

    def _add(self, wanted: LoggingSettings) -> int:
        options: dict[str, Any] = {
            "level": wanted.level,
            "format": self._format,
            "backtrace": False,
            "diagnose": False,
            "catch": True,
        }
        if wanted.file is None:
            self._output = self._output or Output(sys.stderr.fileno())
            return logger.add(self._write, **options)
        path = Path(wanted.file).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        options |= {"rotation": wanted.rotation, "retention": wanted.retention}
        return logger.add(path, encoding="utf-8", errors="backslashreplace", **options)

    def close(self) -> None:
        """Writes out what is still waiting, as far as that can be done at once."""
        if self._output is not None:
            self._output.flush()

    def events(self, least: str, limit: int) -> list[dict[str, Any]]:
        """The newest last."""
        number = logger.level(least).no
        found = [event for event in self.recent if logger.level(event["level"]).no >= number]
        return found[-limit:]

    def _write(self, message: Message) -> None:
        if self._output is not None:
            self._output.write(message.encode("utf-8", "backslashreplace"))

    def _format(self, record: Record) -> str:
        event = self._event(record)
        self.recent.append(event)
        line = as_json(event) if self._json else as_text(event)
        record["extra"][LINE] = line
        return "{extra[line]}\n"

    def _event(self, record: Record) -> dict[str, Any]:
        clean = self._redactor
        event: dict[str, Any] = {
            "ts": clock.now(),
            "level": record["level"].name,
            "event": clean.text(record["message"]),
        }
        for name, value in record["extra"].items():
            if name != LINE and name not in event and value is not None:
                event[name] = clean.field(name, value)
        caught = record["exception"]
        if caught is not None:
            text = traceback.format_exception(caught.type, caught.value, caught.traceback)
            event["exception"] = clean.text("".join(text))
        return event


def as_json(event: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(event).decode()
    except (TypeError, ValueError, OverflowError):
        safe = {name: ascii(value) for name, value in event.items()}
        return msgspec.json.encode(safe).decode()


def as_text(event: dict[str, Any]) -> str:
    fields = [
        f"{_one_line(name)}={_shown(value)}"
        for name, value in event.items()
        if name not in ("ts", "level", "event", "exception")
    ]
    head = f"{event['ts']} {event['level']:<7} {_one_line(event['event'])}"
    line = " ".join([head, *fields])
    trace = event.get("exception")
    if trace is not None:
        line += "".join(f"\n    {_one_line(part)}" for part in trace.rstrip().split("\n"))
    return line


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else as_json_value(value)
    plain = text and text.isprintable() and not any(sign in text for sign in ' "=')
    return text if plain else as_json_value(text)


def as_json_value(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError):
        return ascii(value)


def _one_line(text: str) -> str:
    """Nobody writes a line of their own into the log, or moves the cursor of who reads it."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


# -- what other libraries log ------------------------------------------------------------------


class Intercept(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            level: str | int = logger.level(record.levelname).name
        except ValueError:
            level = record.levelno
        logger.opt(exception=record.exc_info).bind(logger=record.name).log(
            level, "{}", record.getMessage()
        )


def intercept(level: str) -> None:
    number = _STANDARD.get(level) or logging.getLevelNamesMapping()[level]
    logging.basicConfig(handlers=[Intercept()], level=number, force=True)
    quiet = number if level == "TRACE" else max(number, logging.WARNING)
    silent = number if level == "TRACE" else logging.ERROR
    for name in (*QUIET_LIBRARIES, *SILENT_LIBRARIES):
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
        library.setLevel(silent if name in SILENT_LIBRARIES else quiet)
    logging.captureWarnings(True)
