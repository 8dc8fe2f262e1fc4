"""Modules of PyTorch, run with our parameters in the place of their own, step after step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy import ndarray as Array

from bench.drift.comparison import Found, Given
from bench.drift.packing import number, packed

Tensor = torch.Tensor


def join(parts: list[Tensor], axis: int) -> Tensor:
    return torch.cat([torch.atleast_1d(part) for part in parts], axis)


def tensors(module: torch.nn.Module, weights: Mapping[str, str], params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A tensor for each parameter of a module, of ours; KeyError where one is left over."""
    own = dict(module.named_parameters())
    if set(own) != set(weights):
        raise KeyError(f"parameters {sorted(set(own) ^ set(weights))} are not in both the module and its weights")

    def made(text: str, like: Tensor) -> Tensor:
        value = number(text)
        return packed(text, params, join).reshape(like.shape) if value is None else torch.full_like(like, value)

    return {name: made(weights[name], a) for name, a in own.items()}


def bound(module: torch.nn.Module, weights: Mapping[str, str], given: Given) -> Callable[..., Any]:
    """The module as a function, with our parameters, in their dtype."""
    some = next(iter(given.inputs.values()))
    module = module.to(some.dtype).eval()
    H = given.sizes["H"]
    fixed = {"0": torch.zeros(H, dtype=some.dtype), "I": torch.eye(H, dtype=some.dtype)}
    made = tensors(module, weights, fixed | dict(given.params))
    return lambda *arguments, **named: torch.func.functional_call(module, made, arguments, named)


@dataclass(frozen=True)
class Cell:
    """A module of one step, module(x, state) -> state, as a function of a whole sequence.

    make: sizes -> module. weights: its parameters, as `packing` has them. states: in its order, x
    for the x of the step before; what is no state of ours starts as zeros, [B, H]. emits: the
    output's name, where the module gives (output, states) and not states alone.
    """

    make: Callable[[Mapping[str, int]], torch.nn.Module]
    weights: Mapping[str, str]
    states: Sequence[str] = ("h",)
    emits: str = ""

    def __call__(self, given: Given) -> Found:
        step = bound(self.make(given.sizes), self.weights, given)
        x = given.inputs["x"]
        zeros = x.new_zeros(x.shape[1], given.sizes["H"])
        carried = [given.states.get(n, zeros) for n in self.states]
        outputs = []
        for t in range(len(x)):
            state = carried[0] if len(carried) == 1 else tuple(carried)
            new = step(x[t], state)
            emitted, new = new if self.emits else (None, new)
            carried = [new] if len(carried) == 1 else list(new)
            outputs.append(emitted if self.emits else carried[0])
        final = {n: a for n, a in zip(self.states, carried) if n in given.states}
        return Found({self.emits or self.states[0]: torch.stack(outputs)}, final)


def evaluate(run: Callable[[Given], Found], given: Given, weigh: Callable[[Found], Any]) -> tuple[Found, Given]:
    """What `run` makes of arrays of NumPy, and the gradients of weigh(what it makes), as Given.

    weigh: outputs and final states, as tensors -> a number.
    """
    torch.set_num_threads(1)
    leaves = Given(*(({n: _leaf(a) for n, a in group.items()}) for group in given[:3]), given.sizes)
    found = run(leaves)
    every = [a for group in leaves[:3] for a in group.values()]
    gradients = iter(torch.autograd.grad(weigh(found), every, allow_unused=True, materialize_grads=True))
    by_name = [{n: next(gradients).detach().numpy() for n in group} for group in leaves[:3]]
    return Found(*({n: a.detach().numpy() for n, a in group.items()} for group in found)), Given(*by_name, given.sizes)


def constant(array: Array) -> Tensor:
    return torch.tensor(array)


def _leaf(array: Array) -> Tensor:
    return torch.tensor(array, requires_grad=True)
