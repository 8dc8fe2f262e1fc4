"""Cells and layers as models of ONNX: ONNX Runtime computes what our kernels do, over long
sequences of different lengths; what is ONNX's own operator is proved to be it."""

from __future__ import annotations

import os

import numpy as np
import pytest
from tiny import cell

import rnnspec
from rnnspec.check.sampling import size_values
from rnnspec.check.tolerances import PACK
from rnnspec.commands.cli import main
from rnnspec.engine.initialise import initialise
from rnnspec.errors import UnsupportedError
from rnnspec.language.load import load, loads, spec_names

onnx_package = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
from rnnspec.export import onnx, onnx_check  # noqa: E402
from rnnspec.export.onnx_native import native  # noqa: E402

# proved to be an operator of ONNX; every other cell is a Scan
NATIVE = {
    "rnn": "RNN",
    "irnn": "RNN",
    "gru": "GRU",
    "gru_reset_before": "GRU",
    "lstm": "LSTM",
    "lstm_np": "LSTM",
    "lstm_vanilla": "LSTM",
    "lstm_two_biases": "LSTM",
    "lstm_peephole": "LSTM",
    "lstm_cifg": "LSTM",
    "lstm_cifg_input": "LSTM",
    "lstm_cifg_peephole": "LSTM",
}
# a step's number, matrices as states, numbers of rows, spikes, noise, constants, several inputs
KINDS = (
    *("gru", "lstm_cifg_peephole", "lstm_two_biases", "ln_lstm_haste", "clockwork_rnn", "fast_weights", "zoneout_lstm"),
    *("indrnn", "phased_lstm", "t_lstm", "on_lstm", "mingru", "mlstm_xlstm", "ltc", "antisymmetric_rnn", "skip_rnn"),
)
KINDS = tuple(n for n in KINDS if n in spec_names())
LONG, ROWS = 200, 5


def exported(name: str, dtype: str = "float32", **more):
    spec = load(name)
    sizes = size_values(spec, (5, 9, 3))
    return onnx(spec, initialise(spec, sizes, 1, np.dtype(dtype)), sizes=sizes, dtype=dtype, **more)


def compared(content: bytes, layer: rnnspec.Recurrent, x: np.ndarray, lengths=None, state=None) -> None:
    """A model beside a layer, all outputs."""
    session = onnx_check.session(content, "it", x.dtype.name)
    given = {"x": x} | ({"lengths": np.asarray(lengths)} if lengths is not None else {}) | (state or {})
    found = session.run(None, given)
    before = tuple((state or {}).values())
    y, after = layer.infer(x, (before[0] if len(before) == 1 else before) if before else None, lengths)
    for a, b in zip(found, [y, *(after if isinstance(after, tuple) else (after,))], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=PACK[x.dtype.name][0])


@pytest.mark.parametrize("name", KINDS)
def test_long_sequences_of_different_lengths(name):
    """What is exported was compared at 24 steps already; here at 200, in ragged rows."""
    model = exported(name, lengths=True, states=True)
    spec, rng = load(name), np.random.default_rng(3)
    session, dims = onnx_check.session(model.content, name, "float32"), {"T": LONG, "B": ROWS}
    given = {}
    for n, (dtype, shape) in model.inputs.items():
        full = tuple(dims.get(s, s) for s in shape)
        given[n] = rng.uniform(0.1, 1, full).astype(dtype) if dtype == "float32" else np.zeros(full, np.int64)
    given["lengths"] = np.array([200, 1, 77, 199, 13])
    kernel, sizes = rnnspec.compile(spec), size_values(spec, (5, 9, 3))
    states = {n[8:]: a[0] for n, a in given.items() if n.startswith("initial_")}
    inputs = {n: given[n] for n in spec.inputs if n in given}
    run = kernel.infer(initialise(spec, sizes, 1, np.dtype("float32")), inputs, states, given["lengths"])
    right = [*run.outputs.values(), *(a[None] for a in run.final.values())]
    for output, a, b in zip(model.outputs, session.run(None, given), right, strict=True):
        scale = np.abs(b).max()
        np.testing.assert_allclose(a, b, rtol=0, atol=PACK["float32"][0] * scale, err_msg=output)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", spec_names())
def test_all_cells(name, dtype):
    model = exported(name, dtype, lengths=True, states=True)
    expected = NATIVE.get(name, "Scan") if dtype == "float32" else "Scan"
    assert set(model.operators.values()) == {expected}


def test_what_is_proved_to_be_an_operator():
    assert {n: found.form.op for n in spec_names() if n in NATIVE and (found := native(load(n)))} == NATIVE
    relu = native(load("rnn", phi="relu"))
    assert relu and relu.attributes == {"activations": ["Relu"]}
    assert native(load("rnn", phi="identity")) is None
    assert native(load("gru_other_polarity")) is None


def test_an_operator_needs_no_name_of_ours():
    """A cell with names of its own, which is the LSTM but for a coupled gate and a sum."""
    text = cell(
        "a[t] = sigmoid(A @ v[t] + P @ s[t-1] + p + q)\nb[t] = 1 - a[t]\nm[t] = b[t] * m[t-1] + a[t] * tanh(G @ v[t]"
        " + Q @ s[t-1] + r)\ns[t] = sigmoid(O @ v[t] + R @ s[t-1] + w) * tanh(m[t])",
        inputs="{v: D}",
        parameters="{A: [H, D], P: [H, H], G: [H, D], Q: [H, H], O: [H, D], R: [H, H], p: H, q: H, r: H, w: H}",
        states="{s: H, m: H}",
        outputs="[s]",
    )
    spec = loads(text)
    sizes = {"D": 3, "H": 4}
    model = onnx(spec, initialise(spec, sizes, 0, np.dtype("float32")), sizes=sizes, lengths=True)
    assert model.operators == {"": "LSTM"}


@pytest.mark.parametrize("name", ["lstm", "indrnn"])
@pytest.mark.parametrize(
    "more", [{"bidirectional": True}, {"bidirectional": True, "merge": "mean"}, {"residual": True}]
)
def test_stacks_and_directions(name, more):
    layer = rnnspec.Recurrent(name, 4, 5, num_layers=2, learn_initial=True, seed=2, **more)
    rng = np.random.default_rng(0)
    for weight, array in layer.params.items():
        if weight.startswith("initial"):
            array[:] = rng.uniform(-1, 1, array.shape)
    x = rng.uniform(-1, 1, (17, 3, 4)).astype(np.float32)
    compared(onnx(layer, lengths=True).content, layer, x, [17, 1, 8])
    state = {f"initial_{n}": rng.uniform(-1, 1, (s[0], 3, *s[1:])).astype(np.float32) for n, s in zip(
        layer.stack.description.states, layer.stack.description.states.values())}  # fmt: skip
    compared(onnx(layer, states=True).content, layer, x, state=state)


def test_rows_first_and_backwards():
    layer = rnnspec.Recurrent("indrnn", 4, 5, batch_first=True, go_backwards=True)
    x = np.random.default_rng(0).uniform(-1, 1, (3, 17, 4)).astype(np.float32)
    compared(onnx(layer, lengths=True).content, layer, x, [17, 2, 8])


def test_float64_is_a_scan():
    assert exported("lstm", "float64").operators == {"": "Scan"}


def test_the_step_is_a_function_of_the_cells_name_in_its_names():
    model = onnx_package.load_from_string(exported("ln_lstm_haste").content)
    (function,) = model.functions
    assert (function.domain, function.name) == ("rnnspec", "ln_lstm_haste")
    made = {o for node in function.node for o in node.output}
    assert {e.target for e in load("ln_lstm_haste").equations} <= made
    (scan,) = (n for n in model.graph.node if n.op_type == "Scan")
    body = next(a.g for a in scan.attribute if a.name == "body")
    assert "ln_lstm_haste" in {n.op_type for n in body.node}
    assert [o.version for o in model.opset_import if not o.domain] == [18]


def test_layers_of_one_cell_share_its_function():
    model = onnx(rnnspec.Recurrent("mingru", 4, 5, num_layers=3))
    assert len(onnx_package.load_from_string(model.content).functions) == 1


# --- what is refused


def test_a_wrong_model_is_not_written(tmp_path, monkeypatch, capsys):
    from rnnspec.backends.onnx import expressions

    monkeypatch.setitem(expressions.OPERATORS, "tanh", "Sigmoid")
    argv = ["export", "mingru", "--to", "onnx", "--out", str(tmp_path)]
    monkeypatch.setitem(expressions.OPERATORS, "sigmoid", "Tanh")
    assert main(argv) == 2
    assert "differs by" in capsys.readouterr().err and not os.listdir(tmp_path)


def test_a_kernel_that_the_runtime_lacks_is_named(monkeypatch):
    from rnnspec.export import onnx_graph

    monkeypatch.setattr(onnx_graph, "NATIVE", "float64")
    with pytest.raises(UnsupportedError, match="no kernel of LSTM in float64, which the node 'Y' of lstm"):
        exported("lstm", "float64")


def test_what_does_not_go_together():
    layer = rnnspec.Recurrent("gru", 2, 3)
    with pytest.raises(TypeError, match="with a Spec only"):
        onnx(layer, sizes={"H": 3})
    with pytest.raises(TypeError, match="give params and sizes"):
        onnx(load("gru"))
    with pytest.raises(UnsupportedError, match="return_all_states"):
        onnx(rnnspec.Recurrent("gru", 2, 3, return_all_states=True))


# --- the command


def test_the_command(tmp_path, capsys):
    argv = ["export", "gru", "--to", "onnx", "--inputs", "2", "--hidden", "3", "--layers", "2", "--bidirectional"]
    assert main([*argv, "--lengths", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "reads: x [T, B, 2], lengths [B]" in said and "gives: h [T, B, 6], final_h [4, B, 3]" in said
    assert os.listdir(tmp_path) == ["gru.onnx"]
    assert main(["export", "gru", "--to", "onnx", "--selftest", "--out", str(tmp_path)]) == 2
    assert "leave out --selftest" in capsys.readouterr().err
    assert main(["export", "gru", "--to", "c", "--lengths", "--out", str(tmp_path)]) == 2
    assert "leave out --lengths" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["generate", "classify"])
def test_a_trained_run(task, tmp_path, capsys):
    if task == "generate":
        (tmp_path / "text.txt").write_text("a b c d " * 400, encoding="utf-8")
        data = ["--data", str(tmp_path / "text.txt"), "--sample", "0"]
    else:
        rows = "".join(f"{n % 2 + 1},{'good one' if n % 2 else 'bad'},x\n" for n in range(40))
        (tmp_path / "rows.csv").write_text(rows, encoding="utf-8")
        data = ["--task", "classify", "--data", str(tmp_path / "rows.csv"), "--bidirectional"]
    assert main(["train", "gru", *data, "--steps", "3", "--hidden", "8", "--out", str(tmp_path / "run")]) == 0
    out = ["--to", "onnx", "--lengths", "--name", "net", "--out", str(tmp_path)]
    assert main(["export", str(tmp_path / "run"), *out]) == 0
    session = runtime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    run = rnnspec.train.load_run(tmp_path / "run")
    ids, lengths = np.random.default_rng(0).integers(0, 4, (11, 3)), np.array([11, 1, 5])
    found = session.run(["y"], {"x": ids, "lengths": lengths})[0]
    right, _ = run.model.outputs(ids, None, lengths)
    np.testing.assert_allclose(found, right, rtol=0, atol=PACK["float32"][0])
