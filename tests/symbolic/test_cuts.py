"""The adjoint of what is cut from one vector: pieces side by side are joined, without zeros between
them."""

import numpy as np
import pytest

import rnnspec
from rnnspec.lowering.pipeline import graphs
from rnnspec.symbolic.adjoint import Cut, in_rows
from rnnspec.symbolic.graph import Concat

CELL = """rnnspec: 1
name: cuts
title: Pieces of one vector, {what}
states: {{h: H}}
inputs: {{x: D}}
parameters: {{W: [3*H, D], U: [3*H, H]}}
equations: |
  a[t] = W @ x[t] + U @ h[t-1]
  h[t] = {value}
outputs: [h]
"""
VALUES = {
    "all of them": "tanh(part(a[t], 0, H)) * sigmoid(part(a[t], H, H)) + part(a[t], 2*H, H)",
    "with a hole": "tanh(part(a[t], 0, H)) * sigmoid(part(a[t], 2*H, H))",
    "one twice": "tanh(part(a[t], H, H)) * part(a[t], H, H) + part(a[t], 2*H, H)",
    "the last": "tanh(part(a[t], 2*H, H))",
}


def joins(spec):
    graph = graphs(spec)[1]
    return [node for node in graph.nodes.values() if isinstance(node, Concat)]


@pytest.mark.parametrize(("what", "pieces"), [("all of them", [3]), ("with a hole", [2, 2]), ("the last", [2])])
def test_cuts_side_by_side_are_joined_once(what, pieces):
    spec = rnnspec.loads(CELL.format(what=what, value=VALUES[what]))
    assert sorted(len(node.args) for node in joins(spec)) == pieces


@pytest.mark.parametrize("what", VALUES)
def test_the_gradient_is_that_of_finite_differences(what):
    spec = rnnspec.loads(CELL.format(what=what, value=VALUES[what]))
    kernel = rnnspec.compile(spec, dtype="float64")
    rng = np.random.default_rng(0)
    params, x = kernel.init(seed=0, D=2, H=3), {"x": rng.standard_normal((4, 2, 2))}
    dy = {"h": rng.standard_normal((4, 2, 3))}
    found = kernel.backward(kernel.forward(params, x), dy).params["U"]

    def loss(U):
        return float((kernel.infer(params | {"U": U}, x).outputs["h"] * dy["h"]).sum())

    for at in np.ndindex(found.shape):
        step = np.zeros_like(params["U"])
        step[at] = 1e-6
        assert found[at] == pytest.approx((loss(params["U"] + step) - loss(params["U"] - step)) / 2e-6, abs=1e-7)


def test_rows_of_cuts():
    a, b, c, d = Cut("0", "H", "a"), Cut("H", "H", "b"), Cut("2*H", "K", "c"), Cut("0", "2*H", "d")
    assert in_rows([c, a, b]) == [[a, b, c]]
    assert in_rows([a, a]) == [[a], [a]]
    assert in_rows([b, c]) == [[b, c]]
    assert in_rows([d, b, c]) in ([[d, c], [b]], [[b, c], [d]])
    assert in_rows([Cut("0", "0", "e"), a]) == [[Cut("0", "0", "e"), a]]
