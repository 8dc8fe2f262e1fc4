"""Packing parameters as other libraries do."""

from __future__ import annotations

import numpy as np
import pytest

from rnnspec.errors import RnnspecError, ShapeError
from rnnspec.language.layouts import pack, pack_gradients, unpack
from rnnspec.language.load import load, loads, spec_names

LAYOUTS = [(name, layout) for name in spec_names() for layout in load(name).layouts]
SIZES = [{"D": 2, "H": 3, "P": 4}, {"D": 1, "H": 1, "P": 1}, {"D": 5, "H": 5, "P": 5}, {"D": 3, "H": 2, "P": 1}]


def parameters(spec, sizes, seed=0, dtype="float64"):
    rng = np.random.default_rng(seed)
    return {n: rng.normal(size=[sizes[s] for s in shape]).astype(dtype) for n, shape in spec.parameters.items()}


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
def test_to_and_fro(name, layout, sizes):
    spec = load(name)
    given = parameters(spec, sizes, dtype="float32")
    found = unpack(spec, layout, pack(spec, layout, given))
    assert list(found) == list(spec.parameters)
    for key, array in given.items():
        np.testing.assert_array_equal(found[key], array)
        assert found[key].dtype == np.float32 and not np.shares_memory(found[key], array)


@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
def test_gradients_of_blocks(name, layout):
    """d/d(block) of any function of unpack(blocks): checked along one direction, f = <g,
    unpack(blocks)>."""
    spec, sizes = load(name), SIZES[0]
    blocks = pack(spec, layout, parameters(spec, sizes))
    weights = parameters(spec, sizes, seed=1)
    gradients = pack_gradients(spec, layout, weights)
    rng = np.random.default_rng(2)
    step = {b: rng.normal(size=a.shape) for b, a in blocks.items()}
    ends = [unpack(spec, layout, {b: a + s * step[b] for b, a in blocks.items()}) for s in (0.0, 1.0)]
    change = sum((weights[n] * (ends[1][n] - ends[0][n])).sum() for n in weights)
    np.testing.assert_allclose(change, sum((gradients[b] * step[b]).sum() for b in blocks))


def test_what_stands_where():
    spec = load("lstm")
    given = {
        n: np.full([{"D": 1, "H": 1}[s] for s in shape], k) for k, (n, shape) in enumerate(spec.parameters.items())
    }
    torch, onnx, keras = (pack(spec, f"{library}.LSTM", given) for library in ("torch", "onnx", "keras"))
    assert torch["weight_ih"][:, 0].tolist() == [0, 1, 2, 3] and torch["weight_hh"][:, 0].tolist() == [4, 5, 6, 7]
    assert torch["bias_ih"].tolist() == [8, 9, 10, 11] and torch["bias_hh"].tolist() == [0, 0, 0, 0]
    assert onnx["W"][:, 0].tolist() == [0, 3, 1, 2] and onnx["B"].tolist() == [8, 11, 9, 10, 0, 0, 0, 0]
    assert keras["kernel"].tolist() == [[0, 1, 2, 3]] and keras["kernel"].flags.c_contiguous


def test_two_biases_are_added():
    spec = load("rnn")
    blocks = {
        "weight_ih": np.ones((2, 3)),
        "weight_hh": np.ones((2, 2)),
        "bias_ih": np.array([1.0, 2.0]),
        "bias_hh": np.array([10.0, 20.0]),
    }
    assert unpack(spec, "torch.RNN", blocks)["b"].tolist() == [11.0, 22.0]
    assert blocks["bias_ih"].tolist() == [1.0, 2.0]
    assert all(
        g.tolist() == [5.0, 6.0]
        for g in [
            pack_gradients(spec, "torch.RNN", {"W": np.ones((2, 3)), "U": np.ones((2, 2)), "b": [5.0, 6.0]})[b]
            for b in ("bias_ih", "bias_hh")
        ]
    )


def test_rows_of_one_array_and_parts_without_meaning():
    spec = load("gru")
    packed = pack(spec, "keras.GRU", parameters(spec, SIZES[0]))
    assert (
        packed["bias"].shape == (2, 9)
        and packed["kernel"].shape == (2, 9)
        and set(packed) == {"kernel", "recurrent_kernel", "bias"}
    )
    spec = load("lstm_cifg")
    blocks = pack(spec, "onnx.LSTM", parameters(spec, SIZES[0]))
    assert not blocks["W"][6:9].any()
    blocks["W"][6:9] = np.nan
    assert not any(np.isnan(a).any() for a in unpack(spec, "onnx.LSTM", blocks).values())


def test_the_blocks_are_those_of_torch():
    torch = pytest.importorskip("torch")
    for name, layout, layer in (
        ("lstm", "torch.LSTM", torch.nn.LSTM(2, 3)),
        ("lstm_projected", "torch.LSTM", torch.nn.LSTM(2, 3, proj_size=2)),
        ("gru", "torch.GRU", torch.nn.GRU(2, 3)),
        ("rnn", "torch.RNN", torch.nn.RNN(2, 3)),
    ):
        layer = layer.double()
        blocks = {n.removesuffix("_l0"): p.detach().numpy() for n, p in layer.named_parameters()}
        spec = load(name)
        found = unpack(spec, layout, blocks)
        from tiny import run

        x = np.random.default_rng(0).normal(size=(5, 2))
        with torch.no_grad():
            expected = layer(torch.tensor(x)[:, None])[0][:, 0].numpy()
        np.testing.assert_allclose(run(spec, found, {"x": x})["h"], expected, atol=1e-14)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bias_ih": None, "weight_hh": None}, ["'weight_hh' is missing", "'bias_ih' is missing"]),
        ({"bias_i": np.ones(12)}, ["'bias_i' is unknown", "Did you mean 'bias_ih'?"]),
        (
            {"bias_ih": np.ones(11), "weight_hh": np.ones((12, 4))},
            ["'bias_ih' has the shape (11,)", "'U_i' in 'weight_hh' would have the shape (3, 4), not (3, 3)"],
        ),
        ({"weight_ih": np.ones(())}, ["'weight_ih' has the shape ()"]),
    ],
)
def test_wrong_blocks_are_listed_in_one_error(change, words):
    spec = load("lstm")
    blocks = pack(spec, "torch.LSTM", parameters(spec, SIZES[0])) | change
    with pytest.raises(ShapeError) as caught:
        unpack(spec, "torch.LSTM", {n: a for n, a in blocks.items() if a is not None})
    assert all(word in str(caught.value) for word in words), caught.value


def test_wrong_parameters_are_listed_in_one_error():
    spec = load("lstm")
    given = parameters(spec, SIZES[0]) | {"W_f": np.ones((3, 7)), "U_q": 1}
    del given["b_o"]
    with pytest.raises(ShapeError) as caught:
        pack(spec, "torch.LSTM", given)
    message = str(caught.value)
    assert all(
        word in message
        for word in ("'b_o' is missing", "'U_q' is no parameter", "'W_f' [H, D] has the shape (3, 7), not (3, 2)")
    )
    with pytest.raises(RnnspecError, match=r"no layout 'torch.LTSM'. Did you mean 'torch.LSTM'\?"):
        pack(spec, "torch.LTSM", {})


def test_scalars_and_sums_of_sizes():
    text = """
rnnspec: 1
name: tested
inputs: {x: D}
states: {h: H, c: D + H}
parameters: {W: [H, D], V: "[D + H]", a: [], g: []}
equations: |
  h[t] = a * W @ x[t] + g * h[t-1]
  c[t] = V * c[t-1]
outputs: [h]
layouts: {other: {weights: [W], rest: [V], scales: [a, g]}}
""".replace('"[D + H]"', "[D + H]")
    spec = loads(text)
    given = {"W": np.ones((2, 3)), "V": np.arange(5.0), "a": np.array(2.0), "g": np.array(3.0)}
    blocks = pack(spec, "other", given)
    assert blocks["scales"].tolist() == [2.0, 3.0]
    found = unpack(spec, "other", blocks)
    assert found["a"].shape == () and float(found["g"]) == 3.0 and found["V"].tolist() == given["V"].tolist()
