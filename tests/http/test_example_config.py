"""The example file shows every setting, and works as it is."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from gateway import config
from gateway.config import Settings

EXAMPLE = Path(__file__).parents[2] / "config.example.yaml"


def models_in(kind: Any) -> Iterator[type[BaseModel]]:
    """Every model a setting's type can hold."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for part in typing.get_args(kind):
        yield from models_in(part)


def settings_of(kind: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[tuple[str, str]]:
    if kind in seen:
        return
    seen.add(kind)
    for name, field in kind.model_fields.items():
        yield kind.__name__, name
        for inner in models_in(field.annotation):
            yield from settings_of(inner, seen)


def shown_in(kind: Any, value: Any) -> Iterator[tuple[str, str]]:
    """The settings a piece of YAML names, by the model they belong to."""
    if isinstance(value, list):
        for item in value:
            yield from shown_in(kind, item)
    if not isinstance(value, dict):
        return
    found = [one for one in models_in(kind) if value.keys() <= one.model_fields.keys()]
    by_kind = [one for one in found if _has_kind(one, value.get("kind"))] or found
    if not by_kind:
        for item in value.values():
            yield from shown_in(kind, item)
        return
    for name, item in value.items():
        yield by_kind[0].__name__, name
        yield from shown_in(by_kind[0].model_fields[name].annotation, item)


def _has_kind(model: type[BaseModel], kind: Any) -> bool:
    field = model.model_fields.get("kind")
    return field is not None and kind in typing.get_args(field.annotation)


def uncommented() -> str:
    text = EXAMPLE.read_text(encoding="utf-8").replace("\nroutes: []\n", "\n")
    return re.sub(r"(?m)^(\s*)#(?=[^\s~])", r"\1", text)


def test_example_holds_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied as it is, the example changes nothing."""
    monkeypatch.delenv("PARLEY_CONFIG", raising=False)

    assert config.load(EXAMPLE) == Settings()


def test_example_shows_every_setting() -> None:
    """With its examples switched on, the file names every setting there is."""
    everything = set(settings_of(Settings, set()))
    shown = set(shown_in(Settings, yaml.safe_load(uncommented())))

    assert everything - shown == set()


def test_what_the_example_suggests_is_valid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every setting that is commented out can be switched on."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-example")
    path = tmp_path / "config.yaml"
    path.write_text(uncommented(), encoding="utf-8")

    found = config.load(path)

    assert sorted(found.agents) == ["assistant", "default", "function", "service"]
    assert found.routes[0].chat == "support-*"


def test_every_setting_is_explained() -> None:
    """Whoever reads the schema learns what each setting of the daemon does."""
    silent = [
        f"{kind.__name__}.{name}"
        for kind in models_in(Settings)
        for name, field in kind.model_fields.items()
        if not field.description and not list(models_in(field.annotation))
    ]

    assert silent == []
