"""`parley serve`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from gateway.cli.options import data_dir_option
from gateway.cli.settings import BadSettings, config_option, settings_source


@click.command("serve")
@config_option
@click.option("--host", metavar="H", help="Address to listen on.")
@click.option("--port", metavar="P", type=click.IntRange(0, 65_535), help="Port to listen on.")
@data_dir_option()
def serve(config: Path | None, host: str | None, port: int | None) -> None:
    """Run the gateway until SIGTERM or SIGINT; a second one stops it at once.

    SIGHUP reads the settings again. Exits with 0 after a clean stop, 78 if the settings cannot
    be used, 75 if another process owns the data directory.
    """
    from gateway import server
    from gateway.config import ConfigError

    given = {"host": host, "port": port}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    overrides = {"server": changes} if changes else {}
    try:
        code = server.run(settings_source(config, overrides))
    except ConfigError as error:
        raise BadSettings(error.problems) from error
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads an agent left hanging must not keep the process.
    os._exit(code)
