"""A running gateway, as the commands that talk to one find it: its address and a token."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import click

from gateway.cli.exits import Failure, WrongUsage
from gateway.cli.options import Function, data_dir, data_dir_option
from gateway.cli.settings import BadSettings, config_option, load_settings

if TYPE_CHECKING:
    from urllib.parse import SplitResult

DEFAULT_URL = "http://127.0.0.1:8765"
_PLAIN = {"ws": "http", "wss": "https"}


class Remote:
    def __init__(self, url: str, token: str | None) -> None:
        self.url, self.token = url, token

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    @property
    def websocket(self) -> str:
        return self.url.replace("http", "ws", 1) + "/ws"

    @property
    def on_this_machine(self) -> bool:
        return _is_loopback(urlsplit(self.url).hostname or "")

    def absent(self, reason: str) -> Failure:
        hint = " Start one with make run or parley serve." if self.on_this_machine else ""
        return Failure(f"there is no gateway at {self.url} ({reason}).{hint}")

    def refused(self) -> Failure:
        what = "does not accept this token" if self.token else "wants a token"
        return Failure(f"{self.url} {what}; set PARLEY_TOKEN or give --token-file")


def remote_options(command: Function) -> Function:
    """`--url`, `--token-file`, and where a gateway on this machine keeps its first token."""
    options = (
        click.option(
            "--url",
            metavar="URL",
            envvar="PARLEY_URL",
            default=DEFAULT_URL,
            help=f"Where the gateway is. [env: PARLEY_URL; default: {DEFAULT_URL}]",
        ),
        click.option(
            "--token-file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="A file with your token. [env: PARLEY_TOKEN holds the token itself]",
        ),
        config_option,
        data_dir_option(),
    )
    for option in reversed(options):
        command = option(command)
    return command


def find_remote(url: str, token_file: Path | None, config: Path | None) -> Remote:
    """Raises Failure, and OSError for a token file that cannot be read."""
    address = _address(url)
    if token_file is not None:
        return Remote(address, _checked(token_file.read_text(errors="replace"), str(token_file)))
    if given := os.environ.get("PARLEY_TOKEN"):
        return Remote(address, _checked(given, "PARLEY_TOKEN"))
    # An administrator's token never leaves the machine unasked.
    local = _is_loopback(urlsplit(address).hostname or "")
    return Remote(address, _admin_token(config) if local else None)


def _address(url: str) -> str:
    try:
        parts: SplitResult = urlsplit(url if "://" in url else f"http://{url}")
        _ = parts.port
    except ValueError as error:
        raise WrongUsage(f"--url: {error}") from error
    scheme = _PLAIN.get(parts.scheme, parts.scheme)
    if scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise WrongUsage("--url is the address of a gateway, like http://127.0.0.1:8765")
    path = parts.path.rstrip("/").removesuffix("/ws")
    return urlunsplit((scheme, parts.netloc, path, "", ""))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _checked(token: str, place: str) -> str:
    token = token.strip()
    if not token.isascii() or not token.isprintable() or not token:
        raise Failure(f"{place} holds no token")
    return token


def _admin_token(config: Path | None) -> str | None:
    try:
        directory = Path(load_settings(config).data_dir)
    except BadSettings:
        directory = data_dir()
    try:
        token = (directory / "admin-token").read_text(errors="replace").strip()
    except OSError:
        return None
    return token if token.isascii() and token.isprintable() and token else None
