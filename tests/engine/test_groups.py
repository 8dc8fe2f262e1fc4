"""Weights by row: every group of rows as a call of its own with its weights; mixes, lengths,
pieces, memory, threads, packed weights, gradients by row; what does not fit is told, and what is
not offered refused."""

from __future__ import annotations

import numpy as np
import pytest
from cells import case, kernel
from emulated import gpu
from test_by_row import PIECES
from tolerances import REFERENCE, assert_close, assert_same

import rnnspec
from rnnspec.backends.cpu.launch.rows import Limits
from rnnspec.engine.spans import cut
from rnnspec.errors import ShapeError, UnsupportedError


def grouped(one, count, names=None):
    """The parameters of a case for so many groups: others for each, or of some names alone."""
    rng = np.random.default_rng(7)
    chosen = one.params if names is None else names
    return {
        n: np.stack([a + 0.1 * rng.standard_normal(a.shape).astype(a.dtype) for _ in range(count)])
        if n in chosen
        else a
        for n, a in one.params.items()
    }


def part(one, params, names, group, count):
    """The case of a group's rows, with its weights."""
    size = next(iter(one.dy.values())).shape[1] // count
    rows = slice(group * size, (group + 1) * size)
    own = {n: a[group] if n in names else a for n, a in params.items()}
    timed = ({n: a[:, rows] for n, a in arrays.items()} for arrays in (one.inputs, one.dy))
    single = ({n: a[rows] for n, a in arrays.items()} for arrays in (one.states, one.dfinal))
    (inputs, dy), (states, dfinal) = timed, single
    return own, inputs, states, None if one.lengths is None else one.lengths[rows], dy, dfinal


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "name, dtype, count, rows, names, lengths",
    [
        ("lstm", "float64", 3, 3, None, None),
        ("lstm", "float32", 2, 6, None, [5, 0, 3, 5, 5, 1]),
        ("lstm", "float64", 2, 4, ("U_f", "b_i"), None),
        (PIECES, "float64", 3, 6, None, [5, 2, 5, 0, 0, 4]),
        (PIECES, "float64", 2, 2, ("u",), None),
        ("gru_reset_before", "float64", 1, 2, None, None),
    ],
)
def test_each_group_is_a_call_of_its_own(name, dtype, count, rows, names, lengths, threads):
    one = case(kernel(name, dtype), steps=5, rows=rows, lengths=lengths)
    own = one.kernel.like(threads=threads)
    own.limits = Limits(flops_per_thread=1, cache_bytes=1 << 10, least_rows=2)
    params, by_row = grouped(one, count, names), set(one.params if names is None else names)
    for low in (own, own.like(memory="low")):
        run = low.forward(params, one.inputs, one.states, one.lengths)
        back = low.backward(run, one.dy, final=one.dfinal)
        each = low.backward(run, one.dy, final=one.dfinal, per_row=True)
        infer = low.infer(params, one.inputs, one.states, one.lengths)
        sums = dict.fromkeys(back.params, 0.0)
        for group in range(count):
            own_params, inputs, states, ends, dy, dfinal = part(one, params, by_row, group, count)
            size = rows // count
            mine = slice(group * size, (group + 1) * size)
            alone = own.forward(own_params, inputs, states, ends)
            expected = own.backward(alone, dy, final=dfinal)
            for found in (run, infer):
                assert_same({n: a[:, mine] for n, a in found.outputs.items()}, alone.outputs)
                assert_same({n: a[mine] for n, a in found.final.items()}, alone.final)
            assert_same({n: a[:, mine] for n, a in back.inputs.items()}, expected.inputs)
            assert_same({n: a[mine] for n, a in back.states.items()}, expected.states)
            for n, array in expected.params.items():
                assert_close(each.params[n][mine].sum(0), array, REFERENCE[dtype])
                if n in by_row:
                    assert_close(back.params[n][group], array, REFERENCE[dtype])
                sums[n] = sums[n] + array
        for n, array in sums.items():
            if n not in by_row:
                assert_close(back.params[n], array, REFERENCE[dtype])


def test_packed_weights_and_pieces():
    one = case(kernel("lstm"), steps=6, rows=4)
    params = grouped(one, 2)
    packed = one.kernel.pack(params)
    resets = np.zeros((6, 4), bool)
    resets[2, 1] = resets[4, 3] = True
    parts = cut(6, 4, None, resets, reverse=True)
    found = one.kernel.forward(packed, one.inputs, pieces=parts)
    back = one.kernel.backward(found, one.dy)
    for group in range(2):
        own_params, inputs, *_, dy, _ = part(one, params, set(params), group, 2)
        own = cut(6, 2, None, resets[:, 2 * group : 2 * group + 2], reverse=True)
        alone = one.kernel.forward(own_params, inputs, pieces=own)
        assert_same(found.outputs["h"][:, 2 * group : 2 * group + 2], alone.outputs["h"])
        for n, array in one.kernel.backward(alone, dy).params.items():
            assert_close(back.params[n][group], array, REFERENCE["float64"])


def test_calls_of_equal_sizes_with_other_weights():
    """Nothing of the weights of one call is left for the next, with groups or without."""
    one = case(kernel("gru"), steps=3, rows=4)
    first, second = grouped(one, 2), {n: 2 * a for n, a in grouped(one, 4).items()}
    plain = one.kernel.infer(one.params, one.inputs).outputs["h"]
    for params in (first, second, first, second):
        found = one.kernel.infer(params, one.inputs).outputs["h"]
        count = params["U_z"].shape[0]
        for group in range(count):
            rows = slice(group * 4 // count, (group + 1) * 4 // count)
            alone = one.kernel.infer({n: a[group] for n, a in params.items()}, {"x": one.inputs["x"][:, rows]})
            assert_same(found[:, rows], alone.outputs["h"])
        assert_same(one.kernel.infer(one.params, one.inputs).outputs["h"], plain)


@pytest.mark.parametrize("names", [None, ["U_r"]])
@pytest.mark.parametrize("name", ["gru_reset_before", PIECES])
def test_steps_and_streams_have_them(name, names):
    one = case(kernel(name), steps=3, rows=4)
    params = grouped(one, 2, names if name != PIECES else names and ["u", "R"])
    whole = one.kernel.infer(params, one.inputs, one.states)
    state, stream = one.states, one.kernel.stream(params, one.states, rows=4)
    for t in range(3):
        inputs = {n: a[t] for n, a in one.inputs.items()}
        state = one.kernel.step(params, inputs, state)
        for n, array in stream.step(inputs).items():
            assert_same(array, whole.outputs[n][t])
            assert_same(state.outputs[n], whole.outputs[n][t])
    for n, array in stream.states.items():
        assert_same(array, whole.final[n])
    other = {n: 2 * a for n, a in params.items()}
    stream.refresh(other)
    stream.reset(one.states)
    found, right = stream.step(inputs), one.kernel.step(one.kernel.pack(other), inputs, one.states)
    for n, array in found.items():
        assert_same(array, right.outputs[n])
    with pytest.raises(ShapeError, match="weights of 2 groups of rows can't go on with those of no"):
        stream.refresh(one.params)
    with pytest.raises(ShapeError, match=r"2 groups of rows .* and 3 rows can't"):
        one.kernel.stream(params, rows=3)
    with pytest.raises(ShapeError, match=r"2 groups of rows .* and 3 rows can't"):
        one.kernel.step(params, {n: a[0, :3] for n, a in one.inputs.items()})


@pytest.mark.parametrize("columns", [None, 2])
@pytest.mark.parametrize("name, names", [("lstm", ["U_f", "b_i"]), (PIECES, None), (PIECES, ["R"])])
def test_derivatives_along_directions_are_those_of_each_group(name, names, columns):
    one, rng = case(kernel(name), steps=3, rows=4, lengths=[3, 1, 2, 3]), np.random.default_rng(2)
    params, lead = grouped(one, 2, names), () if columns is None else (columns,)
    chosen = set(names or params)

    def moved(arrays):
        return {n: rng.uniform(-1, 1, (*lead, *a.shape)) for n, a in arrays.items()}

    ahead = {"tangent_params": moved(params), "tangent_inputs": moved(one.inputs)}
    more = {"outputs": one.dy, "final": one.dfinal, "tangent_outputs": moved(one.dy)}
    curved = {"curvature": {n: np.ones_like(a) for n, a in one.dy.items()}}
    for own in (one.kernel, one.kernel.like(memory="low")):
        found = own.hvp(params, one.inputs, one.states, one.lengths, **ahead, **more)
        product = own.ggn(own.pack(params), one.inputs, one.states, one.lengths, **ahead, **curved).products
        alone, products = [], []
        for group in range(2):
            rows = slice(2 * group, 2 * group + 2)
            mine = (
                {n: a[group] if n in chosen else a for n, a in params.items()},
                {n: a[:, rows] for n, a in one.inputs.items()},
                {n: a[rows] for n, a in one.states.items()},
                one.lengths[rows],
            )
            given = {
                "tangent_params": {
                    n: np.take(a, group, len(lead)) if n in chosen else a for n, a in ahead["tangent_params"].items()
                },
                "tangent_inputs": {n: a[..., rows, :] for n, a in ahead["tangent_inputs"].items()},
            }
            back = {
                "outputs": {n: a[:, rows] for n, a in one.dy.items()},
                "final": {n: a[rows] for n, a in one.dfinal.items()},
                "tangent_outputs": {n: a[..., rows, :] for n, a in more["tangent_outputs"].items()},
            }
            alone.append(own.hvp(*mine, **given, **back))
            curvature = {n: a[:, rows] for n, a in curved["curvature"].items()}
            products.append(own.ggn(*mine, **given, curvature=curvature).products)
            for n, array in alone[-1].tangent_outputs.items():
                assert_same(found.tangent_outputs[n][..., rows, :], array)
            for n, array in alone[-1].tangent_gradients.inputs.items():
                assert_same(found.tangent_gradients.inputs[n][..., rows, :], array)
        for whole, parts, place in (
            (found.gradients.params, [a.gradients.params for a in alone], 0),
            (found.tangent_gradients.params, [a.tangent_gradients.params for a in alone], len(lead)),
            (product.params, [p.params for p in products], len(lead)),
        ):
            for n, array in whole.items():
                each = [p[n] for p in parts]
                right = np.stack(each, axis=place) if n in chosen else each[0] + each[1]
                assert_close(array, right, REFERENCE["float64"])


def test_what_does_not_fit_is_told():
    one = case(kernel("lstm"), steps=2, rows=4)
    with pytest.raises(ShapeError, match=r"3 groups of rows .* and 4 rows can't"):
        one.forward(params=grouped(one, 3))
    with pytest.raises(ShapeError, match="must have as many, at least 1: there are of 'U_f' 2, 'b_f' 4"):
        one.forward(params={**grouped(one, 2, ["U_f"]), "b_f": np.zeros((4, 5))})
    with pytest.raises(ShapeError, match="at least 1"):
        one.forward(params={n: np.zeros((0, *a.shape)) for n, a in one.params.items()})
    with pytest.raises(ShapeError, match="parameter 'U_f' has shape"):
        one.forward(params={**one.params, "U_f": np.zeros((4, 5, 6))})


def test_a_direction_has_the_shape_of_its_weights():
    one = case(kernel("lstm"), steps=2, rows=4)
    params = grouped(one, 2, ["U_f"])
    with pytest.raises(ShapeError, match=r"'U_f' has shape \(5, 5\), expected \(2, 5, 5\)"):
        one.kernel.jvp(params, one.inputs, tangent_params={"U_f": one.params["U_f"]})


def test_what_is_not_offered_is_refused_by_name():
    one = case(kernel("lstm"), steps=2, rows=4)
    params = grouped(one, 2)
    with pytest.raises(UnsupportedError, match=r"(?s)a Jacobian takes no weights by row.*each group"):
        one.kernel.jacobian(params, one.inputs)
    with gpu():
        own = rnnspec.compile("rnn", backend="cuda")
        many = {n: np.stack([a, a]) for n, a in own.init(D=3, H=4).items()}
        with pytest.raises(UnsupportedError, match="backend='cpu'"):
            own.infer(many, {"x": np.ones((2, 2, 3), np.float32)})
        for call in (lambda: own.step(many, {"x": np.ones((2, 3), np.float32)}), lambda: own.stream(many, rows=2)):
            with pytest.raises(UnsupportedError, match="backend='cpu'"):
                call()
