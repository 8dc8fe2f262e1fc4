"""The LSTM with diagonal weights of ADBench (Srajer, Kukelova, Fitzgibbon 2018) and GradBench: its
objective and Jacobian as a cell, beside JAX (jitted, a scan) and torch (autograd over a loop).

A state and an input of b numbers, l layers, c characters. In each layer the forget and output gates
see the layer's input, the input gate and the change the layer's hidden state before the step, each
unit its own. The objective is the mean over b numbers of c - 1 steps of -next * log-softmax(y), in
whose sum of exponentials their code counts 2 more, and so does this. Parameters lie as they have
them: of each layer 4 b weights and 4 b biases (forget, in, out, change); beside them b weights of
the input, b of the output and b biases.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy import ndarray as Array

from bench import machine
from bench.compare import positive
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import milliseconds, table
from bench.timing import repeats, seconds

EXAMPLE = "python -m bench adbench --layers 2 4 --characters 1024"
GATES = ("forget", "ingate", "outgate", "change")


def cell(layers: int) -> str:
    """The cell of so many layers; it emits the logarithms that the objective reads."""
    names = [f"{kind}_{gate}{n}" for n in range(layers) for kind in ("w", "b") for gate in GATES]
    states = [f"{kind}{n}" for n in range(layers) for kind in ("hidden", "cell")]
    lines, below = ["v[t] = w_in * x[t]"], "v"
    for n in range(layers):
        for gate, function, read in zip(GATES, ("sigmoid",) * 3 + ("tanh",), (f"{below}[t]", f"hidden{n}[t-1]") * 2):
            lines.append(f"{gate}{n}[t] = {function}(w_{gate}{n} * {read} + b_{gate}{n})")
        lines.append(f"cell{n}[t] = forget{n}[t] * cell{n}[t-1] + ingate{n}[t] * change{n}[t]")
        lines.append(f"hidden{n}[t] = outgate{n}[t] * tanh(cell{n}[t])")
        below = f"hidden{n}"
    lines += [f"y[t] = w_out * {below}[t] + b_out", "log_share[t] = y[t] - log(2 + sum(exp(y[t])))"]
    vectors = ", ".join(f"{n}: H" for n in (*names, "w_in", "w_out", "b_out"))
    return "\n".join(
        [
            "rnnspec: 1",
            "name: adbench_lstm",
            "inputs: {x: H}",
            f"states: {{{', '.join(f'{s}: H' for s in states)}}}",
            f"parameters: {{{vectors}}}",
            "outputs: [log_share]",
            "equations: |",
            *(f"  {line}" for line in lines),
            "",
        ]
    )


def named(main: Array, extra: Array, layers: int) -> dict[str, Array]:
    """Their rows of parameters, main [8 l b] and extra [3 b], by name."""
    names = [f"{kind}_{gate}{n}" for n in range(layers) for kind in ("w", "b") for gate in GATES]
    return dict(zip(names, main.reshape(len(names), -1))) | dict(zip(("w_in", "w_out", "b_out"), extra.reshape(3, -1)))


def jacobian(kernel: Any, layers: int, main: Array, extra: Array, state: Array, sequence: Array) -> tuple[float, Array]:
    """The objective, and its derivatives by main and extra, [8 l b + 3 b].

    kernel: of `cell(layers)`, float64. state: [2 l b], hidden and cell of each layer; sequence:
    [c, b].
    """
    params = named(main, extra, layers)
    states = [f"{kind}{n}" for n in range(layers) for kind in ("hidden", "cell")]
    before = {n: a[None] for n, a in zip(states, state.reshape(2 * layers, -1))}
    weight = -sequence[1:, None] / sequence[1:].size
    run = kernel.forward(params, {"x": sequence[:-1, None]}, before)
    found = kernel.backward(run, {"log_share": weight})
    loss = float((weight * run.outputs["log_share"]).sum())
    return loss, np.concatenate([found.params[n] for n in params])


def data(layers: int, characters: int, bits: int, seed: int = 0) -> tuple[Array, Array, Array, Array]:
    """main, extra, state and a sequence of bits, drawn."""
    rng = np.random.default_rng(seed)
    sizes = (8 * layers * bits, 3 * bits, 2 * layers * bits)
    main, extra, state = (rng.uniform(-1, 1, n) for n in sizes)
    return main, extra, state, rng.integers(0, 2, (characters, bits)).astype(np.float64)


# --- the others


def in_torch(layers: int, arrays: tuple[Array, ...]) -> Callable[[], tuple[float, Array]]:
    import torch

    main, extra, state, sequence = (torch.from_numpy(a) for a in arrays)

    def call() -> tuple[float, Array]:
        own, more = main.clone().requires_grad_(), extra.clone().requires_grad_()
        weights, (w_in, w_out, b_out) = own.view(layers, 8, -1), more.view(3, -1)
        before, total = [list(s.view(2, -1)) for s in state.view(layers, -1)], torch.zeros((), dtype=own.dtype)
        for x, following in pairwise(sequence):
            v = w_in * x
            for n, w in enumerate(weights):
                hidden, held = before[n]
                forget, out = torch.sigmoid(w[0] * v + w[4]), torch.sigmoid(w[2] * v + w[6])
                held = forget * held + torch.sigmoid(w[1] * hidden + w[5]) * torch.tanh(w[3] * hidden + w[7])
                v = out * torch.tanh(held)
                before[n] = [v, held]
            y = w_out * v + b_out
            total = total + (following * (y - torch.log(2 + y.exp().sum()))).sum()
        loss = -total / sequence[1:].numel()
        grads = torch.autograd.grad(loss, (own, more))
        return float(loss.detach()), torch.cat(grads).numpy()

    return call


def in_jax(layers: int, arrays: tuple[Array, ...]) -> Callable[[], tuple[float, Array]]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    main, extra, state, sequence = (jnp.asarray(a) for a in arrays)

    def objective(main: Any, extra: Any) -> Any:
        weights, (w_in, w_out, b_out) = main.reshape(layers, 8, -1), extra.reshape(3, -1)

        def step(before: Any, x: Any) -> Any:
            v, after = w_in * x, []
            for n, w in enumerate(weights):
                hidden, held = before[n]
                forget, out = jax.nn.sigmoid(w[0] * v + w[4]), jax.nn.sigmoid(w[2] * v + w[6])
                held = forget * held + jax.nn.sigmoid(w[1] * hidden + w[5]) * jnp.tanh(w[3] * hidden + w[7])
                v = out * jnp.tanh(held)
                after.append((v, held))
            y = w_out * v + b_out
            return after, y - jnp.log(2 + jnp.exp(y).sum())

        first = [tuple(s.reshape(2, -1)) for s in state.reshape(layers, -1)]
        return -(jax.lax.scan(step, first, sequence[:-1])[1] * sequence[1:]).sum() / sequence[1:].size

    both = jax.jit(jax.value_and_grad(objective, (0, 1)))

    def call() -> tuple[float, Array]:
        loss, grads = both(main, extra)
        return float(loss), np.concatenate([np.asarray(g) for g in grads])

    return call


# --- the measurement


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layers", type=positive, nargs="+", default=[2, 4], metavar="L", help="(2 4)")
    parser.add_argument("--characters", type=positive, nargs="+", default=[1024], metavar="C", help="(1024)")
    parser.add_argument("--bits", type=positive, default=14, metavar="B", help="of a character (14)")
    parser.add_argument("--rounds", type=positive, default=9, help="of all in turn (9)")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    settings = {n: getattr(args, n) for n in ("layers", "characters", "bits", "rounds")}
    return finish("adbench", settings, records("bench.adbench:measure", settings, 1), render, args.json)


def measure(layers: list[int], characters: list[int], bits: int, rounds: int) -> Iterator[dict[str, Any]]:
    """A record for each size: seconds of objective and Jacobian by each that is installed, after
    all have given the same numbers."""
    import rnnspec

    for depth in layers:
        kernel = rnnspec.compile(rnnspec.loads(cell(depth)), dtype="float64", threads=1)
        for count in characters:
            arrays = data(depth, count, bits)
            calls: dict[str, Callable[[], tuple[float, Array]]] = {"ours": partial(jacobian, kernel, depth, *arrays)}
            for name, make in (("torch", in_torch), ("jax", in_jax)):
                try:
                    calls[name] = make(depth, arrays)
                except ImportError:
                    continue
            loss, gradient = calls["ours"]()
            for name, call in calls.items():
                value, theirs = call()
                np.testing.assert_allclose((value, *theirs), (loss, *gradient), rtol=1e-9, atol=1e-12, err_msg=name)
            many = {name: repeats(call) for name, call in calls.items()}
            times = [{name: seconds(call, many[name]) for name, call in calls.items()} for _ in range(rounds)]
            medians = {name: statistics.median(t[name] for t in times) for name in calls}
            yield {"layers": depth, "characters": count, "bits": bits, "seconds": medians}


def render(report: dict[str, Any]) -> str:
    sides = ("ours", "torch", "jax")
    head = ["size", *(f"{side}, ms" for side in sides), *(f"{side} / ours" for side in sides[1:])]
    lines = []
    for r in report["rows"]:
        took = r["seconds"]
        lines.append(
            [f"l{r['layers']} c{r['characters']} b{r['bits']}"]
            + [milliseconds(took[s]) if s in took else "-" for s in sides]
            + [f"{took[s] / took['ours']:.2f}" if s in took else "-" for s in sides[1:]]
        )
    return "\n\n".join([machine.line(report), table(head, lines, False)])
