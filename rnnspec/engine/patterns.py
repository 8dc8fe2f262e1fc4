"""Which numbers of parameters can reach which numbers of states within some steps: the sparsity
that SnAp keeps (Menick et al. 2020, "A practical sparse approximation for real time recurrent
learning", section 3).

In: a cell's Graph, and sizes. Out: booleans. After one step it is where the step's derivative by
parameters can be other than 0; each further step adds where the Jacobian takes that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.dense import Flat
from rnnspec.engine.frozen import Sizes
from rnnspec.language.spec import Spec
from rnnspec.storage.locks import making

if TYPE_CHECKING:
    from rnnspec.symbolic.structure import Structure


def pattern(spec: Spec, flat: Flat, sizes: Sizes, steps: int) -> Array:
    """Booleans [S, P]: what parameters can do to states within so many steps."""
    with making:
        from rnnspec.lowering.pipeline import graphs, jacobian
        from rnnspec.symbolic.structure import by_parameters

        graph = graphs(spec)[0]
        known, reached = jacobian(spec), by_parameters(graph)
    first = {p: np.zeros((*shape, flat.states), bool) for p, shape in flat.trained.items()}
    start = 0
    for state, shape in flat.shapes.items():
        end = start + int(np.prod(shape, dtype=np.int64))
        for name, found in reached[state].items():
            piece = graph.pieces.get(name)
            if (whole := name if piece is None else piece.parameter) not in first:
                continue
            told = np.moveaxis(_full(found, sizes).reshape(end - start, *sizes.full(found.columns)), 0, -1)
            part = first[whole] if piece is None else piece.of(first[whole], sizes)
            part[..., start:end] |= told
        start = end
    own = flat.of_params({p: np.moveaxis(a, -1, 0) for p, a in first.items()})
    rows = [np.concatenate([_full(known[a][b], sizes) for b in flat.shapes], axis=1) for a in flat.shapes]
    through, kept = np.concatenate(rows, axis=0).astype(np.float32), own
    for _ in range(steps - 1):
        kept = own | (through @ kept.astype(np.float32) > 0)
    return kept


def _full(told: Structure, sizes: Sizes) -> Array:
    """Booleans [after, before], of all numbers of both: where a derivative can be other than 0."""
    rows, columns = sizes.full(told.rows), sizes.full(told.columns)
    found = np.full((*rows, *columns), bool(told.rank))
    if told.axes is not None and not told.rank:
        found[...] = True
        grid = np.indices(found.shape, sparse=True)
        for a, b in told.axes:
            found &= grid[a] == grid[len(rows) + b]
    return found.reshape(int(np.prod(rows, dtype=np.int64)), -1)
