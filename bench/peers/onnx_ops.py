"""The LSTM, GRU and RNN operators of ONNX in ONNX Runtime: one session, sequential, fixed threads,
buffers bound beforehand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from bench.case import CHECKED_STEPS, Array, Case, Data
from bench.peers import Prepared
from rnnspec.language.layouts import pack

OPERATORS = {
    "lstm": ("LSTM", {}),
    "lstm_peephole": ("LSTM", {}),
    "rnn": ("RNN", {}),
    "gru": ("GRU", {"linear_before_reset": 1}),
    "gru_reset_before": ("GRU", {"linear_before_reset": 0}),
}


def supports(case: Case) -> bool:
    return case.cell in OPERATORS and case.dtype == "float32" and case.mode != "training"


def prepare(case: Case, data: Data, threads: int) -> Prepared:
    session = _session(case, data, threads)
    return _step(session, data) if case.mode == "step" else _inference(session, data)


def _session(case: Case, data: Data, threads: int) -> onnxruntime.InferenceSession:
    """x [T, B, D], and in mode step states [1, B, H], to Y [T, 1, B, H] or the states after the
    step."""
    operator, attributes = OPERATORS[case.cell]
    weights = [numpy_helper.from_array(a[None], n) for n, a in pack(data.spec, f"onnx.{operator}", data.params).items()]
    states = _states(case)
    given = [f"{s}_in" for s in states] if case.mode == "step" else [""] * len(states)
    inputs = ["x", "W", "R", "B", "", *given] + (["P"] if case.cell == "lstm_peephole" else [])
    outputs = ["", *states] if case.mode == "step" else ["Y"]
    node = helper.make_node(operator, inputs, outputs, hidden_size=case.H, **attributes)

    def value(name: str, *shape: int):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph_inputs = [value("x", case.T, case.B, case.D)] + [value(n, 1, case.B, case.H) for n in given if n]
    graph_outputs = [
        value("Y", case.T, 1, case.B, case.H) if n == "Y" else value(n, 1, case.B, case.H) for n in outputs if n
    ]
    graph = helper.make_graph([node], case.cell, graph_inputs, graph_outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _states(case: Case) -> list[str]:
    return ["h", "c"] if case.cell.startswith("lstm") else ["h"]


def _value(array: Array) -> onnxruntime.OrtValue:
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _bound(
    session: onnxruntime.InferenceSession,
    inputs: dict[str, onnxruntime.OrtValue],
    outputs: dict[str, onnxruntime.OrtValue],
) -> Callable[[], None]:
    binding = session.io_binding()
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    for name, value in outputs.items():
        binding.bind_ortvalue_output(name, value)
    return lambda: session.run_with_iobinding(binding)


def _inference(session: onnxruntime.InferenceSession, data: Data) -> Prepared:
    case = data.case
    y = _value(np.empty((case.T, 1, case.B, case.H), np.float32))
    call = _bound(session, {"x": _value(data.x)}, {"Y": y})

    def values() -> dict[str, Array]:
        call()
        return {"h": y.numpy()[:, 0]}

    return Prepared(call, values)


def _step(session: onnxruntime.InferenceSession, data: Data) -> Prepared:
    """The states go to and fro between two sets of buffers."""
    case, names, x = data.case, _states(data.case), _value(data.x)
    sets = [{s: _value(np.zeros((1, case.B, case.H), np.float32)) for s in names} for _ in range(2)]
    steps = [_bound(session, {"x": x} | {f"{s}_in": old[s] for s in names}, new) for old, new in (sets, sets[::-1])]
    turn = 0

    def call() -> None:
        nonlocal turn
        steps[turn]()
        turn = 1 - turn

    def values() -> dict[str, Array]:
        for _ in range(CHECKED_STEPS):
            call()
        return {"h": sets[turn]["h"].numpy()[0]}

    return Prepared(call, values)
