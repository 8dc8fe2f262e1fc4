"""Defects that a hostile first user found. Each test fails until its defect is mended."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from cells import kernel
from tiny import cell

import rnnspec
from rnnspec.backends.cpu.launch import pool
from rnnspec.backends.memo import Memo
from rnnspec.errors import DtypeError, RnnspecError, ShapeError, SpecError, UnsupportedError

LEAKY = """rnnspec: 1
name: leaky
inputs: {x: D}
states: {h: H}
parameters: {W: [H, D], U: [H, H], b: [H]}
equations: |
  h[t] = tanh(W @ x[t] + U @ h[t-1] + b)
outputs: [h]
"""
SCALAR = cell("h[t] = w * x[t] + h[t-1]", name="scalar_weight", parameters="{w: []}")


def constant_cell(value: str) -> str:
    return (
        "rnnspec: 1\nname: constants\ninputs: {x: D}\nstates: {h: D}\nequations: |\n  h[t] = x[t] +"
        f" {value}\noutputs: [h]\n"
    )


# --- wrong numbers and memory that is used after it was given back ---


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")
def test_an_interrupted_call_waits_for_its_threads() -> None:
    """Ctrl-C during `job.result()`: `run_blocks` returned while a worker still wrote to scratch,
    tape and outputs, which are then reused."""
    release, started, done = threading.Event(), threading.Event(), threading.Event()

    def work(table: int) -> None:
        if table:
            started.set()
            release.wait(10)
            done.set()

    def interrupt(*_: object) -> None:
        release_later.start()
        raise KeyboardInterrupt

    release_later = threading.Timer(0.5, release.set)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            pool.run_blocks(work, [0, 1])
        assert started.is_set()
        assert done.is_set(), "run_blocks returned before its worker was done"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        release.set()


@pytest.mark.parametrize("value, expected", [(0.0, np.inf), (np.inf, 0.0)])
def test_rsqrt_of_float32_at_its_ends(value: float, expected: float) -> None:
    """float64 gives inf and 0, float32 gave nan."""
    of = kernel(cell("h[t] = rsqrt(x[t]) + 0 * h[t-1]", name="rsqrt_ends"), "float32")
    got = of.infer({}, {"x": np.full((1, 1), value, np.float32)}).outputs["h"]
    assert got.item() == expected


@pytest.mark.parametrize("value, expected", [(0.0, np.inf), (np.inf, 0.0)])
def test_slope_of_a_root_of_float32_at_its_ends(value: float, expected: float) -> None:
    """float64 gives inf and 0, float32 gave nan for `**0.5`."""
    of = kernel(cell("h[t] = x[t]**0.5 + 0 * h[t-1]", name="root_ends"), "float32")
    run = of.forward({}, {"x": np.full((1, 1), value, np.float32)})
    assert of.backward(run, {"h": np.ones((1, 1), np.float32)}).inputs["x"].item() == expected


# --- crashes and hangs ---


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX timers")
def test_an_interrupt_does_not_leave_the_pool_locked() -> None:
    """Ctrl-C between `acquire` and `try` in `Pool.give`: the lock stays taken, and every later
    call of the process hangs in `take`."""
    script = textwrap.dedent("""
        import faulthandler, random, signal, time
        from rnnspec.backends.cpu.launch.memory import Memory
        def interrupt(*_): raise KeyboardInterrupt
        signal.signal(signal.SIGALRM, interrupt)
        faulthandler.dump_traceback_later(30, exit=True)
        end = time.time() + 12
        while time.time() < end:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-4, 4e-4))
                for _ in range(400):
                    Memory(1000)
            except KeyboardInterrupt:
                pass
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                pass
        print("done")
    """)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "done" in ran.stdout, ran.stderr[-500:]


def test_no_units() -> None:
    """H = 0: ValueError of NumPy's from packing the biases."""
    of = kernel(LEAKY, "float32")
    run = of.forward(of.init(D=3, H=0), {"x": np.ones((5, 2, 3), np.float32)})
    gradients = of.backward(run, {"h": np.zeros((5, 2, 0), np.float32)})
    assert run.outputs["h"].shape == (5, 2, 0)
    assert not gradients.inputs["x"].any()


def test_threads_after_the_main_thread_and_at_exit() -> None:
    """RuntimeError: cannot schedule new futures after shutdown."""
    script = textwrap.dedent("""
        import atexit, threading, time
        from rnnspec.backends.cpu.launch.pool import run_blocks
        done = []
        run_blocks(done.append, [1, 2])
        def late():
            time.sleep(0.5)
            run_blocks(done.append, [1, 2])
            print("late", len(done), flush=True)
        threading.Thread(target=late).start()
        atexit.register(lambda: (run_blocks(done.append, [1, 2]), print("atexit", len(done), flush=True)))
    """)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "late 4" in ran.stdout and "atexit 6" in ran.stdout, ran.stderr[-500:]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_extends_of_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "own.yaml").write_text("rnnspec: 1\nname: own\nextends: pipe.yaml\n")
    script = (
        f"import rnnspec\ntry: rnnspec.load({str(tmp_path / 'own.yaml')!r})\nexcept rnnspec.errors.SpecError as e:"
        " print('refused', e)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=10, check=False)
    assert "refused" in ran.stdout


@pytest.mark.parametrize("value", ["0**-1", "x[t] * 0**-1", "reciprocal(0)"])
def test_constant_divisions_by_zero_are_faults_with_a_place(value: str) -> None:
    """TypeError 'no text for ComplexInfinity'; RnnspecError without a place."""
    with pytest.raises((SpecError, UnsupportedError)) as caught:
        rnnspec.compile(rnnspec.loads(constant_cell(value))).source()
    assert ":6:" in str(caught.value)


def test_a_misaligned_single_number() -> None:
    """`ascontiguousarray` makes [1] of []: 'parameter w has shape (1,), expected ()'."""
    w = np.ndarray((), np.float32, bytearray(8), 1)
    w[...] = 2
    assert kernel(SCALAR, "float32").infer({"w": w}, {"x": np.ones((1, 1), np.float32)}).outputs["h"].item() == 2


def test_shapes_may_be_forgotten_while_a_call_looks_them_up(monkeypatch) -> None:
    """Shapes and plans are cleared by one thread between another's test and its look-up:
    KeyError."""
    of = rnnspec.compile(rnnspec.loads(LEAKY))

    def set_and_emptied(self: Memo, key: object, value: object) -> None:
        dict.__setitem__(self, key, value)
        self.clear()  # what another thread does

    def looked_up_and_emptied(self: Memo, key: object) -> bool:
        found = dict.__contains__(self, key)
        self.clear()
        return found

    monkeypatch.setattr(Memo, "__setitem__", set_and_emptied)
    monkeypatch.setattr(Memo, "__contains__", looked_up_and_emptied)
    params, x = of.init(D=2, H=3), {"x": np.ones((2, 1, 2), np.float32)}
    first = of.infer(params, x).outputs["h"]
    assert np.array_equal(of.infer(params, x).outputs["h"], first)


def test_a_layer_can_be_copied_after_a_call() -> None:
    """TypeError: cannot pickle 'module' object."""
    layer = rnnspec.Recurrent(rnnspec.loads(LEAKY), 2, 3)
    x = np.ones((2, 1, 2), np.float32)
    y, _ = layer(x)
    assert np.array_equal(copy.deepcopy(layer)(x)[0], y)


@pytest.mark.parametrize("name", ["seed", "self"])
def test_sizes_called_like_arguments(name: str) -> None:
    """'init needs the sizes seed of 'c': give seed=...', whatever one gives; TypeError for self.
    Refusing the name would do as well."""
    head = f"rnnspec: 1\nname: c\ninputs: {{x: {name}}}\nstates: {{h: {name}}}\nparameters: {{w: [{name}]}}\n"
    text = head + "equations: |\n  h[t] = w * x[t] + h[t-1]\noutputs: [h]\n"
    try:
        of = rnnspec.compile(rnnspec.loads(text))
    except SpecError:
        return
    assert of.init(**{name: 3})["w"].shape == (3,)


# --- taken in silence ---


def test_what_a_spec_extends_is_not_shown_unless_it_is_a_spec(tmp_path: Path) -> None:
    """An untrusted spec that extends any file had its lines in the message."""
    (tmp_path / "secret.txt").write_text("password-hunter2\n")
    (tmp_path / "own.yaml").write_text(f"rnnspec: 1\nname: own\nextends: {tmp_path / 'secret.txt'}\n")
    with pytest.raises(SpecError) as caught:
        rnnspec.load(tmp_path / "own.yaml")
    assert "hunter2" not in str(caught.value)


def test_more_arrays_than_a_layer_has() -> None:
    layer, x = rnnspec.Recurrent(rnnspec.loads(LEAKY), 2, 3), np.ones((2, 1, 2), np.float32)
    with pytest.raises((ShapeError, TypeError, ValueError)):
        layer((x, x))


def test_more_gradients_than_a_layer_has_outputs() -> None:
    layer, x = rnnspec.Recurrent(rnnspec.loads(LEAKY), 2, 3), np.ones((2, 1, 2), np.float32)
    y, _ = layer(x)
    with pytest.raises((ShapeError, TypeError, ValueError)):
        layer.backward((y, y))


def test_sizes_that_no_cell_has_or_that_disagree() -> None:
    spec = rnnspec.loads(LEAKY)
    with pytest.raises(RnnspecError):
        rnnspec.compile(spec).init(D=2, H=3, Hidden=4)
    with pytest.raises((RnnspecError, ValueError)):
        rnnspec.Recurrent(spec, 2, 3, sizes={"Q": 4})
    with pytest.raises((RnnspecError, ValueError)):
        rnnspec.Recurrent(spec, 2, 3, sizes={"H": 7})


def test_masked_arrays_are_not_read_through_their_mask() -> None:
    of = kernel(LEAKY, "float32")
    x = np.ma.masked_array(np.ones((2, 1, 2), np.float32), mask=True)
    with pytest.raises((DtypeError, TypeError, ValueError)):
        of.infer(of.init(D=2, H=3), {"x": x})


# --- messages that blame the wrong thing ---


def test_step_speaks_of_the_shape_that_was_given() -> None:
    of = kernel(LEAKY, "float32")
    with pytest.raises(ShapeError) as caught:
        of.step(of.init(D=2, H=3), {"x": np.ones((4, 5), np.float32)})
    assert "(4, 5)" in str(caught.value) and "[B, D]" in str(caught.value) and "(1, 4, 5)" not in str(caught.value)


def test_backward_of_something_else_than_a_run() -> None:
    of = kernel(LEAKY, "float32")
    with pytest.raises(TypeError, match="forward"):
        of.backward(of.infer(of.init(D=2, H=3), {"x": np.ones((1, 1, 2), np.float32)}), {})


def test_a_layers_unknown_input_is_called_unknown() -> None:
    layer = rnnspec.Recurrent(rnnspec.loads(LEAKY), 2, 3)
    with pytest.raises(ShapeError, match="unknown input 'q'"):
        layer({"q": np.ones((2, 1, 2), np.float32)})


def test_a_layers_misshapen_weight_has_its_own_name_and_the_expected_shape() -> None:
    layer = rnnspec.Recurrent("lstm", 2, 3)
    layer.params["weight_ih_l0"] = np.zeros((3, 3), np.float32)
    with pytest.raises(ShapeError) as caught:
        layer(np.ones((2, 1, 2), np.float32))
    assert "weight_ih_l0" in str(caught.value) and "(12, 2)" in str(caught.value)


@pytest.mark.parametrize("lengths", [[], [True, False]])
def test_lengths_say_what_is_wrong_with_them(lengths: list[bool]) -> None:
    """An empty list: 'must be integers, got dtype float64', where the shape is what is wrong."""
    of = kernel(LEAKY, "float32")
    with pytest.raises(ValueError, match=r"shape \(2,\)" if not lengths else "integers"):
        of.infer(of.init(D=2, H=3), {"x": np.ones((3, 2, 2), np.float32)}, lengths=lengths)


def test_ragged_lists_name_the_argument() -> None:
    of = kernel(LEAKY, "float32")
    with pytest.raises(RnnspecError, match="input 'x'"):
        of.infer(of.init(D=2, H=3), {"x": [[1.0, 2.0], [3.0]]})


def test_threads_may_be_a_numpy_integer() -> None:
    assert rnnspec.compile(rnnspec.loads(LEAKY), threads=np.int64(2)).threads == 2


def test_the_readme_has_its_figures() -> None:
    assert "\nFIGURES\n" not in (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
