"""Fixed parameters in kernels and layers: given, saved and loaded, without a gradient."""

from __future__ import annotations

import numpy as np
import pytest
from tiny import cell

import rnnspec
from rnnspec.errors import ShapeError
from rnnspec.language.load import loads
from rnnspec.lowering.pipeline import graphs

TEXT = cell(
    "A = U * M\nh[t] = tanh(W @ x[t] + A @ h[t-1] + m)",
    inputs="{x: D}",
    states="{h: H}",
    parameters="{W: [H, D], U: [H, H], M: [H, H], m: [H]}",
    fixed="[M, m]",
)
X = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("backend", ["cpu"])
def test_a_kernel_takes_it_and_gives_no_gradient_of_it(dtype, backend):
    held, free = loads(TEXT), loads(TEXT.replace("fixed: [M, m]\n", ""))
    found = []
    for spec in (held, free):
        kernel = rnnspec.compile(spec, dtype=dtype, backend=backend, threads=1)
        params = kernel.init(D=3, H=5, seed=2)
        run = kernel.forward(params, {"x": X.astype(dtype)})
        found.append((params, kernel.backward(run, {"h": np.ones_like(run.outputs["h"])})))
    (given, some), (others, whole) = found
    assert list(given) == ["W", "U", "M", "m"] and list(some.params) == ["W", "U"]
    assert all((given[n] == others[n]).all() for n in given)
    for name, array in some.params.items():
        np.testing.assert_array_equal(array, whole.params[name])
    np.testing.assert_array_equal(some.inputs["x"], whole.inputs["x"])
    assert set(graphs(held)[1].sums) == {"W", "U"}  # the text of either backend is written from this


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
def test_a_layer_holds_it_beside_its_weights(options, tmp_path):
    layer = rnnspec.Recurrent(loads(TEXT), 3, 4, **options, seed=1)
    ends = [n.removeprefix("W") for n in layer.params if n.startswith("W_")]
    assert set(layer.fixed) == {f"{n}{e}" for n in ("M", "m") for e in ends}
    assert set(layer.params) == {f"{n}{e}" for n in ("W", "U") for e in ends} and set(layer.state_dict()) == set(
        layer.params
    ) | set(layer.fixed)
    for array in layer.fixed.values():
        array[...] = 0.5
    y, _ = layer(X)
    layer.backward(np.ones_like(y))
    assert set(layer.grads) == set(layer.params)
    layer.save(tmp_path / "w.npz")
    other = rnnspec.Recurrent(loads(TEXT), 3, 4, **options, seed=7)
    other.load(tmp_path / "w.npz")
    np.testing.assert_array_equal(other.infer(X)[0], layer.infer(X)[0])
    other.fixed = {n: np.zeros_like(a) for n, a in other.fixed.items()}
    assert (other.infer(X)[0] != y).any()
    with pytest.raises(ShapeError, match="missing 'M_l0'"):
        other.load_state_dict(layer.params)


def test_directions_that_share_weights_share_it():
    layer = rnnspec.Recurrent(loads(TEXT), 3, 4, bidirectional=True, share_directions=True)
    assert set(layer.fixed) == {"M_l0", "m_l0"} == layer.stack.fixed
    y, _ = layer(X)
    layer.backward(np.ones_like(y))
    assert set(layer.grads) == {"W_l0", "U_l0"}


def test_a_block_of_a_layout_that_is_fixed_stays_whole():
    text = TEXT + "layouts: {torch.X: {weight: [W, 0], rest: [U], held: [M], off: [m]}}\n"
    layer = rnnspec.Recurrent(loads(text), 3, 4, bias=False)
    assert set(layer.fixed) == {"held_l0", "off_l0"} and set(layer.params) == {"weight_l0", "rest_l0"}
    y, _ = layer(X)
    layer.backward(np.ones_like(y))
    assert set(layer.grads) == set(layer.params)
    from rnnspec.language.layouts import pack, pack_gradients, unpack

    params = {n: np.asarray(a) for n, a in layer.kernel.init(D=3, H=4).items()}
    blocks = pack(layer.spec, "torch.X", params)
    assert all((unpack(layer.spec, "torch.X", blocks)[n] == a).all() for n, a in params.items())
    assert set(pack_gradients(layer.spec, "torch.X", {n: params[n] for n in layer.spec.trained})) == {"weight", "rest"}
