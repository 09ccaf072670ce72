"""The local Slack as one object: it listens, records, and tells."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import aiohttp
from aiohttp import web

from tests.support.slack import http_events
from tests.support.slack.faults import LOGIN_PAGE, Fault, Faults
from tests.support.slack.limits import SlackError
from tests.support.slack.people import People
from tests.support.slack.socket_mode import Ack, Envelope, Socket, SocketMode
from tests.support.slack.web_api import WebApi
from tests.support.slack.workspace import APP_TOKEN, Clock, File, Message, Workspace

PATIENCE_SECONDS = 60
JSON_ARGUMENTS = {"attachments", "blocks", "chunks", "files", "metadata", "view"}


@dataclass
class Call:
    """One request to the Web API."""

    method: str
    args: dict[str, Any]
    at: float
    order: int
    """Its place among all calls and acknowledgements, taken when it arrived."""
    token: str
    status: int | None = None
    result: dict[str, Any] | None = None
    """What Slack decided, also if the answer was lost on its way. None: never processed."""
    ended: bool = False

    @property
    def error(self) -> str | None:
        return None if self.result is None else self.result.get("error")


@dataclass
class ResponseUrl:
    workspace: Workspace
    user: str
    channel: str
    message: Message | None
    uses: int = 0


class LocalSlack(People):
    def __init__(self, port: int = 0) -> None:
        self.clock = Clock()
        self.workspace = Workspace(1, self.clock)
        self.faults = Faults()
        self.calls: list[Call] = []
        self.revoked: dict[str, str] = {}
        """Tokens Slack no longer takes, with the error it gives."""
        self.app_token = APP_TOKEN
        self.port = port
        self._order = 0
        self._changed = asyncio.Event()
        self._response_urls: dict[str, ResponseUrl] = {}
        self._runner: web.AppRunner | None = None
        self._http: tuple[str, str] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.socket_mode = SocketMode(self.faults, self.url, self._ordered, self._acknowledged)
        super().__init__([self.workspace], self._carry, self._new_response_url)
        self.web_api = WebApi(self.told_of, self.url)

    # -- its life -----------------------------------------------------------------------------

    async def start(self) -> Self:
        """Listens. After a stop: on the same port, with everything as it was."""
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/api/{method}", self._web_api)
        app.router.add_get("/link/", self.socket_mode.serve)
        app.router.add_post("/upload/v1/{id}", self._upload)
        app.router.add_get("/files-pri/{tail:.+}", self._download)
        app.router.add_post("/response/{id}", self._respond)
        app.router.add_post("/_control", self._control)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        """Gone without a word, like a machine that lost its network."""
        self.socket_mode.stop()
        for task in self._tasks:
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    @property
    def api_base_url(self) -> str:
        return self.url("/api/")

    def add_workspace(self) -> Workspace:
        """One more that has the app installed; its bot token is its own."""
        self.workspaces.append(Workspace(len(self.workspaces) + 1, self.clock))
        return self.workspaces[-1]

    # -- what is known ------------------------------------------------------------------------

    @property
    def sockets(self) -> list[Socket]:
        return self.socket_mode.sockets

    @property
    def envelopes(self) -> list[Envelope]:
        return self.socket_mode.envelopes

    @property
    def acks(self) -> list[Ack]:
        return self.socket_mode.acks

    @property
    def ephemerals(self) -> list[Message]:
        return [message for workspace in self.workspaces for message in workspace.ephemerals]

    def messages(self, channel: str, thread_ts: str | None = None) -> list[Message]:
        """What people see now: the channel's own messages, or a thread with its root."""
        return self.place(channel).messages(channel, thread_ts)

    def answers(self, channel: str, thread_ts: str | None = None) -> list[Message]:
        """The bot's part of it."""
        bot = self.place(channel).bot_user
        return [m for m in self.messages(channel, thread_ts) if m.user == bot]

    def called(self, method: str) -> list[Call]:
        return [call for call in self.calls if call.method == method]

    def told(self, message: Message) -> list[Envelope]:
        """The envelopes that carried this message, as new or as a mention."""
        return [
            envelope
            for envelope in self.envelopes
            if (envelope.event.get("channel"), envelope.event.get("ts"))
            == (message.channel, message.ts)
        ]

    async def acked(self, message: Message) -> None:
        await self.until(lambda: all(envelope.acked for envelope in self.told(message)))

    async def until(
        self, reached: Callable[[], object], timeout_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Waits for a state. It looks again at every change here, and now and then by itself."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while not reached():
                    self._changed.clear()
                    try:
                        async with asyncio.timeout(0.05):
                            await self._changed.wait()
                    except TimeoutError:
                        continue
        except TimeoutError:
            last = [(call.method, call.status, call.error) for call in self.calls[-20:]]
            raise AssertionError(f"it never came to that; the last calls: {last}") from None

    def _ordered(self) -> int:
        self._order += 1
        self._changed.set()
        return self._order

    # -- trouble ------------------------------------------------------------------------------

    async def disconnect(self, reason: str = "refresh_requested", close: bool = False) -> None:
        self.socket_mode.disconnect(reason, close)

    async def kill_sockets(self) -> None:
        self.socket_mode.kill()

    def advance(self, seconds: float) -> None:
        """Moves Slack's clock, for example past the life of a native stream."""
        self.clock.offset_seconds += seconds

    # -- HTTP events --------------------------------------------------------------------------

    def use_http(self, url: str, signing_secret: str) -> None:
        """From now on everything is told by HTTP requests to this URL."""
        self._http = (url, signing_secret)

    async def post_event(
        self,
        url: str,
        payload: Mapping[str, Any],
        signing_secret: str,
        headers: Mapping[str, str | None] | None = None,
    ) -> http_events.Posted:
        """One signed request; `headers` replace the right ones, None leaves one out."""
        return await http_events.post(
            url, json.dumps(payload).encode(), signing_secret, headers=headers
        )

    async def verify_url(self, url: str, signing_secret: str) -> http_events.Posted:
        payload = {"type": "url_verification", "token": "deprecated", "challenge": "challenge-1"}
        return await self.post_event(url, payload, signing_secret)

    def _carry(self, envelope: Envelope) -> None:
        if self._http is None:
            self.socket_mode.deliver(envelope)
            return
        self.envelopes.append(envelope)
        task = asyncio.get_running_loop().create_task(self._by_http(envelope), name="slack-event")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _by_http(self, envelope: Envelope) -> None:
        reason = ""
        while not envelope.acked and self._http is not None:
            envelope.ids.append(f"http-{len(envelope.ids)}")
            try:
                posted = await http_events.deliver(
                    *self._http, envelope, len(envelope.ids) - 1, reason
                )
            except TimeoutError:
                reason = "http_timeout"
            except aiohttp.ClientError:
                reason = "connection_failed"
            else:
                reason = "http_error"
                if posted.status < 300:
                    envelope.acked_at, envelope.ack_order = time.monotonic(), self._ordered()
                    if posted.body.startswith("{"):
                        envelope.response = posted.json
                    self._acknowledged(envelope)
            if envelope.type != "events_api" or envelope.acked:
                return
            await asyncio.sleep(self.socket_mode.retry_seconds)

    def _acknowledged(self, envelope: Envelope) -> None:
        """A command may be answered in the acknowledgement itself."""
        if envelope.type == "slash_commands" and (envelope.response or {}).get("text"):
            assert envelope.response is not None
            name = envelope.payload["response_url"].rpartition("/")[2]
            self._apply(self._response_urls[name], envelope.response)
        self._changed.set()

    # -- requests -----------------------------------------------------------------------------

    async def _web_api(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        args = await _arguments(request)
        token = str(args.pop("token", "")) or _bearer(request)
        call = Call(method, args, time.monotonic(), self._ordered(), token)
        self.calls.append(call)
        fault = self.faults.take(method, args)
        return await self._answer(request, fault, lambda: self._process(call), call)

    async def _answer(
        self,
        request: web.Request,
        fault: Fault,
        process: Callable[[], web.Response],
        call: Call | None = None,
    ) -> web.StreamResponse:
        try:
            await asyncio.sleep(fault.delay_seconds)
            if fault.status is not None:
                response = _made(fault)
                if call is not None and isinstance(fault.body, Mapping):
                    call.result = dict(fault.body)
            elif not fault.lost or fault.processed:
                response = process()
            else:
                response = web.Response()
            if fault.lost == "hang":
                self._changed.set()
                await asyncio.Event().wait()
            if fault.lost == "drop" and request.transport is not None:
                request.transport.abort()
            elif call is not None:
                call.status = response.status
        finally:
            if call is not None:
                call.ended = True
            self._changed.set()
        return response

    def _process(self, call: Call) -> web.Response:
        headers = {"x-slack-req-id": f"local-{call.order}"}
        try:
            if call.method == "apps.connections.open":
                self._check_token(call.token, "xapp-")
                call.result = {"ok": True, "url": self.socket_mode.ticket()}
            else:
                workspace = self._check_token(call.token, "xoxb-")
                headers["x-oauth-scopes"] = ",".join(sorted(workspace.scopes))
                call.result = self.web_api.call(workspace, call.method, call.args)
        except SlackError as error:
            call.result = {"ok": False, "error": error.error, **error.fields}
        return web.json_response(call.result, headers=headers)

    def _check_token(self, token: str, kind: str) -> Workspace:
        if not token:
            raise SlackError("not_authed")
        if token in self.revoked:
            raise SlackError(self.revoked[token])
        known = {workspace.bot_token: workspace for workspace in self.workspaces}
        known[self.app_token] = self.workspace
        if token not in known:
            raise SlackError("invalid_auth")
        if not token.startswith(kind):
            raise SlackError("not_allowed_token_type")
        return known[token]

    # -- files --------------------------------------------------------------------------------

    def file(
        self, name: str = "note.txt", content: bytes = b"text", mimetype: str = "text/plain"
    ) -> File:
        """A file a person can attach with `say(files=[…])`."""
        return self.web_api.new_file(self.workspace, name, content, mimetype)

    def _file(self, id: str) -> File | None:
        return next((w.files[id] for w in self.workspaces if id in w.files), None)

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        content = await _content(request)
        file = self._file(request.match_info["id"])

        def process() -> web.Response:
            if file is None or len(content) != file.declared_size:
                return web.Response(status=400, text="invalid")
            file.content, file.declared_size = content, None
            return web.Response(text=f"OK - {len(content)}")

        fault = self.faults.take("upload", dict(request.match_info))
        return await self._answer(request, fault, process)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["tail"].partition("/")[0].partition("-")[2]
        file = self._file(name)

        def process() -> web.Response:
            workspace = next((w for w in self.workspaces if name in w.files), self.workspace)
            allowed = _bearer(request) == workspace.bot_token and "files:read" in workspace.scopes
            if not allowed or workspace.bot_token in self.revoked:
                return web.Response(text=LOGIN_PAGE, content_type="text/html")
            if file is None:
                return web.Response(status=404, text="not found")
            return web.Response(body=file.content, content_type=file.mimetype)

        fault = self.faults.take("download", {"id": name})
        return await self._answer(request, fault, process)

    # -- response URLs ------------------------------------------------------------------------

    def _new_response_url(
        self, workspace: Workspace, user: str, channel: str, message: Message | None
    ) -> str:
        name = f"r{workspace.number_new()}"
        self._response_urls[name] = ResponseUrl(workspace, user, channel, message)
        return self.url(f"/response/{name}")

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        args = await _arguments(request)
        known = self._response_urls.get(request.match_info["id"])
        call = Call("response_url", args, time.monotonic(), self._ordered(), "")
        self.calls.append(call)

        def process() -> web.Response:
            if known is None or known.uses >= 5:
                return web.json_response({"ok": False, "error": "used_url"}, status=404)
            known.uses += 1
            self._apply(known, args)
            call.result = {"ok": True}
            return web.Response(text="ok")

        return await self._answer(request, self.faults.take("response_url", args), process, call)

    def _apply(self, url: ResponseUrl, args: Mapping[str, Any]) -> None:
        workspace, message = url.workspace, url.message
        if args.get("delete_original") and message is not None:
            message.deleted = True
            return
        if args.get("replace_original") and message is not None:
            message.text, message.blocks = args.get("text") or "", args.get("blocks") or []
            message.remember()
            return
        said = Message(
            url.channel,
            workspace.clock.ts(),
            workspace.bot_user,
            args.get("text") or "",
            bot_id=workspace.bot_id,
            blocks=args.get("blocks") or [],
            thread_ts=args.get("thread_ts") or None,
        )
        if args.get("response_type") == "in_channel":
            workspace.post(said)
        else:
            said.ephemeral_to = url.user
            said.remember()
            workspace.ephemerals.append(said)

    async def _control(self, request: web.Request) -> web.Response:
        from tests.support.slack.control import obey

        return web.json_response(await obey(self, await request.json()))


def _made(fault: Fault) -> web.Response:
    assert fault.status is not None
    if isinstance(fault.body, str):
        return web.Response(status=fault.status, text=fault.body, headers=dict(fault.headers))
    return web.json_response(dict(fault.body), status=fault.status, headers=dict(fault.headers))


def _bearer(request: web.Request) -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if kind == "Bearer" else ""


async def _arguments(request: web.Request) -> dict[str, Any]:
    """From the query, a form or a JSON object; parts that are JSON inside a form are decoded."""
    args: dict[str, Any] = dict(request.query)
    if request.content_type == "application/json":
        args |= await request.json()
    elif request.can_read_body:
        args |= dict(await request.post())
    for name in JSON_ARGUMENTS & args.keys():
        if isinstance(args[name], str):
            args[name] = json.loads(args[name])
    return args


async def _content(request: web.Request) -> bytes:
    if not request.content_type.startswith("multipart/"):
        return await request.read()
    for part in (await request.post()).values():
        if isinstance(part, web.FileField):
            return part.file.read()
    return b""
