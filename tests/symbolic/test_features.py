"""Functions along the feature axis, products of matrices and values computed once: each against
NumPy, at awkward sizes, with its derivative."""

from __future__ import annotations

import numpy as np
import pytest
from tiny import cell

from rnnspec.backends import reference
from rnnspec.check.properties.derivatives import complex_step, dot_product
from rnnspec.check.subject import subject
from rnnspec.errors import SpecError
from rnnspec.language.load import loads
from rnnspec.symbolic.adjoint import adjoint
from rnnspec.symbolic.build import build
from rnnspec.symbolic.graph import Concat, Outer, Product, Transpose
from rnnspec.symbolic.once import split_once

# name -> equation for y, shape of y, NumPy of the same; x [D], h [H] the state before, W [H, D], U
# [H, H], w [D], v [H], s []
CASES = {
    "sum": ("sum(x[t])", "[]", lambda e: e.x.sum()),
    "sum of a matrix": ("sum(W * W)", "[]", lambda e: (e.W**2).sum()),
    "mean": ("mean(x[t])", "[]", lambda e: e.x.mean()),
    "mean of a matrix": ("mean(W)", "[]", lambda e: e.W.mean()),
    "max": ("max(x[t])", "[]", lambda e: e.x.max()),
    "dot": ("dot(x[t], w)", "[]", lambda e: e.x @ e.w),
    "norm": ("norm(x[t])", "[]", lambda e: np.linalg.norm(e.x)),
    "norm of a matrix": ("norm(U - U.T + eye(H))", "[]", lambda e: np.linalg.norm(e.U - e.U.T + np.eye(len(e.U)))),
    "softmax": ("softmax(x[t])", "D", lambda e: np.exp(e.x) / np.exp(e.x).sum()),
    "cumsum": ("cumsum(x[t] * w)", "D", lambda e: np.cumsum(e.x * e.w)),
    "cumax": ("cumax(x[t])", "D", lambda e: np.cumsum(np.exp(e.x) / np.exp(e.x).sum())),
    "layer_norm": ("layer_norm(x[t], 0.01) * w", "D", lambda e: e.w * (e.x - e.x.mean()) / np.sqrt(e.x.var() + 0.01)),
    "concat": ("concat(h[t-1], x[t], s, 2 * v)", "D + 2*H + 1", lambda e: np.concatenate([e.h, e.x, [e.s], 2 * e.v])),
    "part": ("part(concat(x[t], h[t-1]), D, H)", "H", lambda e: e.h),
    "part at a number": ("part(concat(s, x[t], 1, h[t-1]), 1, D + 1)", "D + 1", lambda e: np.concatenate([e.x, [1]])),
    "outer": ("outer(v, x[t]) @ w", "H", lambda e: e.v * (e.x @ e.w)),
    "diag": ("diag(x[t]) @ w + diag(w) @ (diag(x[t]) @ w)", "D", lambda e: e.x * e.w + e.w * e.x * e.w),
    "diag of a matrix": (
        "(diag(v) @ W @ diag(w)) @ x[t] + x[t] @ (diag(w) @ W.T)",
        "H",
        lambda e: (
            2 * np.diag(e.v) @ e.W @ np.diag(e.w) @ e.x
            if False
            else np.diag(e.v) @ e.W @ np.diag(e.w) @ e.x + e.x @ (np.diag(e.w) @ e.W.T)
        ),
    ),
    "sum of a diagonal": (
        "sum(diag(v) * U + diag(x[t] @ W.T))",
        "[]",
        lambda e: np.diag(e.U) @ e.v + (e.W @ e.x).sum(),
    ),
    "ones": ("outer(ones(H), x[t]) @ w + W @ ones(D)", "H", lambda e: e.x @ e.w + e.W.sum(1)),
    "eye": ("(U - s * eye(H)) @ h[t-1]", "H", lambda e: e.U @ e.h - e.s * e.h),
    "transpose": ("W.T @ h[t-1] + h[t-1] @ W", "D", lambda e: 2 * e.W.T @ e.h),
    "product of matrices": ("(U @ W) @ x[t] + U.T @ W @ x[t]", "H", lambda e: e.U @ e.W @ e.x + e.U.T @ e.W @ e.x),
    "matrix that changes": (
        "(outer(h[t-1], x[t]) @ W.T) @ v + (outer(h[t-1], v) @ U).T @ v",
        "H",
        lambda e: np.outer(e.h, e.x) @ e.W.T @ e.v + (np.outer(e.h, e.v) @ e.U).T @ e.v,
    ),
    "elementwise on matrices": (
        "tanh(W) @ x[t] + where(U > 0, U, s) @ h[t-1] / (1 + sum(W / (2 + W * W)) ** 2)",
        "H",
        lambda e: np.tanh(e.W) @ e.x + np.where(e.U > 0, e.U, e.s) @ e.h / (1 + (e.W / (2 + e.W**2)).sum() ** 2),
    ),
    "concat under a matrix": ("concat(v, W @ x[t]) @ concat_m", "D", None),
    "size": ("x[t] / sqrt(D) + H", "D", lambda e: e.x / np.sqrt(len(e.x)) + len(e.h)),
    "of functions": (
        "squash(x[t]) * phi(x[t])",
        "D",
        lambda e: e.x / (1 + np.linalg.norm(e.x)) * np.exp(e.x) / np.exp(e.x).sum(),
    ),
    "stopped": (
        "stop_gradient(softmax(x[t])) * straight_through(max(w), mean(w))",
        "D",
        lambda e: np.exp(e.x) / np.exp(e.x).sum() * e.w.max(),
    ),
}
CASES.pop("concat under a matrix")
USED = "0 * (sum(x[t]) + sum(W) + sum(U) + sum(w) + sum(v) + s)"


class Env:
    def __init__(self, **arrays):
        self.__dict__.update(arrays)


def spec_of(name: str):
    equation = CASES[name][0]
    return loads(
        cell(
            f"y[t] = {equation}\nh[t] = tanh(U @ h[t-1]) + {USED} + 0 * sum(phi(x[t])) + 0 * sum(squash(x[t]))",
            inputs="{x: D}",
            states="{h: H}",
            parameters="{W: [H, D], U: [H, H], w: D, v: H, s: []}",
            outputs="[y, h]",
            choices="{phi: [softmax, cumsum]}",
            functions="\n  squash(a): a / (1 + norm(a))",
        )
    )


@pytest.mark.parametrize("sizes", [{"D": 3, "H": 2}, {"D": 1, "H": 1}, {"D": 7, "H": 5}, {"D": 1, "H": 11}], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_value(name, sizes):
    spec, rng = spec_of(name), np.random.default_rng(3)
    D, H = sizes["D"], sizes["H"]
    params = {
        "W": rng.normal(size=(H, D)),
        "U": rng.normal(size=(H, H)),
        "w": rng.normal(size=D),
        "v": rng.normal(size=H),
        "s": rng.normal(size=()),
    }
    x, h = rng.normal(size=(1, 2, D)), rng.normal(size=(2, H))
    found = reference.forward(build(spec), params, {"x": x}, {"h": h}, sizes=sizes).outputs["y"]
    for row in range(2):
        np.testing.assert_allclose(
            found[0, row], CASES[name][2](Env(x=x[0, row], h=h[row], **params)), rtol=1e-12, atol=1e-14
        )


@pytest.mark.parametrize("name", [n for n in CASES if n != "stopped"])
def test_derivatives(name):
    known = subject(spec_of(name))
    for outcome in (complex_step(known), dot_product(known)):
        assert outcome.measured is not None and outcome.passed, outcome


def test_no_rows_and_no_features():
    for name in CASES:
        if "mean" not in name and name != "layer_norm":
            spec, sizes = spec_of(name), {"D": 0, "H": 0}
            params = {
                "W": np.zeros((0, 0)),
                "U": np.zeros((0, 0)),
                "w": np.zeros(0),
                "v": np.zeros(0),
                "s": np.zeros(()),
            }
            run = reference.forward(build(spec), params, {"x": np.zeros((2, 3, 0))}, sizes=sizes)
            assert run.outputs["y"].shape[:2] == (2, 3)
    spec = spec_of("softmax")
    params = {"W": np.zeros((2, 3)), "U": np.zeros((2, 2)), "w": np.zeros(3), "v": np.zeros(2), "s": np.zeros(())}
    assert reference.forward(build(spec), params, {"x": np.zeros((2, 0, 3))}, sizes={"D": 3, "H": 2}).outputs[
        "y"
    ].shape == (2, 0, 3)


def at_point(equation: str, x: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """y and the gradient of its weighted sum by x, for y made of a vector x."""
    spec = loads(cell(f"y[t] = {equation}\nh[t] = 0 * h[t-1]", inputs="{x: D}", states="{h: []}", outputs="[y, h]"))
    graph = build(spec)
    point, sizes = {"x": np.array([[x]], float)}, {"D": len(x)}
    run = reference.forward(graph, {}, point, sizes=sizes)
    dy = np.arange(1.0, run.outputs["y"].size + 1).reshape(run.outputs["y"].shape)
    return (
        run.outputs["y"][0, 0],
        reference.backward(adjoint(graph), {}, point, run, {"y": dy}, sizes=sizes).inputs["x"][0, 0],
    )


@pytest.mark.parametrize(
    ("equation", "x", "y", "dx"),
    [
        ("norm(x[t])", [0, 0], 0, [0, 0]),
        ("norm(x[t])", [3, 4], 5, [0.6, 0.8]),
        ("max(x[t])", [2, 1, 2], 2, [0.5, 0, 0.5]),
        ("max(x[t])", [-np.inf, 1], 1, [0, 1]),
        ("softmax(x[t])", [1000, 1000], [0.5, 0.5], [-0.25, 0.25]),
        ("softmax(x[t])", [-1000, 0], [0, 1], [0, 0]),
        ("softmax(x[t])", [-np.inf, 0, 0], [0, 0.5, 0.5], [0, -0.25, 0.25]),
        ("softmax(x[t])", [7], [1], [0]),
        ("layer_norm(x[t], 1e-5)", [5, 5, 5], [0, 0, 0], np.array([-1, 0, 1]) / np.sqrt(1e-5)),
        ("layer_norm(x[t], 1e-5)", [1e8 + 1, 1e8 - 1], [1, -1], [0, 0]),
        ("cumsum(x[t])", [1, 2, 3], [1, 3, 6], [6, 5, 3]),
        ("sum(x[t])", [], 0, []),
    ],
)
def test_at_the_edges(equation, x, y, dx):
    found, gradient = at_point(equation, x)
    np.testing.assert_allclose(found, y, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(gradient, dx, rtol=1e-5, atol=1e-5)


def test_nan_is_not_swallowed():
    for equation in ("softmax(x[t])", "norm(x[t])", "layer_norm(x[t], 1e-5)", "max(x[t])", "sum(x[t])", "cumax(x[t])"):
        assert np.isnan(at_point(equation, [1, np.nan])[0]).any(), equation


# --- how products are written ---


def graph_of(equation: str, parameters: str):
    return build(loads(cell(equation, inputs="{x: D}", states="{h: H}", parameters=parameters)))


def test_a_product_with_a_concatenation_is_split_so_that_the_input_part_stands_alone():
    for equation in ("h[t] = tanh(W @ concat(x[t], h[t-1]))", "z[t] = concat(x[t], h[t-1])\nh[t] = tanh(W @ z[t])"):
        graph = graph_of(equation, "{W: [H, D + H]}")
        assert {n: p.to_text() for n, p in graph.pieces.items()} == {"W_x": "W[:, 0:D]", "W_h_prev": "W[:, D:D + H]"}
        assert [(n.matrix, n.vector) for n in graph.nodes.values() if isinstance(n, Product)] == [
            ("W_x", "x"),
            ("W_h_prev", "h_prev"),
        ]
        assert not any(isinstance(n, Concat) for n in graph.nodes.values())
    rows = graph_of("h[t] = tanh(concat(x[t], concat(h[t-1], x[t])) @ W)", "{W: [2 * D + H, H]}")
    assert [p.to_text() for p in rows.pieces.values()] == ["W[0:D]", "W[D:D + H]", "W[D + H:2*D + H]"]


def test_a_piece_of_a_slice():
    graph = graph_of("h[t] = tanh(W[2] @ concat(x[t], h[t-1]) + W[1] @ concat(x[t], h[t-1]))", "{W: [2, H, D + H]}")
    assert sorted(p.to_text() for p in graph.pieces.values()) == [
        "W[1][:, 0:D]",
        "W[1][:, D:D + H]",
        "W[2][:, 0:D]",
        "W[2][:, D:D + H]",
    ]


def test_gradients_of_pieces_and_of_the_whole_are_added():
    spec = loads(
        cell(
            "h[t] = tanh(W @ concat(x[t], h[t-1])) + s[1] * sum(W) + s[2] * s[1]",
            inputs="{x: D}",
            states="{h: H}",
            parameters="{W: [H, D + H], s: [2]}",
        )
    )
    assert complex_step(subject(spec)).passed


def test_doubling_concatenations_are_left_whole():
    lines = [
        "a0[t] = concat(x[t], x[t])",
        *(f"a{k + 1}[t] = concat(a{k}[t], a{k}[t])" for k in range(20)),
        "h[t] = W @ a20[t] + h[t-1]",
    ]
    assert len(graph_of("\n".join(lines), "{W: [H, 2097152 * D]}").nodes) < 60


def test_products_are_taken_from_the_right_and_transposes_are_not_made():
    graph = graph_of(
        "h[t] = tanh(U @ W @ x[t] + (U @ V).T @ h[t-1] + U.T @ h[t-1])", "{U: [H, H], V: [H, H], W: [H, D]}"
    )
    products = [n for n in graph.nodes.values() if isinstance(n, Product)]
    assert all(len(graph.shapes[p.vector]) == 1 for p in products if not isinstance(graph.nodes[p.matrix], Transpose))
    assert sum(p.transposed for p in products) >= 2


def test_what_stands_in_a_line_and_what_is_named_is_computed_once_alike():
    for equations in ("A = R - R.T\nh[t] = A @ h[t-1] + x[t]", "h[t] = (R - R.T) @ h[t-1] + x[t]"):
        spec = loads(cell(equations, inputs="{x: H}", states="{h: H}", parameters="{R: [H, H]}"))
        split = split_once(build(spec))
        assert len(split.once.outputs) == 1 and not any(
            isinstance(n, Transpose | Outer) for n in split.step.nodes.values()
        )
        assert complex_step(subject(spec)).passed


def test_a_part_must_fit_whatever_the_sizes_are():
    with pytest.raises(
        SpecError, match=r"the part of D elements from 0 on may not lie within h\[t-1\], which is \[H\]"
    ):
        graph_of("h[t] = h[t-1] + sum(part(h[t-1], 0, D)) + sum(x[t])", "{}")


@pytest.mark.parametrize("vector", ["(x[t] - x[t])", "(s + 0 * x[t])", "(0 * x[t])", "where(1 < 2, s, x[t])"])
def test_a_vector_made_of_a_number_stays_a_vector(vector):
    spec = loads(
        cell(
            f"h[t] = W @ {vector} + sum({vector}) + max({vector}) + dot({vector}, x[t]) * cumsum(softmax(h[t-1] -"
            " h[t-1])) + 0 * s",
            inputs="{x: D}",
            states="{h: H}",
            parameters="{W: [H, D], s: []}",
        )
    )
    known = subject(spec)
    assert complex_step(known).passed
    params = {"W": np.ones((2, 3)), "s": np.array(2.0)}
    run = reference.forward(
        known.graph, params, {"x": np.ones((1, 1, 3))}, {"h": np.zeros((1, 2))}, sizes={"D": 3, "H": 2}
    )
    each = 2.0 if "s" in vector else 0.0
    np.testing.assert_allclose(run.outputs["h"][0, 0], 3 * each + 3 * each + each + 3 * each * np.array([0.5, 1.0]))


@pytest.mark.parametrize(
    ("equation", "dx"),
    [
        ("stop_gradient(softmax(x[t]))", [0, 0]),
        ("x[t] * stop_gradient(sum(x[t]))", [3 * 1, 3 * 2]),
        ("straight_through(where(x[t] > max(x[t]) - 0.5, 1, 0), cumsum(x[t]))", [3, 2]),
        ("where(sum(x[t]) > 100, norm(x[t]) / 0.0001, dot(x[t], x[t]))", [2, 4]),
        ("where(x[t] > 5, layer_norm(x[t], 0), 2 * x[t])", [2, 4]),
        ("mean(x[t]) * D", [1, 1]),
        ("t + D * x[t]", [2, 4]),
    ],
)
def test_gradients_that_are_stopped_chosen_or_counted(equation, dx):
    np.testing.assert_allclose(at_point(equation, [1.0, 2.0])[1], dx, rtol=1e-12)


def test_a_side_not_taken_takes_no_part_even_where_it_is_infinite():
    _, gradient = at_point("where(x[t] == x[t], x[t], layer_norm(x[t], 0))", [2.0, 2.0])
    np.testing.assert_array_equal(gradient, [1, 2])
    _, gradient = at_point("where(max(x[t]) < 80, sum(exp(x[t])), 0)", [1000.0, 1.0])
    np.testing.assert_array_equal(gradient, [0, 0])


def test_an_input_without_gradient_gets_none_through_features():
    spec = loads(
        cell(
            "y[t] = softmax(concat(x[t], dt[t], m[t]))\nh[t] = 0.5 * h[t-1] + W @ y[t] + t * mean(m[t])",
            inputs="{x: D, dt: [], m: D}",
            states="{h: H}",
            parameters="{W: [H, 2 * D + 1]}",
            no_gradient="[m, dt]",
        )
    )
    known = subject(spec)
    assert set(known.reverse.outputs) == {"x"} and complex_step(known).passed and dot_product(known).passed
