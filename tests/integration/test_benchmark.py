"""The benchmarks run. What they measure is no test's business."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gateway, page, sessions
from benchmarks.suite import Suite

ROOT = Path(__file__).parents[2]
SUITES: list[Suite[Any, Any]] = [sessions.SUITE, gateway.SUITE, page.SUITE]


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_every_row_yields_a_figure(tmp_path: Path, suite: Suite[Any, Any]) -> None:
    """A small run without the peer fills every row of the table and leaves nothing behind."""
    results, scratch = tmp_path / "results.json", tmp_path / "scratch"
    command = [sys.executable, "-m", f"benchmarks.{suite.name}", "--quick", "--no-peer"]
    places = ["--json", str(results), "--scratch", str(scratch)]

    done = subprocess.run(
        [*command, *places], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    rows = json.loads(results.read_text())["rows"]
    wanted = [name for names in suite.benchmarks.values() for name in names]
    assert [row["row"] for row in rows] == wanted
    assert all(row["ours"] >= 0 for row in rows)
    assert max(len(line) for line in done.stdout.splitlines()) <= 100
    assert not list(scratch.iterdir())
