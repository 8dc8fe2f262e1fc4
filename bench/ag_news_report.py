"""What the AG_NEWS experiment prints and draws: tables, verdicts, agreement with the document."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.tables import markdown

CELLS, LENGTHS, SEEDS = ("rnn", "gru", "lstm"), (25, 44, 50), (0, 1, 2, 3, 4)
FEW, WHOLE = 58, 1024  # batches
EPOCHS, RATE, HIDDEN, EMBED, WORDS, CLIP = 15, 1e-3, 64, 64, 10_000, 5.0
ALLOWED = 0.015  # between the mean accuracies of both libraries


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
