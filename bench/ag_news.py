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
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import machine, peers
from bench.progress import progress
from bench.spawn import ROOT, records
from bench.tables import markdown
from rnnspec.train.errors import TrainError

EXAMPLE = "python -m bench ag_news ag_news_test.csv"
CELLS, LENGTHS, SEEDS = ("rnn", "gru", "lstm"), (25, 44, 50), (0, 1, 2, 3, 4)
FEW, WHOLE = 58, 1024  # batches
EPOCHS, RATE, HIDDEN, EMBED, WORDS, CLIP = 15, 1e-3, 64, 64, 10_000, 5.0
ALLOWED = 0.015  # between the mean accuracies of both libraries


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


# --- what it says ---


def group(rows: Iterable[dict[str, Any]], *fields: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[f] for f in fields), []).append(row)
    return found


def final(rows: Iterable[dict[str, Any]], who: str) -> list[float]:
    """Accuracy after the last epoch, in percent."""
    return [100 * row[who]["accuracy"][-1] for row in rows if who in row]


def render(rows: list[dict[str, Any]], picture: str) -> str:
    """The whole of ag_news.md."""
    about = rows[0]["about"]
    small = [r for r in rows if r["batch"] == FEW]
    parts = [
        "# AG_NEWS",
        "Written by `python -m bench ag_news PATH`, not by hand.",
        rows[-1]["machine"],
        (
            f"{about['train'] + about['held_out']:,} rows of `{about['file']}`, {about['held_out']:,} of them held out"
            f" at random by the seed, on average {about['mean_words']:.1f} words a row (the document has 43.28);"
            f" embedding {EMBED}, {HIDDEN} units, the {WORDS:,} most frequent words of the training part at most, the"
            f" class from the last valid step, Adam with lr {RATE:g}, gradients clipped at a norm of {CLIP:g},"
            f" {rows[0]['epochs']} epochs. PyTorch has the same weights at first, the same split and batches, and takes"
            " its turn epoch by epoch in the same process."
        ),
    ]
    parts += [
        "## Accuracy",
        (
            f"After the last epoch, in percent, mean ± standard error over {len({r['seed'] for r in small})} seeds;"
            " time: seconds of training, evaluation not counted, mean; difference and times over the runs that both"
            " took."
        ),
        table(rows),
        f"![Accuracy over epochs, and over max_length]({picture})",
    ]
    parts += ["## Against the document", "\n".join(f"- {line}" for line in verdicts(small))]
    return "\n\n".join(parts) + "\n"


def table(rows: list[dict[str, Any]]) -> str:
    head = [
        "cell",
        "max_length",
        "batch",
        "updates",
        "parameters of the layer",
        "rnnspec",
        "PyTorch",
        "difference",
        "best epoch",
        "s",
        "PyTorch s",
        "ratio",
    ]
    lines = []
    for (cell, length, batch), found in sorted(
        group(rows, "cell", "length", "batch").items(), key=lambda item: (item[0][2], item[0][0], item[0][1])
    ):
        both = [r for r in found if "torch" in r]
        own, theirs = final(found, "ours"), final(both, "torch")
        best = statistics.mean(100 * max(r["ours"]["accuracy"]) for r in found)
        times = [[sum(r[who]["seconds"]) for r in both or found if who in r] for who in ("ours", "torch")]
        accuracy = [
            spread(own),
            spread(theirs),
            f"{statistics.mean(final(both, 'ours')) - statistics.mean(theirs):+.1f}" if theirs else "",
            f"{best:.1f}",
        ]
        seconds = [
            f"{statistics.mean(times[0]):.1f}",
            *([f"{statistics.mean(times[1]):.1f}", f"{sum(times[1]) / sum(times[0]):.2f}"] if theirs else ["", ""]),
        ]
        lines.append(
            [
                cell,
                str(length),
                str(batch),
                f"{found[0]['updates']:,}",
                f"{found[0]['parameters']['layer']:,}",
                *accuracy,
                *seconds,
            ]
        )
    return markdown(head, lines)


def spread(values: list[float]) -> str:
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values) / len(values) ** 0.5:.1f}"


def verdicts(rows: list[dict[str, Any]]) -> list[str]:
    """What the document says, and what was measured: computed from the rows."""
    lines = []
    for (cell,), found in group(rows, "cell").items():
        by_length = {
            length: {r["seed"]: 100 * r["ours"]["accuracy"][-1] for r in own}
            for (length,), own in group(found, "length").items()
        }
        if 44 not in by_length:
            continue
        for other, values in by_length.items():
            if other == 44:
                continue
            gains = [by_length[44][seed] - values[seed] for seed in values if seed in by_length[44]]
            mean, error = (
                statistics.mean(gains),
                (statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("inf")),
            )
            sure = "agrees" if mean > 2 * error else "does not agree" if mean < -2 * error else "cannot be told apart"
            about = (
                f"{mean:+.1f} points, standard error {error:.1f} over {len(gains)} splits"
                if len(gains) > 1
                else f"{mean:+.1f} points on one split"
            )
            lines.append(
                f"`{cell}`: the document finds 44 better than {other}; here 44 against {other} is {about}: {sure}."
            )
        peak = statistics.mean(
            max(range(len(r["ours"]["loss"])), key=lambda i: -r["ours"]["loss"][i]) + 1 for r in found
        )
        lines.append(
            f"`{cell}`: the held-out loss is lowest after epoch {peak:.1f} of {found[0]['epochs']} on average"
            + (", and rises after it: it overfits, as the document suspects." if peak < found[0]["epochs"] - 1 else ".")
        )
    return lines + agreement(rows)


def agreement(rows: list[dict[str, Any]]) -> list[str]:
    """Accuracy and time against PyTorch, cell by cell."""
    lines = []
    for (cell,), found in group(rows, "cell").items():
        both = [r for r in found if "torch" in r]
        if not both:
            continue
        gap = abs(statistics.mean(final(both, "ours")) - statistics.mean(final(both, "torch"))) / 100
        ratio = sum(sum(r["torch"]["seconds"]) for r in both) / sum(sum(r["ours"]["seconds"]) for r in both)
        lines.append(
            f"`{cell}` against PyTorch, over {len(both)} runs: mean accuracies {100 * gap:.2f} points apart"
            f" ({100 * ALLOWED:.1f} allowed), PyTorch's time over ours {ratio:.2f}."
        )
    return lines


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Accuracy over epochs for each max_length, a panel a cell; PyTorch dashed."""
    from rnnspec.show.figure import dress, new_figure
    from rnnspec.storage import atomic

    colours = ("#4c78a8", "#e4572e", "#54a24b", "#b279a2")
    cells = list(group([r for r in rows if r["batch"] == FEW], "cell").items())
    figure = new_figure((3.6 * len(cells) + 1, 4.2))
    panels = figure.subplots(1, len(cells), sharey=True, squeeze=False)[0]
    for axes, ((cell,), found) in zip(panels, cells):
        for colour, ((length,), own) in zip(colours, group(found, "length").items()):
            for who, style in (("ours", "-"), ("torch", "--")):
                curves = [r[who]["accuracy"] for r in own if who in r]
                if len(curves) == len(own):  # a mean over other seeds would say nothing
                    mean = [100 * statistics.mean(values) for values in zip(*curves)]
                    label = f"max_length {length}" if who == "ours" else None
                    axes.plot(range(1, len(mean) + 1), mean, style, color=colour, linewidth=1.6, label=label)
        axes.xaxis.get_major_locator().set_params(integer=True)
        dress(axes, cell, "epoch", "held-out accuracy, percent" if axes is panels[0] else "")
    figure.suptitle(
        f"AG_NEWS, batch {FEW}: rnnspec (lines) and PyTorch (dashes, where it ran beside all seeds), means over seeds",
        fontsize=10,
    )
    save: Callable[[Any], object] = lambda file: figure.savefig(file, format="png")  # noqa: E731
    atomic.write(path, save)
