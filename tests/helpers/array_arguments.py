"""Every public argument that is an array, as a table: who takes it, an example, and a run that uses
it. `tests/faults/test_array_arguments.py` tries faults on each, and compares the table with the
signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np
from tiny import cell

import rnnspec
from rnnspec.engine.spans import Pieces, cut
from rnnspec.engine.stream import Stream
from rnnspec.engine.weights import Weights
from rnnspec.language.load import loads
from rnnspec.layers.recurrent import Recurrent
from rnnspec.layers.stack import Stack
from rnnspec.train import clip, compiled, heads, losses, optimise

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
Results = list[Any]
Meanwhile = Callable[[], None]
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


@dataclass(frozen=True)
class Row:
    """takes: the function whose arguments these are; given: name -> array, or a dict, tuple or
    Pieces of arrays; run: of these arguments, and of what happens between passes, gives arrays.
    out: the arguments that are written to. torch: whether the arrays lie in tensors."""

    name: str
    takes: Callable[..., Any]
    given: Mapping[str, Any]
    run: Callable[[dict[str, Any], Meanwhile], Results]
    out: tuple[str, ...] = ()
    torch: bool = False


def changed(value: Any, change: Callable[[np.ndarray], Any]) -> Any:
    """The value with each of its arrays changed."""
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, Mapping):
        return {name: changed(a, change) for name, a in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(changed(a, change) for a in value)
    if isinstance(value, Pieces):
        return Pieces(**{f.name: changed(getattr(value, f.name), change) for f in fields(value)})
    return value


def flat(value: Any) -> list[np.ndarray]:
    """All arrays in what a call gave, [n] each."""
    if value is None or isinstance(value, int | float):
        return [] if value is None else [np.array([value])]
    if isinstance(value, Mapping):
        return [a for name in value for a in flat(value[name])]
    if isinstance(value, tuple | list):
        return [a for part in value for a in flat(part)]
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    return [np.array(value).reshape(-1)]


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


def _stream(given, meanwhile):
    stream = KERNEL.stream(**given, rows=B)
    meanwhile()
    return flat([stream.step({"x": X[0]}), stream.states])


def _stream_step(given, meanwhile):
    return flat(KERNEL.stream(PARAMS, STATES, rows=B).step(**given))


def _stream_reset(given, meanwhile):
    stream = KERNEL.stream(PARAMS, rows=B)
    stream.step({"x": X[0]})
    stream.reset(**given)
    meanwhile()
    return flat([stream.step({"x": X[1]}), stream.states])


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
    ]
    return [Row(f"{r.name} ({memory})", r.takes, r.given, r.run, r.out) for r in rows]


# --- layers

LAYERS = {"num_layers": 2, "bidirectional": True, "dtype": "float64", "threads": 1, "return_all_states": True}
STACK = Stack(SPEC, D, H, memory="low", **LAYERS)
WEIGHTS = STACK.init(0)
STATE = (_random(4, B, H), np.arange(4 * B).reshape(4, B))
LAYER_CALL = {"x": X, "state": STATE, "lengths": LENGTHS, "resets": RESETS}
GRADIENTS = {"dy": _random(T, B, 2 * H), "dstate": _random(4, B, H), "dsteps": {"h_l0": DY}}
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


def _stack_resume(given, meanwhile):
    run = STACK.run_resume(STACK.call(WEIGHTS, **LAYER_CALL), **given)
    meanwhile()
    back = STACK.backward(run, **GRADIENTS)
    return flat([back.params, back.inputs, back.states])


def _layer_rows() -> list[Row]:
    one_way = LAYER_CALL | {"state": (STATE[0][:1], STATE[1][:1])}
    called = {"params": WEIGHTS} | LAYER_CALL
    return [
        Row("layer", Recurrent.__call__, LAYER_CALL, _called("full")),
        Row("layer (low)", Recurrent.__call__, LAYER_CALL, _called("low")),
        Row("layer.infer", Recurrent.infer, LAYER_CALL, lambda given, _: flat(_layer().infer(**given))),
        Row("layer.backward", Recurrent.backward, GRADIENTS, _layer_backward),
        Row("layer.windows", Recurrent.windows, one_way, _windows),
        Row("layer.params", Recurrent.__call__, {"params": WEIGHTS}, _assigned),
        Row("load_state_dict", Recurrent.load_state_dict, {"weights": WEIGHTS}, _loaded),
        Row("stack.check", Stack.check, {"params": WEIGHTS}, _stack_weights(STACK.check)),
        Row("stack.weights", Stack.weights, {"params": WEIGHTS}, _stack_weights(STACK.weights)),
        Row("stack.pack", Stack.pack, {"params": WEIGHTS}, _stack_weights(STACK.pack)),
        Row("stack.call", Stack.call, called, _stack_call),
        Row("stack.forward", Stack.forward, called, _stack_forward),
        Row("stack.infer", Stack.infer, called, _stack_infer),
        Row("stack.backward", Stack.backward, GRADIENTS, _stack_backward),
        Row("stack.run_resume", Stack.run_resume, {"tapes": _KEPT}, _stack_resume),
    ]


# --- training


def _step_of(optimiser):
    def run(given, meanwhile):
        optimiser.step(**given)
        return flat([given["params"], given["state"]])

    return run


def _plain(function, **fixed):
    return lambda given, _: flat([function(**given, **fixed)])


def _in_place(function, what, **fixed):
    def run(given, meanwhile):
        return flat([function(**given, **fixed), given[what]])

    return run


def _adam(given, meanwhile):
    compiled.adam(list(zip(*given["arrays"], strict=True)), (0.1, 0.9, 0.1, 1e-8, 0.01, 1.0), 1)
    return flat(given["arrays"])


def _train_rows() -> list[Row]:
    ids, big = np.array([[1, 0, 5], [5, 5, 2]]), 300
    params, grads = {"a": _random(big), "b": _random(6, 3)}, {"a": _random(big), "b": _random(6, 3)}
    table, linear = {"weight": _random(6, 3)}, {"weight": _random(2, H), "bias": _random(2)}
    labels = np.array([[0, 3, 6]] * T)
    rows = []
    for kind in (optimise.SGD(0.1, 0.9), optimise.Adam(), optimise.AdamW()):
        given = {"params": params, "grads": grads, "state": kind.init(params)}
        rows += [
            Row(f"{type(kind).__name__}.step", type(kind).step, given, _step_of(kind), ("params", "state")),
            Row(f"{type(kind).__name__}.init", type(kind).init, {"params": params}, _plain(kind.init)),
        ]
    four = tuple([a.copy() for a in g.values()] for g in (params, grads, params, grads))
    four = (*four[:3], [np.abs(a) for a in four[3]])
    last = {"y": DY, "lengths": LENGTHS}
    of_loss = {"outputs": DY, "targets": DY[::-1].copy(), "lengths": LENGTHS}
    tokens = {"logits": DY, "labels": labels}
    valid = RESETS
    return [
        *rows,
        Row("adam", compiled.adam, {"arrays": four}, _adam, ("arrays",)),
        Row(
            "check",
            compiled.check,
            {"arrays": four},
            lambda given, _: flat(compiled.check(list(zip(*given["arrays"], strict=True)))),
            ("arrays",),
        ),
        Row("sum_of_squares", compiled.sum_of_squares, {"array": DY}, _plain(compiled.sum_of_squares)),
        Row(
            "add_rows",
            compiled.add_rows,
            {"table": _random(6, 3), "ids": ids.reshape(-1), "rows": _random(6, 3)},
            _in_place(compiled.add_rows, "table"),
            ("table",),
        ),
        Row("check_ids", compiled.check_ids, {"ids": ids}, _plain(compiled.check_ids, count=6)),
        Row("embed", heads.embed, {"params": table, "ids": ids}, _plain(heads.embed)),
        Row(
            "embed_backward",
            heads.embed_backward,
            {"params": table, "ids": ids, "dy": _random(2, 3, 3)},
            _plain(heads.embed_backward),
        ),
        Row("linear", heads.linear, {"params": linear, "y": DY}, _plain(heads.linear)),
        Row(
            "linear_backward",
            heads.linear_backward,
            {"params": linear, "y": DY, "d_logits": _random(T, B, 2)},
            _plain(heads.linear_backward),
        ),
        Row("softmax", heads.softmax, {"logits": DY}, _plain(heads.softmax)),
        Row("at_last", heads.at_last, last, _plain(heads.at_last)),
        Row("at_last_backward", heads.at_last_backward, last | {"d_last": DY[0]}, _plain(heads.at_last_backward)),
        Row("cross_entropy", losses.cross_entropy, tokens | {"lengths": LENGTHS}, _plain(losses.cross_entropy)),
        Row("squared_error", losses.squared_error, of_loss, _plain(losses.squared_error)),
        Row("token_cross_entropy", losses.token_cross_entropy, tokens, _plain(losses.token_cross_entropy)),
        Row("token_losses", losses.token_losses, tokens, _plain(losses.token_losses)),
        Row(
            "reduced",
            losses.reduced,
            {"losses": DY[..., 0], "gradients": DY, "valid": valid},
            _plain(losses.reduced, reduction="steps"),
            ("gradients",),
        ),
        Row(
            "weighted",
            losses.weighted,
            {"losses": DY[..., 0], "valid": valid},
            _plain(losses.weighted, reduction="last"),
        ),
        Row("within", losses.within, {"lengths": LENGTHS, "valid": valid}, _plain(losses.within)),
        Row("length_mask", losses.length_mask, {"lengths": LENGTHS}, _plain(losses.length_mask, steps=T, rows=B)),
        Row(
            "check_labels",
            losses.check_labels,
            {"labels": labels, "valid": valid},
            _plain(losses.check_labels, classes=H),
        ),
        Row("global_norm", clip.global_norm, {"grads": grads}, _plain(clip.global_norm)),
        Row(
            "clip_global_norm",
            clip.clip_global_norm,
            {"grads": grads},
            _in_place(clip.clip_global_norm, "grads", theta=0.5),
            ("grads",),
        ),
        Row(
            "clip_value", clip.clip_value, {"grads": grads}, _in_place(clip.clip_value, "grads", bound=0.5), ("grads",)
        ),
        Row("not_finite", clip.not_finite, {"grads": grads}, lambda given, _: [len(clip.not_finite(**given))]),
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


def _torch_rows() -> list[Row]:
    called = {"input": X, "hx": STATE, "lengths": LENGTHS, "resets": RESETS}
    packed = {
        "data": _random(8, D),
        "batch_sizes": np.array([3, 2, 2, 1]),
        "sorted_indices": np.array([2, 0, 1]),
        "unsorted_indices": np.array([1, 2, 0]),
    }
    function = {"weights": WEIGHTS} | called
    return [
        *(Row(f"torch ({m})", interop.recurrent, function, _torch_function(m), torch=True) for m in ("full", "low")),
        Row("torch packed", interop.recurrent, {"input": packed, "hx": STATE}, _torch_packed, torch=True),
        Row("torch module", interop.Recurrent.forward, called, _torch_module, torch=True),
    ]


# --- all


def _engine_rows() -> list[Row]:
    kernel = type(KERNEL)
    return [
        Row("step", kernel.step, {"params": PARAMS, "inputs": {"x": X[0]}, "states": STATES}, _step),
        Row("stream", kernel.stream, {"params": PARAMS, "states": STATES}, _stream),
        Row("pack", kernel.pack, {"params": PARAMS}, _weights(KERNEL.pack)),
        Row("Weights", Weights.__init__, {"params": PARAMS}, _weights(_by_hand)),
        Row("stream.step", Stream.step, {"inputs": {"x": X[0]}}, _stream_step),
        Row(
            "stream.reset",
            Stream.reset,
            {"states": {"h": STATES["h"][:2], "t": STATES["t"][:2]}, "rows": np.array([2, 0])},
            _stream_reset,
        ),
        Row("cut", cut, {"lengths": LENGTHS, "resets": RESETS}, _cut),
    ]


def _by_hand(params):
    return Weights(KERNEL.spec, KERNEL.dtype, params)


def _cut(given, meanwhile):
    pieces = cut(T, B, **given, reverse=False)
    return flat(KERNEL.infer(PARAMS, {"x": X}, pieces=pieces).outputs)


def rows() -> dict[str, Row]:
    """The table, by name."""
    table = [*_kernel_rows("full"), *_kernel_rows("low"), *_engine_rows(), *_layer_rows(), *_train_rows()]
    return {row.name: row for row in table + (_torch_rows() if interop else [])}


# arguments that are no arrays, beside those whose annotation says that they are numbers or words
NOT_ARRAYS = {"self", "noise", "sizes", "seed", "run", "call", "config", "rng", "numbers", "of"}
PLAIN = {"int", "bool", "str", "float", "None", "np.dtype", "os.PathLike[str]"}
# what takes arguments that are ready, or gives them to the kernel of a thread: `run_resume` of a Stack checks
READY = {"CpuKernel.run_forward", "CpuKernel.run_infer", "CpuKernel.run_record", "CpuKernel.run_resume"}
READY |= {"Weights.packed", "Weights.borrow", "Weights.give_back"}
CLASSES = [type(KERNEL), Weights, Stream, Recurrent, Stack, optimise.SGD, optimise.Adam, optimise.AdamW]
MODULES = [heads, losses, clip, compiled]


def public_arguments() -> dict[Callable[..., Any], set[str]]:
    """Each public function, and those of its arguments that are arrays."""
    found = {}
    for owner in [*CLASSES, *MODULES, *([interop, interop.Recurrent] if interop else [])]:
        for name, function in inspect.getmembers(owner, inspect.isfunction):
            home = getattr(owner, "__name__", "") if inspect.ismodule(owner) else None
            hidden = name.startswith("_") and name != "__call__"
            of_torch = not inspect.ismodule(owner) and function.__module__.startswith("torch")
            if hidden or of_torch or (home is not None and function.__module__ != home):
                continue
            if function.__qualname__ not in READY and not function.__qualname__.startswith("Names."):
                found[function] = {n for n, p in inspect.signature(function).parameters.items() if _may_be_array(n, p)}
    return found


def _may_be_array(name: str, parameter: inspect.Parameter) -> bool:
    return name not in NOT_ARRAYS and not set(str(parameter.annotation).split(" | ")) <= PLAIN
