"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

_DATA_DIR = "parley.data_dir"
DEFAULT_DATA_DIR = Path("data")

version_option = click.version_option(
    package_name="parley-gateway", prog_name="parley", message="%(prog)s %(version)s"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def data_dir_option(*, envvar: str | None = None) -> Callable[[Function], Function]:
    """`--data-dir`, wherever it is given: the innermost one counts."""
    return click.option(
        "--data-dir",
        type=click.Path(path_type=Path),
        metavar="DIR",
        envvar=envvar,
        expose_value=False,
        callback=_remember,
        help=f"Where the sessions are. [env: PARLEY_DATA_DIR; default: ./{DEFAULT_DATA_DIR}]",
    )


def _remember(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is not None:
        ctx.meta[_DATA_DIR] = value.expanduser()


def data_dir() -> Path:
    """The data directory of the running command."""
    return Path(click.get_current_context().meta.get(_DATA_DIR, DEFAULT_DATA_DIR))
