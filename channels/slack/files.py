"""Files from people: their bytes, straight from Slack.

The log holds only a file's id; its address is asked for when it is needed. Our token goes to Slack
and to nobody else, so redirects are followed by hand. Slack answers who may not read a file with
its login page and status 200, which must not be taken for the file.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp

from channels.errors import Later, Unavailable
from channels.slack.api import Fatal, Limited, Rejected, SlackError
from channels.slack.fields import mapping, string
from channels.slack.translate import File, to_file
from channels.slack.workspace import Workspace

HOSTS = ("slack.com", "slack-files.com", "slack-edge.com")
REDIRECTS = 5
PIECE_BYTES = 64 * 1024
TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=30)
NOT_ALLOWED = "the scope files:read is missing, or the app was not reinstalled after adding it"
DELETED = frozenset({"file_not_found", "file_deleted", "invalid_file_id"})


async def download(
    workspace: Workspace, item: dict[str, Any], *, api_base_url: str, limit: int
) -> AsyncGenerator[bytes, None]:
    """Raises Unavailable, or Later if another attempt may succeed."""
    source = mapping(item.get("source"))
    if problem := string(source, "problem"):
        raise Unavailable(problem)
    if not workspace.identity.has("files:read"):
        raise Unavailable(NOT_ALLOWED)
    _check_size(item.get("size"), limit)
    file = await _info(workspace, string(source, "id"))
    _check_size(file.size, limit)
    links = Links(workspace.api.token, api_base_url)
    size = 0
    try:
        response = await _open(workspace.api.session, file.url, links)
        async with response:
            _check_answer(response, file)
            async for piece in response.content.iter_chunked(PIECE_BYTES):
                size += len(piece)
                _check_size(size, limit)
                yield piece
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Later(f"the download broke off ({type(error).__name__})") from error


class Links:
    """Which addresses are Slack's: there, and only there, the token is shown."""

    def __init__(self, token: str, api_base_url: str) -> None:
        self._token = token
        self._api = urlsplit(api_base_url)

    def headers(self, url: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self.is_slack(url) else {}

    def is_slack(self, url: str) -> bool:
        parts = urlsplit(url)
        if parts.scheme == self._api.scheme and parts.netloc == self._api.netloc:
            return True
        host = (parts.hostname or "").lower()
        known = any(host == name or host.endswith(f".{name}") for name in HOSTS)
        return known and parts.scheme == "https" and parts.port in (None, 443)

    def may_follow(self, url: str) -> bool:
        """Nothing in the clear, unless Slack itself is spoken to that way."""
        return urlsplit(url).scheme in ("https", self._api.scheme)


async def _info(workspace: Workspace, id: str) -> File:
    try:
        answer = await workspace.api.call("files.info", {"file": id}, form=True)
    except Rejected as error:
        if error.error == "missing_scope":
            raise Unavailable(NOT_ALLOWED) from error
        if error.error in DELETED:
            raise Unavailable("it was deleted") from error
        raise Unavailable(f"Slack refused it ({error.error})") from error
    except Limited as error:
        raise Later("Slack is asked too often", error.retry_after) from error
    except Fatal as error:
        raise Unavailable(f"Slack refused it ({error.error})") from error
    except SlackError as error:
        raise Later(f"Slack cannot be reached ({error.error})") from error
    facts = mapping(answer.get("file"))
    file = to_file(facts)
    if file.problem:
        raise Unavailable(file.problem)
    if facts.get("is_external") is True or not file.url:
        raise Unavailable("it is not kept in Slack")
    return file


async def _open(session: aiohttp.ClientSession, url: str, links: Links) -> aiohttp.ClientResponse:
    """The answer at the end of the redirects."""
    if not links.is_slack(url):
        raise Unavailable("it is not kept in Slack")
    for _ in range(REDIRECTS + 1):
        response = await session.get(
            url, headers=links.headers(url), allow_redirects=False, timeout=TIMEOUT
        )
        if response.status not in (301, 302, 303, 307, 308):
            return response
        response.release()
        url = urljoin(url, response.headers.get("Location", ""))
        if not links.may_follow(url):
            break
        if "redir=" in urlsplit(url).query:
            raise Unavailable(NOT_ALLOWED)  # The way to the login page.
    raise Unavailable("Slack sends it from nowhere")


def _check_answer(response: aiohttp.ClientResponse, file: File) -> None:
    status = response.status
    if status in (401, 403):
        raise Unavailable(NOT_ALLOWED)
    if status in (404, 410):
        raise Unavailable("it was deleted")
    if status == 429 or status >= 500:
        raise Later(f"Slack cannot send it now (status {status})")
    if status != 200:
        raise Unavailable(f"Slack refused it (status {status})")
    if response.content_type == "text/html" and file.mime != "text/html":
        raise Unavailable(NOT_ALLOWED)


def _check_size(size: object, limit: int) -> None:
    if isinstance(size, int) and size > limit:
        raise Unavailable(f"it is larger than {limit:,} bytes")
