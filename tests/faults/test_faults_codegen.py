"""Faults that engines like this one have had (numbered as in the project's list): what the
generator makes of names and expressions."""

from __future__ import annotations

import keyword
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from cells import CORE, DTYPES, Case, case, expected, kernel, ones, run_scalar, spec_of
from tiny import cell
from tolerances import DIFFERENCE_STEP, DIFFERENCES, FUNCTION, HAND, REFERENCE, assert_close, assert_same

from rnnspec.backends.cpu.emit.emission import Target
from rnnspec.backends.cpu.emit.kernel import emit
from rnnspec.language.functions import FUNCTIONS as ALL
from rnnspec.language.functions import INTERNAL
from rnnspec.language.load import specs_folder
from rnnspec.language.reading.document import RESERVED
from rnnspec.lowering.pipeline import MODES, stages

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("params", "inputs", "states")
UNUSABLE = RESERVED | set(keyword.kwlist) | {"B", "T"}


def emitted(name: str, dtype: str = "float32") -> dict[str, str]:
    made = stages(spec_of(name))
    return {mode: emit(getattr(made, mode), Target(dtype, 8, 12)) for mode in MODES}


def test_H38_names_of_temporaries():
    pairs = [("x0", "x1"), ("t0", "tmp0"), ("cse0", "d_k"), ("d_x", "h_prev"), ("a_h", "exp_k")]
    lines = [f"y{i}[t] = k * ({a} + 1) ** 2 + {b} * ({a} + 1) ** 2 + x[t]" for i, (a, b) in enumerate(pairs)]
    values = {"k": 2.0} | {a: 2.0 for a, _ in pairs} | {b: 3.0 for _, b in pairs}
    outputs = [f"y{i}" for i in range(len(pairs))]
    declared = ", ".join(f"{n}: []" for n in values)
    text = cell("\n".join([*lines, "h[t] = h[t-1]"]), parameters=f"{{{declared}}}", outputs=f"[{', '.join(outputs)}]")
    of, run = run_scalar(text, [0.0], **values)
    for (a, b), y in zip(pairs, outputs):
        assert run.outputs[y][0, 0] == 45
        assert of.backward(run, ones(run, y)).params == dict.fromkeys(values, 0) | {"k": 9, a: 30, b: 9}


def hostile_names() -> list[str]:
    """The identifiers of generated text that a user may choose too, one of each family (h_rows,
    c_rows, ...), and a few of Python's."""
    found = {
        n for text in emitted("gru").values() for n in re.findall(r"[A-Za-z][A-Za-z_0-9]*", text.split("LAYOUT")[1])
    }
    family = re.compile(r"_(address|rows|sum|vector|total|history|next)_*$")
    found = {n for n in found if not family.search(n) or re.match(r"(d_)?(h|x|W_n|b_n)_", n)}
    found = {n for n in found if not re.match(r"[WUbc]_[rzn]$|panel_[1-9]", n)}
    found |= {
        "x0",
        "x1",
        "tmp0",
        "cse0",
        "i",
        "f",
        "d_f",
        "a_i",
        "LAYOUT",
        "np",
        "math",
        "numba",
        "self",
        "len",
        "float",
        "int",
        "print",
    }
    return sorted(n for n in found if n not in UNUSABLE)


def mixture(names: list[str]) -> tuple[str, list[str]]:
    """An elementwise cell, and its parameters: an input, a state, then parameters and intermediate
    values by turns."""
    x, h, *rest = names
    parameters, values = rest[::2], rest[1::2]
    parameters = parameters[: len(values)]
    lines = [f"{v}[t] = {p} * {h}[t-1] - {x}[t]" for v, p in zip(values, parameters)]
    lines += [f"partial{k}[t] = {' + '.join(f'{v}[t]' for v in values[k::9])}" for k in range(9)]
    lines.append(f"{h}[t] = ({' + '.join(f'partial{k}[t]' for k in range(9))}) / {len(values)}")
    text = cell(
        "\n".join(lines),
        name="mixture",
        inputs=f"{{{x}: Width}}",
        states=f"{{{h}: Width}}",
        outputs=f"[{h}]",
        parameters=f"{{{', '.join(f'{p}: [Width]' for p in parameters)}}}",
    )
    return text, parameters


def test_H37_H38_every_name_of_generated_text_can_be_a_users():
    """Equal to the same cell with names that mean nothing."""
    names = hostile_names()
    assert {
        "row",
        "load",
        "store",
        "steps",
        "chunk",
        "at",
        "number",
        "kernel",
        "d_f",
        "a_i",
        "h_prev",
        "H_row",
        "table",
    } <= set(names)
    np.random.default_rng(0).shuffle(names)
    (hostile, own), (neutral, plain) = (mixture(n) for n in (names, [f"name{k}" for k in range(len(names))]))
    one = case(kernel(hostile), 3, 2, Width=5)
    translated = dict(zip(own, plain)) | {names[0]: "name0", names[1]: "name1"}
    right = expected(one.changed(name=translated.__getitem__), neutral)
    run, back = one.forward(), one.backward()
    assert_close(run.outputs[names[1]], right.outputs["name1"], REFERENCE["float64"])
    for kind in KINDS:
        assert_close(
            {translated[n]: g for n, g in getattr(back, kind).items()}, getattr(right, kind), REFERENCE["float64"], kind
        )


def test_H37_products_and_sizes_with_the_generators_names():
    plain = "x h c i f g o D H W_i W_f W_g W_o U_i U_f U_g U_o b_i b_f b_g b_o"
    names = (
        "number at chunk row load store steps item lanes kernel d_f a_i h_prev"
        " H_row panel_0 product gather first rows table zeros"
    )
    new = dict(zip(plain.split(), names.split(), strict=True))
    text = re.split(r"\n(?:layouts|same_as|notes|examples):", (specs_folder() / "lstm.yaml").read_text())[0]
    head, body = text.split("inputs:")
    renamed = (
        head.replace("name: lstm", "name: hostile")
        + "inputs:"
        + re.sub(r"[A-Za-z_]+", lambda m: new.get(m[0], m[0]), body)
    )
    one = case(kernel("lstm"), 3, 2, D=3, H=5)
    right, right_back = one.forward(), one.backward()
    other = one.changed(name=new.__getitem__, kernel=kernel(renamed))
    assert_same(other.forward().outputs["at"], right.outputs["h"])
    back = other.backward()
    for kind in KINDS:
        assert_close(getattr(back, kind), {new[n]: g for n, g in getattr(right_back, kind).items()}, HAND["float64"])


def test_H42_the_order_of_lines_changes_no_number():
    text = re.split(r"\n(?:layouts|same_as|notes|examples):", (specs_folder() / "gru.yaml").read_text())[0]
    head, body = text.split("equations: |\n")
    lines = [line for line in body.split("\n") if line.startswith("  ")]
    turned = f"{head}equations: |\n" + "\n".join(reversed(lines)) + "\noutputs: [h]\n"
    one = case(kernel("gru"), 4, 3, D=3, H=5)
    other = one.changed(kernel=kernel(turned))
    assert_close(other.forward().outputs, one.forward().outputs, HAND["float64"])
    for kind in KINDS:
        assert_close(getattr(other.backward(), kind), getattr(one.backward(), kind), HAND["float64"])


def written_out() -> str:
    text = (
        (specs_folder() / "lstm_peephole.yaml")
        .read_text()
        .split("layouts:")[0]
        .replace("sigmoid(", "sg(")
        .replace("tanh(", "th(")
    )
    return text + "functions:\n  sg(a): 1 / (1 + exp(-a))\n  th(a): (exp(a) - exp(-a)) / (exp(a) + exp(-a))\n"


def twelve_gates() -> str:
    gates = [f"g_{k}" for k in range(12)]
    lines = [f"{g}[t] = sigmoid(W_{g} @ x[t] + U_{g} @ h[t-1] + tanh(p_{g} * c[t-1]) + b_{g})" for g in gates]
    lines.append(f"c[t] = {' + '.join(f'{g}[t] * c[t-1]' for g in gates[:6])}")
    lines.append(f"h[t] = tanh(c[t]) * ({' * '.join(f'{g}[t]' for g in gates[6:])})")
    shapes = [f"W_{g}: [H, D], U_{g}: [H, H], p_{g}: [H], b_{g}: [H]" for g in gates]
    return cell(
        "\n".join(lines), name="twelve", inputs="{x: D}", states="{h: H, c: H}", parameters=f"{{{', '.join(shapes)}}}"
    )


@pytest.mark.parametrize("make", [written_out, twelve_gates])
def test_H43_building_takes_seconds(make):
    start = time.process_time()
    text = make()
    emitted(text)
    assert time.process_time() - start < 5


def test_H43_the_cells_written_out_in_exp_are_the_same_cells():
    one = case(kernel("lstm_peephole"), 3, 2, D=3, H=5)
    other = one.changed(kernel=kernel(written_out()))
    assert_close(other.forward().outputs, one.forward().outputs, REFERENCE["float64"])
    assert_close(other.backward().params, one.backward().params, REFERENCE["float64"])


HASHES = f"""
import hashlib, rnnspec
from rnnspec.backends.cpu.emit.emission import Target
from rnnspec.backends.cpu.emit.kernel import emit
from rnnspec.language.load import digest
from rnnspec.lowering.pipeline import MODES, stages
for name in {CORE!r}:
    spec = rnnspec.load(name)
    made = stages(spec)
    targets = [Target(dtype, 8, 12) for dtype in ("float32", "float64")]
    texts = [emit(getattr(made, mode), target, digest(spec)) for mode in MODES for target in targets]
    print(name, hashlib.sha256("".join(texts + [made.graph.to_text(), made.adjoint.to_text()]).encode()).hexdigest())
"""


def test_H44_generated_text_does_not_depend_on_the_hash_seed():
    running = [
        subprocess.Popen(
            [sys.executable, "-c", HASHES],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        )
        for seed in ("0", "1", "2")
    ]
    printed = [process.communicate(timeout=300)[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    assert len(printed[0].splitlines()) == len(CORE)
    assert printed[0] == printed[1] == printed[2]


FUNCTIONS = {name: row for name, row in ALL.items() if name not in INTERNAL}
CALLS = [f"y_{n}[t] = {n}({', '.join(f'{v}[t]' for v, _ in zip('abc', row.args))})" for n, row in FUNCTIONS.items()]
EVERY = cell(
    "\n".join(["h[t] = a[t] + b[t] + c[t]", *CALLS]),
    name="every_function",
    inputs="{a: [], b: [], c: []}",
    outputs=f"[{', '.join(f'y_{n}' for n in FUNCTIONS)}]",
)


def arguments(name: str, of: str) -> dict[str, np.ndarray]:
    """One step of 65 rows: (0.7, 0.3, 0.9), and points of the row's interval for the arguments that
    the function takes."""
    row, rng = FUNCTIONS[name], np.random.default_rng(len(name))
    inside = {v: rng.uniform(*row.interval, 64) for v, _ in zip("abc", row.args)}
    if name == "clip":
        inside["b"], inside["c"] = np.sort([inside["b"], inside["c"]], axis=0)
    return {
        v: np.concatenate([[first], inside.get(v, np.full(64, first))])[None].astype(of)
        for v, first in zip("abc", (0.7, 0.3, 0.9))
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_H45_every_function_and_its_derivative(name, dtype):
    of, y = kernel(EVERY, dtype), f"y_{name}"
    inputs = arguments(name, dtype)
    one = Case(of, {}, {}, inputs, {}, None, {y: np.ones((1, 65), dtype)}, {})
    right = expected(
        Case(of, {}, {}, inputs, {}, None, {o: np.ones((1, 65)) * (o == y) for o in of.spec.outputs}, {}), EVERY
    )
    assert_close(one.forward().outputs[y], right.outputs[y], FUNCTION[dtype])
    back = one.backward()
    assert_close(back.inputs, right.inputs, FUNCTION[dtype])
    if dtype == "float64":
        differences(one, y, name, back.inputs)


def differences(one: Case, y: str, name: str, gradients: dict[str, np.ndarray]) -> None:
    """The derivatives are those of the values, wherever two points near each side agree that there
    is no kink."""
    row = FUNCTIONS[name]
    if row.surrogate:
        return
    for v, _ in zip("abc", row.args):
        slopes = []
        for step in (DIFFERENCE_STEP, 2 * DIFFERENCE_STEP):
            up, down = (one.forward(inputs=one.inputs | {v: one.inputs[v] + s}).outputs[y] for s in (step, -step))
            slopes.append((up - down) / (2 * step))
        smooth = np.abs(slopes[0] - slopes[1]) < 1e-5
        assert smooth.mean() > 0.9
        assert_close(
            np.where(smooth, gradients[v], 0), np.where(smooth, slopes[0], 0), 10 * DIFFERENCES, f"{name}, {v}"
        )
