"""The gateway as one connected client sees it: everything in the name of one user."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from channels.channel import Event, Inbound, Sender, Sink
from channels.errors import Refused
from gateway.bus import Bus
from gateway.config import Settings
from gateway.lanes import Lanes
from gateway.live import Live, Watch
from gateway.router import ADMINS, Ack, Router
from gateway.users import User
from sessions.errors import InvalidKey, StoreUnavailable
from sessions.key import SessionKey
from sessions.store import SessionStore

ResolveMedia = Callable[[User, list[str]], Awaitable[list[dict[str, Any]]]]


class Client:
    def __init__(
        self,
        who: User,
        *,
        version: str,
        store: SessionStore,
        bus: Bus,
        live: Live,
        router: Router,
        lanes: Lanes,
        media: ResolveMedia,
        settings: Callable[[], Settings],
    ) -> None:
        self.who = who
        self._version = version
        self._store, self._bus, self._live = store, bus, live
        self._router, self._lanes = router, lanes
        self._media, self._settings = media, settings

    @property
    def sender(self) -> Sender:
        return Sender(self.who.id)

    def ready(self) -> dict[str, Any]:
        limits = self._settings().limits
        return {
            "version": self._version,
            "user": self.who.id,
            "role": self.who.role,
            "limits": {
                "text": limits.text,
                "frame": limits.frame,
                "upload": limits.upload,
                "media_per_message": limits.media_per_message,
            },
        }

    async def watch(self, chat: str, *, by_key: bool, new: bool, sink: Sink) -> Watch:
        return await self._live.watch(self._key(chat, by_key=by_key), self.who, sink, new=new)

    async def replay(self, chat: Watch, since: int | None, log: str | None, sink: Sink) -> None:
        await self._live.replay(chat, sink, self.who, since, log)

    def unwatch(self, chat: Watch) -> None:
        self._live.unwatch(chat)

    async def receive(self, inbound: Inbound, acknowledge: Callable[[Ack], None]) -> None:
        await self._router.receive(inbound, self.who, acknowledge)

    async def stop(self, chat_id: str, *, everything: bool) -> None:
        key = self._key(chat_id, by_key=False)
        session = await self._store.get(key)
        if session is None or not self.who.may_write(session):
            raise Refused("not_found", "There is no such chat.")
        try:
            await self._lanes.stop(key, queue=everything)
        except StoreUnavailable as error:
            raise Refused("storage_unavailable", str(error), error.retry_after_seconds) from error

    async def resolve_media(self, ids: list[str]) -> list[dict[str, Any]]:
        return await self._media(self.who, ids)

    def join(self, on_event: Callable[[Event], None]) -> None:
        self._bus.join(self.who.id, on_event)
        if self.who.admin:
            self._bus.join(ADMINS, on_event)

    def leave(self, on_event: Callable[[Event], None]) -> None:
        self._bus.leave(self.who.id, on_event)
        self._bus.leave(ADMINS, on_event)

    def _key(self, chat: str, *, by_key: bool) -> SessionKey:
        """Administrators may name any session by its key; everybody else has their own chats."""
        try:
            if not by_key:
                return SessionKey("websocket", chat)
            if not self.who.admin:
                raise Refused("not_found", "There is no such chat.")
            return SessionKey.parse(chat).chat
        except InvalidKey as error:
            raise Refused("bad_frame", error.reason) from error
