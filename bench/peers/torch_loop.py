"""A loop over time in PyTorch, for cells that torch.nn has not: the input product before the loop,
weights concatenated."""

from __future__ import annotations

import torch

from bench.case import CHECKED_STEPS, IN_TORCH, Array, Case, Data
from bench.peers import Prepared
from bench.peers.equations import CELLS, Equations, Operations

OPERATIONS = Operations(torch.sigmoid, torch.tanh, torch.relu, torch.addmm, lambda a, n: a.chunk(n, -1))


def supports(case: Case) -> bool:
    return case.cell in CELLS and case.cell not in IN_TORCH


def prepare(case: Case, data: Data, threads: int) -> Prepared:
    torch.set_num_threads(threads)
    cell = CELLS[case.cell]
    weights = {n: torch.tensor(a, requires_grad=case.mode == "training") for n, a in cell.weights(data.params).items()}
    match case.mode:
        case "inference":
            return _inference(cell, weights, data)
        case "training":
            return _training(cell, weights, data)
        case "step":
            return _step(cell, weights, data)
    raise ValueError(case.mode)


def _zeros(cell: Equations, x: torch.Tensor, data: Data) -> tuple[torch.Tensor, ...]:
    return (x.new_zeros(data.case.B, data.case.H),) * cell.states


def _sequence(cell: Equations, weights: dict[str, torch.Tensor], x: torch.Tensor, data: Data) -> torch.Tensor:
    states, outputs = _zeros(cell, x, data), []
    before = torch.addmm(weights["b"], x.flatten(0, 1), weights["W"]).unflatten(0, x.shape[:2])
    for a in before.unbind():
        states = cell.step(OPERATIONS, weights, states, a)
        outputs.append(states[0])
    return torch.stack(outputs)


def _inference(cell: Equations, weights: dict[str, torch.Tensor], data: Data) -> Prepared:
    x = torch.tensor(data.x)

    def call() -> torch.Tensor:
        with torch.inference_mode():
            return _sequence(cell, weights, x, data)

    return Prepared(call, lambda: {"h": call().numpy()})


def _training(cell: Equations, weights: dict[str, torch.Tensor], data: Data) -> Prepared:
    x, dy = torch.tensor(data.x, requires_grad=True), torch.tensor(data.dy)

    def call() -> torch.Tensor:
        for leaf in (x, *weights.values()):
            leaf.grad = None
        y = _sequence(cell, weights, x, data)
        y.backward(dy)
        return y

    def values() -> dict[str, Array]:
        y = call().detach().numpy()
        return {"h": y, "x": x.grad.numpy()} | cell.gradients({n: w.grad.numpy() for n, w in weights.items()})

    return Prepared(call, values)


def _step(cell: Equations, weights: dict[str, torch.Tensor], data: Data) -> Prepared:
    x = torch.tensor(data.x[0])
    states = _zeros(cell, x, data)

    def call() -> torch.Tensor:
        nonlocal states
        with torch.inference_mode():
            states = cell.step(OPERATIONS, weights, states, torch.addmm(weights["b"], x, weights["W"]))
        return states[0]

    return Prepared(call, lambda: {"h": [call() for _ in range(CHECKED_STEPS)][-1].numpy()})
