"""Who gets in, in each mode, and what they may then do."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Callable
from urllib.parse import quote

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.http.conftest import Start
from tests.http.daemon import Chat, Daemon

TOKEN = {"auth": {"mode": "token"}}
PROXY = {
    "auth": {
        "mode": "proxy",
        "header": "X-Remote-User",
        "trusted_peers": ["127.0.0.1/32"],
        "admins": ["root"],
    }
}
KEY = quote("websocket:mine", safe="")
OF_A_SESSION = [
    ("GET", ""),
    ("PATCH", ""),
    ("GET", "/messages"),
    ("GET", "/export?format=jsonl"),
    ("POST", "/archive"),
    ("POST", "/restore"),
    ("POST", "/suspend"),
    ("POST", "/resume"),
    ("POST", "/reset"),
    ("POST", "/compact"),
    ("POST", "/uncompact"),
    ("DELETE", ""),
]


async def ask(http: httpx.AsyncClient, method: str, path: str) -> httpx.Response:
    body = {"title": "x"} if method == "PATCH" else None
    return await http.request(method, path, json=body)


def plain(answer: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    headers = {name: value for name, value in answer.headers.items() if name != "date"}
    return answer.status_code, answer.content, headers


# -- none ---------------------------------------------------------------------------------------


async def test_mode_none_has_one_local_administrator(daemon: Daemon) -> None:
    """Nobody has to say who they are."""
    http, chat = await daemon.client(), await daemon.chat()

    assert (await http.get("/api/v1/me")).json() == {
        "user": "local",
        "role": "admin",
        "mode": "none",
    }
    assert (await chat.frame("ready"))["user"] == "local"


@pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Proto"])
async def test_mode_none_refuses_what_a_proxy_passes_on(daemon: Daemon, header: str) -> None:
    """Behind a proxy everybody would be the local administrator."""
    http = await daemon.client(headers={header: "127.0.0.1"})

    assert (await http.get("/api/v1/me")).status_code == 403
    with pytest.raises(InvalidStatus) as refused:
        await daemon.chat(headers={header: "127.0.0.1"})
    assert refused.value.response.status_code == 403


async def test_mode_none_refuses_to_listen_off_loopback(prepare: Callable[..., Daemon]) -> None:
    """An open gateway never starts; the exit code says that the settings are at fault."""
    daemon = prepare(server={"host": "0.0.0.0"})
    await daemon.launch()

    assert await daemon.ended() == 78
    assert "auth.mode" in "".join(daemon.lines)


# -- token --------------------------------------------------------------------------------------


async def test_the_first_start_makes_an_administrators_token(start: Start) -> None:
    """Its file is private, its path is logged, its text is not, and it works."""
    daemon = await start(**TOKEN)
    path = daemon.data / "admin-token"
    token = path.read_text().strip()

    made = await daemon.logged("admin token created")
    http = await daemon.client(token)

    assert made["path"] == str(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(daemon.data / "tokens.json").st_mode) == 0o600
    assert token not in "".join(daemon.lines)
    assert token not in (daemon.data / "tokens.json").read_text()
    assert (await http.get("/api/v1/me")).json()["role"] == "admin"


async def test_nothing_of_the_api_is_open_without_a_token(start: Start) -> None:
    """Neither without a token, nor with a wrong one, nor with one in the URL."""
    daemon = await start(**TOKEN)
    token = daemon.token("ann")
    http, wrong = await daemon.client(), await daemon.client("parley_" + "x" * 43)

    for method, path in [
        ("GET", "/api/v1/me"),
        ("GET", "/api/v1/sessions"),
        ("GET", "/api/v1/stats"),
        ("GET", "/api/v1/logs"),
        ("POST", "/api/v1/messages"),
        ("POST", "/api/v1/media"),
        *((method, f"/api/v1/sessions/{KEY}{path}") for method, path in OF_A_SESSION),
    ]:
        separator = "&" if "?" in path else "?"

        assert (await ask(http, method, path)).status_code == 401, path
        assert (await ask(wrong, method, path)).status_code in (401, 429), path
        assert (await ask(http, method, f"{path}{separator}token={token}")).status_code == 401


async def test_health_needs_no_token_and_the_page_neither(start: Start) -> None:
    """A probe knows no secrets, and the page is where one logs in."""
    daemon = await start(**TOKEN)
    http = await daemon.client()

    for path in ("/healthz", "/readyz", "/", "/docs", "/openapi.json"):
        assert (await http.get(path)).status_code == 200, path


async def test_a_chat_of_somebody_else_looks_like_none(start: Start) -> None:
    """Status, body and headers are the same for a foreign chat and for one that is not there."""
    daemon = await start(**TOKEN)
    ann, bob = daemon.token("ann"), daemon.token("bob")
    await (await daemon.chat(ann)).say("mine", "private words")
    http = await daemon.client(bob)

    for method, path in OF_A_SESSION:
        foreign = await ask(http, method, f"/api/v1/sessions/{KEY}{path}")
        missing = await ask(http, method, f"/api/v1/sessions/websocket%3Anone{path}")

        assert plain(foreign) == plain(missing), (method, path)
        assert foreign.status_code == 404
    message = {"text": "hi", "id": "1"}
    foreign = await http.post("/api/v1/messages", json={"key": "websocket:mine", **message})
    missing = await http.post("/api/v1/messages", json={"key": "websocket:none", **message})
    assert plain(foreign) == plain(missing)
    assert (await http.get("/api/v1/sessions")).json()["sessions"] == []
    assert (await http.get("/api/v1/sessions?user=ann")).json()["sessions"] == []
    assert (await http.get("/api/v1/sessions?q=private")).json()["sessions"] == []
    assert (await http.get("/api/v1/stats")).json()["total_sessions"] == 0


async def test_a_chat_of_somebody_else_cannot_be_watched_or_stopped(start: Start) -> None:
    """Over the WebSocket too a foreign chat is not there."""
    daemon = await start(**TOKEN)
    ann, bob = daemon.token("ann"), daemon.token("bob")
    await (await daemon.chat(ann)).say("mine", "private words")
    chat = await daemon.chat(bob)

    for kind, fields in [
        ("attach", {"chat_id": "mine"}),
        ("attach", {"key": "websocket:mine"}),
        ("stop", {"chat_id": "mine"}),
        ("send", {"chat_id": "mine", "id": "1", "text": "hi"}),
        ("regenerate", {"chat_id": "mine", "id": "2"}),
    ]:
        await chat.send(kind, **fields)
        assert (await chat.frame("error"))["code"] == "not_found", kind
    assert "private" not in json.dumps(chat.frames)


async def test_administrators_see_everything(start: Start) -> None:
    """Lists, messages and logs; others have no logs."""
    daemon = await start(**TOKEN)
    ann, root = daemon.token("ann"), daemon.token("root", "admin")
    await (await daemon.chat(ann)).say("mine", "hello")
    admin, user = await daemon.client(root), await daemon.client(ann)

    assert (await admin.get(f"/api/v1/sessions/{KEY}/messages")).status_code == 200
    assert [one["user"] for one in (await admin.get("/api/v1/sessions")).json()["sessions"]] == [
        "ann"
    ]
    assert (await admin.get("/api/v1/logs")).status_code == 200
    assert (await user.get("/api/v1/logs")).status_code == 403


async def test_a_login_is_a_cookie_no_script_can_read(start: Start) -> None:
    """It works for HTTP and the WebSocket, outlives a restart, and ends with the logout."""
    daemon = await start(**TOKEN)
    token = daemon.token("ann")
    http = await daemon.client()

    login = await http.post("/api/v1/login", json={"token": token})

    cookie = login.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert token not in cookie
    assert "Secure" not in cookie
    assert (await http.get("/api/v1/me")).json()["user"] == "ann"
    header = {"Cookie": cookie.partition(";")[0]}
    assert (await (await daemon.chat(headers=header)).frame("ready"))["user"] == "ann"
    assert (
        cookie.partition(";")[0].partition("=")[2] not in (daemon.data / "logins.json").read_text()
    )

    await daemon.stop()
    await daemon.start()
    again = await daemon.client(headers=header)
    assert (await again.get("/api/v1/me")).json()["user"] == "ann"
    assert (await again.post("/api/v1/logout")).status_code == 204
    assert (await again.get("/api/v1/me")).status_code == 401


async def test_behind_tls_the_cookie_is_secure(start: Start) -> None:
    """The page's own origin tells that a proxy speaks TLS for us."""
    daemon = await start(**TOKEN, server={"allowed_hosts": ["chat.example.org"]})
    http = await daemon.client(
        headers={"Host": "chat.example.org", "Origin": "https://chat.example.org"}
    )

    login = await http.post("/api/v1/login", json={"token": daemon.token("ann")})

    assert "; Secure" in login.headers["set-cookie"]


async def test_a_revoked_token_ends_at_once(start: Start) -> None:
    """For the running gateway too, with its logins and its open connections."""
    from gateway.tokens import Tokens

    daemon = await start(**TOKEN)
    token = daemon.token("ann")
    bearer, browser = await daemon.client(token), await daemon.client()
    await browser.post("/api/v1/login", json={"token": token})
    chat = await daemon.chat(token)
    await chat.frame("ready")

    Tokens(daemon.data).revoke("ann")

    assert (await bearer.get("/api/v1/me")).status_code == 401
    assert (await browser.get("/api/v1/me")).status_code == 401
    assert await chat.closed() == 4401


async def test_wrong_logins_are_slowed_down(start: Start) -> None:
    """After a few of them there is a pause; a right token is let in all the same."""
    daemon = await start(**TOKEN)
    http = await daemon.client()

    codes = [
        (await http.post("/api/v1/login", json={"token": f"wrong{n}"})).status_code
        for n in range(15)
    ]
    limited = await http.post("/api/v1/login", json={"token": "wrong"})
    right = await http.post("/api/v1/login", json={"token": daemon.token("ann")})

    assert codes[:10] == [401] * 10
    assert codes[-1] == 429
    assert int(limited.headers["retry-after"]) > 0
    assert right.status_code == 200


async def test_the_first_frame_can_carry_the_token(start: Start) -> None:
    """Then `ready` is the first thing the client hears."""
    daemon = await start(**TOKEN)
    chat = await daemon.chat()

    await chat.send("hello", token=daemon.token("ann"))

    assert (await chat.frame("ready"))["user"] == "ann"
    assert len(chat.frames) == 1


@pytest.mark.parametrize(
    "first",
    [
        '{"type":"hello"}',
        '{"type":"hello","token":"wrong"}',
        '{"type":"attach","chat_id":"a"}',
        '{"type":"ping"}',
        "nonsense",
        b"\x00",
    ],
)
async def test_anything_but_a_valid_hello_ends_the_connection(
    start: Start, first: str | bytes
) -> None:
    """Nothing is done for a client nobody knows."""
    daemon = await start(**TOKEN)
    chat = await daemon.chat()

    await chat.socket.send(first)

    assert await chat.closed() == 4401


async def test_a_wrong_bearer_token_ends_the_connection(start: Start) -> None:
    """It is not asked for another one."""
    daemon = await start(**TOKEN)
    chat = await daemon.chat("parley_wrong")

    assert await chat.closed() == 4401


# -- proxy --------------------------------------------------------------------------------------


async def test_the_proxy_names_the_user(start: Start) -> None:
    """For HTTP and the WebSocket; the settings name the administrators."""
    daemon = await start(**PROXY)
    ann = await daemon.client(headers={"X-Remote-User": "ann"})
    root = await daemon.client(headers={"X-Remote-User": "root"})
    chat = await daemon.chat(headers={"X-Remote-User": "ann"})

    assert (await ann.get("/api/v1/me")).json() == {"user": "ann", "role": "user", "mode": "proxy"}
    assert (await root.get("/api/v1/me")).json()["role"] == "admin"
    assert (await chat.frame("ready"))["user"] == "ann"


async def test_the_proxy_must_name_exactly_one_user(start: Start) -> None:
    """A second header would be the client's own."""
    daemon = await start(**PROXY)
    http = await daemon.client()
    name = b"X-Remote-User"

    for values in ([], [b"ann", b"root"], [b""], [b"a" * 300], [b"\xff\xfe"]):
        headers = [(name, value) for value in values]

        assert (await http.get("/api/v1/me", headers=headers)).status_code == 401, values


async def test_only_the_proxy_itself_is_believed(start: Start) -> None:
    """What a client says about its address changes nothing: the socket's own peer counts."""
    settings = {"auth": {**PROXY["auth"], "trusted_peers": ["10.1.2.3/32"]}}
    daemon = await start(**settings)
    http = await daemon.client(
        headers={
            "X-Remote-User": "root",
            "X-Forwarded-For": "10.1.2.3",
            "X-Real-IP": "10.1.2.3",
            "Forwarded": "for=10.1.2.3",
        }
    )
    chat = await daemon.chat(headers={"X-Remote-User": "root", "X-Forwarded-For": "10.1.2.3"})

    assert (await http.get("/api/v1/me")).status_code == 401
    assert await chat.closed() == 4401


# -- hosts and origins ----------------------------------------------------------------------------


async def test_only_known_hosts_are_answered(start: Start) -> None:
    """A name somebody else controls must not lead to this machine."""
    daemon = await start(server={"allowed_hosts": ["chat.example.org", "exact.example.org:8443"]})
    http = await daemon.client()

    for host, status in [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:8765", 200),
        ("127.9.9.9", 200),
        ("[::1]:8765", 200),
        ("[::1]", 200),
        ("chat.example.org", 200),
        ("chat.example.org:8443", 200),
        ("exact.example.org:8443", 200),
        ("exact.example.org", 403),
        ("evil.example.com", 403),
        ("localhost.evil.example.com", 403),
        ("chat.example.org.evil.com", 403),
        ("localhost@evil.com", 403),
        ("[::1", 403),
        ("[::1]x", 403),
        ("127.0.0.1:x", 403),
        ("192.168.1.1", 403),
        ("", 403),
    ]:
        assert (await http.get("/healthz", headers={"Host": host})).status_code == status, host


async def test_other_sites_change_nothing(start: Start) -> None:
    """Neither by a request nor by opening a WebSocket; reading is stopped by the browser."""
    daemon = await start(server={"allowed_origins": ["https://app.example.org"]})
    http = await daemon.client()
    message = {"key": "websocket:a", "text": "hi"}

    for origin, allowed in [
        (None, True),
        (daemon.url, True),
        ("https://app.example.org", True),
        ("https://evil.example.com", False),
        ("http://127.0.0.1:1", False),
        ("null", False),
        ("https://app.example.org.evil.com", False),
        ("file://", False),
    ]:
        headers = {} if origin is None else {"Origin": origin}
        posted = await http.post("/api/v1/messages", json=message, headers=headers)

        assert posted.status_code == (202 if allowed else 403), origin
        if allowed:
            assert (await (await daemon.chat(headers=headers)).frame("ready"))["user"] == "local"
        else:
            with pytest.raises(InvalidStatus) as refused:
                await daemon.chat(headers=headers)
            assert refused.value.response.status_code == 403


async def test_a_browser_that_names_no_origin_still_tells_where_it_comes_from(
    daemon: Daemon,
) -> None:
    """Sec-Fetch-Site cannot be set by a page."""
    http = await daemon.client(headers={"Sec-Fetch-Site": "cross-site"})
    message = {"key": "websocket:a", "text": "hi"}

    assert (await http.post("/api/v1/messages", json=message)).status_code == 403


async def test_a_bearer_token_needs_no_origin(start: Start) -> None:
    """No page of another site can send one; a program may run anywhere."""
    daemon = await start(**TOKEN)
    http = await daemon.client(daemon.token("root", "admin"), headers={"Origin": "https://x.org"})
    message = {"key": "websocket:a", "text": "hi"}

    assert (await http.post("/api/v1/messages", json=message)).status_code == 202


async def test_too_many_connections_are_refused_at_the_handshake(start: Start) -> None:
    """One that ends makes room for the next."""
    daemon = await start(limits={"connections": 2})
    first, second = await daemon.chat(), await daemon.chat()
    await first.frame("ready")
    await second.frame("ready")

    with pytest.raises(InvalidStatus) as refused:
        await daemon.chat()

    assert refused.value.response.status_code == 503
    await first.socket.close()
    assert (await _when_there_is_room(daemon)) is not None


async def _when_there_is_room(daemon: Daemon) -> Chat:
    async with asyncio.timeout(30):
        while True:
            try:
                return await daemon.chat()
            except InvalidStatus:
                await asyncio.sleep(0)
