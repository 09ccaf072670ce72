"""The settings of a command: where they come from, and how their faults are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from gateway.config import Settings

_DATA_DIR = "parley.data_dir"

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The settings. [env: PARLEY_CONFIG; default: ./config.yaml]",
)


class BadSettings(click.ClickException):
    """One line per problem."""

    exit_code = 78

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems

    def show(self, file: IO[Any] | None = None) -> None:
        for problem in self.problems:
            click.echo(f"parley: {' '.join(problem.split())}", file=file, err=True)


def settings_source(
    config: Path | None, overrides: Mapping[str, Any] | None = None
) -> Callable[[], Settings]:
    """Reads the settings each time it is called, in any thread. It raises ConfigError."""
    from gateway.config import load

    given = click.get_current_context().meta.get(_DATA_DIR)
    values = {**(overrides or {}), **({"data_dir": given} if given is not None else {})}
    return partial(load, config, values)


def load_settings(config: Path | None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Raises BadSettings."""
    from gateway.config import ConfigError

    try:
        return settings_source(config, overrides)()
    except ConfigError as error:
        raise BadSettings(error.problems) from error
