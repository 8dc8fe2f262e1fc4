"""Whatever a file says: every stage that it reaches takes at most 2 s and 200 MB, or says what is
too large."""

from __future__ import annotations

import gc
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from mutated import mutated
from sympy.core.cache import clear_cache
from tiny import cell

from rnnspec.backends.cpu.emit.emission import Target
from rnnspec.backends.cpu.emit.kernel import emit
from rnnspec.compare.normal import Leaf, Table, normal_forms
from rnnspec.errors import RnnspecError, SpecError, UnsupportedError
from rnnspec.language.load import digest, loads
from rnnspec.language.rewrite import to_yaml
from rnnspec.language.syntax.tree import fresh
from rnnspec.lowering.pipeline import MODES, graphs, stages
from rnnspec.show.drawing.svg import svg
from rnnspec.show.page import show
from rnnspec.symbolic.adjoint import adjoint
from rnnspec.symbolic.build import build
from rnnspec.symbolic.once import split_once
from rnnspec.symbolic.simplify import split_sums
from rnnspec.symbolic.tangent import tangent

pytestmark = pytest.mark.filterwarnings("ignore::rnnspec.language.hints.SpecHint")  # specs are mutated at random

SECONDS, MEGABYTES = 2.0, 200
Made = Mapping[str, Any]
STAGES: dict[str, Callable[[Made], Any]] = {
    "load": lambda made: loads(made["text"]),
    "digest": lambda made: digest(made["load"]),
    "yaml": lambda made: to_yaml(made["load"]),
    "build": lambda made: build(made["load"]),
    "adjoint": lambda made: split_sums(adjoint(made["build"], made["load"].no_gradient)),
    "tangent": lambda made: tangent(made["build"], made["load"].no_gradient),
    "once": lambda made: split_once(made["build"]),
    "schedule": lambda made: stages(made["load"]),
    "emit": lambda made: [emit(getattr(made["schedule"], m), Target("float32", 8, 16), "0") for m in MODES],
    "texts": lambda made: [
        made["schedule"].graph.to_text(),
        made["schedule"].adjoint.to_text(),
        *(getattr(made["schedule"], m).to_text() for m in MODES),
    ],
    "show": lambda made: show(made["load"]),
    "latex": lambda made: show(made["load"], latex=True),
    "drawing": lambda made: svg(made["load"]),
    "forms": lambda made: normal_forms(made["build"], Table(), lambda n: Leaf("a", n), lambda kind, n: n),
}


def run(text: str, made: dict[str, Any]) -> Iterator[tuple[str, float, float]]:
    """Each stage that is reached, with its seconds and by how many megabytes the process grew."""
    made["text"] = text
    for name, stage in STAGES.items():
        if name == "schedule":
            graphs(made["load"])  # they were measured, and are kept
        start, before = time.thread_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            made[name] = stage(made)
        except (SpecError, UnsupportedError) as error:
            made["refused"] = f"{name}: {error}"
            if name in ("load", "build", "adjoint", "schedule"):
                return
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        yield name, time.thread_time() - start, grown / 2**10


def forget() -> None:
    """Nothing that the stages have kept makes them faster the next time."""
    clear_cache()
    for name, module in list(sys.modules.items()):
        if name.startswith(("rnnspec.symbolic", "rnnspec.lowering", "rnnspec.compare", "rnnspec.backends.cpu.emit")):
            for kept in vars(module).values():
                if hasattr(kept, "cache_clear"):
                    kept.cache_clear()


def bounded(text: str, times: int = 3) -> dict[str, Any]:
    """A stage that seems too slow is run again: what it takes is the least of three times, since a
    neighbour on the processor and garbage of the tests before it lengthen one, and are not its
    work."""
    made: dict[str, Any] = {}
    gc.freeze()
    try:
        for name, seconds, megabytes in run(text, made):
            assert megabytes < MEGABYTES, f"{name} took {megabytes:.0f} MB"
            if seconds >= SECONDS:
                assert times > 1, f"{name} took {seconds:.1f} s"
                forget()
                return bounded(text, times - 1)
    finally:
        gc.unfreeze()
    return made


def test_a_stage_that_is_slow_each_time_is_seen(monkeypatch):
    def slow(made: Made) -> None:
        calls.append(time.thread_time())
        while time.thread_time() < calls[-1] + 0.02:
            pass

    calls: list[float] = []
    monkeypatch.setitem(STAGES, "load", slow)
    monkeypatch.setitem(globals(), "SECONDS", 0.01)
    with pytest.raises(AssertionError, match=r"load took 0\.0 s"):
        bounded("")
    assert len(calls) == 3


WIDE = {"inputs": "{x: D}", "states": "{h: D}"}


def nested(body: str, depth: int) -> str:
    return cell(f"h[t] = {'f(' * depth}x[t]{')' * depth} + h[t-1]", functions=f"\n  f(a): {body}", **WIDE)


def chain(first: str, then: str, count: int) -> str:
    """Equations each of which reads the two before it."""
    lines = [first.replace("v", f"v{k}", 1) for k in (0, 1)]
    lines += [then.format(k=k, a=f"v{k - 1}", b=f"v{k - 2}") for k in range(2, count)]
    return cell("\n".join([*lines, f"h[t] = v{count - 1}[t] + h[t-1]"]), parameters="{W: [D, D]}", **WIDE)


LARGE = {
    "squares": nested("a * a", 10),
    "quotients": nested("a / (1 + a * a)", 6),
    "choices": nested("where(a > 0, a, 0.5 * a * a)", 5),
    "products of choices": nested("where(a > 0, a, a * a) * where(a > 1, a, a + a)", 3),
    "a long product of choices": cell(
        "h[t] = h[t-1] * " + " * ".join(f"where(x[t] > {k}, x[t] + {k}, {k})" for k in range(1, 90))
    ),
    "gelu": nested("gelu(a)", 30),
    "gelu, read twice": nested("gelu(a) * a", 6),
    "softmax": nested("softmax(a)", 90),
    "a sum of two before": chain("v[t] = x[t]", "v{k}[t] = {a}[t] + 0.5 * {b}[t] + sum(W @ x[t])", 60),
    "a product of two before": chain("v[t] = W @ x[t]", "v{k}[t] = tanh({a}[t] * {b}[t])", 60),
    "a long polynomial": cell("h[t] = h[t-1] * (" + ") * (".join(f"x[t] + {k}" for k in range(1, 80)) + ")"),
    "digits": chain("v[t] = W @ x[t] * 0.3", "v{k}[t] = {a}[t] * {b}[t] * 0.7", 60),
}
UNROLLED = "".join(
    f"{c}[t, 0] = {p}\nfor k in 1..60:\n  {c}[t, k] = tanh({c}[t, k-1] * 0.9)\n"
    for c, p in zip("abcdefgijlmnopqr", ["x[t]", *(f"{c}[t, 60]" for c in "abcdefgijlmnopqr")])
)
LARGE["960 unrolled equations"] = cell(UNROLLED + "h[t] = h[t-1] + r[t, 60]", **WIDE)


@pytest.mark.parametrize("name", LARGE)
def test_what_is_large_written_out_is_bounded_in_every_stage(name):
    made = bounded(LARGE[name])
    assert "load" in made or "larger than" in made["refused"], made["refused"]


def test_large_expressions_compute_what_is_written():
    """Cut into nodes, an expression still is the same operations in the same order."""
    import numpy as np

    from rnnspec.backends.reference import backward, forward

    text = cell(
        "h[t] = 0 * h[t-1] + " + " * ".join(f"where(x[t] > {k}, x[t] / {k}, x[t] - {k})" for k in range(1, 40)), **WIDE
    )
    graph = build(loads(text))
    x = np.linspace(-3, 45, 97)
    sizes, inputs = {"D": len(x)}, {"x": x[None, None]}
    found = forward(graph, {}, inputs, sizes=sizes)
    wanted, slope = np.ones_like(x), np.zeros_like(x)
    for k in range(1, 40):
        factor, change = np.where(x > k, x / k, x - k), np.where(x > k, 1 / k, 1)
        wanted, slope = wanted * factor, slope * factor + wanted * change
    assert np.array_equal(found.outputs["h"][0, 0], wanted)
    assert len(graph.nodes) > 10
    made = backward(adjoint(graph), {}, inputs, found, {"h": np.ones((1, 1, len(x)))}, sizes=sizes).inputs["x"][0, 0]
    np.testing.assert_allclose(made, slope, rtol=1e-12, atol=1e-12 * abs(slope).max())


def test_names_stay_short():
    taken: set[str] = set()
    for _ in range(3000):
        taken.add(fresh("v", taken))
    assert len(taken) == 3000
    assert max(map(len, taken)) < 20


def _tried(count: int, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(count):
        text = mutated(rng)
        try:
            bounded(text)
        except (AssertionError, RnnspecError, Exception) as error:
            raise AssertionError(f"mutation {number} of seed {seed}: {error!r}\n{text}") from error


def test_mutated_specs_are_refused_or_bounded():
    _tried(100, 0)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(1, 41))
def test_many_mutated_specs_are_refused_or_bounded(seed):
    _tried(500, seed)
