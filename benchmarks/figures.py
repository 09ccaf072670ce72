"""What a benchmark yields, and how it is shown.

A figure compares two times (or sizes, or percentiles) of the same run. Only the ratio is held
against a limit: it hardly depends on the machine, the times do.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

WIDTH = 100
_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))


@dataclass(frozen=True, slots=True)
class Goal:
    """The most a figure may be. `absolute` goals are held against `ours`, others the ratio."""

    limit: float
    stretch: float | None = None
    absolute: bool = False
    at_least: bool = False
    """For rates: the least it may be."""

    def met_by(self, number: float) -> bool:
        return _reaches(number, self.limit, at_least=self.at_least)

    def stretched_by(self, number: float) -> bool:
        if self.stretch is None:
            return False
        return _reaches(number, self.stretch, at_least=self.at_least)


def _reaches(number: float, limit: float, *, at_least: bool) -> bool:
    return number >= limit if at_least else number <= limit


@dataclass(frozen=True, slots=True)
class Figure:
    row: str
    title: str
    unit: str
    """`s`, `KB`, `MB`, `/s` or nothing."""
    ours: float
    other: float | None = None
    """What ours is compared with; None if that was not measured."""
    against: str = ""
    goal: Goal | None = None
    """None: worth knowing, held against nothing."""
    rounds: tuple[tuple[float, float | None], ...] = ()
    """Ours and the other of every round; the figure is the median of each."""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        return None if self.other is None else self.ours / self.other

    @property
    def judged(self) -> float | None:
        """The number the goal is about."""
        return self.ours if self.goal is not None and self.goal.absolute else self.ratio

    @property
    def passes(self) -> bool | None:
        """None if there is nothing to hold it against."""
        if self.goal is None or self.judged is None:
            return None
        return self.goal.met_by(self.judged)

    def as_json(self) -> dict[str, Any]:
        value = dataclasses.asdict(self)
        return {**value, "ratio": self.ratio, "passes": self.passes}


def compare(
    row: str,
    title: str,
    ours: Sequence[float],
    other: Sequence[float] | None,
    against: str,
    goal: Goal | None = None,
    unit: str = "s",
    **facts: Any,
) -> Figure:
    """A figure of medians, from times (or whatever `unit` says) measured in turn."""
    others: list[float | None] = [None] * len(ours) if other is None else list(other)
    return Figure(
        row,
        title,
        unit,
        statistics.median(ours),
        None if other is None else statistics.median(other),
        against,
        goal,
        tuple(zip(ours, others, strict=True)),
        facts,
    )


def show(title: str, figures: Sequence[Figure], console: Console) -> None:
    table = Table(width=WIDTH, pad_edge=False, caption_justify="left")
    table.add_column(title, ratio=1)
    for name in ("ours", "against", "ratio", "goal", "stretch", "ok"):
        table.add_column(name, justify="right" if name != "ok" else "center", no_wrap=True)
    for figure in figures:
        table.add_row(*_cells(figure))
    console.print(table)


def _cells(figure: Figure) -> list[str]:
    goal, absolute = figure.goal, figure.goal is not None and figure.goal.absolute
    shown = _quantity if absolute else lambda number, _: _ratio(number)
    sign = "≥ " if goal is not None and goal.at_least else "≤ "
    ok = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[figure.passes]
    if figure.passes and goal and goal.stretch is not None:
        ok = "[green]yes+[/]" if goal.stretched_by(figure.judged or 0) else ok
    return [
        figure.title,
        _quantity(figure.ours, figure.unit),
        "–" if figure.other is None else f"{figure.against} {_quantity(figure.other, figure.unit)}",
        "–" if figure.ratio is None else _ratio(figure.ratio),
        "" if goal is None else sign + shown(goal.limit, figure.unit),
        "" if goal is None or goal.stretch is None else shown(goal.stretch, figure.unit),
        ok,
    ]


def _quantity(number: float, unit: str) -> str:
    if unit != "s":
        shown = f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
        return f"{shown}{unit}" if unit.startswith("/") else f"{shown} {unit}".strip()
    scale, name = next((pair for pair in _SCALES if number >= pair[0]), _SCALES[-1])
    value = number / scale
    return f"{value:.0f} {name}" if value >= 100 else f"{value:.3g} {name}"


def _ratio(number: float) -> str:
    if number < 0.02:
        return f"1/{1 / number:,.0f}" if number else "0"
    return f"{number:.2f}" if number < 20 else f"{number:,.0f}"
