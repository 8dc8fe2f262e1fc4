"""How many products wait for one another in a step: what the mathematics needs, without a hint in
any spec."""

from __future__ import annotations

import numpy as np
import pytest
from tiny import cell
from tolerances import REFERENCE, assert_close

import rnnspec
from rnnspec.backends import reference
from rnnspec.language.load import load, loads, spec_names
from rnnspec.lowering.pipeline import stages

ZERO = (
    "brc",
    "elstm",
    "indrnn",
    "indy_gru",
    "indy_lstm",
    "ln_indrnn",
    "lru",
    "mingru",
    "minlstm",
    "mlstm_matrix",
    "qrnn",
    "qrnn_f",
    "qrnn_ifo",
    "rg_lru",
    "shuffling_rnn",
    "sru",
    "tgru",
    "tlstm",
    "trnn",
    "unicornn",
)  # elementwise: products with x, or of what no later step reads, are outside the loop
TWO = {
    "cfc": "the backbone, then its heads",
    "cfc_no_gate": "as cfc",
    "cfc_pure": "as cfc",
    "dsgu": "U_g on a scaled state, W_o on what came of it",
    "elman_two_layer": "the upper layer reads the lower one in the same step",
    "gru_concat": "n reads the reset state",
    "gru_d": "n reads the reset state",
    "gru_reset_before": "n reads the reset state",
    "gru_reset_before_other_polarity": "n reads the reset state",
    "jordan_rnn": "U on the output, V on the state that came of it",
    "lem": "h reads the new z",
    "lmu": "h reads the new memory",
    "low_rank_rnn": "a product of two factors",
    "lstm_projected": "the projection",
    "lstm_tf_full": "the projection",
    "lstm_tf_projected": "the projection",
    "mgu": "n reads the gated state",
    "mgu1": "as mgu",
    "mgu2": "as mgu",
    "miru1": "n reads the reset state",
    "multiplicative_lstm": "the gates read m",
    "multiplicative_lstm_paper": "the gates read m",
    "multiplicative_rnn": "h reads m",
    "mut1": "h reads the reset state",
    "mut1_raw": "as mut1",
    "mut2": "as mut1",
    "mut3": "as mut1",
    "nested_lstm": "the inner cell reads what the gates gave",
    "residual_lstm": "the projection W_p",
    "statistical_ru": "r, then phi of r",
    "wmclstm": "the output gate reads the new cell through V_o",
}
MORE = {
    "fast_slow_rnn": 3,
    "mogrifier_lstm": 6,
    "rhn": 3,
    "rhn_uncoupled": 3,
}  # fast, slow, fast; five rounds and the gates; depth L = 3
QUICK = (
    "indrnn",
    "sru",
    "qrnn",
    "mingru",
    "trnn",
    "lstm",
    "gru",
    "gru_reset_before",
    "mgu",
    "lem",
    "lmu",
    "mogrifier_lstm",
    "fast_slow_rnn",
)


def needed(name: str) -> int:
    return 0 if name in ZERO else 2 if name in TWO else MORE.get(name, 1)


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in spec_names()])
def test_products_that_wait(name):
    made = stages(load(name))
    assert (
        made.forward.recurrent_stages()
        == made.infer.recurrent_stages()
        == made.backward.recurrent_stages()
        == needed(name)
    ), TWO.get(name, "")


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_highway_of_depth_l_has_l(depth):
    made = stages(load("rhn", L=depth))
    assert made.forward.recurrent_stages() == made.backward.recurrent_stages() == depth


def test_the_mogrifier_has_a_stage_for_each_round():
    assert stages(load("mogrifier_lstm", N=1)).forward.recurrent_stages() == 4  # of x, of h, of x; the gates


TAPPED = cell(
    """p[t] = tanh(W @ x[t])
f[t] = sigmoid(V @ p[t-1] + A @ x[t-2] + a * x[t-1])
h[t] = f[t] * h[t-1] + p[t]
y[t] = U @ h[t-1] + h[t-2]
""",
    name="tapped",
    inputs="{x: H}",
    states="{h: H}",
    parameters="{W: [H, H], V: [H, H], A: [H, H], U: [H, H], a: H}",
    outputs="[h, y]",
)
"""Of earlier steps: an input, one two steps back, a value computed from inputs, a state two steps
back that only the output reads."""


def test_a_product_with_an_earlier_input_is_outside_the_loop():
    made = stages(loads(TAPPED))
    for program in (made.forward, made.infer, made.backward):
        assert not any(stage.panels for stage in program.loop)


@pytest.mark.parametrize("memory", ["full", "low"])
def test_taps_over_chunks_lengths_and_threads(memory):
    spec, sizes, rng = loads(TAPPED), {"H": 7}, np.random.default_rng(0)
    made, own = stages(spec), rnnspec.compile(spec, dtype="float64", threads=2, memory=memory)
    params = own.init(H=7)
    for steps, rows, lengths in ((1, 1, None), (300, 3, None), (41, 5, np.array([41, 0, 7, 12, 40]))):
        x = rng.standard_normal((steps, rows, 7))
        states = {s: rng.standard_normal((rows, 7)) for s in own.states}
        run, inferred = own.forward(params, {"x": x}, states, lengths), own.infer(params, {"x": x}, states, lengths)
        want = reference.forward(made.graph, params, {"x": x}, states, lengths, sizes=sizes)
        dy = {o: rng.standard_normal(a.shape) for o, a in run.outputs.items()}
        dfinal = {s: rng.standard_normal((rows, 7)) for s in own.states}
        grad = own.backward(run, dy, final=dfinal)
        wanted = reference.backward(made.adjoint, params, {"x": x}, want, dy, dfinal, lengths, sizes=sizes)
        for found, expected in (
            (run.outputs, want.outputs),
            (run.final, want.final),
            (run.states, want.states),
            (inferred.outputs, want.outputs),
            (inferred.final, want.final),
            (grad.params, wanted.params),
            (grad.inputs, wanted.inputs),
            (grad.states, wanted.states),
        ):
            assert_close(found, expected, REFERENCE["float64"], f"T = {steps}")
    stream = own.stream(params, states, rows=5)
    stepped = np.stack([stream.step({"x": x_t})["y"].copy() for x_t in x])
    assert_close(stepped, own.infer(params, {"x": x}, states).outputs["y"], REFERENCE["float64"])
