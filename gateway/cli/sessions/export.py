"""A whole conversation in a form for elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from gateway.cli.exits import Failure
from gateway.cli.sessions.library import Library, session_object
from gateway.cli.sessions.transcript import Changes, markdown
from sessions.lines import encode_object
from sessions.session import Session


def lines_of(library: Library, session: Session, form: str) -> Iterator[bytes]:
    if form == "jsonl":
        yield from library.raw(session)
        return
    rows = library.rows(session)
    messages = [row for row in rows if not row.is_note]
    if form == "json":
        yield encode_object(session_object(session, messages))
        return
    changes = Changes([*session.records, *rows])
    for number, paragraph in enumerate(markdown(session, messages, changes)):
        yield (f"\n{paragraph}\n" if number else f"{paragraph}\n").encode()


def write(pieces: Iterable[bytes], output: Path | None) -> None:
    """To a file as a whole: what was there stays until the new one is complete."""
    if output is None or str(output) == "-":
        stream = sys.stdout.buffer
        stream.writelines(pieces)
        stream.flush()
        return
    if output.exists() and not output.is_file():
        # A device or a pipe is written to, not replaced.
        with output.open("wb") as file:
            file.writelines(pieces)
        return
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with temporary.open("xb") as file:
            file.writelines(pieces)
        temporary.replace(output)
    except OSError as error:
        raise Failure(f"{output} cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
