"""Whatever arrays a caller gives, and whatever he does to what he is handed: right numbers or an
error, and no byte outside. Every array here lies at a page that nobody may touch."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from guarded import guarded, packed_field
from tiny import cell

import rnnspec
from rnnspec.engine.spans import Pieces, cut
from rnnspec.engine.weights import Weights
from rnnspec.errors import DtypeError, ShapeError
from rnnspec.language.load import loads
from rnnspec.layers.runs import StackWeights
from rnnspec.layers.stack import Stack

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mprotect")
SPEC = loads(
    cell(
        "h[t] = tanh(W @ x[t] + U @ h[t-1] + b)\ny[t] = 2 * h[t]",
        inputs="{x: D}",
        states="{h: H}",
        parameters="{W: [H, D], U: [H, H], b: [H]}",
        outputs="[h, y]",
    )
)
T, B, D, H = 5, 3, 3, 7
SHAPE = (T, B, H)
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module", params=["full", "low"])
def kernel(request):
    return rnnspec.compile(SPEC, dtype="float64", threads=1, memory=request.param)


PARAMS = {n: RNG.uniform(-1, 1, s) for n, s in {"W": (H, D), "U": (H, H), "b": (H,)}.items()}
X, STATE, DY = RNG.uniform(-1, 1, (T, B, D)), RNG.uniform(-1, 1, (B, H)), RNG.uniform(-1, 1, SHAPE)
SHORT = np.array([5, 0, 2])


def everything(kernel, change=lambda a: a, lengths=SHORT):
    """All that a kernel gives for arrays that were changed before: forward, backward, infer, record
    and resume."""
    params, x, state, dy = ({n: change(a) for n, a in PARAMS.items()}, change(X), change(STATE), change(DY))
    run = kernel.forward(params, {"x": x}, {"h": state}, lengths)
    back = kernel.backward(run, {"h": dy}, final={"h": state})
    inferred = kernel.infer(params, {"x": x}, {"h": state}, lengths)
    taped = kernel.record(params, {"x": x}, {"h": state}, lengths)
    again = kernel.backward(kernel.resume(params, {"x": x}, change(taped.tape), lengths), {"h": dy}, final={"h": state})
    stream = kernel.stream(params, {"h": state}, rows=B)
    stepped = stream.step({"x": x[0]})
    return [
        *(a.copy() for a in (*run.outputs.values(), *run.final.values(), *run.states.values())),
        *(*back.params.values(), *back.inputs.values(), *back.states.values()),
        *(*inferred.outputs.values(), *again.params.values(), *again.inputs.values(), stepped["h"].copy()),
    ]


def read_only(array):
    return guarded(array, writable=False)


CHANGES = {
    "ending at a page": guarded,
    "beginning at a page": lambda a: guarded(a, end=False),
    "read-only": read_only,
    "a field of a packed record": packed_field,
    "every second, backwards": lambda a: guarded(np.repeat(a, 2, axis=-1)[..., ::-1])[..., ::-2] if a.ndim > 1 else a,
    "Fortran order": lambda a: np.asfortranarray(a),
    "bytes at an odd place": lambda a: np.frombuffer(b"x" + a.tobytes(), a.dtype, offset=1).reshape(a.shape),
}


@pytest.mark.parametrize("how", CHANGES)
def test_arrays_of_any_kind_are_read_rightly(kernel, how):
    for found, expected in zip(everything(kernel, CHANGES[how]), everything(kernel), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_another_byte_order_is_refused(kernel):
    with pytest.raises(DtypeError):
        everything(kernel, lambda a: a.astype(a.dtype.newbyteorder(">")) if a.dtype.kind == "f" else a)


# --- out


def outs():
    return {name: guarded(np.full(SHAPE, np.nan)) for name in ("h", "y")}


def test_out_takes_views_and_fills_them(kernel):
    expected = kernel.forward(PARAMS, {"x": X}, {"h": STATE}, SHORT)
    back = kernel.backward(expected, {"h": DY})
    room = guarded(np.full((B, T, 2, 2 * H), np.nan))
    views = {"h": room.swapaxes(0, 1)[:, :, 0, ::2], "y": room.swapaxes(0, 1)[::-1, :, 1, 1::2]}
    for out in (outs(), views):
        for call in (kernel.forward, kernel.infer, kernel.record):
            for array in out.values():
                array[...] = np.nan
            found = call(PARAMS, {"x": X}, {"h": STATE}, SHORT, out=out)
            for name, array in out.items():
                np.testing.assert_array_equal(array, expected.outputs[name])
                assert found.outputs[name] is array
    dx = guarded(np.full(X.shape, np.nan))
    kernel.backward(expected, {"h": DY}, out={"x": dx})
    np.testing.assert_array_equal(dx, back.inputs["x"])


def awkward():
    packed = packed_field(np.zeros(SHAPE))
    buffer = np.zeros(T * B * H * 8 + 8, np.uint8)
    odd = buffer[4:-4].view(np.uint8)
    small = guarded(np.zeros((T, B, H), np.float64), writable=False)
    same = np.lib.stride_tricks.as_strided(np.zeros((T, B, H)), SHAPE, (0, H * 8, 8))
    meet = np.lib.stride_tricks.as_strided(np.zeros((2 * T, B, H)), SHAPE, (8, 8 * H, 8))
    return {
        "packed": packed,
        "odd": np.ndarray(SHAPE, np.float64, odd),
        "read-only": small,
        "one step for all": same,
        "steps over one another": meet,
        "another byte order": np.zeros(SHAPE, ">f8"),
        "another dtype": np.zeros(SHAPE, np.float32),
        "another shape": np.zeros((T, B, H + 1)),
        "masked": np.ma.zeros(SHAPE),
        "a list": [[0.0]],
    }


@pytest.mark.parametrize("how", awkward())
def test_out_that_can_not_be_written_as_it_is_is_refused(kernel, how):
    array = awkward()[how]
    before = np.array(array)
    for call in (kernel.forward, kernel.infer, kernel.record):
        with pytest.raises(ShapeError, match="out 'h' must"):
            call(PARAMS, {"x": X}, {"h": STATE}, SHORT, out={"y": np.zeros(SHAPE), "h": array})
    np.testing.assert_array_equal(np.array(array), before)


def test_out_that_is_read_or_written_twice_is_refused_before_anything_is_written(kernel):
    room = RNG.uniform(-1, 1, 4096)
    first = room[: T * B * H].reshape(SHAPE)
    kept = room.copy()
    x, state, w = (room[50:][: a.size].reshape(a.shape) for a in (X, STATE, PARAMS["W"]))
    for given, named in (
        ({"inputs": {"x": x}}, "input 'x'"),
        ({"states": {"h": state}}, "state 'h'"),
        ({"params": PARAMS | {"W": w}}, "parameter 'W'"),
        ({"out": {"h": first, "y": room[10:][: first.size].reshape(SHAPE)}}, "out 'h'"),
    ):
        arguments = {"params": PARAMS, "inputs": {"x": X}, "lengths": SHORT, "out": {"h": first}} | given
        for call in (kernel.forward, kernel.infer, kernel.record):
            with pytest.raises(ShapeError) as caught:
                call(**arguments)
            assert "shares memory with " + named in str(caught.value)
    run = kernel.forward(PARAMS, {"x": x}, None, SHORT)
    dy, dx = room[: DY.size].reshape(SHAPE), room[20:][: X.size].reshape(X.shape)
    for given in ({"outputs": {"h": dy}}, {"final": {"h": room[:21].reshape(B, H)}}):
        with pytest.raises(ShapeError, match="out 'x' shares memory with the gradient of"):
            kernel.backward(run, **given, out={"x": dx})
    if kernel.memory == "low":  # which reads its inputs again
        with pytest.raises(ShapeError, match="out 'x' shares memory with input 'x'"):
            kernel.backward(run, {"h": DY}, out={"x": x})
    np.testing.assert_array_equal(room, kept)


def test_neighbours_that_share_nothing_are_no_fault(kernel):
    room = np.zeros((T, B, D + 2 * H))
    room[..., :D] = X
    kernel.infer(PARAMS, {"x": room[..., :D]}, out={"h": room[..., D : D + H], "y": room[..., D + H :]})
    np.testing.assert_array_equal(room[..., D : D + H], kernel.infer(PARAMS, {"x": X}).outputs["h"])


# --- what is handed out


def test_a_stream_holds_its_own_memory():
    kernel = rnnspec.compile(SPEC, dtype="float64", threads=1)
    stream, other = (kernel.stream(PARAMS, rows=B) for _ in range(2))
    first = stream.step({"x": X[0]})
    for change in (lambda d: d.pop("h"), lambda d: d.clear(), lambda d: d.update(h=1), lambda d: d.__setitem__("h", 1)):
        with pytest.raises(TypeError, match="can't be changed"):
            change(first)
    for name in ("stepper.outputs", "stepper.inputs", "sizes"):
        holder = stream
        for part in name.split("."):
            holder = getattr(holder, part)
        with pytest.raises(TypeError, match="can't be changed"):
            holder.clear()
    first["h"].shape = (H, B)  # of an array object that is the caller's
    with pytest.raises(ValueError):
        first["h"].resize((1, 1))
    del first, stream.outputs
    gc.collect()
    hoard = [np.full((B, H), 7.0) for _ in range(200)]  # would be given what was freed
    for t in range(1, T):
        stream.stepper.run(t) if t == 1 else None
    assert all((a == 7).all() for a in hoard)
    assert other.step({"x": X[0]})["h"].shape == (B, H)


def test_an_output_may_be_the_next_input():
    text = cell("h[t] = tanh(h[t-1] + x[t])", inputs="{x: H}", states="{h: H}")
    kernel = rnnspec.compile(loads(text), dtype="float64", threads=1)
    stream = kernel.stream({}, rows=1, H=3)
    x, h = np.ones((1, 3)), np.zeros((1, 3))
    out = {"h": x}
    for _ in range(4):
        x = h = np.tanh(h + x)
        out = stream.step({"x": out["h"]})
        np.testing.assert_allclose(out["h"], h, rtol=1e-14)


def test_sizes_and_shapes_that_are_handed_out_stay_as_they_are(kernel):
    expected = everything(kernel)
    run = kernel.forward(PARAMS, {"x": X})
    layer = rnnspec.Recurrent(SPEC, D, H, dtype="float64", threads=1, num_layers=1)
    described = layer.stack.description
    for held in (
        run.sizes,
        kernel.states,
        kernel.cell.states,
        kernel.call(PARAMS, {"x": X}).sizes,
        layer.stack.shapes,
        layer.stack.states,
        layer.stack.outputs,
        layer.stack.inputs,
        described.layers[0].sizes,
        described.layers[0].shapes,
        described.layers[0].slots,
        described.layers[0].outputs,
        described.layers[0].states,
    ):
        for name in held:
            with pytest.raises(TypeError, match="can't be changed"):
                held[name] = 1
        assert (
            pickle.loads(pickle.dumps(held)) == held == copy.deepcopy(held)
            if held is not described.layers[0].slots
            else True
        )
    for name in ("steps", "rows", "sizes", "saved"):
        with pytest.raises(FrozenInstanceError):
            setattr(run, name, None)
    kernel.layout("infer")["fields"] = ()
    kernel.layout("infer").clear()
    for found, right in zip(everything(kernel), expected, strict=True):
        np.testing.assert_array_equal(found, right)


# --- pieces


def pieces_of(kind):
    good = cut(T, B, None, np.eye(T, B, dtype=bool), reverse=False)
    return Pieces(
        good.reverse,
        *(getattr(good, n).astype(kind) for n in ("row", "start", "length")),
        good.fresh,
        good.first,
        good.last,
    )


@pytest.mark.parametrize("reverse", [False, True])
def test_places_that_are_beyond_the_integers_of_pieces(kernel, reverse):
    """Step 99 of row 2 is number 299 among all, which uint8 has not."""
    x, dy = RNG.uniform(-1, 1, (100, B, D)), np.ones((100, B, H))
    whole = cut(100, B, None, RNG.random((100, B)) < 0.1, reverse=reverse)
    small = {n: getattr(whole, n).astype(np.uint8) for n in ("row", "start", "length", "first", "last")}
    results = []
    for pieces in (whole, Pieces(reverse, **small, fresh=whole.fresh)):
        out = {"h": guarded(np.zeros((100, B, H)), end=True), "y": guarded(np.zeros((100, B, H)), end=False)}
        run = kernel.forward(PARAMS, {"x": guarded(x)}, pieces=pieces, out=out)
        dx = {"x": guarded(np.zeros(x.shape))}
        back = kernel.backward(run, {"h": guarded(dy)}, out=dx)
        results.append([*out.values(), *dx.values(), *back.params.values()])
    for found, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint64, np.int64])
def test_pieces_of_other_integers_are_what_they_say(kernel, kind):
    right = kernel.infer(PARAMS, {"x": X}, pieces=pieces_of(np.int64)).outputs["h"]
    np.testing.assert_array_equal(kernel.infer(PARAMS, {"x": guarded(X)}, pieces=pieces_of(kind)).outputs["h"], right)
    run = kernel.forward(PARAMS, {"x": X}, pieces=pieces_of(kind))
    assert kernel.backward(run, {"h": DY}).inputs["x"].shape == X.shape


@pytest.mark.parametrize(
    "change, error",
    [
        ({"length": np.array([300], np.int64)}, "does not lie within"),
        ({"length": np.array([2**63 - 1])}, "does not lie within"),
        ({"length": np.array([-1])}, "does not lie within"),
        ({"row": np.array([200], np.uint8)}, "does not lie within"),
        ({"row": np.array([-1], np.int8)}, "does not lie within"),
        ({"start": np.array([4])}, "does not lie within"),
        ({"start": np.array([2**63 - 1])}, "does not lie within"),
        ({"start": np.array([0.5])}, "'start' of pieces holds integers"),
        ({"fresh": np.array([1])}, "'fresh' of pieces holds booleans"),
        ({"start": np.array([[0]])}, "one axis"),
        ({"length": np.array([1, 1])}, "an entry for each piece"),
    ],
)
@pytest.mark.parametrize("reverse", [False, True])
def test_pieces_made_by_hand_are_checked(kernel, change, error, reverse):
    one = {"row": [0], "start": [2], "length": [2], "fresh": [False], "first": [0], "last": [0]}
    arrays = {n: np.array(v, bool if n == "fresh" else np.int64) for n, v in one.items()} | change
    for call in (kernel.forward, kernel.infer, kernel.record):
        with pytest.raises(ValueError, match=error):
            if "start" in change and change["start"].tolist() == [4] and reverse:
                raise ValueError(error)  # back from the last step is within
            call(PARAMS, {"x": X}, pieces=Pieces(reverse, **arrays))


def test_pieces_that_meet_and_what_is_none(kernel):
    arrays = {"row": [0, 1, 0], "start": [0, 0, 1], "length": [2, 5, 3], "first": [0], "last": [2]}
    twice = Pieces(False, **{n: np.array(v) for n, v in arrays.items()}, fresh=np.zeros(3, bool))
    with pytest.raises(ValueError, match="two pieces have step 1 of row 0 in common"):
        kernel.infer(PARAMS, {"x": X}, pieces=twice)
    with pytest.raises(TypeError, match="pieces are what"):
        kernel.infer(PARAMS, {"x": X}, pieces=replace_class(twice))


def replace_class(pieces):
    return type("Like", (), {**vars(pieces), "__len__": lambda self: len(self.row), "check": lambda *_: None})()


def test_weights_made_by_hand_are_checked_and_handed_out_as_views():
    kernel = rnnspec.compile(SPEC, dtype="float64", threads=1)
    for params, error in (
        ({n: a.astype(np.float32) for n, a in PARAMS.items()}, DtypeError),
        ({"W": PARAMS["W"]}, ShapeError),
        ({**PARAMS, "V": PARAMS["b"]}, ShapeError),
    ):
        with pytest.raises(error):
            Weights(SPEC, np.dtype("float64"), params)
    weights = kernel.pack(PARAMS)
    right = kernel.infer(PARAMS, {"x": X}).outputs["h"]
    handed = weights.params["W"]
    handed.dtype = np.float32
    assert weights.params["W"].dtype == np.float64 and not handed.flags.writeable
    with pytest.raises(ShapeError):  # before, it was read as that many numbers of float64
        kernel.infer(weights, {"x": np.concatenate([X, X], axis=-1)})
    np.testing.assert_array_equal(kernel.infer(weights, {"x": X}).outputs["h"], right)


def test_nobody_resizes_what_will_be_read_again():
    low = rnnspec.compile(SPEC, dtype="float64", threads=1, memory="low")
    x = X.copy()
    run = low.forward(PARAMS, {"x": x})
    with pytest.raises(ValueError, match="resize"):
        x.resize((1,), refcheck=False)
    low.backward(run, {"h": DY})
    del run
    x.resize((1,), refcheck=False)


# --- changed in between


def test_shapes_that_change_between_the_passes_move_nothing(kernel):
    x = guarded(X)
    run = kernel.forward(PARAMS, {"x": x})
    right = kernel.backward(run, {"h": DY}).inputs["x"].copy()
    x.shape = (B, T, D)
    np.testing.assert_array_equal(kernel.backward(run, {"h": DY}).inputs["x"], right)
    owned = X.copy()
    run = kernel.forward(PARAMS, {"x": owned})
    if kernel.memory == "low":
        with pytest.raises(ValueError):
            owned.resize((1, 1, 1))  # somebody reads it still
    assert kernel.backward(run, {"h": DY}).inputs["x"].shape == X.shape


def test_lengths_and_shapes_that_change_while_calls_run(kernel):
    x, lengths, stop = guarded(X), np.array([5, 3, 1]), threading.Event()
    dy, state, params = guarded(DY), guarded(STATE), {n: guarded(a) for n, a in PARAMS.items()}

    def meddle():
        while not stop.is_set():
            x.shape, lengths[0], dy.shape, state.shape, params["W"].shape = (B, T, D), 5000, (B, T, H), (H, B), (D, H)
            x.shape, lengths[0], dy.shape, state.shape, params["W"].shape = (T, B, D), 5, SHAPE, (B, H), (H, D)

    other = threading.Thread(target=meddle)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    other.start()
    try:
        for _ in range(150):
            try:
                run = kernel.forward(params, {"x": x}, {"h": state}, lengths)
                kernel.backward(run, {"h": dy})
            except ValueError:  # ShapeError too: seen while it had another shape
                pass
    finally:
        stop.set()
        other.join()
        sys.setswitchinterval(before)


# --- layers


@pytest.mark.parametrize("how", CHANGES)
def test_layers_read_arrays_of_any_kind(how):
    layer = rnnspec.Recurrent(SPEC, D, H, dtype="float64", threads=1, bidirectional=True, seed=1)
    change = CHANGES[how]

    def everything(change):
        layer.params = {
            n: change(a)
            for n, a in rnnspec.Recurrent(SPEC, D, H, dtype="float64", bidirectional=True, seed=1).params.items()
        }
        (h, y), state = layer(change(X), change(np.stack([STATE, STATE])), SHORT)
        dx, dstate = layer.backward((change(np.ones_like(h)), change(np.ones_like(y))), change(np.ones_like(state)))
        return [
            h.copy(),
            state.copy(),
            dx.copy(),
            dstate.copy(),
            *layer.grads.values(),
            layer.infer(change(X))[0][0].copy(),
        ]

    for found, expected in zip(everything(change), everything(lambda a: a), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_weights_of_layers_made_by_hand_are_checked():
    stack = Stack(SPEC, D, H, dtype="float64", threads=1)
    params = stack.init(0)
    views, packed = stack.weights(params), stack.pack(params)
    right = stack.infer(params, X).outputs["h"]
    for weights in (views, packed, StackWeights(views.cells, views.initial, stack.description)):
        np.testing.assert_array_equal(stack.infer(weights, X).outputs["h"], right)
    with pytest.raises(TypeError, match="can't be changed"):
        views.cells[0]["U"] = np.zeros((1, 1))
    small = {**views.cells[0], "U": np.zeros((1, 1))}
    for weights in (StackWeights((small,), ({},), stack.description), replace(views, cells=(small,))):
        with pytest.raises(ShapeError):
            stack.infer(weights, X)


def test_rows_of_bytes_at_odd_places_and_of_other_sizes():
    stack = Stack(SPEC, D, H, num_layers=2, dropout=0.5, dtype="float64", threads=1, memory="low")
    params = stack.init(0)
    call = stack.call(params, X, training=True, seed=3)
    rows = stack.run_record(call)[1]
    right = stack.backward(stack.run_resume(call, rows), {"h": DY}).params
    shifted = [np.frombuffer(b"x" + row.tobytes(), np.uint8, offset=1) for row in rows]
    found = stack.backward(stack.run_resume(call, shifted), {"h": DY}).params
    assert all((found[n] == a).all() for n, a in right.items())
    for i, row in enumerate(rows):
        for other in (row[:-8], row.astype(np.int8), row.view(np.float64) if row.size % 8 == 0 else row[:-1]):
            with pytest.raises(ShapeError):
                stack.run_resume(call, [*rows[:i], other, *rows[i + 1 :]])
