"""What specs say they are the same as: every claim, against the libraries that are installed, and
that a wrong claim is caught."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from cells import kernel

import rnnspec
from rnnspec.check import peers
from rnnspec.check.properties.claims import same_as
from rnnspec.check.subject import subject, with_kernel
from rnnspec.language.load import specs_folder

CLAIMING = [name for name in rnnspec.spec_names() if "\nsame_as:" in (specs_folder() / f"{name}.yaml").read_text()]
QUICK = {
    ("lstm", "float32"),
    ("gru", "float64"),
    ("gru_reset_before", "float32"),
    ("rnn", "float64"),
    ("lstm_projected", "float64"),
    ("lstm_cifg", "float32"),
    ("lstm_peephole", "float32"),
    ("lstm_cifg_peephole", "float32"),
}
# what a claim may not be run for where all the libraries are installed
REASONS = ("ONNX Runtime has", "Keras 3.15 computes parts", "torch.nn.LSTMCell has no proj_size")


def options(name: str) -> list[dict[str, Any]]:
    spec = rnnspec.load(name)
    return [{n: option} for n, choice in spec.choices.items() for option in choice.options] or [{}]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(n, d, marks=() if (n, d) in QUICK else pytest.mark.slow)
        for n in CLAIMING
        for d in ("float32", "float64")
    ],
)
def test_every_claim_holds(name, dtype):
    ran = 0
    for settings in options(name):
        spec = rnnspec.load(name, **settings)
        if not spec.same_as:
            continue
        for one in peers.compare(spec, dtype, kernel=kernel(name, dtype, **settings)):
            assert one.holds is not False, one
            assert one.difference is not None or "is not installed" in one.reason or one.reason.startswith(REASONS), one
            ran += one.difference is not None
    if not ran:
        pytest.skip("none of the libraries that these cells are compared with is installed, or has this dtype")


def test_cells_that_claim_a_layer_are_those_of_the_libraries():
    assert {
        "lstm",
        "gru",
        "rnn",
        "lstm_projected",
        "lstm_two_biases",
        "gru_reset_before",
        "lstm_peephole",
        "lstm_cifg",
        "lstm_cifg_peephole",
    } <= set(CLAIMING)


def broken(name: str, change: dict[str, Any]) -> Any:
    """The cell with something else in its place; what it claims stays."""
    return replace(rnnspec.load(name), **change)


@pytest.mark.parametrize(
    ("name", "claims", "needs"),
    [
        ("gru_reset_before", {"torch.nn.GRU": {}}, "torch"),  # another cell; the layout is there, with one bias less
        ("gru", {"onnx.GRU": {"linear_before_reset": 0}}, "onnxruntime"),
        ("lstm", {"onnx.LSTM": {"input_forget": 1}}, "onnxruntime"),
        ("gru", {"keras.layers.GRU": {"reset_after": True, "activation": "relu"}}, "keras"),
    ],
)
def test_a_claim_of_another_function_is_caught(name, claims, needs):
    pytest.importorskip(needs)
    layouts = dict(rnnspec.load(name).layouts)
    if name == "gru_reset_before":
        biases = ("b_r", "b_z", "b_n")
        layouts["torch.GRU"] = {
            "weight_ih": ("W_r", "W_z", "W_n"),
            "weight_hh": ("U_r", "U_z", "U_n"),
            "bias_ih": biases,
            "bias_hh": biases,
        }
    found = peers.compare(broken(name, {"same_as": claims, "layouts": layouts}), "float32")
    assert found and all(c.difference is not None and c.difference > 1e-3 and not c.holds for c in found), found


def test_gates_in_another_order_are_caught():
    pytest.importorskip("torch")
    spec = rnnspec.load("lstm")
    layouts = {"torch.LSTM": {b: (n[0], n[2], n[1], n[3]) for b, n in spec.layouts["torch.LSTM"].items()}}
    found = peers.compare(
        broken("lstm", {"same_as": {"torch.nn.LSTM": {}}, "layouts": layouts}), "float64", kernel=kernel("lstm")
    )
    assert [c.holds for c in found] == [False, False], found


def test_why_a_claim_is_not_run_is_said(monkeypatch):
    spec = broken(
        "lstm",
        {"same_as": {"torch.nn.LSTM": {}, "onnx.LSTM": {}, "keras.layers.LSTM": {}, "other.Layer": {"a": [1, True]}}},
    )
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    reasons = {c.claim: c.reason for c in peers.compare(spec, "float32", kernel=kernel("lstm", "float32"))}
    assert (
        reasons["torch.nn.LSTM {}"]
        == "torch is not installed (pip install 'rnnspec[torch]')"
        == reasons["torch.nn.LSTMCell {}"]
    )
    assert reasons["onnx.LSTM {}"].startswith("onnx is not installed") and reasons["keras.layers.LSTM {}"].startswith(
        "keras is not installed"
    )
    assert (
        reasons["other.Layer {a: [1, true]}"]
        == "no library is known by the name 'other' (known are torch.nn, onnx, keras.layers)"
    )
    found = peers.compare(broken("lstm", {"same_as": {"torch.nn.LSTM": {}}, "layouts": {}}), "float32")
    assert all("has no layout 'torch.LSTM'" in c.reason for c in found)


def test_what_a_library_raises_is_a_claim_that_does_not_hold():
    pytest.importorskip("torch")
    found = peers.compare(
        broken("lstm", {"same_as": {"torch.nn.LSTM": {"gates": 5}}}), "float32", kernel=kernel("lstm", "float32")
    )
    assert [c.difference for c in found] == [math.inf, math.inf] and "gates" in found[0].detail and not found[0].holds


def test_claims_are_a_property_of_check(monkeypatch):
    pytest.importorskip("torch")
    known = with_kernel(subject(rnnspec.load("gru")), "float64")
    outcome = same_as(known)
    assert outcome.passed and not outcome.skipped and outcome.measured is not None and outcome.measured < 1e-12
    assert (
        "torch.nn.GRU {}, torch.nn.GRUCell {}" in outcome.detail
        and "onnx.GRU {linear_before_reset: 1} not run: " in outcome.detail
    )
    assert same_as(replace(known, spec=broken("gru", {"same_as": {}}))).skipped == "the spec claims no library's layer"
    wrong = same_as(replace(known, spec=broken("gru", {"same_as": {"torch.nn.GRU": {"bias": False}}})))
    assert not wrong.passed and "torch.nn.GRU {bias: false}" in wrong.detail
    monkeypatch.setattr(peers, "find_spec", lambda name: None)
    nothing = same_as(known)
    assert (
        nothing.skipped
        and nothing.passed
        and "torch is not installed" in nothing.skipped
        and "keras.layers.GRU" in nothing.skipped
    )
