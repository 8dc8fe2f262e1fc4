"""Every cell trains: what fits a cell to data whose width and units alone are known, and fifty
steps of each on the default text."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tiny import cell

import rnnspec
from rnnspec.commands.cli import main
from rnnspec.language.load import load, loads
from rnnspec.train import TrainError
from rnnspec.train.model import joined, parted
from rnnspec.train.optimise import SGD, Adam
from rnnspec.train.sizes import data_input, fitted

FEW = ["--steps", "50", "--hidden", "16", "--batch", "8", "--length", "16"]


@pytest.mark.slow
@pytest.mark.parametrize("name", rnnspec.spec_names())
def test_fifty_steps_lower_the_loss(name, tmp_path, capsys):
    """Of the untrained model a character costs log2 of the symbols and more; every cell comes down
    by a quarter of a bit at least, without a skipped step."""
    assert main(["train", name, *FEW, "--out", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    bits = metrics["history"]["loss"]
    assert len(bits) == 50 and np.isfinite(bits).all() and metrics["final"]["skipped_steps"] == 0
    assert np.mean(bits[-10:]) < np.mean(bits[:3]) - 0.25, bits


@pytest.mark.parametrize(
    "name, width, sizes",
    [
        ("lstm", 64, {}),
        ("mut2", 16, {}),
        ("rg_lru", 16, {}),
        ("cfc", 64, {"K": 16}),
        ("gru_d", 64, {}),
        ("lstm_projected", 64, {"P": 16}),
        ("shuffling_rnn", 64, {"K": 16, "N": 16}),
        ("scrn", 64, {}),
        ("lru", 64, {}),
        ("statistical_ru", 64, {"O": 16, "R": 16}),
    ],
)
def test_what_nothing_tells_is_as_large_as_the_units(name, width, sizes):
    """x: H makes the data as wide as the units, defaults are kept, and all other sizes follow the
    units."""
    assert fitted(load(name), 16, 64, {}) == (width, sizes)


def test_what_is_given_by_name_is_kept():
    assert fitted(load("cfc"), 16, 64, {"K": 5}) == (64, {"K": 5})
    assert fitted(load("mut2"), 16, 64, {}, chosen=True)[0] == 64  # the layer says that they differ


@pytest.mark.parametrize(
    "inputs, defaults, message",
    [
        ("{x: H, m: H}", "", "reads x and m and has a default for neither.*defaults: {mask: 1}"),
        ("{x: H, m: H}", "{x: 0, m: 1}", "reads nothing that has no default"),
        ("{x: [], m: H}", "{m: 1}", "reads one number a step as x"),
    ],
)
def test_which_input_is_the_data(inputs, defaults, message):
    spec = loads(
        cell(
            "h[t] = h[t-1] * m[t] + x[t]",
            inputs=inputs,
            states="{h: H}",
            **({"defaults": defaults} if defaults else {}),
        )
    )
    with pytest.raises(TrainError, match=message):
        data_input(spec)
    assert data_input(load("gru_d")) == "x"


def test_outputs_of_any_rank_side_by_side():
    """skip_rnn emits a vector and a number."""
    rng = np.random.default_rng(0)
    y = (rng.standard_normal((3, 2, 4)), rng.standard_normal((3, 2)), rng.standard_normal((3, 2, 2, 5)))
    whole = joined(y)
    assert whole.shape == (3, 2, 15)
    for part, again in zip(y, parted(whole, y)):
        np.testing.assert_array_equal(part, again)


@pytest.mark.parametrize("optimiser", [SGD(0.1), SGD(0.1, momentum=0.9, nesterov=True), Adam(0.1)])
def test_parameters_of_one_number_are_trained(optimiser):
    """Adam raised TypeError: of an array of no axes NumPy's arithmetic makes a number, into which
    nothing can be written."""
    params, grads = ({"w": np.full((), value, np.float32)} for value in (1.0, 0.5))
    kept = params["w"]
    optimiser.step(params, grads, optimiser.init(params))
    assert params["w"] is kept and kept < 1 and kept.dtype == np.float32
