"""`parley doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gateway.cli.options import data_dir_option, json_option
from gateway.cli.settings import config_option, settings_source

if TYPE_CHECKING:
    from gateway.config import Settings
    from gateway.doctor import Report

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@click.command("doctor")
@config_option
@data_dir_option()
@json_option
def doctor(config: Path | None, *, as_json: bool) -> None:
    """Check everything a gateway needs, and say what to do. Exits 1 on a failure."""
    import msgspec

    from gateway.cli import screen
    from gateway.config import ConfigError, find
    from gateway.doctor import CHECKS, Report, examine

    settings: Settings | ConfigError
    try:
        settings = settings_source(config)()
    except ConfigError as error:
        settings = error
    with screen.bar("Checking") as progress:
        found = []
        for result in examine(settings, find(config)):
            found.append(result)
            progress(min(len(found), len(CHECKS)), len(CHECKS))
    report = Report(found)
    if as_json:
        screen.print_json({"status": report.status, **msgspec.to_builtins(report)})
    else:
        _print(report)
    if report.status == "fail":
        click.get_current_context().exit(1)


def _print(report: Report) -> None:
    from rich.text import Text

    from gateway.cli import screen

    columns = [
        screen.Column("STATUS"),
        screen.Column("CHECK", share=0.3, fold=True),
        screen.Column("DETAIL", least=20, fold=True),
    ]
    rows: list[list[str | Text]] = []
    for one in report.checks:
        text = f"{one.detail}. To do: {one.fix}" if one.fix else one.detail
        rows.append([Text(one.status, STYLES[one.status]), one.name, text])
    screen.table(columns, rows)
    screen.echo()
    counts = {name: sum(one.status == name for one in report.checks) for name in STYLES}
    summary = f"{counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} failed."
    screen.echo(summary, STYLES[report.status])
