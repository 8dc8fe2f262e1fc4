"""bench drift: what differs is found and named, what is explained must differ, and PyTorch's own
layers are what our cells say they are. Nothing is compiled but one kernel."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2]))  # bench is not installed

from bench import drift
from bench.__main__ import main
from bench.drift.comparison import Comparison, Found, Given, adapter, names
from bench.drift.measure import compare, record
from bench.drift.packing import packed

torch = pytest.importorskip("torch")

LAYERS = {f"{one.cell} {one}": one for one in adapter("torch").comparisons()}


@pytest.mark.parametrize("name", LAYERS)
def test_the_layers_of_torch_are_what_the_cells_say(name: str) -> None:
    row = record(LAYERS[name], reference=True)
    assert not drift.wrong(row), row
    assert row["verdict"] == "equal" or row["differs"]
    assert row["gradients"] is not None


def test_kernels_are_compared_too() -> None:
    gap = compare(LAYERS["rnn nn.RNNCell"], reference=False)
    assert gap.verdict == "equal" and 0 < gap.values < 1e-14


def planted(change) -> Comparison:
    """PyTorch's RNN cell, what it makes of the state changed."""
    cell = LAYERS["rnn nn.RNNCell"]

    def run(given: Given) -> Found:
        return cell.run(given._replace(states={"h": change(given.states["h"])}))

    return replace(cell, run=run)


def test_a_planted_difference_is_found() -> None:
    wrong_value = record(planted(lambda h: h * (1 + 1e-6)), reference=True)
    assert wrong_value["verdict"] == "different" and 1e-8 < wrong_value["values"] < 1e-5
    assert drift.wrong(wrong_value).startswith("unexplained: output h")
    wrong_gradient = record(planted(lambda h: h.detach()), reference=True)
    assert wrong_gradient["verdict"] == "gradients differ" and wrong_gradient["values"] < 1e-14
    assert drift.wrong(wrong_gradient) == "unexplained: gradient of initial h"


def test_an_explained_difference_must_be_there() -> None:
    explained = replace(planted(lambda h: h.detach()), differs="the state is detached", only_gradients=True)
    assert not drift.wrong(record(explained, reference=True))
    other_kind = replace(explained, only_gradients=False)
    assert "where different was expected (the state is detached)" in drift.wrong(record(other_kind, reference=True))
    none = replace(LAYERS["rnn nn.RNNCell"], differs="it has two biases")
    assert drift.wrong(record(none, reference=True)).startswith("equal, where different was expected")


def test_an_adapter_that_leaves_a_parameter_over_fails() -> None:
    cell = LAYERS["rnn nn.RNNCell"]
    incomplete = replace(cell, run=replace(cell.run, weights={"weight_ih": "W", "weight_hh": "U", "bias_ih": "b"}))
    row = record(incomplete, reference=True)
    assert row["verdict"] == "failed" and "bias_hh" in drift.wrong(row)


def test_parameters_are_packed_as_the_text_says() -> None:
    from bench.drift.torch_side import join

    a, b = torch.arange(6.0).reshape(2, 3), torch.ones(2, 3)
    params = {"A": a, "B": b, "v": torch.ones(3), "s": torch.tensor(2.0)}
    assert packed("A B", params, join).shape == (4, 3)
    assert torch.equal(packed("(A B).T", params, join), torch.cat([a, b]).T)
    assert torch.equal(packed("A+B", params, join), torch.cat([a, b], 1))
    assert torch.equal(packed("A -B", params, join), torch.cat([a, -b]))
    assert torch.equal(packed("s v", params, join), torch.tensor([2.0, 1, 1, 1]))
    with pytest.raises(KeyError):
        packed("A C", params, join)


@pytest.mark.parametrize("name", names())
def test_an_adapter_is_read_without_its_package(name: str) -> None:
    one = importlib.import_module(f"bench.drift.packages.{name}")
    assert one.DISTRIBUTION and one.NEEDS and one.__doc__ and callable(one.comparisons)


def test_the_command_reports_what_is_there_and_what_is_not(tmp_path: Path, monkeypatch, capsys) -> None:
    file = tmp_path / "drift.json"
    words = ["drift", "--packages", "torch", "torchrecurrent", "--cells", "rnn", "--reference", "--out", str(file)]
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    assert main() == 0
    out, report = capsys.readouterr().out, json.loads(file.read_text())
    rows = [r for r in report["rows"] if r["adapter"] == "torch"]
    assert {r["theirs"] for r in rows} == {"nn.RNN", "nn.RNN, relu", "nn.RNNCell"}
    assert {r["version"] for r in rows} == {torch.__version__}
    assert f"comparisons of 1 cells with {1} packages: 3 equal" in out
    if find_spec("torchrecurrent") is None:
        assert "not installed: torchrecurrent" in out
    page = drift.render(report, as_markdown=True)
    assert page.startswith("| cell | package |") and "| nn.RNNCell | equal |" in page
    monkeypatch.setattr(sys, "argv", ["bench", "drift", "--cells", "no_such_cell"])
    assert main() == 2
