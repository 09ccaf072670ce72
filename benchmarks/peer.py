"""The closest peer, PyPI's `nanobot-ai`, in an environment and a process of its own.

The bench and the worker take turns over pipes, one line of JSON each way, so that rounds
interleave and neither side runs while the other is measured. The worker times itself: the pipes
are not part of any figure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VERSION = "0.3.5"
ENVIRONMENT = HERE / ".venv-nanobot"


class PeerFailed(Exception):
    """The peer could not be installed or gave up; its figures are missing."""


def install() -> Path:
    """The Python of the peer's environment; made at first use."""
    python = ENVIRONMENT / "bin" / "python"
    done = ENVIRONMENT / f"installed-{VERSION}"
    if not done.exists():
        print(f"installing nanobot-ai {VERSION} …", file=sys.stderr)
        venv.create(ENVIRONMENT, clear=True, with_pip=True)
        # Bytecode is compiled now: where it is not written at run time, imports would be slower.
        quiet = ["--disable-pip-version-check", "--no-input", "-qq", "--progress-bar", "off"]
        command = [
            str(python),
            "-m",
            "pip",
            "install",
            *quiet,
            "--compile",
            f"nanobot-ai=={VERSION}",
        ]
        if subprocess.run(command, check=False).returncode:
            raise PeerFailed(f"nanobot-ai {VERSION} cannot be installed; see above")
        done.touch()
    return python


class Peer:
    """`call` returns when the peer has done what its name says; see `peer_worker.py`."""

    def __init__(self, python: Path, root: Path) -> None:
        root.mkdir()
        # Its home is ours to give: a real one may hold sessions.
        environment = {**os.environ, "HOME": str(root)}
        self._process = subprocess.Popen(
            [python, HERE / "peer_worker.py", root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def call(self, name: str, /, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([name, arguments]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except OSError as error:
            raise PeerFailed(f"nanobot-ai {VERSION} stopped: {error}") from error
        if not answer:
            raise PeerFailed(f"nanobot-ai {VERSION} stopped during {name!r}")
        return json.loads(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
