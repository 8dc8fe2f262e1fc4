"""Small calls of one layer take a way of their own (layers/bound.py): what they give is bit for bit
what a Stack gives, whatever changed since the call before."""

import copy
import pickle
import threading

import numpy as np
import pytest

import rnnspec
from rnnspec.errors import DtypeError, ShapeError
from rnnspec.layers.stack import Stack

CELLS = {"lstm": {}, "gru": {}, "rnn": {}, "indrnn": {}}
SHAPES = [(1, 1), (5, 1), (3, 4), (1, 1), (2, 7)]


def numbers(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def same(a, b):
    if isinstance(a, tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            same(x, y)
        return
    assert a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def as_tuple(state):
    return state if isinstance(state, tuple) else (state,)


def check_call(layer, x, state=None, dy=None, dstate=None):
    """A call and its backward pass, and `infer`, against the Stack's, of time first arrays."""
    given = None if state is None else as_tuple(state)
    wanted = layer.stack.forward(layer.weights, x, given)
    y, after = layer(x, state)
    (output,) = wanted.outputs.values()
    same(y, output)
    same(as_tuple(after), wanted.final)
    gradients = layer.stack.backward(wanted, dy, None if dstate is None else as_tuple(dstate))
    dx, dbefore = layer.backward(dy, dstate)
    same(dx, gradients.inputs["x"])
    same(as_tuple(dbefore), gradients.states)
    assert list(layer.grads) == list(gradients.params)
    same(tuple(layer.grads.values()), tuple(gradients.params.values()))
    for _ in range(3):  # by the third the weights are known
        y, after = layer.infer(x, state)
        same(y, output)
        same(as_tuple(after), wanted.final)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cell", CELLS)
def test_it_is_what_a_stack_gives(cell, dtype):
    layer = rnnspec.Recurrent(cell, 3, 3 if cell in ("indrnn", "minimal_rnn") else 5, dtype=dtype, **CELLS[cell])
    width = layer.hidden_size
    count = len(layer.stack.states)
    for number, (T, B) in enumerate(SHAPES):
        x, dy = numbers(T, B, 3, dtype=dtype, seed=number), numbers(T, B, width, dtype=dtype, seed=number + 50)
        states = tuple(numbers(1, B, width, dtype=dtype, seed=number + 90 + i) for i in range(count))
        state = states if count > 1 else states[0]
        check_call(layer, x, None, dy)
        check_call(layer, x, state, dy, state)
        check_call(layer, x, state, None, state)
        for array in layer.params.values():  # in place, which nothing tells
            array += numbers(*array.shape, dtype=dtype, seed=number + 7) * array.dtype.type(0.01)
    name = next(iter(layer.params))
    layer.params[name] = layer.params[name] * 2  # another array
    check_call(layer, x, None, dy)


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_a_stack_is_not_asked(cell, monkeypatch):
    layer = rnnspec.Recurrent(cell, 3, 5, threads=1)
    x = numbers(4, 2, 3)
    for _ in range(3):
        wanted = layer.infer(x)[0]

    def refuse(*_):
        raise AssertionError("this way is several times as long")

    for name in ("run_forward", "run_infer", "call"):
        monkeypatch.setattr(Stack, name, refuse)
    same(layer.infer(x)[0], wanted)
    same(layer(x)[0], wanted)
    layer.backward(wanted)


def test_strides_axes_and_rows_that_are_missing():
    layer = rnnspec.Recurrent("lstm", 3, 5)
    wide, dy = numbers(8, 6, 7), numbers(4, 3, 5)
    for x in (wide[::2, ::2, 1:4], wide[4:, 3:, 6:3:-1], wide[:4, :3, :3], np.broadcast_to(wide[0, 0, :3], (4, 3, 3))):
        check_call(layer, x, None, dy)
        check_call(layer, np.asfortranarray(x), None, np.asfortranarray(dy))
    rows_first = rnnspec.Recurrent("lstm", 3, 5, batch_first=True)
    rows_first.load_state_dict(layer.state_dict())
    x, state = wide[:4, :3, :3], (numbers(1, 3, 5), numbers(1, 3, 5, seed=1))
    y, after = layer(x, state)
    turned, after_turned = rows_first(x.swapaxes(0, 1), state)
    same(turned.swapaxes(0, 1), y)
    same(after_turned, after)
    dx, before = layer.backward(dy, state)
    dx_turned, before_turned = rows_first.backward(dy.swapaxes(0, 1), state)
    same(dx_turned.swapaxes(0, 1), dx)
    same(before_turned, before)
    same(rows_first.infer(x.swapaxes(0, 1), state)[0].swapaxes(0, 1), layer.infer(x, state)[0])
    alone, after_alone = layer(x[:, 0], (state[0][:, 0], state[1][:, 0]))
    assert alone.shape == (4, 5) and after_alone[0].shape == (1, 5)
    same(np.ascontiguousarray(y[:, 0]), np.ascontiguousarray(alone))
    assert layer.backward(dy[:, 0])[0].shape == (4, 3)


def test_results_are_the_callers():
    """Nothing that was given out, or handed in, is written to or read later."""
    layer = rnnspec.Recurrent("gru", 4, 4)
    x, dy = numbers(3, 2, 4), numbers(3, 2, 4, seed=1)
    first, after = layer(x)
    dx, before = layer.backward(dy)
    grads = dict(layer.grads)
    held = [first, after, dx, before, *grads.values()]
    copies = [a.copy() for a in held]
    layer(x * 2)
    layer.backward(dy * 3)
    for _ in range(3):
        held.append(layer.infer(x)[0])
    same(tuple(held[:-3]), tuple(copies))
    y, h = layer.infer(x, after)
    same(layer.infer(x, after)[0], y)
    y[...] = h[...] = 0
    assert layer.infer(x, after)[0].any()
    # a state that is the layer's own result, and an input that is its output
    same(layer.infer(first, h)[0], layer.stack.infer(layer.params, first, (h,)).outputs["h"])


def test_weights_are_those_of_the_call():
    """What is done to weights between a call and its backward pass does not reach it."""
    layer = rnnspec.Recurrent("lstm", 3, 4)
    x, dy = numbers(4, 2, 3), numbers(4, 2, 4)
    layer(x)
    dx, _ = layer.backward(dy)
    wanted, grads = dx.copy(), {n: a.copy() for n, a in layer.grads.items()}
    layer(x)
    layer.params["weight_hh_l0"][...] = np.nan
    layer.params["weight_ih_l0"] = np.zeros_like(layer.params["weight_ih_l0"])
    again, _ = layer.backward(dy)
    same(again, wanted)
    same(tuple(layer.grads.values()), tuple(grads.values()))
    twice, _ = layer.backward(dy)  # of the same call
    same(twice, wanted)


def test_an_odd_argument_is_refused_as_ever():
    layer = rnnspec.Recurrent("lstm", 3, 4)
    x = numbers(4, 2, 3)
    for _ in range(3):
        layer(x)
        layer.infer(x)
    for call in (layer, layer.infer):
        with pytest.raises(ShapeError, match="features"):
            call(numbers(4, 2, 5))
        with pytest.raises(DtypeError, match="float64"):
            call(x.astype("float64"))
        with pytest.raises(ShapeError, match="state"):
            call(x, (numbers(1, 3, 4), numbers(1, 2, 4)))
        with pytest.raises(ShapeError, match="state"):
            call(x, numbers(1, 2, 4))
    y, _ = layer(x)
    with pytest.raises(ShapeError, match="gradient of output"):
        layer.backward(numbers(4, 3, 4))
    with pytest.raises(DtypeError, match="float64"):
        layer.backward(y.astype("float64"))
    with pytest.raises(RuntimeError, match="of is not the y"):
        layer.backward(numbers(4, 2, 4), of=x)
    layer.params["bias_hh_l0"] = numbers(3)
    for call in (layer, layer.infer):
        with pytest.raises(ShapeError, match="bias_hh_l0"):
            call(x)
    del layer.params["bias_hh_l0"]
    for call in (layer, layer.infer):
        with pytest.raises(ShapeError, match="missing 'bias_hh_l0'"):
            call(x)


def test_from_several_threads_and_in_copies():
    layer = rnnspec.Recurrent("lstm", 4, 4)
    xs = [numbers(6, 3, 4, seed=i) for i in range(4)]
    wanted = [layer.stack.infer(layer.params, x).outputs["h"] for x in xs]
    wrong = []

    def work(number):
        own = copy.deepcopy(layer) if number % 2 else layer
        for _ in range(40):
            if own.infer(xs[number])[0].tobytes() != wanted[number].tobytes():
                wrong.append(number)
        own = pickle.loads(pickle.dumps(layer))
        if own(xs[number])[0].tobytes() != wanted[number].tobytes():
            wrong.append(-number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
