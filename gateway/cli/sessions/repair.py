"""Mends what `verify` finds. The store must be open: it owns the directory meanwhile.

A damaged live log is mended by loading it, a damaged archive by itself. Damaged bytes go to
quarantine before the file is replaced; a second run finds nothing to do.
"""

from __future__ import annotations

import asyncio

import msgspec

from gateway.cli.sessions.inspection import Checked, Inspector, Stop
from gateway.cli.sessions.library import Library, Progress, Unreadable
from sessions import disk
from sessions.errors import SessionError
from sessions.store_jsonl import JsonlStore


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    path: str
    problems: list[str]
    skipped: int
    """Lines, or parts of lines, that were put aside."""
    recovered: int
    """Lines that were mended."""
    quarantine: list[str]
    """The files that hold what was put aside."""


class Report(msgspec.Struct, frozen=True):
    repaired: list[Repaired] = []
    failed: list[Unreadable] = []


async def repair(store: JsonlStore, progress: Progress) -> Report:
    library = Library(store.directory)
    # Nobody else writes: what is damaged stays damaged, and is not read twice.
    inspector = Inspector(library, Stop("ours"))
    report = Report([], [])
    for checked, is_archive in inspector.files(progress):
        # Lets an interrupt in between two files.
        await asyncio.sleep(0)
        if not checked.problems or checked.key is None:
            continue
        try:
            left = await _mend(store, inspector, checked, is_archive=is_archive)
        except SessionError as error:
            left = str(error)
        if left is None:
            report.repaired.append(_repaired(library, checked))
        else:
            report.failed.append(Unreadable(library.shown(checked.path), left))
    report.failed.extend(library.unreadable)
    return report


async def _mend(
    store: JsonlStore, inspector: Inspector, checked: Checked, *, is_archive: bool
) -> str | None:
    """Returns why the file is not whole now; None if it is."""
    if checked.key is None:
        return "nobody knows whose it is"
    if is_archive:
        store.files.mend_archive(checked.key)
        live = inspector.check_live(store.directory.live_path(checked.key))
        again = inspector.check_archive(checked.path, live, orphan=live is None)
    else:
        await store.get(checked.key)
        again = inspector.check_live(checked.path)
    if again is None:
        return "it cannot be read"
    return "; ".join(problem.reason for problem in again.problems) or None


def _repaired(library: Library, checked: Checked) -> Repaired:
    names = [disk.digest(damage.data) for damage in checked.found.damage]
    return Repaired(
        key=str(checked.key),
        path=library.shown(checked.path),
        problems=[problem.reason for problem in checked.problems],
        skipped=len(names),
        recovered=checked.found.recovered,
        quarantine=list(dict.fromkeys(names)),
    )
