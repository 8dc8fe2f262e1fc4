"""A child that is forked while other threads call, make kernels for the first time or import what
makes them works, and ends."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path

import pytest

from rnnspec.storage.locks import Lock, making, once_only

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system can't fork")
ROOT = Path(__file__).resolve().parents[2]
# the second makes them anew by itself; the third starts processes that are no forks
ALLOWED = {"storage/locks.py", "backends/cpu/launch/pool.py", "study/workers.py"}

# Prints how many children did not end well. `first`: forks begin before anything is imported.
SCRIPT = """
import faulthandler, itertools, os, random, signal, sys, threading, time, warnings
import numpy as np
import rnnspec
from rnnspec.backends.cpu.launch.rows import Limits

warnings.simplefilter("ignore")
forks, seed, makes = map(int, sys.argv[1:4])
pause, first = float(sys.argv[4]), sys.argv[5] == "first"
draw, stop, numbers = random.Random(seed), threading.Event(), itertools.count()
TEXT = '''rnnspec: 1
name: c
inputs: {x: D}
states: {h: H}
parameters: {W: [H, D], U: [H, H]}
equations: |
  h[t] = tanh(W @ x[t] + U @ h[t-1]) * 0.1%d
outputs: [h]
'''
x = np.ones((4, 3, 2), np.float32)

def cell(number):
    return rnnspec.loads(TEXT % number)

def use(kernel):
    params = kernel.init(D=2, H=3)
    run = kernel.forward(params, {"x": x})
    return float(kernel.backward(run, {"h": run.outputs["h"]}).inputs["x"].sum())

def new(spec):
    kernel = rnnspec.compile(spec, threads=2)
    kernel.limits = Limits(flops_per_thread=1)  # small as it is, by both threads
    return kernel

def make():
    while not stop.is_set() and (number := next(numbers)) < makes:
        use(new(cell(seed * 1000 + number)))
        time.sleep(draw.random() * 4 * pause)

def call():
    kernel = new(cell(5))
    while not stop.is_set():
        use(kernel)
        time.sleep(0.0005)

if not first:
    known, right = new(cell(5)), use(new(cell(5)))
threads = [threading.Thread(target=work) for work in (make, make, call, call)]
for thread in threads:
    thread.start()
bad = 0
for number in range(forks):
    time.sleep(draw.random() * pause)
    child = os.fork()
    if child == 0:
        try:
            faulthandler.register(signal.SIGALRM, chain=True)  # says where it hangs, then ends it
            signal.alarm(120)
            if first:
                new(cell(5)).infer({"W": np.ones((3, 2), np.float32), "U": np.ones((3, 3), np.float32)}, {"x": x})
            else:
                assert use(known) == right and use(new(cell(5))) == right
            if number % 50 == 49:
                use(new(cell(900_000_000 + number)))
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(1)
    bad += os.waitpid(child, 0)[1] != 0
stop.set()
for thread in threads:
    thread.join()
print(bad)
"""


def failures(folder: Path, forks: int, makes: int, *, seed: int = 0, pause: float = 0.02, first: bool = False) -> int:
    """How many children of so many forks did not end well, with the cache in `folder`. makes: how
    many cells two threads beside make kernels of."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, (forks, seed, makes, pause)), "first" if first else "later"],
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RNNSPEC_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr
    print(done.stderr)  # where those that hung hang
    return int(done.stdout)


def test_thirty_forks_beside_calls_and_first_compilations(tmp_path):
    assert failures(tmp_path, 30, 2) == 0


def test_forks_while_another_thread_imports_the_compiler(tmp_path):
    assert failures(tmp_path, 2, 1, pause=0.3, first=True) == 0


@pytest.mark.slow
def test_a_thousand_forks(tmp_path):
    assert failures(tmp_path / "calls", 900, 200) == 0
    for seed in range(20):
        assert failures(tmp_path / str(seed), 5, 2, seed=seed, pause=0.1 + 0.05 * seed, first=True) == 0


def child_of(work) -> int:
    """The exit code of a forked child that does `work`, 99 after ten seconds."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    for _ in range(1000):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return 99


@pytest.fixture
def beside():
    """Runs a function in another thread, up to the point where it has called what it is given."""
    threads = []

    def start(work) -> None:
        begun = threading.Event()
        threads.append(threading.Thread(target=work, args=(begun.set,)))
        threads[-1].start()
        assert begun.wait(10)

    yield start
    for thread in threads:
        thread.join()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_lock_that_another_thread_holds_is_free_in_the_child(beside):
    lock, go = Lock(), threading.Event()

    def hold(begun) -> None:
        with lock:
            begun()
            go.wait(20)

    def take() -> None:
        with lock, lock:
            pass

    beside(hold)
    try:
        assert child_of(take) == 0
    finally:
        go.set()
    take()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_lock_of_the_thread_that_forks_stays_its_own():
    lock = Lock()

    def still_held() -> None:
        lock.__exit__()
        with pytest.raises(RuntimeError):
            lock.__exit__()

    with lock:
        assert child_of(still_held) == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_waits_for_who_is_making_and_who_comes_waits_for_the_fork(beside):
    ended = []

    def make(begun) -> None:
        with making, making:
            begun()
            time.sleep(0.3)
            ended.append(1)

    def look() -> None:
        with making:
            assert ended

    beside(make)
    assert child_of(look) == 0 and ended
    with making:  # from inside nothing is waited for
        assert child_of(look) == 0
    assert not making.inside and not making.forks


def test_a_property_is_kept_and_the_same_for_all_threads():
    class Thing:
        @once_only
        def value(self) -> object:
            """What it is."""
            time.sleep(0.05)
            return object()

    thing, found = Thing(), []
    threads = [threading.Thread(target=lambda: found.append(thing.value)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1 and found[0] is thing.value and Thing.value.__doc__ == "What it is."


@cache
def sources() -> dict[str, ast.Module]:
    top = ROOT / "rnnspec"
    return {p.relative_to(top).as_posix(): ast.parse(p.read_text(encoding="utf-8")) for p in top.rglob("*.py")}


def test_every_lock_is_one_that_no_fork_leaves_held():
    """No module but two imports what could be locked at a fork."""
    for name, tree in sources().items():
        for node in ast.walk(tree):
            found = [a.name for a in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            assert name in ALLOWED or not {"threading", "cached_property", "multiprocessing"} & set(found), name


LAZY = ("random", "linalg", "ma", "fft", "polynomial", "testing", "char", "rec")


@pytest.mark.parametrize("room", ["engine", "layers", "backends/cpu", "storage"])
def test_what_numpy_imports_when_first_asked_for_is_asked_for_inside_making(room):
    """In annotations alone a part of NumPy may stand: those are texts."""
    for path in (ROOT / "rnnspec" / room).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = {
            id(part)
            for node in ast.walk(tree)
            for hint in (getattr(node, "annotation", None), getattr(node, "returns", None))
            if hint is not None
            for part in ast.walk(hint)
        }
        for node in ast.walk(tree):
            lazy = isinstance(node, ast.Attribute) and node.attr in LAZY and isinstance(node.value, ast.Name)
            if lazy and node.value.id == "np" and id(node) not in texts:
                raise AssertionError(f"{path.name}, line {node.lineno}: numpy_part({node.attr!r})")
