"""`parley sessions …`: look at stored conversations, check and mend their files, take over others.

Commands that read work on the files alone and change nothing. Commands that change something own
the data directory meanwhile, or ask the gateway that does; `store` is the one place that decides.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gateway.cli.exits import Failure, WrongUsage
from gateway.cli.options import data_dir, data_dir_option, json_option

LEGACY_DIR = "~/.nanobot/sessions"
SHOWN_MESSAGES = 50

Function = TypeVar("Function", bound=Callable[..., Any])


class InOrder(click.Group):
    """Lists its commands as they stand in this file: reading, checking, changing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=InOrder)
@data_dir_option()
def sessions() -> None:
    """Look at stored conversations, check and mend their files.

    KEY is channel:chat_id as `list` prints it, for example websocket:abc. KEY#2 is the second
    conversation of a chat, once it has ended.

    \b
    Examples:
      parley sessions list --channel slack
      parley sessions search "opening hours"
      parley sessions show websocket:abc --limit 20
      parley sessions export websocket:abc --format md -o abc.md
      parley sessions verify
      parley sessions migrate --from ~/.nanobot/sessions --dry-run

    \b
    Exit codes: 0 done, 1 failed or damage found, 2 wrong usage,
    75 the data directory is in use, 78 wrong configuration.
    """


def command(name: str) -> Callable[[Function], click.Command]:
    """A command of this group, with the options that each of them has."""

    def wrap(function: Function) -> click.Command:
        return sessions.command(name)(data_dir_option()(json_option(function)))

    return wrap


def _limit(default: str) -> Callable[[Function], Function]:
    return click.option(
        "--limit", type=click.IntRange(min=0), metavar="N", help=f"At most N. [default: {default}]"
    )


# -- reading ----------------------------------------------------------------------------------


@command("list")
@click.option("--channel", help="Only sessions of this channel.")
@click.option("--agent", help="Only sessions of this agent.")
@click.option("--user", help="Only sessions of this user.")
@click.option("--state", help="Only sessions in this state: active, archived, suspended.")
@click.option("--tag", help="Only sessions with this tag.")
@_limit("all")
def list_(as_json: bool, limit: int | None, **filters: str | None) -> None:
    """List sessions, the newest first."""
    from gateway.cli import screen
    from gateway.cli.sessions import tables
    from gateway.cli.sessions.library import Library, info_object
    from sessions.store import Query

    library = Library.at(data_dir())
    with screen.bar("Reading sessions") as progress:
        found = library.find(Query(limit=limit or 0, **filters), progress)
    if as_json:
        screen.print_json({"sessions": [info_object(info) for info in found]})
    else:
        tables.sessions(found, data_dir(), filtered=any(filters.values()))
    tables.unreadable(library)


@command("search")
@click.argument("text")
@click.option("--channel", help="Only sessions of this channel.")
@_limit("all")
def search(text: str, as_json: bool, channel: str | None, limit: int | None) -> None:
    """Find messages that hold every word of TEXT."""
    from gateway.cli import screen
    from gateway.cli.sessions import tables
    from gateway.cli.sessions.library import Library, info_object
    from sessions.store import Query

    if not text.split():
        raise WrongUsage("name a word to look for")
    library = Library.at(data_dir())
    with screen.bar("Searching sessions") as progress:
        found = library.find(Query(text=text, channel=channel, limit=limit or 0), progress)
    if as_json:
        objects = [{**info_object(info), "matches": info_matches(info)} for info in found]
        screen.print_json({"sessions": objects})
    else:
        tables.matches(found, text)
    tables.unreadable(library)


def info_matches(info: Any) -> list[dict[str, Any]]:
    return [{"seq": match.seq, "snippet": match.snippet} for match in info.matches]


@command("show")
@click.argument("key")
@click.option("--after", type=click.IntRange(min=0), metavar="SEQ", help="Messages after this one.")
@click.option("--before", type=click.IntRange(min=1), metavar="SEQ", help="Messages before it.")
@_limit(f"the last {SHOWN_MESSAGES}; with --json all; 0: all")
def show(key: str, as_json: bool, after: int | None, before: int | None, limit: int | None) -> None:
    """Print a conversation, the newest message last."""
    from gateway.cli import screen
    from gateway.cli.sessions import tables
    from gateway.cli.sessions.library import Library, session_object

    library = Library.at(data_dir())
    session = library.session(library.key(key))
    if limit is None:
        limit = 0 if as_json else SHOWN_MESSAGES
    messages, more = library.messages(session, after, before, limit)
    if as_json:
        screen.print_json(session_object(session, messages))
    else:
        tables.conversation(session, messages, more=more, forwards=after is not None)


@command("export")
@click.argument("key")
@click.option(
    "--format",
    "form",
    type=click.Choice(["md", "jsonl", "json"]),
    default="md",
    show_default=True,
    help="A transcript, the lines of the log, or the object of `show --json`.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write to this file.")
def export(key: str, as_json: bool, form: str, output: Path | None) -> None:
    """Write a whole conversation, as far back as it goes."""
    from gateway.cli.sessions.export import lines_of, write
    from gateway.cli.sessions.library import Library

    library = Library.at(data_dir())
    session = library.session(library.key(key))
    write(lines_of(library, session, "json" if as_json else form), output)


@command("conversations")
@click.argument("key")
def conversations(key: str, as_json: bool) -> None:
    """List the conversations of a chat, ended and present."""
    from gateway.cli import screen
    from gateway.cli.sessions import tables
    from gateway.cli.sessions.library import Library, conversation_object

    library = Library.at(data_dir())
    session = library.session(library.key(key).chat)
    ended = [one for one in library.ended(session) if one.listed]
    if as_json:
        objects = [conversation_object(session, one) for one in ended]
        current = session.state.conversation
        screen.print_json({"key": str(session.key), "current": current, "conversations": objects})
    else:
        tables.conversations(session, ended)
    tables.unreadable(library)


@command("stats")
def stats(as_json: bool) -> None:
    """Count sessions, messages and bytes."""
    from gateway.cli import screen
    from gateway.cli.sessions import tables
    from gateway.cli.sessions.library import Library

    library = Library.at(data_dir())
    with screen.bar("Reading sessions") as progress:
        counted = library.stats(progress)
    if as_json:
        screen.print_json(counted)
    else:
        tables.stats(counted)
    tables.unreadable(library)


@command("verify")
def verify(as_json: bool) -> None:
    """Check every file and change nothing. Exits 1 if anything is damaged."""
    from gateway.cli import screen
    from gateway.cli.sessions import tables
    from gateway.cli.sessions.inspection import Inspector, inspection_object
    from gateway.cli.sessions.library import Library

    inspector = Inspector(Library.at(data_dir()))
    with screen.bar("Checking files") as progress:
        found = inspector.inspect(progress)
    if as_json:
        screen.print_json(inspection_object(found))
    else:
        tables.inspection(found, data_dir())
    if not found.ok:
        click.get_current_context().exit(1)


# -- changing ---------------------------------------------------------------------------------


@command("repair")
def repair(as_json: bool) -> None:
    """Mend damaged files. What cannot be kept goes to quarantine/, nothing is deleted."""
    import msgspec

    from gateway.cli import screen
    from gateway.cli.sessions import store, tables

    with screen.bar("Repairing files") as progress:
        report = store.mend(data_dir(), progress)
    if as_json:
        screen.print_json(msgspec.to_builtins(report))
    else:
        tables.repaired(report, data_dir())
    if report.failed:
        click.get_current_context().exit(1)


@command("migrate")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    metavar="DIR",
    default=LEGACY_DIR,
    show_default=True,
    help="Where the other program keeps its session files.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--keep", is_flag=True, help="Leave the source files where they are.")
def migrate(as_json: bool, source: Path, dry_run: bool, keep: bool) -> None:
    """Take over session files of nanobot.

    They move into the data directory, which is created if need be. A session that is there
    already is left alone and reported. Messages that were never answered stay unanswered.
    """
    import msgspec

    from gateway.cli import screen
    from gateway.cli.sessions import store, tables

    # A running gateway may have another working directory.
    source = source.expanduser().absolute()
    if not source.is_dir():
        raise Failure(f"there is no directory {source}; name the right one with --from")
    with screen.bar("Migrating sessions") as progress:
        report = store.migrate(data_dir(), source, progress, dry_run=dry_run, keep=keep)
    if as_json:
        screen.print_json(msgspec.to_builtins(report))
    else:
        tables.migrated(report, source, dry_run=dry_run, keep=keep)
    if report.failed:
        click.get_current_context().exit(1)


@command("archive")
@click.argument("key")
def archive(key: str, as_json: bool) -> None:
    """Put a session away. It stays readable and listed."""
    _change_state(key, "archived", as_json=as_json)


@command("restore")
@click.argument("key")
def restore(key: str, as_json: bool) -> None:
    """Make a session active, or go on with KEY#n.

    With KEY#n the agent sees that conversation again from the next message on.
    """
    _change_state(key, "active", as_json=as_json)


def _change_state(text: str, state: str, *, as_json: bool) -> None:
    from gateway.cli import screen
    from gateway.cli.sessions import store
    from gateway.cli.sessions.library import Library, session_object
    from sessions.errors import ConversationEnded

    key = Library.at(data_dir()).key(text)
    if key.conversation is not None and state == "archived":
        raise ConversationEnded(key)
    session = store.change_state(data_dir(), key, state)
    if as_json:
        screen.print_json(session_object(session))
    elif key.conversation is not None:
        screen.echo(f"{key.chat} goes on with conversation {key.conversation}.")
    else:
        screen.echo(f"{key} is {state}.")


@command("delete")
@click.argument("key")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(key: str, as_json: bool, yes: bool) -> None:
    """Delete a session with everything it ever held. There is no way back."""
    import sys

    from gateway.cli import screen
    from gateway.cli.sessions import store
    from gateway.cli.sessions.library import Library

    library = Library.at(data_dir())
    found = library.key(key)
    if found.conversation is not None:
        raise WrongUsage(f"{found} cannot be deleted alone; {found.chat} is the whole chat")
    if not yes:
        if not sys.stdin.isatty():
            raise WrongUsage(f"{found} was not deleted: nobody can be asked here; add --yes")
        messages = screen.count(library.session(found).message_count, "message")
        click.confirm(f"Delete {found} with {messages} for ever?", abort=True, err=True)
    deleted = store.delete(data_dir(), found)
    if not deleted:
        raise Failure(f"{found} was gone already")
    if as_json:
        screen.print_json({"deleted": str(found)})
    else:
        screen.echo(f"{found} is deleted.")
