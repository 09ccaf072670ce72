"""`parley config`: look at the settings before a gateway does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from gateway.cli.options import data_dir_option, json_option
from gateway.cli.settings import config_option, load_settings


@click.group("config")
def config() -> None:
    """Check and show the settings."""


@config.command("check")
@config_option
@data_dir_option()
def check(config: Path | None) -> None:
    """Exit with 78 and one line per problem if the settings cannot be used."""
    load_settings(config)
    click.echo("the settings are valid")


@config.command("show")
@config_option
@data_dir_option()
@json_option
def show(config: Path | None, *, as_json: bool) -> None:
    """Print the settings in effect; secrets are masked."""
    import yaml

    from gateway.config import masked
    from gateway.redaction import Redactor

    values: dict[str, Any] = _shown(masked(load_settings(config)), Redactor())
    if as_json:
        click.echo(json.dumps(values, ensure_ascii=False, indent=2))
    else:
        click.echo(yaml.safe_dump(values, allow_unicode=True, sort_keys=False), nl=False)


def _shown(value: Any, redactor: Any) -> Any:
    """Addresses can hold passwords too."""
    if isinstance(value, dict):
        return {name: _shown(item, redactor) for name, item in value.items()}
    if isinstance(value, list):
        return [_shown(item, redactor) for item in value]
    return redactor.text(value) if isinstance(value, str) else value


@config.command("schema")
def schema() -> None:
    """Print the JSON Schema of the settings."""
    from gateway.config import Settings

    click.echo(json.dumps(Settings.model_json_schema(), indent=2))
