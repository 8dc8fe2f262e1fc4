"""What a page says of a cell: facts of its spec, and what is measured for the page, as plain data.

Measured are the definition and the derived gradients, in float64 on the reference: kernels are not
compiled here, `rnnspec check` compares those with the reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rnnspec.check.report import Result
from rnnspec.check.run import check_cells
from rnnspec.errors import RnnspecError
from rnnspec.gallery.drift import Peer
from rnnspec.language.sizes import full_shape
from rnnspec.language.spec import Spec
from rnnspec.probe import Probe, initial, probe
from rnnspec.probe.subject import known_sizes
from rnnspec.show.counts import row

PROPERTIES = ("examples", "adjoint, complex step", "adjoint, dot product", "tangent, complex step")
HIDDEN, INPUTS, STEPS, ROWS = 16, 8, 60, 2
LARGEST = 300  # numbers in a state, whose spectrum at each step is in the curve's price: s4d has 64 for each unit


@dataclass(frozen=True)
class Known:
    """row: of the index, as `rnnspec list --stats` has it, with "agree", the libraries that compute
    the same. results: of PROPERTIES, for each setting of the cell's choices. probe: how far
    gradients reach, or why it was not measured. peers: implementations beside which the cell was
    run."""

    spec: Spec
    text: str
    row: Mapping[str, Any]
    results: tuple[tuple[str, Result], ...]
    probe: Probe | None
    unprobed: str
    peers: tuple[Peer, ...] = ()
    pages: frozenset[str] = field(default=frozenset())

    @property
    def passed(self) -> bool:
        return all(result.passed for _, result in self.results)

    @property
    def error(self) -> Result | None:
        """The largest relative error of the derived gradients, measured beside its tolerance."""
        measured = [r for _, r in self.results if r.measured is not None and r.tolerance]
        return max(measured, key=lambda r: (r.measured or 0.0) / (r.tolerance or 1.0), default=None)


def known(spec: Spec, text: str, peers: tuple[Peer, ...], pages: frozenset[str]) -> Known:
    """All that the page of a cell says. text: of its file; peers: what it was compared with; pages:
    the cells of the gallery, which a page may lead to."""
    report = check_cells([spec.file if spec.file != "<text>" else spec], dtypes=(), properties=PROPERTIES)
    results = tuple((cell.name, r) for cell in report.cells for r in cell.results if not r.skipped)
    curve, reason = _probe(spec)
    agree = {_library(name) for name in spec.same_as} | {p.package for p in peers if p.equal}
    told = row(spec, stats=True) | {"agree": sorted(agree)}
    return Known(spec, text, told, results, curve, reason, peers, pages)


def _library(layer: str) -> str:
    """The library of a layer such as torch.nn.GRU."""
    return layer.partition(".")[0]


def _probe(spec: Spec) -> tuple[Probe | None, str]:
    try:
        subject = initial(spec.file, hidden=units(spec), inputs=INPUTS, steps=STEPS, rows=ROWS)
        with np.errstate(all="ignore"):
            return probe(subject), ""
    except (RnnspecError, ValueError) as error:
        return None, str(error)


def units(spec: Spec) -> int:
    """Of the curve: HIDDEN, or fewer, by halves, where the states would be too large."""
    hidden = HIDDEN
    while hidden > 1:
        sizes = known_sizes(spec, hidden, INPUTS, {})
        if sum(math.prod(full_shape(shape, sizes)) for shape in spec.states.values()) <= LARGEST:
            break
        hidden //= 2
    return hidden


def sizes_of(spec: Spec) -> dict[str, int]:
    """The sizes of the curve, and of what a page shows how to use."""
    return known_sizes(spec, HIDDEN, INPUTS, {})
