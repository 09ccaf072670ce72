"""The application before its gateway serves, and when its store does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from channels.channel import ChannelState
from gateway.app import Gateway
from gateway.config import Settings
from gateway.http import create_app
from sessions.errors import StoreReadOnly
from tests.http.conftest import Start


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    made = Gateway(Settings.model_validate({"data_dir": tmp_path / "data"}))
    yield made
    await made.stop() if made.state == "serving" else None


def client_of(gateway: Gateway) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(gateway), client=("127.0.0.1", 1))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_a_gateway_that_starts_says_so(gateway: Gateway) -> None:
    """It is alive, it is not ready, and nothing else is answered yet."""
    async with client_of(gateway) as http:
        ready = await http.get("/readyz")
        api = await http.get("/api/v1/sessions")

        assert (await http.get("/healthz")).status_code == 200
        assert (ready.status_code, ready.json()["status"]) == (503, "starting")
        assert (api.status_code, api.json()["code"]) == (503, "starting")
        assert (await http.get("/metrics")).status_code == 200


async def test_a_store_that_refuses_makes_it_not_ready(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is told; the process is still alive."""
    await gateway.start()

    def refuse() -> None:
        raise StoreReadOnly("a sync failed")

    async with client_of(gateway) as http:
        assert (await http.get("/readyz")).status_code == 200

        monkeypatch.setattr(gateway.store, "check_writable", refuse)
        ready = await http.get("/readyz")

        assert ready.status_code == 503
        assert "a sync failed" in ready.json()["store"]["reason"]
        assert (await http.get("/healthz")).status_code == 200


async def test_a_deaf_channel_is_degraded_and_with_strict_not_ready(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load balancer looks at the first answer, an alarm at the second."""
    await gateway.start()
    state = ChannelState("failed", {"reason": "token revoked"})
    monkeypatch.setattr(gateway, "channels", lambda: {"slack": state})

    async with client_of(gateway) as http:
        plain, strict = await http.get("/readyz"), await http.get("/readyz?strict=1")

    assert (plain.status_code, plain.json()["status"]) == (200, "degraded")
    assert plain.json()["channels"] == {"slack": {"state": "failed", "reason": "token revoked"}}
    assert strict.status_code == 503


async def test_mode_none_is_for_this_machine_alone(gateway: Gateway) -> None:
    """Whatever address the server listens on."""
    await gateway.start()
    transport = httpx.ASGITransport(create_app(gateway), client=("192.168.1.5", 1))

    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        assert (await http.get("/api/v1/me")).status_code == 403


async def test_a_fault_of_ours_is_a_problem_without_details(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has them, the client does not."""
    await gateway.start()

    async def fail(*_: object) -> None:
        raise RuntimeError("internal words")

    monkeypatch.setattr(gateway.store, "find", fail)

    async with client_of(gateway) as http:
        answer = await http.get("/api/v1/sessions")

    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "internal words" not in answer.text


async def test_pages_of_allowed_origins_may_read(start: Start) -> None:
    """With a token; other origins are not even told what exists."""
    daemon = await start(server={"allowed_origins": ["https://app.example.org"]})
    http = await daemon.client()
    asked = {"Access-Control-Request-Method": "POST"}

    allowed = await http.options(
        "/api/v1/messages", headers={"Origin": "https://app.example.org", **asked}
    )
    other = await http.options("/api/v1/messages", headers={"Origin": "https://x.org", **asked})

    assert allowed.headers["access-control-allow-origin"] == "https://app.example.org"
    assert "access-control-allow-origin" not in other.headers


async def test_ipv6_works_like_ipv4(start: Start) -> None:
    """The address that is logged can be opened as it stands."""
    daemon = await start(server={"host": "::1"})

    assert daemon.url.startswith("http://[::1]:")
    assert (await (await daemon.client()).get("/api/v1/me")).status_code == 200
    assert (await (await daemon.chat()).frame("ready"))["user"] == "local"
