"""One model over several processes, each with its share of every batch.

    torchrun --nproc-per-node 2 examples/many_processes.py

Each process takes its rows of the same batches, and DistributedDataParallel (gloo, on processors)
takes the mean of the gradients, so that the losses are those of one process with whole batches, to
rounding: `python examples/many_processes.py` is that one. A process prints nothing but the first,
which prints the mean loss of all at every tenth step, and writes all of them into --out.

The task is `adding`: a row is a sequence of numbers, two of which are marked; the layer is to give
their sum.
"""

import argparse
import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rnnspec.interop.torch import Recurrent


class Adder(torch.nn.Module):
    """A recurrent layer and a head: x [T, B, 2] to [B]."""

    def __init__(self, cell: str, hidden: int) -> None:
        super().__init__()
        self.layer = Recurrent(cell, 2, hidden)
        self.head = torch.nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output, _ = self.layer(x)
        return self.head(output[-1]).squeeze(-1)


def batch(step: int, length: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The batch of a step, the same in every process: x [T, B, 2], targets [B]."""
    draw = torch.Generator().manual_seed(step)
    values = torch.rand(length, rows, generator=draw)
    marks = torch.zeros(length, rows)
    half = length // 2
    first, second = (torch.randint(half, (rows,), generator=draw) for _ in range(2))
    marks[first, torch.arange(rows)] = 1
    marks[half + second, torch.arange(rows)] = 1
    return torch.stack([values, marks], -1), (values * marks).sum(0)


def train(cell: str, hidden: int, length: int, rows: int, steps: int) -> list[float]:
    """Trains in the group of processes that was begun, or alone; the mean loss of every step."""
    alone = not dist.is_initialized()
    rank, processes = (0, 1) if alone else (dist.get_rank(), dist.get_world_size())
    if rows % processes:
        raise SystemExit(f"{rows} rows do not divide into {processes} processes")
    torch.manual_seed(0)  # the same weights everywhere; DistributedDataParallel sends the first one's
    module: torch.nn.Module = Adder(cell, hidden)
    module = module if alone else DistributedDataParallel(module)
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-2)
    share, losses = rows // processes, []
    for step in range(steps):
        x, target = batch(step, length, rows)
        mine = slice(rank * share, (rank + 1) * share)
        loss = torch.nn.functional.mse_loss(module(x[:, mine]), target[mine])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        mean = loss.detach().clone()
        if not alone:
            dist.all_reduce(mean)
        losses.append(mean.item() / processes)
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: loss {losses[-1]:.4f}", flush=True)
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", default="lstm")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--length", type=int, default=30)
    parser.add_argument("--rows", type=int, default=64, help="of a batch, all processes together")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", type=Path, help="a JSON file for the losses")
    args = parser.parse_args()
    together = "RANK" in os.environ  # torchrun says which process this is
    if together:
        dist.init_process_group("gloo")
    losses = train(args.cell, args.hidden, args.length, args.rows, args.steps)
    if args.out and (not together or dist.get_rank() == 0):
        args.out.write_text(json.dumps(losses) + "\n")
    if together:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
