"""Model files of ONNX through our kernels: those of torch's and Keras' exporters, ONNX's own node
tests for what stands around the recurrent nodes, and files that are not what they should be."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from rnnspec import ShapeError, UnsupportedError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from rnnspec.interop.onnx import NodeError, load  # noqa: E402
from rnnspec.interop.onnx_cells import OPERATORS  # noqa: E402
from rnnspec.interop.onnx_model import ModelError  # noqa: E402
from rnnspec.interop.onnx_ops import SIMPLE  # noqa: E402
from rnnspec.storage.guarded import Refused  # noqa: E402

SIX_DIGITS = 1e-6


# --- what exporters write


def by_torch(module: Any, x: Any, **more: Any) -> bytes:
    torch = pytest.importorskip("torch")
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), (x,), file, dynamo=False, input_names=["x"], **more)
    return file.getvalue()


@pytest.mark.parametrize("axes", [None, {"x": {0: "B", 1: "T"}}])
def test_two_layers_of_two_directions_with_a_linear_map(axes, tmp_path):
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = torch.nn.LSTM(5, 7, 2, bidirectional=True, batch_first=True)
            self.out = torch.nn.Linear(14, 3)

        def forward(self, x):
            return self.out(self.lstm(x)[0])

    net, x = Net(), torch.randn(3, 11, 5)
    (tmp_path / "m.onnx").write_bytes(by_torch(net, x, output_names=["y"], dynamic_axes=axes))
    model = load(tmp_path / "m.onnx")
    assert list(model.recurrent.values()) == ["LSTM", "LSTM"]
    for given in (x, torch.randn(2, 4, 5)) if axes else (x,):
        right = net(given).detach().numpy()
        np.testing.assert_allclose(model({"x": given.numpy()})["y"], right, rtol=0, atol=SIX_DIGITS)


@pytest.mark.parametrize("kind", ["GRU", "RNN"])
def test_other_layers_of_torch(kind):
    torch = pytest.importorskip("torch")
    layer, x = getattr(torch.nn, kind)(5, 7, 2), torch.randn(6, 3, 5)
    found = load(by_torch(layer, x, output_names=["y", "h"]))(x.numpy())
    for name, right in zip(("y", "h"), layer(x)):
        np.testing.assert_allclose(found[name], right.detach().numpy(), rtol=0, atol=SIX_DIGITS)


KERAS = """
import os, sys
import numpy as np, keras
from rnnspec.interop.onnx import load
cells = keras.layers
for layer in (cells.LSTM(6, return_sequences=True), cells.GRU(6), cells.Bidirectional(cells.LSTM(4))):
    net = keras.Sequential([keras.Input((5, 3)), layer, cells.Dense(2, activation="relu")])
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("float32")
    right = net.predict(x, verbose=0)
    net.export(sys.argv[1], format="onnx", verbose=False)
    (found,) = load(sys.argv[1])(x).values()
    assert np.abs(found - right).max() < 1e-6
print("the same")
"""


def test_models_that_keras_exports(tmp_path):
    """By its torch backend, whose exporter writes all steps one after the other."""
    if missing := [n for n in ("keras", "torch", "onnxscript") if find_spec(n) is None]:
        pytest.skip(f"{', '.join(missing)} not installed")
    environment = os.environ | {"KERAS_BACKEND": "torch", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = [sys.executable, "-c", KERAS, str(tmp_path / "m.onnx")]
    done = subprocess.run(run, env=environment, capture_output=True, text=True)
    assert "the same" in done.stdout, done.stderr[-2000:]


def test_a_model_as_tf2onnx_writes_keras():
    """A Keras LSTM of [B, T, D] with a Dense of its last step, put together by hand in the shape in
    which tf2onnx writes one: steps first, initial states made from the number of rows."""
    rng = np.random.default_rng(0)
    kernel, recurrent, bias = rng.normal(size=(3, 16)), rng.normal(size=(4, 16)), rng.normal(size=16)
    dense, shift = rng.normal(size=(4, 2)), rng.normal(size=2)
    order = np.concatenate([np.arange(4) + 4 * g for g in (0, 3, 1, 2)])  # i, f, g, o to i, o, f, g
    weights = {
        "W": kernel.T[order][None],
        "R": recurrent.T[order][None],
        "B": np.concatenate([bias[order], np.zeros(16)])[None],
        "dense": dense,
        "shift": shift,
    }
    initializers = [numpy_helper.from_array(a.astype("f"), n) for n, a in weights.items()]
    ints = {"zero": [0], "one": [1], "units": [4], "axis": [0], "last": [-1], "end": [2**31 - 1]}
    initializers += [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in ints.items()]
    node = helper.make_node
    nodes = [
        node("Transpose", ["x"], ["steps_first"], perm=[1, 0, 2]),
        node("Shape", ["x"], ["shape"]),
        node("Slice", ["shape", "zero", "one", "axis"], ["rows"]),
        node("Concat", ["one", "rows", "units"], ["state_shape"], axis=0),
        node("Expand", ["nothing", "state_shape"], ["start"]),
        node("LSTM", ["steps_first", "W", "R", "B", "", "start", "start"], ["Y", "Y_h", "Y_c"], hidden_size=4),
        node("Squeeze", ["Y", "one"], ["hidden"]),
        node("Slice", ["hidden", "last", "end", "axis"], ["last_step"]),
        node("Squeeze", ["last_step", "axis"], ["h"]),
        node("MatMul", ["h", "dense"], ["product"]),
        node("Add", ["product", "shift"], ["y"]),
    ]
    initializers.append(numpy_helper.from_array(np.zeros((1, 1, 1), "f"), "nothing"))
    model = load(model_of(nodes, initializers, {"x": ["B", "T", 3]}))
    x = rng.normal(size=(2, 6, 3))
    np.testing.assert_allclose(
        model(x.astype("f"))["y"], plain_lstm(x, kernel, recurrent, bias) @ dense + shift, rtol=0, atol=1e-5
    )


def plain_lstm(x, kernel, recurrent, bias):
    """The last h of Keras' LSTM, gates i, f, g, o."""
    h = c = np.zeros((len(x), 4))
    for t in range(x.shape[1]):
        i, f, g, o = np.split(x[:, t] @ kernel + h @ recurrent + bias, 4, axis=1)
        sigmoid = [1 / (1 + np.exp(-v)) for v in (i, f, o)]
        c = sigmoid[1] * c + sigmoid[0] * np.tanh(g)
        h = sigmoid[2] * np.tanh(c)
    return h


# --- ONNX's own tests


def test_the_node_tests_of_onnx():
    """All official tests of the operators that are read, the functions made of them included; but
    those of training, of optional inputs, and of casts between kinds of numbers that no model here
    has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        cases = load_model_tests(kind="node")
    tried = set()
    for case in cases:
        kinds = {n.op_type for n in case.model.graph.node}
        if not kinds <= {*SIMPLE, *OPERATORS} or any(w in case.name for w in ("training_dropout", "default_mask")):
            continue
        if not all(isinstance(a, np.ndarray) for given, _ in case.data_sets for a in given):
            continue
        try:
            model = load(case.model)
        except UnsupportedError as error:
            assert any(w in str(error) for w in ("of opset", "is no array", "is not read")), case.name
            continue
        for inputs, outputs in case.data_sets:
            found = model(dict(zip(model.inputs, map(np.asarray, inputs))))
            for array, right in zip(found.values(), outputs):
                assert array.dtype == right.dtype and array.shape == right.shape, case.name
                np.testing.assert_allclose(array, right, rtol=1e-4, atol=1e-5, err_msg=case.name)
        tried |= kinds
    assert {*SIMPLE, *OPERATORS} - tried <= {"Not"}  # whose tests are of opset 1


# --- files that are not what they should be


def model_of(nodes: list[Any], initializers: Sequence[Any] = (), inputs: Any = MappingProxyType({}), opset=13) -> Any:
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", given, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def test_all_unknown_nodes_are_named():
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "x"], ["a"], name="c1"),
        node("Tanh", ["a"], ["b"]),
        node("Odd", ["b"], ["y"], name="o", domain="mine"),
    ]
    with pytest.raises(UnsupportedError, match=r"Conv \('c1'\), mine\.Odd \('o'\)\. RNN, GRU and LSTM are"):
        load(model_of(nodes, inputs={"x": [1]}))


def outside(location: str, **more: Any) -> Any:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **more}.items():
        tensor.external_data.add(key=key, value=str(value))
    return model_of([helper.make_node("Add", ["x", "w"], ["y"])], [tensor], {"x": [4]})


def test_weights_beside_the_file(tmp_path):
    numbers = np.arange(6, dtype="<f4")
    (tmp_path / "w.bin").write_bytes(numbers.tobytes())
    (tmp_path / "m.onnx").write_bytes(outside("w.bin", offset=8, length=16).SerializeToString())
    assert load(tmp_path / "m.onnx")(np.zeros(4, "f"))["y"].tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "location, more, error, words",
    [
        ("../w.bin", {}, ModelError, "not in the model's own folder"),
        ("/etc/hostname", {}, ModelError, "not in the model's own folder"),
        ("link.bin", {}, ModelError, "not in the model's own folder"),
        ("", {}, ModelError, "not in the model's own folder"),
        ("w.bin", {"length": 17}, ModelError, "has 16 bytes, and 'w.bin' holds 17"),
        ("w.bin", {"offset": -8}, ModelError, "bytes"),
        ("w.bin", {"offset": "x"}, ModelError, "tells no place"),
        ("w.bin", {"offset": 12}, Refused, "ends before the numbers of the tensor 'w'"),
        ("pipe", {}, Refused, "a FIFO"),
        ("round", {}, (ModelError, OSError), "round"),
        ("a\0b", {}, ModelError, "not in the model's own folder"),
    ],
)
def test_weights_that_lie_elsewhere(location, more, error, words, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for path in (folder / "w.bin", tmp_path / "w.bin"):
        path.write_bytes(bytes(24))
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    (folder / "round").symlink_to("round")
    os.mkfifo(folder / "pipe")
    (folder / "m.onnx").write_bytes(outside(location, **more).SerializeToString())
    with pytest.raises(error, match=words):
        load(folder / "m.onnx")
    with pytest.raises(ModelError, match="give load the path"):
        load((folder / "m.onnx").read_bytes())


@pytest.mark.parametrize(
    "nodes, words",
    [
        ([helper.make_node("ConstantOfShape", ["big"], ["y"])], "more than a value of a model may have"),
        ([helper.make_node("Expand", ["x", "big"], ["y"])], "more than a value of a model may have"),
        ([helper.make_node("MatMul", ["tall", "wide"], ["y"])], "more than a value of a model may have"),
        ([helper.make_node("Add", ["tall", "wide"], ["y"])], "more than a value of a model may have"),
        ([helper.make_node("Reshape", ["x", "big"], ["y"])], "the node 'Reshape 0'"),
        ([helper.make_node("Gather", ["x", "big"], ["y"])], "the node 'Gather 0'"),
    ],
)
def test_a_node_that_fails_is_named_before_there_is_memory(nodes, words):
    big = numpy_helper.from_array(np.array([2**20, 2**20], np.int64), "big")
    tall = numpy_helper.from_array(np.zeros((2**16, 1), "f"), "tall")
    wide = numpy_helper.from_array(np.zeros((1, 2**16), "f"), "wide")
    model = load(model_of(nodes, [big, tall, wide], {"x": [1]}))
    with pytest.raises(ModelError, match=words):
        model(np.ones(1, "f"))


def test_files_and_inputs_that_do_not_fit(tmp_path):
    with pytest.raises(ModelError, match="no model of ONNX"):
        load(b"no model \xff\xff\xff")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.onnx")
    node = helper.make_node
    with pytest.raises(ModelError, match="reads z, which nothing before it gives"):
        load(model_of([node("Tanh", ["z"], ["y"])], inputs={"x": [1]}))
    with pytest.raises(NodeError, match="no attribute 'clap'"):
        load(model_of([node("LSTM", ["x", "x", "x"], ["y"], clap=1.0)], inputs={"x": [1]}))
    with pytest.raises(UnsupportedError, match="opset 6"):
        load(model_of([node("Tanh", ["x"], ["y"])], inputs={"x": [1]}, opset=6))
    lying = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**40], raw_data=b"1234")
    with pytest.raises(ModelError, match="4 are there"):
        load(model_of([node("Add", ["x", "w"], ["y"])], [lying], {"x": [1]}))
    model = load(model_of([node("Tanh", ["x"], ["y"])], inputs={"x": ["B", 2]}))
    for wrong, words in (
        ({"z": np.ones((1, 2), "f")}, "the model has the inputs x"),
        ({"x": np.ones((1, 3), "f")}, r"expected \[B, 2\]"),
        ({"x": np.ones((1, 2), int)}, "expected float32"),
    ):
        with pytest.raises(ShapeError, match=words):
            model(wrong)


def test_a_file_with_any_byte_changed_is_read_or_refused():
    node, rng = helper.make_node, np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.normal(size=s).astype("f"), n) for n, s in (("w", (1, 8, 3)), ("r", (1, 8, 2)))
    ]
    nodes = [
        node("LSTM", ["x", "w", "r"], ["h"], hidden_size=2),
        node("Cast", ["h"], ["wide"], to=TensorProto.DOUBLE),
        node("Constant", [], ["axes"], value=numpy_helper.from_array(np.array([0]), "v")),
        node("Unsqueeze", ["wide", "axes"], ["y"]),
    ]
    whole = model_of(nodes, weights, {"x": [2, 1, 3]}).SerializeToString()
    x, ran = np.ones((2, 1, 3), "f"), 0
    for place in range(len(whole)):
        for byte in (0xFF, whole[place] ^ 1):
            damaged = whole[:place] + bytes([byte]) + whole[place + 1 :]
            try:
                load(damaged)(x)
                ran += 1
            except (ModelError, NodeError, UnsupportedError, ShapeError, Refused):
                pass
    assert 0 < ran < 2 * len(whole)


@pytest.mark.parametrize(
    "nodes, words",
    [
        ([helper.make_node("Range", ["zero", "inf", "one"], ["y"])], "the node 'Range 0'"),
        ([helper.make_node("Tanh", ["x"], ["y", "z"])], "gives 1 arrays, and 2 are named"),
        ([helper.make_node("Split", ["x", "ones"], ["y", "z"])], r"splits 3 elements into \[1, 1\]"),
        ([helper.make_node("Tanh", ["x"], ["y"]), helper.make_node("Relu", ["x"], ["y"])], "'y' of the model is given"),
        ([helper.make_node("Tanh", ["x"], ["one"]), helper.make_node("Relu", ["x"], ["y"])], "'one' of the model is"),
        ([helper.make_node("Cast", ["x"], ["y"], to=99)], "the attribute 'to' of the model is of the type 99"),
        ([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.STRING)], "of the type STRING"),
        ([helper.make_node("LSTM", ["x", "x", "x"], ["y"], activations=["Nope"] * 3)], "Nope"),
    ],
)
def test_a_model_that_lies_is_told_of(nodes, words):
    numbers = {"zero": 0.0, "one": 1.0, "inf": np.inf}
    given = [numpy_helper.from_array(np.array(v, "f"), n) for n, v in numbers.items()]
    given.append(numpy_helper.from_array(np.array([1, 1]), "ones"))
    with pytest.raises((ModelError, NodeError, UnsupportedError), match=words):
        load(model_of(nodes, given, {"x": [3]}))(np.ones(3, "f"))


def test_what_is_no_model():
    for wrong in (None, 3, bytearray(b"x")):
        with pytest.raises(TypeError, match=r"a path, bytes or an onnx\.ModelProto"):
            load(wrong)
