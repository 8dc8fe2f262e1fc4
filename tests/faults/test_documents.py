"""The networks and formulas of the source documents, against their derivation in plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from train_parts import GRADIENT_TOLERANCE, numeric

import rnnspec
from rnnspec.train import heads, squared_error

T = 5


class TwoLayers:
    """Two standard RNN layers of 5 units with both biases, 4 inputs, y = f(V^T h + b) with 3
    outputs, T = 5, f = tanh."""

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.first, self.second = (
            rnnspec.Recurrent("rnn", size, 5, dtype="float64", threads=1, seed=seed + size) for size in (4, 5)
        )
        self.head = {n: a.astype(np.float64) for n, a in heads.init_linear(rng, 5, 3).items()}
        self.params = {
            f"{n}{k}": a for n, layer in (("R1.", self.first), ("R2.", self.second)) for k, a in layer.params.items()
        }
        self.params |= {f"head.{n}": a for n, a in self.head.items()}

    def gradients(self, x, target, over):
        """The loss, and its gradients by the names of params: over is "last", "steps" (summed) or
        "average" (1/T of the sum)."""
        h1, _ = self.first(x)
        h2, _ = self.second(h1)
        y = np.tanh(heads.linear(self.head, h2))
        loss, d_y = squared_error(y, target, reduction=over)
        d_h2, d_head = heads.linear_backward(self.head, h2, d_y * (1 - y * y))
        d_h1, _ = self.second.backward(d_h2)
        self.first.backward(d_h1)
        grads = {
            f"{n}{k}": a for n, layer in (("R1.", self.first), ("R2.", self.second)) for k, a in layer.grads.items()
        }
        return loss, grads | {f"head.{n}": a for n, a in d_head.items()}


def plain(params, x, target, over):
    """The same, step by step and written out: backpropagation through time as in sources/001, for
    one row x [T, 4]."""
    p, rows = params, range(T)
    h1, h2, y = np.zeros((T + 1, 5)), np.zeros((T + 1, 5)), np.zeros((T, 3))  # h[t + 1] is after step t
    for t in rows:
        h1[t + 1] = np.tanh(
            p["R1.weight_ih_l0"] @ x[t] + p["R1.bias_ih_l0"] + p["R1.weight_hh_l0"] @ h1[t] + p["R1.bias_hh_l0"]
        )
        h2[t + 1] = np.tanh(
            p["R2.weight_ih_l0"] @ h1[t + 1] + p["R2.bias_ih_l0"] + p["R2.weight_hh_l0"] @ h2[t] + p["R2.bias_hh_l0"]
        )
        y[t] = np.tanh(p["head.weight"] @ h2[t + 1] + p["head.bias"])
    weight = {"last": np.eye(T)[T - 1], "steps": np.ones(T), "average": np.full(T, 1 / T)}[over]
    loss = sum(weight[t] * np.mean((y[t] - target[t]) ** 2) for t in rows)
    g = {name: np.zeros_like(a) for name, a in p.items()}
    d_h1 = d_h2 = np.zeros(5)
    for t in reversed(rows):
        d_o = weight[t] * 2 / 3 * (y[t] - target[t]) * (1 - y[t] ** 2)
        g["head.weight"] += np.outer(d_o, h2[t + 1])
        g["head.bias"] += d_o
        d_a2 = (p["head.weight"].T @ d_o + d_h2) * (1 - h2[t + 1] ** 2)
        d_a1 = (p["R2.weight_ih_l0"].T @ d_a2 + d_h1) * (1 - h1[t + 1] ** 2)
        for name, d_a, below, before in (("R2.", d_a2, h1[t + 1], h2[t]), ("R1.", d_a1, x[t], h1[t])):
            g[f"{name}weight_ih_l0"] += np.outer(d_a, below)
            g[f"{name}weight_hh_l0"] += np.outer(d_a, before)
            g[f"{name}bias_ih_l0"] += d_a
            g[f"{name}bias_hh_l0"] += d_a
        d_h2, d_h1 = p["R2.weight_hh_l0"].T @ d_a2, p["R1.weight_hh_l0"].T @ d_a1
    return loss, g


@pytest.mark.parametrize("over", ["last", "steps", "average"])
def test_the_network_of_sources_000_section_2_1(over):
    """Its gradients are those of the derivation, and it trains, under every cost rule."""
    rng = np.random.default_rng(1)
    x, target = rng.standard_normal((T, 1, 4)), np.tanh(rng.standard_normal((T, 1, 3)))
    network = TwoLayers()
    assert {n: a.shape for n, a in network.params.items() if n.startswith("R1")} == {
        "R1.weight_ih_l0": (5, 4),
        "R1.weight_hh_l0": (5, 5),
        "R1.bias_ih_l0": (5,),
        "R1.bias_hh_l0": (5,),
    }
    loss, grads = network.gradients(x, target, over)
    expected, derived = plain(network.params, x[:, 0], target[:, 0], over)
    assert loss == pytest.approx(expected, rel=1e-12)
    for name, gradient in derived.items():
        np.testing.assert_allclose(grads[name], gradient, atol=1e-12, err_msg=name)
    found = numeric(lambda: network.gradients(x, target, over)[0], network.params["R1.weight_hh_l0"])
    np.testing.assert_allclose(grads["R1.weight_hh_l0"], found, atol=GRADIENT_TOLERANCE)
    for _ in range(200):  # W -= eta dL/dW
        now, grads = network.gradients(x, target, over)
        for name, p in network.params.items():
            p -= 0.3 * grads[name]
    assert now < 0.1 * loss


def test_cost_rules_differ_by_what_they_say():
    rng = np.random.default_rng(2)
    x, target = rng.standard_normal((T, 2, 4)), rng.standard_normal((T, 2, 3))
    network = TwoLayers()
    losses = {over: network.gradients(x, target, over) for over in ("last", "steps", "average")}
    assert losses["steps"][0] == pytest.approx(T * losses["average"][0])
    assert losses["last"][0] != pytest.approx(losses["average"][0])
    np.testing.assert_allclose(
        losses["steps"][1]["R1.weight_hh_l0"], T * losses["average"][1]["R1.weight_hh_l0"], atol=1e-12
    )


def test_the_closed_form_of_sources_001():
    """phi(x) = x, o_t = W_yh h_t, L = 1/T sum l(o_t, y_t): dL/dh_t = sum_{i=t}^T (W_hh^T)^{T-i}
    W_yh^T dL/do_{T+t-i}, and from it dL/dW_hh = sum_t dL/dh_t h_{t-1}^T and dL/dW_hx = sum_t
    dL/dh_t x_t^T."""
    rng = np.random.default_rng(3)
    steps, D, H, C = 6, 3, 4, 2
    layer = rnnspec.Recurrent("rnn", D, H, phi="identity", dtype="float64", threads=1, bias=False)
    w_hx, w_hh, w_yh = layer.params["weight_ih_l0"], layer.params["weight_hh_l0"], rng.standard_normal((C, H))
    x, target = rng.standard_normal((steps, 1, D)), rng.standard_normal((steps, 1, C))
    h, _ = layer(x)
    head = {"weight": w_yh, "bias": np.zeros(C)}
    _, d_o = squared_error(heads.linear(head, h), target, reduction="average")
    d_x, _ = layer.backward(heads.linear_backward(head, h, d_o)[0])
    power = np.linalg.matrix_power
    closed = np.array(
        [
            sum(power(w_hh.T, steps - i) @ w_yh.T @ d_o[steps + t - i - 1, 0] for i in range(t, steps + 1))
            for t in range(1, steps + 1)
        ]
    )
    np.testing.assert_allclose(d_x[:, 0], closed @ w_hx, atol=1e-12)
    before = np.concatenate([np.zeros((1, H)), h[:-1, 0]])
    np.testing.assert_allclose(layer.grads["weight_hh_l0"], closed.T @ before, atol=1e-12)
    np.testing.assert_allclose(layer.grads["weight_ih_l0"], closed.T @ x[:, 0], atol=1e-12)


def test_shapes_of_use():
    """1 to 1, 1 to n, n to 1, n to n, n to m (sources/002): each is a task, or a loss of one."""
    from rnnspec.train import load_task, task_names

    shapes = " ".join(load_task(name).shape for name in task_names())
    assert all(shape in shapes for shape in ("1 to n", "n to 1", "n to n", "n to m"))
    layer = rnnspec.Recurrent("rnn", 4, 5, threads=1)
    y, _ = layer.infer(np.ones((1, 2, 4), np.float32))  # 1 to 1 is a sequence of one step
    assert y.shape == (1, 2, 5)
