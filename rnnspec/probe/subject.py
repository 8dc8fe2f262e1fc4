"""What is probed: a cell, its weights and an input sequence, all in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.brief import brief_repr
from rnnspec.engine.arrays import with_defaults
from rnnspec.engine.initialise import initialise
from rnnspec.engine.noise import mean
from rnnspec.language.load import load
from rnnspec.language.sizes import full_shape, sizes_in, unit_size, with_default_sizes
from rnnspec.language.spec import Spec
from rnnspec.language.transforms.retain import keeping


@dataclass(frozen=True)
class ProbeSubject:
    """A cell to be probed. name: what the figures call it. params: by the cell's own names. inputs:
    name -> [T, B, ...]; lead: (T, B)."""

    name: str
    spec: Spec
    sizes: Mapping[str, int]
    params: Mapping[str, Array]
    inputs: Mapping[str, Array]
    lead: tuple[int, int]

    __repr__ = brief_repr


def initial(
    cell: str,
    *,
    hidden: int = 32,
    inputs: int = 16,
    steps: int = 100,
    rows: int = 4,
    seed: int = 0,
    retain: int = 0,
    sizes: Mapping[str, int] | None = None,
    choices: Mapping[str, Any] | None = None,
) -> ProbeSubject:
    """A cell at its initial weights, on inputs from a normal distribution (those with a default in
    the file have that).

    cell: a name or a path. hidden: its units. inputs: features of a step. steps, rows: of the
    inputs. seed: of weights and inputs. retain: steps that gates keep a state for at the start (0:
    as the cell says). sizes: those that neither `hidden` nor `inputs` tell; what is left out is its
    default, else `hidden`. choices: the cell's choices and constants.
    """
    spec = load(cell, **(choices or {}))
    spec = keeping(spec, retain) if retain else spec
    known = known_sizes(spec, hidden, inputs, sizes or {})
    params = initialise(spec, known, seed, np.dtype(np.float64))
    rng = np.random.default_rng([seed, 7])
    drawn = {
        name: rng.standard_normal((steps, rows, *full_shape(shape, known)))
        for name, shape in spec.streams.items()
        if name not in spec.defaults
    }
    return complete(Path(cell).stem, spec, known, params, drawn, (steps, rows))


def complete(
    name: str,
    spec: Spec,
    sizes: Mapping[str, int],
    params: Mapping[str, Array],
    given: Mapping[str, Array],
    lead: tuple[int, int],
) -> ProbeSubject:
    """The subject of given inputs: those with a default have it, and noise is at its mean, as in an
    evaluation.

    name: what the figures call it. spec: of the cell. sizes: every size. params: by the cell's own
    names. given: the inputs that have no default, [T, B, ...]. lead: (T, B).
    """
    expected = mean(spec, sizes, *lead, np.float64)
    inputs = dict(given) | {n: a for n, a in expected.items() if n in spec.inputs}
    whole = with_defaults(spec, inputs, lead, sizes, np.dtype(np.float64))
    return ProbeSubject(
        name, spec, sizes, dict(params) | {n: a for n, a in expected.items() if n in spec.parameters}, whole, lead
    )


def known_sizes(spec: Spec, hidden: int, inputs: int, given: Mapping[str, int]) -> dict[str, int]:
    """Every size: as given, units and inputs as they say, else the default, else as large as the
    units."""
    units, first = unit_size(spec), next((shape[0] for shape in spec.inputs.values() if shape), "")
    known = dict(given) | ({units: hidden} if units and units not in given else {})
    if first.isidentifier():
        known.setdefault(first, inputs)
    known = with_default_sizes(spec.sizes, known)
    return known | dict.fromkeys(sorted(sizes_in(spec.shapes.values()) - set(known)), hidden)
