"""Health, readiness, numbers, and the form of every answer."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections import Counter

import httpx
import pytest

from tests.http.conftest import Start
from tests.http.daemon import Daemon

SLOW = {"default": {"kind": "echo", "delay_ms": 60_000}}
SAMPLE = re.compile(r"^(parley_messages_\w+?)(?:_total)?(?:\{.*\})? ([0-9.e+]+)$", re.MULTILINE)


def balance(text: str) -> tuple[float, float]:
    """What came in, and what ended or is pending."""
    sums: Counter[str] = Counter()
    for name, value in SAMPLE.findall(text):
        sums[name] += float(value)  # type: ignore[assignment]
    received = sums["parley_messages_received"]
    return received, sums["parley_messages_outcome"] + sums["parley_messages_pending"]


async def test_a_running_gateway_is_alive_and_ready(daemon: Daemon) -> None:
    """For probes that ask with GET and with HEAD, strict or not."""
    http = await daemon.client()

    ready = await http.get("/readyz?strict=1")

    assert (await http.get("/healthz")).json() == {"status": "ok"}
    assert (await http.head("/healthz")).status_code == 200
    assert ready.status_code == 200
    assert ready.json()["status"] == "ok"
    assert ready.json()["channels"]["websocket"]["state"] == "connected"


async def test_a_stopping_gateway_is_alive_but_not_ready(start: Start) -> None:
    """It answers those who are connected, takes nothing new in, and listens no more."""
    daemon = await start(agents=SLOW, server={"shutdown_seconds": 60})
    chat, http = await daemon.chat(), await daemon.client()
    await chat.send("send", chat_id="a", id="1", text="slow words")
    await chat.frame("turn_start")
    await http.get("/healthz")

    daemon.signal(signal.SIGTERM)
    await daemon.logged("parley stopping")
    ready = await http.get("/readyz")

    assert (await http.get("/healthz")).status_code == 200
    assert (ready.status_code, ready.json()["status"]) == (503, "stopping")
    message = {"key": "websocket:a", "text": "hi"}
    refused = await http.post("/api/v1/messages", json=message)
    assert (refused.status_code, refused.json()["code"]) == (503, "shutting_down")
    assert refused.headers["retry-after"]
    with pytest.raises(httpx.ConnectError):
        await (await daemon.client()).get("/healthz")


async def test_received_is_outcomes_plus_pending_in_every_scrape(start: Start) -> None:
    """While messages come in, wait, end, repeat themselves and are refused."""
    daemon = await start(
        agents={"default": {"kind": "echo", "delay_ms": 1}},
        limits={"text": 100, "messages_per_minute": 0},
    )
    http = await daemon.client()
    done = asyncio.Event()

    async def talk(name: str) -> None:
        chat = await daemon.chat()
        for number in range(15):
            text = "x" * 200 if number % 5 == 4 else f"words of {name} {number}"
            await chat.send("send", chat_id=name, id=f"m{number}", text=text)
            await chat.send("send", chat_id=name, id=f"m{number}", text=text)
        for _ in range(12):
            await chat.frame("turn_end")

    async def scrape() -> int:
        count = 0
        while not done.is_set():
            received, accounted = balance((await http.get("/metrics")).text)
            assert received == accounted
            count += 1
        return count

    async with asyncio.TaskGroup() as tasks:
        scraping = tasks.create_task(scrape())
        talks = [tasks.create_task(talk(f"chat{number}")) for number in range(4)]
        await asyncio.wait(talks)
        done.set()
    text = (await http.get("/metrics")).text

    assert scraping.result() > 3
    assert balance(text) == (72.0, 72.0)
    assert 'parley_messages_outcome_total{channel="websocket",outcome="answered"} 48.0' in text
    assert 'parley_messages_outcome_total{channel="websocket",outcome="rejected"} 24.0' in text


async def test_every_name_is_ours(daemon: Daemon) -> None:
    """Process numbers too, so that one dashboard shows one gateway."""
    text = (await (await daemon.client()).get("/metrics")).text

    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert len(names) > 20
    assert {name for name in names if not name.startswith("parley_")} == set()


async def test_numbers_are_for_this_machine_and_administrators(start: Start) -> None:
    """What a proxy on this machine passes on comes from elsewhere."""
    daemon = await start(auth={"mode": "token"}, server={"allowed_hosts": ["chat.example.org"]})
    outside = {"Host": "chat.example.org"}
    local = await daemon.client()
    user = await daemon.client(daemon.token("ann"), headers=outside)
    admin = await daemon.client(daemon.token("root", "admin"), headers=outside)

    assert (await local.get("/metrics")).status_code == 200
    assert (await local.get("/metrics", headers=outside)).status_code == 401
    assert (await local.get("/metrics", headers={"X-Forwarded-For": "1.2.3.4"})).status_code == 401
    assert (await user.get("/metrics")).status_code == 403
    assert (await admin.get("/metrics")).status_code == 200


async def test_stats_count_what_there_is(daemon: Daemon) -> None:
    """Sessions by state, messages, and what is going on now."""
    chat, http = await daemon.chat(), await daemon.client()
    await chat.say("a", "hello", id="1")
    await chat.say("b", "hello", id="2")
    await http.post("/api/v1/sessions/websocket:b/archive")

    stats = (await http.get("/api/v1/stats")).json()

    assert (stats["total_sessions"], stats["total_messages"]) == (2, 4)
    assert (stats["active_sessions"], stats["idle_sessions"]) == (1, 1)
    assert (stats["archived_sessions"], stats["connections"]) == (1, 1)
    assert (stats["running_turns"], stats["queued_messages"]) == (0, 0)


async def test_errors_are_problem_details(daemon: Daemon) -> None:
    """Whatever is wrong, the answer has one form and repeats nothing of the request."""
    http = await daemon.client()
    canary = "canary7391"

    for method, path, status in [
        ("GET", f"/{canary}", 404),
        ("DELETE", "/healthz", 405),
        ("PUT", "/api/v1/sessions", 405),
        ("GET", "/api/v1/sessions/websocket:none", 404),
        ("GET", f"/api/v1/sessions?limit={canary}", 422),
        ("POST", "/api/v1/login", 422),
        ("POST", "/api/v1/sessions/websocket:none/compact", 404),
    ]:
        answer = await http.request(method, path)

        assert answer.status_code == status, path
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json().keys() >= {"type", "title", "status", "detail", "code"}
        assert answer.json()["status"] == status
        assert canary not in answer.text


async def test_every_answer_carries_the_security_headers(daemon: Daemon) -> None:
    """Pages, API and problems alike; nothing on a page comes from elsewhere."""
    http = await daemon.client()

    for path in ("/", "/docs", "/docs/docs.js", "/healthz", "/api/v1/me", "/none", "/openapi.json"):
        headers = (await http.get(path)).headers

        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "frame-ancestors 'none'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
    page = (await http.get("/docs")).text
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", page)
    for name in ("docs.js", "docs.css"):
        assert (await http.get(f"/docs/{name}")).status_code == 200
    for name in ("..%2Fpage.py", "page.py", "../page.py", "%2e%2e%2fpage.py"):
        assert (await http.get(f"/docs/{name}")).status_code == 404
        assert (await http.get(f"/assets/{name}")).status_code == 404


async def test_the_api_describes_itself(daemon: Daemon) -> None:
    """Every route of the contract is in the document, with the form its problems have."""
    document = (await (await daemon.client()).get("/openapi.json")).json()

    paths = document["paths"]
    for path in (
        "/api/v1/sessions",
        "/api/v1/sessions/{key}",
        "/api/v1/sessions/{key}/messages",
        "/api/v1/sessions/{key}/compact",
        "/api/v1/messages",
        "/api/v1/media",
        "/readyz",
    ):
        assert path in paths
    assert "HTTPValidationError" not in json.dumps(document)
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert references <= document["components"]["schemas"].keys()


async def test_bodies_have_a_limit(start: Start) -> None:
    """Announced or streamed; the connection can be used again."""
    daemon = await start(limits={"frame": 1_000})
    http = await daemon.client()
    kind = {"Content-Type": "application/json"}

    async def chunks() -> object:
        for _ in range(100):
            yield b" " * 1_000

    announced = await http.post("/api/v1/messages", content=b" " * 2_000, headers=kind)
    streamed = await http.post("/api/v1/messages", content=chunks(), headers=kind)  # type: ignore[arg-type]

    assert announced.status_code == 413
    assert streamed.status_code == 413
    assert (await http.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 200_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 40_000,
        b"GET /" + b"y" * 200_000,
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example.com\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
    ],
)
async def test_a_bad_head_is_cut_off(daemon: Daemon, head: bytes) -> None:
    """It gets a refusal at most, and everybody else is served."""
    host, port = daemon.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(head)

    async with asyncio.timeout(60):
        try:
            status = (await reader.readline()).split()[1:2]
        except ConnectionError:
            status = []

    assert status in ([b"400"], [b"403"], [b"431"], [])
    assert (await (await daemon.client()).get("/healthz")).status_code == 200
    writer.close()


async def test_what_can_be_done_somewhere_is_told(daemon: Daemon) -> None:
    """All of it, whichever way it is asked for."""
    http = await daemon.client()

    answer = await http.put("/api/v1/sessions/websocket:a")

    assert answer.status_code == 405
    assert answer.headers["allow"] == "DELETE, GET, PATCH"
