"""Random specs through the whole engine, and random faults in them; both by Hypothesis, with fixed
seeds.

`pytest tests/check/test_random_specs.py --random-specs 5000` looks at more of them; `rnnspec check
--random 10000 --compiled 50` at many more.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from tolerances import REFERENCE, assert_close

import rnnspec
from rnnspec.backends import reference
from rnnspec.check.random import run as random_run
from rnnspec.check.random.broken import FAULTS, broken_spec
from rnnspec.check.random.run import check_random, check_text
from rnnspec.check.random.specs import random_spec
from rnnspec.check.random.strategies import invalid_specs, specs
from rnnspec.check.sampling import Shapes, draw
from rnnspec.check.subject import subject
from rnnspec.errors import RnnspecError, SpecError
from rnnspec.language.features import FEATURES
from rnnspec.language.functions import FUNCTIONS, INTERNAL
from rnnspec.symbolic.adjoint import adjoint
from rnnspec.symbolic.build import build
from rnnspec.symbolic.once import split_once

FOUND = sorted((Path(__file__).resolve().parents[1] / "found_by_random").glob("*.yaml"))
SECONDS = 3.0  # for one refusal; they take some 20 ms
WHOLE_FILE = {"no format", "no name"}  # have no line to show


def examples(request: pytest.FixtureRequest, few: int) -> settings:
    """Hypothesis's settings: few examples, always the same, or as many as --random-specs says."""
    chosen = request.config.getoption("--random-specs")
    return settings(
        max_examples=chosen or few,
        derandomize=not chosen,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def nothing_wrong(text: str) -> None:
    check_text(text)


def test_random_specs_are_right(request: pytest.FixtureRequest) -> None:
    """Build, adjoint, tangent, schedule, emitted text: `check_text` says what is asserted."""
    examples(request, 25)(given(specs())(nothing_wrong))()


@pytest.mark.parametrize("seed", [3, *(pytest.param(s, marks=pytest.mark.slow) for s in range(20, 32))])
def test_kernels_of_random_specs_are_right(seed: int) -> None:
    kernels_are_right(random_spec(random.Random(seed), f"random_{seed}"), seed)


def kernels_are_right(text: str, seed: int = 0) -> None:
    not_run = [note for note in check_text(text, seed, kernel=True) if note.kind is random_run.Unchecked.KERNELS]
    assert not not_run, "these kernels were to be compared with the reference: take another seed"


@pytest.mark.parametrize(
    "path",
    [p if p.stem == "tapped_product" else pytest.param(p, marks=pytest.mark.slow) for p in FOUND],
    ids=lambda p: p.stem,
)
def test_what_random_specs_once_found(path: Path) -> None:
    kernels_are_right(path.read_text())


def test_random_specs_use_the_whole_language() -> None:
    text = "".join(random_spec(random.Random(seed)) for seed in range(400))
    missing = [n for n in {*FUNCTIONS, *FEATURES} - INTERNAL if f"{n}(" not in text]
    assert not missing
    for part in (
        "[t-3]",
        "choices:",
        "functions:",
        "no_gradient:",
        "constants:",
        "for k in",
        "s[t-1, k]",
        ".T @",
        "M[t-1]",
        " and ",
        "sizes: {P: H}",
        "t / 10",
        "d/dt ",
        "integrate: {method: {",
        "sigmoid(dt[t])'",
    ):
        assert part in text, part


def test_a_random_run_says_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_run, "DOT_PRODUCT", -1.0)
    report = check_random(2, first=7)
    assert not report.passed and "FAILED seed 8: AssertionError: dot product: tangent" in report.to_text()
    assert (
        random_spec(random.Random(8), "random_8") in report.to_text()
        and "2 random specs, 0 of them compiled, 2 failed" in report.to_text()
    )


# --- faults ---


def refuse(fault: str, text: str) -> None:
    """A located error in time, from loading or (for a value like 1 / 0) from building."""
    start = time.process_time()
    with pytest.raises(RnnspecError) as caught:
        build(rnnspec.loads(text))
    assert time.process_time() - start < SECONDS, f"{fault}\n{text}"
    if isinstance(caught.value, SpecError):
        assert caught.value.errors and all(
            e.message and ((e.line > 0 and e.column > 0) or fault in WHOLE_FILE) for e in caught.value.errors
        ), caught.value
    else:
        assert "<text>:" in str(caught.value), caught.value


def test_specs_with_a_fault_are_refused(request: pytest.FixtureRequest) -> None:
    examples(request, 60)(given(invalid_specs())(lambda pair: refuse(*pair)))()


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_every_fault_is_one(fault: str) -> None:
    for seed in range(2):
        rng = random.Random(f"{fault} {seed}")
        refuse(fault, FAULTS[fault](rng, random_spec(rng)))


def test_the_same_seed_is_the_same_spec() -> None:
    assert broken_spec(random.Random(5)) == broken_spec(random.Random(5))
    assert random_spec(random.Random(5)) == random_spec(random.Random(5)) != random_spec(random.Random(6))


# --- what is computed once per sequence ---


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            (Path(__file__).resolve().parents[1] / "found_by_random" / "random_1012.yaml").read_text(), id="1012"
        ),
        *(pytest.param(random_spec(random.Random(s)), id=str(s)) for s in (2, 9)),
    ],
)
def test_what_is_computed_once_can_be_computed_apart(text: str) -> None:
    known = subject(rnnspec.loads(text))
    case, split = draw(known.spec, known.graph, Shapes(3, 2, (3, 4, 2)), 0), split_once(known.graph)
    run = reference.forward(known.graph, case.params, case.inputs, case.states, sizes=case.sizes)
    wanted = reference.backward(
        known.reverse, case.params, case.inputs, run, case.d_outputs, case.d_final, sizes=case.sizes
    )
    params = case.params | reference.once(split.once, case.params, case.sizes)
    run = reference.forward(split.step, params, case.inputs, case.states, sizes=case.sizes)
    found = reference.backward(
        adjoint(split.step), params, case.inputs, run, case.d_outputs, case.d_final, sizes=case.sizes
    )
    more = reference.once_gradients(
        adjoint(split.once), case.params, {o: found.params[o] for o in split.once.outputs}, case.sizes
    )
    for p, gradient in wanted.params.items():
        assert_close(found.params[p] + more.get(p, 0.0), gradient, REFERENCE["float64"], p)
