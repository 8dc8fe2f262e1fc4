"""The numbers that the text of a step reads: parameters, pieces of them, and what is computed once
per sequence; packed as its loops go through them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends import reference
from rnnspec.backends.c.step import Step
from rnnspec.backends.c.text import PackedPanel
from rnnspec.language.spec import Spec
from rnnspec.lowering.pipeline import once
from rnnspec.symbolic.graph import Graph


def sources(spec: Spec, graph: Graph, params: Mapping[str, Array], sizes: Mapping[str, int]) -> Mapping[str, Array]:
    """Everything that the step reads as a parameter, in float64."""
    found = {name: np.asarray(array, np.float64) for name, array in params.items()}
    found |= {name: piece.of(found[piece.parameter], sizes) for name, piece in graph.pieces.items()}
    made, _ = once(spec)
    if made.outputs:
        found |= reference.once(made, params, sizes)
    return found


def arrays(step: Step, sources: Mapping[str, Array]) -> dict[str, Array]:
    """identifier -> the numbers of each array of the weights, in the step's type."""
    found = {panel.name: packed(panel, sources) for panel in step.panels}
    found |= {identifier: sources[name].ravel() for name, (identifier, _) in step.vectors.items()}
    return {name: np.ascontiguousarray(array, step.real.name) for name, array in found.items()}


def packed(panel: PackedPanel, sources: Mapping[str, Array]) -> Array:
    """The numbers of a panel in the order in which its loop reads them."""
    units = panel.blocks * panel.units
    rows = []  # [accumulations, units], one for the starts and one for every element of the operands
    starts = [biases for biases, _ in panel.accumulations]
    if panel.starts:
        total = np.zeros((len(starts), units))
        for n, biases in enumerate(starts):
            for name in biases or ():
                total[n, : panel.size] += sources[name]
        rows.append(total[None])
    for term, inner in enumerate(panel.inner):
        weights = np.zeros((inner, len(starts), units))
        for n, (_, terms) in enumerate(panel.accumulations):
            matrix, transposed = terms[term]
            weights[:, n, : panel.size] = sources[matrix] if transposed else sources[matrix].T
        rows.append(weights)
    whole = np.concatenate(rows) if rows else np.zeros((0, len(starts), units))
    # [elements, accumulations, blocks, units] -> block after block
    return whole.reshape(len(whole), len(starts), panel.blocks, panel.units).transpose(2, 0, 1, 3).ravel()
