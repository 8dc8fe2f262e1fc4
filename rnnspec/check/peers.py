"""Whether a cell is what it says it is the same as: the claims under `same_as`, checked against the
libraries that are installed.

    for one in compare(rnnspec.load("lstm")):
        print(one.claim, one.difference, one.tolerance, one.reason)

Each claim is run with random parameters, inputs, states and lengths, packed by the cell's own
layout for that library.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.check.difference import worst
from rnnspec.check.kinds import ArrayKind, Values
from rnnspec.engine.compile import compile
from rnnspec.engine.kernel import Kernel
from rnnspec.language.layouts import pack, pack_gradients
from rnnspec.language.sizes import full_shape, sizes_in
from rnnspec.language.spec import Shape, Spec

Arrays = dict[str, Array]

TOLERANCES = {"float64": 1e-10, "float32": 1e-5}
"""Parts of the largest value, or of the largest gradient: both sides sum in their own order and
have their own exp and tanh, good to some 1e-6 (float32)."""
STEPS, ROWS, PRIMES = 7, 5, (3, 5, 2, 7)
LENGTHS = (7, 2, 5, 1, 3)  # none is 0: PyTorch refuses that, and ONNX Runtime then forgets the initial state


@dataclass(frozen=True)
class Claim:
    """One claim, and what became of it.

    difference: the largest, relative to the largest value; None where the claim could not be run,
    and `reason` says why. detail: which array has the largest difference.
    """

    claim: str
    difference: float | None = None
    tolerance: float | None = None
    reason: str = ""
    detail: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the claim held where it was tried; None where it could not be."""
        if self.difference is None or self.tolerance is None:
            return None
        return self.difference <= self.tolerance


class NotRun(Exception):
    """Why a claim can't be checked here."""


def compare(spec: Spec, dtype: str = "float32", seed: int = 0, kernel: Kernel | None = None) -> list[Claim]:
    """What becomes of every claim of the cell: values of all steps, final states and, where the
    library has them, gradients, of the kernel and of the library.

    kernel: of these equations and this dtype, if there is one. What a library raises counts as an
    infinite difference, with its message as `detail`.
    """
    found = []
    for layer, attributes in spec.same_as.items():
        text = ", ".join(f"{name}: {_shown(value)}" for name, value in attributes.items())
        library, _, name = layer.rpartition(".")
        peers = _PEERS.get(library, {})
        if not peers:
            found.append(
                Claim(
                    f"{layer} {{{text}}}",
                    reason=f"no library is known by the name {library!r} (known are {', '.join(_PEERS)})",
                )
            )
        for suffix, peer in peers.items():
            claim = f"{layer}{suffix} {{{text}}}"
            try:
                kernel = kernel or compile(spec, dtype=dtype)
                case = _draw(
                    spec,
                    kernel,
                    f"{library.split('.')[0]}.{name}",
                    {n: _value(v, spec) for n, v in attributes.items()},
                    seed,
                )
                theirs = peer(case, name)
                gap = worst(_ours(case, theirs), theirs)
                found.append(Claim(claim, gap.error, TOLERANCES[dtype], detail=gap.text))
            except NotRun as reason:
                found.append(Claim(claim, reason=str(reason)))
            except Exception as error:  # whatever a library raises is a claim that does not hold
                found.append(Claim(claim, math.inf, TOLERANCES[dtype], detail=f"{type(error).__name__}: {error}"))
    return found


def onnx_runtime(node: Any, arrays: Mapping[str, Any]) -> Arrays:
    """The outputs of one ONNX node in ONNX Runtime, by the node's names."""
    import onnxruntime
    from onnx import helper
    from onnx.helper import np_dtype_to_tensor_dtype

    def value(name: str, dtype: Any) -> Any:
        return helper.make_tensor_value_info(name, np_dtype_to_tensor_dtype(np.dtype(dtype)), None)

    outputs = [name for name in node.output if name]
    inputs = [value(name, arrays[name].dtype) for name in node.input if name]
    graph = helper.make_graph(
        [node], node.op_type, inputs, [value(name, arrays[node.input[0]].dtype) for name in outputs]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong is raised
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip(outputs, session.run(outputs, dict(arrays))))


# --- ours ---


@dataclass(frozen=True)
class _Case:
    """x [T, B, D]; states and d_final [B, ...]; dy [T, B, ...], 0 past the end of a row; blocks:
    the parameters as the library packs them."""

    spec: Spec
    kernel: Kernel
    layout: str
    attributes: Mapping[str, Any]
    sizes: Mapping[str, int]
    params: Arrays
    blocks: Arrays
    x: Array
    states: Arrays
    lengths: Array
    dy: Array
    d_final: Arrays


def _draw(spec: Spec, kernel: Kernel, layout: str, attributes: Mapping[str, Any], seed: int) -> _Case:
    rng = np.random.default_rng(seed)
    if layout not in spec.layouts:
        raise NotRun(f"the spec has no layout {layout!r}, which says how the library packs the parameters")
    if set(spec.inputs) != {"x"} or len(spec.outputs) != 1:
        raise NotRun("only cells of one input x and one output are run against a library's layer")
    sizes = dict(zip(sizes_in(spec.parameters.values()), PRIMES))

    def values(*lead: int, shape: Shape) -> Array:
        return rng.uniform(-1, 1, (*lead, *full_shape(shape, sizes))).astype(kernel.dtype)

    params = {n: values(shape=s) for n, s in spec.parameters.items()}
    lengths = np.array(LENGTHS)
    alive = (np.arange(STEPS)[:, None] < lengths)[..., None]
    return _Case(
        spec,
        kernel,
        layout,
        {n: sizes.get(v, v) if isinstance(v, str) else v for n, v in attributes.items()},
        sizes,
        params,
        pack(spec, layout, params),
        values(STEPS, ROWS, shape=spec.inputs["x"]),
        {n: values(ROWS, shape=s) for n, s in spec.states.items()},
        lengths,
        values(STEPS, ROWS, shape=spec.shapes[spec.outputs[0]]) * alive,
        {n: values(ROWS, shape=s) for n, s in spec.states.items()},
    )


def _ours(case: _Case, theirs: Values) -> Values:
    """The kernel's values of everything that the library gave."""
    output, arguments = case.spec.outputs[0], (case.params, {"x": case.x}, case.states, case.lengths)
    if not any(kind.is_gradient for kind in theirs):
        inferred = case.kernel.infer(*arguments)
        return {ArrayKind.OUTPUT: inferred.outputs, ArrayKind.FINAL: inferred.final}
    run = case.kernel.forward(*arguments)
    gradients = case.kernel.backward(run, {output: case.dy}, final=case.d_final)
    return {
        ArrayKind.OUTPUT: run.outputs,
        ArrayKind.FINAL: run.final,
        ArrayKind.PARAM_GRADIENT: pack_gradients(case.spec, case.layout, gradients.params),
        ArrayKind.INPUT_GRADIENT: gradients.inputs,
        ArrayKind.STATE_GRADIENT: gradients.states,
    }


def _value(value: object, spec: Spec) -> Any:
    """What a spec writes for an attribute, as the library takes it."""
    words = {"true": True, "false": False}
    if isinstance(value, tuple | list):
        return [_value(v, spec) for v in value]
    return words.get(value, value) if isinstance(value, str) else value


def _shown(value: object) -> str:
    return (
        f"[{', '.join(map(_shown, value))}]"
        if isinstance(value, tuple | list)
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )


def _needs(module: str, how: str) -> None:
    if find_spec(module) is None:
        raise NotRun(f"{module} is not installed (pip install {how})")


# --- PyTorch ---


def _torch(case: _Case, name: str) -> Values:
    """The layer of one direction, on a packed sequence."""
    _needs("torch", "'rnnspec[torch]'")
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    layer = _torch_module(case, torch.nn, name, "_l0")
    x, states = _leaf(case.x), {n: _leaf(a) for n, a in case.states.items()}
    first = [s[None] for s in states.values()]
    packed, last = layer(
        pack_padded_sequence(x, torch.tensor(case.lengths), enforce_sorted=False),
        tuple(first) if len(first) > 1 else first[0],
    )
    y = pad_packed_sequence(packed, total_length=STEPS)[0]
    final = [s[0] for s in (last if isinstance(last, tuple) else (last,))]
    return _torch_found(case, layer, "_l0", x, states, y, final)


def _torch_cell(case: _Case, name: str) -> Values:
    """The module of one step, run step by step; a row that has ended keeps its state."""
    _needs("torch", "'rnnspec[torch]'")
    import torch

    if case.attributes.get("proj_size"):
        raise NotRun(f"torch.nn.{name}Cell has no proj_size")
    layer = _torch_module(case, torch.nn, f"{name}Cell", "")
    x, states = _leaf(case.x), {n: _leaf(a) for n, a in case.states.items()}
    carried, ys = list(states.values()), []
    for t in range(STEPS):
        alive = torch.tensor(case.lengths > t)[:, None]
        new = layer(x[t], tuple(carried) if len(carried) > 1 else carried[0])
        carried = [torch.where(alive, n, old) for n, old in zip(new if isinstance(new, tuple) else (new,), carried)]
        ys.append(torch.where(alive, carried[0], torch.zeros(())))
    return _torch_found(case, layer, "", x, states, torch.stack(ys), carried)


def _leaf(array: Array) -> Any:
    import torch

    return torch.tensor(array, requires_grad=True)


def _torch_module(case: _Case, nn: Any, name: str, suffix: str) -> Any:
    import torch

    module = getattr(nn, name)(
        case.sizes["D"], case.sizes["H"], dtype=getattr(torch, case.kernel.dtype.name), **case.attributes
    )
    module.load_state_dict({f"{block}{suffix}": torch.tensor(array) for block, array in case.blocks.items()})
    return module


def _torch_found(
    case: _Case, module: Any, suffix: str, x: Any, states: Mapping[str, Any], y: Any, final: Sequence[Any]
) -> Values:
    """The arrays of a run of PyTorch, and its gradients of the weighted sum of all of them.

    suffix: what the names of the module's parameters have behind those of the layout. x, states:
    what it was given. y, final: what it gave.
    """
    import torch

    loss = (y * torch.tensor(case.dy)).sum() + sum(
        (last * torch.tensor(d)).sum() for last, d in zip(final, case.d_final.values())
    )
    loss.backward()
    found = {
        ArrayKind.OUTPUT: {case.spec.outputs[0]: y},
        ArrayKind.FINAL: dict(zip(states, final)),
        ArrayKind.PARAM_GRADIENT: {n.removesuffix(suffix): p.grad for n, p in module.named_parameters()},
        ArrayKind.INPUT_GRADIENT: {"x": x.grad},
        ArrayKind.STATE_GRADIENT: {n: s.grad for n, s in states.items()},
    }
    return {kind: {n: a.detach().numpy() for n, a in arrays.items()} for kind, arrays in found.items()}


# --- ONNX and Keras ---


def _onnx(case: _Case, name: str) -> Values:
    """The operator in ONNX Runtime, which has no gradients."""
    for module in ("onnx", "onnxruntime"):
        _needs(module, "'rnnspec[onnx]'")
    if case.kernel.dtype != np.float32:
        raise NotRun(f"ONNX Runtime has {name} in float32 only")
    from onnx import helper

    arrays = (
        {"X": case.x} | {n: a[None] for n, a in case.blocks.items()} | {"sequence_lens": case.lengths.astype(np.int32)}
    )
    arrays |= {f"initial_{s}": a[None] for s, a in case.states.items()}
    order = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
    inputs = [n if n in arrays else "" for n in order]
    while not inputs[-1]:
        inputs.pop()
    node = helper.make_node(
        name, inputs, ["Y", *(f"Y_{s}" for s in case.states)], hidden_size=case.sizes["H"], **case.attributes
    )
    found = onnx_runtime(node, arrays)
    return _values(case, found["Y"][:, 0], [found[f"Y_{s}"][0] for s in case.states])


def _keras(case: _Case, name: str) -> Values:
    """The layer on a batch [B, T, D] with a mask; values only."""
    if case.kernel.dtype != np.float32:
        raise NotRun("Keras 3.15 computes parts of a recurrent layer in float32, whatever dtype the layer is given")
    _needs("keras", "keras")
    keras = import_keras()
    layer = getattr(keras.layers, name)(
        case.sizes["H"], return_sequences=True, return_state=True, zero_output_for_mask=True, **case.attributes
    )
    layer.build((ROWS, STEPS, case.sizes["D"]))
    for variable in layer.weights:
        variable.assign(case.blocks[variable.name])
    x, *states = (keras.ops.convert_to_tensor(a) for a in (case.x.swapaxes(0, 1), *case.states.values()))
    y, *final = (
        keras.ops.convert_to_numpy(a)
        for a in layer(x, mask=np.arange(STEPS) < case.lengths[:, None], initial_state=states)
    )
    return _values(case, y.swapaxes(0, 1), final)


def _values(case: _Case, y: Array, final: Sequence[Array]) -> Values:
    """The output and the final states of a library that has no gradients."""
    return {ArrayKind.OUTPUT: {case.spec.outputs[0]: y}, ArrayKind.FINAL: dict(zip(case.states, final))}


def import_keras() -> Any:
    """Keras on the backend that was chosen, else on one that is installed (it would take
    TensorFlow)."""
    installed = [b for b in ("tensorflow", "torch", "jax") if find_spec(b) is not None]
    if "KERAS_BACKEND" not in os.environ and installed:
        os.environ["KERAS_BACKEND"] = installed[0]
    try:
        import keras
    except ImportError as error:
        raise NotRun(f"Keras can't be imported here: {error}") from error
    return keras


_PEERS: Mapping[str, Mapping[str, Callable[[_Case, str], Values]]] = {
    "torch.nn": {"": _torch, "Cell": _torch_cell},
    "onnx": {"": _onnx},
    "keras.layers": {"": _keras},
}
