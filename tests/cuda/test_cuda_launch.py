"""The launch code of the CUDA backend, on a stand-in for libcuda that runs the kernels' PTX; and
the faults of other engines that concern it (H66 to H71 of the project's list). Those that only a
GPU can tell carry the marker gpu."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from cells import case, expected
from emulated import assert_clean, gpu, needs_compiler
from ptx.driver import FakeLibrary
from tolerances import CUDA, assert_close

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is not installed

import rnnspec
from bench import cubins
from bench import gpu as bench_gpu
from rnnspec.backends.cuda.compile import build
from rnnspec.backends.cuda.launch import driver
from rnnspec.backends.cuda.launch.memory import new_array
from rnnspec.check import check_property
from rnnspec.engine.cuda import CudaStepper
from rnnspec.engine.spans import cut, gathered, scattered
from rnnspec.errors import BackendUnavailable, DtypeError, UnsupportedError

needs_compiler()


def cuda(name: str, **options):
    return rnnspec.compile(name, backend="cuda", **options)


# --- which device ---


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"devices": 0}, "sees none"),
        ({"version": 11080}, "driver for CUDA 12"),
        ({"capability": (7, 0)}, "compute capability 8.0 or more; this one has 7.0"),
    ],
)
def test_a_device_that_will_not_do_is_refused_with_the_reason(options, words):
    with pytest.raises(BackendUnavailable, match=words):
        driver.open_device(FakeLibrary(**options))


def test_options_of_the_other_backend_are_refused():
    with gpu(), pytest.raises(ValueError, match="threads"):
        cuda("rnn", threads=2)
    with gpu(), pytest.raises(UnsupportedError, match="memory='low'"):
        cuda("rnn", memory="low")
    with gpu():
        for call in (cuda("rnn").record, cuda("rnn").resume):
            with pytest.raises(UnsupportedError, match="use forward"):
                call({}, {})
    with gpu(), pytest.raises(ValueError, match="tier must be"):
        cuda("rnn", tier=4)
    with pytest.raises(ValueError, match="tier"):
        rnnspec.compile("rnn", tier=1)
    with pytest.raises(BackendUnavailable, match="choose 'cpu', 'cuda', 'auto'"):
        rnnspec.compile("rnn", backend="tpu")


def test_a_tier_that_does_not_fit_says_so():
    with gpu(), pytest.raises(ValueError, match=r"bytes of shared memory.*tier=3"):
        kernel = cuda("rnn", tier=1)
        kernel.infer(kernel.init(D=3, H=4000), {"x": np.zeros((1, 1, 3), np.float32)})


# --- faults of other engines ---


@pytest.mark.parametrize("tier", [1, 3])
def test_H66_nothing_to_do_launches_nothing_that_fails(tier):
    with gpu():
        own, cpu = cuda("lstm", tier=tier), rnnspec.compile("lstm")
        for steps, rows, lengths in ((3, 0, None), (0, 2, None), (3, 2, [0, 0])):
            c = case(own, steps, rows, lengths=lengths)
            run, other = c.forward(), cpu.forward(c.params, c.inputs, c.states, c.lengths)
            assert_close(run.outputs, other.outputs, 0.0)
            assert_close(run.final, other.final, 0.0)
            grad, right = c.backward(run), cpu.backward(other, c.dy, final=c.dfinal)
            for got, want in ((grad.params, right.params), (grad.inputs, right.inputs), (grad.states, right.states)):
                assert_close(got, want, 0.0)


@pytest.mark.slow
def test_H68_more_rows_than_a_grid_has_in_y():
    with gpu(processors=132):
        kernel = cuda("rnn", tier=1)
        rows = 70_000
        c = case(kernel, 2, rows, H=1, D=1)
        out = kernel.infer(c.params, c.inputs, c.states)
        right = rnnspec.compile("rnn").infer(c.params, c.inputs, c.states)
        assert_close(out.outputs["h"][:, -1], right.outputs["h"][:, -1], CUDA["float32"])


@pytest.mark.parametrize(
    ("units", "features", "rows"), [(1, 1, 1), (31, 3, 5), (33, 1, 5), pytest.param(257, 3, 5, marks=pytest.mark.slow)]
)
def test_H69_odd_sizes(units, features, rows):
    with gpu(seed=units) as library:
        kernel = cuda("rnn")
        c = case(kernel, 3, rows, lengths=[3, 1, 2, 0, 3][:rows], H=units, D=features)
        run, want = c.forward(), expected(c, "rnn")
        assert_close(run.outputs, want.outputs, CUDA["float32"])
        assert_close(c.backward(run).params, want.params, CUDA["float32"])
        assert_clean(library)


def test_H71_ragged_rows_in_both_directions():
    """Pieces are how layers run a direction in reverse."""
    lengths = np.array([3, 1, 4])
    with gpu():
        own, cpu = cuda("lstm", dtype="float64"), rnnspec.compile("lstm", dtype="float64")
        c = case(own, 4, 3)
        pieces = cut(4, 3, lengths, None, True)
        run, other = (k.forward(c.params, c.inputs, c.states, pieces=pieces) for k in (own, cpu))
        assert_close(run.outputs, other.outputs, CUDA["float64"])
        assert_close(run.final, other.final, CUDA["float64"])
        assert_close(run.states, other.states, CUDA["float64"])
        grad, right = (k.backward(r, c.dy, final=c.dfinal) for k, r in ((own, run), (cpu, other)))
        for got, want in ((grad.params, right.params), (grad.inputs, right.inputs), (grad.states, right.states)):
            assert_close(got, want, CUDA["float64"])


@pytest.mark.slow
def test_H71_two_layers_in_both_directions():
    lengths = np.array([3, 1, 4, 2])
    x = np.random.default_rng(0).uniform(-1, 1, (4, 4, 3))
    with gpu():
        layers = [
            rnnspec.Recurrent("lstm", 3, 4, 2, bidirectional=True, dtype="float64", backend=b) for b in ("cuda", "cpu")
        ]
        (y, state), (right, other) = (layer(x, lengths=lengths) for layer in layers)
        assert_close(y, right, CUDA["float64"])
        for a, b in zip(state, other):
            assert_close(a, b, CUDA["float64"])
        dy = np.ones_like(right)
        assert_close(layers[0].backward(dy)[0], layers[1].backward(dy)[0], CUDA["float64"])
        assert_close(layers[0].grads, layers[1].grads, CUDA["float64"])


@pytest.mark.parametrize("reverse", [False, True])
def test_pieces_go_out_and_come_back(reverse):
    rng = np.random.default_rng(0)
    x, lengths, resets = rng.random((5, 3, 2)), np.array([5, 0, 3]), rng.random((5, 3)) < 0.4
    pieces = cut(5, 3, lengths, resets, reverse)
    back = scattered(gathered(x, pieces), pieces, x.shape)
    alive = np.arange(5)[:, None] < lengths
    np.testing.assert_array_equal(back, np.where(alive[..., None], x, 0))


# --- arrays ---


class Tensor:
    """An array on the device that belongs to another library."""

    def __init__(self, array, strides=None, shape=None):
        self.array = array
        self.interface = array.__cuda_array_interface__ | (
            {"strides": strides, "shape": shape} if strides else {"strides": None}
        )

    @property
    def __cuda_array_interface__(self):
        return self.interface


def test_arrays_on_the_device_stay_there():
    with gpu() as library:
        kernel = cuda("lstm")
        c = case(kernel, 4, 3, lengths=[4, 2, 3])
        put = kernel.launcher.upload
        groups = [{n: Tensor(put(a)) for n, a in group.items()} for group in (c.params, c.inputs, c.states)]
        run = kernel.forward(*groups, c.lengths)
        want = expected(c, "lstm")
        assert all(hasattr(a, "__cuda_array_interface__") for a in (*run.outputs.values(), *run.final.values()))
        assert_close({n: np.asarray(a) for n, a in run.outputs.items()}, want.outputs, CUDA["float32"])
        grad = kernel.backward(run, {n: Tensor(put(a)) for n, a in c.dy.items()}, final=c.dfinal)
        assert_close({n: a.numpy() for n, a in grad.params.items()}, want.params, CUDA["float32"])
        assert_close({n: a.numpy() for n, a in grad.inputs.items()}, want.inputs, CUDA["float32"])
        assert_clean(library)


def test_arrays_of_any_strides():
    with gpu():
        kernel = cuda("lstm")
        c = case(kernel, 4, 3)
        x = np.ascontiguousarray(c.inputs["x"].transpose(2, 1, 0))  # [D, B, T]
        item = x.itemsize
        held = kernel.launcher.upload(x)
        t, b, d = 1, x.shape[2], x.shape[2] * x.shape[1]
        turned = Tensor(held, strides=(t * item, b * item, d * item), shape=c.inputs["x"].shape)
        got = kernel.infer(c.params, {"x": turned}, c.states)
        assert_close(got.outputs["h"].numpy(), kernel.infer(c.params, c.inputs, c.states).outputs["h"], 0.0)


class Capsule:
    """An array on the device that speaks DLPack alone."""

    def __init__(self, array, device_type=2):
        self.array, self.device_type = array, device_type

    def __dlpack_device__(self):
        return self.device_type, 0

    def __dlpack__(self, stream=None):
        import ctypes

        from rnnspec.backends.cuda.launch.interface import Tensor

        shape = (ctypes.c_int64 * self.array.ndim)(*self.array.shape)
        self.tensor = Tensor(
            self.array.address - 16,
            self.device_type,
            0,
            self.array.ndim,
            2,
            8 * self.array.dtype.itemsize,
            1,
            shape,
            None,
            16,
        )
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


def test_arrays_by_dlpack():
    with gpu():
        kernel = cuda("lstm")
        c = case(kernel, 4, 3)
        got = kernel.infer(c.params, {"x": Capsule(kernel.launcher.upload(c.inputs["x"]))}, c.states)
        assert_close(got.outputs["h"].numpy(), kernel.infer(c.params, c.inputs, c.states).outputs["h"], 0.0)
        double = Capsule(kernel.launcher.upload(c.inputs["x"].astype(np.float64)))
        with pytest.raises(DtypeError, match="float64"):
            kernel.infer(c.params, {"x": double})


def test_what_does_not_fit_is_refused_before_a_launch():
    with gpu() as library:
        kernel = cuda("lstm")
        c = case(kernel, 4, 3)
        kernel.device.use()
        double = new_array(kernel.device, (4, 3, 2), np.dtype("float64"), 0)
        with pytest.raises(DtypeError, match="float64"):
            kernel.infer(c.params, {"x": double})
        with pytest.raises(rnnspec.errors.ShapeError):
            kernel.infer(c.params, {"x": kernel.launcher.zeros(4, 3, 99)})
        assert not library.reports


def test_memory_goes_back_to_the_device():
    with gpu() as library:
        kernel = cuda("rnn")
        c = case(kernel, 3, 2)
        c.backward(c.forward())
        held = len(library.memory.sizes)
        for _ in range(3):
            c.backward(c.forward())
        assert len(library.memory.sizes) == held


def test_changing_an_input_after_forward_changes_no_gradient():
    with gpu() as library:
        kernel = cuda("lstm")
        c = case(kernel, 3, 2)
        x = kernel.launcher.upload(c.inputs["x"])
        run = kernel.forward(c.params, {"x": x}, c.states)
        library.memory.write(x.address, np.zeros(c.inputs["x"].nbytes, np.uint8))
        assert_close(
            np.asarray(kernel.backward(run, c.dy, final=c.dfinal).params["W_i"]),
            expected(c, "lstm").params["W_i"],
            CUDA["float32"],
        )


# --- the other calls ---


def test_steps_and_streams_go_through_a_sequence():
    with gpu():
        kernel = cuda("lstm")
        c = case(kernel, 3, 2)
        whole = kernel.infer(c.params, c.inputs, c.states)
        state, stream, weights = c.states, None, kernel.pack(c.params)
        stream = kernel.stream(weights, c.states, rows=2)
        for t in range(3):
            state = kernel.step(weights, {"x": c.inputs["x"][t]}, state)
            assert_close(state.outputs["h"], whole.outputs["h"][t], CUDA["float32"])
            assert_close(stream.step({"x": c.inputs["x"][t]})["h"], whole.outputs["h"][t], CUDA["float32"])
        assert_close(stream.states, whole.final, CUDA["float32"])
        assert stream.t == 3 and type(stream.stepper) is CudaStepper
        with pytest.raises(ValueError, match="rows must be a whole number of at least 0"):
            kernel.stream(weights, rows=-1)


@pytest.mark.parametrize("lengths", [None, [3, 1]])
def test_layers_run_on_the_device(lengths):
    """They were run by the CPU's code, which a device's kernel has not."""
    x = np.random.default_rng(0).normal(size=(3, 2, 3)).astype(np.float32)
    on_host = rnnspec.Recurrent("lstm", 3, 4, 2, bidirectional=True)
    with gpu() as library:
        layer = rnnspec.Recurrent("lstm", 3, 4, 2, bidirectional=True, backend="cuda")
        for call in ("__call__", "infer"):
            library.reports.clear()
            y, state = getattr(layer, call)(x, lengths=lengths)
            assert_clean(library)
            right, final = getattr(on_host, call)(x, lengths=lengths)
            assert_close(y, right, CUDA["float32"])
            assert_close(dict(enumerate(state)), dict(enumerate(final)), CUDA["float32"])
        assert_close(layer.backward(y)[0], on_host.backward(right)[0], CUDA["float32"])
        assert_close(layer.grads, on_host.grads, CUDA["float32"])


def test_states_of_every_step_and_outputs_in_arrays_of_the_caller():
    with gpu():
        kernel, cpu = cuda("lstm"), rnnspec.compile("lstm")
        c = case(kernel, 4, 3, lengths=[4, 2, 0])
        out = {"h": np.full((3, 4, c.sizes["H"]), np.nan, np.float32).transpose(1, 0, 2)}
        run = kernel.forward(c.params, c.inputs, c.states, c.lengths, out=out)
        assert run.outputs["h"] is out["h"]
        assert_close(run.states, cpu.forward(c.params, c.inputs, c.states, c.lengths).states, CUDA["float32"])
        assert run.tape_bytes > 0


def test_nan_in_the_padding_and_in_one_row_stays_there():
    with gpu():
        kernel = cuda("lstm")
        c = case(kernel, 4, 3, lengths=[4, 2, 3])
        c.inputs["x"][2:, 1] = np.nan
        clean = kernel.backward(kernel.forward(c.params, c.inputs, c.states, c.lengths), c.dy, final=c.dfinal)
        assert all(np.isfinite(a).all() for a in (*clean.params.values(), *clean.inputs.values()))
        c.inputs["x"][0, 0, 0] = np.nan
        out = kernel.infer(c.params, c.inputs, c.states, c.lengths).outputs["h"]
        assert np.isnan(out[:, 0]).all() and np.isfinite(out[:, 1:]).all()


@pytest.mark.gpu
def test_H67_kernels_that_need_many_registers():
    try:
        driver.first_device()
    except BackendUnavailable as error:
        pytest.skip(str(error))
    for name in ("lstm_projected", "nas"):
        kernel, cpu = cuda(name, dtype="float64"), rnnspec.compile(name, dtype="float64")
        c = case(kernel, 4, 64, D=32, H=1024)
        run, other = c.forward(), cpu.forward(c.params, c.inputs, c.states)
        assert_close(run.outputs, other.outputs, 1e-10)
        assert_close(c.backward(run).params, cpu.backward(other, c.dy, final=c.dfinal).params, 1e-10)


def test_cells_are_checked_on_a_gpu_where_there_is_one():
    assert "NVIDIA GPU" in check_property("rnn", "on a GPU", "float32").detail
    with gpu() as library:
        found = check_property("rnn", "on a GPU", "float32")
        assert found.passed and not found.skipped and found.measured is not None
        assert_clean(library)
    with gpu(
        change=lambda ptx: (
            ptx.replace("fma.rn.f32", "mad.rn.f32").replace("add.f32", "sub.f32").replace("add.rn.f32", "sub.rn.f32")
        )
    ):
        assert not check_property("rnn", "on a GPU", "float32").passed


def test_bench_gpu_takes_kernels_that_were_built_elsewhere(tmp_path, monkeypatch, capsys):
    """Assembled where there is an assembler; what runs here is their PTX."""
    monkeypatch.setattr(bench_gpu, "SHAPES", ())
    made = []

    def assembled(ptx: bytes, arch: str) -> cubins.Assembled:
        made.append(assemble(ptx, arch) if cubins.ptxas() else None)
        return cubins.Assembled(ptx, 0, 0)

    assemble = cubins.assemble
    monkeypatch.setattr(cubins, "assemble", assembled)
    parser = argparse.ArgumentParser()
    bench_gpu.add_arguments(parser)
    assert bench_gpu.main(parser.parse_args(["--build", str(tmp_path), "--cells", "rnn", "--processors", "2"])) == 0
    assert len(list(tmp_path.glob("*_sm90_float32_*.cubin"))) == len(made) > 5
    assert all(m is None or m.cubin.startswith(b"\x7fELF") for m in made)

    def compiler(*args):
        raise AssertionError("nothing is compiled")

    def no_compiler(*args):
        raise BackendUnavailable("numba-cuda is not installed")

    monkeypatch.setattr(build, "cached", compiler)
    build.prebuilt([tmp_path])
    try:
        with gpu():
            assert dict(bench_gpu.correctness(["rnn"]))["rnn"] < bench_gpu.TOLERANCE
        for path in tmp_path.glob("*.cubin"):
            path.write_bytes(path.read_bytes()[:-1])
        with gpu():
            assert "is damaged" in dict(bench_gpu.correctness(["rnn"]))["rnn"]
        for path in tmp_path.glob("*.cubin"):
            path.unlink()
        monkeypatch.setattr(build, "cached", no_compiler)
        with gpu():
            assert "no kernel of" in dict(bench_gpu.correctness(["rnn"]))["rnn"]
    finally:
        build.prebuilt([])


def test_bench_gpu_checks_cells_and_writes_its_table():
    with gpu():
        checked = dict(bench_gpu.correctness(["rnn", "no_such_cell"]))
        assert checked["rnn"] < bench_gpu.TOLERANCE and "no_such_cell" in checked["no_such_cell"]
        assert dict(bench_gpu.correctness(["rnn"], end=0.0)) == {"rnn": None}
    row = {"cell": "rnn", "shape": (2, 3, 4), "mode": "training", "tier": 1, "gflops": 5.0, "us": {"rnnspec": 1.5}}
    about = {"date": "2026-01-01 00:00", "gpu": {"compute capability": "9.0", "processors": 2}}
    page = bench_gpu.render(
        {"about": about, "checked": checked, "timed": [row, {"cell": "gru", "shape": (1, 1, 1), "left out": True}]}
    )
    assert (
        "1 of 2 cells agree" in page
        and "| rnn | 2, 3, 4 | training | 1 | 5 | 1.50 |" in page
        and "no time left" in page
    )


def test_bench_gpu_loses_nothing_to_a_failure_or_to_compiling(monkeypatch):
    def fails(cell, shape, end):
        yield {"cell": cell, "shape": shape, "mode": "inference", "tier": 2, "gflops": 5.0, "us": {"rnnspec": 1.5}}
        raise driver.BlockedError("did not come")

    monkeypatch.setattr(bench_gpu, "rows_of", fails)
    rows = list(bench_gpu.speed(float("inf")))
    assert len(rows) == 2 * len(bench_gpu.CELLS) * len(bench_gpu.SHAPES)
    about = {"date": "2026-01-01 00:00", "gpu": {"compute capability": "9.0", "processors": 2}}
    page = bench_gpu.render({"about": about, "checked": {}, "timed": rows})
    assert page.count("BlockedError: did not come") == page.count("| inference | 2 | 5 | 1.50 |") == len(rows) // 2
    begun = []
    monkeypatch.setattr(bench_gpu, "_compiled", lambda job, about: begun.append(job) or time.sleep(0.1))
    monkeypatch.setattr(bench_gpu, "ProcessPoolExecutor", lambda **options: ThreadPoolExecutor(1))
    bench_gpu.compile_ahead(["rnn"] * 100, cubins.Recorder((9, 0), 2, 232448), time.monotonic())
    assert len(begun) < 5
