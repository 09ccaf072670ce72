"""The architecture, checked: who may import whom, and what a module may be called."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "gateway": {"gateway", "channels", "sessions"},
    "channels": {"channels"},
    "sessions": {"sessions"},
}
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "managers"}


class Import(NamedTuple):
    line: int
    module: str

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]


def imports_of(source: str, package: str) -> Iterator[Import]:
    """Yield every import in a module of `package`, wherever it stands, with its absolute name."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (Import(node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, level=0) if module:
                yield Import(node.lineno, module)
            case ast.ImportFrom(module=module, level=level, names=names):
                parts = package.split(".")
                base = parts[: max(0, len(parts) - level + 1)]
                targets = [module] if module else [alias.name for alias in names]
                yield from (Import(node.lineno, ".".join([*base, name])) for name in targets)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield Import(node.lineno, name if not name.startswith(".") else package + name)


def layer_breaks(source: str, package: str) -> list[Import]:
    """Return the imports that reach a product package the module's own package may not know."""
    allowed = ALLOWED[package.partition(".")[0]]
    return [found for found in imports_of(source, package) if found.top in ALLOWED.keys() - allowed]


def undeclared(source: str, package: str, declared: set[str]) -> list[Import]:
    """Return the imports that are neither stdlib, nor ours, nor a declared runtime dependency."""
    distributions = packages_distributions()
    return [
        found
        for found in imports_of(source, package)
        if found.top not in sys.stdlib_module_names
        and found.top not in ALLOWED
        and declared.isdisjoint(normalized(name) for name in distributions.get(found.top, []))
    ]


def normalized(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def runtime_dependencies() -> set[str]:
    """Return the distributions a user gets, extras included and the dev group not."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {}).values()
    requirements = [*project["dependencies"], *(item for extra in extras for item in extra)]
    names = (re.match(r"[\w.-]+", requirement) for requirement in requirements)
    return {normalized(name[0]) for name in names if name}


def modules() -> list[Path]:
    """Return the product's modules relative to the repository root."""
    return sorted(
        path.relative_to(ROOT) for package in ALLOWED for path in (ROOT / package).rglob("*.py")
    )


def source_and_package(module: Path) -> tuple[str, str]:
    return (ROOT / module).read_text(encoding="utf-8"), ".".join(module.parent.parts)


def test_imports_point_one_way() -> None:
    """The gateway knows channels and sessions; those know neither each other nor the gateway."""
    breaks = [
        f"{module}:{found.line} imports {found.module}"
        for module in modules()
        for found in layer_breaks(*source_and_package(module))
    ]

    assert breaks == []


def test_the_product_imports_only_what_it_declares() -> None:
    """A test tool, a test, or a package that only came along with another one is not imported."""
    declared = runtime_dependencies()
    strangers = [
        f"{module}:{found.line} imports {found.module}"
        for module in modules()
        for found in undeclared(*source_and_package(module), declared)
    ]

    assert strangers == []


def test_every_module_is_named_after_what_it_holds() -> None:
    """Neither a module nor a package has a name under which anything could be put."""
    nameless = [str(path) for path in modules() if EMPTY_NAMES & {*path.parent.parts, path.stem}]

    assert nameless == []


def test_the_checks_see_every_product_package() -> None:
    """A package that moved away does not make the checks above pass by finding nothing."""
    assert {module.parts[0] for module in modules()} == set(ALLOWED)


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("sessions", "import gateway"),
        ("sessions", "import json, channels.slack.translate as words"),
        ("sessions", "from channels import channel"),
        ("channels", "from sessions.key import SessionKey"),
        ("channels.slack", "def later():\n    from gateway.router import Router"),
        ("channels", "if TYPE_CHECKING:\n    from gateway.app import App"),
        ("channels", "from .. import sessions"),
        ("channels.slack", "from ...gateway import router"),
        ("channels", "importlib.import_module('gateway.app')"),
        ("sessions", "__import__('channels')"),
    ],
)
def test_an_import_across_layers_is_found(package: str, source: str) -> None:
    """Whatever its form and place, an import that crosses the layers is reported once."""
    assert len(layer_breaks(source, package)) == 1


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("gateway.http", "from sessions.store import SessionStore\nimport channels"),
        ("gateway.http", "from ..router import Router"),
        ("sessions", "from . import gateway"),
        ("channels.slack", "from ..channel import Inbound\nfrom .policy import allows"),
        ("sessions", "import gatewayish\nfrom os import path"),
    ],
)
def test_an_import_within_the_layers_is_let_through(package: str, source: str) -> None:
    """Imports downwards, inside one package, and of modules that only sound alike are fine."""
    assert layer_breaks(source, package) == []


def test_a_test_tool_in_the_product_is_found() -> None:
    """Test tools, tests and unknown modules are reported; declared and stdlib modules are not."""
    source = "import json, msgspec, sessions, pytest, tests.conftest\nfrom xdist import plugin"

    found = undeclared(source, "gateway", {"msgspec"})

    assert [item.module for item in found] == ["pytest", "tests.conftest", "xdist"]
