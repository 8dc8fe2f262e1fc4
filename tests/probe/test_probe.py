"""probe: its gradients are the kernels', its Jacobians those of central differences, and identity
is worked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cells import kernel
from tiny import cell as tiny_cell

import rnnspec
from rnnspec.backends import reference
from rnnspec.commands.cli import main
from rnnspec.commands.probe import table
from rnnspec.commands.probe_run import of_run, own_parameters
from rnnspec.errors import UnsupportedError
from rnnspec.language.load import loads
from rnnspec.probe import ProbeSubject, initial, probe
from rnnspec.probe.figure import COLOURS, HIGH, LOW, MIDDLE, paths_of, style
from rnnspec.probe.measure import jacobian
from rnnspec.symbolic.adjoint import adjoint
from rnnspec.symbolic.build import build
from rnnspec.train import checkpoint, load_task


def subject(cell, **changed):
    return initial(cell, **{"hidden": 5, "inputs": 3, "steps": 12, "rows": 2} | changed)


def test_the_closed_form_for_identity():
    """sources/001 with phi(x) = x and a loss at step T alone: dL/dh[T-k] = (W_hh^T)^k dL/dh[T],
    whatever the inputs."""
    of = subject("rnn", choices={"phi": "identity"}, rows=3)
    found = probe(of, seed=4)
    v = np.random.default_rng([4, 6]).standard_normal((3, 5))
    v /= np.linalg.norm(v, axis=1, keepdims=True)
    recurrent = (
        of.params["U"]
        if "U" in of.params
        else of.params[next(n for n, shape in of.spec.parameters.items() if shape == ("H", "H"))]
    )
    for k, norm in enumerate(found.norms):
        expected = np.linalg.norm(v @ np.linalg.matrix_power(recurrent, k), axis=1)
        assert norm == pytest.approx(np.exp(np.log(expected).mean()), rel=1e-9)
    np.testing.assert_allclose(found.radius, np.abs(np.linalg.eigvals(recurrent)).max(), rtol=1e-9)
    np.testing.assert_allclose(found.gain, np.linalg.norm(recurrent, 2), rtol=1e-9)
    np.testing.assert_allclose(
        np.sort(np.abs(found.eigenvalues)), np.sort(np.tile(np.abs(np.linalg.eigvals(recurrent)), 3)), rtol=1e-6
    )


@pytest.mark.parametrize("cell", ["lstm", "gru", "lstm_1997"])
def test_the_gradient_at_the_first_step_is_the_kernels(cell):
    of = subject(cell, rows=1)
    found = probe(of, seed=1)
    kernels = kernel(cell)
    run = kernels.forward(of.params, of.inputs)
    v = np.random.default_rng([1, 6]).standard_normal((1, 5))
    dy = np.zeros((12, 1, 5))
    dy[-1] = v / np.linalg.norm(v)
    before = kernels.backward(run, {of.spec.outputs[0]: dy}).states
    assert set(before) == set(found.by_state)
    for name, gradient in before.items():
        assert found.by_state[name][-1] == pytest.approx(np.linalg.norm(gradient), rel=1e-9)
    assert found.norms[-1] == pytest.approx(np.sqrt(sum(np.sum(g**2) for g in before.values())), rel=1e-9)


@pytest.mark.parametrize("cell", ["lstm", "gru_reset_before"])
def test_the_jacobian_is_that_of_a_step(cell):
    of = subject(cell)
    graph = build(of.spec)
    run = reference.forward(graph, of.params, of.inputs, sizes=of.sizes)
    t, states = 7, list(graph.states)
    found = jacobian(adjoint(graph), of, run, t)
    now = {name: x[t : t + 1] for name, x in of.inputs.items()}

    def after(flat):
        parts = np.split(flat, len(states), axis=1)
        final = reference.forward(graph, of.params, now, dict(zip(states, parts)), sizes=of.sizes).final
        return np.concatenate([final[s] for s in states], axis=1)

    here = np.concatenate([run.before[s][t] for s in states], axis=1)
    for j in range(here.shape[1]):
        step = np.zeros_like(here)
        step[:, j] = 1e-6
        np.testing.assert_allclose(found[:, :, j], (after(here + step) - after(here - step)) / 2e-6, atol=1e-8)


def test_saturation_counts_what_is_near_an_end():
    of = subject("lstm", steps=4)
    of.params["b_f"][:] = [50, 50, 50, -50, 0]
    for name in ("W_f", "U_f"):
        of.params[name][:] = 0
    gates = {g.name: g for g in probe(of).gates}
    assert list(gates) == ["i", "f", "g", "o"] and gates["g"].function == "tanh"
    assert (gates["f"].high, gates["f"].low, gates["f"].mean) == (
        pytest.approx(0.6),
        pytest.approx(0.2),
        pytest.approx(0.7),
    )


def test_gates_that_keep_carry_the_gradient():
    plain, kept = (probe(subject("lstm", steps=40, hidden=8, retain=retain)) for retain in (0, 40))
    rnn = probe(subject("rnn", steps=40, hidden=8))
    assert kept.norms[-1] > 1e-2 > plain.norms[-1] and rnn.rate < kept.rate <= 1.05 and kept.reach > plain.reach


def test_a_state_too_large_is_refused():
    with pytest.raises(UnsupportedError, match=r"2,400 numbers; at most 1,024 .* smaller --hidden"):
        probe(subject("lstm", hidden=1200, steps=1))


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        (0.5, "0.5000 times per step back; beyond lag 7 less than a hundredth of lag 1 is left"),
        (0.96, "0.9600 times per step back; 0.64 of lag 1 is left at lag 12, the first step"),
        (1.0, "1.0000 times per step back; 1 of lag 1 is left at lag 12, the first step"),
        (1.5, "1.5000 times per step back; 86 times lag 1 at lag 12, the first step"),
    ],
)
def test_what_is_left_is_what_was_measured(factor, said):
    """Of a gradient that is there still at the first step, or grows, no hundredth is spoken of."""
    spec = loads(tiny_cell(f"h[t] = {factor} * h[t-1] + 0 * x[t]"))
    ones = {"x": np.ones((12, 2))}
    found = probe(ProbeSubject("tested", spec, {}, {}, ones, (12, 2)))
    assert said in table([found]) and found.to_json()["left"] == pytest.approx(factor**11)


def test_one_cell_that_can_not_be_measured_leaves_the_others(tmp_path, monkeypatch, capsys):
    """Too large, exploding or out of memory: the others are told, drawn and in the JSON."""
    monkeypatch.chdir(tmp_path)
    Path("explode.yaml").write_text(tiny_cell("h[t] = x[t] + 9 * h[t-1] * h[t-1]", name="explode"))
    argv = ["probe", "rnn", "lstm", "explode.yaml", "--hidden", "5", "--length", "12", "--rows", "2"]
    monkeypatch.setattr("rnnspec.probe.measure.LARGEST", 9)
    drawn = []
    monkeypatch.setattr("rnnspec.commands.probe.draw", lambda probes, base: drawn.append((len(probes), base)) or [base])
    assert main([*argv, "--out", "why"]) == 2
    out, err = capsys.readouterr()
    assert out.startswith("rnn\n") and "lstm" not in out
    assert "rnnspec probe: lstm: the states of lstm are 10 numbers; at most 9" in err
    assert "rnnspec probe: explode: " in err and "isn't finite" in err
    assert main([*argv, "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert [c["name"] for c in found["cells"]] == ["rnn"] and [f["name"] for f in found["failed"]] == [
        "lstm",
        "explode",
    ]
    assert main(["probe", "lstm", *argv[4:], "--out", "none"]) == 2 and drawn == [(1, "why")]


@pytest.mark.parametrize("cell", ["rnn", "gru_reset_before", "lstm"])
def test_weights_of_a_layer_by_the_cells_own_names(cell):
    layer = rnnspec.Recurrent(cell, 3, 5, threads=1)
    own = own_parameters(layer.spec, layer.params)
    assert {n: a.shape for n, a in own.items()} == {n: a.shape for n, a in layer.kernel.init(D=3, H=5).items()}


def test_figures_by_extension():
    assert [p.name for p in paths_of("why")] == ["why.png", "why.svg"]
    assert [p.name for p in paths_of("a/why.pdf")] == ["why.pdf"] and paths_of("v1.2")[0].name == "v1.2.png"


def test_gates_have_colours_of_their_own():
    assert not {LOW, MIDDLE, HIGH} & set(COLOURS)


def test_the_command_prints_and_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ("--length", "12", "--hidden", "5", "--inputs", "3", "--rows", "2")
    assert main(["probe", "rnn", "lstm", *small, "--out", "why"]) == 0
    out, err = capsys.readouterr()
    assert "gradient at lag 1:" in out and "f (sigmoid)" in out and "why.png, why.svg" in err
    assert Path("why.png").read_bytes()[:4] == b"\x89PNG" and b"<svg" in Path("why.svg").read_bytes()[:600]
    assert main(["probe", "rnn", *small, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["cells"]
    assert len(found["norms"]) == 13 and found["gates"][0]["name"] == "h"
    for option, value in (
        ("--hidden", "5"),
        ("--inputs", "3"),
        ("--retain", "9"),
        ("--choice", "phi=relu"),
        ("--size", "P=3"),
    ):
        assert main(["probe", "--run", "run", option, value]) == 2
        assert f"{option} is about cells at their initial weights, and would be ignored" in capsys.readouterr().err
    assert main(["probe", "rnn", "--length", "1"]) == 0 and "nan" not in capsys.readouterr().out
    assert main(["probe"]) == 2 and "give a cell" in capsys.readouterr().err
    assert (
        main(["probe", "rnn", *small, "--out", "no/such/folder/why"]) == 2 and "can't write" in capsys.readouterr().err
    )


def test_cells_of_one_figure_can_be_told_apart():
    assert len({tuple(style(i).values()) for i in range(32)}) == 32


def test_a_cell_that_explodes_or_has_no_memory_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    head = (
        "rnnspec: 1\nname: {}\ninputs: {{x: D}}\nstates: {{h: H}}\nparameters: {{W: [H, D]}}\noutputs: [h]\nequations:"
        " |\n  h[t] = {}\n"
    )
    Path("explode.yaml").write_text(head.format("explode", "W @ x[t] + 9 * h[t-1] * h[t-1]"))
    Path("steep.yaml").write_text(head.format("steep", "tanh(W @ x[t]) + 1000000 * (h[t-1] - h[t-1] * h[t-1])"))
    Path("forgets.yaml").write_text(head.format("forgets", "tanh(W @ x[t])"))
    assert main(["probe", "explode.yaml"]) == 2
    assert "of explode at step" in (err := capsys.readouterr().err) and "isn't finite" in err and "Warning" not in err
    assert main(["probe", "steep.yaml", "--length", "30"]) == 2 and "isn't finite" in capsys.readouterr().err
    assert main(["probe", "forgets.yaml", "--length", "5"]) == 0
    assert "nothing of the gradient is left at lag 1" in (out := capsys.readouterr().out) and "nan" not in out


def test_a_trained_run_is_probed_on_its_own_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ("--batch", "40", "--hidden", "6", "--steps", "8", "--threads", "1", "--out", "run")
    assert main(["train", "gru", "--task", "reber", "--set", "strings=40", *small]) == 0
    assert main(["probe", "gru", "--run", "run", "--length", "6", "--hidden", "6", "--inputs", "7"]) == 0
    out = capsys.readouterr().out
    assert "gru, trained on reber" in out and "z (sigmoid)" in out
    lengths = load_task("reber").make(checkpoint.load(Path("run/weights.npz")).config, {}).next({})[0].lengths
    assert lengths.min() < lengths.max()  # the shorter rows are padded with zeros, which are no symbols
    whole = of_run("run", steps=1000, rows=1000)
    assert whole.inputs["x"].shape == (lengths.min(), len(lengths), 7) and (whole.inputs["x"].sum(axis=-1) == 1).all()


def test_a_run_in_two_directions_can_not_be_probed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ("--hidden", "6", "--embed", "4", "--steps", "1", "--threads", "1", "--out", "run")
    assert main(["train", "gru", "--task", "classify", "--bidirectional", *small]) == 0
    assert main(["probe", "--run", "run"]) == 2
    assert (
        "run has 1 layer in two directions; a run with one layer in one direction can be probed"
        in capsys.readouterr().err
    )


def test_a_folder_is_a_run(tmp_path, capsys):
    assert main(["probe", str(tmp_path)]) == 2
    assert f"a trained run is given by --run {tmp_path}" in "".join(capsys.readouterr().err.split("\n"))
