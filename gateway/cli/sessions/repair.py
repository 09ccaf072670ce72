"""Mends what `verify` finds, through an open store: of this command, or of a running gateway.

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


async def repair(store: JsonlStore, progress: Progress, *, alone: bool = True) -> Report:
    """`alone`: nobody else writes, so what is damaged stays damaged, and is not read twice."""
    library = Library(store.directory)
    inspector = Inspector(library, Stop("ours" if alone else "running"))
    report = Report([], [])
    files = inspector.files(progress)
    # An interrupt gets in between two files.
    while (found := await asyncio.to_thread(next, files, None)) is not None:
        checked, is_archive = found
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
        await store.mend(checked.key, archive=True)
        again = await asyncio.to_thread(_check_archive, store, inspector, checked)
    else:
        await store.mend(checked.key)
        again = await asyncio.to_thread(inspector.check_live, checked.path)
    if again is None:
        return "it cannot be read"
    return "; ".join(problem.reason for problem in again.problems) or None


def _check_archive(store: JsonlStore, inspector: Inspector, checked: Checked) -> Checked | None:
    live = inspector.check_live(store.directory.live_path(checked.key)) if checked.key else None
    return inspector.check_archive(checked.path, live, orphan=live is None)


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
