"""`rnnspec dynamics`: what it finds is what the library finds, and what does not go together is
told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from maps import HENON, TANH_OF_ONE

from rnnspec.commands.cli import main


@pytest.fixture(autouse=True)
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("henon.yaml").write_text(HENON)
    Path("tanh_of_one.yaml").write_text(TANH_OF_ONE)


def test_henon_as_json_and_as_a_picture(capsys):
    few = ("--noise", "0.1", "--starts", "20", "--rows", "4", "--steps", "500")
    assert main(["dynamics", "henon.yaml", *few, "--json", "--out", "henon"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["points"]) == 2 and [p["unstable"] for p in told["points"]] == [1, 1]
    assert sum(told["exponents"]["exponents"]) == pytest.approx(np.log(0.3))
    assert Path("henon.png").stat().st_size > 10_000 and Path("henon.svg").read_text().startswith("<?xml")
    assert main(["dynamics", "henon.yaml", *few, "--period", "2", "--exponents", "0", "--out", "two.svg"]) == 0
    assert "1 2-cycle, 0 stable" in capsys.readouterr().out and Path("two.svg").exists()


def test_a_branch_is_told_and_drawn(capsys):
    few = ("--starts", "8", "--rows", "2", "--steps", "50", "--slow")
    assert main(["dynamics", "tanh_of_one.yaml", *few, "--along", "b", "--over", "-1", "1", "--out", "b.png"]) == 0
    assert "along b:" in capsys.readouterr().out and Path("b.png").exists()


def test_a_trained_run_and_its_similarity_to_itself(capsys):
    small = ("--batch", "8", "--hidden", "4", "--steps", "4", "--threads", "1", "--out", "run")
    assert main(["train", "gru", "--task", "copy", *small]) == 0
    few = ("--starts", "8", "--rows", "4", "--length", "60", "--rank", "3", "--delays", "2", "--exponents", "2")
    assert main(["dynamics", "--run", "run", *few, "--driven", "--against", "run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["similarity"]["distance"] < 1e-6 and len(told["exponents"]["exponents"]) == 2


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ((), "give a cell, like lstm, or a trained run"),
        (("gru", "--run", "run"), "one of them"),
        (("--run", "run", "--hidden", "4"), "--hidden is about a cell at its initial weights"),
        (("gru", "--along", "b"), "--along and --over go together"),
        (("gru", "--along", "b", "--over", "0", "1", "--period", "2"), "leave --period out"),
        (("gru", "--driven", "--exponents", "0"), "--exponents 0 asks for none"),
        (("lif",), "'lif' calls"),
        (("phased_lstm",), "counts its steps"),
        ((".",), "a trained run is given by --run ."),
        (("henon.yaml", "--noise", "0.1", "--driven"), "leave --driven out"),
    ],
)
def test_what_does_not_go_together(line, why, capsys):
    assert main(["dynamics", *line]) == 2
    assert why in " ".join(capsys.readouterr().err.split())
