"""A chat whose live log is gone but whose archive is not."""

from pathlib import Path

from sessions.key import SessionKey
from sessions.record import Outcome, closing, user
from sessions.session import Patch
from sessions.store_jsonl import JsonlStore

KEY = SessionKey("websocket", "chat")


async def fill(path: Path) -> int:
    """A capped chat of Ann's; returns the number of its last archived row."""
    store = JsonlStore(path, file_cap=6)
    await store.open()
    for number in range(12):
        asked = await store.append(KEY, [user(f"question {number}", id=f"{number}")])
        settles: dict[int, str] = {asked.records[0].seq: Outcome.ANSWERED}
        await store.append(KEY, [closing("yes", settles, turn=f"t{number}")])
    session = await store.update(KEY, Patch(owner="ann"))
    for number in range(12, 20):
        asked = await store.append(KEY, [user(f"question {number}", id=f"{number}")])
        await store.append(KEY, [closing("yes", {asked.records[0].seq: Outcome.ANSWERED})])
    await store.close()
    return session.state.archived.seq


async def test_an_archive_without_its_log_is_still_the_chat(tmp_path: Path) -> None:
    """Its rows can be read, nothing of it is pending, and its numbers go on."""
    archived = await fill(tmp_path)
    (tmp_path / "sessions/websocket/chat.jsonl").unlink()
    store = JsonlStore(tmp_path)
    await store.open()
    session = await store.get(KEY)
    appended = await store.append(KEY, [user("hello again", id="new")])
    rows = (await store.read(KEY, after=0, limit=100)).records
    await store.close()

    assert session is not None
    assert appended.records[0].seq > archived
    assert [row.seq for row in rows] == [*range(1, archived + 1), appended.records[0].seq]
    assert [row.text for row in session.pending] == ["hello again"]


async def test_the_name_of_a_lost_log_belongs_to_its_owner(tmp_path: Path) -> None:
    """Nobody else can begin a chat of that name and read what is in the archive."""
    store = JsonlStore(tmp_path, file_cap=6)
    await store.open()
    await store.append(KEY, [user("mine", id="a")], Patch(owner="ann"))
    for number in range(1, 20):
        await store.append(KEY, [closing("yes", {number: Outcome.ANSWERED}), user(f"{number}")])
    await store.close()
    (tmp_path / "sessions/websocket/chat.jsonl").unlink()
    store = JsonlStore(tmp_path)
    await store.open()
    session = await store.get(KEY)
    await store.close()

    assert session is not None
    assert session.state.owner == "ann"
