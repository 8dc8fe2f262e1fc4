"""Reads a model file of ONNX into something that runs here: its RNN, GRU and LSTM nodes by our
kernels, the simple nodes around them by NumPy.

    model = load("model.onnx")
    model({"x": x})  # {"y": ...}

The file may be somebody else's: sizes are looked at before there is memory, weights beside the
file are read from its own folder alone, and nothing of it is executed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray as Array

from rnnspec.backends.brief import brief_repr
from rnnspec.errors import RnnspecError, ShapeError, UnsupportedError, visible
from rnnspec.interop.onnx_cells import OPERATORS, NodeError
from rnnspec.interop.onnx_nodes import read_node, run
from rnnspec.interop.onnx_ops import SIMPLE, Arguments
from rnnspec.language.syntax.faults import listed
from rnnspec.storage import guarded
from rnnspec.storage.guarded import Refused

MOST_BYTES = 2**31 - 1  # of a message of protobuf
OPSETS = range(7, 29)
SHOWN = 12  # of the nodes that an error names


class ModelError(RnnspecError, ValueError):
    """A model that can't be read, or of which a node fails."""


@dataclass(frozen=True)
class Step:
    """A node: proto, for the recurrent ones; attributes of the others."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: Any = None


@dataclass(frozen=True)
class Model:
    """A model that can be called with NumPy arrays. inputs: name -> dtype and shape, where a text
    is any size; outputs: their names; recurrent: the kind of each recurrent node, by its name."""

    inputs: Mapping[str, tuple[str, tuple[str | int, ...]]]
    outputs: tuple[str, ...]
    weights: Mapping[str, Array]
    steps: tuple[Step, ...]
    opset: int
    threads: int | None = None

    __repr__ = brief_repr

    @property
    def recurrent(self) -> dict[str, str]:
        return {step.name: step.kind for step in self.steps if step.proto is not None}

    def __call__(self, inputs: Mapping[str, Any] | Any, *more: Any) -> dict[str, Array]:
        """The outputs by name. inputs: arrays by name, or one after the other in the model's order.
        Raises ShapeError for other inputs than the model has, ModelError naming the node that
        fails."""
        given = inputs if isinstance(inputs, Mapping) else dict(zip(self.inputs, (inputs, *more)))
        if set(given) != set(self.inputs) or (not isinstance(inputs, Mapping) and 1 + len(more) != len(self.inputs)):
            raise ShapeError(f"the model has the inputs {listed(self.inputs)}; got {listed(given) or 'none'}.")
        values = dict(self.weights)
        for name, (dtype, shape) in self.inputs.items():
            values[name] = _fitting(name, np.asarray(given[name]), dtype, shape)
        last = {name: number for number, step in enumerate(self.steps) for name in step.inputs}
        kept = {*self.outputs, *self.weights}
        with np.errstate(all="ignore"):
            for number, step in enumerate(self.steps):
                values |= zip(step.outputs, self._run(step, [values[n] if n else None for n in step.inputs]))
                for name in set(step.inputs):
                    if last[name] == number and name not in kept:
                        values.pop(name, None)
        return {name: np.array(values[name], order="C") for name in self.outputs}

    def _run(self, step: Step, given: list[Array | None]) -> Iterable[Array]:
        try:
            if step.proto is not None:
                found = run(step.proto, [a for a in given if a is not None], threads=self.threads)
                return [found[n] for n in step.outputs if n]
            made = SIMPLE[step.kind](Arguments(given, step.attributes, self.opset, len(step.outputs)))
        except Exception as error:  # a foreign node, foreign numbers: NumPy raises whatever it likes
            said = f"{type(error).__name__}: {error}" if isinstance(error, LookupError | MemoryError) else error
            raise ModelError(f"the node '{step.name}' ({step.kind}) fails: {said}") from error
        arrays = made if isinstance(made, tuple) else (made,)
        if len(arrays) != len(step.outputs):
            told = f"it gives {len(arrays)} arrays, and {len(step.outputs)} are named"
            raise ModelError(f"the node '{step.name}' ({step.kind}) fails: {told}.")
        return arrays


def load(model: str | os.PathLike[str] | bytes | Any, *, threads: int | None = None) -> Model:
    """A model file of ONNX that runs here.

    model: a path, the bytes of a file, or an onnx.ModelProto. threads: of the kernels. Takes RNN,
    GRU and LSTM nodes with every attribute, and the simple nodes that torch's and Keras' exporters
    put around them (`SIMPLE` in interop/onnx_ops.py). Raises UnsupportedError naming all other
    nodes, or where the package `onnx` is missing, ModelError or `Refused` for files that are none,
    TypeError for what is neither path nor bytes nor model, NodeError for a recurrent node that the
    operator's text does not allow.
    """
    try:
        import onnx
    except ImportError as error:
        raise UnsupportedError("reading a model needs the package onnx: pip install 'rnnspec[onnx]'") from error
    folder: Path | None = None
    if isinstance(model, str | os.PathLike):
        folder = Path(model).parent
        model = guarded.read(model, MOST_BYTES)
    if isinstance(model, bytes):
        try:
            model = onnx.load_model_from_string(model)
        except Exception as error:
            raise ModelError(f"it is no model of ONNX: {visible(str(error))[:200]}") from error
    if not isinstance(model, onnx.ModelProto):
        raise TypeError(f"a model is a path, bytes or an onnx.ModelProto, and this is a {type(model).__name__}.")
    return _read(model, folder, threads)


def _read(model: Any, folder: Path | None, threads: int | None) -> Model:
    _check_texts(model)
    graph = model.graph
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 0)
    if opset not in OPSETS:
        raise UnsupportedError(f"the model is of opset {opset}, and {OPSETS[0]} to {OPSETS[-1]} are read.")
    if graph.sparse_initializer:
        raise UnsupportedError("the model has sparse weights, which are not read: export it with dense ones.")
    _check_kinds(graph.node)
    weights = {t.name: tensor(t, folder) for t in graph.initializer}
    inputs = {v.name: _type(v) for v in graph.input if v.name not in weights}
    steps, known = [], {*weights, *inputs, ""}
    _check_once([t.name for t in graph.initializer] + [n for node in graph.node for n in node.output if n], inputs)
    for number, node in enumerate(graph.node):
        name = visible(node.name) or f"{node.op_type} {number}"
        if missing := [n for n in node.input if n not in known]:
            raise ModelError(f"the node '{name}' reads {listed(map(visible, missing))}, which nothing before it gives.")
        if node.op_type in OPERATORS:
            read_node(node).forms()
            steps.append(Step(node.op_type, name, tuple(node.input), tuple(n for n in node.output if n), {}, node))
        else:
            attributes = {a.name: _attribute(a, folder) for a in node.attribute}
            steps.append(Step(node.op_type, name, tuple(node.input), tuple(node.output), attributes))
        known |= set(node.output)
    outputs = tuple(v.name for v in graph.output)
    if missing := [n for n in outputs if n not in known]:
        raise ModelError(f"nothing in the model gives its output {listed(map(visible, missing))}.")
    return Model(inputs, outputs, weights, tuple(steps), opset, threads)


def _check_kinds(nodes: Iterable[Any]) -> None:
    """Raises UnsupportedError naming all nodes that are not read."""
    unknown: dict[str, list[str]] = {}
    for number, node in enumerate(nodes):
        if node.domain not in ("", "ai.onnx") or node.op_type not in {*SIMPLE, *OPERATORS}:
            full = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            unknown.setdefault(visible(full), []).append(f"'{visible(node.name) or number}'")
    if unknown:
        shown = [f"{kind} ({', '.join(names[:3])}{', ...' * (len(names) > 3)})" for kind, names in unknown.items()]
        more = f" and {len(shown) - SHOWN} more kinds" if len(shown) > SHOWN else ""
        raise UnsupportedError(
            f"the model has nodes that are not read: {', '.join(shown[:SHOWN])}{more}. RNN, GRU and LSTM are, and"
            f" {', '.join(SIMPLE)}."
        )


def _check_texts(message: Any) -> None:
    """Raises ModelError where a text of the file is none: protobuf leaves bytes there."""
    for field in message.DESCRIPTOR.fields:
        if field.type not in (field.TYPE_STRING, field.TYPE_MESSAGE):
            continue
        value = getattr(message, field.name)
        if not isinstance(value, str | bytes) and not hasattr(value, "__len__"):
            value = [value] if message.HasField(field.name) else []
        for one in [value] if isinstance(value, str | bytes) else value:
            if isinstance(one, bytes):
                raise ModelError(f"it is no model of ONNX: its '{field.full_name}' has bytes that are no text.")
            if field.type == field.TYPE_MESSAGE:
                _check_texts(one)


def _check_once(made: Iterable[str], inputs: Iterable[str]) -> None:
    """Raises ModelError for a name that two nodes or weights have, or an input and a node."""
    seen = set(inputs)
    for name in made:
        if name in seen:
            raise ModelError(f"the value '{visible(name)}' of the model is given twice.")
        seen.add(name)


def _dtype(number: int, what: str) -> np.dtype[Any]:
    """The dtype that ONNX numbers so. Raises UnsupportedError for those that are not read."""
    import onnx

    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))
    except (KeyError, TypeError, OverflowError):
        dtype = np.dtype(object)
    if dtype.kind not in "biuf":
        name = next((n for n, value in onnx.TensorProto.DataType.items() if value == number), number)
        raise UnsupportedError(f"{what} of the model is of the type {name}, which is not read.")
    return dtype


def _type(value: Any) -> tuple[str, tuple[str | int, ...]]:
    kind = value.type.tensor_type
    if not kind.elem_type:
        raise UnsupportedError(f"the input '{visible(value.name)}' of the model is no array.")
    dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim]
    shape = tuple(dims) if kind.HasField("shape") else ("...",)
    return _dtype(kind.elem_type, f"the input '{visible(value.name)}'").name, shape


def _fitting(name: str, array: Array, dtype: str, shape: tuple[str | int, ...]) -> Array:
    known = [(n, m) for n, m in zip(shape, array.shape) if isinstance(n, int)]
    if shape != ("...",) and (array.ndim != len(shape) or any(n != m for n, m in known)):
        raise ShapeError(f"'{visible(name)}' has the shape {array.shape}, expected [{', '.join(map(str, shape))}].")
    if array.dtype.name != dtype and array.dtype.kind != np.dtype(dtype).kind:
        raise ShapeError(f"'{visible(name)}' has dtype {array.dtype}, expected {dtype}.")
    return array.astype(dtype, copy=False)


def _attribute(attribute: Any, folder: Path | None) -> Any:
    """The value of an attribute of a simple node, as NumPy's functions take it."""
    import onnx

    if attribute.ref_attr_name or attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        raise NodeError(f"the attribute '{visible(attribute.name)}' has a kind that is not read here.")
    if attribute.type == onnx.AttributeProto.TENSOR:
        return tensor(attribute.t, folder)
    value = onnx.helper.get_attribute_value(attribute)
    if attribute.name == "to":
        return _dtype(value, f"the attribute '{attribute.name}'")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def tensor(proto: Any, folder: Path | None) -> Array:
    """The array of a TensorProto, whose numbers may lie in a file of `folder`."""
    import onnx

    name, size = visible(proto.name), math.prod(proto.dims)
    dtype = _dtype(proto.data_type, f"the tensor '{name}'")
    if any(n < 0 for n in proto.dims):
        raise UnsupportedError(f"the tensor '{name}' is of the shape {list(proto.dims)}, which is not read.")
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        content = _beside(proto, folder, size * dtype.itemsize)
        return np.frombuffer(content, dtype.newbyteorder("<")).astype(dtype).reshape(tuple(proto.dims))
    if proto.HasField("raw_data") and len(proto.raw_data) != size * dtype.itemsize:
        told = f"{size * dtype.itemsize:,} bytes, and {len(proto.raw_data):,} are there"
        raise ModelError(f"the tensor '{name}' of the shape {list(proto.dims)} has {told}.")
    try:
        return np.asarray(onnx.numpy_helper.to_array(proto))
    except Exception as error:
        raise ModelError(f"the tensor '{name}' can't be read: {visible(str(error))[:200]}") from error


def _beside(proto: Any, folder: Path | None, size: int) -> bytes:
    """The numbers of a tensor that lie in a file beside the model's."""
    name, told = visible(proto.name), {e.key: e.value for e in proto.external_data}
    place = told.get("location", "")
    if folder is None:
        raise ModelError(f"the tensor '{name}' lies in another file: give load the path of the model.")
    path = folder / place
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (ValueError, RuntimeError):  # a zero byte; links that go round, before Python 3.13
        inside = False
    if not place or not inside or Path(place).is_absolute() or ".." in Path(place).parts:
        raise ModelError(f"the tensor '{name}' lies in '{visible(place)}', which is not in the model's own folder.")
    try:
        offset, length = int(told.get("offset") or 0), int(told.get("length") or size)
    except ValueError:
        raise ModelError(f"the tensor '{name}' tells no place in '{visible(place)}'.") from None
    if length != size or offset < 0:
        raise ModelError(f"the tensor '{name}' has {size:,} bytes, and '{visible(place)}' holds {length:,} for it.")
    with guarded.opened(path, guarded.MOST_BYTES) as file:
        if offset + length > os.fstat(file.fileno()).st_size:
            raise Refused(path, f"it ends before the numbers of the tensor '{name}'")
        file.seek(offset)
        return file.read(length)
