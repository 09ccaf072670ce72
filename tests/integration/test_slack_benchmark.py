"""The benchmark of Slack runs. What it measures is no test's business."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.slack import BENCHMARKS

ROOT = Path(__file__).parents[2]


def test_every_row_yields_a_figure(tmp_path: Path) -> None:
    """A small run fills every row, loses nothing, and leaves nothing behind."""
    results, scratch = tmp_path / "results.json", tmp_path / "scratch"
    command = [sys.executable, "-m", "benchmarks.slack", "--quick", "--no-peer"]
    places = ["--json", str(results), "--scratch", str(scratch)]

    done = subprocess.run(
        [*command, *places], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    rows = {row["row"]: row for row in json.loads(results.read_text())["rows"]}
    assert list(rows) == [name for names in BENCHMARKS.values() for name in names]
    assert [rows[name]["ours"] for name in ("events-lost", "storm-lost")] == [0, 0]
    assert max(len(line) for line in done.stdout.splitlines()) <= 100
    assert not list(scratch.iterdir())
