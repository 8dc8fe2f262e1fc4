"""Units split over threads: the same values bit by bit whatever the number of threads, and nothing
that can hang."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from cells import CORE, case, kernel
from forms import FORMS

import rnnspec
from rnnspec.backends.cpu.launch import mailbox, pool
from rnnspec.backends.cpu.launch.rows import Limits
from rnnspec.engine.cpu import CpuKernel

CELLS = [n for n in CORE if n not in ("lstm_cifg", "lstm_1997")] + list(FORMS.values())


@pytest.fixture
def every_block_is_worth_it(monkeypatch):
    monkeypatch.setattr(CpuKernel, "limits", Limits(flops_per_thread=1, flops_per_barrier=1))


def results(name, threads, c):
    own = kernel(name).like(threads=threads)
    run = own.forward(c.params, c.inputs, c.states, c.lengths)
    grad = own.backward(run, c.dy, final=c.dfinal)
    out = own.infer(c.params, c.inputs, c.states, c.lengths)
    return run.saved.plan.parts, [
        *run.outputs.values(),
        *run.states.values(),
        *run.final.values(),
        *grad.params.values(),
        *grad.inputs.values(),
        *grad.states.values(),
        *out.outputs.values(),
        *out.final.values(),
    ]


@pytest.mark.parametrize("name", CELLS, ids=lambda n: n if "\n" not in n else "form")
def test_any_number_of_threads_gives_the_same_bits(name, every_block_is_worth_it):
    for count, lengths, H in (
        (1, None, 19),
        (1, [3], 40),
        (2, [4, 0], 5),
        (2, None, 16),
        (7, [4, 1, 3, 4, 0, 2, 4], 9),
    ):
        given = {"H": H} if "H" in {s for shape in kernel(name).spec.shapes.values() for s in shape} else {}
        c = case(kernel(name), 4, count, lengths=lengths, **given)
        _, alone = results(name, 1, c)
        for threads in (2, 3, 5):
            parts, shared = results(name, threads, c)
            assert 1 <= parts <= threads
            assert lengths is not None or name != "lstm" or parts == threads
            for a, b in zip(alone, shared):
                np.testing.assert_array_equal(b, a)


def test_calls_that_wait_for_each_other_do_not_starve(every_block_is_worth_it):
    """Six calls at once of three threads each: more that wait than there are processors."""
    own = rnnspec.compile("lstm", dtype="float64", threads=3)
    c = case(own, 30, 1, H=40)
    wanted, found = own.infer(c.params, c.inputs).outputs["h"], []

    def call() -> None:
        for _ in range(5):
            found.append(own.infer(c.params, c.inputs).outputs["h"])

    callers = [threading.Thread(target=call, daemon=True) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=120)
    assert len(found) == 30
    for h in found:
        np.testing.assert_array_equal(h, wanted)


def test_an_interrupt_lets_the_others_go(every_block_is_worth_it, monkeypatch):
    own = rnnspec.compile("lstm", dtype="float64", threads=3)
    c = case(own, 30, 1, H=40)
    wanted = own.infer(c.params, c.inputs).outputs["h"]
    real, main = pool.run_blocks, threading.current_thread()

    def interrupted(kernel, *rest):
        def stopped(table: int) -> None:
            if threading.current_thread() is main:
                time.sleep(0.2)  # the others are waiting by now
                raise KeyboardInterrupt
            kernel(table)

        real(stopped, *rest)

    monkeypatch.setattr("rnnspec.backends.cpu.launch.execute.run_blocks", interrupted)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        own.infer(c.params, c.inputs)
    assert time.monotonic() - start < 60
    monkeypatch.setattr("rnnspec.backends.cpu.launch.execute.run_blocks", real)
    np.testing.assert_array_equal(own.infer(c.params, c.inputs).outputs["h"], wanted)


class Interrupting:
    """Calls of the pool whose main part is interrupted while the others wait."""

    def __init__(self, monkeypatch):
        self.real, self.main, self.times = pool.run_blocks, threading.current_thread(), 1
        monkeypatch.setattr("rnnspec.backends.cpu.launch.execute.run_blocks", self)

    def __call__(self, kernel, tables, *rest):
        def stopped(table: int) -> None:
            if self.times > 0 and threading.current_thread() is self.main:
                self.times -= 1
                time.sleep(0.05)
                raise KeyboardInterrupt
            kernel(table)

        self.real(stopped, tables, *rest)


def test_a_stream_that_was_interrupted_says_so_and_is_right_after_reset(every_block_is_worth_it, monkeypatch):
    own = rnnspec.compile("lstm", dtype="float64", threads=3)
    c = case(own, 6, 1, H=40)
    wanted = own.infer(c.params, c.inputs).outputs["h"]
    stream = own.stream(c.params)
    assert stream.stepper.bound.plan.parts == 3
    stream.step({"x": c.inputs["x"][0]})
    Interrupting(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        stream.step({"x": c.inputs["x"][1]})
    with pytest.raises(RuntimeError, match="interrupted"):
        stream.step({"x": c.inputs["x"][1]})
    stream.reset()
    for t in range(6):
        np.testing.assert_array_equal(stream.step({"x": c.inputs["x"][t]})["h"], wanted[t])


def test_low_memory_is_right_after_an_interrupt(every_block_is_worth_it, monkeypatch):
    own = rnnspec.compile("lstm", dtype="float64", threads=3, memory="low")
    c = case(own, 20, 1, H=40)
    run = own.forward(c.params, c.inputs)
    wanted = own.backward(run, c.dy).params
    Interrupting(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        own.backward(run, c.dy)
    for name, a in own.backward(run, c.dy).params.items():
        np.testing.assert_array_equal(a, wanted[name])


def test_interrupts_leave_no_worker_and_no_mailbox_behind(every_block_is_worth_it):
    """Real signals, at any point of the call."""
    own = rnnspec.compile("lstm", dtype="float64", threads=3)
    c = case(own, 60, 1, H=64)
    wanted, caught = own.infer(c.params, c.inputs).outputs["h"], 0
    workers = len(pool.workers.boxes)
    for trial in range(40):
        timer = threading.Timer(0.001 * (trial % 8), lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            timer.start()
            for _ in range(30):
                own.infer(c.params, c.inputs)
            timer.join()
            time.sleep(0.01)
        except KeyboardInterrupt:
            caught += 1
    time.sleep(0.1)
    assert caught > 20 and pool.workers.open <= 3
    assert (
        all(box[0] in (mailbox.OPEN, mailbox.CLOSED) for box, _ in pool.workers.boxes)
        and len(pool.workers.boxes) <= workers + 3
    )
    np.testing.assert_array_equal(own.infer(c.params, c.inputs).outputs["h"], wanted)
