"""Settings: what they are, where they come from, and what is wrong with them.

`--config`, else `$PARLEY_CONFIG`, else `./config.yaml`, else the defaults. Environment variables
override the file (`PARLEY_SERVER__PORT=9000`), options of the command line override both. Settings
are frozen; unknown keys and wrong types are errors. Secrets are never shown.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

DEFAULT_FILE = Path("config.yaml")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
DEFAULT_CONTEXT_WINDOW = 256_000
LEGACY_CONTEXT_WINDOW = 8_000
DEFAULT_HISTORY_MESSAGES = 120

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class ConfigError(Exception):
    """The settings cannot be used. One line per problem."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(self.problems)


class Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True
    )


class ServerSettings(Section):
    host: str = "127.0.0.1"
    """Address to listen on. Anything but loopback needs `auth.mode` token or proxy."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8765
    """Port to listen on; 0 takes a free one."""
    allowed_hosts: list[str] = []
    """Host names a request may name besides loopback, for instance chat.example.org."""
    allowed_origins: list[str] = []
    """Origins besides the page's own that may change anything, for instance https://app.example.org."""
    shutdown_seconds: PositiveFloat = 20
    """How long a stop waits for running turns."""
    secret: SecretStr | None = None
    """Signs media links; made once and kept in <data_dir>/secret if not given."""


class AuthSettings(Section):
    mode: Literal["none", "token", "proxy"] = "none"
    """none: one local user, loopback only. token: `parley token`. proxy: a proxy names the user."""
    header: str = "X-Forwarded-User"
    """proxy: the header that names the user."""
    trusted_peers: list[str] = []
    """proxy: addresses (CIDR) of the proxies whose header is believed."""
    admins: list[str] = []
    """proxy: users who are administrators."""

    @field_validator("trusted_peers")
    @classmethod
    def _networks(cls, value: list[str]) -> list[str]:
        for item in value:
            ipaddress.ip_network(item, strict=False)
        return value

    @model_validator(mode="after")
    def _proxy_is_complete(self) -> AuthSettings:
        if self.mode == "proxy" and not self.trusted_peers:
            raise ValueError("mode proxy needs trusted_peers: the addresses of your proxy")
        return self


class StorageSettings(Section):
    url: str = "jsonl:"
    """jsonl: (files in data_dir) or memory: (nothing is kept)."""
    sync: Literal["none", "interval", "turn"] = "interval"
    """When bytes are forced to the disk; see docs/storage.md."""
    sync_seconds: PositiveFloat = 0.5
    """interval: at most this much can be lost to a power failure."""
    allow_network: bool = False
    """Accept a network file system although its locks and syncs are not reliable."""

    @field_validator("url")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ("jsonl:", "memory:"):
            raise ValueError("must be jsonl: or memory:")
        return value


class BusSettings(Section):
    url: Literal["local:"] = "local:"
    """How live events reach clients; local: within this process."""


class SessionSettings(Section):
    file_cap: NonNegativeInt = 2_000
    """Rows a live log may hold before the older ones move to the archive; 0 = no cap."""
    cache_bytes: PositiveInt = 268_435_456
    """Memory for sessions that are kept ready."""
    legacy_dirs: list[str] = ["~/.nanobot/sessions"]
    """Where old session files are looked for the first time a chat is used."""
    max_age_days: NonNegativeFloat = 0
    """Delete sessions nobody touched for so long; 0 = never."""
    resume_max_age: NonNegativeFloat = 3_600
    """Seconds after which an unanswered message is closed with a note instead of answered late."""
    when_busy: Literal["queue", "collect", "interrupt", "reject"] = "queue"
    """What a message does that arrives while its chat's turn is running."""
    mailbox_depth: PositiveInt = 32
    """Messages a chat may have waiting before further ones are refused."""


class LimitSettings(Section):
    text: PositiveInt = 65_536
    """Bytes of text in one message."""
    frame: PositiveInt = 1_048_576
    """Bytes of one WebSocket frame."""
    upload: PositiveInt = 20_971_520
    """Bytes of one uploaded file."""
    media_per_message: PositiveInt = 10
    """Files on one message."""
    messages_per_minute: NonNegativeInt = 60
    """Messages a user may send per minute; 0 = no limit."""
    running_turns: PositiveInt = 64
    """Turns that run at the same time in this process."""
    turn_seconds: PositiveFloat = 300
    """A turn that takes longer is stopped and closed as failed."""
    stream_idle_seconds: PositiveFloat = 120
    """An agent that shows nothing for so long is stopped and its turn closed as failed."""
    connections: PositiveInt = 10_000
    """WebSocket connections at the same time."""


class MemorySettings(Section):
    enabled: bool = False
    """Keep durable facts about users across conversations."""
    max_extract_tokens: PositiveInt = 500
    """Tokens one extraction may produce."""


class ContextSettings(Section):
    history_messages: int = DEFAULT_HISTORY_MESSAGES
    """Messages the model sees at most; 0 or less = 120."""
    context_window: int = DEFAULT_CONTEXT_WINDOW
    """Tokens of the model's window; 0 or less, or the older default 8000, = 256000."""
    max_tokens: int = 32_000
    """Tokens kept free for the answer."""
    strategy: Literal["window", "first+recent"] = "window"
    """What stays when the history is cut: the recent messages, or the first one too."""
    keep_recent: PositiveInt = 40
    """Messages a compaction leaves as they are."""
    soft_ratio: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Share of the window from which facts are moved to memory."""
    hard_ratio: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Share of the window from which older messages become a summary."""
    timestamps: bool = False
    """Show the model when each message was sent."""
    memory: MemorySettings = MemorySettings()

    @field_validator("history_messages")
    @classmethod
    def _messages(cls, value: int) -> int:
        return value if value > 0 else DEFAULT_HISTORY_MESSAGES

    @field_validator("context_window")
    @classmethod
    def _window(cls, value: int) -> int:
        return DEFAULT_CONTEXT_WINDOW if value <= 0 or value == LEGACY_CONTEXT_WINDOW else value


class EchoAgentSettings(Section):
    kind: Literal["echo"]
    """Answers with the user's own words."""
    delay_ms: NonNegativeFloat = 0
    """Pause between two words."""


class McpServerSettings(Section):
    command: str | None = None
    """Program that speaks MCP on its standard input and output."""
    args: list[str] = []
    env: dict[str, SecretStr] = {}
    url: str | None = None
    """Address of an MCP server over HTTP; instead of `command`."""
    headers: dict[str, SecretStr] = {}
    read_only: list[str] = []
    """Tools without side effects: a crashed turn may call them again."""
    allow: list[str] = ["*"]
    """Tools the model may use; patterns."""
    deny: list[str] = []
    """Tools it may not use; patterns, stronger than `allow`."""
    timeout_seconds: PositiveFloat = 60

    @model_validator(mode="after")
    def _one_way(self) -> McpServerSettings:
        if (self.command is None) == (self.url is None):
            raise ValueError("needs either command or url")
        return self


class ModelAgentSettings(Section):
    kind: Literal["model"]
    """A language model."""
    model: str = ""
    """provider:name, for instance openai:gpt-5 or anthropic:claude-sonnet-5."""
    base_url: str | None = None
    """Address of any server that speaks the OpenAI protocol."""
    api_key: SecretStr | None = None
    system_prompt: str = ""
    temperature: float | None = None
    max_tokens: PositiveInt | None = None
    mcp_servers: dict[str, McpServerSettings] = {}
    """Where the model's tools come from."""
    fallback: list[str] = []
    """Agents tried in order when this one cannot answer."""
    retries: NonNegativeInt = 2
    """Tries again before the first word on a connection error, 429 or 5xx."""
    request_seconds: PositiveFloat = 60
    """Longest wait for the first word of one request."""
    extra_headers: dict[str, SecretStr] = {}
    extra_body: dict[str, Any] = {}

    @model_validator(mode="after")
    def _has_model(self) -> ModelAgentSettings:
        if not self.model and self.base_url is None:
            raise ValueError("needs model, for instance openai:gpt-5")
        return self


class WebhookAgentSettings(Section):
    kind: Literal["webhook"]
    """Your own HTTP service."""
    url: Annotated[str, Field(pattern=r"^https?://")]
    """Where each turn is posted to."""
    secret: SecretStr | None = None
    """Key of the signature in Parley-Signature."""
    headers: dict[str, SecretStr] = {}
    connect_seconds: PositiveFloat = 10
    retries: NonNegativeInt = 2
    """Tries again before the first word."""
    fallback: list[str] = []


class PythonAgentSettings(Section):
    kind: Literal["python"]
    """A Python function."""
    path: Annotated[str, Field(pattern=r"^[\w.]+:[\w.]+$")]
    """module:function of an `async def reply(turn)` that yields text."""


AgentSettings = Annotated[
    EchoAgentSettings | ModelAgentSettings | WebhookAgentSettings | PythonAgentSettings,
    Field(discriminator="kind"),
]


class RouteSettings(Section):
    agent: str
    """Agent that answers."""
    channel: str = "*"
    """Pattern of the channel."""
    chat: str = "*"
    """Pattern of the chat id."""
    user: str = "*"
    """Pattern of the sender."""


class WebSocketSettings(Section):
    enabled: bool = True
    ping_seconds: PositiveFloat = 20
    """A connection that does not answer a ping for so long is closed."""
    attachments: PositiveInt = 200
    """Chats one connection may be attached to."""
    frames_per_second: PositiveInt = 200
    """Frames a connection may send on average; more are answered slower."""


class SlackChannelSettings(Section):
    """What one Slack channel does differently."""

    mention: Literal["mention", "strict", "all"] | None = None
    users: list[str] | None = None
    allow_bots: Literal["off", "mentions", "all"] | None = None


class SlackWorkspaceSettings(Section):
    bot_token: SecretStr = SecretStr("")
    """Token of the app in this workspace; begins with xoxb-."""

    @property
    def bot(self) -> str:
        return _bare(self.bot_token)


class SlackSettings(Section):
    enabled: bool = False
    bot_token: SecretStr = SecretStr("")
    """Token of the app in the workspace; begins with xoxb-."""
    app_token: SecretStr = SecretStr("")
    """Token of the socket; begins with xapp-."""
    mode: Literal["socket", "http"] = "socket"
    """How events come: over a socket, or as requests to /slack/events."""
    signing_secret: SecretStr = SecretStr("")
    """Proves that a request of mode `http` is Slack's."""
    api_base_url: str = "https://slack.com/api/"
    dm: Literal["open", "allowlist", "off"] = "open"
    """Who may write direct messages; `allowlist` is those in `users`."""
    channels: list[str] = ["*"]
    """Ids of the channels the bot answers in."""
    users: list[str] = []
    """Ids of the people who are answered; empty is everybody in the workspace."""
    external_users: bool = False
    """Answer people of other workspaces in shared channels."""
    mention: Literal["mention", "strict", "all"] = "mention"
    """mention: a mention, or a reply in a thread the bot takes part in; strict: mentions alone."""
    allow_bots: Literal["off", "mentions", "all"] = "off"
    overrides: dict[str, SlackChannelSettings] = {}
    """By channel id: what it does differently."""
    streaming: Literal["auto", "native", "edit", "off"] = "auto"
    """How a growing answer is shown."""
    edit_seconds: PositiveFloat = 1.2
    """Pause between two edits of a growing answer, times the answers that grow."""
    reactions: bool = True
    """Show that a message is being worked on."""
    thread_messages: NonNegativeInt = 30
    """Earlier messages of a thread the model is shown when the bot is first asked in it."""
    file_bytes: PositiveInt = 20 * 1024 * 1024
    """Largest file taken from a message."""
    workspaces: dict[str, SlackWorkspaceSettings] = {}
    """More workspaces of the same app, by team id."""

    @model_validator(mode="after")
    def _tokens(self) -> SlackSettings:
        if not self.enabled:
            return self
        bot, app = _bare(self.bot_token), _bare(self.app_token)
        if bot.startswith("xapp-") and app.startswith("xoxb-"):
            raise ValueError("bot_token and app_token are swapped: xoxb- is the bot's")
        if not bot.startswith("xoxb-") and not self.workspaces:
            raise ValueError("bot_token must begin with xoxb-")
        if self.mode == "socket" and not app.startswith("xapp-"):
            raise ValueError("app_token must begin with xapp-")
        if self.mode == "http" and not _bare(self.signing_secret):
            raise ValueError("signing_secret is needed in mode http")
        for team, workspace in self.workspaces.items():
            if not _bare(workspace.bot_token).startswith("xoxb-"):
                raise ValueError(f"workspaces.{team}.bot_token must begin with xoxb-")
        return self

    @property
    def bot(self) -> str:
        return _bare(self.bot_token)

    @property
    def app(self) -> str:
        return _bare(self.app_token)


def _bare(secret: SecretStr) -> str:
    """Without the spaces and quotes that come along when a token is copied."""
    return secret.get_secret_value().strip().strip("\"'").strip()


class ChannelSettings(Section):
    websocket: WebSocketSettings = WebSocketSettings()
    slack: SlackSettings = SlackSettings()


class LoggingSettings(Section):
    level: Literal["TRACE", "DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    format: Literal["text", "json"] = "text"
    file: str | None = None
    """Write here instead of to standard error."""
    rotation: str = "50 MB"
    """When the file is rotated: a size, or a time like 00:00."""
    retention: str = "14 days"
    """How long rotated files are kept."""


class Settings(Section):
    data_dir: Path = Path("data")
    """Where everything is kept."""
    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    storage: StorageSettings = StorageSettings()
    bus: BusSettings = BusSettings()
    sessions: SessionSettings = SessionSettings()
    limits: LimitSettings = LimitSettings()
    context: ContextSettings = ContextSettings()
    agents: dict[str, AgentSettings] = {"default": EchoAgentSettings(kind="echo")}
    routes: list[RouteSettings] = []
    """First match wins; without one the agent `default` answers."""
    channels: ChannelSettings = ChannelSettings()
    logging: LoggingSettings = LoggingSettings()

    @model_validator(mode="after")
    def _names_agents(self) -> Settings:
        if "default" not in self.agents:
            raise ValueError("agents: there must be one named default")
        wanted = [(f"routes.{i}.agent", route.agent) for i, route in enumerate(self.routes)]
        for name, agent in self.agents.items():
            others = getattr(agent, "fallback", ())
            wanted.extend((f"agents.{name}.fallback", other) for other in others)
        for place, name in wanted:
            if name not in self.agents:
                raise ValueError(f"{place}: there is no agent named {name!r}")
        return self

    @model_validator(mode="after")
    def _is_protected(self) -> Settings:
        if self.auth.mode == "none" and self.server.host not in LOOPBACK:
            raise ValueError(
                f"server.host: {self.server.host} can be reached from outside, so auth.mode must "
                "be token or proxy"
            )
        return self


LIVE_SECTIONS = ("agents", "routes", "limits", "logging", "context", "sessions")
"""What SIGHUP applies; a change anywhere else needs a restart."""
STORE_SETTINGS = ("file_cap", "cache_bytes", "legacy_dirs")


class _Environment(BaseSettings):
    """Only to read PARLEY_… with the nesting of the settings."""

    model_config = SettingsConfigDict(
        env_prefix="PARLEY_", env_nested_delimiter="__", extra="ignore"
    )
    data_dir: Any = None
    server: dict[str, Any] = {}
    auth: dict[str, Any] = {}
    storage: dict[str, Any] = {}
    bus: dict[str, Any] = {}
    sessions: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    context: dict[str, Any] = {}
    agents: dict[str, Any] = {}
    routes: list[Any] = []
    channels: dict[str, Any] = {}
    logging: dict[str, Any] = {}


def load(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Raises ConfigError with one line per problem."""
    found = find(path)
    values: dict[str, Any] = {} if found is None else _read(found)
    try:
        values = _merge(values, _decoded(EnvSettingsSource(_Environment)()))
    except Exception as error:
        raise ConfigError([f"environment: {error}"]) from error
    values = _merge(values, overrides or {})
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_problems(error)) from error


def _decoded(value: Any) -> Any:
    """A list or an object inside a variable is written as JSON."""
    if isinstance(value, dict):
        return {name: _decoded(item) for name, item in value.items()}
    if isinstance(value, str) and value[:1] in ("[", "{"):
        return yaml.safe_load(value)
    return value


def find(path: Path | None) -> Path | None:
    """The file the settings come from; None if there is none."""
    if path is None and (named := os.environ.get("PARLEY_CONFIG")):
        path = Path(named)
    if path is None:
        return DEFAULT_FILE if DEFAULT_FILE.exists() else None
    return path


def _read(path: Path) -> dict[str, Any]:
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: not valid YAML: {' '.join(str(error).split())}"]) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigError([f"{path}: must hold settings by name"])
    problems: list[str] = []
    result = _interpolate(value, "", problems)
    if problems:
        raise ConfigError([f"{path}: {problem}" for problem in problems])
    return dict(result)


def _interpolate(value: Any, place: str, problems: list[str]) -> Any:
    """Replaces ${NAME} and ${NAME:-default} in every string."""
    if isinstance(value, dict):
        return {
            key: _interpolate(item, f"{place}.{key}" if place else str(key), problems)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_interpolate(item, f"{place}.{i}", problems) for i, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name: str = match[1]
        default: str | None = match[2]
        found = os.environ.get(name, default)
        if found is None:
            problems.append(f"{place}: the environment variable {name} is not set")
            return ""
        return found

    return _VARIABLE.sub(replace, value)


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        known = result.get(key)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            result[key] = _merge(known, value)
        else:
            result[key] = value
    return result


def _problems(error: ValidationError) -> list[str]:
    lines = []
    for item in error.errors(include_url=False, include_input=False):
        place = ".".join(str(part) for part in _place(item["loc"]))
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "there is no such setting"
        lines.append(f"{place}: {message}" if place else message)
    return lines


def _place(parts: tuple[int | str, ...]) -> tuple[int | str, ...]:
    # The name of a union's branch says nothing to the person who wrote the file.
    return (*parts[:2], *parts[3:]) if parts[:1] == ("agents",) else parts


def masked(settings: Settings) -> dict[str, Any]:
    """The settings as they may be shown to anybody."""
    return settings.model_dump(mode="json")


def apply(before: Settings, after: Settings) -> tuple[Settings, list[str], list[str]]:
    """The settings with what can change live, its names, and the names of what needs a restart."""
    updates: dict[str, Any] = {}
    live: list[str] = []
    restart: list[str] = []
    for name in Settings.model_fields:
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if name == "sessions":
            new, fixed = _keep_fixed(old, new)
            restart += [f"sessions.{field}" for field in fixed]
            if old == new:
                continue
        if name in LIVE_SECTIONS:
            updates[name] = new
            live.append(name)
        else:
            restart.append(name)
    return before.model_copy(update=updates), live, restart


def _keep_fixed(old: SessionSettings, new: SessionSettings) -> tuple[SessionSettings, list[str]]:
    """The store reads some settings once, when it is opened."""
    fixed = [name for name in STORE_SETTINGS if getattr(old, name) != getattr(new, name)]
    return new.model_copy(update={name: getattr(old, name) for name in fixed}), fixed
