"""Whatever the order of steps: what was acknowledged is kept, answered once, and shown once."""

from pathlib import Path

import pytest

from gateway import lanes, outbox
from tests.support.chaos import World
from tests.support.stores import never_wait_for_the_disk


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for time to pass."""
    never_wait_for_the_disk(monkeypatch)
    monkeypatch.setattr(lanes, "RERUN_PAUSE_SECONDS", (0.0,))
    monkeypatch.setattr(lanes, "HOLD_SECONDS", 0.0)
    monkeypatch.setattr(outbox, "HOLD_SECONDS", 0.0)


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("seed", range(24))
async def test_any_order_of_steps(tmp_path: Path, seed: int) -> None:
    """Clients, an operator, a push channel, stops and kills, in an order the seed says."""
    await World(tmp_path, seed).run()
