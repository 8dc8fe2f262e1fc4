"""Faults that engines like this one have had (numbered as in the project's list): caches,
processes, threads, forks."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cells import LINEAR_ROWS, case, kernel, ones
from tiny import cell
from tolerances import assert_same

import rnnspec
from rnnspec.backends.cpu.launch.rows import Limits
from rnnspec.engine.cpu import CpuKernel

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("params", "inputs", "states")

# prints h of one step of the cell in the file named by the first argument, x = 1, and the gradient
# of x
ONE_STEP = """
import sys, numpy as np, rnnspec
kernel = rnnspec.compile(sys.argv[1], dtype="float64")
run = kernel.forward({}, {"x": np.ones((1, 1))})
print(run.outputs["h"][0, 0], kernel.backward(run, {"h": np.ones((1, 1))}).inputs["x"][0, 0])
"""


def python(
    script: str, *arguments: str, how: str = "-c", **environment: str | None
) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in {**os.environ, "PYTHONPATH": str(ROOT), **environment}.items() if v is not None}
    command, given = ([sys.executable, "-c", script], None) if how == "-c" else ([sys.executable, "-"], script)
    done = subprocess.run([*command, *arguments], input=given, capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    return done


def scaled(path: Path, factor: str) -> None:
    """A cell file h = factor * x, its times those of the file that was there before."""
    before = path.stat() if path.exists() else None
    path.write_text(cell(f"h[t] = {factor} * x[t]", name=path.stem))
    if before:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_H58_an_edited_cell_is_never_stale_in_one_process(tmp_path):
    path, found = tmp_path / "scaled.yaml", []
    for factor in ("0.5", "0.25"):
        scaled(path, factor)
        of = rnnspec.compile(str(path), dtype="float64")
        run = of.forward({}, {"x": np.ones((1, 1))})
        found.append((run.outputs["h"][0, 0], of.backward(run, ones(run)).inputs["x"][0, 0]))
    assert found == [(0.5, 0.5), (0.25, 0.25)]


def test_H58_an_edited_cell_is_never_stale_in_the_next_process(tmp_path):
    path, found = tmp_path / "scaled.yaml", []
    for factor in ("0.5", "0.25", "0.5"):
        scaled(path, factor)
        found.append(python(ONE_STEP, str(path)).stdout)
    assert found == ["0.5 0.5\n", "0.25 0.25\n", "0.5 0.5\n"]


def test_H59_works_from_the_command_line_and_from_stdin(tmp_path):
    scaled(tmp_path / "scaled.yaml", "0.5")
    for how in ("-c", "-"):
        done = python(ONE_STEP, str(tmp_path / "scaled.yaml"), how=how)
        assert done.stdout == "0.5 0.5\n" and "rror" not in done.stderr


def test_H60_nowhere_to_write_costs_one_warning(tmp_path):
    scaled(tmp_path / "scaled.yaml", "0.5")
    nowhere = tmp_path / "file"
    nowhere.write_text("not a folder")
    done = python(
        ONE_STEP,
        str(tmp_path / "scaled.yaml"),
        RNNSPEC_CACHE_DIR=None,
        HOME=None,
        XDG_CACHE_HOME=str(nowhere / "cache"),
    )
    assert done.stdout == "0.5 0.5\n"
    assert done.stderr.count("Warning") == 1, done.stderr


RNN = """
import hashlib, numpy as np, rnnspec
rng = np.random.default_rng(0)
kernel = rnnspec.compile("rnn", dtype="float64", threads=1)
params = kernel.init(D=3, H=5)
run = kernel.forward(params, {"x": rng.normal(size=(7, 2, 3))})
back = kernel.backward(run, {"h": np.ones((7, 2, 5))})
arrays = [*run.outputs.values(), *back.params.values(), *back.inputs.values()]
print(hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest())
"""


@pytest.mark.slow
def test_H61_four_processes_on_an_empty_cache(tmp_path):
    env = os.environ | {"PYTHONPATH": str(ROOT), "RNNSPEC_CACHE_DIR": str(tmp_path)}
    pipe = subprocess.PIPE
    running = [
        subprocess.Popen([sys.executable, "-c", RNN], stdout=pipe, stderr=pipe, text=True, env=env) for _ in range(4)
    ]
    printed = [process.communicate(timeout=500) for process in running]
    assert [process.returncode for process in running] == [0] * 4, printed
    assert len({out for out, _ in printed}) == 1
    assert not list(tmp_path.rglob("*.tmp"))
    assert python(RNN, RNNSPEC_CACHE_DIR=str(tmp_path)).stdout == printed[0][0]


WARM = """
import time
start = time.perf_counter()
import sys, numpy as np, rnnspec
kernel = rnnspec.compile(rnnspec.loads(sys.argv[1]), dtype="float64")
run = kernel.forward({"w": np.ones(2), "u": np.ones(2)}, {"x": np.ones((3, 1, 2))})
kernel.backward(run, {"h": np.ones((3, 1, 2))})
kernel.infer({"w": np.ones(2), "u": np.ones(2)}, {"x": np.ones((3, 1, 2))})
print("sympy" in sys.modules, "numba" in sys.modules, time.perf_counter() - start)
"""


def test_a_warm_process_compiles_nothing_and_imports_no_sympy_and_no_numba(record_property):
    """Machine code can't be made without Numba."""
    python(WARM, LINEAR_ROWS)
    sympy, numba, seconds = python(WARM, LINEAR_ROWS).stdout.split()
    record_property("seconds", seconds)
    print(f"a warm process took {float(seconds):.2f} s")
    assert (sympy, numba) == ("False", "False")
    assert float(seconds) < 30


@pytest.fixture
def spread(monkeypatch) -> Iterator[None]:
    """Every call with more rows than one uses all its threads."""
    monkeypatch.setattr(CpuKernel, "limits", Limits(flops_per_thread=1))
    yield


@pytest.mark.parametrize("width", [1, 16])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_H62_threads_lose_no_weight_gradient(width, dtype, spread):
    of = kernel(LINEAR_ROWS, dtype, 4)
    x, params = np.ones((1, 20000, width), dtype), {"w": np.ones(width, dtype), "u": np.ones(width, dtype)}
    for _ in range(50):
        run = of.forward(params, {"x": x})
        assert run.saved.plan.parts == 4
        back = of.backward(run, {"h": np.broadcast_to(np.ones((), dtype), x.shape)})
        assert (back.params["w"] == 20000).all() and (back.params["u"] == 0).all()


def test_threads_change_no_bit_but_in_sums_over_rows(spread):
    single, several = (
        case(kernel("lstm", "float32", threads), 9, 7, lengths=[9, 1, 4, 0, 8, 9, 2], D=3, H=33) for threads in (1, 4)
    )
    run, other = single.forward(), several.forward()
    assert_same(other.outputs, run.outputs)
    assert_same(other.final, run.final)
    back, other_back = single.backward(run), several.backward(other)
    assert_same(other_back.inputs, back.inputs)
    assert_same(other_back.states, back.states)
    again = several.backward()
    assert_same(again.params, other_back.params, "not the same from call to call:")


def results(threads: int, lengths: list[int] | None = None) -> list[dict[str, np.ndarray]]:
    one = case(kernel("lstm", "float32", threads), 9, 7, lengths=lengths, D=3, H=33)
    run = one.forward()
    back = one.backward(run)
    return [run.outputs, run.final, *(getattr(back, kind) for kind in KINDS)]


@pytest.mark.parametrize("lengths", [None, [9, 1, 4, 0, 8, 9, 2]])
def test_H64_four_python_threads_at_once(lengths, spread):
    right, wrong = results(2, lengths), []

    def work() -> None:
        try:
            for _ in range(30):
                for found, expected in zip(results(2, lengths), right):
                    assert_same(found, expected)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def test_threads_that_call_with_ever_other_shapes():
    """What a kernel remembers of shapes is thrown away while others read it."""
    of, wrong = kernel("rnn", "float64"), []

    def work(seed: int) -> None:
        try:
            params = of.init(D=1, H=1)
            for k in range(400):
                steps = 1 + (k * 7 + seed * 101) % 331
                assert of.infer(params, {"x": np.zeros((steps, 1, 1))}).outputs["h"].shape == (steps, 1, 1)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def test_a_fork_after_use_works_in_the_child_and_the_parent(spread):
    right = results(2)
    child = os.fork()
    if child == 0:
        try:
            for found, expected in zip(results(2), right):
                assert_same(found, expected)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    for found, expected in zip(results(2), right):
        assert_same(found, expected)


def _outputs(threads: int) -> bytes:
    return results(threads)[0]["h"].tobytes()


def test_multiprocessing_by_fork(spread):
    right = _outputs(2)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map_async(_outputs, [2, 2, 2, 2]).get(timeout=120) == [right] * 4


def test_a_fork_while_another_thread_calls(spread):
    """Locks that the other thread holds at the fork do not stop the child."""
    right, stop = results(2), threading.Event()

    def work() -> None:
        while not stop.is_set():
            results(2)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                try:
                    assert_same(results(2)[0], right[0])
                    os._exit(0)
                finally:
                    os._exit(1)
            for _ in range(1200):
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    break
                threading.Event().wait(0.05)
            else:
                os.kill(child, 9)
                os.waitpid(child, 0)
                pytest.fail("the child hangs")
            assert status == 0
    finally:
        stop.set()
        thread.join()
