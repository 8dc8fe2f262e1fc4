"""The model of many_processes.py as a job of Ray Train, on the machine or cluster that Ray has.

    pip install 'ray[train]'
    python examples/ray_train.py --workers 2

Ray Train starts the workers and their group (gloo); what a worker does is `train` of
many_processes.py, and so the losses are those of one process, to rounding. The workers need
rnnspec, and many_processes.py, which Ray sends to them.
"""

import argparse
import json
from pathlib import Path

import ray
import torch
from ray.train import RunConfig, ScalingConfig, get_context, report
from ray.train.torch import TorchTrainer

HERE = Path(__file__).resolve().parent


def work(config: dict) -> None:
    from many_processes import train

    torch.set_num_threads(1)
    losses = train(config["cell"], config["hidden"], config["length"], config["rows"], config["steps"])
    report({"loss": losses[-1]})
    if config["out"] and get_context().get_world_rank() == 0:
        Path(config["out"]).write_text(json.dumps(losses) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cell", default="lstm")
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--length", type=int, default=30)
    parser.add_argument("--rows", type=int, default=64, help="of a batch, all workers together")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--out", help="a JSON file for the losses, on the first worker's machine")
    parser.add_argument("--storage", help="a folder that all machines see, for Ray's results (its own)")
    args = parser.parse_args()
    ray.init(runtime_env={"working_dir": str(HERE)})
    config = vars(args)
    workers, storage = config.pop("workers"), config.pop("storage")
    config["out"] = config["out"] and str(Path(config["out"]).resolve())
    scaling = ScalingConfig(num_workers=workers)
    results = RunConfig(storage_path=storage)
    result = TorchTrainer(work, train_loop_config=config, scaling_config=scaling, run_config=results).fit()
    print(f"loss after {args.steps} steps: {result.metrics['loss']:.4f}")


if __name__ == "__main__":
    main()
