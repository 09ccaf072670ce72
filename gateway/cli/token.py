"""`parley token`: who may use a gateway in mode `token`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.exits import Failure
from gateway.cli.options import data_dir_option, json_option
from gateway.cli.settings import config_option, load_settings

if TYPE_CHECKING:
    from gateway.tokens import Tokens


@click.group("token")
def token() -> None:
    """Make, list and revoke tokens."""


@token.command("new")
@click.option("--name", required=True, help="Whose token it is; the name chats belong to.")
@click.option("--role", type=click.Choice(["user", "admin"]), default="user", show_default=True)
@config_option
@data_dir_option()
def new(name: str, role: str, config: Path | None) -> None:
    """Print a new token. It is shown this once; only its hash is kept."""
    from gateway.tokens import TokenError

    try:
        click.echo(_tokens(config).new(name, role))
    except TokenError as error:
        raise Failure(str(error)) from error


@token.command("list")
@config_option
@data_dir_option()
@json_option
def list_tokens(config: Path | None, *, as_json: bool) -> None:
    """Show names and roles."""
    from gateway.cli import screen
    from gateway.tokens import TokenError

    try:
        known = _tokens(config).known()
    except TokenError as error:
        raise Failure(str(error)) from error
    if as_json:
        fields = ("name", "role", "created_at")
        shown = [{name: getattr(one, name) for name in fields} for one in known]
        screen.print_json({"tokens": shown})
        return
    if not known:
        click.echo("there are no tokens; parley token new --name NAME makes one", err=True)
        return
    columns = [screen.Column("NAME", fold=True), screen.Column("ROLE"), screen.Column("CREATED")]
    screen.table(columns, [[one.name, one.role, screen.ago(one.created_at)] for one in known])


@token.command("revoke")
@click.argument("name")
@config_option
@data_dir_option()
def revoke(name: str, config: Path | None) -> None:
    """End a token and the logins made with it, at once."""
    from gateway.tokens import TokenError

    try:
        _tokens(config).revoke(name)
    except TokenError as error:
        raise Failure(str(error)) from error
    click.echo(f"revoked {name}")


def _tokens(config: Path | None) -> Tokens:
    from gateway.tokens import Tokens

    return Tokens(Path(load_settings(config).data_dir))
