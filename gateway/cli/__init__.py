"""The `parley` command.

Every noun is a module beside this one. It imports only what its help needs; the work is imported
when a command runs, so that `parley --help` is quick.
"""

import click

from gateway.cli.chat import chat
from gateway.cli.config import config
from gateway.cli.doctor import doctor
from gateway.cli.exits import Commands
from gateway.cli.options import data_dir_option, version_option
from gateway.cli.send import send
from gateway.cli.serve import serve
from gateway.cli.sessions import sessions
from gateway.cli.token import token

__all__ = ["main"]


@click.group("parley", cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@data_dir_option(envvar="PARLEY_DATA_DIR")
@version_option
def main() -> None:
    """A chat gateway that never loses a word."""


for command in (serve, chat, send, doctor, config, sessions, token):
    main.add_command(command)
