"""What people do in the workspace, and what Slack tells the app about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.support.slack import events
from tests.support.slack.socket_mode import Envelope
from tests.support.slack.workspace import File, Message, User, Workspace

# What the shipped manifest subscribes to.
SUBSCRIPTIONS = {
    "app_home_opened",
    "app_mention",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
}


class People:
    """Everything here returns once Slack has tried to tell the app, not once the app reacted."""

    def __init__(
        self,
        workspaces: list[Workspace],
        deliver: Callable[[Envelope], None],
        response_url: Callable[[Workspace, str, str, Message | None], str],
    ) -> None:
        self.workspaces = workspaces
        self.subscriptions = set(SUBSCRIPTIONS)
        self.echo = True
        """Whether the bot's own messages come back as events, as Slack does."""
        self._deliver = deliver
        self._response_url = response_url

    def place(self, id: str) -> Workspace:
        """The workspace of a channel or a person."""
        for workspace in self.workspaces:
            if id in workspace.channels or id in workspace.users:
                return workspace
        raise KeyError(id)

    # -- messages -----------------------------------------------------------------------------

    async def say(
        self,
        user: str,
        channel: str,
        text: str,
        thread_ts: str | None = None,
        files: Sequence[File] = (),
        mention: bool = False,
        as_app_mention: bool = True,
        mention_first: bool = False,
        **fields: Any,
    ) -> Message:
        """`mention` puts the bot's name in front. A mention in a channel arrives as two events,
        unless `as_app_mention` is off. `fields` are fields of Message."""
        workspace = self.place(channel)
        if mention:
            text = f"<@{workspace.bot_user}> {text}"
        subtype = fields.pop("subtype", "file_share" if files else None)
        message = Message(
            channel,
            workspace.clock.ts(),
            user,
            text,
            thread_ts=thread_ts,
            files=list(files),
            subtype=subtype,
            **fields,
        )
        author = workspace.users.get(user)
        message.team = author.team_id if author else workspace.team_id
        for file in files:
            file.user = user
        workspace.post(message)
        told = [events.message(workspace, message)]
        mentioned = f"<@{workspace.bot_user}" in text and workspace.channels[channel].kind != "im"
        if mentioned and as_app_mention:
            told.append(events.app_mention(workspace, message))
        for event in reversed(told) if mention_first else told:
            self.tell(workspace, event)
        return message

    async def edit(self, message: Message, text: str) -> None:
        workspace = self.place(message.channel)
        before = message.as_json()
        message.text, message.edited_ts = text, workspace.clock.ts()
        message.remember()
        self.tell(workspace, events.changed(workspace, message, before))

    async def unfurl(self, message: Message) -> None:
        """Slack adds a preview of a link. Nobody edited anything."""
        workspace = self.place(message.channel)
        before = message.as_json()
        preview = {"id": 1, "from_url": "https://example.com", "title": "Example"}
        message.attachments.append(preview)
        self.tell(workspace, events.changed(workspace, message, before))

    async def delete(self, message: Message) -> None:
        workspace = self.place(message.channel)
        before = message.as_json()
        replies = len(workspace.messages(message.channel, message.ts)) > 1
        message.deleted = True
        form = events.tombstone if replies else events.deleted
        self.tell(workspace, form(workspace, message, before))

    async def join(self, user: str, channel: str) -> Message:
        self.place(channel).channels[channel].members.add(user)
        text = f"<@{user}> has joined the channel"
        return await self.say(user, channel, text, subtype="channel_join")

    async def bot_says(self, channel: str, text: str, bot_id: str = "B0OTHER001") -> Message:
        """Another app posts."""
        return await self.say("", channel, text, bot_id=bot_id, subtype="bot_message")

    def told_of(self, workspace: Workspace, what: str, message: Message, before: Any) -> None:
        """The bot itself did something; its own events come back to it."""
        if not self.echo:
            return
        if what == "posted":
            self.tell(workspace, events.message(workspace, message))
        elif what == "changed":
            self.tell(workspace, events.changed(workspace, message, before))
        else:
            self.tell(workspace, events.deleted(workspace, message, before))

    # -- everything else ----------------------------------------------------------------------

    async def react(self, user: str, message: Message, name: str = "thumbsup") -> None:
        workspace = self.place(message.channel)
        message.reactions.setdefault(name, []).append(user)
        self.tell(workspace, events.reaction(workspace, "reaction_added", user, name, message))

    async def press(
        self, user: str, message: Message, action_id: str, value: str | None = None
    ) -> Envelope:
        """Presses a button of the message. With `value` it need not have that button (any more)."""
        workspace = self.place(message.channel)
        action = events.find_action(message.blocks, action_id)
        if action is None:
            if value is None:
                raise AssertionError(f"no button {action_id!r} in {message.blocks}")
            action = {"type": "button", "action_id": action_id, "block_id": "b1"}
        if value is not None:
            action["value"] = value
        url = self._response_url(workspace, user, message.channel, message)
        payload = events.block_actions(workspace, user, message, action, url)
        return self._send("interactive", payload)

    async def command(
        self, user: str, channel: str, text: str, command: str = "/parley"
    ) -> Envelope:
        workspace = self.place(channel)
        url = self._response_url(workspace, user, channel, None)
        payload = events.slash_command(workspace, user, channel, command, text, url)
        return self._send("slash_commands", payload)

    async def open_home(self, user: str) -> None:
        workspace = self.place(user)
        self.tell(workspace, events.home_opened(workspace, user))

    def tell(self, workspace: Workspace, event: events.Event) -> Envelope | None:
        """Only what the app subscribed to, and only from where it is a member."""
        channel = workspace.channels.get(str(event.get("channel")))
        name = event["type"]
        if name == "message" and channel is not None:
            name = events.SUBSCRIPTION[channel.kind]
        if name not in self.subscriptions:
            return None
        if channel is not None and workspace.bot_user not in channel.members:
            return None
        return self._send("events_api", events.callback(workspace, event))

    def _send(self, type: str, payload: dict[str, Any]) -> Envelope:
        envelope = Envelope(type, payload)
        self._deliver(envelope)
        return envelope

    # -- who and where ------------------------------------------------------------------------

    def add_user(self, **fields: Any) -> User:
        return self.workspaces[0].add_user(**fields)

    def add_channel(self, name: str = "", **fields: Any) -> str:
        return self.workspaces[0].add_channel(name, **fields).id

    def dm(self, user: str) -> str:
        return self.place(user).dm(user).id
