"""`parley doctor`: looks at everything a gateway stands on and says what to do.

A new area, a channel for instance, is a file beside this one with a function of the form
`check.Check`, and a line in CHECKS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from gateway.config import ConfigError, Settings
from gateway.doctor import agents, directory, machine, network, page, slack
from gateway.doctor.check import Check, Facts, Result, fail, ok

CHECKS: Sequence[Check] = (
    machine.versions,
    machine.clock,
    directory.place,
    directory.owner,
    directory.sessions,
    directory.secrets,
    directory.latency,
    network.access,
    network.port,
    network.descriptors,
    agents.agents,
    agents.tools,
    slack.slack,
    page.page,
)


class Report(msgspec.Struct, frozen=True):
    checks: list[Result]

    @property
    def status(self) -> str:
        """The worst of all."""
        found = {result.status for result in self.checks}
        return next((status for status in ("fail", "warn") if status in found), "ok")


def examine(
    settings: Settings | ConfigError, source: Path | None, checks: Sequence[Check] = CHECKS
) -> Iterator[Result]:
    """Each result as soon as it is known. Without valid settings only the machine is looked at."""
    if isinstance(settings, ConfigError):
        for problem in settings.problems:
            yield fail("settings", problem, "correct it; docs/configuration.md explains every key")
        settings = Settings()
        checks = [check for check in checks if check.__module__ == machine.__name__]
    else:
        yield ok("settings", f"{source} is valid" if source else "there is no file: the defaults")
    facts = Facts(settings, source)
    for check in checks:
        try:
            yield from check(facts)
        except Exception as error:  # noqa: BLE001 - one check that fails must not hide the others
            reason = f"this could not be checked: {type(error).__name__}: {error}"
            yield fail(check.__name__, reason, "see whether the data directory can be read")
