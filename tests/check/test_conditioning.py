"""What rounding alone does to a value: how far it excuses an error, and where it tells nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rnnspec import loads
from rnnspec.backends.numbers import FLOAT64, rounded_at_random
from rnnspec.check import check_property
from rnnspec.check.difference import scales, worst
from rnnspec.check.kinds import ArrayKind, Key, Values, flat
from rnnspec.check.outcome import Outcome, Sized
from rnnspec.check.properties.conditioning import measure, rounding_spread
from rnnspec.check.properties.derivatives import agree
from rnnspec.check.run import Property, run_property
from rnnspec.check.sampling import Shapes, UndecidedError, awkward
from rnnspec.check.subject import run_reference, subject
from rnnspec.check.tolerances import FREEDOM, ILL_CONDITIONED, KERNEL, KINK_COMPARISON, REDRAWS, ROUNDING
from rnnspec.language.load import load

SPECS = Path(__file__).resolve().parents[2] / "specs"


def at_a_point(name: str, number: int):
    """Values by the definition at one of the points that kernels are compared at, and the
    definition itself."""
    known = replace(subject(load(name)), dtype="float32")
    drawn = known.draw(awkward(16)[number], f"against the reference {number}", KINK_COMPARISON)
    return run_reference(known, drawn), lambda numbers: run_reference(known, drawn, numbers)


ILL = [
    ("mut2", 0, Key(ArrayKind.OUTPUT, "h")),
    ("ln_lstm_haste", 3, Key(ArrayKind.PARAM_GRADIENT, "g_h")),
]  # terms cancel: a difference of two numbers of 1e-2; of c and its mean over one unit


def moved(values: Values, key: Key, by: float) -> Values:
    """The values with one array moved by a part of what its errors are measured by."""
    array = values[key.kind][key.name] + by * scales(values)[key.kind]
    return {**values, key.kind: {**values[key.kind], key.name: array}}


@pytest.mark.parametrize("name, number, key", ILL)
def test_rounding_where_terms_cancel_is_no_error(name, number, key):
    expected, definition = at_a_point(name, number)
    for seed in (100, 101):
        found = definition(rounded_at_random(ROUNDING["float32"], seed))
        assert measure(found, expected, definition, "float32", KERNEL["float32"])[0] <= KERNEL["float32"]
    spread = rounding_spread(lambda numbers: flat(definition(numbers)), flat(expected), "float32")
    assert spread[key] > KERNEL["float32"] * scales(expected)[key.kind]


def test_the_terms_of_a_product_are_rounded():
    """A product whose terms add up to almost nothing has their rounding errors, in the order of a
    kernel: found by the Hessian of gated_deltanet, at a point whose keys are sums like this one."""
    known = subject(
        loads(
            "rnnspec: 1\nname: sum\ninputs: {x: D}\nstates: {h: H}\nparameters: {W: [H, D]}\n"
            "equations: |\n  h[t] = W @ x[t]\noutputs: [h]\n"
        )
    )
    drawn = known.draw(Shapes(1, 1, {"D": 40, "H": 1}), "terms of a product")
    terms = np.linspace(1, 2, 20, dtype=np.float32)
    x = np.stack([terms, -terms], axis=1).reshape(1, 1, 40) + np.float32(1e-3)
    case = replace(drawn, inputs={"x": x}, params={"W": np.full((1, 40), 1.1, np.float32)})

    def definition(numbers) -> Values:
        return {ArrayKind.OUTPUT: run_reference(known, case, numbers)[ArrayKind.OUTPUT]}

    total = np.float32(0)
    for term in np.float32(1.1) * x[0, 0]:
        total += term
    found = {ArrayKind.OUTPUT: {"h": np.full((1, 1, 1), total, np.float32)}}
    expected = definition(FLOAT64)
    assert worst(found, expected).error > KERNEL["float32"]
    assert measure(found, expected, definition, "float32", KERNEL["float32"])[0] <= KERNEL["float32"]


@pytest.mark.parametrize("name, number, key", ILL)
def test_a_wrong_value_where_terms_cancel_is_caught(name, number, key):
    expected, definition = at_a_point(name, number)
    error, detail = measure(moved(expected, key, 2e-4), expected, definition, "float32", KERNEL["float32"])
    assert error > KERNEL["float32"] and detail.startswith(str(key)) and "rounding alone" in detail


@pytest.mark.parametrize("name, number, parameter", [("lstm", 0, "U_i"), ("mut2", 2, "U_z")])
def test_tolerances_are_as_tight_as_ever_elsewhere(name, number, parameter):
    expected, definition = at_a_point(name, number)
    for kind, array in (
        (ArrayKind.OUTPUT, "h"),
        (ArrayKind.PARAM_GRADIENT, parameter),
        (ArrayKind.STATE_GRADIENT, "h"),
    ):
        wrong = moved(expected, Key(kind, array), 1.1 * KERNEL["float32"])
        assert measure(wrong, expected, definition, "float32", KERNEL["float32"])[0] > KERNEL["float32"], array


def test_where_rounding_explains_more_than_is_excused_another_point_is_asked_for():
    """ltc with a negative dt: a denominator near zero, and states of 1e7. No formula is right or
    wrong there."""
    known = replace(subject(load("ltc")), dtype="float32")
    drawn = known.draw(awkward(8)[1], "every state", KINK_COMPARISON)

    def definition(numbers):
        return {ArrayKind.FINAL: run_reference(known, drawn, numbers)[ArrayKind.FINAL]}

    expected, key = definition(FLOAT64), Key(ArrayKind.FINAL, "v")
    rounding = rounding_spread(lambda numbers: flat(definition(numbers)), flat(expected), "float32")[key]
    part = rounding / scales(expected)[key.kind]
    assert FREEDOM * part > ILL_CONDITIONED * KERNEL["float32"]
    with pytest.raises(UndecidedError, match=r"rounding alone changes it by .*, as much as the error"):
        measure(moved(expected, key, 0.9 * FREEDOM * part), expected, definition, "float32", KERNEL["float32"])
    wrong = moved(expected, key, 1.1 * FREEDOM * part)
    assert measure(wrong, expected, definition, "float32", KERNEL["float32"])[0] > KERNEL["float32"]


@pytest.mark.parametrize("wrong, passes", [(0.0, True), (1.0, False)])
def test_the_first_draw_that_tells_something_counts(wrong, passes):
    asked = []

    def check(known, shapes: Shapes) -> Outcome:
        asked.append(known.draw(shapes, "undecided").inputs["x"])
        if len(asked) < REDRAWS:
            raise UndecidedError("rounding alone")
        return Outcome(wrong, 0.5)

    row = Property("undecided", Sized(check, lambda known: [Shapes(2, 1, (3,))]), False)
    assert run_property(row, lambda: subject(load("lstm")), "reference").passed == passes
    first = {tuple(x.ravel()) for x in asked[:REDRAWS]}
    assert len(first) == REDRAWS, "each is another draw"


def test_a_property_of_which_no_draw_tells_anything_has_failed():
    def check(known, shapes: Shapes) -> Outcome:
        raise UndecidedError("rounding alone")

    row = Property("undecided", Sized(check, lambda known: [Shapes(2, 1, (3,))]), False)
    result = run_property(row, lambda: subject(load("lstm")), "reference")
    assert not result.passed and "rounding alone" in result.detail


def test_an_example_whose_terms_cancel_is_held_to_what_rounding_does_to_it():
    """At this example a sum of 0.07 and -0.05 divides, squared in the gradient."""
    result = check_property("linear_attention", "examples", "float32")
    assert result.passed and "rounding alone" in result.detail


def test_a_wrong_example_is_caught_where_terms_cancel():
    text = (SPECS / "linear_attention.yaml").read_text()
    wrong = loads(text.replace("4.734560532229291", "4.784560532229291"))
    result = check_property(wrong, "examples", "float32")
    assert not result.passed and "the example says" in result.detail


def test_a_gradient_that_vanishes_by_cancelling_is_judged_at_another_point():
    """With relu the query cancels in (v k q) / (k q + eps) but for eps; where the key is 0 too,
    nothing else is left of the gradient of x."""
    result = check_property(
        "linear_attention", "adjoint, complex step", "reference",
        steps=1, rows=1, sizes={"D": 1, "V": 1, "K": 1}, number=1, phi="relu",
    )  # fmt: skip
    assert result.passed, result.detail


def test_what_rounding_does_tells_nothing_of_a_derivative():
    def about(value):
        return lambda numbers: float(numbers.rounded(np.asarray(value + 1.0)) - 1.0) if numbers.rounded else value

    with pytest.raises(UndecidedError, match="as much as the error"):
        agree(1e-16, 0.0, 1e-30, 1e-12, "a gradient", about(1e-16))
    assert not agree(1e-6, 0.0, 1e-30, 1e-12, "a gradient", about(1e-6)).passed  # no rounding does that
