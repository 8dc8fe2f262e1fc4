"""LTC of ncps (NCP wiring, softplus for positive parameters, 6 rounds of its solver) beside `ltc`
with the same numbers: how far apart they are, and how long both take.

A synapse that the wiring lacks has w = -inf here: its conductance and all its gradients are exactly
0. Without ncps and torch there is nothing to compare, which is said in place of a table.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from bench import machine
from bench.compare import positive
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import milliseconds, table
from bench.timing import pairs, repeats

EXAMPLE = "python -m bench ltc --batch 1 32 --threads 1"
INPUTS, INTER, COMMAND, MOTOR, ROUNDS = 16, 40, 14, 12, 6
NEAR, GOAL = 1e-5, 10
OURS = {  # name in ncps -> here
    "gleak": "g", "vleak": "v_leak", "cm": "c", "w": "w", "sigma": "sigma", "mu": "mu", "erev": "E",
    "sensory_w": "w_in", "sensory_sigma": "sigma_in", "sensory_mu": "mu_in", "sensory_erev": "E_in",
    "input_w": "w_x", "input_b": "b_x",
}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=positive, nargs="+", default=[1, 32], metavar="B")
    parser.add_argument("--steps", type=positive, default=300, metavar="T")
    parser.add_argument("--threads", type=positive, default=1, help="of both (1)")
    parser.add_argument("--rounds", type=positive, default=5, help="pairs of measurements (5)")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    missing = [name for name in ("torch", "ncps") if find_spec(name) is None]
    if missing:
        print(f"skipped: {' and '.join(missing)} not installed (pip install torch; pip install --no-deps ncps)")
        return 0
    settings = {"batch": args.batch, "steps": args.steps, "threads": args.threads, "rounds": args.rounds}
    return finish("ltc", settings, records("bench.ltc:measure", settings, args.threads), render, args.json)


def measure(batch: list[int], steps: int, threads: int, rounds: int) -> Iterator[dict[str, Any]]:
    """A record for each batch and mode: the largest difference, and seconds of both, in pairs."""
    import torch

    import rnnspec

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = layer()
    kernel = rnnspec.compile("ltc", L=ROUNDS, threads=threads)
    for rows in batch:
        rng = np.random.default_rng(rows)
        x = rng.standard_normal((steps, rows, INPUTS)).astype(np.float32)
        dy = rng.standard_normal((steps, rows, MOTOR)).astype(np.float32)
        for mode, (theirs, ours) in calls(model, kernel, x, dy).items():
            right, found = theirs(), ours()
            apart = max(float(np.abs(found[n] - a).max() / max(1.0, np.abs(a).max())) for n, a in right.items())
            taken = pairs(theirs, ours, (repeats(theirs), repeats(ours)), rounds)
            yield {"mode": mode, "B": rows, "T": steps, "apart": apart, "seconds": taken}


def layer() -> Any:
    """ncps' layer with weights as it draws them."""
    from ncps.torch import LTC
    from ncps.wirings import NCP

    wiring = NCP(INTER, COMMAND, MOTOR, sensory_fanout=8, inter_fanout=6, recurrent_command_synapses=8, motor_fanin=6)
    return LTC(INPUTS, wiring, batch_first=False, ode_unfolds=ROUNDS, implicit_param_constraints=True)


def weights(model: Any) -> dict[str, np.ndarray]:
    """The weights of ncps' layer under the names of `ltc`. Motor neurons come first, and alone have
    outputs: those of the others are 0."""
    cell = {n.rpartition(".")[2]: p.detach().numpy() for n, p in model.named_parameters()}
    found = {ours: cell[theirs].astype(np.float32) for theirs, ours in OURS.items()}
    for name, mask in (("w", "sparsity_mask"), ("w_in", "sensory_sparsity_mask")):
        found[name] = np.where(cell[mask] != 0, found[name], np.float32("-inf"))
    for name, theirs in (("w_y", "output_w"), ("b_y", "output_b")):
        found[name] = np.pad(cell[theirs], (0, INTER + COMMAND)).astype(np.float32)
    return found


def calls(
    model: Any, kernel: Any, x: np.ndarray, dy: np.ndarray
) -> dict[str, tuple[Callable[[], Mapping[str, Any]], Callable[[], Mapping[str, Any]]]]:
    """(theirs, ours) of inference and of training: functions with what they gave, as arrays."""
    import torch

    params, inputs = weights(model), {"x": x, "dt": np.ones(x.shape[:2], np.float32)}
    given, flow = torch.from_numpy(x), torch.from_numpy(dy)
    whole = np.concatenate([dy, np.zeros((*dy.shape[:2], INTER + COMMAND), np.float32)], -1)
    cell = {n.rpartition(".")[2]: p for n, p in model.named_parameters()}

    def theirs() -> Mapping[str, Any]:
        with torch.no_grad():
            return {"h": model(given)[0].numpy()}

    def ours() -> Mapping[str, Any]:
        return {"h": kernel.infer(params, inputs).outputs["h"][..., :MOTOR]}

    def train_theirs() -> Mapping[str, Any]:
        model.zero_grad()
        (model(given)[0] * flow).sum().backward()
        return {name: cell[n].grad.numpy() for n, name in OURS.items()}

    def train_ours() -> Mapping[str, Any]:
        return kernel.backward(kernel.forward(params, inputs), {"h": whole}).params

    return {"inference": (theirs, ours), "training": (train_theirs, train_ours)}


def render(report: dict[str, Any]) -> str:
    head = ["mode", "B", "T", "ncps, ms", "rnnspec, ms", "times", "largest difference", "goal"]
    lines = []
    for r in report["rows"]:
        theirs, ours = (statistics.median(side) for side in zip(*r["seconds"]))
        times = statistics.median(a / b for a, b in r["seconds"])
        near = NEAR if r["mode"] == "inference" else 10 * NEAR  # gradients are sums over all steps
        met = "met" if times >= GOAL and r["apart"] <= near else "not met"
        times_text, apart = f"{times:.1f}", f"{r['apart']:.1e}"
        lines.append(
            [r["mode"], str(r["B"]), str(r["T"]), milliseconds(theirs), milliseconds(ours), times_text, apart, met]
        )
    return "\n\n".join([machine.line(report), table(head, lines, False)])
