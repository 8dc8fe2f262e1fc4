"""The report of a study: every number is that of a run folder, and the statistics are those of
SciPy, or worked by hand."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from itertools import product
from statistics import fmean, median, stdev

import pytest
from studies import written

from rnnspec.study.document import read_study
from rnnspec.study.drive import run_study
from rnnspec.study.errors import StudyError
from rnnspec.study.statistics import deviation, holm, paired_test, permutation_test
from rnnspec.study.workers import Processes

STUDY = """study: 1
name: small
cells: [rnn, {cell: gru, name: gru_b}]
tasks: {task: adding, length: 4, batch: 2, steps: 4, every: 2}
settings: {hidden: [2, 3], lr: [0.1, 1.0e-6]}
seeds: 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("optuna", reason="a study needs optuna")
    place = tmp_path_factory.mktemp("study")
    study = read_study(written(place, "", STUDY))
    assert run_study(study, place / "out", lambda decide: Processes(1, decide))
    return place / "out"


@pytest.fixture(scope="module")
def report(folder):
    from rnnspec.study.report import Asked, write_report

    files = write_report(folder, folder / "report", Asked(kind="svg", importance=False))
    return {path.name: path.read_text() for path in files}


def table(report, name):
    return list(csv.DictReader(io.StringIO(report[f"{name}.csv"])))


def test_every_number_is_of_a_run_folder(report, folder):
    trials = table(report, "trials")
    assert len(trials) == 24
    for trial in trials:
        metrics = json.loads((folder / trial["run"] / "metrics.json").read_text())
        assert float(trial["score"]) == metrics["final"]["score"]
        assert int(trial["hidden"]) == metrics["config"]["hidden"] and int(trial["seed"]) == metrics["config"]["seed"]
        assert int(trial["parameters"]) == metrics["parameters"]["trained"]
    by_run = {trial["run"]: trial for trial in trials}
    for row in table(report, "summary"):
        place, _, numbers = row["runs"].rpartition("/")
        runs = [by_run[f"{place}/{number}"] for number in numbers.split(", ")]
        found = [float(run["score"]) for run in runs]
        assert float(row["mean"]) == fmean(found) and float(row["deviation"]) == pytest.approx(stdev(found), rel=1e-12)
        assert float(row["median"]) == median(found) and float(row["best"]) == min(found)
        points = {}
        for trial in trials:
            if trial["cell"] == row["cell"]:
                points.setdefault((trial["hidden"], trial["lr"]), []).append(float(trial["score"]))
        assert float(row["mean"]) == min(map(fmean, points.values()))


def test_flop_and_parameters_are_counted_by_hand(report):
    """h[t] = phi(W @ x[t] + U @ h[t-1] + b) on 2 features: two products, two sums and phi. The
    layer has two biases, as torch's, and the head a weight for each unit and a bias."""
    rows = {row["cell"]: row for row in table(report, "summary")}
    hidden = int(rows["rnn"]["best point"].partition(",")[0].split()[1])
    assert int(rows["rnn"]["parameters"]) == hidden * (2 + hidden + 2) + hidden + 1
    assert int(rows["rnn"]["FLOP a step"]) == 2 * hidden * (2 + hidden) + 3 * hidden


def test_the_report_is_there_in_each_format(report):
    assert "| adding | gru_b | 12 | 0 |" in report["report.md"] and "| adding | gru_b | 3 |" in report["report.md"]
    assert r"gru\_b" in report["report.tex"] and report["report.tex"].count(r"\begin{tabular}") == 2
    assert all(f"{name}-adding.svg" in report for name in ("curves", "boxes", "parallel"))
    assert all(f"]({name})" in report["report.md"] for name in report if name.endswith(".svg"))
    row = table(report, "comparison")[0]
    assert row["p"] == row["p (Holm)"] and re.fullmatch(r"0\.\d+|1\.0", row["p"])


def test_a_trial_that_diverged_does_not_flatten_the_others(folder):
    """Found in a study of Greff et al.'s variants: two of three points of a cell at 208 and 629
    bits, and all boxes a line at the bottom."""
    from dataclasses import replace

    from rnnspec.study.figures import boxes, parallel
    from rnnspec.study.results import read_results

    groups = read_results(folder).groups
    first = groups[0].complete[0]
    far = replace(groups[0], rows=(replace(first, score=600.0), replace(first, score=-400.0), *groups[0].complete))
    most = max(row.score for group in groups for row in group.complete)
    axes = boxes([far, *groups[1:]]).axes[0]
    low, high = axes.get_ylim()
    assert high < 1.2 * most and low > -most
    assert [text.get_text() for text in axes.texts] == ["1", "1"]
    together = [replace(groups[0], rows=tuple(replace(first, score=1 + 0.1 * i) for i in range(6)))]
    assert not boxes(together).axes[0].texts
    same = [replace(groups[0], rows=(first, first))]
    assert boxes(same).axes[0].get_ylim()[0] < first.score < boxes(same).axes[0].get_ylim()[1]
    heights = sorted(line.get_ydata()[-1] for line in parallel(list(groups)).axes[0].get_lines()[:24])
    assert heights[0] == 0 and heights[-1] == 1


def test_the_command_writes_a_report_and_refuses_what_it_would_ignore(folder, capsys):
    from rnnspec.commands.cli import main

    argv = ["study", "report", str(folder), "--out", str(folder / "other"), "--pairs", "points", "--no-importance"]
    assert main([*argv, "--against", "gru_b"]) == 0
    assert "| adding | rnn | 12 |" in (folder / "other" / "report.md").read_text()
    assert main([*argv, "--against", "lstm"]) == 2 and "it has rnn, gru_b" in capsys.readouterr().err
    for more in (["--processes", "2"], ["--dry-run"]):
        with pytest.raises(SystemExit):
            main([*argv, *more])
        assert "is for running a study, and would be ignored" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["study", "s.yaml", "--test", "wilcoxon"])
    assert main(["study", "report", str(folder.parent)]) == 2 and "holds no study" in capsys.readouterr().err


def test_importance_is_optunas_or_says_what_it_needs(folder):
    from rnnspec.study.report import Asked, write_report

    try:
        import sklearn  # noqa: F401
    except ImportError:
        with pytest.raises(StudyError, match="needs sklearn: pip install scikit-learn"):
            write_report(folder, folder / "third", Asked(importance=True))
        return
    assert folder / "third" / "importance-adding.png" in write_report(folder, folder / "third", Asked(importance=True))


@pytest.mark.parametrize("left", [None, '{"step": 0, "sc', "[1]"])
def test_a_run_folder_that_is_gone_or_damaged_is_told(folder, tmp_path, left):
    from rnnspec.study.report import Asked, write_report

    place = shutil.copytree(folder, tmp_path / "copy")
    for log in place.glob("runs/rnn/adding/*/metrics.jsonl"):
        log.unlink() if left is None else log.write_text(left)
    with pytest.raises(StudyError, match=r"runs/rnn/adding/.*is gone or damaged .* put its run folder back"):
        write_report(place, tmp_path / "report", Asked(kind="svg", importance=False))
    assert not (tmp_path / "report" / "report.md").exists()


def test_the_permutation_test_counts_every_change_of_signs():
    differences = [0.3, -0.1, 0.7, 0.2, 0.2]
    sums = [abs(sum(s * d for s, d in zip(signs, differences))) for signs in product((1, -1), repeat=5)]
    assert permutation_test(differences) == sum(s >= sum(differences) - 1e-12 for s in sums) / 32
    assert permutation_test([0.0] * 4) == 1.0 and permutation_test([1.0] * 3) == 2 / 8
    many = [0.1 * (-1) ** i + 0.01 * i for i in range(20)]
    assert permutation_test(many) == permutation_test(many) and 0 < permutation_test(many) < 1
    assert paired_test([1.0], "permutation") is None and deviation([1.0]) is None


def test_wilcoxon_is_scipys():
    stats = pytest.importorskip("scipy.stats", reason="wilcoxon is SciPy's")
    differences = [0.3, -0.1, 0.7, 0.2, 0.25, 0.4]
    assert paired_test(differences, "wilcoxon") == stats.wilcoxon(differences).pvalue
    assert paired_test([0.0, 0.0], "wilcoxon") == 1.0


def test_holm_steps_down():
    """Holm (1979) by hand: 0.01 * 4, then the largest of what came and 0.02 * 3, 0.03 * 2, 0.9."""
    assert holm([0.03, 0.01, None, 0.9, 0.02]) == pytest.approx([0.06, 0.04, None, 0.9, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([]) == []
