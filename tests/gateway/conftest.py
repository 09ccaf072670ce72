"""The same gateways as the HTTP tests use."""

from tests.http.conftest import prepare, start

__all__ = ["prepare", "start"]
