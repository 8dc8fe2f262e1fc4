"""Regularisers: each transform of each cell against a plain NumPy loop with the same noise, values
and gradients, in training and evaluation."""

from __future__ import annotations

from collections.abc import Callable

import noisy_cells
import numpy as np
import pytest
from cells import whole_sizes
from tiny import cell
from tolerances import REFERENCE, assert_close

from rnnspec import transform
from rnnspec.backends import reference
from rnnspec.compare.verdict import diff
from rnnspec.engine import noise
from rnnspec.errors import RnnspecError
from rnnspec.language.load import digest, load, loads
from rnnspec.language.sizes import full_shape
from rnnspec.language.spec import Spec
from rnnspec.symbolic.adjoint import adjoint
from rnnspec.symbolic.build import build

T, B, SEED = 5, 3, 11
TRANSFORMS: dict[str, Callable[[Spec], Spec]] = {
    "zoneout": lambda s: transform.zoneout(s, 0.4),
    "recurrent_dropout": lambda s: transform.recurrent_dropout(s, 0.3),
    "recurrent_dropout per step": lambda s: transform.recurrent_dropout(s, 0.3, per="step"),
    "dropconnect": lambda s: transform.dropconnect(s, 0.5),
    "input_dropout": lambda s: transform.input_dropout(s, x=0.3),
    "state_noise": lambda s: transform.state_noise(s, 0.5),
    "all": lambda s: transform.zoneout(
        transform.state_noise(
            transform.dropconnect(transform.recurrent_dropout(transform.input_dropout(s, 0.2), 0.2), 0.3), 0.1
        ),
        0.2,
    ),
}
CANDIDATES = {"lstm": "g", "lstm_projected": "g", "gru": "n", "gru_reset_before": "n"}
NEUTRAL = (
    "recurrent_dropout",
    "recurrent_dropout per step",
    "dropconnect",
    "input_dropout",
    "state_noise",
)  # at evaluation nothing is left of them


def arrays(spec, training: bool):
    """Parameters, inputs and states with the noise among them."""
    rng, sizes = np.random.default_rng(SEED), whole_sizes(spec)

    params = {n: rng.uniform(-1, 1, full_shape(s, sizes)) for n, s in spec.trained.items()}
    inputs = {n: rng.uniform(-1, 1, (T, B, *full_shape(s, sizes))) for n, s in spec.streams.items()}
    states = {n: rng.uniform(-0.5, 0.5, (B, *full_shape(s, sizes))) for n, s in spec.states.items()}
    made = noise.draw(spec, sizes, T, B, SEED, "float64") if training else noise.mean(spec, sizes, T, B, "float64")
    params |= {n: a for n, a in made.items() if n in spec.parameters}
    inputs |= {n: a for n, a in made.items() if n in spec.inputs}
    return sizes, params, inputs, states


def against_the_loop(name: str, spec, training: bool, clipped: bool = False) -> None:
    """Outputs and final states equal, and every gradient along a random direction equal to a
    complex step through the loop."""
    sizes, params, inputs, states = arrays(spec, training)
    graph = build(spec)
    run = reference.forward(graph, params, inputs, states, sizes=sizes)
    values, final = noisy_cells.run(name, params, inputs, states, clipped)
    assert_close(run.outputs, {o: values[o] for o in spec.outputs}, REFERENCE["float64"], "outputs")
    assert_close(run.final, final, REFERENCE["float64"], "final states")
    rng = np.random.default_rng(1)
    dy = {o: rng.uniform(-1, 1, a.shape) for o, a in run.outputs.items()}
    dfinal = {s: rng.uniform(-1, 1, a.shape) for s, a in run.final.items()}
    reverse = adjoint(graph, spec.no_gradient)
    grads = reference.backward(reverse, params, inputs, run, dy, dfinal, sizes=sizes)
    assert set(reverse.sums) == set(spec.trained) and set(grads.inputs) == set(
        spec.streams
    )  # of noise none is computed
    for group, found, given in ((params, grads.params, 0), (inputs, grads.inputs, 1), (states, grads.states, 2)):
        for n in (k for k in group if k not in spec.noise):
            direction = rng.uniform(-1, 1, group[n].shape)
            moved = [params, inputs, states]
            moved[given] = group | {n: group[n] + 1e-40j * direction}
            values, final = noisy_cells.run(name, *moved, clipped)
            loss = sum((g * values[o]).sum() for o, g in dy.items()) + sum(
                (g * final[s]).sum() for s, g in dfinal.items()
            )
            assert_close((found[n] * direction).sum(), loss.imag / 1e-40, REFERENCE["float64"], f"gradient of {n}")


@pytest.mark.parametrize("what", TRANSFORMS)
@pytest.mark.parametrize("name", ["lstm", "gru_reset_before", "elman_two_layer"])
def test_it_is_the_loop_with_the_same_noise(name, what):
    spec = TRANSFORMS[what](load(name))
    assert spec.noise and spec.trained == load(name).parameters and spec.streams == load(name).inputs
    against_the_loop(name, spec, training=True)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", noisy_cells.STEPS)
def test_all_at_once_are_the_loop_in_training_and_at_evaluation(name, training):
    against_the_loop(name, TRANSFORMS["all"](load(name)), training)


@pytest.mark.parametrize("per", ["step", "sequence"])
@pytest.mark.parametrize("name", CANDIDATES)
def test_a_dropped_candidate_is_the_loop_too(name, per):
    spec = transform.candidate_dropout(load(name), 0.4, per=per)
    assert {n: d.per for n, d in spec.noise.items()} == {f"mask_{CANDIDATES[name]}": per}
    against_the_loop(name, spec, training=True)


@pytest.mark.parametrize(
    "name, change",
    [
        ("lstm", lambda s: transform.clip_cell(s, noisy_cells.LIMIT)),
        (
            "lstm_projected",
            lambda s: transform.clip_projection(transform.clip_cell(s, noisy_cells.LIMIT), noisy_cells.LIMIT),
        ),
        ("gru", lambda s: transform.clip_cell(s, noisy_cells.LIMIT, state="h")),
        ("rnn", lambda s: transform.clip_cell(s, noisy_cells.LIMIT, state="h")),
        ("elman_two_layer", lambda s: transform.clip_cell(s, noisy_cells.LIMIT, state="h1")),
    ],
)
def test_clips_are_the_loop(name, change):
    spec = change(load(name))
    against_the_loop(name, spec, training=True, clipped=True)
    sizes, params, inputs, states = arrays(spec, training=True)
    run = reference.forward(build(spec), params, inputs, states, sizes=sizes)
    assert max(np.abs(a).max() for a in run.states.values()) >= noisy_cells.LIMIT  # something was clipped


def test_clips_are_those_of_tensorflow():
    assert diff(transform.clip_cell(load("lstm"), 50), load("lstm_tf", forget_bias=0)).same
    clipped = transform.clip_projection(transform.clip_cell(load("lstm_projected"), 50), 50)
    assert diff(clipped, load("lstm_tf_projected", forget_bias=0)).same


@pytest.mark.parametrize("what", NEUTRAL)
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_dropout_and_noise_are_gone_at_evaluation(name, what):
    spec = TRANSFORMS[what](load(name))
    sizes, params, inputs, states = arrays(spec, training=False)
    found = reference.forward(build(spec), params, inputs, states, sizes=sizes)
    plain = reference.forward(build(load(name)), params, {"x": inputs["x"]}, states, sizes=sizes)
    assert_close(found.outputs, plain.outputs, REFERENCE["float64"])


@pytest.mark.parametrize("what", TRANSFORMS)
def test_a_file_has_it_all(what):
    spec = TRANSFORMS[what](load("lstm"))
    again = loads(transform.to_yaml(spec))
    assert again.noise == spec.noise and again.no_gradient == spec.no_gradient
    assert again.shapes == spec.shapes and again.inputs == spec.inputs and again.parameters == spec.parameters
    assert {e.target: e.value for e in again.equations} == {e.target: e.value for e in spec.equations}
    assert again.layouts == spec.layouts == load("lstm").layouts  # masks are no weights: torch's still fit


@pytest.mark.parametrize(
    "says, change",
    [
        ("zoneout: {h: 0.1, c: 0.05}", lambda s: transform.zoneout(s, h=0.1, c=0.05)),
        ("zoneout: 0.2", lambda s: transform.zoneout(s, 0.2)),
        ("recurrent_dropout: {rate: 0.25, per: step}", lambda s: transform.recurrent_dropout(s, 0.25, per="step")),
        ("dropconnect: {U_i: 0.5, U_g: 0.25}", lambda s: transform.dropconnect(s, U_i=0.5, U_g=0.25)),
        ("input_dropout: 0.1", lambda s: transform.input_dropout(s, 0.1)),
        ("candidate_dropout: {rate: 0.1, value: g}", lambda s: transform.candidate_dropout(s, 0.1, "g")),
        ("state_noise: {c: 0.1}", lambda s: transform.state_noise(s, c=0.1)),
        ("clip_cell: 3", lambda s: transform.clip_cell(s, 3)),
        ("layer_norm", lambda s: transform.layer_norm(s)),
        ("drop_gate: i", lambda s: transform.drop_gate(s, "i")),
        ("couple_gates: [f, i]", lambda s: transform.couple_gates(s, "f", "i")),
        ("peepholes: {on: true}", lambda s: transform.peepholes(s)),
        ("diagonal_recurrence", lambda s: transform.diagonal_recurrence(s)),
        ("low_rank_recurrence: 4", lambda s: transform.low_rank_recurrence(s, 4)),
        ("multiplicative_integration", lambda s: transform.multiplicative_integration(s)),
        ("leak: {alpha: 0.1, state: h}", lambda s: transform.leak(s, 0.1, state="h")),
        (
            "drop_gate: i, layer_norm, zoneout: {c: 0.1}",
            lambda s: transform.zoneout(transform.layer_norm(transform.drop_gate(s, "i")), c=0.1),
        ),
    ],
)
def test_a_file_asks_for_the_same(says, change):
    made = loads(f"rnnspec: 1\nname: made\nextends: lstm\napply: [{says}]\n")
    expected = change(load("lstm"))
    assert [e.text for e in made.equations] == [e.text for e in expected.equations] and made.noise == expected.noise
    assert (
        made.parameters == expected.parameters
        and made.inputs == expected.inputs
        and made.init == expected.init
        and made.name == "made"
    )


def test_every_transform_can_be_asked_for():
    from rnnspec.language.transforms.apply import TRANSFORMS as offered

    assert set(offered) == set(transform.__all__) - {"gates", "to_yaml"} and all(
        offered[n] is getattr(transform, n) for n in offered
    )


def test_a_rate_may_be_a_constant_that_load_changes():
    text = "rnnspec: 1\nname: made\nextends: gru\nconstants: {p: 0.1}\napply: [zoneout: {h: p}]\n"
    assert loads(text).noise["keep_h"].argument == 0.1 and loads(text, p=0.7).noise["keep_h"].argument == 0.7
    assert digest(loads(text, p=0.7)) == digest(loads(text))  # one kernel for every rate
    assert load("zoneout_lstm", zoneout_c=0.2).noise["keep_c"].mean == 0.2


def test_choices_and_constants_stay_those_of_the_file():
    text = "rnnspec: 1\nname: made\nextends: rnn\nconstants: {p: 0.1}\napply: [leak: 0.5, zoneout: p]\n"
    made = loads(text, phi="relu")
    assert (
        list(made.choices["phi"].options) == ["tanh", "relu", "identity"]
        and made.choices["phi"].chosen == "relu"
        and list(made.constants) == ["p"]
    )
    assert "h_new[t] = relu(W @ x[t] + U @ h[t-1] + b)" in [e.text for e in made.equations]
    with pytest.raises(RnnspecError, match="has no choice or constant 'alpha'"):
        loads(text, alpha=0.1)
    assert "apply" not in made.notes and made.name == "made" and made.title == "after rnn"


def test_what_is_extended_keeps_what_it_applies(tmp_path):
    (tmp_path / "base.yaml").write_text("rnnspec: 1\nname: base\nextends: lstm\napply: [zoneout: {h: 0.1}]\n")
    (tmp_path / "own.yaml").write_text(
        "rnnspec: 1\nname: own\nextends: base.yaml\nequations: |\n  i[t] = 1\napply: [input_dropout: 0.2]\n"
    )
    made = load(tmp_path / "own.yaml")
    assert (
        list(made.noise) == ["keep_h", "mask_x"]
        and "W_i" not in made.parameters
        and not made.same_as
        and not made.examples
    )


def test_old_states_are_found_where_matrices_read_them():
    concat = transform.recurrent_dropout(load("lstm_concat"), 0.1)
    assert (
        next(e.text for e in concat.equations if e.target == "z_dropped")
        == "z_dropped[t] = concat(x[t], mask_h[t] * h[t-1])"
    )
    deep = transform.dropconnect(load("rhn"), 0.1)
    assert list(deep.noise) == ["mask_R_h_1", "mask_R_t_1"] and deep.parameters["mask_R_h_1"] == ("H", "H")
    once = transform.dropconnect(load("antisymmetric_rnn"), 0.1)
    assert "A_dropped = mask_A * A" in [e.text for e in once.equations] and once.parameters["mask_A"] == ("H", "H")
    after = transform.recurrent_dropout(transform.zoneout(load("lstm_projected"), 0.1), 0.2)
    assert sum("_dropped[t] +" in e.text for e in after.equations) == 4 and "W_hr @ m[t]" in " ".join(
        e.text for e in after.equations
    )


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda: transform.zoneout(load("lstm")),
            (
                "zoneout: say how much: one number for every state, or by name, like zoneout(spec, h=0.1). Known here:"
                " h, c."
            ),
        ),
        (lambda: transform.zoneout(load("lstm"), q=0.1), "zoneout: 'q' is no state here. Known here: h, c."),
        (
            lambda: transform.zoneout(load("lstm"), h=1.1),
            "1.1 for 'h' is out of range. It is the probability of a 1, from 0 to 1.",
        ),
        (lambda: transform.zoneout(load("lstm"), h=float("nan")), "nan for 'h' is out of range"),
        (lambda: transform.zoneout(load("lstm"), h=True), "True for 'h' is out of range"),
        (
            lambda: transform.zoneout(load("mlstm_matrix"), 0.1),
            "is a matrix, and noise is drawn for vectors and numbers. Name the states",
        ),
        (
            lambda: transform.recurrent_dropout(load("indrnn"), 0.1),
            "'indrnn' multiplies no old state by a matrix of parameters.",
        ),
        (
            lambda: transform.recurrent_dropout(load("lstm"), c=0.1),
            "'c' is no state that a matrix multiplies here. Known here: h.",
        ),
        (lambda: transform.recurrent_dropout(load("lstm"), 1.0), "the probability of a 0, from 0 to below 1"),
        (
            lambda: transform.recurrent_dropout(load("lstm"), 0.1, per="call"),
            "per step or per sequence, not per 'call'",
        ),
        (
            lambda: transform.dropconnect(load("indrnn"), 0.1),
            "dropconnect: 'indrnn' multiplies no old state by a matrix of parameters.",
        ),
        (
            lambda: transform.dropconnect(load("lstm_concat"), 0.1),
            "multiplies a concatenation of old states and other things, in W_i @ z[t]",
        ),
        (
            lambda: transform.dropconnect(
                loads(
                    cell(
                        "h[t] = tanh(x[t] + (R - R.T) @ h[t-1] + U @ h[t-1])",
                        inputs="{x: H}",
                        states="{h: H}",
                        parameters="{R: [H, H], U: [H, H]}",
                    )
                ),
                0.1,
            ),
            (
                "'tested' multiplies an old state by a matrix without a name, in (R - R.T) @ h[t-1]. Give it one: A = R"
                " - R.T;"
            ),
        ),
        (lambda: transform.dropconnect(load("gru"), W_r=0.1), "'W_r' is no recurrent matrix here. Did you mean 'U_r'?"),
        (lambda: transform.input_dropout(load("lstm"), y=0.1), "'y' is no input here. Known here: x."),
        (
            lambda: transform.candidate_dropout(load("rnn"), 0.1),
            "say which value of 'rnn' is dropped, with value=...: none.",
        ),
        (lambda: transform.candidate_dropout(load("lstm"), 0.1, "gg"), "with value=...: g. Did you mean 'g'?"),
        (lambda: transform.state_noise(load("lstm"), -1), "the standard deviation, from 0 to 1e6"),
        (
            lambda: transform.clip_cell(load("rnn"), 3),
            "clip_cell: say which state of 'rnn' is clipped, with state=...: h.",
        ),
        (lambda: transform.clip_cell(load("lstm"), 0), "the limit must be a number above 0, up to 1e30, not 0."),
        (lambda: transform.clip_projection(load("lstm"), 3), "clip_projection: 'lstm' has no projection"),
    ],
)
def test_where_it_makes_no_sense_the_error_says_why(change, message):
    with pytest.raises(RnnspecError) as caught:
        change()
    assert message in str(caught.value)
