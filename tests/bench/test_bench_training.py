"""bench gates and bench ag_news: what is measured is what is said, and an interrupted study goes
on."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is not installed

from bench import ag_news, gates, machine


def row(trial, own, torch=None):
    def side(accuracy, seconds):
        return {"seconds": [seconds] * 2, "accuracy": [0.3, accuracy], "loss": [1.0, 0.5]}

    more = {} if torch is None else {"torch": side(torch, 3.0)}
    about = {"train": 90, "held_out": 10, "file": "f.csv", "mean_words": 43.0}
    return (
        asdict(trial)
        | {"ours": side(own, 1.0), "updates": 8, "about": about, "parameters": {"layer": 5}, "machine": "m"}
        | more
    )


def test_the_study_has_every_cell_length_and_seed_and_torch_beside_all_seeds_at_44():
    trials = list(ag_news.study(["rnn", "lstm"], [25, 44], 3, 15))
    small = [t for t in trials if t.batch == ag_news.FEW]
    assert len(small) == 2 * 2 * 3 and len(trials) == len(set(trials)) == 12 + 4
    assert {(t.length, t.seed) for t in trials if t.beside and t.batch == ag_news.FEW} == {
        (25, 0),
        (44, 0),
        (44, 1),
        (44, 2),
    }
    assert (
        round(15 * -(-0.9 * 7600 // ag_news.FEW)) == 1770
    )  # updates: about the document's 15 * ceil(120,000 / 1024) = 1,770


def test_what_was_measured_is_kept_and_half_a_line_is_passed_over(tmp_path):
    trial = ag_news.Trial("rnn", 44, 58, 0)
    kept = tmp_path / "k.jsonl"
    kept.write_text(json.dumps(row(trial, 0.8)) + '\n{"cell": "lstm", "len')
    assert list(ag_news.kept(kept)) == [ag_news.key(asdict(trial))] and ag_news.kept(tmp_path / "absent") == {}


def test_what_was_measured_on_another_file_is_not_taken_for_this_ones(tmp_path, capsys):
    keys = []
    for i in range(2):
        path = tmp_path / f"{i}.csv"
        path.write_text("".join(f"{1 + n % 2},title {n},text {i}\n" for n in range(40)))
        keys += [ag_news.key(asdict(t)) for t in ag_news.study(["rnn"], [44], 2, 15, ag_news.digest_of(str(path)))]
    assert len(set(keys)) == len(keys)
    (tmp_path / "bad.csv").write_text("1,a\n")
    arguments = argparse.Namespace(path=str(tmp_path / "bad.csv"))
    assert ag_news.main(arguments) == 2 and "bad.csv, row 1: 2 columns, expected 3" in capsys.readouterr().err


def test_the_report_says_what_the_rows_say():
    rows = []
    for seed in range(3):
        for length, accuracy in ((25, 0.70), (44, 0.80)):
            trial = ag_news.Trial("rnn", length, ag_news.FEW, seed)
            rows.append(row(trial, accuracy + seed / 100, accuracy + seed / 100 + 0.01 if length == 44 else None))
    text = ag_news.render(rows, "p.png")
    assert "| rnn | 44 | 58 | 8 | 5 | 81.0 ± 0.6 | 82.0 ± 0.6 | -1.0 | 81.0 | 2.0 | 6.0 | 3.00 |" in text
    assert "44 against 25 is +10.0 points, standard error 0.0 over 3 splits: agrees" in text
    assert "mean accuracies 1.00 points apart (1.5 allowed), PyTorch's time over ours 3.00" in text


@pytest.mark.slow
def test_both_libraries_learn_the_same(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "d.csv"
    path.write_text("".join(f"{1 + i % 2},{'good fine' if i % 2 else 'bad poor'} w{i},text {i}\n" for i in range(120)))
    (found,) = ag_news.measure(str(path), [asdict(ag_news.Trial("gru", 4, 16, 0, epochs=4))], 1)
    assert found["ours"]["accuracy"] == found["torch"]["accuracy"]
    assert found["ours"]["loss"] == pytest.approx(found["torch"]["loss"], rel=1e-3)


def test_gates_measures_a_cell():
    (found,) = gates.measure("rnn", "copy", 3, 1)
    assert (
        found["parameters"] == 128 * 128 * 2 + 128
        and found["seconds"] > 0
        and found["tape_bytes"] > 0
        and found["train_steps"] == 3
    )
    text = gates.render({"rows": [found], "settings": {"threads": 1}} | machine.describe())
    assert "copy: recalled" in text and "32,896" in text
