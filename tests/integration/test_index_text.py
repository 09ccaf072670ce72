"""What the index does with text that is no valid Unicode."""

from pathlib import Path

from sessions.key import SessionKey
from sessions.record import user
from sessions.session import Patch
from sessions.store import Query
from sessions.store_jsonl import JsonlStore

HALF = SessionKey("websocket", "half")
WHOLE = SessionKey("websocket", "whole")


async def test_half_a_surrogate_pair_is_listed_and_found(tmp_path: Path) -> None:
    """A character no encoding can hold costs that character in lists, not the list."""
    store = JsonlStore(tmp_path)
    await store.open()
    await store.append(HALF, [user("hello \ud800 there", id="1")])
    await store.append(WHOLE, [user("hello here", id="1")])
    await store.update(HALF, Patch(title="\udfff title", tags=["\ud800"]))

    listed = await store.find(Query())
    found = await store.find(Query(text="hello there"))
    strange = await store.find(Query(text="\ud800"))
    await store.close()

    assert {info.key for info in listed.sessions} == {str(HALF), str(WHOLE)}
    assert [info.key for info in found.sessions] == [str(HALF)]
    assert found.sessions[0].title == "? title"
    assert len(strange.sessions) <= 1
