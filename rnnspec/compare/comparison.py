"""What comparing two cells gives: the verdict, the first value that differs, or what was tried."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

SHOWN = 24  # numbers of an array that are printed


Verdict = Literal["same", "different", "no difference found"]
SAME: Verdict = "same"
DIFFERENT: Verdict = "different"
UNDECIDED: Verdict = "no difference found"


@dataclass(frozen=True)
class Difference:
    """The first value that differs: of which output or state, at which step (from 0), on what, and
    the first equation that does. inputs [1, 1, ...] are those of that one step, states [1, ...]
    those before it."""

    kind: str
    name: str
    step: int
    a: Any
    b: Any
    sizes: dict[str, int]
    inputs: dict[str, Any]
    states: dict[str, Any]
    parameters: dict[str, Any]
    equation: str = ""
    text_a: str = ""
    text_b: str = ""


@dataclass(frozen=True)
class Tried:
    """What was tried where nothing was proved.

    points: how many, each one step from states of its own; sizes: at which; steps: the first and
    the last, None where neither cell reads their number; magnitudes: the smallest and the largest
    number but 0; conditions: how many comparisons both cells have; unreached: their sides that no
    point lies on; digits: of the numbers; largest: the largest difference, beside the values.
    """

    points: int
    sizes: tuple[dict[str, int], ...]
    steps: tuple[int, int] | None
    magnitudes: tuple[float, float]
    conditions: int
    unreached: tuple[str, ...]
    digits: int
    largest: float

    def to_lines(self) -> list[str]:
        shown = "; ".join(", ".join(f"{n} = {v}" for n, v in sizes.items()) for sizes in self.sizes if sizes)
        low, high = self.magnitudes
        lines = [
            f"tried: {self.points} points with numbers of {self.digits} digits from {low:.0e} to {high:.0e}",
            f"steps: {'{} to {}'.format(*self.steps) if self.steps else 'neither cell reads the number of its step'}",
            f"largest difference: {self.largest:.1g}, beside the values",
        ]
        lines += [f"sizes: {shown}"] * bool(shown)
        if self.conditions:
            sides = 3 * self.conditions  # above, below and on each edge
            lines.append(f"conditions: {self.conditions}, {sides - len(self.unreached)} of {sides} sides reached")
        return [*lines, *(f"never reached: {text}" for text in self.unreached)]


@dataclass(frozen=True)
class Comparison:
    """The verdict on two cells as functions of real numbers.

    verdict: "same" is proved, "different" shown by a difference, "no difference found" neither.
    how: "symbolically", "numerically" or, where the declarations differ already, "by declaration".
    mapping: parameters that are matched beyond their names. tried: where nothing was proved.
    """

    a: str
    b: str
    verdict: Verdict
    how: str
    reason: str
    mapping: tuple[str, ...] = ()
    tried: Tried | None = None
    difference: Difference | None = None
    notes: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Whether both were proved to be one function: no difference found is no proof."""
        return self.verdict == SAME

    @property
    def different(self) -> bool:
        """Whether a difference was found: where it is False they may still differ."""
        return self.verdict == DIFFERENT

    def to_text(self) -> str:
        lines = [f"{self.verdict}: {self.reason}"]
        lines += [f"  {line}" for line in self.mapping]
        if self.difference:
            lines += _difference_lines(self, self.difference)
        if self.tried:
            lines += self.tried.to_lines()
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN and no infinity: None stands for them."""
        return {"same": self.same} | {key: _json(value) for key, value in asdict(self).items()}


def _json(value: Any) -> Any:
    match value:
        case float():
            return value if np.isfinite(value) else None
        case list() | tuple():
            return [_json(v) for v in value]
        case dict():
            return {key: _json(v) for key, v in value.items()}
    return value


# --- text ---


def _difference_lines(found: Comparison, d: Difference) -> list[str]:
    wide = max(len(found.a), len(found.b))
    lines = [f"  {found.a:<{wide}}  {d.name} = {_short(d.a)}", f"  {found.b:<{wide}}  {d.name} = {_short(d.b)}"]
    if d.equation:
        lines += [
            f"first equation that differs: {d.equation}",
            f"  {found.a:<{wide}}  {d.text_a}",
            f"  {found.b:<{wide}}  {d.text_b}",
        ]
    lines.append("on " + ", ".join(f"{n} = {v}" for n, v in (d.sizes | {"step": d.step}).items()))
    lines += [f"  {n} = {_short(v)}" for group in (d.inputs, d.states, d.parameters) for n, v in group.items()]
    return lines


def _short(value: Any) -> str:
    text = str(value)
    return text if text.count(",") < SHOWN else f"{text[:120]}... (all with --json)"
