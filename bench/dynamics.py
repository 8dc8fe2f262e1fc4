"""Dynamics: the full Lyapunov spectrum of an LSTM of 128 units (256 states), and 1,024 starts of a
GRU of 128 units to fixed points with their Jacobians and eigenvalues, beside the same in torch.

One process bound to one processor. The spectrum is measured over fewer steps and told for 10,000;
`lyapunov` has tangents as columns, "matrices" the same by the kernel's Jacobians and NumPy's
products, and torch by torch.func, as vmap(jvp) of the tangents and as jacfwd with products: the
faster one counts. All take a QR after as many steps. Torch's Newton has the same halvings.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from bench import machine
from bench.case import Array
from bench.compare import installed, positive
from bench.progress import progress
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import table

EXAMPLE = "python -m bench dynamics --dtype float64"
UNITS, INPUTS, WHOLE = 128, 16, 10_000
DTYPES = ("float32", "float64")
GOALS = {"spectrum": 10.0, "points": 2.0}  # seconds
TASKS = tuple(GOALS)
HALVINGS, NEWTON = 20, 100
LARGEST = 32  # exponents that are compared: the last ones are noise in float32
CLOSE = {"float32": 2e-2, "float64": 1e-6}  # exponents per step, of the same steps


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS), help="(both)")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES), help="(both)")
    parser.add_argument("--steps", type=positive, default=1000, help="of the spectrum that are measured (1000)")
    parser.add_argument("--starts", type=positive, default=1024, help="of Newton's method (1024)")
    parser.add_argument("--rounds", type=positive, default=3, help="of all in turn (3)")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    settings = {n: getattr(args, n) for n in ("task", "dtype", "steps", "starts", "rounds")}
    return finish("dynamics", settings, _rows(settings), render, args.json)


def _rows(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    work = [(task, dtype) for dtype in settings["dtype"] for task in settings["task"]]
    more = {n: settings[n] for n in ("steps", "starts", "rounds")} | {"torch": bool(installed(["torch"]))}
    with progress(len(work)) as done:
        for task, dtype in work:
            for row in records("bench.dynamics:measure", {"task": task, "dtype": dtype, **more}, 1):
                done(f"{task} {dtype}")
                yield row


def measure(task: str, dtype: str, steps: int, starts: int, rounds: int, torch: bool) -> Iterator[dict[str, Any]]:
    """A record: the seconds of each way, medians; of the spectrum those of 10,000 steps."""
    calls = _spectrum(dtype, steps, torch) if task == "spectrum" else _points(dtype, starts, torch)
    values = {who: call() for who, call in calls.items()}
    _compare(task, dtype, values)
    times: dict[str, list[float]] = {who: [] for who in calls}
    for _ in range(rounds):
        for who, call in calls.items():
            begun = time.perf_counter()
            call()
            times[who].append(time.perf_counter() - begun)
    scale = WHOLE / steps if task == "spectrum" else 1.0
    found = {who: scale * statistics.median(t) for who, t in times.items()}
    yield {"task": task, "dtype": dtype, "steps": steps, "starts": starts, "seconds": found}


def _compare(task: str, dtype: str, values: dict[str, Array]) -> None:
    ours = values["ours"]
    for who, found in values.items():
        if task == "points":
            assert len(found) == len(ours), f"{who} found {len(found)} fixed points, ours {len(ours)}"
            continue
        gap = float(np.abs(found[:LARGEST] - ours[:LARGEST]).max())
        assert gap < CLOSE[dtype], f"exponents of {who} and ours differ by {gap:.1e}"


def _weights(cell: str, dtype: str) -> tuple[Any, dict[str, Array]]:
    """A kernel, and weights whose recurrent ones are random with gain 1.2."""
    import rnnspec

    kernel = rnnspec.compile(cell, dtype=dtype, threads=1)
    params, rng = kernel.init(D=INPUTS, H=UNITS, seed=0), np.random.default_rng(1)
    for name, array in params.items():
        if array.shape == (UNITS, UNITS):
            params[name] = rng.normal(0, 1.2 / np.sqrt(UNITS), array.shape).astype(array.dtype)
    return kernel, params


# --- the spectrum


def _spectrum(dtype: str, steps: int, torch: bool) -> dict[str, Callable[[], Array]]:
    from rnnspec.dynamics import lyapunov

    kernel, params = _weights("lstm", dtype)
    x = np.random.default_rng(2).normal(size=(steps, 1, INPUTS)).astype(kernel.dtype)
    probe = lyapunov(kernel, params, {"x": x}, warmup=0, settle=0)
    each = max(1, steps // probe.qr)
    calls: dict[str, Callable[[], Array]] = {
        "ours": lambda: lyapunov(kernel, params, {"x": x}, warmup=0, settle=0).exponents,
        "matrices": lambda: _by_matrices(kernel, params, x, each),
    }
    if torch:
        calls |= {f"torch {way}": partial(_in_torch, params, x, each, way) for way in ("jvp", "jacfwd")}
    return calls


def _first(dtype: Any) -> Array:
    """The tangents that `lyapunov` begins with."""
    drawn = np.random.default_rng([0, 8]).standard_normal((2 * UNITS, 2 * UNITS))
    return np.linalg.qr(drawn)[0].astype(dtype)


def _by_matrices(kernel: Any, params: dict[str, Array], x: Array, each: int) -> Array:
    weights, now, tangents = kernel.pack(params), None, _first(kernel.dtype)
    logs = np.zeros(2 * UNITS)
    for start in range(0, len(x), each):
        part = x[start : start + each]
        blocks = kernel.jacobian(weights, {"x": part}, now)
        now = dict(kernel.infer(weights, {"x": part}, now).final)
        whole = np.concatenate([np.concatenate([blocks[a][b] for b in ("h", "c")], 3) for a in ("h", "c")], 2)[:, 0]
        for matrix in whole:
            tangents = matrix @ tangents
        tangents, r = np.linalg.qr(tangents)
        logs += np.log(np.abs(np.diag(r)))
    return np.sort(logs / len(x))[::-1]


def _in_torch(params: dict[str, Array], x: Array, each: int, way: str) -> Array:
    import torch

    torch.set_num_threads(1)
    held = {n: torch.from_numpy(a) for n, a in params.items()}
    gates = "ifgo"  # stacked once: one product by inputs, one by states
    w, u, b = (torch.cat([held[f"{kind}_{g}"] for g in gates]) for kind in ("W", "U", "b"))
    read = torch.from_numpy(x[:, 0]) @ w.T + b

    def step(state: Any, at: Any) -> Any:
        h, c = state[:UNITS], state[UNITS:]
        i, f, g, o = (at + u @ h).chunk(4)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.cat([torch.sigmoid(o) * torch.tanh(c), c])

    now, tangents = torch.zeros(2 * UNITS, dtype=read.dtype), torch.from_numpy(_first(x.dtype))
    along = torch.func.vmap(lambda v, s, at: torch.func.jvp(lambda z: step(z, at), (s,), (v,))[1], (1, None, None), 1)
    matrix, logs = torch.func.jacfwd(step), torch.zeros(2 * UNITS, dtype=torch.float64)
    with torch.no_grad():
        for t in range(len(x)):
            tangents = along(tangents, now, read[t]) if way == "jvp" else matrix(now, read[t]) @ tangents
            now = step(now, read[t])
            if (t + 1) % each == 0 or t + 1 == len(x):
                tangents, r = torch.linalg.qr(tangents)
                logs += r.diagonal().abs().log().double()
    return np.sort((logs / len(x)).numpy())[::-1]


# --- fixed points


def _points(dtype: str, starts: int, torch: bool) -> dict[str, Callable[[], Array]]:
    from rnnspec.dynamics import fixed_points

    kernel, params = _weights("gru", dtype)
    held = {"x": np.zeros(INPUTS, kernel.dtype)}
    first = np.random.default_rng(3).uniform(-1, 1, (starts, UNITS)).astype(kernel.dtype)
    calls: dict[str, Callable[[], Array]] = {"ours": lambda: fixed_points(kernel, params, held, {"h": first}).vectors}
    return calls | ({"torch": partial(_points_in_torch, params, first)} if torch else {})


def _points_in_torch(params: dict[str, Array], first: Array) -> Array:
    import torch

    torch.set_num_threads(1)
    held = {n: torch.from_numpy(a) for n, a in params.items()}
    u, b = (torch.cat([held[f"{kind}_{g}"] for g in "rzn"]) for kind in ("U", "b"))

    def step(h: Any) -> Any:
        reset, keep, new = (h @ u.T).split(UNITS, -1)
        r, z = torch.sigmoid(reset + b[:UNITS]), torch.sigmoid(keep + b[UNITS : 2 * UNITS])
        n = torch.tanh(b[2 * UNITS :] + r * (new + held["c_n"]))
        return (1 - z) * n + z * h

    jacobian = torch.func.vmap(torch.func.jacfwd(lambda h: step(h) - h), chunk_size=128)
    now, done = torch.from_numpy(first.copy()), []
    near = float(np.finfo(first.dtype).eps ** 0.75)
    with torch.no_grad():
        for _ in range(NEWTON):
            residual = step(now) - now
            there = residual.abs().amax(1) <= near * (1 + now.abs().amax(1))
            done.append(now[there])
            now, residual = now[~there], residual[~there]
            if not len(now):
                break
            move = torch.linalg.solve(jacobian(now), -residual[..., None])[..., 0]
            now = _searched(step, now, move, residual)
        found = torch.cat(done)
        kept = []
        while len(found):
            kept.append(found[0])
            found = found[(found - found[0]).abs().amax(1) > near**0.5 * (1 + found[0].abs().max())]
        points = torch.stack(kept)
        torch.linalg.eig(jacobian(points) + torch.eye(UNITS, dtype=points.dtype))
    return points.numpy()


def _searched(step: Callable[[Any], Any], now: Any, move: Any, residual: Any) -> Any:
    """Steps that are halved until the residual falls; rows for which it never does are left out."""
    import torch

    square, length = (residual**2).sum(1), torch.ones(len(now), dtype=now.dtype)
    found, waiting = [], torch.arange(len(now))
    for _ in range(HALVINGS):
        tried = now[waiting] + length[waiting, None] * move[waiting]
        after = ((step(tried) - tried) ** 2).sum(1)
        fell = after <= (1 - 2e-4 * length[waiting]) * square[waiting]
        found.append(tried[fell])
        waiting = waiting[~fell]
        if not len(waiting):
            break
        length[waiting] /= 2
    return torch.cat(found)


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    lines = []
    for r in report["rows"]:
        ours, goal = r["seconds"]["ours"], GOALS[r["task"]]
        theirs = [s for who, s in r["seconds"].items() if who.startswith("torch")]
        others = ", ".join(f"{who} {s:.2f}" for who, s in r["seconds"].items() if who != "ours")
        ratio = f"{min(theirs) / ours:.1f}" if theirs else ""
        lines.append(
            [r["task"], r["dtype"], f"{ours:.2f}", f"{goal:g}", "yes" if ours <= goal else "no", others, ratio]
        )
    head = ["", "dtype", "seconds", "goal", "met", "the others' seconds", "torch's over ours"]
    about = "The spectrum for 10,000 steps, from fewer. One thread."
    return "\n\n".join([machine.line(report), about, table(head, lines, as_markdown)])
