"""The sizes of a cell in a run that names only its units: which input carries the data, how wide it
is, and what nothing else tells."""

from __future__ import annotations

from collections.abc import Mapping

from rnnspec.language.sizes import evaluate_size, size_names, sizes_in, unit_size, with_default_sizes
from rnnspec.language.spec import Spec
from rnnspec.train.errors import TrainError


def data_input(spec: Spec) -> str:
    """The input that carries the data: the only one without a default. TrainError where there is
    none, or several."""
    if not spec.streams:
        raise TrainError(f"{spec.name} has no input, so it can't be trained on data: it reads none")
    found = [name for name in spec.streams if name not in spec.defaults]
    if len(found) != 1:
        reads = (
            f"reads {' and '.join(found)} and has a default for neither"
            if found
            else "reads nothing that has no default"
        )
        raise TrainError(
            f"{spec.name} {reads}; only cells with one input stream can be trained on data. Give the others a default"
            " in the file, like defaults: {mask: 1}: a number, or t for the step's number"
        )
    if len(spec.inputs[found[0]]) != 1:
        raise TrainError(
            f"{spec.name} reads one number a step as {found[0]}; to be trained it reads a vector, like inputs:"
            f" {{{found[0]}: D}}"
        )
    return found[0]


def fitted(
    spec: Spec, hidden: int, width: int, sizes: Mapping[str, int], *, chosen: bool = False
) -> tuple[int, dict[str, int]]:
    """The width of the data and the sizes to give a layer beside `hidden`.

    spec: of the cell; hidden: its units. width: of the data, where the cell leaves it free; a cell
    that reads as many features as it has units (x: H), or a fixed number of them, gets those,
    unless the width was `chosen` by name (the layer then says that it does not fit). sizes: those
    given by name; what neither they, the width nor `hidden` tell, such as the rank of a factor, is
    as large as `hidden`.
    """
    (axis,) = spec.inputs[data_input(spec)]
    units = unit_size(spec)
    known = with_default_sizes(spec.sizes, dict(sizes) | ({units: hidden} if units else {}))
    if not chosen and size_names(axis) <= set(known):
        width = evaluate_size(axis, known)
    known = with_default_sizes(spec.sizes, known | ({axis: width} if axis.isidentifier() else {}))
    return width, dict(sizes) | dict.fromkeys(sorted(sizes_in(spec.shapes.values()) - set(known)), hidden)
