"""Arrays of the caller's that a call writes to: held for as long as it runs, and apart from all
that it reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy import ndarray as Array

from rnnspec.backends.pins import Pins
from rnnspec.engine import arrays as checked
from rnnspec.engine.call import Call
from rnnspec.engine.weights import Weights


class PinnedOut(dict[str, Array]):
    """`out` as a caller gave it, in a dict that nobody else changes."""

    def __init__(self, out: Mapping[str, Array]):
        super().__init__(out)
        self.pins = Pins([array for array in self.values() if isinstance(array, Array)])


def apart(out: Mapping[str, Array] | None, call: Call) -> Mapping[str, Array] | None:
    """`out` as it is, and pinned. Raises ShapeError where it shares memory with itself or with an
    argument."""
    if not out:
        return out
    params = {} if isinstance(call.params, Weights) else call.params  # those have memory of their own
    held = PinnedOut(out)
    checked.check_apart(held, named_in({"parameter": params, "input": call.inputs, "state": call.states}))
    return held


def named_in(groups: Mapping[str, Mapping[str, Any] | None]) -> dict[str, Any]:
    """The arrays of several groups, each under what it is called in messages."""
    return {f"{kind} {name!r}": array for kind, arrays in groups.items() for name, array in (arrays or {}).items()}
