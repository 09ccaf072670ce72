"""The Web API's methods: arguments in, answer out, without HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.support.slack.limits import (
    MARKDOWN_LIMIT,
    UPDATE_TEXT_LIMIT,
    SlackError,
    check_blocks,
    check_content,
    check_metadata,
)
from tests.support.slack.workspace import (
    APP_ID,
    KINDS,
    STREAM_SECONDS,
    Channel,
    File,
    Message,
    Workspace,
)

Args = Mapping[str, Any]
Answer = dict[str, Any]
Notify = Callable[[Workspace, str, Message, dict[str, Any]], None]
"""Told of every message the bot made (`posted`), changed or deleted, with its form before."""
SCOPE_OF = {
    "chat.delete": "chat:write",
    "chat.postEphemeral": "chat:write",
    "chat.postMessage": "chat:write",
    "chat.update": "chat:write",
    "chat.startStream": "chat:write",
    "chat.appendStream": "chat:write",
    "chat.stopStream": "chat:write",
    "assistant.threads.setStatus": "chat:write",
    "conversations.history": "{kind}:history",
    "conversations.info": "{kind}:read",
    "conversations.open": "im:write",
    "conversations.replies": "{kind}:history",
    "files.completeUploadExternal": "files:write",
    "files.getUploadURLExternal": "files:write",
    "files.info": "files:read",
    "reactions.add": "reactions:write",
    "reactions.remove": "reactions:write",
    "users.info": "users:read",
}


class WebApi:
    def __init__(self, notify: Notify, url: Callable[[str], str]) -> None:
        self._notify = notify
        self._url = url
        self._methods: dict[str, Callable[[Workspace, Args], Answer]] = {
            "assistant.threads.setStatus": self._set_status,
            "auth.test": self._auth_test,
            "chat.appendStream": self._append_stream,
            "chat.delete": self._delete,
            "chat.getPermalink": self._permalink,
            "chat.postEphemeral": self._ephemeral,
            "chat.postMessage": self._post,
            "chat.startStream": self._start_stream,
            "chat.stopStream": self._stop_stream,
            "chat.update": self._update,
            "conversations.history": self._history,
            "conversations.info": self._info,
            "conversations.open": self._open,
            "conversations.replies": self._replies,
            "files.completeUploadExternal": self._complete_upload,
            "files.getUploadURLExternal": self._upload_url,
            "files.info": self._file_info,
            "reactions.add": self._react,
            "reactions.remove": self._unreact,
            "users.info": self._user,
            "views.publish": self._publish,
        }

    def call(self, workspace: Workspace, method: str, args: Args) -> Answer:
        """Raises SlackError for everything Slack would refuse."""
        if method not in self._methods:
            raise SlackError("unknown_method", req_method=method)
        self._check_scope(workspace, method, args)
        return {"ok": True, **self._methods[method](workspace, args)}

    def _check_scope(self, workspace: Workspace, method: str, args: Args) -> None:
        channel = workspace.channels.get(str(args.get("channel")))
        kind = KINDS[channel.kind] if channel else "channels"
        needed = SCOPE_OF.get(method, "").format(kind=kind)
        if needed and needed not in workspace.scopes:
            provided = ",".join(sorted(workspace.scopes))
            raise SlackError("missing_scope", needed=needed, provided=provided)

    # -- identity -----------------------------------------------------------------------------

    def _auth_test(self, workspace: Workspace, _: Args) -> Answer:
        return {
            "url": self._url("/"),
            "team": f"Workspace {workspace.number}",
            "user": "parley",
            "team_id": workspace.team_id,
            "user_id": workspace.bot_user,
            "bot_id": workspace.bot_id,
            "app_id": APP_ID,
            "is_enterprise_install": False,
        }

    def _user(self, workspace: Workspace, args: Args) -> Answer:
        user = workspace.users.get(_text(args, "user"))
        if user is None:
            raise SlackError("user_not_found")
        return {"user": user.as_json()}

    def _publish(self, workspace: Workspace, args: Args) -> Answer:
        view = args.get("view")
        if not isinstance(view, dict) or view.get("type") != "home":
            raise SlackError("invalid_arguments")
        check_blocks(view.get("blocks", []))
        if _text(args, "user_id") not in workspace.users:
            raise SlackError("user_not_found")
        workspace.views[args["user_id"]] = view
        return {"view": {"id": f"V{workspace.number_new():09d}", **view}}

    # -- messages -----------------------------------------------------------------------------

    def _post(self, workspace: Workspace, args: Args) -> Answer:
        channel = workspace.writable(_text(args, "channel"))
        check_content(args)
        message = self._new(workspace, channel, args)
        if args.get("reply_broadcast") in (True, "1", "true") and message.thread_ts:
            message.subtype = "thread_broadcast"
        workspace.post(message)
        self._notify(workspace, "posted", message, {})
        return {"channel": channel.id, "ts": message.ts, "message": message.as_json()}

    def _new(self, workspace: Workspace, channel: Channel, args: Args) -> Message:
        markdown = args.get("markdown_text")
        return Message(
            channel=channel.id,
            ts=workspace.clock.ts(),
            user=workspace.bot_user,
            bot_id=workspace.bot_id,
            text=args.get("text") or markdown or "",
            thread_ts=args.get("thread_ts") or None,
            blocks=args.get("blocks") or [],
            attachments=args.get("attachments") or [],
            metadata=args.get("metadata"),
        )

    def _ephemeral(self, workspace: Workspace, args: Args) -> Answer:
        channel = workspace.writable(_text(args, "channel"))
        check_content(args)
        user = _text(args, "user")
        if user not in channel.members:
            raise SlackError("user_not_in_channel")
        message = self._new(workspace, channel, args)
        message.ephemeral_to = user
        message.remember()
        workspace.ephemerals.append(message)
        return {"message_ts": message.ts}

    def _update(self, workspace: Workspace, args: Args) -> Answer:
        channel = workspace.writable(_text(args, "channel"))
        message = self._own(workspace, channel, args, "cant_update_message")
        if workspace.streaming(message):
            raise SlackError("streaming_state_conflict")
        check_content(args, UPDATE_TEXT_LIMIT)
        before = message.as_json()
        text = args.get("text") or args.get("markdown_text")
        if "blocks" in args:
            message.blocks = args["blocks"] or []
        elif text:
            message.blocks = []
        message.text = text or message.text
        message.attachments = args.get("attachments") or message.attachments
        message.metadata = args.get("metadata", message.metadata)
        message.edited_ts = workspace.clock.ts()
        message.remember()
        self._notify(workspace, "changed", message, before)
        return {"channel": channel.id, "ts": message.ts, "text": message.text}

    def _delete(self, workspace: Workspace, args: Args) -> Answer:
        channel = workspace.channel(_text(args, "channel"))
        message = self._own(workspace, channel, args, "cant_delete_message")
        if workspace.streaming(message):
            raise SlackError("cant_delete_message")
        before = message.as_json()
        message.deleted = True
        self._notify(workspace, "deleted", message, before)
        return {"channel": channel.id, "ts": message.ts}

    def _own(self, workspace: Workspace, channel: Channel, args: Args, error: str) -> Message:
        message = workspace.find(channel.id, _text(args, "ts"))
        if message.user != workspace.bot_user:
            raise SlackError(error)
        return message

    def _permalink(self, workspace: Workspace, args: Args) -> Answer:
        channel = workspace.channel(_text(args, "channel"))
        message = workspace.find(channel.id, _text(args, "message_ts"))
        path = f"/archives/{channel.id}/p{message.ts.replace('.', '')}"
        return {"channel": channel.id, "permalink": self._url(path)}

    # -- native streams -----------------------------------------------------------------------

    def _start_stream(self, workspace: Workspace, args: Args) -> Answer:
        channel = workspace.writable(_text(args, "channel"))
        if not args.get("thread_ts"):
            raise SlackError("invalid_arguments")
        for name in ("recipient_team_id", "recipient_user_id"):
            if not args.get(name):
                raise SlackError(f"missing_{name}")
        piece = _piece(args)
        message = self._new(workspace, channel, {"thread_ts": args["thread_ts"]})
        message.text = piece
        message.stream_until = workspace.clock.now() + STREAM_SECONDS
        workspace.post(message)
        self._notify(workspace, "posted", message, {})
        return {"channel": channel.id, "ts": message.ts}

    def _append_stream(self, workspace: Workspace, args: Args) -> Answer:
        message = self._stream(workspace, args)
        piece = _piece(args)
        if not piece and not args.get("chunks"):
            raise SlackError("no_text")
        message.text += piece
        message.remember()
        return {"channel": message.channel, "ts": message.ts}

    def _stop_stream(self, workspace: Workspace, args: Args) -> Answer:
        message = self._stream(workspace, args)
        check_blocks(args.get("blocks") or [])
        check_metadata(args.get("metadata"))
        before = message.as_json()
        message.text += _piece(args)
        if args.get("blocks"):
            # Slack shows the blocks below the streamed text.
            body = [{"type": "markdown", "text": message.text}] if message.text else []
            message.blocks = [*body, *args["blocks"]]
        message.metadata = args.get("metadata", message.metadata)
        message.stream_until = None
        message.remember()
        self._notify(workspace, "changed", message, before)
        return {"channel": message.channel, "ts": message.ts, "message": message.as_json()}

    def _stream(self, workspace: Workspace, args: Args) -> Message:
        channel = workspace.writable(_text(args, "channel"))
        message = self._own(workspace, channel, args, "message_not_owned_by_app")
        if not workspace.streaming(message):
            raise SlackError("message_not_in_streaming_state")
        return message

    def _set_status(self, workspace: Workspace, args: Args) -> Answer:
        channel = workspace.channel(_text(args, "channel_id"))
        thread = _text(args, "thread_ts")
        workspace.find(channel.id, thread, "invalid_thread_ts")
        workspace.statuses[channel.id, thread] = str(args.get("status") or "")
        return {}

    # -- reading ------------------------------------------------------------------------------

    def _history(self, workspace: Workspace, args: Args) -> Answer:
        """Newest first, as Slack does."""
        channel = workspace.channel(_text(args, "channel"))
        if workspace.bot_user not in channel.members:
            raise SlackError("not_in_channel")
        found = _between(workspace.messages(channel.id), args)
        return _page(list(reversed(found)), args)

    def _replies(self, workspace: Workspace, args: Args) -> Answer:
        """Oldest first, the root always with them."""
        channel = workspace.channel(_text(args, "channel"))
        asked = workspace.log.get((channel.id, _text(args, "ts")))
        if asked is None:
            raise SlackError("thread_not_found")
        root = asked.thread_ts or asked.ts
        found = workspace.messages(channel.id, root)
        kept = {message.ts for message in _between(found, args)}
        return _page([m for m in found if m.ts == root or m.ts in kept], args)

    def _info(self, workspace: Workspace, args: Args) -> Answer:
        channel = workspace.channel(_text(args, "channel"))
        fields = {
            "id": channel.id,
            "name": channel.name,
            "is_channel": channel.kind == "channel",
            "is_group": channel.kind == "group",
            "is_im": channel.kind == "im",
            "is_mpim": channel.kind == "mpim",
            "is_private": channel.kind != "channel",
            "is_archived": channel.is_archived,
            "is_member": workspace.bot_user in channel.members,
            "is_ext_shared": channel.is_shared,
            "context_team_id": workspace.team_id,
        }
        if channel.kind == "im":
            fields["user"] = next(iter(channel.members - {workspace.bot_user}))
        return {"channel": fields}

    def _open(self, workspace: Workspace, args: Args) -> Answer:
        return {"channel": {"id": workspace.dm(_text(args, "users")).id}}

    # -- reactions ----------------------------------------------------------------------------

    def _react(self, workspace: Workspace, args: Args) -> Answer:
        users = self._reaction(workspace, args)
        if workspace.bot_user in users:
            raise SlackError("already_reacted")
        users.append(workspace.bot_user)
        return {}

    def _unreact(self, workspace: Workspace, args: Args) -> Answer:
        users = self._reaction(workspace, args)
        if workspace.bot_user not in users:
            raise SlackError("no_reaction")
        users.remove(workspace.bot_user)
        return {}

    def _reaction(self, workspace: Workspace, args: Args) -> list[str]:
        channel = workspace.writable(_text(args, "channel"))
        message = workspace.find(channel.id, _text(args, "timestamp"))
        name = _text(args, "name")
        if ":" in name:
            raise SlackError("invalid_name")
        return message.reactions.setdefault(name, [])

    # -- files --------------------------------------------------------------------------------

    def _upload_url(self, workspace: Workspace, args: Args) -> Answer:
        if int(args.get("length") or 0) <= 0:
            raise SlackError("invalid_arguments")
        file = self.new_file(workspace, _text(args, "filename"), b"", "text/plain")
        file.declared_size = int(args["length"])
        file.user = workspace.bot_user
        return {"upload_url": self._url(f"/upload/v1/{file.id}"), "file_id": file.id}

    def new_file(self, workspace: Workspace, name: str, content: bytes, mimetype: str) -> File:
        number = f"F{workspace.number_new():09d}"
        url = self._url(f"/files-pri/{workspace.team_id}-{number}")
        workspace.files[number] = File(number, name, mimetype, content, url)
        return workspace.files[number]

    def _complete_upload(self, workspace: Workspace, args: Args) -> Answer:
        files = [workspace.files.get(item["id"]) for item in args.get("files") or []]
        if not files or any(file is None or not file.content for file in files):
            raise SlackError("file_not_found")
        done = [file for file in files if file is not None]
        for target in _targets(args):
            channel = workspace.writable(target)
            text = {"text": args.get("initial_comment") or "", "thread_ts": args.get("thread_ts")}
            message = self._new(workspace, channel, text)
            message.files, message.subtype = done, "file_share"
            workspace.post(message)
            self._notify(workspace, "posted", message, {})
        return {"files": [file.as_json() for file in done]}

    def _file_info(self, workspace: Workspace, args: Args) -> Answer:
        file = workspace.files.get(_text(args, "file"))
        if file is None:
            raise SlackError("file_not_found")
        return {"file": file.as_json()}


def _text(args: Args, name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str) or not value:
        raise SlackError("channel_not_found" if name == "channel" else "invalid_arguments")
    return value


def _piece(args: Args) -> str:
    """The text of one call to a stream, given plainly or in chunks."""
    chunks = args.get("chunks") or []
    texts = [chunk["text"] for chunk in chunks if chunk.get("type") == "markdown_text"]
    text = (args.get("markdown_text") or "") + "".join(texts)
    if len(text) > MARKDOWN_LIMIT:
        raise SlackError("msg_too_long")
    return text


def _targets(args: Args) -> list[str]:
    if args.get("channel_id"):
        return [args["channel_id"]]
    return [name for name in str(args.get("channels") or "").split(",") if name]


def _between(messages: list[Message], args: Args) -> list[Message]:
    inclusive = args.get("inclusive") in (True, "1", "true")
    oldest, latest = str(args.get("oldest") or "0"), str(args.get("latest") or "9" * 12)
    return [
        message
        for message in messages
        if float(oldest) < float(message.ts) < float(latest)
        or (inclusive and message.ts in (oldest, latest))
    ]


def _page(messages: list[Message], args: Args) -> Answer:
    start, limit = int(args.get("cursor") or 0), int(args.get("limit") or 100)
    end = start + limit
    metadata = args.get("include_all_metadata") in (True, "1", "true")
    more = end < len(messages)
    return {
        "messages": [message.as_json(metadata) for message in messages[start:end]],
        "has_more": more,
        "response_metadata": {"next_cursor": str(end) if more else ""},
    }
