"""Initial values, and which parameters are biases: both follow from the spec."""

from __future__ import annotations

import numpy as np
import pytest
from tiny import cell

import rnnspec
from rnnspec import transform
from rnnspec.engine.initialise import initialise
from rnnspec.errors import SpecError
from rnnspec.language.load import load, loads, spec_names
from rnnspec.language.rewrite import to_yaml
from rnnspec.language.roles import bias_names
from rnnspec.language.sizes import unit_size
from rnnspec.language.spec import Init
from rnnspec.language.transforms.retain import keeping

pytestmark = pytest.mark.filterwarnings("ignore::rnnspec.language.hints.SpecHint")  # loops of which one round is read

SIZES = {"D": 5, "H": 7}
FLOAT64 = np.dtype("float64")


def drawn(shape: str, init: str, seed: int = 0) -> np.ndarray:
    """The values of a parameter of this shape, one matrix or one for each round of a loop."""
    *stack, rows, columns = shape.split()
    equations = "for k in 1..3:\n  a[t, k] = W[k] @ x[t]\nn[t] = a[t, 3]" if stack else "n[t] = W @ x[t]"
    spec = loads(
        cell(
            f"{equations}\nh[t] = n[t]",
            inputs=f"{{x: {columns}}}",
            states=f"{{h: {rows}}}",
            parameters=f"{{W: [{', '.join(shape.split())}]}}",
            init=f"{{W: {init!r}}}",
        )
    )
    return initialise(spec, SIZES, seed, FLOAT64)["W"]


@pytest.mark.parametrize("shape, gain", [("H H", 1.0), ("H D", 1.0), ("D H", 0.9), ("3 H H", 0.5), ("3 D H", 1.0)])
def test_orthogonal_matrices(shape, gain):
    """The shorter side is orthonormal, times the gain; of three axes each matrix by itself."""
    found = drawn(shape, "orthogonal" if gain == 1 else f"orthogonal({gain})")
    matrices = found.reshape(-1, *found.shape[-2:])
    for m in matrices:
        small = m @ m.T if m.shape[0] <= m.shape[1] else m.T @ m
        np.testing.assert_allclose(small, gain**2 * np.eye(len(small)), atol=1e-14)
    assert len({m.tobytes() for m in matrices}) == len(matrices)


def test_orthogonal_matrices_are_drawn_from_all():
    """QR alone gives columns that favour one side of each axis: of 200 matrices half of all first
    entries are positive."""
    signs = [drawn("H H", "orthogonal", seed)[0, 0] > 0 for seed in range(200)]
    assert 70 < sum(signs) < 130  # 4 deviations of a fair coin


def test_identity_matrices():
    np.testing.assert_array_equal(drawn("H H", "identity"), np.eye(7))
    np.testing.assert_array_equal(drawn("3 H D", "identity(0.05)"), np.stack([0.05 * np.eye(7, 5)] * 3))


def test_glorot_counts_one_matrix_of_a_loop():
    found = drawn("3 H D", "glorot_uniform")
    bound = np.sqrt(6 / 12)
    assert 0.9 * bound < np.abs(found).max() <= bound


@pytest.mark.parametrize("init", ["orthogonal", "identity(2)"])
def test_a_vector_is_no_matrix(init):
    with pytest.raises(SpecError, match="is for matrices, and 'b' has the shape"):
        loads(cell("h[t] = b + x[t]", inputs="{x: H}", states="{h: H}", parameters="{b: H}", init=f"{{b: {init}}}"))


def test_gains_are_one_number():
    with pytest.raises(SpecError, match=r"unknown initialiser 'identity\(1, 2\)'"):
        loads(
            cell(
                "h[t] = W @ x[t]",
                inputs="{x: H}",
                states="{h: H}",
                parameters="{W: [H, H]}",
                init='{W: "identity(1, 2)"}',
            )
        )


# --- like: the random numbers of another parameter ---

LIKE = "rnnspec: 1\nname: kept\nextends: lstm\n"


def test_biases_like_those_of_another_gate_are_these_negated():
    spec = loads(LIKE + "init: {b_f: chrono(50), b_i: chrono(-50) like b_f, b_o: chrono(-50)}")
    assert spec.init["b_i"] == Init("chrono", (-50.0,), "b_f")
    values = initialise(spec, {"D": 2, "H": 30}, 3, FLOAT64)
    np.testing.assert_array_equal(values["b_i"], -values["b_f"])
    assert not np.isin(values["b_o"], values["b_i"]).any() and np.ptp(values["b_f"]) > 1


@pytest.mark.parametrize("name", spec_names())
def test_a_cell_with_gates_that_keep_can_be_written_and_read_again(name):
    kept = keeping(load(name), 100)
    again = loads(to_yaml(kept))
    assert again.init == kept.init


def test_where_the_other_gate_is_dropped_the_numbers_are_its_own():
    made = transform.drop_gate(keeping(load("lstm"), 100), "f")
    assert "b_f" not in made.parameters and made.init["b_i"] == Init("chrono", (-100.0,))


@pytest.mark.parametrize(
    "init, message",
    [
        ("{b_i: chrono(-5) like b_k}", "'b_i' is like 'b_k', which is no parameter. Did you mean"),
        (
            "{b_i: chrono(-5) like b_f}",
            "'b_i' is like 'b_f', which draws no numbers by chrono itself. Write b_f: chrono(Tmax), without 'like'.",
        ),
        ("{b_f: chrono(5) like b_i, b_i: chrono(-5) like b_f}", "draws no numbers by chrono itself"),
        ("{b_*: chrono(-5) like b_f}", "'b_f' is like 'b_f', which draws no numbers by chrono itself"),
        ("{W_f: chrono(5), b_i: chrono(-5) like W_f}", "'b_i' [H] is like 'W_f' [H, D]: they need one shape."),
        ("{b_f: chrono(5), b_i: ones like b_f}", "unknown initialiser 'ones like b_f'"),
        ("{b_f: chrono(5), b_i: chrono(-5) like b_f like b_f}", "unknown initialiser"),
    ],
)
def test_what_another_parameter_is_like(init, message):
    with pytest.raises(SpecError) as caught:
        loads(LIKE + f"init: {init}")
    assert message in str(caught.value)


# --- seeds and sizes ---


@pytest.mark.parametrize("seed", [-1, True, 1.5, "7", None])
@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: initialise(load("rnn"), SIZES, seed, FLOAT64),
        lambda seed: rnnspec.compile("rnn").init(D=5, H=7, seed=seed),
        lambda seed: rnnspec.Recurrent("rnn", 5, 7, seed=seed),
    ],
    ids=["initialise", "kernel", "layer"],
)
def test_a_seed_is_a_whole_number(draw, seed):
    with pytest.raises(ValueError, match="seed must be a whole number of at least 0, got"):
        draw(seed)


@pytest.mark.parametrize(
    "states, parameters, units",
    [
        ("{h: K}", "{W: [K, K]}", 400),
        ("{h: H}", "{W: [H, K]}", 100),
        ("{n: [], h: K}", "{W: [K, K], a: []}", 400),
        ("{h: K + H}", "{W: [K + H, K]}", 100),  # H, which `hidden_size` means, though the state has more units
        ("{h: K + N}", "{W: [K + N, K]}", 425),
    ],
)
def test_the_bound_of_uniform_hidden_is_that_of_the_units(states, parameters, units):
    """Of H where the cell has it, else of the size that `hidden_size` of a layer means."""
    more = "\nn[t] = a * n[t-1]" if "n:" in states else ""
    told = next(
        (f", told: {n}" for n in "NH" if n in states and f"h: {n}" not in states), ""
    )  # a size must be an axis of its own somewhere
    equations = (
        "h[t] = tanh(W @ x[t] + h[t-1])" + (" + n[t]" if more else "") + (" + mean(told)" if told else "") + more
    )
    spec = loads(cell(equations, inputs="{x: K}", states=states, parameters=parameters[:-1] + told + "}"))
    sizes = {"K": 400, "H": 100, "N": 25}
    found = np.abs(initialise(spec, sizes, 0, FLOAT64)["W"]).max()
    assert 0.99 < found * np.sqrt(units) <= 1 and sizes.get(unit_size(spec), 425) == units


@pytest.mark.parametrize(
    "name, biases",
    [
        ("lstm", ("b_i", "b_f", "b_g", "b_o")),
        ("gru", ("b_r", "b_z", "b_n", "c_n")),
        ("rhn", ("b_h", "b_t")),
        ("mgu3", ("b_n",)),
        ("lstm_peephole", ("b_i", "b_f", "b_g", "b_o")),
        ("irnn", ("b",)),
        ("indrnn", ("b",)),
        ("fastgrnn", ("b_z", "b_h")),
    ],
)
def test_biases_are_vectors_that_are_only_added(name, biases):
    assert set(bias_names(load(name))) == set(biases)
