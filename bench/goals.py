"""The goals that the measured rows of `compare` are held against, one record each: what is counted,
the least it may be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.case import IN_TORCH
from bench.tables import milliseconds, table

Row = dict[str, Any]
Value = tuple[str, float]  # a row's label and its number


@dataclass(frozen=True)
class Goal:
    """values: the numbers it is about, bigger is better unless at_most. mean: the geometric mean
    wanted, of those that `meant` picks by label."""

    title: str
    values: Callable[[Sequence[Row]], list[Value]]
    least: float
    mean: float | None = None
    meant: str = ""
    at_most: bool = False
    percent: bool = False


@dataclass(frozen=True)
class Verdict:
    goal: Goal
    worst: float | None
    geomean: float | None
    count: int
    short: list[Value]
    met: bool | None  # None: nothing measured


def label(row: Row) -> str:
    width = f"H{row['H']}" if row["D"] == row["H"] else f"D{row['D']} H{row['H']}"
    return (
        f"{row['cell']} T{row['T']} B{row['B']} {width} {row['mode']} {row['dtype']} {row['threads']}"
        f" thread{'s' * (row['threads'] > 1)}"
    )


def ratio(row: Row, names: Sequence[str]) -> float | None:
    """Of the best of the peers that were measured."""
    found = [row["peers"][n]["ratio"] for n in names if "ratio" in row["peers"].get(n, {})]
    return min(found, default=None)


def against(names: Sequence[str], chosen: Callable[[Row], bool]) -> Callable[[Sequence[Row]], list[Value]]:
    def values(rows: Sequence[Row]) -> list[Value]:
        found = [(label(r), ratio(r, names)) for r in rows if chosen(r)]
        return [(text, value) for text, value in found if value is not None]

    return values


def _sequence(row: Row) -> bool:
    return row["mode"] != "step"


def shares(rows: Sequence[Row]) -> list[Value]:
    return [
        (label(r), r["share"])
        for r in rows
        if "share" in r
        and r["mode"] == "training"
        and r["threads"] == 1
        and r["B"] >= 32
        and r["H"] >= 256
        and r["dtype"] == "float32"
    ]


def speedups(rows: Sequence[Row]) -> list[Value]:
    """Our time on one thread over that on two."""
    times = {_key(r): r["seconds"] for r in rows if "seconds" in r and r["threads"] == 1}
    return [
        (label(r), times[_key(r)] / r["seconds"])
        for r in rows
        if r["threads"] == 2 and "seconds" in r and _key(r) in times and _sequence(r) and r["B"] >= 16 and r["H"] >= 128
    ]


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[f] for f in ("cell", "T", "B", "D", "H", "dtype", "mode"))


def odd(rows: Sequence[Row]) -> list[Value]:
    return [(label(r), r["padded"]["ratio"]) for r in rows if "padded" in r]


GOALS = (
    Goal(
        "(a) lstm, gru, rnn, float32, inference and training: over the best of torch.nn and onnxruntime",
        against(("torch", "onnxruntime"), lambda r: r["cell"] in IN_TORCH and r["dtype"] == "float32" and _sequence(r)),
        1.0,
        1.4,
    ),
    Goal(
        "(b) the other cells, float32, inference and training: over jax",
        against(("jax",), lambda r: r["cell"] not in IN_TORCH and r["dtype"] == "float32" and _sequence(r)),
        1.2,
        2.0,
    ),
    Goal(
        "(c) the other cells, float32, inference and training: over a loop in torch (geometric mean: training)",
        against(("torch-loop",), lambda r: r["cell"] not in IN_TORCH and r["dtype"] == "float32" and _sequence(r)),
        3.0,
        6.0,
        " training ",
    ),
    Goal("(d) share of the peak of one core in training, 1 thread, B >= 32, H >= 256", shares, 0.85, percent=True),
    Goal("(e) two threads over one, B >= 16, H >= 128", speedups, 1.8),
    Goal(
        "(f) single steps of lstm, B = 1, H 64 and 256: over the best of torch and onnxruntime",
        against(
            ("torch", "onnxruntime"),
            lambda r: (
                r["cell"] == "lstm"
                and r["mode"] == "step"
                and r["B"] == 1
                and r["H"] in (64, 256)
                and r["dtype"] == "float32"
            ),
        ),
        2.0,
    ),
    Goal(
        "(g) lstm, gru, rnn, float64, inference and training: over torch.nn",
        against(("torch",), lambda r: r["cell"] in IN_TORCH and r["dtype"] == "float64" and _sequence(r)),
        1.0,
    ),
    Goal("(h) odd sizes: time per useful FLOP over that at the next multiple of the lanes", odd, 1.35, at_most=True),
)


def judge(goal: Goal, rows: Sequence[Row]) -> Verdict:
    found = goal.values(rows)
    if not found:
        return Verdict(goal, None, None, 0, [], None)
    numbers = [value for _, value in found]
    meant = [value for text, value in found if goal.meant in text]
    mean = math.exp(sum(map(math.log, meant)) / len(meant)) if meant else None
    short = sorted(
        [v for v in found if (v[1] > goal.least if goal.at_most else v[1] < goal.least)],
        key=lambda v: v[1],
        reverse=goal.at_most,
    )
    enough = goal.mean is None or mean is None or mean >= goal.mean
    return Verdict(goal, max(numbers) if goal.at_most else min(numbers), mean, len(found), short, not short and enough)


def uncounted(rows: Sequence[Row]) -> list[str]:
    """Comparisons that have no ratio, because the values differ or the peer failed, and why."""
    return [f"{label(r)}: {name}: {p['error']}" for r in rows for name, p in r.get("peers", {}).items() if "error" in p]


def number(goal: Goal, value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %" if goal.percent else f"{value:.2f}"


def summary(rows: Sequence[Row], as_markdown: bool = False, goals: Sequence[Goal] = GOALS) -> str:
    """A table of all goals, then the rows that fall short of each."""
    verdicts = [judge(goal, rows) for goal in goals]
    head = ["goal", "wanted", "worst", "geometric mean", "rows", "short", ""]
    lines = []
    for v in verdicts:
        wanted = f"{'<=' if v.goal.at_most else '>='} {number(v.goal, v.goal.least)}" + (
            f", mean >= {v.goal.mean:.2f}" if v.goal.mean else ""
        )
        lines.append(
            [
                v.goal.title,
                wanted,
                number(v.goal, v.worst),
                number(v.goal, v.geomean),
                str(v.count),
                str(len(v.short)),
                {True: "met", False: "not met", None: "not measured"}[v.met],
            ]
        )
    parts = [table(head, lines, as_markdown)]
    mark, item = ("### ", "- ") if as_markdown else ("", "  ")
    for v in verdicts:
        if v.short:
            parts.append(
                "\n".join(
                    [
                        f"{mark}Short of {v.goal.title}",
                        *([""] if as_markdown else []),
                        *(
                            f"{item}{number(v.goal, value) if as_markdown else number(v.goal, value).rjust(5)}  {text}"
                            for text, value in v.short
                        ),
                    ]
                )
            )
    if lost := uncounted(rows):
        parts.append(
            "\n".join(
                [
                    f"{mark}Not counted: what a peer gave can't be compared",
                    *([""] if as_markdown else []),
                    *(f"{item}{text}" for text in lost),
                ]
            )
        )
    return "\n\n".join(parts)


def row_table(rows: Sequence[Row], names: Sequence[str], as_markdown: bool = False) -> str:
    """One line per row: our time, rate, share of peak, and each peer's time over ours."""
    present = [n for n in names if any(n in r["peers"] for r in rows)]
    head = ["cell", "shape", "ms", "GFLOP/s", "of peak", *present, "best"] + (
        ["odd"] if any("padded" in r for r in rows) else []
    )
    lines = []
    for r in rows:
        shape = f"T{r['T']} B{r['B']} " + (f"H{r['H']}" if r["D"] == r["H"] else f"D{r['D']} H{r['H']}")
        if "error" in r:
            lines.append([r["cell"], shape, r["error"], *[""] * (len(head) - 3)])
            continue
        best = ratio(r, names)
        cells = [
            r["cell"],
            shape,
            milliseconds(r["seconds"]),
            f"{r['gflops']:.1f}",
            f"{100 * r['share']:.0f} %",
            *(_peer(r, n) for n in present),
            "" if best is None else f"{best:.2f}",
        ]
        lines.append(cells + ([f"{r['padded']['ratio']:.2f}" if "padded" in r else ""] if head[-1] == "odd" else []))
    return table(head, lines, as_markdown)


def _peer(row: Row, name: str) -> str:
    found = row["peers"].get(name)
    if found is None:
        return ""
    return (
        f"{found['ratio']:.2f}"
        if "ratio" in found
        else (
            "MISMATCH"
            if found.get("error", "").startswith("values differ")
            else "ERROR"
            if "error" in found
            else "too slow"
        )
    )
