"""The structure of a step's Jacobian, as it is read off a Graph."""

from __future__ import annotations

import pytest
from tiny import cell

from rnnspec.language.load import load, loads
from rnnspec.symbolic.build import build
from rnnspec.symbolic.structure import Structure, structure

VECTORS = {"inputs": "{x: H}", "states": "{h: H}"}


def of(text: str, **sections: str) -> dict[str, dict[str, Structure]]:
    return structure(build(loads(cell(text, **VECTORS | sections))))


@pytest.mark.parametrize(
    ("name", "pair", "text"),
    [
        ("indrnn", "h h", "diagonal"),
        ("lstm", "h h", "full"),
        ("lstm", "c c", "diagonal"),
        ("deltanet", "S S", "blocks (one for each row)"),
        ("gla", "S S", "diagonal"),
        ("cfc", "h h", "rank at most K"),
        ("low_rank_rnn", "h h", "diagonal + rank at most K"),
        ("ln_lstm_basic", "c c", "diagonal + rank at most 2"),
        ("lmu", "m h", "rank at most 1"),
        ("qrnn", "x c", "zero"),
        ("mlstm_matrix", "h C", "blocks (one for each row)"),
        ("elman_two_layer", "h1 h2", "zero"),
    ],
)
def test_structures_of_known_cells(name, pair, text):
    after, before = pair.split()
    assert structure(build(load(name)))[after][before].to_text() == text


@pytest.mark.parametrize(
    ("equation", "text"),
    [
        ("h[t] = x[t] + sign(h[t-1])", "zero"),
        ("h[t] = x[t] + stop_gradient(h[t-1])", "zero"),
        ("h[t] = x[t] * sum(h[t-1])", "rank at most 1"),
        ("h[t] = x[t] * h[t-1] + sum(h[t-1])", "diagonal + rank at most 1"),
        ("h[t] = x[t] + cumsum(h[t-1])", "full"),
        ("h[t] = where(x[t] > 0, h[t-1], 2 * h[t-1])", "diagonal"),
        ("h[t] = diag(x[t]) @ h[t-1]", "diagonal"),
    ],
)
def test_structures_of_single_operations(equation, text):
    assert of(equation)["h"]["h"].to_text() == text


def test_what_one_direction_serves_for():
    known = structure(build(load("lstm")))
    assert [known["h"][b].unit for b in "hc"] == [(), (0,)]
    assert structure(build(load("deltanet")))["S"]["S"].unit == (0,)
    assert structure(build(load("qrnn")))["x"]["c"].unit == (0,)


def test_single_numbers_are_diagonal():
    known = structure(build(loads(cell("h[t] = x[t] * h[t-1]"))))["h"]["h"]
    assert (known.kind, known.unit) == ("diagonal", ())
