"""bench: peers agree in value, reports are whole, a wrong peer is found out. Nothing here depends
on how fast anything is."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is not installed

from bench import compare, goals, peers, results, rows, scaling, small
from bench.__main__ import COMMANDS
from bench.case import CELLS, MODES, Case, Data, cases
from bench.peers import Prepared, ours

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "bench").rglob("*.py"))
BETWEEN_PEERS = [
    c for c in CELLS if c not in ("lstm", "gru_reset_before")
]  # without kernels of ours, whose compilation takes seconds


def tiny(cell: str, mode: str, dtype: str = "float32") -> Case:
    return Case(cell, 1 if mode == "step" else 5, 3, 4, 6, dtype, mode)


def peer(name: str):
    for package in peers.PACKAGES[name]:
        pytest.importorskip(package)
    return peers.module(name)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cell", ["lstm", "gru_reset_before"])
@pytest.mark.parametrize("name", peers.NAMES)
def test_a_peer_agrees_with_us(name: str, cell: str, mode: str) -> None:
    module, case = peer(name), tiny(cell, mode)
    if not module.supports(case):
        pytest.skip(f"{name} has no {cell} in mode {mode}")
    data = Data(case)
    assert rows.difference(ours.prepare(case, data, 1).values(), module.prepare(case, data, 1).values(), 1e-5) < 1e-5


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cell", BETWEEN_PEERS)
def test_peers_agree_with_jax(cell: str, mode: str) -> None:
    case = tiny(cell, mode)
    data, wanted = Data(case), None
    for name in ("jax", *(n for n in peers.NAMES if n != "jax")):
        module = peer(name)
        if module.supports(case):
            values = module.prepare(case, data, 1).values()
            wanted = wanted or values
            assert rows.difference(wanted, values, 1e-5) < 1e-5


def test_flops_count_the_matrices() -> None:
    assert Case("lstm", 10, 3, 5, 7).flops == 2 * 10 * 3 * 4 * 7 * (5 + 7)
    assert Case("gru", 10, 3, 5, 7, mode="training").flops == 3 * 2 * 10 * 3 * 3 * 7 * (5 + 7)
    assert Case("indrnn", 1, 3, 5, 7, mode="step").flops == 2 * 3 * 7 * 5
    assert Case("lstm", 1, 1, 37, 100).padded(16) == Case("lstm", 1, 1, 48, 112)


def test_single_steps_of_one_size_are_one_case() -> None:
    assert [str(c) for c in cases(["rnn"], [(9, 1, 8), (5, 1, 8)], "float32", ["step", "training"])] == [
        "rnn T1 B1 H8 step",
        "rnn T9 B1 H8 training",
        "rnn T5 B1 H8 training",
    ]


def planted(change):
    """A peer that is rnnspec, its values changed."""

    def prepare(case: Case, data: Data, threads: int) -> Prepared:
        mine = ours.prepare(case, data, threads)
        return Prepared(mine.call, lambda: change(dict(mine.values())))

    return prepare


def broken(case: Case, data: Data, threads: int) -> Prepared:
    raise RuntimeError("no such operator")


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v | {"U_f": v["U_f"] * 1.001},
        lambda v: v | {"x": v["x"] + np.nan},
        lambda v: {n: a for n, a in v.items() if n != "b_i"},
        lambda v: v | {"h": v["h"][:1]},
    ],
)
def test_a_wrong_peer_is_found_out_and_the_others_go_on(change) -> None:
    makers = {"torch": planted(change), "onnxruntime": broken, "jax": planted(dict)}
    row = rows.row(tiny("lstm", "training"), makers, 1, 1, least=0.0)
    assert row["peers"]["torch"]["error"].startswith("values differ: ") and "ratio" not in row["peers"]["torch"]
    assert row["peers"]["onnxruntime"]["error"] == "RuntimeError: no such operator"
    assert row["peers"]["jax"]["ratio"] > 0 and row["peers"]["jax"]["difference"] == 0 and row["seconds"] > 0
    assert len(compare.wrong([row])) == 2
    text = compare.render(compare.machine.describe() | {"rows": [row]})
    assert "MISMATCH" in text and "no such operator" in text


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    name, *rest = words
    module, parser = importlib.import_module(f"bench.{name}"), argparse.ArgumentParser()
    module.add_arguments(parser)
    code = module.main(parser.parse_args(rest))
    return code, capsys.readouterr().out


def test_compare_and_results_are_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    file, page, written = tmp_path / "a.json", tmp_path / "a.md", tmp_path / "results.md"
    code, out = run(
        capsys,
        "compare",
        "lstm",
        "--shape",
        "3,2,6",
        "--threads",
        "1",
        "--pairs",
        "1",
        "--least",
        "0",
        "--peers",
        "torch",
        "--json",
        str(file),
        "--markdown",
        str(page),
    )
    assert code == 0
    report = json.loads(file.read_text())
    assert (
        set(report) == {"kind", "command", "machine", "versions", "date", "settings", "rows"}
        and report["machine"]["cpu"]
    )
    assert {"python", "numba", "llvmlite", "numpy", "torch", "jax", "onnxruntime"} <= set(report["versions"])
    assert [r["mode"] for r in report["rows"]] == list(MODES)
    for row in report["rows"]:
        assert (
            len(row["peers"]["torch"]["pairs"]) == 1
            and row["seconds"] > 0
            and row["peak_gflops"] > 0
            and ("padded" in row) == (row["mode"] != "step")
        )
    for title in ("inference", "training", "step", "(h) odd sizes"):
        assert title in out and title in page.read_text()
    assert str(tmp_path) not in file.read_text()
    assert run(capsys, "results", str(file), "--output", str(written))[0] == 0
    text = written.read_text()
    assert (
        "python -m bench results a.json" in text
        and report["date"] in text
        and report["machine"]["cpu"] in text
        and "| lstm | T3 B2 H6 |" in text
    )
    assert str(tmp_path) not in text


def test_results_refuse_what_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.json"
    for content in ("{", "[]", '{"kind": "other"}'):
        file.write_text(content)
        assert run(capsys, "results", str(file), "--output", str(tmp_path / "r.md"))[0] == 2
    assert not (tmp_path / "r.md").exists()


def measured(cell: str, ratio: float, **more: object) -> dict[str, object]:
    return {
        "cell": cell,
        "T": 9,
        "B": 32,
        "D": 256,
        "H": 256,
        "dtype": "float32",
        "mode": "training",
        "threads": 1,
        "seconds": 2.0,
        "share": 0.9,
        "peers": {"torch": {"ratio": ratio}},
    } | more


def test_goals() -> None:
    def verdict(letter: str, *found: dict[str, object]) -> goals.Verdict:
        return goals.judge(next(g for g in goals.GOALS if g.title.startswith(f"({letter})")), found)

    assert verdict("a").met is None
    assert verdict("a", measured("lstm", 1.5), measured("gru", 1.6)).met
    low = verdict("a", measured("lstm", 0.5), measured("gru", 8.0))
    assert (low.met, low.worst, [v for _, v in low.short]) == (False, 0.5, [0.5]) and low.geomean == pytest.approx(2.0)
    assert verdict("a", measured("lstm", 1.1)).met is False  # the mean is short
    assert (
        verdict("a", measured("lstm", 3.0, peers={"torch": {"ratio": 3.0}, "onnxruntime": {"ratio": 0.7}})).worst == 0.7
    )
    assert verdict("d", measured("lstm", 1.0, share=0.84)).short
    assert verdict("e", measured("lstm", 1.0), measured("lstm", 1.0, threads=2, seconds=1.0)).worst == 2.0
    assert (
        verdict("h", measured("lstm", 1.0, padded={"ratio": 1.3}), measured("gru", 1.0, padded={"ratio": 1.4})).worst
        == 1.4
    )


def test_small_calls_agree_and_are_judged() -> None:
    peer("torch")
    cases = [asdict(Case("lstm", 2, 1, 4, 4, mode=mode)) for mode in small.MODES]
    found = [*small.measure(cases, ["torch"], 1), *small.in_torch(1)]  # which compares the values
    assert [row["mode"] for row in found] == [*small.MODES, "step in torch", "window in torch", *small.STREAMS]
    assert all(row["seconds"] > 0 and row["peers"]["torch"]["ratio"] > 0 for row in found)
    verdicts = {goal.title: goals.judge(goal, found) for goal in small.GOALS}
    assert [v.count for v in verdicts.values()] == [0, 2, 1, 1, 2]
    text = small.render(small.machine.describe() | {"rows": found})
    assert all(title in text for title in verdicts)


def test_linear_is_said_of_the_part_that_is_saturated() -> None:
    points = [{"axis": "B", "B": b, "seconds": s} for b, s in ((1, 8.0), (2, 8.0), (4, 4.2), (8, 8.0), (16, 16.8))]
    assert scaling.saturated(points) == 2
    assert scaling.deviation(points[2:]) == pytest.approx(0.05)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    module = importlib.import_module(f"bench.{name}")
    assert module.EXAMPLE.startswith(f"python -m bench {name}") or f"python -m bench {name}" in module.EXAMPLE
    assert callable(getattr(module, {"results": "document", "study": "main"}.get(name, "render"))) and module.__doc__
    assert set(results.TITLES) | {"results", "ag_news", "drift", "gpu", "study"} == set(COMMANDS)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_and_functions_are_small(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree) and path.read_text().count("\n") <= 500
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno + 1 <= 50, node.name
