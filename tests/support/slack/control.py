"""One route through which another process acts in the workspace and looks at it.

`POST /_control {"do": NAME, …}` with a name of `obey`; the answer is JSON.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import aiohttp

from tests.support.slack.faults import Fault
from tests.support.slack.server import LocalSlack
from tests.support.slack.workspace import Message

SETTINGS = {"echo", "num_connections", "pongs", "retries", "retry_seconds"}


async def obey(slack: LocalSlack, order: dict[str, Any]) -> Any:
    args = {name: value for name, value in order.items() if name != "do"}
    match order["do"]:
        case "say":
            return (await slack.say(**args)).as_json()
        case "edit" | "delete" | "unfurl":
            message = slack.place(args["channel"]).log[args.pop("channel"), args.pop("ts")]
            await getattr(slack, order["do"])(message, **args)
        case "command":
            await slack.command(**args)
        case "disconnect":
            await slack.disconnect(**args)
        case "kill_sockets":
            await slack.kill_sockets()
        case "add_channel":
            return slack.add_channel(**args)
        case "add_user":
            return slack.add_user(**args).id
        case "dm":
            return slack.dm(**args)
        case "messages" | "answers":
            found: list[Message] = getattr(slack, order["do"])(**args)
            return [{**message.as_json(metadata=True), "shown": message.shown} for message in found]
        case "fault":
            name, times = args.pop("name"), args.pop("times", 1)
            slack.faults.put(name, Fault(**args), times)
        case "clear_faults":
            slack.faults.clear()
        case "set":
            _set(slack, args)
        case "state":
            return _state(slack)
        case "calls":
            return [asdict(call) for call in slack.calls[args.get("since", 0) :]]
        case unknown:
            raise ValueError(f"no such order: {unknown}")
    return {}


def _set(slack: LocalSlack, values: dict[str, Any]) -> None:
    for name, value in values.items():
        owner: Any = slack if name == "echo" else slack.socket_mode
        if name == "reads":
            owner.reads.set() if value else owner.reads.clear()
        elif name in SETTINGS:
            setattr(owner, name, value)
        else:
            raise ValueError(f"no such setting: {name}")


def _state(slack: LocalSlack) -> dict[str, Any]:
    delivered = [envelope for envelope in slack.envelopes if envelope.ids]
    return {
        "sockets": len(slack.sockets),
        "dials": len(slack.socket_mode.dials),
        "envelopes": len(slack.envelopes),
        "delivered": len(delivered),
        "redelivered": sum(len(envelope.ids) - 1 for envelope in delivered),
        "acked": sum(envelope.acked for envelope in slack.envelopes),
        "calls": len(slack.calls),
    }


class Remote:
    """The same from the other process: `await remote.do("say", user=…, channel=…, text=…)`."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self._session = url, session

    @property
    def api_base_url(self) -> str:
        return f"{self.url}/api/"

    async def do(self, order: str, **args: Any) -> Any:
        async with self._session.post(f"{self.url}/_control", json={"do": order, **args}) as answer:
            answer.raise_for_status()
            return await answer.json()
