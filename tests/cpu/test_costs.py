"""Threads are taken where they pay on this machine, as measured once."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import rnnspec
from rnnspec.backends.cpu.launch import costs as module
from rnnspec.backends.cpu.launch.costs import Costs, costs, measure, usual
from rnnspec.backends.cpu.launch.execute import execute
from rnnspec.backends.cpu.launch.pool import VARIABLE, default_threads
from rnnspec.backends.cpu.launch.rows import Limits
from rnnspec.backends.cpu.launch.trials import trials

QUICK = {"flops": 5e10, "handover": 5e-6, "waking": 5e-5, "meeting": 3e-7}


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """No measurement known, an empty cache, and nobody who has decided."""
    monkeypatch.setenv("RNNSPEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(module, "KNOWN", {})
    return monkeypatch


@pytest.mark.parametrize(
    ("gain", "useful"),
    [((1.0,), 1), ((1.0, 1.02), 1), ((1.0, 1.9), 2), ((1.0, 1.9, 2.7, 3.5), 4), ((1.0, 1.8, 1.9, 2.9), 2)],
)
def test_threads_that_bring_nothing_are_not_taken(gain, useful):
    """Four names of two cores are two threads, two names of one core are one."""
    found = Costs(gain, **QUICK)
    assert found.useful() == useful
    limits = found.limits(len(gain))
    assert limits.most_threads == useful
    assert limits.of(len(gain)) == useful and limits.of(1) == 1


def test_what_costs_more_must_bring_more():
    cheap = Costs((1.0, 1.9), **QUICK).limits(2)
    slow_to_wake = Costs((1.0, 1.9), **{**QUICK, "waking": 5e-4}).limits(2)
    slow_to_meet = Costs((1.0, 1.9), **{**QUICK, "meeting": 3e-6}).limits(2)
    shared = Costs((1.0, 1.3), **QUICK).limits(2)
    assert slow_to_wake.flops_per_thread > 5 * cheap.flops_per_thread
    assert slow_to_meet.flops_per_barrier == pytest.approx(10 * cheap.flops_per_barrier, rel=1e-4)
    assert shared.flops_per_thread > cheap.flops_per_thread
    assert shared.flops_per_barrier > cheap.flops_per_barrier


def test_a_second_thread_pays_for_itself():
    """At the limit the time that is saved is more than what a hand-over takes."""
    found = Costs((1.0, 1.8), **QUICK)
    alone = 2 * found.limits(2).flops_per_thread / (module.SHARE * found.flops)
    assert alone * (1 - 1 / 1.8) > found.handover + module.SLEEPING * found.waking


def test_measured_once_and_kept(fresh):
    calls = []
    fresh.setattr(module, "measure", lambda n: calls.append(n) or Costs((1.0,) * n, **QUICK))
    first = costs()
    module.KNOWN.clear()  # another process
    assert costs() == first and isinstance(costs().gain, tuple)
    assert calls == [default_threads()] and first.measured


def test_nothing_is_kept_where_others_are_busy(fresh):
    calls = []
    fresh.setattr(module, "measure", lambda n: calls.append(n))
    assert costs() == usual(default_threads()) and not costs().measured
    module.KNOWN.clear()
    costs()
    assert len(calls) == 2


def test_others_that_have_the_processors_are_noticed(monkeypatch):
    """A process that was given no processor's time has measured nothing."""
    monkeypatch.setattr(module.time, "process_time", lambda: 0.0)
    assert measure(1) is None


def test_the_measurement(monkeypatch):
    """By a clock that counts: the arithmetic, not the machine."""
    took = {("work", 1): 1e-3, ("work", 2): 1.25e-3, ("meetings", 2): 3e-4}
    monkeypatch.setattr(module.Bench, "undisturbed", lambda self, kernel, count, rounds: took[kernel, count])
    found = measure(2)
    assert found.gain == (1.0, 1.6) and found.meeting == 3e-4 / module.MEETINGS
    assert found.handover > 0 and found.waking > 0 and found.flops > 0


def test_a_slow_first_call_does_not_shorten_the_work(monkeypatch):
    """It loads the kernels: taken for work it left 4 microseconds of it, less than a hand-over, and
    two threads seemed to do half of what one does."""
    asked, calls = [], []

    def seconds(self, kernel, count, rounds):
        calls.append(rounds)
        return 1.0 if len(calls) == 1 else rounds * 1e-9

    monkeypatch.setattr(module.Bench, "seconds", seconds)
    monkeypatch.setattr(module.Bench, "undisturbed", lambda self, kernel, count, n: asked.append((kernel, n)) or 1e-3)
    measure(2)
    assert min(n for kernel, n in asked if kernel == "work") * 1e-9 >= module.WORK


def test_the_trials_do_what_is_asked():
    """Twice the rounds take longer, and threads that meet all come through."""
    bench = module.Bench(2)
    rounds = 20_000
    assert min(bench.seconds("work", 1, 8 * rounds) for _ in range(5)) > min(
        bench.seconds("work", 1, rounds) for _ in range(5)
    )
    bench.seconds("meetings", 2, 100)
    assert np.frombuffer(bench.barrier, np.uint8).any() and trials().flops >= 2 * 12 * 4
    first = bench.tables[0, 1] - bench.barrier.ctypes.data
    assert bench.barrier[first + 64 : first + 72].view(np.int64)[0] == 100  # rounds that were met in


def test_a_person_decides(fresh):
    fresh.setattr(module, "measure", lambda n: pytest.fail("measured, though somebody has decided"))
    fresh.setenv(VARIABLE, "3")
    assert default_threads() == 3 and rnnspec.compile("lstm").threads == 3 and costs() == usual(3)
    assert rnnspec.compile("lstm", threads=2).threads == 2


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", " "])
def test_what_is_no_number_of_threads(fresh, text):
    fresh.setenv(VARIABLE, text)
    with pytest.raises(ValueError, match=f"{VARIABLE} must be a whole number of at least 1; got {text!r}"):
        default_threads()


def test_little_work_measures_nothing(fresh):
    fresh.setattr(module, "measure", lambda n: pytest.fail("measured for a call of microseconds"))
    kernel = rnnspec.compile("leaky_rnn", threads=2)
    params = kernel.init(D=3, H=5, seed=0)
    kernel.infer(params, {"x": np.zeros((4, 2, 3), np.float32)})


@pytest.mark.parametrize(("gain", "blocks"), [((1.0, 1.0), 1), ((1.0, 2.0), 2)])
def test_kernels_follow_what_was_measured(monkeypatch, gain, blocks):
    monkeypatch.setattr("rnnspec.engine.cpu_plans.costs", lambda: Costs(gain, **QUICK))
    seen = []
    monkeypatch.setattr("rnnspec.engine.cpu.execute", lambda plan, *r, **k: seen.append(plan) or execute(plan, *r, **k))
    kernel = rnnspec.compile("leaky_rnn", threads=2)
    kernel.infer(kernel.init(D=64, H=64, seed=0), {"x": np.zeros((100, 64, 64), np.float32)})
    assert [len(plan.blocks) for plan in seen] == [blocks]


def test_doctor_tells(fresh):
    done = subprocess.run([sys.executable, "-m", "rnnspec", "doctor", "--json"], capture_output=True, text=True)
    told = json.loads(done.stdout)["processor"]
    assert len(told["costs"]["gain"]) == told["threads"] == default_threads()


def test_limits_of_no_measurement():
    assert Limits().of(7) == 7 and Limits(most_threads=2).of(7) == 2
