"""Learning as a stream runs: a step of `kernel.online` by the rule "exact" beside a step of
`kernel.stream`, and beside the same rule in jax, jitted.

One process bound to one processor, one row, so many steps by turns; `learn` after every step. Ours
gathers 32 steps before it brings the influence up to date: what is told is the mean over many
times as many. In jax a step is its values, the derivatives of each unit by jax.jacfwd and vmap, and
J P + M for every weight, in place (donated). Gradients are compared before anything is measured.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench import machine
from bench.case import Array
from bench.compare import installed, positive
from bench.progress import progress
from bench.report import add_json, finish
from bench.spawn import records
from bench.tables import table

EXAMPLE = "python -m bench online --units 512"
CELL, GATES = "indy_lstm", "ifgo"
GOAL = 3.0  # times a forward step
DTYPES = ("float32", "float64")
CLOSE = {"float32": 1e-3, "float64": 1e-9}  # of the largest gradient
Step = Callable[[], Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--units", nargs="+", type=positive, default=[512], metavar="H", help="(512)")
    parser.add_argument("--inputs", type=positive, metavar="D", help="features of the input (as many as units)")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=["float32"], help="(float32)")
    parser.add_argument("--steps", type=positive, default=320, help="of each round (320)")
    parser.add_argument("--rounds", type=positive, default=5, help="of all in turn (5)")
    add_json(parser)


def main(args: argparse.Namespace) -> int:
    settings = {n: getattr(args, n) for n in ("units", "inputs", "dtype", "steps", "rounds")}
    return finish("online", settings, _rows(settings), render, args.json)


def _rows(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    work = [(units, dtype) for dtype in settings["dtype"] for units in settings["units"]]
    more = {n: settings[n] for n in ("steps", "rounds")} | {"jax": bool(installed(["jax"]))}
    with progress(len(work)) as done:
        for units, dtype in work:
            sizes = {"units": units, "inputs": settings["inputs"] or units, "dtype": dtype}
            for row in records("bench.online:measure", {**sizes, **more}, 1):
                done(f"{units} {dtype}")
                yield row


def measure(units: int, inputs: int, dtype: str, steps: int, rounds: int, jax: bool) -> Iterator[dict[str, Any]]:
    """A record: the seconds of one step of each way, medians over rounds."""
    import rnnspec

    kernel = rnnspec.compile(CELL, dtype=dtype, threads=1)
    params, rng = kernel.init(D=inputs, H=units, seed=0), np.random.default_rng(1)
    x = {"x": rng.normal(size=(1, inputs)).astype(dtype)}
    flow = {"h": rng.normal(size=(1, units)).astype(dtype)}
    plain, ahead, learning = kernel.stream(params), kernel.online(params), kernel.online(params)

    def ours() -> dict[str, Array]:
        learning.step(x)
        return learning.learn(flow)

    ways: dict[str, Step] = {"forward": lambda: plain.step(x), "step": lambda: ahead.step(x), "learn": ours}
    if jax:
        ways |= _in_jax(params, x["x"][0], flow["h"][0])
        _compare(ways, dtype)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, step in ways.items():
            step()
            begun = time.perf_counter()
            for _ in range(steps):
                step()
            times[way].append((time.perf_counter() - begun) / steps)
    seconds = {way: statistics.median(t) for way, t in times.items()}
    yield {"units": units, "inputs": inputs, "dtype": dtype, "seconds": seconds}


def _compare(ways: dict[str, Step], dtype: str) -> None:
    """Both learn from the same steps."""
    for _ in range(5):
        found, expected = ways["learn"](), ways["jax learn"]()
    for name, array in expected.items():
        gap = np.abs(found[name] - np.asarray(array)).max() / np.abs(array).max()
        assert gap < CLOSE[dtype], f"gradients of {name} differ by {gap:.1e}"


def _in_jax(params: dict[str, Array], x: Array, flow: Array) -> dict[str, Step]:
    """Steps of the rule in jax, with and without the gradient at each."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", x.dtype == np.float64)
    w, u, b = (jnp.stack([params[f"{kind}_{g}"] for g in GATES]) for kind in ("W", "u", "b"))

    def unit(state: Any, read: Any, own: Any) -> Any:
        """One unit: (h, c) from (h, c), the four gates' sums of inputs, and its own weights."""
        i, f, g, o = read + own * state[0]
        c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
        return jnp.stack([jax.nn.sigmoid(o) * jnp.tanh(c), c])

    def moved(weights: Any, carried: Any, x: Any) -> Any:
        w, u, b = weights
        state, of_w, of_u, of_b = carried
        read = jnp.einsum("ghd,d->hg", w, x) + b.T
        after = jax.vmap(unit)(state, read, u.T)
        jacobian, slope = jax.vmap(jax.jacfwd(unit, (0, 1)))(state, read, u.T)  # [H, 2, 2], [H, 2, 4]
        own = jnp.einsum("hsg->sgh", slope)
        through = [jnp.einsum("hsr,rgh...->sgh...", jacobian, p) for p in (of_w, of_u, of_b)]
        return after, through[0] + own[..., None] * x, through[1] + own * state[:, 0], through[2] + own

    def gradients(carried: Any, flow: Any) -> Any:
        _, of_w, of_u, of_b = carried
        return of_w[0] * flow[:, None], of_u[0] * flow, of_b[0] * flow

    def both(weights: Any, carried: Any, x: Any, flow: Any) -> Any:
        carried = moved(weights, carried, x)
        return carried, gradients(carried, flow)

    run, run_both = jax.jit(moved, donate_argnums=1), jax.jit(both, donate_argnums=1)
    held = {}
    for name in ("ahead", "learning"):
        held[name] = (jnp.zeros((u.shape[1], 2), x.dtype), *(jnp.zeros((2, *p.shape), x.dtype) for p in (w, u, b)))

    def step() -> None:
        held["ahead"] = jax.block_until_ready(run((w, u, b), held["ahead"], x))

    def learn() -> dict[str, Array]:
        held["learning"], found = jax.block_until_ready(run_both((w, u, b), held["learning"], x, flow))
        return {f"{kind}_{g}": a[k] for kind, a in zip("Wub", found) for k, g in enumerate(GATES)}

    return {"jax step": step, "jax learn": learn}


def render(report: dict[str, Any], as_markdown: bool = False) -> str:
    lines = []
    for r in report["rows"]:
        seconds = r["seconds"]
        forward = seconds["forward"]
        times = {way: f"{1e6 * seconds[way]:.0f}" if way in seconds else "" for way in WAYS}
        ratios = [f"{seconds[way] / forward:.2f}" for way in ("step", "learn")]
        faster = [
            f"{seconds[f'jax {way}'] / seconds[way]:.1f}" if f"jax {way}" in seconds else ""
            for way in ("step", "learn")
        ]
        lines.append([str(r["units"]), str(r["inputs"]), r["dtype"], *times.values(), *ratios, *faster])
    head = ["H", "D", "dtype", *(f"{way}, us" for way in WAYS)]
    head += ["step over forward", "step and learn over forward", "jax over ours, step", "with learn"]
    about = f"{CELL}, one row, one thread; the goal is a step of at most {GOAL:g} times the forward step's time."
    return "\n\n".join([machine.line(report), about, table(head, lines, as_markdown)])


WAYS = ("forward", "step", "learn", "jax step", "jax learn")
