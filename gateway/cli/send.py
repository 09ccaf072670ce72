"""`parley send`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.exits import Failure
from gateway.cli.options import json_option
from gateway.cli.remote import find_remote, remote_options

if TYPE_CHECKING:
    from gateway.cli.remote import Remote

ANSWER_SECONDS = 30


@click.command("send")
@click.argument("key")
@click.argument("text")
@click.option("--id", metavar="ID", help="The same message with the same id is delivered once.")
@remote_options
@json_option
def send(
    key: str,
    text: str,
    id: str | None,
    url: str,
    token_file: Path | None,
    config: Path | None,
    *,
    as_json: bool,
) -> None:
    """Say TEXT in the chat KEY through a running gateway; prints the delivery id.

    It is in the log when this returns.
    """
    import asyncio

    from gateway.cli import screen

    remote = find_remote(url, token_file, config)
    message = {"key": key, "text": text, **({"id": id} if id is not None else {})}
    delivery = asyncio.run(_post(remote, message))
    if as_json:
        screen.print_json(delivery)
    else:
        click.echo(delivery["delivery_id"])


async def _post(remote: Remote, message: dict[str, Any]) -> dict[str, Any]:
    """Raises Failure."""
    import aiohttp

    patience = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(headers=remote.headers, timeout=patience) as session,
            session.post(f"{remote.url}/api/v1/messages", json=message) as response,
        ):
            if response.status == 401:
                raise remote.refused()
            answer = await response.json(content_type=None)
            if response.status != 202:
                raise Failure(_reason(answer, response.status))
    except aiohttp.ClientConnectionError as error:
        raise remote.absent(str(error)) from error
    except TimeoutError as error:
        raise Failure(f"{remote.url} did not answer in {ANSWER_SECONDS} s") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise Failure(f"{remote.url} is no Parley gateway: {error}") from error
    if not isinstance(answer, dict) or "delivery_id" not in answer:
        raise Failure(f"{remote.url} is no Parley gateway")
    return answer


def _reason(answer: Any, status: int) -> str:
    detail = answer.get("detail") if isinstance(answer, dict) else None
    return str(detail or f"the gateway answered {status}")
