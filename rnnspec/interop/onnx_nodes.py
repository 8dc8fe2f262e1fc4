"""Runs an ONNX RNN, GRU or LSTM node through our kernels, with every attribute that the operator's
text has.

    outputs = run(node, {"X": x, "W": w, "R": r, ...})  # node: an onnx.NodeProto
    outputs["Y"]  # [T, directions, B, H]; with layout 1 [B, T, directions, H]

Nothing of the package `onnx` is needed for it. Where ONNX Runtime and the operator's text differ,
this follows the text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.engine.arrays import as_array, check_lengths
from rnnspec.engine.compile import compile
from rnnspec.engine.kernel import Kernel
from rnnspec.engine.spans import cut
from rnnspec.errors import DtypeError, ShapeError
from rnnspec.interop.onnx_cells import DIRECTIONS, OPERATORS, Form, NodeError, Operator, forms_of, read_attributes
from rnnspec.language.layouts import unpack
from rnnspec.language.spec import Spec
from rnnspec.language.syntax.faults import listed

__all__ = ["NodeError", "cells", "run"]

COMMON_INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h")


@dataclass(frozen=True)
class Node:
    """A node, read. inputs and outputs: the operator's name of each that is there -> the node's."""

    op: str
    own: Operator
    attributes: Mapping[str, object]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    @property
    def directions(self) -> tuple[str, ...]:
        return DIRECTIONS[str(self.attributes.get("direction", "forward"))]

    @property
    def batch_first(self) -> bool:
        return self.attributes.get("layout", 0) == 1

    def forms(self) -> tuple[Form, ...]:
        return forms_of(self.op, self.attributes, "P" in self.inputs)


def cells(node: Any) -> tuple[Spec, ...]:
    """The cell of each direction of a node: `lstm` itself, or one made of it. Raises NodeError,
    UnsupportedError for other operators."""
    return tuple(form.spec() for form in read_node(node).forms())


def run(node: Any, inputs: Mapping[str, Any] | Sequence[Any], *, threads: int | None = None) -> dict[str, Array]:
    """The outputs that an RNN, GRU or LSTM node asks for, by the node's names for them.

    node: an onnx.NodeProto. inputs: arrays by the node's names, or in the node's order, those that
    it leaves out left out. float32 or float64, by X. X [T, B, D] (layout 1: [B, T, D]), W
    [directions, gates * H, D], R [directions, gates * H, H], B [directions, 2 * gates * H],
    sequence_lens [B] integers, initial_h and initial_c [directions, B, H] (layout 1: [B,
    directions, H]), P [directions, 3 * H]. Y is 0 past the end of a row; a row of no steps keeps
    its initial states. The reverse direction starts at a row's last step. Raises NodeError for a
    node that the operator's text does not allow, UnsupportedError for other operators, DtypeError,
    ShapeError.
    """
    read = read_node(node)
    forms = read.forms()
    call = _call(read, _named(read, node, inputs))
    found = [_direction(form, call, d, turned, threads) for d, (form, turned) in enumerate(zip(forms, read.directions))]
    axis = 2 if read.batch_first else 1
    made = {"Y": np.stack([np.swapaxes(y, 0, 1) if read.batch_first else y for y, _ in found], axis=axis)}
    for state, letter in read.own.states.items():
        made[f"Y_{letter}"] = np.stack([final[state] for _, final in found], axis=axis - 1)
    return {name: made[role] for role, name in read.outputs.items()}


def read_node(node: Any) -> Node:
    attributes = read_attributes(node)
    own = OPERATORS[node.op_type]
    roles = {
        "input": (*COMMON_INPUTS, *own.more_inputs),
        "output": ("Y", *(f"Y_{letter}" for letter in own.states.values())),
    }
    named: dict[str, dict[str, str]] = {}
    for kind, known in roles.items():
        given = list(getattr(node, kind))
        if len(given) > len(known):
            raise NodeError(
                f"{node.op_type} has {len(known)} {kind}s ({', '.join(known)}), and the node names {len(given)}."
            )
        named[kind] = {role: name for role, name in zip(known, given) if name}
    if missing := [role for role in ("X", "W", "R") if role not in named["input"]]:
        raise NodeError(f"{node.op_type} needs the inputs X, W and R; the node lacks {listed(missing)}.")
    if not named["output"]:
        raise NodeError(f"the node asks for none of the outputs {listed(roles['output'])}.")
    if len(set(named["output"].values())) < len(named["output"]):
        raise NodeError(f"two outputs of the node have one name: {listed(named['output'].values())}.")
    return Node(node.op_type, own, attributes, named["input"], named["output"])


def _named(read: Node, node: Any, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """The arrays by the operator's names."""
    names = [name for name in node.input if name]
    if not isinstance(inputs, Mapping):
        if len(inputs) != len(names):
            raise ShapeError(f"the node has {len(names)} inputs ({', '.join(names)}); got {len(inputs)} arrays.")
        inputs = dict(zip(names, inputs))
    wrong = [f"'{n}' is missing" for n in dict.fromkeys(names) if n not in inputs]
    wrong += [f"'{n}' is no input of the node, which has {', '.join(names)}" for n in inputs if n not in names]
    if wrong:
        raise ShapeError(f"inputs of {read.op}: {'; '.join(wrong)}.")
    return {role: inputs[name] for role, name in read.inputs.items()}


@dataclass(frozen=True)
class _Call:
    """x [T, B, D]; blocks [directions, ...] by the layout's names; states [directions, B, H] by
    ours; lengths [B] or None."""

    operator: str
    x: Array
    blocks: dict[str, Array]
    states: dict[str, Array]
    lengths: Array | None


def _call(read: Node, given: Mapping[str, Any]) -> _Call:
    dtype = getattr(given["X"], "dtype", None) or np.asarray(given["X"]).dtype
    if dtype not in (np.float32, np.float64):
        raise DtypeError(
            f"'{read.inputs['X']}' has dtype {dtype}, and kernels are made for float32 and float64: convert the node's"
            " inputs first."
        )
    arrays = {
        role: as_array(f"'{read.inputs[role]}' ({role})", a, np.dtype(dtype))
        for role, a in given.items()
        if role != "sequence_lens"
    }
    _check_shapes(read, arrays)
    x, states = arrays["X"], {f"initial_{letter}": state for state, letter in read.own.states.items()}
    initial = {state: arrays[role] for role, state in states.items() if role in arrays}
    if read.batch_first:
        x, initial = np.swapaxes(x, 0, 1), {state: np.swapaxes(a, 0, 1) for state, a in initial.items()}
    blocks: dict[str, Array] = {role: arrays[role] for role in ("W", "R", "B", "P") if role in arrays}
    directions, rows, _ = arrays["W"].shape
    blocks.setdefault("B", np.zeros((directions, 2 * rows), dtype))
    return _Call(read.op, x, blocks, initial, check_lengths(given.get("sequence_lens"), *x.shape[:2]))


def _check_shapes(read: Node, arrays: Mapping[str, Array]) -> None:
    """Raises ShapeError with all that is wrong; sizes as X, R and hidden_size tell them."""
    for role in ("X", "R"):
        if arrays[role].ndim != 3:
            raise ShapeError(f"'{read.inputs[role]}' ({role}) must have 3 axes, got the shape {arrays[role].shape}.")
    directions, gates, hidden = len(read.directions), read.own.gates, arrays["R"].shape[2]
    rows = arrays["X"].shape[0 if read.batch_first else 1]
    state = (rows, directions, hidden) if read.batch_first else (directions, rows, hidden)
    wanted = {
        "W": (directions, gates * hidden, arrays["X"].shape[2]),
        "R": (directions, gates * hidden, hidden),
        "B": (directions, 2 * gates * hidden),
        "P": (directions, 3 * hidden),
        "initial_h": state,
        "initial_c": state,
    }
    wrong = [
        f"'{read.inputs[role]}' ({role}) has the shape {a.shape}, expected {wanted[role]}"
        for role, a in arrays.items()
        if role in wanted and a.shape != wanted[role]
    ]
    if read.attributes.get("hidden_size", hidden) != hidden:
        wrong.append(f"hidden_size is {read.attributes['hidden_size']}, and the last axis of R has {hidden}")
    if wrong:
        raise ShapeError(
            f"inputs of {read.op}, direction {read.attributes.get('direction', 'forward')}: {'; '.join(wrong)}."
        )


def _direction(
    form: Form, call: _Call, number: int, turned: str, threads: int | None
) -> tuple[Array, dict[str, Array]]:
    """Y [T, B, H] and the final states [B, H] of one direction."""
    params = unpack(form.spec(), f"onnx.{call.operator}", {name: block[number] for name, block in call.blocks.items()})
    states = {state: array[number] for state, array in call.states.items()}
    kernel, (steps, rows, _) = form_kernel(form, call.x.dtype.name, threads), call.x.shape
    if turned == "reverse":
        found = kernel.infer(params, {"x": call.x}, states, pieces=cut(steps, rows, call.lengths, None, reverse=True))
    else:
        found = kernel.infer(params, {"x": call.x}, states, call.lengths)
    return found.outputs["h"], found.final


@lru_cache(maxsize=64)
def form_kernel(form: Form, dtype: str, threads: int | None) -> Kernel:
    """The kernel of the cell that one direction of a node is; the same for nodes alike."""
    return compile(form.spec(), dtype=dtype, threads=threads)
