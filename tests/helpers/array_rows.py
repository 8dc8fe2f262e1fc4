"""Rows of the table of arguments that are arrays (array_arguments.py), and what each row is made
of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rnnspec.engine.spans import Pieces

Results = list[Any]
Meanwhile = Callable[[], None]


@dataclass(frozen=True)
class Row:
    """takes: the function whose arguments these are; given: name -> array, or a dict, tuple or
    Pieces of arrays; run: of these arguments, and of what happens between passes, gives arrays.
    out: the arguments that are written to. torch: whether the arrays lie in tensors."""

    name: str
    takes: Callable[..., Any]
    given: Mapping[str, Any]
    run: Callable[[dict[str, Any], Meanwhile], Results]
    out: tuple[str, ...] = ()
    torch: bool = False


def changed(value: Any, change: Callable[[np.ndarray], Any]) -> Any:
    """The value with each of its arrays changed."""
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, Mapping):
        return {name: changed(a, change) for name, a in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(changed(a, change) for a in value)
    if isinstance(value, Pieces):
        return Pieces(**{f.name: changed(getattr(value, f.name), change) for f in fields(value)})
    return value


def flat(value: Any) -> list[np.ndarray]:
    """All arrays in what a call gave, [n] each."""
    if value is None or isinstance(value, int | float):
        return [] if value is None else [np.array([value])]
    if isinstance(value, Mapping):
        return [a for name in value for a in flat(value[name])]
    if isinstance(value, tuple | list):
        return [a for part in value for a in flat(part)]
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    return [np.array(value).reshape(-1)]
