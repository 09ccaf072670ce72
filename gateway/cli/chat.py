"""`parley chat`: a terminal client of the public WebSocket."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from gateway.cli.exits import Failure
from gateway.cli.remote import find_remote, remote_options


@click.command("chat")
@click.option("--chat", metavar="CHAT", default="terminal", show_default=True, help="Which chat.")
@remote_options
def chat(chat: str, url: str, token_file: Path | None, config: Path | None) -> None:
    """Talk to a running gateway.

    Ctrl-C stops a running answer; once more, or Ctrl-D, leaves. Without a terminal every line of
    standard input is a message, and its answer is waited for and printed.
    """
    import asyncio

    from gateway.cli.talk import Client
    from gateway.cli.terminal import open_terminal

    remote = find_remote(url, token_file, config)
    terminal = open_terminal()
    try:
        code = asyncio.run(Client(remote, chat, terminal).run())
    except Failure as failure:
        terminal.close()
        failure.show()
        code = failure.exit_code
    else:
        terminal.close()
    sys.stdout.flush()
    sys.stderr.flush()
    # The thread that reads lines cannot be woken and must not keep the process.
    os._exit(code)
