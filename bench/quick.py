"""rnnspec against torch.nn on the same work, in one process: python bench/quick.py [--threads 1] [--shape T B D H].

Values are compared before anything is timed. Each ratio (torch's time / ours, above 1 is faster) is the median of
alternating pairs. Weights count as changed at every training step, so packing them is part of the time.
"""
from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

import rnnspec

PEERS = {"lstm": (torch.nn.LSTM, 4), "gru": (torch.nn.GRU, 3), "rnn": (torch.nn.RNN, 1)}


def seconds(run: Callable[[], object], repeat: int) -> float:
    """The mean time of a call, over `repeat` calls."""
    start = time.perf_counter()
    for _ in range(repeat):
        run()
    return (time.perf_counter() - start) / repeat


def compare(ours: Callable[[], object], theirs: Callable[[], object], pairs: int) -> tuple[float, float]:
    """Median ratio theirs / ours over alternating pairs, and our median time."""
    for run in (ours, theirs, ours, theirs):
        run()
    repeat = max(1, int(0.1 / seconds(ours, 1)))
    measured = [(seconds(theirs, repeat), seconds(ours, repeat)) for _ in range(pairs)]
    return statistics.median(b / a for b, a in measured), statistics.median(a for _, a in measured)


def report(cell: str, shape: tuple[int, int, int, int], threads: int, pairs: int) -> None:
    steps, rows, features, hidden = shape
    make, gates = PEERS[cell]
    peer = make(features, hidden)
    layer = rnnspec.Recurrent(cell, features, hidden, threads=threads)
    layer.load_state_dict({n: p.detach().numpy() for n, p in peer.state_dict().items()})
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((steps, rows, features), np.float32), rng.standard_normal((steps, rows, hidden), np.float32)
    xt, dyt = torch.tensor(x, requires_grad=True), torch.tensor(dy)

    def infer_theirs() -> None:
        with torch.no_grad():
            peer(xt)

    def train_theirs() -> torch.Tensor:
        peer.zero_grad()
        xt.grad = None
        y = peer(xt)[0]
        y.backward(dyt)
        return y

    def train_ours() -> np.ndarray:
        y, _ = layer(x)
        layer.backward(dy)
        return y

    error = np.abs(train_ours() - train_theirs().detach().numpy()).max()
    for name, gradient in peer.named_parameters():
        assert gradient.grad is not None
        theirs = gradient.grad.numpy()
        error = max(error, np.abs(layer.grads[name] - theirs).max() / np.abs(theirs).max())
    assert error < 1e-4, f"{cell}: values differ by {error}"
    for title, ours, theirs, passes in (("inference", lambda: layer.infer(x), infer_theirs, 1), ("forward+backward", train_ours, train_theirs, 3)):
        ratio, time_ours = compare(ours, theirs, pairs)
        rate = 2 * passes * steps * rows * (features + hidden) * gates * hidden / time_ours / 1e9
        print(f"{cell:5} {title:17} T{steps} B{rows} D{features} H{hidden} threads {threads}: torch / rnnspec = {ratio:.2f}   "
              f"({time_ours * 1e3:.2f} ms, {rate:.0f} GFLOP/s, error {error:.0e})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--shape", type=int, nargs=4, default=(128, 32, 256, 256), metavar=("T", "B", "D", "H"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("cells", nargs="*", default=["lstm", "gru"], help="of lstm, gru, rnn")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for cell in args.cells:
        report(cell, tuple(args.shape), args.threads, args.pairs)


if __name__ == "__main__":
    main()
