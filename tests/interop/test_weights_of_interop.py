"""Weights in the files of other libraries: what is read computes what the library does, what is
written is read again, and what a file may not be is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import rnnspec
from rnnspec.commands.cli import main
from rnnspec.errors import UnsupportedError
from rnnspec.interop import weight_files
from rnnspec.interop.weights import WeightsError, arrays_of, layer_from, places
from rnnspec.language.load import load, spec_names
from rnnspec.storage import safetensors
from rnnspec.storage.guarded import Refused

SIX_DIGITS = 1e-6


def filled(cell: str, **more) -> rnnspec.Recurrent:
    """A layer in which no two numbers are alike."""
    layer = rnnspec.Recurrent(cell, 3, 4, seed=5, **more)
    rng = np.random.default_rng(1)
    for array in layer.weights.values():
        array[:] = rng.normal(size=array.shape)
    return layer


def assert_alike(one: rnnspec.Recurrent, other: rnnspec.Recurrent) -> None:
    x = np.random.default_rng(0).normal(size=(5, 2, one.input_size)).astype(one.stack.dtype)
    np.testing.assert_allclose(one.infer(x)[0], other.infer(x)[0], rtol=0, atol=SIX_DIGITS)


@pytest.mark.parametrize("name", spec_names())
def test_every_layout_is_found_again(name):
    """All layouts of all cells, in two layers of two directions, and a layer's own names; no kernel
    runs."""
    spec = load(name)
    if len(spec.streams) != 1 or spec.states.keys() != {*spec.states}:
        return
    try:
        layer = rnnspec.Recurrent(name, 6, 6, num_layers=2, bidirectional=True, merge="sum", proj_size=0)
    except ValueError:
        return  # needs further sizes
    for layout in (*spec.layouts, ""):
        named = arrays_of(layer, layout) if layout else layer.weights
        found = places(spec, named, layout)
        assert [p.reverse for p in found] == [False, True, False, True]
        assert len({p.name for p in found}) == 4


@pytest.mark.parametrize("ending", [".npz", ".safetensors", ".msgpack", ".pt"])
def test_there_and_back(ending, tmp_path):
    package = {".msgpack": "msgpack", ".pt": "torch"}.get(ending)
    if package:
        pytest.importorskip(package)
    layer, path = filled("gru", num_layers=2, bidirectional=True), tmp_path / f"w{ending}"
    weight_files.write(path, arrays_of(layer, "flax.GRUCell") if ending == ".msgpack" else layer.weights)
    again, found = layer_from(load("gru"), weight_files.read(path))
    assert len(found) == 4
    assert_alike(layer, again)


def test_a_state_dict_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    net = torch.nn.ModuleDict({"rnn": torch.nn.LSTM(3, 4, 2, bidirectional=True), "out": torch.nn.Linear(8, 2)})
    torch.save(net.state_dict(), tmp_path / "m.pt")
    layer, _ = layer_from(load("lstm"), weight_files.read(tmp_path / "m.pt"))
    x = torch.randn(5, 2, 3)
    np.testing.assert_allclose(layer.infer(x.numpy())[0], net["rnn"](x)[0].detach().numpy(), rtol=0, atol=SIX_DIGITS)


def test_a_pickle_is_not_run(tmp_path):
    torch = pytest.importorskip("torch")

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "made"),))

    torch.save({"weight": Evil()}, tmp_path / "m.pt")
    with pytest.raises(Refused):
        weight_files.read(tmp_path / "m.pt")
    assert not (tmp_path / "made").exists()


KERAS = """
import sys, numpy as np, keras
from rnnspec.interop import weight_files
from rnnspec.interop.weights import layer_from
from rnnspec.language.load import load
cells = keras.layers
layers = [cells.Bidirectional(cells.GRU(4, return_sequences=True)), cells.LSTM(5, return_sequences=True)]
net = keras.Sequential([keras.Input((None, 3)), *layers, cells.Dense(2)])
net.set_weights([np.random.default_rng(n).normal(size=w.shape) for n, w in enumerate(net.get_weights())])
x = np.random.default_rng(0).normal(size=(2, 6, 3)).astype("float32")
middle = keras.Model(net.inputs, [l.output for l in net.layers[:2]])
right = middle.predict(x, verbose=0)
for path in (sys.argv[1] + "/m.keras", sys.argv[1] + "/m.h5"):
    net.save(path)
    named, below = weight_files.read(path), x
    for cell, expected in zip(("gru", "lstm"), right):
        layer, _ = layer_from(load(cell), named)
        layer.batch_first = True
        below, _ = layer.infer(below)
        assert np.abs(below - expected).max() < 1e-5
print("the same")
"""


def test_models_of_keras(tmp_path):
    if missing := [n for n in ("keras", "torch", "h5py") if find_spec(n) is None]:
        pytest.skip(f"{', '.join(missing)} not installed")
    environment = os.environ | {"KERAS_BACKEND": "torch", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = [sys.executable, "-c", KERAS, str(tmp_path)]
    done = subprocess.run(run, env=environment, capture_output=True, text=True)
    assert "the same" in done.stdout, done.stderr[-2000:]


@pytest.mark.parametrize("cell, theirs", [("gru", "GRUCell"), ("lstm", "LSTMCell"), ("rnn", "SimpleCell")])
def test_parameter_trees_of_flax(cell, theirs, tmp_path):
    linen = pytest.importorskip("flax.linen")
    jax, serialization = pytest.importorskip("jax"), pytest.importorskip("flax.serialization")
    x = np.random.default_rng(0).normal(size=(5, 2, 3)).astype("f")
    module = getattr(linen, theirs)(4)
    carry = module.initialize_carry(jax.random.key(0), x[0].shape)
    params = module.init(jax.random.key(1), carry, x[0])
    params = jax.tree_util.tree_map(lambda a: a + 0.1 * np.arange(a.size).reshape(a.shape), params)
    (tmp_path / "p.msgpack").write_bytes(serialization.to_bytes(params))
    layer, _ = layer_from(load(cell), weight_files.read(tmp_path / "p.msgpack"))
    right = []
    for step in x:
        carry, y = module.apply(params, carry, step)
        right.append(y)
    np.testing.assert_allclose(layer.infer(x)[0], np.stack(right), rtol=0, atol=SIX_DIGITS)


# --- safetensors


def test_the_format_is_that_of_the_package(tmp_path):
    package = pytest.importorskip("safetensors.numpy")
    kinds = ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")
    named = {f"a.{k}": np.arange(6).reshape(2, 3).astype(k) for k in kinds} | {"none": np.zeros((0, 2), "f4")}
    safetensors.write(tmp_path / "a.safetensors", named)
    package.save_file(named, tmp_path / "b.safetensors")
    for found in (package.load_file(tmp_path / "a.safetensors"), safetensors.arrays(tmp_path / "b.safetensors")):
        assert {n: (a.dtype, a.tolist()) for n, a in found.items()} == {
            n: (a.dtype, a.tolist()) for n, a in named.items()
        }


def packed(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def one(first: int, last: int, shape: list = [1], dtype: str = "F32") -> dict:  # noqa: B006
    return {"dtype": dtype, "shape": shape, "data_offsets": [first, last]}


@pytest.mark.parametrize(
    "content, words",
    [
        (b"", "its end is missing"),
        (b"\xff" * 16, "its end is missing"),
        (packed(b"[1]  "), "no JSON object"),
        (packed(b"{" * 100_000), "JSON"),
        (packed({"a": one(0, 8)}, bytes(8)), "not where its header says"),
        (packed({"a": one(0, 4)}), "not where its header says"),
        (packed({"a": one(0, 4, [2**40, 2**40])}, bytes(4)), "not where its header says"),
        (packed({"a": one(0, 4, [-1])}, bytes(4)), "tells no array"),
        (packed({"a": one(0, 4, [1.0])}, bytes(4)), "tells no array"),  # type: ignore[list-item]
        (packed({"a": 3}), "tells no array"),
        (packed({"a": one(0, 2, [1], "BF16")}, bytes(2)), "known are"),
        (packed({"a": one(0, 4), "b": one(0, 4)}, bytes(4)), "overlap"),
        (packed({"a": one(0, 4), "b": one(8, 12)}, bytes(12)), "between them"),
        (packed({"a": one(0, 4)}, bytes(5)), "between them"),
    ],
)
def test_what_is_no_file_of_safetensors(content, words, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(Refused, match=words):
        weight_files.read(tmp_path / "a.safetensors")


# --- what else is refused


def test_files_of_hdf5_that_point_elsewhere_or_swell(tmp_path):
    h5py = pytest.importorskip("h5py")

    def refused(words: str, make) -> None:
        path = tmp_path / "a.h5"
        with h5py.File(path, "w") as file:
            make(file)
        with pytest.raises(Refused, match=words):
            weight_files.read(path)

    refused("points elsewhere", lambda f: soft(h5py, f))
    refused("points elsewhere", lambda f: external(h5py, f))
    refused("more numbers", lambda f: f.create_dataset("a", (2**40,), "f4", chunks=(1024,)))
    refused("nested too deeply", lambda f: f.create_group("/".join("a" * 40)))
    refused("names, and fewer", linked_again_and_again)
    (tmp_path / "b.h5").write_bytes(b"no HDF5")
    with pytest.raises(Refused, match="damaged"):
        weight_files.read(tmp_path / "b.h5")


def linked_again_and_again(file) -> None:
    """3 ** 14 names of 14 groups."""
    group = file
    for _ in range(14):
        inner = group.create_group("a")
        group["b"] = group["c"] = inner
        group = inner


def test_what_holds_no_numbers_is_passed_over(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["none"], file["text"], file["one"] = h5py.Empty("f4"), "a", 1.0
    assert list(weight_files.read(tmp_path / "a.h5")) == ["one"]


def soft(h5py, file) -> None:
    file["a"] = h5py.SoftLink("/b")


def external(h5py, file) -> None:
    file["a"] = h5py.ExternalLink("/etc/hostname", "/")


def test_trees_of_msgpack_that_lie(tmp_path):
    msgpack = pytest.importorskip("msgpack")
    for value, words in (
        (msgpack.ExtType(1, msgpack.packb(([2**40], "float32", b"1234"))), "not what its bytes are"),
        (msgpack.ExtType(1, msgpack.packb(([1], "object", b"12345678"))), "not what its bytes are"),
        (msgpack.ExtType(3, b""), "kind 3"),
    ):
        (tmp_path / "a.msgpack").write_bytes(msgpack.packb({"a": value}))
        with pytest.raises(Refused, match=words):
            weight_files.read(tmp_path / "a.msgpack")


def test_places_that_do_not_go_together():
    spec = load("gru")
    two = {f"a/{n}": a for n, a in filled("gru").weights.items()}
    two |= {
        f"b/{n}": np.zeros((a.shape[0] * 2, *(2 * n for n in a.shape[1:])), "f")
        for n, a in filled("gru").weights.items()
    }
    with pytest.raises(WeightsError, match=r"do not fit upon one another.*--place"):
        layer_from(spec, two)
    layer, found = layer_from(spec, two, chosen=(places(spec, two)[1].name,))
    assert layer.hidden_size == 8 and len(found) == 1
    with pytest.raises(WeightsError, match="there is no c; there are"):
        layer_from(spec, two, chosen=("c",))
    with pytest.raises(WeightsError, match=r"no place in the file has all arrays of 'lstm'.*a/weight_ih_l0 \[12, 3\]"):
        layer_from(load("lstm"), two)
    with pytest.raises(WeightsError, match=r"no layout 'torch\.GRUX'"):
        layer_from(spec, two, "torch.GRUX")


def test_endings(tmp_path):
    with pytest.raises(UnsupportedError, match=r"files that end in \.npz"):
        weight_files.read(tmp_path / "a.bin")
    with pytest.raises(UnsupportedError, match=r"layer\.set_weights"):
        weight_files.write(tmp_path / "a.keras", {})


def test_names_with_digits_that_are_no_numbers():
    layer = filled("gru")
    for odd in ("\N{SUPERSCRIPT TWO}", "9" * 5000):
        assert places(layer.spec, {f"{odd}/{n}": a for n, a in arrays_of(layer, "torch.GRU").items()})


# --- the command


def test_the_command(tmp_path, capsys):
    layer, source, target = filled("gru", num_layers=2), tmp_path / "w.npz", tmp_path / "w.safetensors"
    layer.save(source)
    assert main(["convert", str(source), str(target), "--cell", "gru", "--to-layout", "keras.GRU"]) == 0
    assert "as keras.GRU" in capsys.readouterr().out
    assert main(["convert", str(target), str(tmp_path / "again.npz"), "--cell", "gru", "--json"]) == 0
    assert [p["layout"] for p in json.loads(capsys.readouterr().out)["places"]] == ["keras.GRU"] * 2
    again = rnnspec.Recurrent("gru", 3, 4, num_layers=2)
    again.load(tmp_path / "again.npz")
    assert_alike(layer, again)
    assert main(["convert", str(target), "-", "--cell", "gru"]) == 0
    assert "layers_1: keras.GRU: kernel [4, 12]" in capsys.readouterr().out
    assert main(["convert", str(target), "-", "--cell", "lstm"]) == 1
    for ignored in (["--place", "layers_0"], ["--dtype", "float64"], ["--to-layout", "keras.GRU"]):
        assert main(["convert", str(target), "-", "--cell", "gru", *ignored]) == 2
        assert f"leave out {ignored[0]}." in capsys.readouterr().err
    for wrong in ("none.npz", str(Path(__file__))):
        assert main(["convert", wrong, "-", "--cell", "gru"]) == 2
