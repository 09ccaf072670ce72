"""Session files of nanobot are found by key and moved into our tree, whatever happens."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from loguru import logger

from sessions import disk, legacy, loader
from sessions.directory import DataDirectory
from sessions.errors import SessionUnreadable, StoreUnavailable
from sessions.key import SessionKey
from sessions.legacy import LegacyFiles, Migrated, Skipped, migrate_directory, migrate_file
from sessions.session import Session, read_state
from tests.support import seed_reader
from tests.support.recorded_disk import Recording, power_losses

FIXTURES = Path(__file__).parents[1] / "fixtures" / "nanobot"
VERSIONS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
KEY = SessionKey("telegram", "1")

Operation = Callable[..., Any]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[DataDirectory]:
    with opened(tmp_path / "data") as found:
        yield found


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Where nanobot kept its sessions."""
    path = tmp_path / "nanobot"
    path.mkdir()
    return path


@contextmanager
def opened(path: Path) -> Iterator[DataDirectory]:
    found = DataDirectory(path)
    found.open("interval")
    with found:
        yield found


def write(path: Path, *texts: str, key: str | None = "telegram:1", updated: str = "") -> Path:
    """A small session file; without a key it is of the oldest form."""
    head: dict[str, Any] = {"_type": "metadata", "updated_at": updated or "2026-01-01T00:00:00"}
    if key is not None:
        head["key"] = key
    rows = [{"role": "user", "content": text, "timestamp": "2026-01-01T00:00:00"} for text in texts]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in [head, *rows]))
    return path


def write_damaged(path: Path) -> Path:
    write(path, "one", "two", "three")
    path.write_bytes(path.read_bytes() + b'{"role": "user", "cont\xff\n')
    return path


def load(directory: DataDirectory, key: SessionKey, *, push: bool = True) -> Session:
    """The session as the store would load it."""
    found = loader.load(disk.read_file(directory.live_path(key)))
    assert found.intact
    assert not found.damage
    assert found.metadata is not None
    session = Session(key, push=push)
    session.metadata = dict(found.metadata["metadata"])
    session.state = read_state(session.metadata.pop("parley"))
    session.restart(found.records)
    return session


def texts(directory: DataDirectory, key: SessionKey = KEY) -> list[str]:
    return [row.text for row in load(directory, key).records]


def tree(*roots: Path) -> dict[str, bytes | None]:
    """Every file and directory with its content."""
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for root in roots
        for path in sorted(root.rglob("*"))
        if path.name != ".lock"
    }


# -- finding ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "telegram_-100_7_topic.jsonl",
        "telegram_-100_7|topic.jsonl",
        "dGVsZWdyYW06LTEwMC83fHRvcGlj.jsonl",
        "5eed5eed/dGVsZWdyYW06LTEwMC83fHRvcGlj.jsonl",
        "workspace/telegram_-100_7_topic.jsonl",
    ],
)
def test_every_name_form_is_found(old: Path, name: str) -> None:
    """Flat or one directory deep, lossy or encoded: the session is found by its key."""
    path = write(old / name, "x", key="telegram:-100/7|topic")

    found = LegacyFiles([old]).find(SessionKey("telegram", "-100/7|topic"))

    assert found == path
    assert legacy.identify(path) == SessionKey("telegram", "-100/7|topic")


def test_colliding_names_are_told_apart_by_the_stored_key(old: Path) -> None:
    """telegram:a_b and telegram:a:b share a name; only the one inside gets the file."""
    path = write(old / "telegram_a_b.jsonl", "x", key="telegram:a:b")
    files = LegacyFiles([old])

    assert files.find(SessionKey("telegram", "a:b")) == path
    assert files.find(SessionKey("telegram", "a_b")) is None


def test_without_a_stored_key_the_first_underscore_is_the_colon(old: Path) -> None:
    """The oldest files do not name their key; one key gets them, the others do not."""
    path = write(old / "telegram_a_b.jsonl", "x", key=None)
    files = LegacyFiles([old])

    assert files.find(SessionKey("telegram", "a_b")) == path
    assert files.find(SessionKey("telegram", "a:b")) is None


def test_the_newest_of_several_files_is_found(old: Path) -> None:
    """Older versions left their file behind when the name form changed."""
    write(old / "telegram_1.jsonl", "old", updated="2026-01-01T00:00:00")
    newer = write(old / "ws" / "dGVsZWdyYW06MQ.jsonl", "new", updated="2026-02-01T00:00:00")

    assert LegacyFiles([old]).find(KEY) == newer


def test_an_ended_conversation_is_in_the_file_of_its_chat(old: Path) -> None:
    """key#n has no file of its own."""
    path = write(old / "telegram_1.jsonl", "x")

    assert LegacyFiles([old]).find(SessionKey("telegram", "1", 2)) == path


def test_directories_that_are_not_there_hold_nothing(tmp_path: Path) -> None:
    """The default directory exists only where nanobot was used."""
    (tmp_path / "file").write_text("x")
    files = LegacyFiles([tmp_path / "no", tmp_path / "file"])

    assert files.find(KEY) is None


def test_the_home_directory_is_expanded(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings name it as ~."""
    monkeypatch.setenv("HOME", str(old))
    path = write(old / "sessions" / "telegram_1.jsonl", "x")

    assert LegacyFiles(["~/sessions"]).find(KEY) == path


def test_directories_are_listed_once(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key without legacy file costs no system call after the first."""
    files = LegacyFiles([old])
    files.find(KEY)
    monkeypatch.delattr(os, "scandir")

    assert files.find(SessionKey("slack", "C1")) is None


def test_a_file_that_has_gone_is_not_found(old: Path) -> None:
    """Its migration may have been finished by the command line."""
    path = write(old / "telegram_1.jsonl", "x")
    files = LegacyFiles([old])
    assert files.find(KEY) == path
    path.unlink()

    assert files.find(KEY) is None


def test_an_empty_file_holds_no_session(old: Path) -> None:
    """There is no word in it to lose."""
    (old / "telegram_1.jsonl").write_bytes(b"")

    assert LegacyFiles([old]).find(KEY) is None


def make_link(path: Path) -> None:
    write(path.with_name("elsewhere"), "x")
    path.symlink_to(path.with_name("elsewhere"))


def make_garbage(path: Path) -> None:
    path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (Path.mkdir, "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (make_link, "symbolic link"),
        (make_garbage, "no line of it can be read"),
    ],
)
def test_what_cannot_be_read_is_not_absent(
    directory: DataDirectory, old: Path, make: Callable[[Path], None], reason: str
) -> None:
    """A session must not start empty because its file is in a bad state."""
    path = old / "telegram_1.jsonl"
    make(path)

    for attempt in (
        lambda: LegacyFiles([old]).find(KEY),
        lambda: legacy.identify(path),
        lambda: migrate_file(directory, path, KEY),
    ):
        with pytest.raises(SessionUnreadable, match=reason) as caught:
            attempt()
        assert str(path) in str(caught.value)
    assert os.path.lexists(path)


def test_a_file_without_permission_is_not_absent(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the path. (Injected: to root nothing is forbidden.)"""
    write(old / "telegram_1.jsonl", "x")

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)

    with pytest.raises(SessionUnreadable, match=r"telegram_1\.jsonl.*Permission denied"):
        LegacyFiles([old]).find(KEY)


def test_a_directory_without_permission_is_not_absent(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed again next time: the operator may have mended it."""
    write(old / "telegram_1.jsonl", "x")
    files = LegacyFiles([old])

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuse)
        with pytest.raises(SessionUnreadable, match="Permission denied"):
            files.find(KEY)

    assert files.find(KEY) is not None


# -- one file ---------------------------------------------------------------------------------


def test_a_migrated_file_is_our_log(directory: DataDirectory, old: Path) -> None:
    """The source is gone, its damaged line is in quarantine, nothing is pending."""
    source = write_damaged(old / "telegram_1.jsonl")

    result = migrate_file(directory, source, KEY)

    assert result == Migrated(key="telegram:1", path=str(source), rows=3, damaged=1)
    assert not source.exists()
    assert texts(directory) == ["one", "two", "three"]
    assert load(directory, KEY).pending == []
    [aside] = directory.quarantine.iterdir()
    assert aside.read_bytes() == b'{"role": "user", "cont\xff\n'
    assert list(directory.tmp.iterdir()) == []


def test_a_new_log_is_of_the_directory_s_epoch(directory: DataDirectory, old: Path) -> None:
    """No cursor points into it yet, so no numbers need to be skipped."""
    directory.epoch = 77
    migrate_file(directory, write(old / "telegram_1.jsonl", "x"), KEY)

    assert load(directory, KEY).state.epoch == 77


def test_only_the_owner_can_read_a_migrated_log(directory: DataDirectory, old: Path) -> None:
    """Whatever the source allowed."""
    migrate_file(directory, write(old / "telegram_1.jsonl", "x"), KEY)

    assert directory.live_path(KEY).stat().st_mode & 0o777 == 0o600


def test_keep_leaves_the_source(directory: DataDirectory, old: Path) -> None:
    """A second run knows that it has been here; a run without keep removes the source."""
    source = write(old / "telegram_1.jsonl", "x")
    before = source.read_bytes()

    first = migrate_file(directory, source, KEY, keep=True)
    second = migrate_file(directory, source, KEY, keep=True)
    kept = source.read_bytes()
    third = migrate_file(directory, source, KEY)

    assert isinstance(first, Migrated)
    assert first.left
    assert isinstance(second, Skipped)
    assert "migrated already" in second.reason
    assert kept == before
    assert isinstance(third, Migrated)
    assert not source.exists()
    assert texts(directory) == ["x"]


def test_ours_wins(directory: DataDirectory, old: Path) -> None:
    """A session that exists here is never overwritten; the other file stays and is reported."""
    migrate_file(directory, write(old / "telegram_1.jsonl", "ours"), KEY)
    source = write(old / "telegram_1.jsonl", "theirs")
    before = tree(directory.path, old)

    result = migrate_file(directory, source, KEY)

    assert isinstance(result, Skipped)
    assert "here already" in result.reason
    assert tree(directory.path, old) == before


def test_a_log_that_appears_meanwhile_wins(
    directory: DataDirectory, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step of the installation cannot overwrite."""
    source = write(old / "telegram_1.jsonl", "theirs")
    link = disk.link

    def late(temporary: Path, target: Path) -> None:
        target.write_text("ours")
        link(temporary, target)

    monkeypatch.setattr(disk, "link", late)

    assert isinstance(migrate_file(directory, source, KEY), Skipped)
    assert directory.live_path(KEY).read_text() == "ours"
    assert source.exists()
    assert list(directory.tmp.iterdir()) == []


def test_the_source_stays_if_our_copy_of_it_is_damaged(directory: DataDirectory, old: Path) -> None:
    """The last good copy of a word is never removed."""
    source = write(old / "telegram_1.jsonl", "one", "two")
    migrate_file(directory, source, KEY, keep=True)
    path = directory.live_path(KEY)
    path.write_bytes(path.read_bytes().replace(b'"content":"one"', b'"content":"on\xff"'))

    result = migrate_file(directory, source, KEY)

    assert isinstance(result, Skipped)
    assert "damaged" in result.reason
    assert source.exists()


def test_a_source_that_changes_meanwhile_is_not_removed(
    directory: DataDirectory, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nanobot may still run and write: its newer words stay, and the result says so."""
    source = write(old / "telegram_1.jsonl", "one")
    link = disk.link

    def late(temporary: Path, target: Path) -> None:
        link(temporary, target)
        write(source, "one", "two")

    monkeypatch.setattr(disk, "link", late)

    result = migrate_file(directory, source, KEY)

    assert isinstance(result, Migrated)
    assert "changed" in str(result.left)
    assert [row["content"] for row in seed_reader.read(source).messages] == ["one", "two"]


def test_a_source_that_never_rests_is_not_read(
    directory: DataDirectory, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of one state and half of the next is no state."""
    source = write(old / "telegram_1.jsonl", "one")
    fstat = os.fstat

    def moving(descriptor: int) -> os.stat_result:
        with source.open("ab") as file:
            file.write(b"\n")
        return fstat(descriptor)

    monkeypatch.setattr(os, "fstat", moving)

    with pytest.raises(SessionUnreadable, match="changes while it is read"):
        migrate_file(directory, source, KEY)


def test_a_source_that_cannot_be_removed_is_reported(
    directory: DataDirectory, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only directory does not keep its sessions from being used."""
    source = write(old / "telegram_1.jsonl", "x")
    unlink = disk.unlink

    def refuse(path: Path) -> None:
        if path == source:
            raise OSError(errno.EROFS, "Read-only file system")
        unlink(path)

    monkeypatch.setattr(disk, "unlink", refuse)

    first, second = (migrate_file(directory, source, KEY) for _ in range(2))

    assert isinstance(first, Migrated)
    assert "Read-only" in str(first.left)
    assert isinstance(second, Skipped)
    assert "Read-only" in second.reason
    assert texts(directory) == ["x"]


def test_files_of_our_own_tree_are_no_legacy_files(directory: DataDirectory, old: Path) -> None:
    """Not even if someone names the data directory as the place to migrate from."""
    migrate_file(directory, write(old / "telegram_1.jsonl", "x"), KEY)
    before = tree(directory.path)

    report = migrate_directory(directory, directory.sessions)

    assert len(report.skipped) == 1
    assert tree(directory.path) == before


def test_the_log_tells_of_a_migration_without_its_words(
    directory: DataDirectory, old: Path
) -> None:
    """One fixed event with fields."""
    seen: list[Any] = []
    sink = logger.add(lambda message: seen.append(message.record), level="INFO")
    try:
        migrate_file(directory, write(old / "telegram_1.jsonl", "secret words"), KEY)
    finally:
        logger.remove(sink)

    [record] = [one for one in seen if one["message"] == "session migrated"]
    assert record["extra"]["session"] == "telegram:1"
    assert record["extra"]["rows"] == 1
    assert "secret" not in str(record["extra"])


# -- faults -----------------------------------------------------------------------------------


CHANGES = ("create", "write", "fdatasync", "link", "unlink", "replace", "make_directory")


class Crash(BaseException):
    """The process ends here."""


class Faults:
    """Counts the calls that change the disk and lets one of them, or all from it on, fail."""

    def __init__(self, patch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.fail: Callable[[int, str, Operation, tuple[Any, ...]], None] = lambda *_: None
        for name in names:
            patch.setattr(disk, name, self._wrap(name, getattr(disk, name)))

    def _wrap(self, name: str, real: Operation) -> Operation:
        def call(*args: Any) -> Any:
            number = len(self.calls)
            self.fail(number, name, real, args)
            self.calls.append((name, args))
            return real(*args)

        return call

    def crash_at(self, at: int) -> None:
        """A write that is interrupted leaves half of its bytes."""

        def fail(number: int, name: str, real: Operation, args: tuple[Any, ...]) -> None:
            if number == at and name == "write":
                real(args[0], args[1][: len(args[1]) // 2])
            if number >= at:
                raise Crash

        self.fail = fail

    def error_at(self, at: int, code: int) -> None:
        def fail(number: int, name: str, real: Operation, args: tuple[Any, ...]) -> None:
            if number == at:
                self.calls.append((name, args))
                raise OSError(code, os.strerror(code))

        self.fail = fail


def run_with_faults(
    path: Path, source: Path, names: tuple[str, ...], at: int = -1, code: int | None = None
) -> int:
    """Migrates once, with a crash or an error in one call; returns how many calls there were."""
    with opened(path) as directory, pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, names)
        if code is not None:
            faults.error_at(at, code)
        elif at >= 0:
            faults.crash_at(at)
        with suppress(Crash, StoreUnavailable):
            migrate_file(directory, source, KEY)
        return len(faults.calls)


def check_one_copy(path: Path, source: Path, content: bytes) -> None:
    """After a fault the source or our log is whole; after another run there is only ours."""
    target = DataDirectory(path).live_path(KEY)
    if source.exists():
        assert source.read_bytes() == content
    else:
        assert target.exists()
    with opened(path) as directory:
        if target.exists():
            assert texts(directory) == ["one", "two", "three"]
        migrate_directory(directory, source.parent)
        assert texts(directory) == ["one", "two", "three"]
        assert not source.exists()
        assert len(list(directory.quarantine.iterdir())) == 1
        assert list(directory.tmp.iterdir()) == []


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory on another file system where the machine has one in memory."""
    shm = Path("/dev/shm")
    root = shm if shm.is_dir() and os.access(shm, os.W_OK) else None
    path = Path(tempfile.mkdtemp(dir=root))
    yield path
    shutil.rmtree(path)


def test_a_crash_anywhere_leaves_one_copy(tmp_path: Path, elsewhere: Path) -> None:
    """Cut after every operation: the source or ours is whole, and the next run finishes."""
    source = elsewhere / "telegram_1.jsonl"
    content = write_damaged(source).read_bytes()
    names = (*CHANGES, "sync_directory")
    total = run_with_faults(tmp_path / "whole", source, names)
    assert total > 10

    for at in range(total):
        write_damaged(source)
        path = tmp_path / str(at)
        assert run_with_faults(path, source, names, at) == at
        check_one_copy(path, source, content)


def test_power_loss_anywhere_leaves_one_copy(tmp_path: Path, old: Path) -> None:
    """Whatever was not synced may be gone: still the source or ours is whole."""
    source = write_damaged(old / "telegram_1.jsonl")
    content = source.read_bytes()
    recording = Recording(tmp_path)
    with opened(tmp_path / "data") as directory, recording:
        migrate_file(directory, source, KEY)

    for number, crash in enumerate(power_losses(recording)):
        root = tmp_path / str(number)
        crash.lay_out(root)
        check_one_copy(root / "data", root / "nanobot" / source.name, content)


@pytest.mark.parametrize(
    ("code", "names"),
    [
        (errno.ENOSPC, ("create", "write", "link", "make_directory", "replace")),
        (errno.EIO, ("fdatasync", "sync_directory")),
    ],
    ids=["disk full", "sync failed"],
)
def test_an_error_anywhere_leaves_one_copy(
    tmp_path: Path, old: Path, code: int, names: tuple[str, ...]
) -> None:
    """A full disk and a failing sync leave the source until ours is durable."""
    source = old / "telegram_1.jsonl"
    content = write_damaged(source).read_bytes()
    total = run_with_faults(tmp_path / "whole", source, names)
    assert total > 3

    for at in range(total):
        write_damaged(source)
        path = tmp_path / f"data-{at}"
        run_with_faults(path, source, names, at, code)
        check_one_copy(path, source, content)


def test_a_full_disk_leaves_nothing_half_written(
    directory: DataDirectory, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller can try again later; until then everything is as it was."""
    source = write(old / "telegram_1.jsonl", "one", "two")
    content = source.read_bytes()
    real = disk.write

    def fill(descriptor: int, data: bytes) -> int:
        if len(data) > 10:
            return real(descriptor, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", fill)
        with pytest.raises(StoreUnavailable, match="No space left"):
            migrate_file(directory, source, KEY)

    assert source.read_bytes() == content
    assert not directory.live_path(KEY).exists()
    assert list(directory.tmp.iterdir()) == []
    assert isinstance(migrate_file(directory, source, KEY), Migrated)


def test_the_source_is_removed_last(
    directory: DataDirectory, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content, then entry, then the entries of both directories; only then the source goes."""
    source = write(old / "telegram_1.jsonl", "x")
    faults = Faults(monkeypatch, (*CHANGES, "sync_directory"))
    target = directory.live_path(KEY)

    migrate_file(directory, source, KEY)

    steps = [(name, args[-1]) for name, args in faults.calls]
    content = next(index for index, (name, _) in enumerate(steps) if name == "fdatasync")
    order = [
        content,
        steps.index(("link", target)),
        steps.index(("sync_directory", target.parent)),
        steps.index(("sync_directory", directory.sessions)),
        steps.index(("unlink", source)),
        steps.index(("sync_directory", old)),
    ]
    assert order == sorted(order)


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_links_will_do(
    directory: DataDirectory, old: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The log is renamed into place there, and ours still wins."""

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(disk, "link", refuse)
    source = write(old / "telegram_1.jsonl", "x")

    assert isinstance(migrate_file(directory, source, KEY), Migrated)
    assert isinstance(migrate_file(directory, write(source, "y"), KEY), Skipped)
    assert texts(directory) == ["x"]


# -- whole directories --------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_a_directory_of_nanobot_is_migrated(
    directory: DataDirectory, tmp_path: Path, version: str
) -> None:
    """Every session of its own making is here afterwards, and none waits for an answer."""
    root = tmp_path / version
    shutil.copytree(FIXTURES / version, root)
    before = {
        legacy.identify(path): path.read_text().count('"role"') for path in root.rglob("*.jsonl")
    }

    report = migrate_directory(directory, root)

    assert (report.skipped, report.failed) == ([], [])
    assert not list(root.rglob("*.jsonl"))
    for key, count in before.items():
        assert key is not None
        session = load(directory, key)
        assert len(session.records) == count
        assert session.pending == []
        assert session.undelivered == {}


def test_a_dry_run_changes_nothing(directory: DataDirectory, old: Path) -> None:
    """It reports what a real run then does."""
    write_damaged(old / "telegram_1.jsonl")
    write(old / "heartbeat.jsonl", "x", key="heartbeat")
    make_garbage(old / "slack_C1.jsonl")
    before = tree(directory.path, old)

    planned = migrate_directory(directory, old, dry_run=True)
    after = tree(directory.path, old)

    assert after == before
    assert len(planned.migrated) == len(planned.skipped) == len(planned.failed) == 1
    assert migrate_directory(directory, old) == planned


def test_the_report_has_the_form_of_the_contract(directory: DataDirectory, old: Path) -> None:
    """Programs read it as JSON."""
    migrate_file(directory, write(old / "telegram_1.jsonl", "x"), KEY)
    ours = write(old / "telegram_1.jsonl", "y")
    other = write(old / "slack_C1.jsonl", "z", key="slack:C1")
    make_garbage(old / "slack_C2.jsonl")

    report = json.loads(msgspec.json.encode(migrate_directory(directory, old)))

    assert report.keys() == {"migrated", "skipped", "failed"}
    assert [(one["key"], one["path"], one["rows"]) for one in report["migrated"]] == [
        ("slack:C1", str(other), 1)
    ]
    [skipped] = report["skipped"]
    assert skipped.keys() == {"key", "path", "reason"}
    assert (skipped["key"], skipped["path"]) == ("telegram:1", str(ours))
    [failed] = report["failed"]
    assert failed.keys() == {"path", "reason"}


def test_a_failing_file_does_not_stop_the_others(
    directory: DataDirectory, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report names it with the reason; another run migrates it."""
    for number in range(3):
        write(old / f"slack_C{number}.jsonl", "x", key=f"slack:C{number}")
    real = disk.link

    def fail(temporary: Path, target: Path) -> None:
        if target.stem == "C1":
            raise OSError(errno.EIO, "Input/output error")
        real(temporary, target)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "link", fail)
        report = migrate_directory(directory, old)

    assert [one.key for one in report.migrated] == ["slack:C0", "slack:C2"]
    [failed] = report.failed
    assert "C1" in failed.path
    assert "Input/output error" in failed.reason
    assert [one.key for one in migrate_directory(directory, old).migrated] == ["slack:C1"]


def test_of_two_files_of_a_session_the_newer_is_migrated(
    directory: DataDirectory, old: Path
) -> None:
    """The other stays where it is and is reported: its words may not all be in the newer one."""
    older = write(old / "telegram_1.jsonl", "older", updated="2026-01-01T00:00:00")
    newer = write(old / "ws" / "dGVsZWdyYW06MQ.jsonl", "newer", updated="2026-02-01T00:00:00")

    report = migrate_directory(directory, old)

    assert [one.path for one in report.migrated] == [str(newer)]
    [skipped] = report.skipped
    assert (skipped.key, skipped.path) == ("telegram:1", str(older))
    assert newer.name in skipped.reason
    assert older.exists()


def test_an_unreadable_file_holds_its_session_back(directory: DataDirectory, old: Path) -> None:
    """It may be the newer one, and the older would shut it out for good."""
    older = write(old / "telegram_1.jsonl", "older")
    make_garbage(old / "dGVsZWdyYW06MQ.jsonl")
    write(old / "slack_C1.jsonl", "x", key="slack:C1")

    report = migrate_directory(directory, old)

    assert [one.key for one in report.migrated] == ["slack:C1"]
    assert len(report.failed) == 2
    assert older.exists()


def test_what_is_no_session_file_is_left_alone(directory: DataDirectory, old: Path) -> None:
    """Checkpoints, locks, temporary and hidden files are not even reported."""
    for name in (
        "a_b.checkpoint.json",
        ".a_b.jsonl.0f.tmp",
        ".session-files.lock",
        "a_b.jsonl.tmp",
    ):
        (old / name).write_text("{}")
    write(old / ".migration-conflicts" / "telegram_1.jsonl", "x")
    write(old / "deep" / "er" / "telegram_1.jsonl", "x")
    before = tree(old)

    report = migrate_directory(directory, old)

    assert report == legacy.Report()
    assert tree(old) == before


def test_a_link_is_reported_and_left_alone(directory: DataDirectory, old: Path) -> None:
    """It may lead anywhere, and removing it would not remove its target."""
    make_link(old / "telegram_1.jsonl")

    report = migrate_directory(directory, old)

    assert [one.reason for one in report.failed] == ["it is a symbolic link"]
    assert (old / "telegram_1.jsonl").is_symlink()


def test_a_directory_that_is_not_there_is_an_error(directory: DataDirectory, old: Path) -> None:
    """Someone typed its name; "nothing to migrate" would mislead."""
    with pytest.raises(SessionUnreadable, match="no such directory"):
        migrate_directory(directory, old / "typo")


def test_progress_ends_at_the_number_of_files(directory: DataDirectory, old: Path) -> None:
    """Files that need no work count as done."""
    for number in range(3):
        write(old / f"slack_C{number}.jsonl", "x", key=f"slack:C{number}")
    (old / "empty_file.jsonl").touch()
    seen: list[tuple[int, int]] = []

    migrate_directory(directory, old, progress=lambda done, total: seen.append((done, total)))

    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_names_that_are_no_text_can_be_reported(directory: DataDirectory, old: Path) -> None:
    """File names are bytes; reports and logs are UTF-8."""
    path = Path(os.fsdecode(bytes(old) + b"/telegram_\xff.jsonl"))
    write(path, "x", key=None)
    write(Path(os.fsdecode(bytes(old) + b"/other_\xff.jsonl")), "x")

    report = migrate_directory(directory, old)

    assert msgspec.json.encode(report)
    assert [one.key for one in report.migrated] == ["telegram:1"]
    assert texts(directory) == ["x"]
