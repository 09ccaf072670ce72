"""A crash between the row that restores a conversation and the metadata behind it."""

from pathlib import Path

from sessions.key import SessionKey
from sessions.record import Outcome, closing, user
from sessions.session import Patch
from sessions.store_jsonl import JsonlStore

KEY = SessionKey("websocket", "chat")


async def test_a_restored_conversation_survives_without_its_metadata(tmp_path: Path) -> None:
    """The row itself says what it takes up again."""
    store = JsonlStore(tmp_path)
    await store.open()
    await store.append(KEY, [user("question", id="1")], Patch(title="First"))
    await store.append(KEY, [closing("answer", {1: Outcome.ANSWERED}, turn="t")])
    draft = closing("done", {}, outcome=Outcome.COMMAND, command=True)
    await store.new_conversation(KEY, draft)
    await store.restore(SessionKey.parse(f"{KEY}#1"), draft)
    await store.close()
    path = tmp_path / "sessions/websocket/chat.jsonl"
    lines = path.read_bytes().split(b"\n")
    last_row = max(n for n, line in enumerate(lines) if line.startswith(b'{"role"'))
    path.write_bytes(b"\n".join([*lines[: last_row + 1], b""]))

    store = JsonlStore(tmp_path)
    await store.open()
    session = await store.get(KEY)
    seen = [row.text for row in await store.model_rows(KEY, 100) if not row.command]
    await store.close()

    assert session is not None
    assert (session.state.conversation, session.title) == (3, "First")
    assert seen == ["question", "answer"]
