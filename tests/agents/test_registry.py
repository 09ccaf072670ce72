"""Building, choosing, replacing and closing agents."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from gateway.agents.agent import Agent, Delta
from gateway.agents.echo import EchoAgent
from gateway.agents.fallback import AgentUnavailable, FallbackAgent
from gateway.agents.registry import Agents, build_agent
from gateway.config import AgentSettings, ConfigError, RouteSettings, Settings
from tests.support.turns import ScriptedAgent, collect, text_of


def settings(**agents: dict[str, Any]) -> Settings:
    return Settings.model_validate({"agents": {"default": {"kind": "echo"}, **agents}})


class Workshop:
    """Makes agents that can be asked whether they were closed."""

    def __init__(self) -> None:
        self.made: list[ScriptedAgent] = []
        self.threads: set[int] = set()

    def __call__(self, name: str, _: AgentSettings) -> Agent:
        self.threads.add(threading.get_ident())
        self.made.append(ScriptedAgent(name, Delta(name)))
        return self.made[-1]


@pytest.mark.parametrize(
    ("channel", "chat", "user", "expected"),
    [
        ("slack", "C012", "ann", "support"),
        ("slack", "D012", "ann", "anns"),
        ("websocket", "C012", "bob", "default"),
        ("slack", "c012", None, "default"),
    ],
)
def test_the_first_route_that_matches_decides(
    channel: str, chat: str, user: str | None, expected: str
) -> None:
    """Channel, chat and user are patterns; without a match the default answers."""
    routes = [
        RouteSettings(channel="slack", chat="C0*", agent="support"),
        RouteSettings(user="ann", agent="anns"),
        RouteSettings(channel="slack", chat="C0*", agent="never"),
    ]

    assert Agents.choose(routes, channel, chat, user) == expected


async def test_every_kind_is_built() -> None:
    """Each kind of agent comes out of its settings and answers to its name."""
    agents = await Agents.load(
        settings(
            talk={"kind": "model", "base_url": "http://127.0.0.1:1/v1"},
            hook={"kind": "webhook", "url": "http://127.0.0.1:1/"},
            code={"kind": "python", "path": "os:getcwd"},
        )
    )

    assert isinstance(agents.get("default"), EchoAgent)
    assert [agents.get(name).name for name in ("talk", "hook", "code")] == ["talk", "hook", "code"]
    await agents.close()


async def test_agents_are_built_off_the_loop() -> None:
    """Imports take long, so they happen in another thread."""
    workshop = Workshop()

    await Agents.load(settings(), workshop)

    assert workshop.threads
    assert threading.get_ident() not in workshop.threads


async def test_every_problem_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line per agent that cannot be made, with its name and what is missing."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    broken = settings(
        a={"kind": "python", "path": "no_such_module:reply"},
        b={"kind": "python", "path": "os:no_such_function"},
        c={"kind": "model", "model": "openai:gpt-5"},
        d={"kind": "model", "model": "nobody:knows"},
    )

    with pytest.raises(ConfigError) as caught:
        await Agents.load(broken)

    a, b, c, d = caught.value.problems
    assert a.startswith("agents.a: ")
    assert "no_such_module" in a
    assert "no_such_function" in b
    assert c == "agents.c: needs api_key, or the environment variable OPENAI_API_KEY"
    assert d.startswith("agents.d: ")


def test_nothing_is_imported_that_is_not_configured() -> None:
    """An echo agent costs neither the libraries of models nor those of tools."""
    script = (
        "import asyncio, sys\n"
        "from gateway.agents.registry import Agents\n"
        "from gateway.config import Settings\n"
        "asyncio.run(Agents.load(Settings()))\n"
        "print(sorted({'pydantic_ai', 'mcp', 'openai', 'anthropic', 'aiohttp'} & set(sys.modules)))"
    )

    output = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)

    assert output.stdout.decode().strip() == "[]"


def test_a_missing_package_is_named() -> None:
    """Who configures a model without its libraries is told what to install."""
    script = (
        "import asyncio, sys\n"
        "from gateway.agents.registry import Agents\n"
        "from gateway.config import Settings\n"
        "sys.modules['pydantic_ai'] = None\n"
        "agent = {'kind': 'model', 'model': 'openai:x', 'api_key': 'k'}\n"
        "asyncio.run(Agents.load(Settings(agents={'default': agent})))\n"
    )

    output = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)

    last = output.stderr.decode().strip().splitlines()[-1]
    assert "agents.default: needs pydantic_ai: pip install 'parley-gateway[model]'" in last


async def test_an_agent_with_fallbacks_comes_with_them() -> None:
    """The chain is the agent's own list; the fallbacks of a fallback are not followed."""
    configured = settings(
        a={"kind": "webhook", "url": "http://a/", "fallback": ["b", "a", "b"]},
        b={"kind": "webhook", "url": "http://b/", "fallback": ["a", "default"]},
    )
    workshop = Workshop()
    agents = await Agents.load(configured, workshop)
    [_, a, b] = workshop.made
    a.script = (AgentUnavailable("busy"),)

    async with agents.use("a") as agent:
        assert isinstance(agent, FallbackAgent)
        assert text_of(await collect(agent)) == "b"
    b.script = (AgentUnavailable("busy too"),)
    async with agents.use("a") as agent:
        with pytest.raises(AgentUnavailable, match=r"^busy$"):
            await collect(agent)


async def test_a_reload_keeps_what_did_not_change() -> None:
    """Only new and changed agents are built; unused old ones are closed."""
    workshop = Workshop()
    agents = await Agents.load(settings(a={"kind": "echo"}, b={"kind": "echo"}), workshop)
    [default, a, b] = workshop.made

    await agents.reload(settings(a={"kind": "echo", "delay_ms": 1}))
    await agents.close()

    assert [agent.name for agent in workshop.made] == ["default", "a", "b", "a"]
    assert (default.closed, a.closed, b.closed, workshop.made[3].closed) == (1, 1, 1, 1)


async def test_a_running_turn_keeps_its_agent() -> None:
    """A replaced agent is closed after the last turn that uses it, not before."""
    workshop = Workshop()
    agents = await Agents.load(settings(a={"kind": "echo"}), workshop)
    old = workshop.made[1]

    async with agents.use("a"), agents.use("a") as agent:
        for delay in (1, 2):
            # The second one gives whatever the first has started the time to run.
            await agents.reload(settings(a={"kind": "echo", "delay_ms": delay}))
        assert agent is old
        assert agents.get("a") is not old
        assert old.closed == 0
    await agents.close()

    assert old.closed == 1


async def test_a_fallback_in_use_is_kept_too() -> None:
    """A turn may still need the agents behind its own."""
    chain = {"kind": "webhook", "url": "http://a/", "fallback": ["b"]}
    workshop = Workshop()
    agents = await Agents.load(settings(a=chain, b={"kind": "echo"}), workshop)
    fallback = workshop.made[2]

    async with agents.use("a"):
        for delay in (1, 2):
            await agents.reload(settings(a=chain, b={"kind": "echo", "delay_ms": delay}))
        assert fallback.closed == 0
    await agents.close()

    assert fallback.closed == 1


async def test_a_bad_reload_changes_nothing() -> None:
    """If one agent cannot be made, all stay as they were."""
    agents = await Agents.load(settings(a={"kind": "echo"}))
    before = agents.get("a")

    with pytest.raises(ConfigError):
        await agents.reload(settings(a={"kind": "python", "path": "no_such:thing"}))

    assert agents.get("a") is before
    await agents.close()


async def test_an_agent_that_cannot_close_does_not_stop_the_others() -> None:
    """A shutdown goes on."""

    class Stubborn(ScriptedAgent):
        async def close(self) -> None:
            raise RuntimeError("no")

    made: list[ScriptedAgent] = []

    def build(name: str, _: AgentSettings) -> Agent:
        made.append((Stubborn if name == "default" else ScriptedAgent)(name))
        return made[-1]

    agents = await Agents.load(settings(a={"kind": "echo"}), build)
    await agents.close()

    assert made[1].closed == 1


async def test_an_unknown_name_is_said_to_be_unknown() -> None:
    """A session may remember an agent that is no longer there."""
    agents = await Agents.load(settings())

    assert list(agents) == ["default"]
    assert "default" in agents
    assert "gone" not in agents
    with pytest.raises(KeyError):
        agents.get("gone")
    await agents.close()


def test_a_name_is_given_to_the_agent() -> None:
    """The name in the settings is the name in the log."""
    assert build_agent("support", settings().agents["default"]).name == "support"
