"""Files: who may use them, what a browser is told about them, and what cannot be done with them."""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from gateway.config import Settings
from gateway.media import Media, clean_name
from gateway.users import User
from tests.http.conftest import Start
from tests.http.daemon import Daemon

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 64
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
TOKEN = {"auth": {"mode": "token"}}


async def upload(
    http: httpx.AsyncClient, name: str, data: bytes, mime: str = "application/octet-stream"
) -> httpx.Response:
    return await http.post("/api/v1/media", files={"file": (name, data, mime)})


async def test_a_file_comes_back_as_it_was(daemon: Daemon) -> None:
    """It is stored with what is known of it, readable by its owner alone."""
    http = await daemon.client()

    uploaded = await upload(http, "cat.png", PNG, "text/html")
    item = uploaded.json()
    shown = await http.get(item["url"])

    assert uploaded.status_code == 201
    assert (item["name"], item["mime"], item["size"]) == ("cat.png", "image/png", len(PNG))
    assert shown.content == PNG
    place = daemon.data / "media" / item["id"][:2] / item["id"]
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o600
    assert list((daemon.data / "tmp").glob("upload-*")) == []


@pytest.mark.parametrize(
    ("name", "data", "mime", "inline"),
    [
        ("a.png", PNG, "text/html", True),
        ("a.jpg", b"\xff\xd8\xff\xe0jpeg", "image/jpeg", True),
        ("a.gif", b"GIF89a....", "image/gif", True),
        ("a.webp", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp", True),
        ("a.svg", SVG, "image/svg+xml", False),
        ("a.html", b"<script>alert(1)</script>", "text/html", False),
        ("fake.png", b"<script>alert(1)</script>", "image/png", False),
        ("a.pdf", b"%PDF-1.7", "application/pdf", False),
        ("empty", b"", "image/png", False),
    ],
)
async def test_only_real_pictures_are_shown_in_place(
    daemon: Daemon, name: str, data: bytes, mime: str, inline: bool
) -> None:
    """Everything else is a download that no browser runs, whatever it claims to be."""
    http = await daemon.client()

    item = (await upload(http, name, data, mime)).json()
    shown = await http.get(item["url"])

    kind = "inline" if inline else "attachment"
    assert shown.headers["content-disposition"].startswith(f"{kind};")
    assert shown.headers["content-type"] == (item["mime"] if inline else "application/octet-stream")
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in shown.headers["content-security-policy"]
    assert not (item["mime"].startswith("image/") and not inline and name == "fake.png")


async def test_a_link_is_good_only_as_it_was_given(daemon: Daemon) -> None:
    """Not for longer, not for another file, not unsigned; unknown ids look the same."""
    http = await daemon.client()
    item = (await upload(http, "a.png", PNG)).json()
    path, _, query = item["url"].partition("?")
    values = dict(httpx.QueryParams(query))
    other = "0" * 32

    refused = await http.get(path)
    for wrong in [
        {**values, "exp": str(int(values["exp"]) + 1)},
        {**values, "sig": values["sig"][:-1] + ("A" if values["sig"][-1] != "A" else "B")},
        {**values, "sig": ""},
        {**values, "exp": "0"},
        {**values, "sig": "é"},
    ]:
        here = await http.get(path, params=wrong)
        nowhere = await http.get(f"/api/v1/media/{other}", params=wrong)

        assert (here.status_code, here.content) == (403, refused.content)
        assert (nowhere.status_code, nowhere.content) == (403, refused.content)


async def test_an_old_link_ends(tmp_path: Path) -> None:
    """The signature covers the end, and the end is kept."""
    media = Media(tmp_path / "media", Settings)
    past = int(time.time()) - 1

    assert not media.is_signed("a", past, media.sign("a", past))
    assert media.is_signed("a", past + 60, media.sign("a", past + 60))


async def test_links_stay_good_over_a_restart(start: Start) -> None:
    """The secret behind them is made once; it is private."""
    daemon = await start()
    item = (await upload(await daemon.client(), "a.png", PNG)).json()
    await daemon.stop()
    await daemon.start()

    again = await (await daemon.client()).get(item["url"])

    assert again.content == PNG
    assert stat.S_IMODE(os.stat(daemon.data / "secret").st_mode) == 0o600


@pytest.mark.parametrize(
    "path",
    [
        "..%2F..%2Fsecret",
        "../../secret",
        "%2e%2e",
        "tokens.json",
        "00%00",
        "0" * 32 + ".json",
    ],
)
async def test_no_id_leads_out_of_the_media_directory(tmp_path: Path, path: str) -> None:
    """An id is 32 hexadecimal digits and nothing else, signed or not."""
    media = Media(tmp_path / "media", Settings)

    assert media.facts(path) is None
    assert media.delete([path]) == 0
    assert (tmp_path / "secret").exists()


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\Windows\\system.ini", "system.ini"),
        ("..", "file"),
        ("", "file"),
        (".hidden", "hidden"),
        ("a\r\nSet-Cookie: x", "aSet-Cookie: x"),
        ("report\u202efdp.exe", "reportfdp.exe"),
        ("x" * 300 + ".png", "x" * 116 + ".png"),
        ("grüße 漢字.txt", "grüße 漢字.txt"),
    ],
)
def test_names_are_made_harmless(name: str, kept: str) -> None:
    """A name is shown and offered for saving; it never misleads and never leaves its directory."""
    assert clean_name(name) == kept


async def test_a_file_that_is_too_large_is_refused(start: Start) -> None:
    """At its announced size or while it comes in; nothing of it is left."""
    daemon = await start(limits={"upload": 1_000})
    http = await daemon.client()

    async def chunks() -> AsyncIterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        for _ in range(100):
            yield b"x" * 10_000

    announced = await upload(http, "big", b"x" * 2_000)
    streamed = await http.post(
        "/api/v1/media",
        content=chunks(),
        headers={"Content-Type": "multipart/form-data; boundary=b"},
    )

    assert announced.status_code == 413
    assert streamed.status_code == 413
    assert (await upload(http, "fits", b"x" * 1_000)).status_code == 201
    assert list((daemon.data / "tmp").glob("upload-*")) == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=b", b"nonsense"),
        ("multipart/form-data; boundary=b", b""),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\ncut of',
        ),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="other"\r\n\r\nx\r\n--b--\r\n',
        ),
        ("multipart/form-data; boundary=b", b"--b\r\n" + b"X: " + b"y" * 20_000 + b"\r\n\r\n"),
    ],
)
async def test_a_damaged_upload_is_told_so(daemon: Daemon, kind: str, body: bytes) -> None:
    """Whatever is wrong with it, the answer says that its form is wrong and nothing is kept."""
    http = await daemon.client()

    answer = await http.post("/api/v1/media", content=body, headers={"Content-Type": kind})

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert not (daemon.data / "media").exists()


async def test_files_travel_with_messages(daemon: Daemon) -> None:
    """The message names them, with a link; deleting the session removes them."""
    http, chat = await daemon.client(), await daemon.chat()
    item = (await upload(http, "cat.png", PNG)).json()

    await chat.say("c", "look", media=[item["id"]])
    messages = (await http.get("/api/v1/sessions/websocket:c/messages")).json()["messages"]
    media = messages[0]["media"]

    assert media[0]["id"] == item["id"]
    assert (await http.get(media[0]["url"])).content == PNG
    assert (await http.delete("/api/v1/sessions/websocket:c")).status_code == 204
    assert (await http.get(item["url"])).status_code == 404


async def test_files_of_others_do_not_exist(start: Start) -> None:
    """A foreign id and one that was never given out are refused alike."""
    daemon = await start(**TOKEN)
    ann, bob = daemon.token("ann"), daemon.token("bob")
    item = (await upload(await daemon.client(ann), "a.png", PNG)).json()
    chat = await daemon.chat(bob)

    errors = []
    for name in (item["id"], "0" * 32, "../../secret"):
        await chat.send("send", chat_id="c", id="1", text="x", media=[name])
        errors.append(await chat.frame("error"))

    assert {(error["code"], error["message"]) for error in errors} == {
        ("not_found", "There is no such file.")
    }


async def test_what_an_agent_makes_is_kept_for_readers(tmp_path: Path) -> None:
    """It has no owner: nobody can send it on, everybody who sees the chat gets a link."""
    from channels.errors import Refused
    from gateway.agents.agent import Produced

    media = Media(tmp_path / "media", Settings)

    item = await media.stage(Produced("../plot.png", "image/png", PNG))

    assert item == {"id": item["id"], "name": "plot.png", "mime": "image/png", "size": len(PNG)}
    assert (await asyncio.to_thread(media.file(item["id"]).read_bytes)) == PNG
    with pytest.raises(Refused):
        await media.resolve(User("ann"), [item["id"]])
