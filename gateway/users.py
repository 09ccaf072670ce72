"""Who somebody is, and what they may see and do."""

from __future__ import annotations

import msgspec

from sessions.session import Session


class User(msgspec.Struct, frozen=True):
    id: str
    role: str = "user"
    """user or admin."""
    owns_chats: bool = True
    """False for people of a push channel: their chats belong to the administrators."""

    @property
    def admin(self) -> bool:
        return self.role == "admin"

    def may_read(self, session: Session) -> bool:
        """Administrators read everything; a chat without owner is theirs alone."""
        if session.file is None:
            return False
        return self.admin or (session.state.owner is not None and session.state.owner == self.id)

    def may_write(self, session: Session) -> bool:
        """A chat that does not exist yet belongs to whoever writes first."""
        if session.file is None or not self.owns_chats:
            return True
        return session.state.owner == self.id or (self.admin and session.state.owner is None)


LOCAL = User("local", "admin")
"""The one user of mode `none`."""
ADMIN = User("admin", "admin")
"""Whoever uses the admin socket in the other modes."""
