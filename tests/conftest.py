"""Settings every test shares."""

import pytest
from hypothesis import settings

# How long one example takes depends on the machine's load. That is no reason to fail.
settings.register_profile("parley", settings(), deadline=None)
settings.load_profile("parley")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Parley runs on asyncio only. Session scope allows async fixtures of any scope."""
    return "asyncio"
