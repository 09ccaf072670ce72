"""Who owns a data directory, what its last owner left, and where files lie in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sessions import directory as module
from sessions import disk
from sessions.directory import DataDirectory, file_system, owner_of, parse_key, refuse_network
from sessions.errors import StoreLocked, StoreRefused
from sessions.key import SessionKey

LOCAL = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"


def run(path: Path, sync: str = "interval", *, clean: bool = True) -> DataDirectory:
    """An owner that opens the directory and stops, cleanly or not."""
    owner = DataDirectory(path)
    owner.open(sync)
    if clean:
        owner.mark_clean()
    owner.release()
    return owner


def another_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "boot_id", lambda: "another boot")


def put_session(path: Path) -> None:
    folder = path / "sessions" / "slack"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "C1.jsonl").write_bytes(b"{}\n")


# -- the lock ---------------------------------------------------------------------------------


def test_second_owner_is_refused(tmp_path: Path) -> None:
    """One owner at a time; the error names the directory and the process."""
    with DataDirectory(tmp_path) as first:
        first.open("interval")

        with pytest.raises(StoreLocked) as caught:
            DataDirectory(tmp_path).open("interval")

    assert str(os.getpid()) in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_lock_goes_with_its_process(tmp_path: Path) -> None:
    """A killed owner leaves no lock, but no CLEAN either."""
    code = (
        "import sys, os; from pathlib import Path; from sessions.directory import DataDirectory\n"
        "DataDirectory(Path(sys.argv[1])).open('interval'); os.kill(os.getpid(), 9)"
    )
    root = Path(module.__file__).parent.parent
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=root, check=False, timeout=60)

    with DataDirectory(tmp_path) as owner:
        owner.open("interval")

        assert owner.held
        assert owner.unclean


def test_lock_is_not_inherited(tmp_path: Path) -> None:
    """A child that lives longer than its owner does not keep the directory locked."""
    with DataDirectory(tmp_path) as owner:
        owner.open("interval")
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        run(tmp_path)
    finally:
        child.kill()
        child.wait()


def test_refused_owner_changes_nothing(tmp_path: Path) -> None:
    """Whoever does not get the lock leaves CLEAN, tmp and the owner's name alone."""
    with DataDirectory(tmp_path) as first:
        first.open("interval")
        (first.tmp / "in-the-making").write_bytes(b"x")
        before = (tmp_path / ".lock").read_bytes()
        with pytest.raises(StoreLocked):
            DataDirectory(tmp_path).open("turn")

        assert (first.tmp / "in-the-making").exists()
        assert (tmp_path / ".lock").read_bytes() == before


def test_who_owns_it(tmp_path: Path) -> None:
    """Anyone can ask who holds a directory, without taking it."""
    assert owner_of(tmp_path) is None
    with DataDirectory(tmp_path) as owner:
        owner.open("turn")
        found: dict[str, Any] | None = owner_of(tmp_path)

        assert found is not None
        assert (found["pid"], found["sync"]) == (os.getpid(), "turn")
    assert owner_of(tmp_path) is None


def test_a_failed_start_releases_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that could not start is not in the way of the next."""
    monkeypatch.setattr(
        DataDirectory, "_empty_tmp", lambda _: (_ for _ in ()).throw(OSError(28, "full"))
    )
    with pytest.raises(StoreRefused):
        DataDirectory(tmp_path).open("interval")
    monkeypatch.undo()

    run(tmp_path)


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    """It is refused with its name."""
    (tmp_path / "data").write_bytes(b"")

    with pytest.raises(StoreRefused, match="data"):
        DataDirectory(tmp_path / "data").open("interval")


# -- how the predecessor stopped --------------------------------------------------------------


def test_fresh_directory(tmp_path: Path) -> None:
    """Nothing can be lost from a directory nobody has used."""
    owner = run(tmp_path / "new" / "data")

    assert (owner.epoch, owner.unclean, owner.clean) == (0, False, None)
    assert all(place.is_dir() for place in (owner.sessions, owner.archive, owner.quarantine))


def test_after_a_clean_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart of the machine after a clean stop costs nothing."""
    run(tmp_path)
    another_boot(monkeypatch)

    owner = run(tmp_path, clean=False)

    assert (owner.epoch, owner.unclean) == (0, False)
    assert owner.clean is not None
    assert not (tmp_path / "CLEAN").exists()


def test_after_a_crash_of_the_process(tmp_path: Path) -> None:
    """The page cache outlives the process: numbers go on."""
    run(tmp_path, clean=False)

    owner = run(tmp_path)

    assert (owner.epoch, owner.unclean) == (0, True)


def test_after_a_crash_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes may be gone: the epoch rises, and stays risen for the owners after."""
    run(tmp_path, clean=False)
    another_boot(monkeypatch)

    owner = run(tmp_path)

    assert owner.unclean
    assert owner.epoch >= 1
    assert run(tmp_path).epoch == owner.epoch


def test_every_crash_of_the_machine_raises_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the clock stands still or goes back."""
    epochs = []
    for number, moment in enumerate([1000.0, 1000.0, 10.0]):
        monkeypatch.setattr(module, "boot_id", lambda number=number: f"boot {number}")
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)
        epochs.append(run(tmp_path, clean=False).epoch)

    assert epochs == [0, 1000, 1001]


def test_after_a_crash_of_a_machine_that_synced_every_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that was seen is lost: numbers go on."""
    run(tmp_path, "turn", clean=False)
    another_boot(monkeypatch)

    owner = run(tmp_path)

    assert (owner.epoch, owner.unclean) == (0, True)


def test_lax_predecessor_of_a_strict_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a lax owner left in the page cache can be lost while a strict one runs."""
    run(tmp_path, "interval", clean=False)
    run(tmp_path, "turn", clean=False)
    another_boot(monkeypatch)

    assert run(tmp_path).epoch > 0


def test_after_a_failed_sync(tmp_path: Path) -> None:
    """An owner that could not sync leaves an epoch behind, even under the same boot."""
    with DataDirectory(tmp_path) as owner:
        owner.open("turn")
        owner.mark_lossy()

    assert run(tmp_path).epoch > 0


def test_restored_back_up(tmp_path: Path) -> None:
    """Files without an owner may be older than what readers have seen."""
    put_session(tmp_path)

    owner = run(tmp_path)

    assert owner.unclean
    assert owner.epoch > 0


@pytest.mark.parametrize(
    "content", [b"\0" * 512, b'{"pid":1,"boot', b"\xff\xfe", b"[]", b'{"pid":"x"}', b"", b"  \n"]
)
def test_torn_lock(tmp_path: Path, content: bytes) -> None:
    """An owner's name that cannot be read is no proof that nothing was lost."""
    run(tmp_path, clean=False)
    put_session(tmp_path)
    (tmp_path / ".lock").write_bytes(content)

    owner = run(tmp_path)

    assert owner.unclean
    assert owner.epoch > 0


@pytest.mark.parametrize("content", [b"", b"{", b"\0\0", b"[]"])
def test_torn_clean_marker(tmp_path: Path, content: bytes) -> None:
    """A marker that cannot be read marks nothing."""
    run(tmp_path)
    (tmp_path / "CLEAN").write_bytes(content)

    assert run(tmp_path, clean=False).unclean
    assert run(tmp_path).unclean


def test_lock_is_never_shorter_than_before(tmp_path: Path) -> None:
    """The owner's name is written over the old one, padded, in one block."""
    run(tmp_path)
    first = (tmp_path / ".lock").read_bytes()
    run(tmp_path, "turn")
    second = (tmp_path / ".lock").read_bytes()

    assert len(first) == len(second) == 512
    assert json.loads(second)["sync"] == "turn"


def test_temporaries_are_emptied(tmp_path: Path) -> None:
    """What was in the making when the predecessor died is gone; nothing outside is."""
    run(tmp_path, clean=False)
    kept = tmp_path / "kept"
    kept.write_bytes(b"x")
    (tmp_path / "tmp" / "half").write_bytes(b"x")
    (tmp_path / "tmp" / "link").symlink_to(kept)
    (tmp_path / "tmp" / "folder").mkdir()

    run(tmp_path)

    assert not (tmp_path / "tmp" / "half").exists()
    assert kept.read_bytes() == b"x"


# -- places -----------------------------------------------------------------------------------


def test_places_of_a_session(tmp_path: Path) -> None:
    """Live file and archive have one name; an ended conversation has no file of its own."""
    owner = run(tmp_path)
    key = SessionKey("slack", "../C1")

    assert owner.live_path(key) == tmp_path / "sessions" / "slack" / "%2E.%2FC1.jsonl"
    assert owner.archive_path(key) == tmp_path / "archive" / "slack" / "%2E.%2FC1.jsonl"
    assert owner.live_path(SessionKey("slack", "../C1", 3)) == owner.live_path(key)


@pytest.fixture
def folding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataDirectory:
    """A file system that finds a file under its name in any case."""
    owner = run(tmp_path)
    (owner.sessions / "slack").mkdir()
    exists = Path.exists

    def folded(path: Path, **options: Any) -> bool:
        if not exists(path.parent):
            return False
        return path.name.lower() in {entry.lower() for entry in os.listdir(path.parent)}

    monkeypatch.setattr(Path, "exists", folded)
    return owner


def test_keys_that_differ_in_case_only(folding: DataDirectory) -> None:
    """The second of them gets a file of its own, and keeps it when the first is gone."""
    upper, lower = SessionKey("slack", "ABC"), SessionKey("slack", "abc")
    first = folding.live_path(upper)
    first.write_bytes(b"upper")
    second = folding.live_path(lower)
    second.write_bytes(b"lower")

    assert folding.folds_case
    assert (first.name, second.name) == ("ABC.jsonl", f"{lower.hashed_stem}.jsonl")
    assert folding.live_path(upper) == first
    first.unlink()
    assert folding.live_path(lower) == second
    assert folding.archive_path(lower).name == second.name


def test_whose_file_it_is(tmp_path: Path) -> None:
    """A shortened or hashed name is explained by the key inside, if that fits the name."""
    owner = run(tmp_path)
    long, short = SessionKey("slack", "x" * 500), SessionKey("slack", "abc")
    hashed = tmp_path / "slack" / f"{short.hashed_stem}.jsonl"

    assert owner.key_of(owner.live_path(short), ["slack:other"]) == short
    assert owner.key_of(owner.live_path(long), ["slack:other", str(long), "junk"]) == long
    assert owner.key_of(hashed, [str(short)]) == short
    assert owner.key_of(owner.live_path(long), ["slack:other", "", "nonsense"]) is None
    assert owner.key_of(tmp_path / "sl ack" / "n\udcff.jsonl", []) is None


@pytest.mark.parametrize("text", ["", "x", "slack:%zz", "a:\ud800"])
def test_no_key(text: str) -> None:
    """What is stored as a key and is none is nobody's."""
    assert parse_key(text) is None


def test_quarantine_keeps_bytes_once(tmp_path: Path) -> None:
    """Damaged bytes are named by their hash: the same bytes are the same file."""
    owner = run(tmp_path)

    names = [owner.put_aside(data) for data in (b"damaged\0", b"damaged\0", b"", b"other")]

    assert names[0] == names[1] == disk.digest(b"damaged\0")
    assert (owner.quarantine / names[0]).read_bytes() == b"damaged\0"
    assert len(list(owner.quarantine.iterdir())) == 3
    assert not list(owner.tmp.iterdir())


def test_files_are_for_the_owner_only(tmp_path: Path) -> None:
    """Conversations are private: nobody else can read the directory."""
    owner = run(tmp_path / "data")
    name = owner.put_aside(b"x")

    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
    assert (owner.quarantine / name).stat().st_mode & 0o077 == 0


# -- file systems -----------------------------------------------------------------------------

MOUNTS = (
    LOCAL
    + "30 22 0:40 / /data rw - nfs4 server:/x rw\n"
    + "31 30 8:2 / /data/local rw,noatime shared:5 master:1 - xfs /dev/sdb rw\n"
    + r"32 22 0:41 / /my\040disk\011\134x rw - cifs //server/x rw"
    + "\n33 22 0:42 / /twice rw - ext4 /dev/sdc rw\n"
    + "34 22 0:43 / /twice rw - fuse.sshfs host: rw\n"
    + "garbage\n1 2 3\n35 22 0:44 / /broken rw -\n"
)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/home/x", "ext4"),
        ("/data", "nfs4"),
        ("/data/parley", "nfs4"),
        ("/database", "ext4"),
        ("/data/local", "xfs"),
        ("/data/local/x", "xfs"),
        ("/data/locally", "nfs4"),
        ("/my disk\t\\x/y", "cifs"),
        ("/twice/x", "fuse.sshfs"),
        ("/broken", "ext4"),
    ],
)
def test_file_system_of_a_path(path: str, kind: str) -> None:
    """The nearest mount counts, of two at one place the later."""
    assert file_system(Path(path), MOUNTS) == kind


def test_path_through_a_link(tmp_path: Path) -> None:
    """A link into a network file system is on the network file system."""
    (tmp_path / "link").symlink_to("/data/somewhere")

    assert file_system(tmp_path / "link" / "x", MOUNTS) == "nfs4"


def test_network_file_system_is_refused() -> None:
    """With the reason and what to do, unless it is allowed."""
    with pytest.raises(StoreRefused, match=r"network file system \(nfs4\)"):
        refuse_network(Path("/data/x"), mounts=MOUNTS)

    refuse_network(Path("/data/x"), mounts=MOUNTS, allow=True)
    refuse_network(Path("/home"), mounts=MOUNTS)


def test_unknown_mounts() -> None:
    """Without a table of mounts nothing is refused."""
    assert file_system(Path("/x"), "") is None
    refuse_network(Path("/x"), mounts="")


def test_this_machine(tmp_path: Path) -> None:
    """The real table of mounts can be read, and boots have a name."""
    assert file_system(tmp_path)
    assert module.boot_id() == module.boot_id()
