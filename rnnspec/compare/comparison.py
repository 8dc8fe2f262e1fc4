"""What comparing two cells gives: the verdict, and the first value that differs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

SHOWN = 24  # numbers of an array that are printed


@dataclass(frozen=True)
class Difference:
    """The first value that differs: of which output or state, at which step (from 0), on what, and
    the first equation that does."""

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
class Comparison:
    """The verdict. how: "symbolically", "numerically" or, where the declarations differ already,
    "by declaration". mapping: parameters that are matched beyond their names. largest: the largest
    difference found, beside the largest value; points: how many were tried.
    """

    a: str
    b: str
    same: bool
    how: str
    reason: str
    mapping: tuple[str, ...] = ()
    points: int = 0
    largest: float | None = None
    difference: Difference | None = None
    notes: tuple[str, ...] = ()

    def to_text(self) -> str:
        lines = [f"{'same' if self.same else 'different'}: {self.reason}"]
        lines += [f"  {line}" for line in self.mapping]
        if self.difference:
            lines += _difference_lines(self, self.difference)
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no NaN and no infinity: None stands for them."""
        return {key: _json(value) for key, value in asdict(self).items()}


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
    lines.append("on " + ", ".join(f"{n} = {v}" for n, v in d.sizes.items()))
    lines += [f"  {n} = {_short(v)}" for group in (d.inputs, d.states, d.parameters) for n, v in group.items()]
    return lines


def _short(value: Any) -> str:
    text = str(value)
    return text if text.count(",") < SHOWN else f"{text[:120]}... (all with --json)"
