"""Every public argument that is an array, as a table: who takes it, an example, and a run that uses
it. `tests/faults/test_array_arguments.py` tries faults on each, and compares the table with the
signatures."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from array_arguments_train import train_rows
from array_rows import Meanwhile, Results, Row, changed, flat
from tiny import cell

import rnnspec
from rnnspec.engine.online import Online
from rnnspec.engine.spans import cut
from rnnspec.engine.stream import Stream
from rnnspec.engine.weights import Weights
from rnnspec.language.constraints import Constraint
from rnnspec.language.load import loads
from rnnspec.layers.recurrent import Recurrent
from rnnspec.layers.stack import Stack

try:
    import torch

    from rnnspec.interop import torch as interop
except ImportError:  # the table has no rows of it then
    torch = interop = None

T, B, D, H = 5, 3, 4, 7
SPEC = loads(
    cell(
        "h[t] = tanh(W @ x[t] + U @ h[t-1] + b + t / 100)",
        inputs="{x: D}",
        states="{h: H}",
        parameters="{W: [H, D], U: [H, H], b: [H]}",
        sizes="{D: features, H: units}",
    )
)
_RNG = np.random.default_rng(0)


def _random(*shape: int) -> np.ndarray:
    return _RNG.uniform(-1, 1, shape)


PARAMS = {"W": _random(H, D), "U": _random(H, H), "b": _random(H)}
X, DY = _random(T, B, D), _random(T, B, H)
STATES = {"h": _random(B, H), "t": np.array([3, 0, 11])}
LENGTHS = np.array([5, 0, 2])
RESETS = _RNG.random((T, B)) < 0.3
KERNELS = {m: rnnspec.compile(SPEC, dtype="float64", threads=1, memory=m) for m in ("full", "low")}
KERNEL = KERNELS["full"]


HELD = replace(SPEC, constraints={"U": (Constraint("no_self"), Constraint("norm", (0.5,)))})
OBEYING = Recurrent(HELD, D, H, dtype="float64")
BROKEN = {n: a + 1 for n, a in OBEYING.params.items()}


def _constrained(of):
    return lambda given, meanwhile: flat([of.constrain(**given)])


def _sequence(given: dict[str, Any]) -> dict[str, Any]:
    return {n: a for n, a in given.items() if n in ("params", "inputs", "states", "lengths", "out", "pieces")}


def _forward(kernel):
    def run(given, meanwhile):
        found = kernel.forward(**_sequence(given))
        meanwhile()
        back = kernel.backward(found, {"h": DY})
        return flat([found.outputs, found.final, found.states, back.params, back.inputs, back.states])

    return run


def _call(kernel):
    def run(given, meanwhile):
        call = kernel.call(**_sequence(given))
        meanwhile()
        found = kernel.run_forward(call)
        return flat([found.outputs, found.final, kernel.backward(found, {"h": DY}).params])

    return run


def _infer(kernel):
    def run(given, meanwhile):
        found = kernel.infer(**_sequence(given))
        return flat([found.outputs, found.final])

    return run


def _record(kernel):
    def run(given, meanwhile):
        found = kernel.record(**_sequence(given))
        return flat([found.outputs, found.final, len(found.tape)])

    return run


def _resume(kernel):
    def run(given, meanwhile):
        found = kernel.resume(**given)
        meanwhile()
        back = kernel.backward(found, {"h": DY})
        return flat([back.params, back.inputs, back.states])

    return run


def _backward(kernel):
    def run(given, meanwhile):
        back = kernel.backward(kernel.forward(PARAMS, {"x": X}, STATES, LENGTHS), **given)
        return flat([back.params, back.inputs, back.states])

    return run


def _row_norms(kernel):
    def run(given, meanwhile):
        back = kernel.row_norms(kernel.forward(PARAMS, {"x": X}, STATES, LENGTHS), **given)
        return flat([back.params, back.inputs, back.states])

    return run


def _jvp(kernel):
    def run(given, meanwhile):
        found = kernel.jvp(**given)
        return flat([found.outputs, found.final, found.tangent_outputs, found.tangent_final])

    return run


def _hvp(kernel):
    def run(given, meanwhile):
        found = kernel.hvp(**given)
        return flat([vars(found.gradients), vars(found.tangent_gradients), found.tangent_outputs])

    return run


def _ggn(kernel):
    def run(given, meanwhile):
        return flat([vars(kernel.ggn(**given).products)])

    return run


def _jacobian(kernel):
    def run(given, meanwhile):
        return flat([kernel.jacobian(**given)])

    return run


def _stream(given, meanwhile):
    stream = KERNEL.stream(**given, rows=B)
    meanwhile()
    return flat([stream.step({"x": X[0]}), stream.states])


def _stream_reset(given, meanwhile):
    stream = KERNEL.stream(PARAMS, rows=B)
    stream.step({"x": X[0]})
    stream.reset(**given)
    meanwhile()
    return flat([stream.step({"x": X[1]}), stream.states])


def _stream_refresh(given, meanwhile):
    stream = KERNEL.stream({n: 2 * a for n, a in PARAMS.items()}, STATES, rows=B)
    stream.refresh(**given)
    meanwhile()
    return flat([stream.step({"x": X[0]}), stream.states])


def _online(given, meanwhile):
    stream = KERNEL.online(**given, rows=B)
    meanwhile()
    return flat([stream.step({"x": X[0]}), stream.learn({"h": DY[0]})])


def _online_step(given, meanwhile):
    stream = KERNEL.online(PARAMS, STATES, rows=B)
    first = flat(stream.step(**given))
    meanwhile()
    return [*first, *flat([stream.learn({"h": DY[0]}), stream.step({"x": X[1]})])]


def _online_call(call):
    """The second of two steps, between which there is a call; learning from both."""

    def run(given, meanwhile):
        stream = KERNEL.online(PARAMS, STATES, rows=B)
        stream.step({"x": X[0]})
        first = getattr(stream, call)(**given)
        meanwhile()
        return flat([first, stream.step({"x": X[1]}), stream.learn({"h": DY[1]})])

    return run


def _step(given, meanwhile):
    state = KERNEL.step(**given)
    return flat([state, state.outputs])


def _weights(make):
    def run(given, meanwhile):
        weights = make(given["params"])
        meanwhile()
        return flat([KERNEL.infer(weights, {"x": X}).outputs, weights.params])

    return run


def _kernel_rows(memory: str) -> list[Row]:
    kernel, pieces = KERNELS[memory], cut(T, B, LENGTHS, RESETS, reverse=True)
    whole = {"params": PARAMS, "inputs": {"x": X}, "states": STATES, "lengths": LENGTHS}
    states = {"h": _random(len(pieces), H), "t": np.arange(len(pieces))}
    apart = {"params": PARAMS, "inputs": {"x": X}, "states": states, "pieces": pieces}
    out = {"out": {"h": np.full((T, B, H), np.nan)}}
    dx = {"out": {"x": np.full(X.shape, np.nan)}}
    tape = kernel.record(**whole).tape.copy()
    tape_apart = kernel.record(**apart).tape.copy()
    again = {"params": PARAMS, "inputs": {"x": X}, "tape": tape, "lengths": LENGTHS}
    again_apart = {"params": PARAMS, "inputs": {"x": X}, "tape": tape_apart, "pieces": pieces}
    backward = {"outputs": {"h": DY}, "final": {"h": STATES["h"]}}
    directions = {
        "tangent_params": {n: _random(2, *a.shape) for n, a in PARAMS.items()},
        "tangent_inputs": {"x": _random(2, *X.shape)},
        "tangent_states": {"h": _random(2, B, H)},
    }
    upstream = backward | {"tangent_outputs": {"h": _random(2, *DY.shape)}, "tangent_final": {"h": _random(2, B, H)}}
    of_pieces = {"h": _random(2, len(pieces), H)}
    moved_apart = directions | {"tangent_states": of_pieces, "tangent_final": of_pieces, "outputs": {"h": DY}}
    moved_apart |= {"final": {"h": states["h"]}, "tangent_outputs": {"h": _random(2, *DY.shape)}}
    steps = {n: whole[n] for n in ("params", "inputs", "states")}
    rows = []
    for name, make in {"forward": _forward, "infer": _infer, "record": _record}.items():
        takes = getattr(type(kernel), name)
        rows.append(Row(name, takes, whole | out, make(kernel), ("out",)))
        rows.append(Row(f"{name} of pieces", takes, apart | out, make(kernel), ("out",)))
    rows += [
        Row("call", type(kernel).call, whole, _call(kernel)),
        Row("call of pieces", type(kernel).call, apart, _call(kernel)),
        Row("resume", type(kernel).resume, again, _resume(kernel)),
        Row("resume of pieces", type(kernel).resume, again_apart, _resume(kernel)),
        Row("backward", type(kernel).backward, backward | dx, _backward(kernel), ("out",)),
        Row("row_norms", type(kernel).row_norms, backward | dx, _row_norms(kernel), ("out",)),
        Row("jvp", type(kernel).jvp, whole | directions, _jvp(kernel)),
        Row("jacobian", type(kernel).jacobian, steps, _jacobian(kernel)),
        Row("hvp", type(kernel).hvp, whole | directions | upstream, _hvp(kernel)),
        Row("hvp of pieces", type(kernel).hvp, apart | moved_apart, _hvp(kernel)),
        Row("ggn", type(kernel).ggn, whole | directions | {"curvature": {"h": DY}}, _ggn(kernel)),
    ]
    return [Row(f"{r.name} ({memory})", r.takes, r.given, r.run, r.out) for r in rows]


# --- layers

LAYERS = {"num_layers": 2, "bidirectional": True, "dtype": "float64", "threads": 1, "return_all_states": True}
STACK = Stack(SPEC, D, H, memory="low", **LAYERS)
WEIGHTS = STACK.init(0)
STATE = (_random(4, B, H), np.arange(4 * B).reshape(4, B))
LAYER_CALL = {"x": X, "state": STATE, "lengths": LENGTHS, "resets": RESETS}
GRADIENTS = {"dy": _random(T, B, 2 * H), "dstate": _random(4, B, H), "dsteps": {"h_l0": DY}}
LAYER_TANGENTS = {"tangent_params": WEIGHTS, "tangent_x": _random(T, B, D), "tangent_state": STATE[0]}
TANGENT_GRADIENTS = {f"tangent_{n}": a for n, a in GRADIENTS.items()}
_KEPT = STACK.run_record(STACK.call(WEIGHTS, **LAYER_CALL))[1]


@cache
def _made(memory, **more):
    return Recurrent(SPEC, D, H, memory=memory, **(LAYERS | more))


def _layer(memory="full", **more):
    """A layer with these weights."""
    layer = _made(memory, **more)
    layer.load_state_dict({n: a for n, a in WEIGHTS.items() if n in layer.stack.shapes})
    return layer


def _called(memory):
    def run(given, meanwhile):
        layer = _layer(memory)
        results = layer(**given)
        meanwhile()
        return flat([results, layer.backward(**GRADIENTS), layer.grads])

    return run


def _layer_backward(given, meanwhile):
    layer = _layer()
    y, *_ = layer(**LAYER_CALL)
    return flat([layer.backward(**given, of=y), layer.grads])


def _windows(given, meanwhile):
    layer, found = _layer("low", bidirectional=False, num_layers=1), []
    for window in layer.windows(**given, steps=2):
        meanwhile()
        found += flat([window.y, window.state, layer.backward(np.ones_like(window.y)), layer.grads])
    return found


def _assigned(given, meanwhile):
    layer = _layer()
    layer.params = given["params"]
    results = layer(**LAYER_CALL)
    meanwhile()
    return flat([results, layer.backward(**GRADIENTS), layer.grads])


def _loaded(given, meanwhile):
    layer = _layer()
    layer.load_state_dict(given["weights"])
    meanwhile()
    return flat([layer.infer(**LAYER_CALL), layer.state_dict()])


def _layer_weights():
    """The weights of layers in one direction."""
    layer = _layer(bidirectional=False, num_layers=1)
    return {name: array.copy() for name, array in layer.state_dict().items()}


def _layer_stream(of_a_stack):
    """Of layers in one direction: two steps, and what the states are after them."""

    def run(given, meanwhile):
        layer = _layer(bidirectional=False, num_layers=1)
        stream = (layer.stack if of_a_stack else layer).stream(**given, rows=B)
        meanwhile()
        return flat([stream.step(X[0]), stream.step(X[1]), stream.states])

    return run


def _stack_weights(make):
    def run(given, meanwhile):
        weights = make(given["params"])
        return flat([STACK.infer(weights, **LAYER_CALL).outputs])

    return run


def _stack_call(given, meanwhile):
    call = STACK.call(**given)
    meanwhile()
    run = STACK.run_forward(call)
    return flat([run.outputs, run.final, run.steps, STACK.backward(run, **GRADIENTS).params])


def _stack_forward(given, meanwhile):
    run = STACK.forward(**given)
    meanwhile()
    back = STACK.backward(run, **GRADIENTS)
    return flat([run.outputs, run.final, run.steps, back.params, back.inputs, back.states])


def _stack_infer(given, meanwhile):
    run = STACK.infer(**given)
    return flat([run.outputs, run.final, run.steps])


def _stack_backward(given, meanwhile):
    back = STACK.backward(STACK.forward(WEIGHTS, **LAYER_CALL), **given)
    return flat([back.params, back.inputs, back.states])


def _stack_jvp(given, meanwhile):
    run = STACK.jvp(STACK.call(WEIGHTS, **LAYER_CALL), **given)
    return flat([run.outputs, run.final, run.steps])


def _stack_hvp(given, meanwhile):
    found = STACK.hvp(STACK.call(WEIGHTS, **LAYER_CALL), **given)
    both = (found.gradients, found.tangent_gradients)
    return flat([getattr(back, kind) for back in both for kind in ("params", "inputs", "states")])


def _stack_resume(given, meanwhile):
    run = STACK.run_resume(STACK.call(WEIGHTS, **LAYER_CALL), **given)
    meanwhile()
    back = STACK.backward(run, **GRADIENTS)
    return flat([back.params, back.inputs, back.states])


def _layer_rows() -> list[Row]:
    one_way = LAYER_CALL | {"state": (STATE[0][:1], STATE[1][:1])}
    called, before = {"params": WEIGHTS} | LAYER_CALL, one_way["state"]
    return [
        Row("layer", Recurrent.__call__, LAYER_CALL, _called("full")),
        Row("layer (low)", Recurrent.__call__, LAYER_CALL, _called("low")),
        Row("layer.infer", Recurrent.infer, LAYER_CALL, lambda given, _: flat(_layer().infer(**given))),
        Row("layer.backward", Recurrent.backward, GRADIENTS, _layer_backward),
        Row("layer.windows", Recurrent.windows, one_way, _windows),
        Row("layer.stream", Recurrent.stream, {"state": before}, _layer_stream(False)),
        Row("stack.stream", Stack.stream, {"params": _layer_weights(), "state": before}, _layer_stream(True)),
        Row("layer.params", Recurrent.__call__, {"params": WEIGHTS}, _assigned),
        Row("load_state_dict", Recurrent.load_state_dict, {"weights": WEIGHTS}, _loaded),
        Row("stack.check", Stack.check, {"params": WEIGHTS}, _stack_weights(STACK.check)),
        Row("stack.weights", Stack.weights, {"params": WEIGHTS}, _stack_weights(STACK.weights)),
        Row("stack.constrain", Stack.constrain, {"params": BROKEN}, _constrained(OBEYING.stack)),
        Row("stack.pack", Stack.pack, {"params": WEIGHTS}, _stack_weights(STACK.pack)),
        Row("stack.call", Stack.call, called, _stack_call),
        Row("stack.forward", Stack.forward, called, _stack_forward),
        Row("stack.infer", Stack.infer, called, _stack_infer),
        Row("stack.backward", Stack.backward, GRADIENTS, _stack_backward),
        Row("stack.jvp", Stack.jvp, LAYER_TANGENTS, _stack_jvp),
        Row("stack.hvp", Stack.hvp, GRADIENTS | LAYER_TANGENTS | TANGENT_GRADIENTS, _stack_hvp),
        Row("stack.run_resume", Stack.run_resume, {"tapes": _KEPT}, _stack_resume),
    ]


# --- torch


def tensors(value: Any) -> Any:
    """The arrays of a value as tensors on the same memory."""
    return changed(value, lambda a: torch.from_numpy(a))


def _torch_results(results: Any, leaves: list[Any], meanwhile: Meanwhile) -> Results:
    y, state, steps = results
    meanwhile()
    y = y.data if hasattr(y, "batch_sizes") else y
    ends = [y, state[0]]
    return flat([*ends, state[1], steps, list(torch.autograd.grad(ends, leaves, [torch.ones_like(e) for e in ends]))])


def _torch_function(memory):
    config = _described(memory)

    def run(given, meanwhile):
        given = tensors(given)
        leaves = [given["input"], given["hx"][0], *given["weights"].values()]
        for tensor in leaves:
            tensor.requires_grad_()
        return _torch_results(interop.recurrent(config, **given, threads=1), leaves, meanwhile)

    return run


@cache
def _described(memory):
    return interop.describe(SPEC, D, H, memory=memory, num_layers=2, bidirectional=True, return_all_states=["h"])


def _torch_packed(given, meanwhile):
    x = tensors(given["input"])
    x["data"].requires_grad_()
    sequence = torch.nn.utils.rnn.PackedSequence(**x)
    weights = tensors(WEIGHTS)
    y, state, _ = interop.recurrent(_described("full"), weights, sequence, tensors(given["hx"]), threads=1)
    return _torch_results((y, state, {}), [x["data"]], meanwhile)


@cache
def _module():
    options = {"num_layers": 2, "bidirectional": True, "return_all_states": ["h"]}
    return interop.Recurrent(SPEC, D, H, dtype=torch.float64, threads=1, **options)


def _torch_module(given, meanwhile):
    module = _module()
    module.load_state_dict(tensors(WEIGHTS))
    given = tensors(given)
    given["input"].requires_grad_()
    return _torch_results(module(**given), [given["input"], *module.parameters()], meanwhile)


@cache
def _module_one_way():
    return interop.Recurrent(SPEC, D, H, dtype=torch.float64, threads=1)


def _torch_one_way():
    module = _module_one_way()
    module.load_state_dict({n: t for n, t in tensors(WEIGHTS).items() if n in module.state_dict()})
    return module


def _torch_windows(given, meanwhile):
    module, found = _torch_one_way(), []
    given = tensors(given)
    given["input"].requires_grad_()
    for window in module.windows(**given, steps=2):
        meanwhile()
        found += flat([window.y, window.state])
    return found


def _torch_stream(given, meanwhile):
    stream = _torch_one_way().eval().stream(**tensors(given), rows=B)
    meanwhile()
    with torch.no_grad():
        return flat([stream.step(torch.from_numpy(X[0])), stream.step(torch.from_numpy(X[1]))])


def _torch_rows() -> list[Row]:
    called = {"input": X, "hx": STATE, "lengths": LENGTHS, "resets": RESETS}
    packed = {
        "data": _random(8, D),
        "batch_sizes": np.array([3, 2, 2, 1]),
        "sorted_indices": np.array([2, 0, 1]),
        "unsorted_indices": np.array([1, 2, 0]),
    }
    function, before = {"weights": WEIGHTS} | called, (STATE[0][:1], STATE[1][:1])
    return [
        *(Row(f"torch ({m})", interop.recurrent, function, _torch_function(m), torch=True) for m in ("full", "low")),
        Row("torch packed", interop.recurrent, {"input": packed, "hx": STATE}, _torch_packed, torch=True),
        Row("torch module", interop.Recurrent.forward, called, _torch_module, torch=True),
        Row("torch windows", interop.Recurrent.windows, called | {"hx": before}, _torch_windows, torch=True),
        Row("torch stream", interop.Recurrent.stream, {"hx": before}, _torch_stream, torch=True),
    ]


# --- all


def _engine_rows() -> list[Row]:
    return [
        Row("step", type(KERNEL).step, {"params": PARAMS, "inputs": {"x": X[0]}, "states": STATES}, _step),
        Row("stream", type(KERNEL).stream, {"params": PARAMS, "states": STATES}, _stream),
        Row("online", type(KERNEL).online, {"params": PARAMS, "states": STATES}, _online),
        Row("online.step", Online.step, {"inputs": {"x": X[2]}}, _online_step),
        Row("online.learn", Online.learn, {"d_outputs": {"h": DY[0]}}, _online_call("learn")),
        Row("online.refresh", Online.refresh, {"params": PARAMS}, _online_call("refresh")),
        Row(
            "online.reset",
            Online.reset,
            {"states": {"h": STATES["h"][:2], "t": STATES["t"][:2]}, "rows": np.array([2, 0])},
            _online_call("reset"),
        ),
        Row("constrain", type(KERNEL).constrain, {"params": PARAMS}, _constrained(OBEYING.kernel)),
        Row("pack", type(KERNEL).pack, {"params": PARAMS}, _weights(KERNEL.pack)),
        Row(
            "Weights",
            Weights.__init__,
            {"params": PARAMS},
            _weights(lambda params: Weights(SPEC, KERNEL.dtype, params)),
        ),
        Row(
            "stream.step",
            Stream.step,
            {"inputs": {"x": X[0]}},
            lambda given, _: flat(KERNEL.stream(PARAMS, STATES, rows=B).step(**given)),
        ),
        Row(
            "stream.reset",
            Stream.reset,
            {"states": {"h": STATES["h"][:2], "t": STATES["t"][:2]}, "rows": np.array([2, 0])},
            _stream_reset,
        ),
        Row("stream.refresh", Stream.refresh, {"params": PARAMS}, _stream_refresh),
        Row("cut", cut, {"lengths": LENGTHS, "resets": RESETS}, _cut),
    ]


def _cut(given, meanwhile):
    return flat(KERNEL.infer(PARAMS, {"x": X}, pieces=cut(T, B, **given, reverse=False)).outputs)


def rows() -> dict[str, Row]:
    """The table, by name."""
    table = [*_kernel_rows("full"), *_kernel_rows("low"), *_engine_rows(), *_layer_rows(), *train_rows()]
    return {row.name: row for row in table + (_torch_rows() if interop else [])}
