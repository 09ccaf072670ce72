"""How a command ends: an exit code, and one line on stderr if it could not do what it was asked.

0   done
1   failed, or damage was found
2   wrong usage
75  another process owns the data directory
78  the configuration cannot work: a network file system, a file in place of the directory
"""

from __future__ import annotations

from typing import IO, Any

import click


class Failure(click.ClickException):
    """Ends the command with one line that says what is wrong and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"parley: {self.message}", file=file, err=True)


class WrongUsage(Failure):
    exit_code = 2


class Locked(Failure):
    exit_code = 75


class Misconfigured(Failure):
    exit_code = 78


class Commands(click.Group):
    """The outermost group: what the commands raise on purpose becomes a Failure.

    Its help lists the commands in the order in which they were added.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except OSError as error:
            place = f"{_printable(error.filename)}: " if error.filename else ""
            raise Failure(f"{place}{error.strerror or error}") from error
        except Exception as error:
            failure = _expected(error)
            if failure is None:
                raise
            raise failure from error


def _expected(error: Exception) -> Failure | None:
    from sessions import errors

    if isinstance(error, errors.StoreLocked):
        return Locked(f"{error}; stop it first, then run this again")
    if isinstance(error, errors.StoreRefused):
        return Misconfigured(str(error))
    if isinstance(error, errors.InvalidKey):
        return WrongUsage(str(error))
    return Failure(_printable(str(error))) if isinstance(error, errors.SessionError) else None


def _printable(name: object) -> str:
    """A file name can hold bytes that are no text."""
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    return text.encode(errors="replace").decode()
