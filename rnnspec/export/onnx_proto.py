"""A written graph as a model of the package `onnx`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from rnnspec.backends.onnx.ops import Body, Op
from rnnspec.errors import UnsupportedError
from rnnspec.export.onnx_graph import DOMAIN, Value, Written

OPSET, IR = 18, 8
MOST_BYTES = 2**31 - 1  # of a message of protobuf


def onnx_package() -> Any:
    """The package `onnx`. Raises UnsupportedError where it is not installed."""
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise UnsupportedError("models of ONNX need the package onnx: pip install 'rnnspec[onnx]'") from error
    return onnx


def model(written: Written, name: str, about: str) -> bytes:
    """The model's file. about: what it says of itself. Raises UnsupportedError for more weights
    than a file can have."""
    if (size := sum(a.nbytes for a in written.weights.values())) > MOST_BYTES - 2**24:
        raise UnsupportedError(f"{name} has {size:,} bytes of weights, and a file of ONNX holds less than 2 GiB.")
    onnx = onnx_package()
    opset = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid(DOMAIN, 1)]
    functions = [
        onnx.helper.make_function(
            DOMAIN, title, list(made.reads.values()), list(made.results), _nodes(made.ops), opset[:1]
        )
        for title, made in written.functions.items()
    ]
    own = bool(functions) or any(op.domain for op in written.ops)
    graph = onnx.helper.make_graph(
        _nodes(written.ops),
        name,
        _values(written.inputs),
        _values(written.outputs),
        [onnx.numpy_helper.from_array(array, weight) for weight, array in written.weights.items()],
    )
    made = onnx.helper.make_model(
        graph, opset_imports=opset if own else opset[:1], functions=functions, producer_name="rnnspec",
        ir_version=IR, doc_string=about,
    )  # fmt: skip
    onnx.checker.check_model(made, full_check=True)
    return bytes(made.SerializeToString(deterministic=True))


def _values(values: Mapping[str, Value]) -> list[Any]:
    onnx = onnx_package()
    return [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
        for name, (dtype, shape) in values.items()
    ]


def _nodes(ops: Iterable[Op]) -> list[Any]:
    onnx, made = onnx_package(), []
    for op in ops:
        attributes = {name: _attribute(value) for name, value in op.attributes.items()}
        name = next(o for o in op.outputs if o)
        made.append(onnx.helper.make_node(op.kind, op.inputs, op.outputs, name, domain=op.domain, **attributes))
    return made


def _attribute(value: Any) -> Any:
    onnx = onnx_package()
    match value:
        case np.ndarray():
            return onnx.numpy_helper.from_array(value)
        case np.dtype():
            return onnx.helper.np_dtype_to_tensor_dtype(value)
        case Body():
            inputs, outputs = (
                [
                    onnx.helper.make_tensor_value_info(
                        name, onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None
                    )
                    for name, dtype in side.items()
                ]
                for side in (value.inputs, value.outputs)
            )
            return onnx.helper.make_graph(_nodes(value.ops), value.name, inputs, outputs)
    return value
