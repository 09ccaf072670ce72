"""kill -9, for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kill_loop import KillLoop


@pytest.mark.parametrize(("sync", "kills"), [("interval", 10), ("turn", 3), ("none", 2)])
def test_what_a_killed_process_acknowledged_is_there(sync: str, kills: int, tmp_path: Path) -> None:
    """Every acknowledged row is there once and in order, however often the writer is killed."""
    report = KillLoop(tmp_path, seed=7, sync=sync).run(kills)

    assert report.kills == kills
    assert report.acknowledged > 0
