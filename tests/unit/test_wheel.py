"""What people install."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = "from hatchling.build import build_wheel; print(build_wheel({!r}))"


def copy_sources(target: Path, *, page: bool) -> Path:
    for name in ("gateway", "channels", "sessions"):
        ignored = shutil.ignore_patterns("__pycache__", "page")
        shutil.copytree(ROOT / name, target / name, ignore=ignored)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, target)
    if page:
        (target / "gateway/page/assets").mkdir(parents=True)
        (target / "gateway/page/index.html").write_text("<!doctype html>")
        (target / "gateway/page/assets/index-1.js").write_text("")
    return target


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BUILD.format(str(target))]
    return subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)


def test_the_wheel_contains_the_page(tmp_path: Path) -> None:
    """The page is built, so git does not know it; the wheel has it all the same."""
    source = copy_sources(tmp_path / "source", page=True)

    result = build(source, tmp_path)

    assert result.returncode == 0, result.stderr
    [wheel] = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"gateway/page/index.html", "gateway/page/assets/index-1.js"} <= set(names)


def test_no_wheel_without_the_page(tmp_path: Path) -> None:
    """Whoever forgets to build it is told, instead of shipping a gateway without a face."""
    result = build(copy_sources(tmp_path / "source", page=False), tmp_path)

    assert result.returncode != 0
    assert "make page" in result.stderr
    assert not list(tmp_path.glob("*.whl"))
