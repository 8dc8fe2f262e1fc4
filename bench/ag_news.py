"""The AG_NEWS experiment: rnn, gru and lstm, max_length 25, 44 and 50, lr 0.001, 15 epochs, and the
same models in PyTorch beside them.

The file is AG_NEWS's (class, title, description), given by its path. Each seed splits it, makes the
weights (PyTorch gets ours) and orders the batches; both train one epoch in turn, in one process, on
the same batches. Batch 58 gives as many updates as batch 1024 does on the 120,000 rows of the full
training file (15 * ceil(0.9 * 7600 / 58) = 1,770 against 1,760); 1024 is run once too.

Every finished run is a line of the file --keep, and is not run again: an interrupted study goes on.
Writes bench/ag_news.md and .png.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import machine, peers
from bench.ag_news_report import (
    CELLS,
    CLIP,
    EMBED,
    EPOCHS,
    FEW,
    HIDDEN,
    LENGTHS,
    RATE,
    SEEDS,
    WHOLE,
    WORDS,
    draw,
    render,
)
from bench.progress import progress
from bench.spawn import ROOT, records
from rnnspec.train.errors import TrainError

EXAMPLE = "python -m bench ag_news ag_news_test.csv"


@dataclass(frozen=True)
class Trial:
    """One run of both libraries."""

    cell: str
    length: int
    batch: int
    seed: int
    epochs: int = EPOCHS
    beside: bool = True  # PyTorch too
    data: str = ""  # the digest of the file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="AG_NEWS's test file, or another of its format")
    parser.add_argument("--cells", nargs="+", default=CELLS, metavar="CELL", help="of torch.nn (rnn gru lstm)")
    parser.add_argument("--lengths", nargs="+", type=int, default=LENGTHS, metavar="N", help="max_length (25 44 50)")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), metavar="N", help="how many (5)")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="(15)")
    parser.add_argument("--threads", type=int, default=2, help="of both libraries (2)")
    parser.add_argument(
        "--keep",
        type=Path,
        default=Path("ag_news.jsonl"),
        metavar="FILE",
        help="a line for each finished run (ag_news.jsonl)",
    )
    parser.add_argument(
        "--output", type=Path, default=ROOT / "bench" / "ag_news.md", metavar="FILE", help="(bench/ag_news.md)"
    )


def main(args: argparse.Namespace) -> int:
    try:
        data = digest_of(args.path)
    except TrainError as error:
        print(error, file=sys.stderr)
        return 2
    trials = list(study(args.cells, args.lengths, args.seeds, args.epochs, data))
    known = kept(args.keep)
    todo = [t for t in trials if key(asdict(t)) not in known]
    task = {"path": str(Path(args.path).absolute()), "trials": [asdict(t) for t in todo], "threads": args.threads}
    with progress(len(todo)) as done, open(args.keep, "a", encoding="utf-8") as file:
        for row in records("bench.ag_news:measure", task, args.threads) if todo else ():
            file.write(json.dumps(row) + "\n")
            file.flush()
            known[key(row)] = row
            done(f"{row['cell']} {row['length']} {row['batch']} {row['seed']}")
    rows = [known[key(asdict(t))] for t in trials]
    draw(rows, args.output.with_suffix(".png"))
    args.output.write_text(render(rows, args.output.with_suffix(".png").name))
    print(args.output.read_text())
    return 0


def digest_of(path: str) -> str:
    """Of the file; TrainError if it isn't what the classify task reads."""
    from rnnspec.train import load_task

    task = load_task("classify")
    return task.make(task.config("rnn", data=path), {}).digest


def study(cells: Sequence[str], lengths: Sequence[int], seeds: int, epochs: int, data: str = "") -> Iterator[Trial]:
    """Seed by seed, so that an interrupted study has all cells and lengths; the large batch after
    the first seed.

    PyTorch runs beside every seed at the document's best length (44, or the first that is asked
    for), else beside the first seed alone: it takes most of the time.
    """
    main = 44 if 44 in lengths else lengths[0]
    for seed in range(seeds):
        yield from (
            Trial(cell, length, FEW, seed, epochs, seed == 0 or length == main, data)
            for length in lengths
            for cell in cells
        )
        if seed == 0:
            yield from (
                Trial(cell, length, WHOLE, 0, epochs, length == main, data) for length in lengths for cell in cells
            )


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[field] for field in ("cell", "length", "batch", "seed", "epochs", "beside", "data"))


def kept(path: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Finished runs; a line that an interrupt left half is passed over."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
            found[key(row)] = row
        except (ValueError, KeyError, TypeError):
            continue
    return found


# --- one run ---


def measure(path: str, trials: list[dict[str, Any]], threads: int) -> Iterator[dict[str, Any]]:
    """A record per trial: accuracy and loss on held-out rows after every epoch, seconds of training
    alone, for both libraries."""
    with_torch = not peers.missing("torch")
    for fields in trials:
        trial = Trial(**fields)
        own = Ours(path, trial, threads)
        sides: dict[str, Any] = {"ours": own} | ({"torch": Theirs(own, threads)} if with_torch and trial.beside else {})
        found: dict[str, dict[str, list[float]]] = {name: {"seconds": [], "accuracy": [], "loss": []} for name in sides}
        for epoch in range(trial.epochs):
            for name in sorted(sides, reverse=epoch % 2 == 1):  # each is the first half of the time
                time.sleep(0.05)  # threads of the other go on waiting for work for a while
                began = time.perf_counter()
                sides[name].epoch(epoch)
                found[name]["seconds"].append(time.perf_counter() - began)
            for name, side in sides.items():
                accuracy, loss = side.score()
                found[name]["accuracy"].append(accuracy)
                found[name]["loss"].append(loss)
        yield (
            fields
            | found
            | {
                "updates": trial.epochs * own.problem.epoch_steps,
                "about": own.problem.about() | {"file": Path(path).name},
                "parameters": own.parameters,
                "machine": machine.line(machine.describe()),
            }
        )


class Ours:
    """The classify task's model over our kernels."""

    def __init__(self, path: str, trial: Trial, threads: int):
        from rnnspec.language.load import load
        from rnnspec.train import TrainingConfig, layer_maker, load_task, start_run

        task = load_task("classify")
        config = TrainingConfig(
            trial.cell,
            task="classify",
            data=path,
            hidden=HIDDEN,
            embed=EMBED,
            batch=trial.batch,
            length=trial.length,
            lr=RATE,
            clip=CLIP,
            schedule="constant",
            seed=trial.seed,
            options=dict(task.options) | {"words": WORDS},
        )
        self.problem = task.make(config, {})
        self.run = start_run(
            config, self.problem, self.problem.model(layer_maker(load(trial.cell), config, threads)), threads
        )
        self.model = self.run.model
        self.model.warm_up(self.problem.next({})[0])
        self.parameters = {
            group: sum(a.size for n, a in self.model.params.items() if n.startswith(group))
            for group in ("embed", "layer", "head")
        }

    def epoch(self, number: int) -> None:
        from rnnspec.train.loop import train_step

        for _ in range(self.problem.epoch_steps):
            train_step(self.run, RATE)

    def score(self) -> tuple[float, float]:
        scores = self.problem.score(self.model, quick=False)
        return scores["accuracy"], scores["held_out_loss"]


class Theirs:
    """The same model in PyTorch, from the same weights, on the same batches.

    Rows are padded at their end, so that a step of the padding changes no earlier one: the last
    valid step is picked, and nothing packed, which is PyTorch's fastest way to the same function.
    """

    def __init__(self, own: Ours, threads: int):
        import torch

        from bench.peers import torch_nn

        torch.set_num_threads(threads)
        self.problem, cell = own.problem, own.run.config.cell
        self.layer = torch_nn.LAYERS[cell](EMBED, HIDDEN)
        self.embed = torch.nn.Embedding(len(own.problem.words), EMBED)
        self.head = torch.nn.Linear(HIDDEN, len(own.problem.names))
        for module, name in ((self.embed, "embed"), (self.layer, "layer"), (self.head, "head")):
            module.load_state_dict(
                {
                    n.removeprefix(f"{name}."): torch.tensor(a)
                    for n, a in own.model.params.items()
                    if n.startswith(f"{name}.")
                }
            )
        self.params = [p for module in (self.embed, self.layer, self.head) for p in module.parameters()]
        self.optimiser = torch.optim.Adam(self.params, lr=RATE)

    def epoch(self, number: int) -> None:
        import torch

        for index in range(self.problem.epoch_steps):
            batch, _ = self.problem.next({"epoch": number, "index": index})
            self.optimiser.zero_grad()
            torch.nn.functional.cross_entropy(self._logits(batch), torch.from_numpy(batch.target)).backward()
            torch.nn.utils.clip_grad_norm_(self.params, CLIP)
            self.optimiser.step()

    def score(self) -> tuple[float, float]:
        import torch

        right, loss, count = 0, 0.0, 0
        with torch.inference_mode():
            for batch in self.problem.batches():
                logits, target = self._logits(batch), torch.from_numpy(batch.target)
                right += int((logits.argmax(dim=1) == target).sum())
                loss += float(torch.nn.functional.cross_entropy(logits, target, reduction="sum"))
                count += len(target)
        return right / count, loss / count

    def _logits(self, batch: Any) -> Any:
        import torch

        y, _ = self.layer(self.embed(torch.from_numpy(batch.x)))
        if batch.lengths is None:
            return self.head(y[-1])
        return self.head(y[torch.from_numpy(batch.lengths) - 1, torch.arange(y.shape[1])])
