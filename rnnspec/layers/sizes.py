"""The sizes of a layer's cell, from input_size, hidden_size, proj_size and those given by name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rnnspec.language.sizes import evaluate_size, size_names, sizes_in, unit_size, with_default_sizes
from rnnspec.language.spec import Spec


def layer_sizes(
    spec: Spec, input_size: int, hidden_size: int, proj_size: int, more: Mapping[str, int], depth: int = 0
) -> dict[str, int]:
    """The value of every size of a cell.

    spec: of the cell. input_size: how many features it reads. hidden_size: its units. proj_size:
    the size P of a cell with a projection, 0 for none. more: sizes given by name. depth: its place
    in a stack, for messages.
    """
    known = sizes_in(spec.shapes.values())
    sizes = {name: value for name, value in more.items() if name in known}
    first = next(iter(spec.streams.values()), ())
    source = "input_size" if not depth else f"layer {depth - 1}, which layer {depth} reads,"
    if first and first[0].isidentifier():
        _tell(sizes, first[0], input_size, f"sizes[{first[0]!r}]", source)
    elif spec.streams and input_size != (
        evaluate_size(first[0], sizes)
        if first and size_names(first[0]) <= set(sizes)
        else 1
        if not first
        else input_size
    ):
        raise ValueError(
            f"{source} gives {input_size} features, but the cell {spec.name!r} reads"
            f" {'one number' if not first else first[0]} a step."
        )
    hidden = unit_size(spec)
    if hidden is not None:
        _tell(sizes, hidden, hidden_size, source if first[:1] == (hidden,) else f"sizes[{hidden!r}]", "hidden_size")
    if proj_size and projects(spec):
        sizes["P"] = proj_size
    sizes = with_default_sizes(spec.sizes, sizes)
    missing = sorted(known - set(sizes))
    if missing:
        hint = (
            "give proj_size, or sizes={'P': ...}"
            if missing == ["P"]
            else f"give sizes={{{', '.join(f'{m!r}: ...' for m in missing)}}}"
        )
        many = "s" * (len(missing) > 1)
        raise ValueError(
            f"the cell {spec.name!r} has the size{many} {', '.join(missing)} that input_size and hidden_size do not"
            f" tell: {hint}."
        )
    return sizes


def check_sizes(more: Mapping[str, int], specs: list[Spec]) -> None:
    """Sizes that are given by name exist in one of the cells, and are numbers."""
    if not isinstance(more, Mapping):
        raise TypeError(f"sizes must be a dict of whole numbers by size name, got {more!r}.")
    known = sizes_in(shape for spec in specs for shape in spec.shapes.values())
    for name, value in more.items():
        if name not in known:
            raise ValueError(
                f"the cell {', '.join(dict.fromkeys(repr(s.name) for s in specs))} has no size {name!r}; it has"
                f" {', '.join(sorted(known))}."
            )
        check_whole(f"sizes[{name!r}]", value)


def projects(spec: Spec) -> bool:
    """Whether a cell has a projection: a parameter of the size P."""
    return "P" in sizes_in(spec.parameters.values())


def check_projection(proj_size: int, hidden_size: int, specs: list[Spec]) -> None:
    """Whether this projection, if any is asked for, is one of one of these cells."""
    if not proj_size:
        return
    if not any(projects(spec) for spec in specs):
        raise ValueError(f"proj_size: the cell {specs[0].name!r} has no projection (size P); 'lstm_projected' has one.")
    check_whole("proj_size", proj_size)
    if proj_size >= hidden_size:
        raise ValueError(f"proj_size must be smaller than hidden_size ({hidden_size}), got {proj_size}.")


def check_whole(name: str, value: object) -> None:
    """Raises TypeError or ValueError unless the value is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number, got {value!r}.")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}.")


def _tell(sizes: dict[str, int], name: str, value: int, before: str, now: str) -> None:
    if sizes.setdefault(name, value) != value:
        raise ValueError(f"the size {name} is {sizes[name]} by {before.rstrip(',')}, but {value} by {now.rstrip(',')}.")
