"""What the cells of layers hold their parameters to, kept in the layers' weights: a parameter may
be a part of one of them (rows of weight_hh_l0).

In: Layers and weights by their names. Out: the weights that change, as new arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy import ndarray as Array

from rnnspec.engine.constrain import constrained
from rnnspec.layers.arguments import check_weights
from rnnspec.layers.description import Layers


def constrained_weights(layers: Layers, weights: Mapping[str, Array], initial: bool = False) -> dict[str, Array]:
    """The weights of which a part did not obey, by name, as copies in which all does; {} where all
    obey. weights: of all layers, by name; initial: whether they are initial values, see
    `engine/constrain.py`."""
    found: dict[str, Array] = {}
    for depth, direction in layers.places:
        layer, end = layers.layers[depth], layers.suffix(depth, direction)
        if not layer.spec.constraints or (layers.share_directions and direction):
            continue
        own = {name: weights[f"{name}{end}"] for name in layer.shapes}
        for name, value in constrained(layer.spec, layer.parameters(own), initial).items():
            for slot in layer.slots[name]:
                whole = found.setdefault(f"{slot.array}{end}", own[slot.array].copy())
                rows = whole[slot.first : slot.last] if whole.ndim else whole
                rows[...] = value.reshape(rows.shape)
    return found


def constrained_names(layers: Layers) -> tuple[str, ...]:
    """The weights of which at least a part is held to something."""
    return tuple(
        dict.fromkeys(
            f"{slot.array}{layers.suffix(depth, direction)}"
            for depth, direction in layers.places
            if not (layers.share_directions and direction)
            for name in layers.layers[depth].spec.constraints
            for slot in layers.layers[depth].slots[name]
        )
    )


class ConstrainedStack:
    """What makes weights of a Stack obey."""

    description: Layers

    def constrain(self, params: Mapping[str, Array], *, initial: bool = False) -> dict[str, Array]:
        """The weights with those that did not obey what the cells hold them to exchanged for copies
        that do; arguments as of `Recurrent.constrain`. params: of all, name -> array; nothing is
        written to."""
        given = check_weights(self.description, params, "params")
        return {**params, **constrained_weights(self.description, given, initial)}


class ConstrainedWeights:
    """What makes the weights of a Recurrent obey."""

    stack: Any  # a rnnspec.layers.stack.Stack

    @property
    def weights(self) -> dict[str, Array]:
        """All weights by name."""
        raise NotImplementedError

    def constrain(self, *, initial: bool = False) -> None:
        """Makes the weights obey what the cells hold them to (`constrain` of a spec), in place: to
        be called after an update by an optimiser that does not do it, and after weights were set.

        initial: make them initial values (signs by folding, excitation and inhibition balanced, the
        spectral radius as it is asked for), as after a mask or signs were set; else each becomes
        the nearest value that obeys, and what obeys stays as it is.
        """
        weights = self.weights
        for name, value in constrained_weights(self.stack.description, weights, initial).items():
            weights[name][...] = value
