"""python -m bench SUBCOMMAND, from the repository root."""

from __future__ import annotations

import argparse
import importlib
import sys

COMMANDS = {
    "compare": "speed against torch, loops in torch, jax and onnxruntime",
    "results": "bench/results.md from the JSON files of compare",
    "online": "a step of exact real-time recurrent learning, against a forward step and jax",
    "onnx_scan": "exported cells in ONNX Runtime: a Scan, an operator compiled from C, our kernels",
    "memory": "peak memory and tape of forward and backward, against torch.nn",
    "build": "seconds to import, to build kernels, and to the first result",
    "compile": "seconds to a first result from an empty cache, by part, and against another version",
    "scaling": "time against the number of steps and of rows",
    "layers": "a stack of layers in torch against its bare kernels and torch.nn",
    "small": "small calls, where the call costs more than the work, against jax and torch.nn",
    "threads": "as many threads as rnnspec takes by itself, against one, and against all there are",
    "by_row": "gradients of parameters by row, against B passes and torch.func.vmap(grad)",
    "ltc": "ltc with the wiring and weights of ncps, against that package",
    "adbench": "objective and Jacobian of ADBench's LSTM, against jax and torch",
    "dynamics": "Lyapunov spectrum of an LSTM, fixed points of a GRU, against torch.func",
    "study": "what a study costs beside its runs, and what a second process brings",
    "derivatives": "jvp, hvp, 16 directions and gradients of gradients, against jax and torch.nn",
    "tiles": "products of the CPU runtime: share of the multiply-add peak, NumPy beside them",
    "cells": "speed of every cell in specs/, worst first",
    "drift": "cells beside the implementations of them in the packages that are installed",
    "gates": "parameters, work, time, tape and score on a task, cells side by side",
    "export": "exported C, one step of one row, against torch's and ONNX Runtime's steps; its size",
    "ag_news": "the AG_NEWS experiment, with the same models in PyTorch beside it",
    "gpu": "CUDA kernels: every cell against the CPU, then speed against torch; needs a GPU",
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, epilog="example: python -m bench compare --quick"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="SUBCOMMAND")
    modules = {}
    for name, about in COMMANDS.items():
        if any(a in COMMANDS and a != name for a in sys.argv[1:2]):
            commands.add_parser(name, help=about)  # only the module that runs is imported
            continue
        modules[name] = module = importlib.import_module(f"bench.{name}")
        module.add_arguments(
            commands.add_parser(
                name,
                help=about,
                description=module.__doc__,
                epilog=f"example: {module.EXAMPLE}",
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
        )
    args = parser.parse_args()
    try:
        return modules[args.command].main(args)
    except KeyboardInterrupt:
        print("interrupted; what was measured is in the file of --json, where one was asked for", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
