"""The clips of TensorFlow's LSTMCell, on any cell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from rnnspec.errors import RnnspecError
from rnnspec.language.rewrite import line
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import did_you_mean, listed
from rnnspec.language.syntax.tree import Call, Number, Unary
from rnnspec.language.transforms.change import made, of_spec
from rnnspec.language.transforms.operands import Operands, factors


@of_spec
def clip_cell(spec: Spec, limit: float, state: str | None = None) -> Spec:
    """The cell whose cell state stays within -limit and limit: `c[t] = clip(..., -limit, limit)`;
    what reads c[t] in the step reads the clipped one (`cell_clip` of tf.nn.rnn_cell.LSTMCell).
    state: which, where several could be meant; else the only one that no product with a matrix of
    parameters reads."""
    carried = Operands(spec).carried() if state is None else []
    cells = [s for s in spec.states if s not in carried] if state is None else [state]
    if len(cells) != 1 or cells[0] not in spec.states:
        raise RnnspecError(
            f"clip_cell: say which state of '{spec.name}' is clipped, with state=...: {listed(spec.states)}."
            f"{did_you_mean(state or '', spec.states)}"
        )
    return _clipped(spec, "clip_cell", cells, limit)


@of_spec
def clip_projection(spec: Spec, limit: float) -> Spec:
    """The cell whose projection stays within -limit and limit: a state that is a product with a
    matrix of parameters and nothing more, `h[t] = clip(W_hr @ m[t], -limit, limit)` (`proj_clip` of
    tf.nn.rnn_cell.LSTMCell)."""
    projected = [e.target for e in spec.equations if e.target in spec.states and factors(e.value)]
    if not projected:
        raise RnnspecError(
            f"clip_projection: '{spec.name}' has no projection: no state ({listed(spec.states)}) that is a product with"
            " a matrix of parameters and nothing more, like h[t] = W_hr @ m[t]."
        )
    return _clipped(spec, "clip_projection", projected, limit)


def _clipped(spec: Spec, caller: str, states: Iterable[str], limit: float) -> Spec:
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit <= 1e30:
        raise RnnspecError(f"{caller}: the limit must be a number above 0, up to 1e30, not {limit!r}.")
    bound, states = Number(Fraction(repr(float(limit)))), list(states)
    equations = {
        e.target: line(replace(e, value=Call("clip", (e.value, Unary("-", bound), bound))))
        for e in spec.equations
        if e.target in states
    }
    return made(spec, caller, f"with {listed(states)} clipped at {float(limit):g}", equations)
