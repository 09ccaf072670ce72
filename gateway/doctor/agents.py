"""The agents: whether each can be made, and whether what it needs is there."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

from gateway.config import ModelAgentSettings, WebhookAgentSettings
from gateway.doctor.check import Facts, Result, fail, ok, warn

BUILD_SECONDS = 30.0
CONNECT_SECONDS = 3.0


def agents(facts: Facts) -> Iterator[Result]:
    for name, settings in facts.settings.agents.items():
        title, kind = f"agent {name}", settings.kind
        problem = None if kind == "echo" else _problem(facts, name)
        if problem is not None:
            yield fail(title, f"{kind}: {problem}", "docs/agents.md tells what this kind needs")
        elif isinstance(settings, WebhookAgentSettings):
            yield _reachable(title, settings.url)
        else:
            yield ok(title, kind)


def _problem(facts: Facts, name: str) -> str | None:
    """Made in a process of its own: code of users may hang, or end the process."""
    # Secrets are masked here: whether there is one is all that is asked.
    wanted = {"name": name, "settings": facts.settings.model_dump(mode="json")}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "gateway.doctor.agent_probe"],
            input=json.dumps(wanted),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BUILD_SECONDS,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it cannot be imported within {BUILD_SECONDS:.0f} s"
    if ended.stdout == "made":
        return None
    reason = ended.stdout.strip() or f"its import ended the process with {ended.returncode}"
    return " ".join(reason.removeprefix(f"agents.{name}: ").split())


def tools(facts: Facts) -> Iterator[Result]:
    """The MCP servers of every model."""
    for agent, settings in facts.settings.agents.items():
        if not isinstance(settings, ModelAgentSettings):
            continue
        for name, server in settings.mcp_servers.items():
            title = f"tools {agent}.{name}"
            if server.command is None:
                yield _reachable(title, server.url or "")
            elif (found := shutil.which(server.command)) is None:
                fix = "install it, or give its whole path in command"
                yield fail(title, f"there is no program {server.command}", fix)
            else:
                yield ok(title, found)


def _reachable(title: str, url: str) -> Result:
    """Only whether somebody listens: nothing is asked."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((host, port), CONNECT_SECONDS):
            return ok(title, f"{host}:{port} can be reached")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        fix = "start that service, or correct its url"
        return warn(title, f"{urlsplit(url).hostname} cannot be reached: {reason}", fix)
