"""Matrices that are only summed have no memory in programs whose backend has loops for pairs."""

from __future__ import annotations

import pytest
from tiny import cell

from rnnspec.language.load import load, loads
from rnnspec.lowering.pairs import pairs_of
from rnnspec.lowering.pipeline import programs, stages
from rnnspec.symbolic.graph import Outer

MATRIX = {"states": "{h: H, M: [H, H]}", "parameters": "{c: [H, H], U: [H, H]}"}
VECTORS = {"inputs": "{x: H}", "states": "{h: H}"}


def made(equations, **sections):
    return stages(loads(cell(equations, **VECTORS | sections)), fused=True)


def names(equations, **sections):
    return set(pairs_of(made(equations, **sections).graph))


def test_what_is_only_summed_is_a_pair():
    found = names("A[t] = tanh(outer(x[t], h[t-1]))\nh[t] = A[t] @ x[t] + ones(H) @ A[t]")
    assert "A" in found and len(found) == 2


@pytest.mark.parametrize(
    "equations",
    [
        "M[t] = tanh(outer(x[t], h[t-1]))\nh[t] = M[t] @ x[t] + M[t-1] @ x[t]",  # a state
        "A[t] = tanh(outer(x[t], h[t-1]))\nh[t] = x[t] * sum(A[t])",
        "A[t] = tanh(outer(x[t], h[t-1]))\nh[t] = A[t].T @ x[t] + tanh(A[t] @ A[t].T) @ x[t]",
    ],
)
def test_what_else_is_done_with_a_matrix_keeps_it_in_memory(equations):
    sections = {"states": "{h: H, M: [H, H]}"} if "M[t]" in equations else {}
    assert not names(equations, **sections) & {"A", "M"}


def test_a_gradient_that_is_an_outer_product_stays_one():
    """What the runtime's `outer` sums over all rows at once is no matrix of a row."""
    program = made("h[t] = tanh(U @ h[t-1] + x[t])", parameters="{U: [H, H]}").backward
    assert program.outers and not any(stage.pairs for stage in program.stages())


def test_what_is_added_up_where_it_is_computed_is_no_pair():
    program = made("h[t] = tanh((c * M[t-1]) @ x[t])\nM[t] = c * M[t-1] + U", **MATRIX).backward
    assert not any(stage.pairs and stage.sums for stage in program.stages())


def test_ltc_has_no_matrix_in_memory():
    fused, whole = (stages(load("ltc", L=1), fused=f) for f in (True, False))
    for mode in ("forward", "backward", "infer"):
        sizes = [{b.size for b in getattr(s, mode).buffers.values()} for s in (fused, whole)]
        assert sizes[0] == {"H", "D", "1"} and "H*H" in sizes[1], mode
        assert "pairs H x H" in getattr(fused, mode).to_text() and "pairs" not in getattr(whole, mode).to_text()
    assert not any(isinstance(fused.graph.nodes[n], Outer) for n in fused.forward.places)


def test_programs_with_columns_have_all_matrices_in_memory():
    spec = loads(cell("h[t] = tanh(outer(x[t], h[t-1])) @ x[t]", **VECTORS))
    for mode in ("jvp", "vjp"):
        assert not any(stage.pairs for stage in programs(spec, (mode,), fused=True)[mode].stages()), mode
