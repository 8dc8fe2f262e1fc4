"""Cells that start from others, and the files they stand in."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from pathlib import Path

import pytest
from tiny import cell

from rnnspec.errors import SpecError
from rnnspec.language.load import load, loads, spec_path


def extending(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text.replace("name: tested", f"name: {name}"))
    return tmp_path / f"{next(iter(files))}.yaml"


def test_a_gate_set_to_one_drops_its_parameters(tmp_path):
    path = extending(tmp_path, nig="rnnspec: 1\nname: nig\nextends: lstm\nequations: |\n  i[t] = 1\n")
    spec = load(path)
    assert "W_i" not in spec.parameters and "W_f" in spec.parameters and spec.shapes["i"] == ()
    assert not spec.examples and not spec.same_as and not spec.layouts
    assert spec.title == "after lstm" and not spec.notes


def test_a_layout_that_still_fits_is_kept(tmp_path):
    spec = load(extending(tmp_path, noaf="rnnspec: 1\nname: noaf\nextends: lstm\nequations: |\n  h[t] = o[t] * c[t]\n"))
    assert spec.layouts == load("lstm").layouts and not spec.same_as and not spec.examples


def test_a_layout_is_taken_away(tmp_path):
    text = "rnnspec: 1\nname: other\nextends: lstm\nlayouts: {torch.LSTM: null}\nequations: |\n  h[t] = o[t] * c[t]\n"
    base, spec = load("lstm"), load(extending(tmp_path, other=text))
    assert set(spec.layouts) == set(base.layouts) - {"torch.LSTM"} and len(base.layouts) > 1
    with pytest.raises(SpecError, match="names no block; null takes away a layout that is inherited"):
        load(extending(tmp_path, other=text.replace("torch.LSTM", "torch.GRU")))
    with pytest.raises(SpecError, match="names no block"):
        loads(cell("h[t] = w * x[t] + h[t-1]", parameters="{w: []}", layouts="{mine: {}}"))


def test_what_changes_no_computation_keeps_all(tmp_path):
    spec = load(
        extending(tmp_path, renamed="rnnspec: 1\nname: renamed\nextends: lstm\nnotes: mine\ninit: {b_f: ones}\n")
    )
    base = load("lstm")
    assert (
        spec.equations == base.equations
        and spec.examples == base.examples
        and spec.same_as == base.same_as
        and spec.notes == "mine"
    )


def test_extends_by_path_and_over_several_files(tmp_path):
    (tmp_path / "deep").mkdir()
    base = cell(
        "h[t] = w * x[t] + a * h[t-1] + unused[t]\nunused[t] = v", parameters="{w: [], v: []}", constants="{a: 0.5}"
    )
    path = extending(
        tmp_path,
        top="rnnspec: 1\nname: top\nextends: deep/middle.yaml\nconstants: {a: 0.25}\n",
        **{
            "deep/middle": (
                "rnnspec: 1\nname: middle\nextends: ../base.yaml\nparameters: {z: []}\n"
                "equations: |\n  h[t] = w * x[t] + a * h[t-1] + z\n"
            ),
        },
        base=base,
    )
    spec = load(path)
    assert list(spec.parameters) == ["w", "z"] and spec.constants["a"] == Fraction(1, 4) and "unused" not in spec.shapes
    assert load(path, a=2).constants["a"] == 2


def test_a_gate_can_become_a_state(tmp_path):
    spec = load(
        extending(
            tmp_path,
            fgr=(
                "rnnspec: 1\nname: fgr\nextends: lstm\nstates: {i: H}\nparameters: {R: [H, H]}\n"
                "equations: |\n  i[t] = sigmoid(W_i @ x[t] + R @ i[t-1] + b_i)\n"
            ),
        )
    )
    assert list(spec.states) == ["h", "c", "i"] and "U_i" not in spec.parameters


def test_cycles_and_long_chains_of_extends_end(tmp_path):
    one = "rnnspec: 1\nname: {}\nextends: ./{}.yaml\n"
    with pytest.raises(SpecError, match="comes back"):
        load(extending(tmp_path, a=one.format("a", "b"), b=one.format("b", "a")))
    chain = {f"c{k}": one.format(f"c{k}", f"c{k + 1}") for k in range(20)}
    with pytest.raises(SpecError, match="longer than 16"):
        load(extending(tmp_path, **chain, c20=cell("h[t] = x[t]")))


def test_a_fault_in_an_inherited_line_is_shown_in_its_file(tmp_path):
    path = extending(
        tmp_path,
        own="rnnspec: 1\nname: own\nextends: ./base.yaml\ninputs: {x: D}\n",
        base=cell("h[t] = a[t]\na[t] = x[t] + h[t-1]", inputs="{x: H}", states="{h: H}"),
    )
    with pytest.raises(SpecError) as caught:
        load(path)
    problem = next(e for e in caught.value.errors if "shapes differ" in e.message)
    assert problem.file.endswith("base.yaml") and problem.source_line == "  a[t] = x[t] + h[t-1]" and problem.line == 8


# --- files ---


def test_names_and_paths(tmp_path):
    assert spec_path("lstm").is_file()
    path = extending(tmp_path, mine=cell("h[t] = x[t]"))
    assert load(path) == load(str(path)) and load(path).file == str(path)
    assert dataclasses.replace(loads(path.read_text()), file="") == dataclasses.replace(load(path), file="")


def test_what_the_file_itself_says_is_never_dropped(tmp_path):
    path = extending(
        tmp_path,
        own=(
            "rnnspec: 1\nname: own\nextends: lstm\nparameters: {w: []}\nconstants: {a: 2}\nequations: |\n  q[t] = a *"
            " x[t]\n"
        ),
    )
    with pytest.raises(SpecError) as caught:
        load(path)
    assert [e.message for e in caught.value.errors] == [
        "the parameter 'w' is used in no equation. Use it or take it out."
    ]


def test_a_layout_goes_when_a_shape_changes(tmp_path):
    base = cell(
        "h[t] = w * x[t]", parameters="{w: []}", layouts="{other: {weight: [w]}}", inputs="{x: H}", states="{h: H}"
    )
    same = "rnnspec: 1\nname: same\nextends: ./base.yaml\nequations: |\n  h[t] = w * x[t] + 1\n"
    assert load(extending(tmp_path, same=same, base=base)).layouts
    assert not load(
        extending(tmp_path, own=same.replace("name: same", "name: own\nparameters: {w: H}"), base=base)
    ).layouts


def test_an_inherited_equation_goes_when_its_name_becomes_an_input(tmp_path):
    spec = load(extending(tmp_path, own="rnnspec: 1\nname: own\nextends: lstm\ninputs: {i: H}\n"))
    assert list(spec.inputs) == ["x", "i"] and "W_i" not in spec.parameters
