"""Layers as one operator of ONNX Runtime, compiled from the C export."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import numpy as np
import pytest

import rnnspec
from rnnspec.commands.cli import main
from rnnspec.errors import UnsupportedError

runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
from c_library import COMPILER, SANE, STRICT  # noqa: E402

from rnnspec.export.onnx_check import ExportError, session  # noqa: E402
from rnnspec.export.ort import ort  # noqa: E402

module = import_module("rnnspec.export.ort")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A cell of two inputs, two layers of it, in a session of its own."""
    layer = rnnspec.Recurrent("t_lstm", 3, 5, num_layers=2, learn_initial=True, seed=1)
    for name, array in layer.params.items():
        if name.startswith("initial"):
            array[:] = np.linspace(-0.5, 0.5, array.size).reshape(array.shape)
    model, library = ort(layer, name="two").write(tmp_path_factory.mktemp("ort"))
    return layer, session(model.read_bytes(), "two", "float32", str(library)), library


def inputs(steps: int, rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {"x": (steps, rows, 3), "delta": (steps, rows)}
    return {n: rng.uniform(0.1, 1, s).astype(np.float32) for n, s in shapes.items()}


@pytest.mark.parametrize("steps, rows", [(200, 3), (1, 1), (7, 0), (0, 2)])
def test_the_operator_computes_what_infer_does(built, steps, rows):
    layer, ready, _ = built
    given = inputs(steps, rows)
    (found,) = ready.run(None, given)
    assert found.shape == (steps, rows, 5)
    if steps and rows:
        np.testing.assert_allclose(found, layer.infer(given)[0], rtol=0, atol=1e-5)


def test_several_threads_and_sessions_at_once(built):
    layer, ready, library = built
    cases = [inputs(50, 2, seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda given: ready.run(None, given)[0], cases))
    for given, y in zip(cases, found):
        np.testing.assert_allclose(y, layer.infer(given)[0], rtol=0, atol=1e-5)
    again = runtime.SessionOptions()
    again.register_custom_ops_library(str(library))  # a second time in one process


def test_inputs_of_other_sizes_are_an_error(built):
    given = inputs(4, 2) | {"delta": np.ones((4, 3), np.float32)}
    with pytest.raises(Exception, match=r"input 2 must be \[T, B\]"):
        built[1].run(None, given)


def test_the_text_compiles_without_a_warning(tmp_path):
    made = ort(rnnspec.Recurrent("mingru", 3, 5), name="small")
    made.source.write(tmp_path)
    (tmp_path / "small_ort.c").write_text(made.around)
    flags = [*(f for f in STRICT if f != "-pedantic"), *SANE, "-fPIC", "-c"]
    subprocess.run([COMPILER, *flags, "small_ort.c"], cwd=tmp_path, check=True)


def test_what_is_refused(monkeypatch):
    with pytest.raises(UnsupportedError, match="bidirectional=False"):
        ort(rnnspec.Recurrent("mingru", 3, 5, bidirectional=True))
    with pytest.raises(UnsupportedError, match="without batch_first"):
        ort(rnnspec.Recurrent("mingru", 3, 5, batch_first=True))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="no C compiler"):
        ort(rnnspec.Recurrent("mingru", 3, 5))


@pytest.mark.parametrize(
    "command, error, words",
    [
        ("no-such-compiler -O1", UnsupportedError, "CC is 'no-such-compiler -O1', and there is no such command"),
        ("true", ExportError, "there is no library"),
        ("cp small.c small_ort.so; :", ExportError, "failed"),
        ("sh -c 'cp small.c small_ort.so'", UnsupportedError, "can't load the operator"),
    ],
)
def test_a_compiler_that_makes_nothing(command, error, words, monkeypatch):
    monkeypatch.setenv("CC", command)
    with pytest.raises(error, match=words):
        ort(rnnspec.Recurrent("mingru", 3, 5), name="small")


def test_a_compiler_may_have_options(monkeypatch):
    monkeypatch.setenv("CC", f"{COMPILER} -DONE=1")
    assert module.compiler() == [COMPILER, "-DONE=1"]


def test_a_wrong_operator_is_not_written(monkeypatch):
    text = module.text
    monkeypatch.setattr(module, "text", lambda *args: text(*args).replace("t * rows + b", "(steps - 1 - t) * rows + b"))
    with pytest.raises(ExportError, match="differs by"):
        ort(rnnspec.Recurrent("mingru", 3, 5))


def test_the_command(tmp_path, capsys):
    argv = ["export", "mingru", "--to", "ort", "--inputs", "3", "--hidden", "5", "--out", str(tmp_path)]
    assert main(argv) == 0
    assert "register_custom_ops_library" in capsys.readouterr().out
    assert len(os.listdir(tmp_path)) == 2
    assert main([*argv, "--states"]) == 2
    assert "leave out --states" in capsys.readouterr().err
