"""Rules that learn as a stream runs, beside the gradient of a backward pass."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rnnspec.commands.cli import main
from rnnspec.probe.online import alignments, draw_alignments
from rnnspec.probe.subject import initial


@pytest.fixture(scope="module")
def found():
    subject = initial("rnn", hidden=4, inputs=2, steps=12, rows=2)
    return alignments(subject, ["exact", "snap1"])


def test_the_exact_rule_is_the_gradient_at_every_step(found) -> None:
    """And others are at the first step alone, where nothing is carried yet."""
    made, refused = found
    exact, snap1 = made
    assert [one.rule for one in made] == ["exact", "snap1"] and not refused
    assert np.abs(exact.cosine - 1).max() < 1e-12 and np.abs(exact.length - 1).max() < 1e-12
    assert abs(snap1.cosine[0] - 1) < 1e-12 and 0 < snap1.cosine.min() < 0.999


def test_the_figure_is_written(found, tmp_path) -> None:
    paths = draw_alignments(found[0], tmp_path / "near")
    assert [path.suffix for path in paths] == [".png", ".svg"] and all(path.stat().st_size for path in paths)


def test_the_command_tells_cosines_and_what_is_refused(capsys) -> None:
    argv = ["probe", "rnn", "--hidden", "4", "--inputs", "2", "--length", "12", "--rows", "2", "--online", "exact"]
    assert main(argv) == 0
    assert "cosine with the gradient at step 1: 1.000" in capsys.readouterr().out
    assert main([*argv[:1], "indrnn", *argv[2:], "--online", "rflo", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert [one["rule"] for one in told["online"]] == ["exact"] and told["failed"][0]["name"] == "indrnn, rflo"
