"""Recurrent as a layer, and cells of every form that the language allows: against the reference,
and with errors that help."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from cells import CORE, LINEAR_ROWS, case, expected, kernel, ones, spec_of
from forms import FORMS
from tiny import cell
from tolerances import HAND, REFERENCE, assert_close, assert_same

import rnnspec
from rnnspec import Recurrent, ShapeError

KINDS = ("params", "inputs", "states")
X, H0, C0 = np.ones((5, 2, 3)), np.ones((1, 2, 4)), np.ones((1, 2, 4))


@pytest.mark.parametrize("form", FORMS)
def test_cells_of_every_form_are_the_reference(form):
    of = kernel(FORMS[form])
    for steps, rows, seed, lengths in (
        (4, 3, 1, None),
        (1, 1, 2, None),
        (6, 5, 3, [6, 2, 0, 5, 1]),
        (0, 2, 4, None),
        (3, 0, 5, None),
    ):
        one = case(of, steps, rows, seed, lengths)
        right, run = expected(one, FORMS[form]), one.forward()
        back = one.backward(run)
        assert_close(run.outputs, right.outputs, REFERENCE["float64"])
        assert_close(run.final, right.final, REFERENCE["float64"])
        for kind in KINDS:
            assert_close(getattr(back, kind), getattr(right, kind), REFERENCE["float64"], kind)


def test_an_input_without_a_gradient_has_none():
    one = case(kernel(FORMS["several inputs, one without a gradient"]), 3, 2)
    assert set(one.backward().inputs) == {"x", "z"}


def test_what_lies_before_the_first_step_is_zero_or_given():
    of = kernel(cell("h[t] = x[t-1] + x[t]"))
    run = of.forward({}, {"x": np.array([[1.0], [2.0], [3.0]])})
    assert_same(run.outputs["h"][:, 0], np.array([1.0, 3.0, 5.0]))
    assert run.final["x"][0] == 3
    run = of.forward({}, {"x": np.array([[1.0], [2.0]])}, {"x": np.array([10.0])})
    assert_same(run.outputs["h"][:, 0], np.array([11.0, 3.0]))
    assert of.backward(run, ones(run)).states["x"][0] == 1


def test_sequences_can_be_cut_anywhere():
    """Carried states, those read at t-1 included, make two halves the whole."""
    one = case(kernel(FORMS["an input, an intermediate and a state one step before"]), 7, 3)
    whole, states, parts = one.forward(), one.states, []
    for a, b in ((0, 3), (3, 3), (3, 7)):
        run = one.kernel.forward(one.params, {"x": one.inputs["x"][a:b]}, states)
        states = run.final
        parts.append(run.outputs["h"])
    assert_close(np.concatenate(parts), whole.outputs["h"], HAND["float64"])
    assert_close(dict(states), whole.final, HAND["float64"])


def layer_of(name: str = "lstm", **more) -> Recurrent:
    return Recurrent(name, 3, 4, dtype="float64", **more)


def test_H75_states_of_another_batch_are_refused():
    layer = layer_of("gru")
    _, state = layer(np.ones((5, 4, 3)))
    with pytest.raises(ValueError, match=r"state 'h' must have shape \(1, 3, 4\), got \(1, 4, 4\)"):
        layer(np.ones((5, 3, 3)), state)


@pytest.mark.parametrize(
    ("x", "state", "words"),
    [
        (X, (np.ones((1, 3, 4)), C0), ["state 'h'", "(1, 2, 4)", "(1, 3, 4)"]),
        (X, (np.ones((2, 4)), C0), ["state 'h'", "(1, 2, 4)", "(2, 4)"]),
        (X, (H0, np.ones((1, 2, 5))), ["state 'c'", "(1, 2, 4)", "(1, 2, 5)"]),
        (X, H0, ["tuple of 2 arrays (h, c)", "got 1 array"]),
        (X, (H0,), ["tuple of 2 arrays (h, c)", "got 1 array"]),
        (X, (H0, C0, C0), ["tuple of 2 arrays (h, c)", "got 3 arrays"]),
        (np.ones((5, 2, 7)), None, ["input 'x'", "7 features", "expected 3"]),
        (np.ones(3), None, ["input 'x'", "3 axes", "(3,)"]),
        (np.ones((1, 5, 2, 3)), None, ["input 'x'", "(1, 5, 2, 3)"]),
    ],
)
def test_H80_shapes_that_do_not_fit_are_named_with_what_was_expected(x, state, words):
    for call in (layer_of(), layer_of().infer):
        with pytest.raises(ValueError) as caught:
            call(x, state)
        assert all(w in str(caught.value) for w in words), caught.value


def test_H80_gradients_that_do_not_fit():
    layer = layer_of()
    with pytest.raises(RuntimeError, match="needs a call first"):
        layer.backward(np.ones((5, 2, 4)))
    layer(X)
    for dy, dstate, words in (
        (np.ones((5, 2, 5)), None, "output 'h'.*5, 2, 4.*5, 2, 5"),
        (np.ones((4, 2, 4)), None, "5, 2, 4.*4, 2, 4"),
        (None, (H0, np.ones((1, 3, 4))), "'c'.*1, 2, 4.*1, 3, 4"),
    ):
        with pytest.raises(ShapeError, match=words):
            layer.backward(dy, dstate)


def test_H80_arrays_of_a_kernel_are_named():
    one = case(kernel("lstm"), 3, 2, D=3, H=4)
    for change, words in (
        ({"W_i": np.ones((4, 7))}, ["'W_i'", "(4, 7)", "(4, 3)"]),
        ({"b_f": np.ones(5)}, ["'b_f'", "(5,)", "(4,)"]),
        ({"b_f": np.ones((4, 1))}, ["'b_f'", "(4, 1)", "(4,)"]),
        ({"b_f": None}, ["missing", "'b_f'"]),
        ({"b_x": np.ones(4)}, ["unknown", "'b_x'"]),
    ):
        with pytest.raises(ShapeError) as caught:
            one.forward(params=one.params | change)
        assert all(w in str(caught.value) for w in words), caught.value
    with pytest.raises(ValueError, match="another kernel"):
        kernel("gru").backward(one.forward())


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"hidden_size": 0}, ValueError, "hidden_size.*0"),
        ({"hidden_size": -1}, ValueError, "hidden_size.*-1"),
        ({"hidden_size": 2.5}, TypeError, "hidden_size.*2.5"),
        ({"hidden_size": True}, TypeError, "hidden_size"),
        ({"hidden_size": "4"}, TypeError, "hidden_size"),
        ({"input_size": 0}, ValueError, "input_size.*0"),
        ({"num_layers": 0}, ValueError, "num_layers.*0"),
        ({"num_layers": 2.0}, TypeError, "num_layers"),
        ({"proj_size": 4, "cell": "lstm_projected"}, ValueError, "proj_size.*4"),
        ({"proj_size": -1, "cell": "lstm_projected"}, ValueError, "proj_size"),
        ({"cell": "lstm_projected"}, ValueError, "proj_size"),
        ({"proj_size": 2, "cell": "gru"}, ValueError, "proj_size.*lstm_projected"),
        ({"cell": "lstn"}, ValueError, "lstn.*lstm"),
        ({"dropout": 1.5}, ValueError, "dropout.*1.5"),
        ({"dropout": -0.1}, ValueError, "dropout.*-0.1"),
        ({"dropout": True}, ValueError, "dropout"),
        ({"dtype": "float16"}, ValueError, "float16"),
        ({"threads": 0}, ValueError, "threads.*0"),
        ({"phi": "relu"}, ValueError, "phi"),
        ({"seed": -1}, ValueError, "seed.*-1"),
        ({"bias": 1}, TypeError, "bias.*1"),
        ({"batch_first": None}, TypeError, "batch_first"),
        ({"bidirectional": "yes"}, TypeError, "bidirectional.*yes"),
        ({"residual": 2}, TypeError, "residual"),
        ({"learn_initial": 0}, TypeError, "learn_initial"),
        ({"go_backwards": 1}, TypeError, "go_backwards"),
        ({"merge": "max", "bidirectional": True}, ValueError, "merge.*concat.*'max'"),
        ({"merge": "sum"}, ValueError, "merge='sum'.*bidirectional=True"),
        ({"share_directions": True}, ValueError, "share_directions.*bidirectional=True"),
        ({"residual": True}, ValueError, "residual.*two layers"),
        ({"go_backwards": True, "bidirectional": True}, ValueError, "go_backwards"),
        ({"sizes": {"K": 2}}, ValueError, "'lstm'.*'K'"),
        ({"cell": ["lstm", "gru"], "num_layers": 3}, ValueError, "num_layers is 3.*2 cells"),
        ({"cell": []}, TypeError, "cell"),
        ({"cell": 3}, TypeError, "cell.*int"),
        ({"cell": ["rnn", "gru"], "phi": "relu"}, TypeError, "phi.*list of cells"),
        ({"return_all_states": ["z"]}, ValueError, "'z'.*There are: c, f, g"),
        ({"return_all_states": "c"}, TypeError, "return_all_states"),
        ({"return_all_states": 3}, TypeError, "return_all_states must be .* got 3"),
    ],
)
def test_H81_arguments_are_checked_at_once_and_by_name(change, error, words):
    given = {"cell": "lstm", "input_size": 3, "hidden_size": 4} | change
    with pytest.raises(error, match=words):
        Recurrent(**given)


def test_H82_weights_changed_in_place_or_replaced_are_used_at_once():
    layer = Recurrent(spec_of(LINEAR_ROWS), 1, 1, dtype="float64")
    x = np.ones((1, 1, 1))
    layer.params["w_l0"][...] = 1
    assert layer(x)[0] == 1 and layer.infer(x)[0] == 1
    layer.params["w_l0"][...] = 2
    assert layer(x)[0] == 2 and layer.infer(x)[0] == 2
    layer.params["w_l0"] = np.array([3.0])
    assert layer(x)[0] == 3
    layer.load_state_dict({"w_l0": np.array([4.0]), "u_l0": np.array([0.0])})
    assert layer(x)[0] == 4
    torch_names = layer_of()
    before, _ = torch_names(X)
    torch_names.params["weight_ih_l0"][...] *= 2
    assert not np.allclose(torch_names(X)[0], before)


def test_a_run_keeps_the_weights_it_was_made_with():
    """Weights changed between forward and backward do not mix into the gradient."""
    one = case(kernel("lstm"), 4, 2, D=3, H=5)
    run = one.forward()
    right = one.backward(run)
    for array in (*one.params.values(), *one.inputs.values(), *one.states.values()):
        array[...] = np.nan
    for kind in KINDS:
        assert_same(getattr(one.backward(run), kind), getattr(right, kind))


def test_state_dicts_name_all_that_is_wrong():
    layer = layer_of()
    weights = layer.state_dict()
    del weights["bias_hh_l0"]
    weights |= {"bias": np.ones(3), "weight_ih_l0": np.ones((3, 16))}
    with pytest.raises(ShapeError) as caught:
        layer.load_state_dict(weights)
    words = ("missing 'bias_hh_l0'", "unexpected 'bias'", "'weight_ih_l0' has shape (3, 16), expected (16, 3)")
    assert all(w in str(caught.value) for w in words)


@pytest.mark.parametrize("name", [n for n in CORE if n != "lstm_projected"])
@pytest.mark.parametrize("bias", [True, False])
def test_every_cell_is_a_layer(name, bias):
    layer = layer_of(name, bias=bias, batch_first=True)
    x = np.random.default_rng(0).normal(size=(2, 5, 3))
    y, state = layer(x, lengths=[5, 3])
    assert y.shape == (2, 5, 4) and (y[1, 3:] == 0).all()
    dx, _ = layer.backward(np.ones_like(y), state)
    assert dx.shape == x.shape and (dx[1, 3:] == 0).all()
    assert {n: g.shape for n, g in layer.grads.items()} == {n: p.shape for n, p in layer.params.items()}
    assert_same(layer.infer(x, lengths=[5, 3])[0], y)
    assert repr(layer) == f"Recurrent('{name}', 3, 4, batch_first=True, dtype='float64')"


def test_two_outputs_are_a_tuple():
    layer = Recurrent(spec_of(FORMS["two outputs, one of them an intermediate"]), 3, 4, dtype="float64")
    (h, g), state = layer(X)
    assert h.shape == g.shape == (5, 2, 4) and layer.output_size == 8
    assert_same(state[0], h[-1])
    both, _ = layer.backward((np.ones_like(h), np.ones_like(g)))
    parts = [layer.backward(dy)[0] for dy in ((np.ones_like(h), np.zeros_like(g)), (np.zeros_like(h), np.ones_like(g)))]
    assert_close(both, parts[0] + parts[1], HAND["float64"])


def test_a_matrix_counts_with_all_its_elements():
    text = cell(
        "M[t] = M[t-1] + outer(x[t], x[t])\nn[t] = sum(x[t])", inputs="{x: D}", states="{M: [D, D]}", outputs="[M, n]"
    )
    assert Recurrent(spec_of(text), 3, 3, dtype="float64").output_size == 3 * 3 + 1


def test_several_inputs_come_as_a_dict_or_a_tuple():
    layer = Recurrent(
        spec_of(FORMS["several inputs, one without a gradient"]),
        3,
        4,
        dtype="float64",
        sizes={"E": 2},
        batch_first=True,
    )
    x, z, m = np.ones((2, 5, 3)), np.ones((2, 5, 2)), np.ones((2, 5))
    y, _ = layer({"x": x, "z": z, "m": m})
    assert y.shape == (2, 5, 4)
    assert_same(layer((x, z, m))[0], y)
    dx, _ = layer.backward(np.ones_like(y))
    assert {n: a.shape for n, a in dx.items()} == {"x": x.shape, "z": z.shape}
    with pytest.raises(ShapeError, match=r"missing.*'z'"):
        layer({"x": x, "m": m})


def test_bias_False_leaves_out_what_only_adds():
    assert set(layer_of("indrnn", bias=False).params) == {"W_l0", "u_l0"}  # u multiplies
    assert "p_i_l0" in layer_of("lstm_peephole", bias=False).params
    assert not [n for n in layer_of("gru", bias=False).params if "bias" in n]


@pytest.mark.parametrize("how", [copy.deepcopy, copy.copy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_copies_and_pickles(how):
    layer = layer_of()
    y, _ = layer(X)
    again = how(layer)
    assert_same(again(X)[0], y)
    assert repr(again) == repr(layer)
    of = kernel("lstm")
    one = case(of, 3, 2)
    other = one.changed(kernel=how(of))
    assert_same(other.backward().params, one.backward().params)


def test_a_deep_copy_has_weights_of_its_own():
    layer = layer_of()
    twin = copy.deepcopy(layer)
    twin.params["weight_ih_l0"][...] = 0
    assert layer.params["weight_ih_l0"].any()


def test_the_same_seed_gives_the_same_weights_whatever_the_dtype():
    a, b, c = (Recurrent("lstm", 3, 4, dtype=d, seed=s) for d, s in (("float32", 1), ("float64", 1), ("float32", 2)))
    assert_same(a.params, {n: p.astype(np.float32) for n, p in b.params.items()})
    assert not np.array_equal(a.params["weight_ih_l0"], c.params["weight_ih_l0"])


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_a_layer_starts_with_the_parameters_of_its_cell(name):
    """A bias that torch has in two places is their sum: not twice what the cell's `init` says."""
    layer = Recurrent(name, 3, 4, seed=1)
    assert_same(dict(layer.stack.weights(layer.params).cells[0]), layer.kernel.init(D=3, H=4, seed=1))


def test_a_spec_that_was_loaded_takes_no_more_settings():
    with pytest.raises(TypeError, match="phi"):
        rnnspec.Recurrent(rnnspec.load("rnn"), 2, 3, phi="relu")
