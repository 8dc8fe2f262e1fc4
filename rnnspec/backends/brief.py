"""Short texts of what holds arrays: a dtype and a shape stand for the numbers.

    Run(outputs={h: float32 [5, 3, 4]}, final={h: float32 [3, 4]}, steps=5, rows=3)

In: values, and dataclasses of values. Out: text for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields

MOST = 8  # entries of a dict or a tuple that are shown


def brief(value: object) -> str:
    """A value in short: arrays by dtype and shape, wherever they lie, and at most MOST entries
    of what has entries."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, Sequence) and dtype is not None:
        return f"{dtype} [{', '.join(map(str, shape))}]" if len(shape) else repr(value)
    if isinstance(value, Mapping):
        return f"{{{_some([f'{k}: {brief(v)}' for k, v in list(value.items())[: MOST + 1]], len(value))}}}"
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        text = _some([brief(v) for v in value[: MOST + 1]], len(value))
        return f"[{text}]" if isinstance(value, list) else f"({text}{',' * (len(value) == 1)})"
    return repr(value)


def _some(texts: list[str], count: int) -> str:
    return ", ".join(texts) if count <= MOST else f"{', '.join(texts[:MOST])}, and {count - MOST} more"


def brief_repr(self: object) -> str:
    """The `__repr__` of a dataclass that holds arrays."""
    shown = [f"{f.name}={brief(getattr(self, f.name))}" for f in fields(self) if f.repr]  # type: ignore[arg-type]
    return f"{type(self).__name__}({', '.join(shown)})"
