"""The weights of layers as their cells read them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.groups import Groups, refuse_groups
from rnnspec.errors import UnsupportedError
from rnnspec.layers.description import Layers
from rnnspec.layers.runs import StackWeights, checked_weights


def views(layers: Layers, arrays: Mapping[str, Array], compared: bool = False) -> StackWeights:
    """The parameters of each cell and the initial states, by place: views of the arrays where that
    can be. compared: see StackWeights."""
    cells: list[Mapping[str, Array]] = []
    initial: list[Mapping[str, Array]] = []
    for depth, d in layers.places:
        layer, end = layers.layers[depth], layers.suffix(depth, d)
        if layers.share_directions and d:
            cells.append(cells[-1])
        else:
            cells.append(layer.parameters({n: arrays[f"{n}{end}"] for n in layer.shapes}))
        initial.append({n: arrays[f"initial_{n}{end}"] for n in layer.states} if layers.learn_initial else {})
    return checked_weights(tuple(cells), tuple(initial), layers, compared=compared)


def views_by_row(layers: Layers, arrays: Mapping[str, Array], groups: Groups) -> StackWeights:
    """Weights by row: the parameters of each cell with an axis of groups before their own."""
    if layers.learn_initial or not all(layer.kernel.takes_groups for layer in layers.layers):
        what = "a layer with learned initial states" if layers.learn_initial else "these layers' kernels"
        refuse_groups(groups, what, "call the layers with the weights and rows of each group")
    each = [views(layers, groups.of(arrays, g)).cells for g in range(groups.count)]
    cells = tuple({n: np.stack([cell[n] for cell in same]) for n in same[0]} for same in zip(*each))
    return checked_weights(cells, ({},) * len(cells), layers, groups.count)


def refuse_several(weights: StackWeights, what: str) -> None:
    """Raises UnsupportedError for weights by row. what: has none."""
    if weights.groups:
        raise UnsupportedError(
            f"{what} takes no weights by row (they have an axis of {weights.groups} before their own): call the layers"
            " with the weights and rows of each group."
        )
