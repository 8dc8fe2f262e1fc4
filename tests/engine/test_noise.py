"""Noise that a cell declares: how it is said, drawn, left out, and what kernels make of it."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from cells import case, kernel
from noisy_cells import run as loop
from tiny import cell
from tolerances import DIFFERENCE_STEP, DIFFERENCES, REFERENCE, assert_close, assert_same

import rnnspec
from rnnspec import transform
from rnnspec.check import check_cells
from rnnspec.check.properties.values import examples
from rnnspec.check.subject import subject
from rnnspec.commands.list import row
from rnnspec.engine import noise
from rnnspec.errors import ShapeError, SpecError
from rnnspec.language.load import digest, load, loads
from rnnspec.show.counts import parameter_count
from rnnspec.show.facts import facts
from rnnspec.show.page import show

# every kind of noise at every place: in an input per step and per sequence, in a parameter, in a
# scalar
RNN = cell(
    "V = mask_U * U\nnew[t] = tanh(W @ x[t] + V @ (mask_h[t] * h[t-1]) + b) + noise_h[t]\nh[t] = keep_h[t] * h[t-1] +"
    " (1 - keep_h[t]) * new[t]",
    name="noisy_rnn",
    inputs="{x: D, mask_h: H, noise_h: H, keep_h: H}",
    states="{h: H}",
    parameters="{W: [H, D], U: [H, H], b: [H], mask_U: [H, H]}",
    constants="{p: 0.3}",
    noise="{mask_h: dropout(0.25) per sequence, noise_h: normal(0.1), keep_h: bernoulli(p), mask_U: dropout(0.5)}",
)
SIZES = {"D": 3, "H": 5}


def errors(text: str, **settings) -> str:
    with pytest.raises(SpecError) as caught:
        loads(text, **settings)
    return str(caught.value)


# --- how it is said ---


def test_what_a_file_says():
    spec = loads(RNN, p=0.4)
    assert {n: (d.kind, d.argument, d.per, d.mean) for n, d in spec.noise.items()} == {
        "mask_h": ("dropout", 0.25, "sequence", 1.0),
        "noise_h": ("normal", 0.1, "step", 0.0),
        "keep_h": ("bernoulli", 0.4, "step", 0.4),
        "mask_U": ("dropout", 0.5, "call", 1.0),
    }
    assert (
        set(spec.noise) == set(spec.no_gradient)
        and list(spec.trained) == ["W", "U", "b"]
        and list(spec.streams) == ["x"]
    )
    assert digest(spec) == digest(loads(RNN))  # the numbers change no kernel
    again = loads(transform.to_yaml(spec))
    assert again.noise == spec.noise and again.no_gradient == spec.no_gradient
    assert (
        parameter_count(spec, SIZES) == 15 + 25 + 5 and facts(spec)["noise"]["mask_h"] == "dropout(0.25) per sequence"
    )
    assert (
        "keep_h: [H] bernoulli(0.4) per step, 0.4 at evaluation" in show(spec)
        and json.loads(show(spec, as_json=True))["noise"]
    )


def test_layouts_leave_noise_out():
    text = RNN + "layouts: {other: {w: [W], u: [U], b: [b]}}\n"
    assert loads(text).layouts["other"]["u"] == ("U",)
    assert "names 'mask_U', which is no parameter. Did you mean" not in errors(
        text.replace("[U]", "[mask_U]").replace("u:", "u_:")
    )
    assert "the layout 'other' names 'mask_U', which is no parameter." in errors(
        text.replace("u: [U]", "u: [U, mask_U]")
    )


def test_an_extending_cell_changes_how_noise_is_drawn(tmp_path):
    (tmp_path / "noisy_rnn.yaml").write_text(RNN)
    (tmp_path / "own.yaml").write_text(
        "rnnspec: 1\nname: own\nextends: noisy_rnn.yaml\nnoise: {keep_h: bernoulli(0.9)}\nequations: |\n"
        "  new[t] = tanh(W @ x[t] + U @ h[t-1] + b)\n"
    )
    made = load(tmp_path / "own.yaml")
    assert {n: d.argument for n, d in made.noise.items()} == {"keep_h": 0.9} and "p" not in made.constants


@pytest.mark.parametrize(
    "says, message",
    [
        (
            "x: bernouli(0.1)",
            "noise can't be drawn by 'bernouli'. Did you mean 'bernoulli'? Known here: bernoulli, dropout, normal.",
        ),
        ("x: 0.1", "'0.1' says no way to draw. Write bernoulli(p), dropout(p), normal(sigma)"),
        ("x: normal", "'normal' says no way to draw"),
        ("x: [normal(1)]", "the noise 'x' is a text."),
        ("x: normal(a b)", "'a b' is no number and no constant: normal takes the standard deviation, from 0 to 1e6."),
        ("x: normal(1e400)", "'1e400' is no number and no constant"),
        ("x: normal(q)", "the noise 'x': 'q' is no number and no constant. Known here: none."),
        ("x: bernoulli(1.5)", "bernoulli(1.5): the number is the probability of a 1, from 0 to 1."),
        ("x: dropout(1)", "dropout(1): the number is the probability of a 0, from 0 to below 1."),
        ("x: normal(-1)", "normal(-1): the number is the standard deviation, from 0 to 1e6."),
        ("x: normal(1) per stp", "noise is drawn per step, sequence or call, not per 'stp'. Did you mean 'step'?"),
        ("x: normal(1) per call", "the noise 'x': an input has a value for every row, so it can't be drawn per call."),
        (
            "w: normal(1) per step",
            "the noise 'w': a parameter is one for all steps and rows, so it can't be drawn per step.",
        ),
        ("h: normal(1)", "noise names 'h', which is no input and no parameter. Known here: x, w."),
    ],
)
def test_what_is_wrong_is_said_with_its_place(says, message):
    said = errors(cell("h[t] = w * x[t]", parameters="{w: []}", noise=f"{{{says}}}"))
    assert message in said and said.startswith("<text>:7:")


def test_noise_has_no_default():
    said = errors(cell("h[t] = w * x[t]", parameters="{w: []}", noise="{x: normal(1)}", defaults="{x: 0}"))
    assert "'x' is noise: where a call does not give it, it is drawn. Take its default out." in said


@pytest.mark.parametrize(
    "says, message, column",
    [
        ("zoneot: 0.1", "no transform is called 'zoneot'. Did you mean 'zoneout'? Known here: drop_gate,", 9),
        ("zoneout: {q: 0.1}", "apply: zoneout: 'q' is no state here. Known here: h, c.", 9),
        ("zoneout: {h: x}", "'x' for h of zoneout is not a number, or a constant of the file.", 22),
        ("zoneout: {h: [1, 2]}", "an argument of zoneout is a text.", 22),
        ("zoneout: {h: 1.5}", "apply: zoneout: 1.5 for 'h' is out of range.", 9),
        ("low_rank_recurrence: 1.5", "'1.5' for rank of low_rank_recurrence is not a whole number.", 30),
        ("peepholes: {on: yes}", "'yes' for on of peepholes is not true or false.", 25),
        ("leak: {alfa: 0.1}", "leak takes no argument 'alfa'. Did you mean 'alpha'? It takes: alpha, state.", 16),
        ("couple_gates: [f, o, i]", "couple_gates takes at most 2 arguments by position. It takes: gate, other.", 30),
        ("drop_gate", "drop_gate needs gate. Write drop_gate: {gate: ...}.", 9),
        ("drop_gate: g", "'g' is nothing between 0 and 1 that something is multiplied by in 'made'", 9),
        ("state_noise: 0, " * 17, "apply has 17 entries; at most 16 are offered.", 265),
    ],
)
def test_what_is_wrong_in_apply_is_said_with_its_place(says, message, column):
    said = errors(f"rnnspec: 1\nname: made\nextends: lstm\napply: [{says.rstrip(', ')}]\n")
    assert message in said and said.startswith(f"<text>:4:{column}:"), said


def test_all_that_is_wrong_in_apply_comes_at_once():
    said = errors("rnnspec: 1\nname: made\nextends: lstm\napply: [zoneot: 1, zoneout: {h: x}, drop_gate]\n")
    assert all(word in said for word in ("zoneot", "'x' for h", "needs gate"))
    assert "apply is a list" in errors("rnnspec: 1\nname: made\nextends: lstm\napply: zoneout\n")
    big = "\n".join(f"a{i}[t] = x[t]" for i in range(200))
    assert "too much work: at most 1000 equations" in errors(
        cell(
            f"{big}\nh[t] = a0[t]",
            outputs="[h, " + ", ".join(f"a{i}" for i in range(200)) + "]",
            apply="[" + ", ".join(["state_noise: 1"] * 6) + "]",
        )
    )


# --- drawing ---


def test_shapes_and_strides():
    drawn = noise.draw(loads(RNN), SIZES, 4, 6, 0)
    assert {n: a.shape for n, a in drawn.items()} == {
        "mask_h": (4, 6, 5),
        "noise_h": (4, 6, 5),
        "keep_h": (4, 6, 5),
        "mask_U": (5, 5),
    }
    assert all(a.dtype == np.float32 for a in drawn.values()) and drawn["mask_h"].strides[0] == 0
    assert_same(drawn["mask_h"][0], drawn["mask_h"][3])
    expected = noise.mean(loads(RNN), SIZES, 4, 6)
    assert {n: (a.shape, float(a.flat[0]), a.flags.writeable) for n, a in expected.items()} == {
        n: (drawn[n].shape, pytest.approx(m), False)
        for n, m in (("mask_h", 1.0), ("noise_h", 0.0), ("keep_h", 0.3), ("mask_U", 1.0))
    }


@pytest.mark.parametrize("steps, rows, width", [(0, 3, 5), (4, 0, 5), (4, 3, 0), (1, 1, 1), (3, 2, 13)])
def test_any_sizes(steps, rows, width):
    drawn = noise.draw(loads(RNN), {"D": 1, "H": width}, steps, rows, 3)
    assert drawn["keep_h"].shape == drawn["mask_h"].shape == (steps, rows, width) and drawn["mask_U"].shape == (
        width,
        width,
    )


def test_a_row_has_its_numbers_whatever_is_beside_and_behind_it():
    spec = loads(RNN)
    whole = noise.draw(spec, SIZES, 9, 7, (1, 2))
    part = noise.draw(spec, SIZES, 4, 3, (1, 2), first_row=2)
    double = noise.draw(spec, SIZES, 9, 7, (1, 2), np.float64)
    for name, array in part.items():
        assert_same(array, whole[name] if name == "mask_U" else whole[name][:4, 2:5], name)
        assert_same(double[name].astype(np.float32), whole[name], name)


def test_ties_are_decided_by_other_bits():
    bytes_, ties = (np.concatenate(list(noise.words(1, 0, [4, 4], lane))) for lane in (0, 1))
    assert len({*bytes_.tolist(), *ties.tolist()}) == 16


def test_an_example_may_leave_out_the_noise_of_parameters():
    one = cell(
        "V = m * u\nh[t] = V * h[t-1] + x[t]",
        inputs="{x: H}",
        states="{h: H}",
        parameters="{u: [H], m: [H]}",
        noise="{m: dropout(0.5)}",
        examples=(
            "[{sizes: {H: 1}, parameters: {u: [0.5]}, inputs: {x: [[1.0], [0.0]]}, outputs: {h: [[1.0], [0.5]]},"
            " gradients: {u: [1.0]}}]"
        ),
    )
    known = subject(loads(one))
    assert examples(known).passed


def test_seeds_names_rows_and_steps_differ():
    spec = loads(
        cell(
            "h[t] = a[t] + b[t] + x[t]",
            inputs="{x: H, a: H, b: H}",
            states="{h: H}",
            noise="{a: bernoulli(0.5), b: bernoulli(0.5)}",
        )
    )
    draws = [noise.draw(spec, {"H": 64}, 3, 3, seed) for seed in (0, 1, (0, 0), (0, 1), (1, 0))]
    streams = [d[n][t, b] for d in draws for n in "ab" for t in range(3) for b in range(3)]
    assert len({s.tobytes() for s in streams}) == len(streams)


PINNED = "00100001000000110010100010100000"  # of noise 'keep_h', seed 7, bernoulli(0.3), row 0


def test_a_seed_means_the_same_everywhere():
    spec = loads(RNN)
    drawn = noise.draw(spec, {"D": 1, "H": 16}, 2, 1, 7)
    assert "".join(str(int(v)) for v in drawn["keep_h"].ravel()) == PINNED


@pytest.mark.parametrize("chance", [0.0, 1 / 1024, 0.1, 0.5, 1 / 3, 0.75, 0.999, 1.0])
def test_chances_and_means(chance):
    spec = loads(
        cell(
            "h[t] = a[t] + d[t] + x[t]",
            inputs="{x: H, a: H, d: H}",
            states="{h: H}",
            noise=f"{{a: bernoulli({chance}), d: dropout({min(chance, 0.999)})}}",
        )
    )
    n = 2_000_000
    drawn = noise.draw(spec, {"H": 1000}, 50, n // 50_000, 5)
    kept = 1 - min(chance, 0.999)
    assert set(np.unique(drawn["a"])) <= {0, 1} and len(np.unique(drawn["d"])) <= 2
    assert abs(drawn["a"].mean(dtype=np.float64) - chance) <= 5 * np.sqrt(chance * (1 - chance) / n)
    assert abs(drawn["d"].mean(dtype=np.float64) - 1) <= 5 * np.sqrt((1 - kept) / kept / n) + 1e-7


def test_normal_noise_is_normal():
    spec = loads(cell("h[t] = e[t] + x[t]", inputs="{x: H, e: H}", states="{h: H}", noise="{e: normal(2)}"))
    drawn = noise.draw(spec, {"H": 1000}, 50, 20, 5)["e"].astype(np.float64) / 2
    n = drawn.size
    assert (
        abs(drawn.mean()) < 5 / np.sqrt(n)
        and abs((drawn**2).mean() - 1) < 5 * np.sqrt(2 / n)
        and abs((drawn**4).mean() - 3) < 5 * np.sqrt(96 / n)
    )


@pytest.mark.parametrize("seed", [-1, 1.5, True, "7", (), (1, -1), None])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(ValueError, match="a seed of noise is a whole number of at least 0, or a tuple of such"):
        noise.draw(loads(RNN), SIZES, 1, 1, seed)


# --- kernels ---


def noisy(of, steps=6, rows=4, seed=0, **sizes):
    """A random call of the RNN without its noise; it is drawn with seed 9."""
    given = case(of, steps, rows, seed=seed, **sizes)
    return given.params, {"x": given.inputs["x"]}, given


def masks(made):
    """Those that are inputs."""
    return {n: a for n, a in made.items() if n != "mask_U"}


def test_kernels_draw_what_draw_draws():
    of = kernel(RNN)
    params, inputs, given = noisy(of)
    assert set(of.init(**given.sizes)) == {"W", "U", "b"}
    run = of.forward(params, inputs, given.states, noise=9)
    made = noise.draw(of.spec, given.sizes, 6, 4, 9, "float64")
    values, _ = loop("rnn", params | made, inputs | masks(made), given.states)
    assert_close(run.outputs["h"], values["h"], REFERENCE["float64"])
    again = of.forward(params | {"mask_U": made["mask_U"]}, inputs | masks(made), given.states)
    assert_same(again.outputs, run.outputs)
    for one, other in zip(
        *([g.params, g.inputs, g.states] for g in (of.backward(r, given.dy, final=given.dfinal) for r in (run, again)))
    ):
        assert_same(one, other)
    assert_same(of.infer(params, inputs, given.states, noise=9).outputs, run.outputs)
    assert not np.array_equal(of.forward(params, inputs, given.states, noise=10).outputs["h"], run.outputs["h"])


@pytest.mark.parametrize("how", [9, "mean"], ids=["training", "evaluation"])
def test_gradients_are_those_of_the_values_drawn(how):
    of = kernel(RNN)
    params, inputs, given = noisy(of, steps=7, rows=3, seed=2)
    grad = of.backward(of.forward(params, inputs, given.states, noise=how), given.dy, final=given.dfinal)
    assert set(grad.params) == {"W", "U", "b"} and set(grad.inputs) == {"x"}
    rng = np.random.default_rng(0)
    groups = {"params": (params, grad.params), "inputs": (inputs, grad.inputs), "states": (given.states, grad.states)}
    along = {g: {n: rng.uniform(-1, 1, a.shape) for n, a in values.items()} for g, (values, _) in groups.items()}

    def loss(step):
        moved = [{n: a + step * along[g][n] for n, a in values.items()} for g, (values, _) in groups.items()]
        out = of.infer(*moved, noise=how)
        return float((out.outputs["h"] * given.dy["h"]).sum() + (out.final["h"] * given.dfinal["h"]).sum())

    expected = (loss(DIFFERENCE_STEP) - loss(-DIFFERENCE_STEP)) / (2 * DIFFERENCE_STEP)
    assert_close(
        sum((along[g][n] * a).sum() for g, (_, found) in groups.items() for n, a in found.items()),
        expected,
        DIFFERENCES,
    )


def test_evaluation_takes_what_is_expected():
    of = kernel(RNN)
    params, inputs, given = noisy(of)
    out = of.infer(params, inputs, given.states)
    made = noise.mean(of.spec, given.sizes, 6, 4, "float64")
    values, _ = loop("rnn", params | made, inputs | masks(made), given.states)
    assert_close(out.outputs["h"], values["h"], REFERENCE["float64"])
    assert_same(of.forward(params, inputs, given.states, noise="mean").outputs, out.outputs)
    weights = of.pack(params)
    assert_same(of.infer(weights, inputs, given.states).outputs, out.outputs)
    stream, state = of.stream(weights, given.states, rows=4), given.states
    for t in range(6):
        state = of.step(weights if t % 2 else params, {"x": inputs["x"][t]}, state)
        assert_same(state.outputs["h"], out.outputs["h"][t])
        assert_same(stream.step({"x": inputs["x"][t]})["h"], out.outputs["h"][t])
    own = made["keep_h"][0] + 0.5
    with_mask = of.step(params, {"x": inputs["x"][0], "keep_h": own}, given.states).outputs["h"]
    stream.reset(given.states)
    assert_same(stream.step({"x": inputs["x"][0], "keep_h": own})["h"], with_mask)
    assert not np.array_equal(with_mask, out.outputs["h"][0])
    assert_same(of.infer(params, inputs | {"keep_h": None}, given.states).outputs, out.outputs)
    after = of.step(params, {"x": inputs["x"][1]}, {"h": with_mask}).outputs["h"]
    assert_same(stream.step({"x": inputs["x"][1], "keep_h": None})["h"], after)  # what was given once is not remembered


def test_the_mean_over_seeds_is_the_evaluation_of_a_linear_cell():
    of = kernel(
        cell(
            "h[t] = keep[t] * h[t-1] + (1 - keep[t]) * (x[t] * mask[t]) + e[t]",
            name="linear_noise",
            inputs="{x: H, keep: H, mask: H, e: H}",
            states="{h: H}",
            noise="{keep: bernoulli(0.25), mask: dropout(0.5) per sequence, e: normal(1)}",
        )
    )
    x = np.random.default_rng(0).uniform(-1, 1, (3, 1, 2))
    rows = np.broadcast_to(x, (3, 40_000, 2))
    drawn = of.infer({}, {"x": rows}, noise=1).outputs["h"]
    error = 5 * drawn.std(axis=1) / np.sqrt(drawn.shape[1])
    assert (np.abs(drawn.mean(axis=1) - of.infer({}, {"x": x}).outputs["h"][:, 0]) < error).all()


def test_threads_lengths_memory_and_rows_change_nothing():
    of = kernel(RNN)
    params, inputs, given = noisy(of, steps=40, rows=7, seed=3, D=67, H=131)
    lengths = np.array([40, 3, 0, 17, 40, 1, 39])
    alone = of.like(threads=1)
    single = alone.forward(params, inputs, given.states, lengths, noise=(4, 5))
    kept = alone.backward(single, given.dy, final=given.dfinal)
    for threads in (2, 3):
        other = of.like(threads=threads)
        several = other.forward(params, inputs, given.states, lengths, noise=(4, 5))
        assert_same(several.outputs, single.outputs)
        grads = other.backward(several, given.dy, final=given.dfinal)
        assert_same(grads.inputs, kept.inputs)
        assert_close(grads.params, kept.params, REFERENCE["float64"])
    low = of.like(threads=1, memory="low")
    again = low.forward(params, inputs, given.states, lengths, noise=(4, 5))
    assert_same(again.outputs, single.outputs)
    assert_close(low.backward(again, given.dy, final=given.dfinal).params, kept.params, REFERENCE["float64"])
    part = noise.draw(of.spec, given.sizes, 40, 3, (4, 5), "float64", first_row=2)
    mask = {"mask_U": part.pop("mask_U")}
    rows = of.forward(params | mask, {"x": inputs["x"][:, 2:5], **part}, {"h": given.states["h"][2:5]}, lengths[2:5])
    assert_same(rows.outputs["h"], single.outputs["h"][:, 2:5])


def test_what_is_missing_or_wrong_is_said():
    of = kernel(RNN)
    params, inputs, _ = noisy(of)
    with pytest.raises(
        ShapeError,
        match=(
            r"missing noise 'mask_h', 'noise_h', 'keep_h', 'mask_U' of 'noisy_rnn'. Give a seed to draw it in training"
        ),
    ):
        of.forward(params, inputs)
    for wrong in ("no", -1, 1.5, True, ()):
        with pytest.raises(ValueError, match="seed"):
            of.forward(params, inputs, noise=wrong)
    with pytest.raises(ValueError, match="packed weights hold it already: give the parameters themselves"):
        of.forward(of.pack(params), inputs, noise=1)
    with pytest.raises(ShapeError, match="input 'keep_h' has shape"):
        of.forward(params, inputs | {"keep_h": np.zeros((6, 3, 5))}, noise=1)
    with pytest.raises(ShapeError, match="is given no input that tells the number of steps: give steps="):
        kernel(
            cell("h[t] = h[t-1] + e[t]", name="walk", inputs="{e: H}", states="{h: H}", noise="{e: normal(1)}")
        ).forward({}, {}, noise=1)
    plain = kernel("rnn")
    values = case(plain, 2, 2)
    assert_same(
        plain.forward(values.params, values.inputs, noise=1).outputs,
        plain.forward(values.params, values.inputs).outputs,
    )


def test_copies_of_kernels_draw_the_same():
    of = kernel(RNN)
    params, inputs, _ = noisy(of)
    assert_same(
        pickle.loads(pickle.dumps(of)).forward(params, inputs, noise=3).outputs,
        of.forward(params, inputs, noise=3).outputs,
    )


# --- the commands ---


def test_check_passes_noise_of_every_kind():
    report = check_cells([loads(RNN)], dtypes=("float64",))
    assert report.passed, report.to_text()
    assert sum(not r.skipped for r in report.cells[0].results) > 12


def test_the_commands_take_cells_with_noise(tmp_path, monkeypatch, capsys):
    from rnnspec.commands.cli import main

    monkeypatch.chdir(tmp_path)
    assert main(["new", "own", "--from", "zoneout_lstm"]) == 0
    assert load("own.yaml").noise == load("zoneout_lstm").noise
    assert main(["diff", "own.yaml", "zoneout_lstm"]) == 0
    assert main(["diff", "zoneout_gru", "gru"]) == 1
    assert (
        main(["show", "zoneout_gru", "--stage", "spec"]) == 0
        and "input keep_h [H] bernoulli(0.1)" in capsys.readouterr().out
    )
    assert row(loads(RNN))["parameters"] == 128 * 128 * 2 + 128


def test_diff_compares_values_and_says_what_is_drawn_otherwise():
    found = rnnspec.diff(load("zoneout_gru", zoneout_h=0.2), "zoneout_gru")
    assert found.same and found.notes == (
        "keep_h was compared as a value: it is bernoulli(0.2) in 'zoneout_gru' and bernoulli(0.1) in 'zoneout_gru'",
    )
    assert not rnnspec.diff("zoneout_gru", "zoneout_gru").notes


# --- the page of the manual ---


def shown(heading: str, language: str) -> list[str]:
    """The blocks of code of one language under a heading of docs/changing.md."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "changing.md").read_text(encoding="utf-8")
    level = heading.split()[0]
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, f"docs/changing.md has no section '{heading}'"
    return re.findall(rf"^```{language}\n(.*?)^```$", found[1], re.DOTALL | re.MULTILINE)


def test_the_files_of_the_manual_are_cells():
    first, second = (loads(text) for text in shown("## Regularisers", "yaml"))
    assert (
        "W_i" not in first.parameters
        and "gain_f" in first.parameters
        and {n: d.argument for n, d in first.noise.items()} == {"keep_h": 0.1, "keep_c": 0.05}
    )
    assert {n: d.per for n, d in second.noise.items()} == {"mask": "sequence", "e": "step", "drop": "call"}
