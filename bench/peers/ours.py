"""rnnspec itself, behind the interface of the peers."""

from __future__ import annotations

from typing import Any

import rnnspec
from bench.case import CHECKED_STEPS, Array, Case, Data
from bench.peers import Prepared


def packed(kernel: rnnspec.Kernel, params: dict[str, Array]) -> Any:
    """Weights that do not change, packed once."""
    return kernel.pack(params)


def streaming(kernel: rnnspec.Kernel, weights: Any, rows: int) -> Any:
    """A stream of single steps: .step({"x": x_t}) gives {"h": [B, H]}."""
    return kernel.stream(weights, rows=rows)


def prepare(case: Case, data: Data, threads: int) -> Prepared:
    """Training packs the weights at every call, since they change at every step; inference and step
    have them packed."""
    kernel = rnnspec.compile(data.spec, dtype=case.dtype, threads=threads)
    match case.mode:
        case "inference":
            return _inference(kernel, data)
        case "training":
            return _training(kernel, data)
        case "step":
            return _step(kernel, data)
    raise ValueError(case.mode)


def _inference(kernel: rnnspec.Kernel, data: Data) -> Prepared:
    weights, inputs = packed(kernel, data.params), {"x": data.x}
    return Prepared(lambda: kernel.infer(weights, inputs), lambda: kernel.infer(weights, inputs).outputs)


def _training(kernel: rnnspec.Kernel, data: Data) -> Prepared:
    params, inputs, dy = data.params, {"x": data.x}, {"h": data.dy}

    def call() -> tuple[Any, Any]:
        run = kernel.forward(params, inputs)
        return run, kernel.backward(run, dy)

    def values() -> dict[str, Array]:
        run, gradients = call()
        return {"h": run.outputs["h"]} | gradients.params | gradients.inputs

    return Prepared(call, values)


def _step(kernel: rnnspec.Kernel, data: Data) -> Prepared:
    stream, inputs = streaming(kernel, packed(kernel, data.params), data.case.B), {"x": data.x[0]}

    def values() -> dict[str, Array]:
        for _ in range(CHECKED_STEPS):
            outputs = stream.step(inputs)
        return {"h": outputs["h"].copy()}

    return Prepared(lambda: stream.step(inputs), values)
