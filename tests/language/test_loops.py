"""Inner loops and steps back: what they unroll to, what they carry, what is refused, and that
nothing in them can run away."""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest
from tiny import cell

from rnnspec.backends import reference
from rnnspec.check.properties.derivatives import complex_step, dot_product
from rnnspec.check.subject import subject
from rnnspec.errors import RnnspecError, SpecError
from rnnspec.language.load import load, loads
from rnnspec.language.meaning.unroll import MAX_ROUNDS, MAX_UNROLLED
from rnnspec.language.syntax.parse import MAX_DELAY
from rnnspec.language.syntax.tree import Ref, to_text, walk
from rnnspec.lowering.pipeline import stages
from rnnspec.symbolic.build import build

# values that nothing reads are the point of many
pytestmark = pytest.mark.filterwarnings("ignore::rnnspec.language.hints.SpecHint")

VECTORS = {"inputs": "{x: D}", "states": "{h: H}"}


def equations_of(equations: str, **sections: str) -> dict[str, str]:
    settings = sections.pop("settings", {})
    return {e.target: to_text(e.value) for e in loads(cell(equations, **sections), **settings).equations}


# --- loops ---


def test_rounds_become_equations():
    found = equations_of(
        "s[t, 0] = h[t-1]\nfor k in 1..L:\n  s[t, k] = where(k == 1, x[t], 0) + w[k] * s[t, k-1] / k\nh[t] = s[t, L]",
        parameters="{w: [L]}",
        sizes="{L: 3}",
    )
    assert found == {
        "s_0": "h[t-1]",
        "s_1": "x[t] + w[1] * s_0[t] / 1",
        "s_2": "w[2] * s_1[t] / 2",
        "s_3": "w[3] * s_2[t] / 3",
        "h": "s_3[t]",
    }


@pytest.mark.parametrize(
    "sections", [{"sizes": "{L: 2}"}, {"constants": "{L: 2}"}, {"sizes": "{L: {meaning: depth, default: 2}}"}], ids=str
)
def test_the_number_of_rounds_is_a_constant(sections):
    text = cell(
        "s[t, 0] = h[t-1]\nfor k in 1..L:\n  s[t, k] = tanh(U[k] @ s[t, k-1] + x[t])\nh[t] = s[t, L]",
        inputs="{x: H}",
        states="{h: H}",
        parameters="{U: [L, H, H]}",
        **sections,
    )
    assert loads(text).parameters["U"] == ("2", "H", "H") and "L" not in loads(text).sizes
    assert len(loads(text, L=5).equations) == 7
    assert loads(text, L=5).parameters["U"] == ("5", "H", "H")


@pytest.mark.parametrize("value", [0, -1, 2.5, 65])
def test_a_number_of_rounds_that_can_not_be(value):
    text = cell(
        "s[t, 0] = h[t-1]\nfor k in 1..L:\n  s[t, k] = w[k] * s[t, k-1] + x[t]\nh[t] = s[t, L]",
        parameters="{w: [L]}",
        sizes="{L: 2}",
    )
    with pytest.raises(SpecError, match="whole number from 1" if value != 65 else "65 rounds"):
        loads(text, L=value)


def test_a_side_that_is_settled_is_not_even_read():
    found = equations_of(
        "for k in 1..3:\n  s[t, k] = where(k > 1 and not k == 7, s[t, k-1], h[t-1]) + w[k]\nh[t] = s[t, 3] + x[t]",
        parameters="{w: [3]}",
    )
    assert found["s_1"] == "h[t-1] + w[1]" and found["s_2"] == "s_1[t] + w[2]"


def test_rounds_may_run_down_and_skip_and_be_none():
    found = equations_of(
        "u[t, 4] = x[t]\nfor k in 1..3:\n  u[t, 4 - k] = u[t, 5 - k] * 2\nfor k in 1..2:\n  v[t, 2*k] = u[t, 2*k-1]\n"
        "for k in 2..1:\n  w[t, k] = x[t]\nh[t] = v[t, 4] + h[t-1]"
    )
    assert found["u_1"] == "u_2[t] * 2" and found["v_4"] == "u_3[t]" and "w_2" not in found


def test_earlier_steps_of_a_round():
    spec = loads(
        cell(
            "s[t, 0] = x[t]\nfor k in 1..2:\n  s[t, k] = tanh(w[k] * s[t, k-1] + 0.5 * s[t-1, k] - s[t-2, k])\nh[t] ="
            " s[t, 2] + 0 * h[t-1]",
            inputs="{x: H}",
            states="{h: H}",
            parameters="{w: [2, H]}",
        )
    )
    known = subject(spec)
    assert set(known.graph.states) == {"h", "s_1", "s_2", "s_1_1", "s_2_1"}
    assert complex_step(known).passed and dot_product(known).passed


def test_values_computed_once_in_rounds():
    spec = loads(
        cell(
            "for k in 1..2:\n  A[k] = R[k] - R[k].T\ns[t, 0] = h[t-1]\nfor k in 1..2:\n  s[t, k] = tanh(A[k] @ s[t,"
            " k-1] + x[t])\nh[t] = s[t, 2]",
            inputs="{x: H}",
            states="{h: H}",
            parameters="{R: [2, H, H]}",
        )
    )
    assert [e.target for e in spec.equations if not e.timed] == ["A_1", "A_2"]
    assert complex_step(subject(spec)).passed


def test_flat_names_stay_clear_of_others():
    found = equations_of("s[t, 1] = x[t]\ns_1[t] = 2 * x[t]\nh[t] = s[t, 1] + s_1[t] + h[t-1]")
    assert found["s_1_"] == "x[t]" and found["h"] == "s_1_[t] + s_1[t] + h[t-1]"


def test_extending_replaces_all_rounds(tmp_path):
    base = cell(
        "s[t, 0] = h[t-1]\nfor k in 1..2:\n  s[t, k] = w[k] * s[t, k-1] + x[t]\nh[t] = s[t, 2]",
        name="base",
        parameters="{w: [2]}",
    )
    (tmp_path / "base.yaml").write_text(base)
    (tmp_path / "own.yaml").write_text(
        "rnnspec: 1\nname: own\nextends: base.yaml\nequations: |\n  s[t, 2] = x[t] + h[t-1]\n"
    )
    spec = load(tmp_path / "own.yaml")
    assert [e.target for e in spec.equations] == ["s_2", "h"] and not spec.parameters


def test_comments_blank_lines_and_brackets_in_a_loop():
    found = equations_of("for k in 1 .. 2:   # rounds\n\n  # what\n    s[t, k] = (x[t]\n+ k)\nh[t] = s[t, 2] + h[t-1]")
    assert found["s_2"] == "x[t] + 2"


# --- steps back ---


def test_steps_back_are_carried():
    spec = loads(cell("a[t] = x[t-3] + h[t-2] + a[t-2]\nh[t] = a[t] * 0.5 + h[t-d]", constants="{d: 3}"))
    lines = {e.target: to_text(e.value) for e in spec.equations}
    assert (
        lines["x_1"] == "x[t-1]"
        and lines["x_2"] == "x_1[t-1]"
        and lines["h_2"] == "h_1[t-1]"
        and lines["a_1"] == "a[t-1]"
    )
    assert lines["a"] == "x_2[t-1] + h_1[t-1] + a_1[t-1]" and lines["h"] == "a[t] * 0.5 + h_2[t-1]"
    assert min(n.time for e in spec.equations for n in walk(e.value) if isinstance(n, Ref) and n.time is not None) == -1


def test_their_names_stay_clear_of_others():
    spec = loads(cell("h_1[t] = 2 * x[t]\nh[t] = h_1[t] + h[t-2]"))
    assert {e.target: to_text(e.value) for e in spec.equations}["h"] == "h_1[t] + h_1_[t-1]"


@pytest.mark.parametrize("back", [1, 2, 3, 64])
def test_values_of_steps_back(back):
    spec = loads(cell(f"h[t] = 0.5 * h[t-{back}] + x[t-{back}] + 1"))
    x = np.random.default_rng(0).normal(size=(70, 2))
    h = np.zeros((70, 2))
    for t in range(70):
        h[t] = 1 + (0.5 * h[t - back] + x[t - back] if t >= back else 0)
    run = reference.forward(build(spec), {}, {"x": x}, sizes={})
    np.testing.assert_allclose(run.outputs["h"], h, rtol=1e-14)
    assert len(run.final) == 2 * back


def test_the_history_before_the_first_step_is_given_as_states():
    spec = loads(cell("h[t] = h[t-1] + 10 * h[t-2] + 100 * x[t-2]"))
    states = {"h": np.array([1.0]), "h_1": np.array([2.0]), "x_1": np.array([3.0])}
    run = reference.forward(build(spec), {}, {"x": np.zeros((1, 1))}, states, sizes={})
    assert run.outputs["h"][0, 0] == 1 + 20 + 300


def test_kernels_run_steps_back():
    assert {
        s.name
        for s in stages(
            loads(cell("h[t] = tanh(W @ x[t-2] + U @ h[t-3])", **VECTORS, parameters="{W: [H, D], U: [H, H]}"))
        ).forward.states
    } == {"h", "h_1", "h_2", "x", "x_1"}


@pytest.mark.parametrize(
    "equation", ["h[t] = tanh(W @ x[t-2] + U @ h[t-3])", "a[t] = W @ x[t]\nh[t] = a[t-2] + U @ h[t-1] + x[t-1] @ V"]
)
def test_derivatives_of_steps_back(equation):
    parameters = "{W: [H, D], U: [H, H], V: [D, H]}" if "V" in equation else "{W: [H, D], U: [H, H]}"
    known = subject(loads(cell(equation, **VECTORS, parameters=parameters)))
    assert complex_step(known).passed and dot_product(known).passed


def test_no_gradient_reaches_an_input_by_steps_back():
    known = subject(loads(cell("h[t] = 0.5 * h[t-1] + x[t-2] * y[t]", inputs="{x: [], y: []}", no_gradient="[x]")))
    assert set(known.reverse.outputs) == {"y"} and complex_step(known).passed


# --- nothing runs away ---


HOSTILE = {
    "400 names 64 back": "\n".join(f"a{k}[t] = x[t-{MAX_DELAY}] + a{k}[t-{MAX_DELAY}]" for k in range(400)),
    "64 rounds of 400": f"for k in 1..{MAX_ROUNDS}:\n" + "\n".join(f"  a{k}[t, k] = x[t]" for k in range(400)),
    "squares of squares": "s[t, 0] = 2\nfor k in 1..64:\n  s[t, k] = s[t, k-1] * s[t, k-1]",
    "thirds of thirds": "s[t, 0] = 1 / 3\nfor k in 1..64:\n  s[t, k] = s[t, k-1] * s[t, k-1]",
    "powers of rounds": "for k in 1..64:\n  s[t, k] = k ** k * k ** (64 - k) * (k + 7) ** 60",
    "where in where": (
        "s[t, 0] = x[t]\nfor k in 1..64:\n  s[t, k] = " + "where(k > 0, " * 90 + "x[t]" + ", s[t, k-1])" * 90
    ),
    "blanks": "for k in 1" + " " * 50_000 + "..3:\n  s[t, k] = x[t]",
    "huge bounds": "for k in 1..999999999999999999 * 999999999999999999 * 999999999999:\n  s[t, k] = x[t]",
    "doubling": (
        "a0[t] = concat(x[t], x[t])\n" + "\n".join(f"a{k + 1}[t] = concat(a{k}[t], a{k}[t])" for k in range(60))
    ),
    "many heads": "\n".join(f"for k in 1..3:\n  a{k}[t, k] = x[t]" for k in range(1500)),
    "index in index": "s[t, 1] = " + "w[" * 90 + "1" + "]" * 90,
}


@pytest.mark.parametrize("equations", HOSTILE.values(), ids=HOSTILE)
def test_hostile_loops_end_soon(equations):
    start = time.process_time()
    with contextlib.suppress(RnnspecError):
        build(loads(cell(f"{equations}\nh[t] = x[t] + h[t-1]")))
    assert time.process_time() - start < 5


def test_limits():
    def unrolled(rounds: int, lines: int) -> str:
        return cell(
            f"for k in 1..{rounds}:\n"
            + "\n".join(f"  a{n}[t, k] = x[t]" for n in range(lines))
            + "\nh[t] = x[t] + h[t-1]"
        )

    assert len(loads(unrolled(MAX_ROUNDS, 15)).equations) == 961
    with pytest.raises(SpecError, match=f"over {MAX_UNROLLED} equations"):
        loads(unrolled(MAX_ROUNDS, 16))
    with pytest.raises(SpecError, match="65 rounds; 64 is the most"):
        loads(unrolled(65, 1))
