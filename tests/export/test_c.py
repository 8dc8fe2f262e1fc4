"""Cells and layers in C: every file compiles without a warning, and its own check passes there,
with sanitizers, with and without vectors of the compiler's."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from c_library import COMPILER, SANE, STRICT, Library, built, exported
from tiny import cell

import rnnspec
from rnnspec.check.sampling import size_values
from rnnspec.commands.cli import main
from rnnspec.engine.initialise import initialise
from rnnspec.errors import RnnspecError, UnsupportedError
from rnnspec.export import c
from rnnspec.export.c import CSource
from rnnspec.export.learn import learner
from rnnspec.export.parts import cell_part
from rnnspec.language.load import load, loads, spec_names

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")
# one stage, two, a matrix as state, inner loops, whole rows, spikes, noise, taps, several inputs
KINDS = (
    *("lstm", "gru_reset_before", "fast_weights", "ltc", "ln_lstm_haste", "alif", "zoneout_lstm", "clockwork"),
    *("indrnn", "t_lstm", "phased_lstm"),
)


def assert_right(source: CSource, folder: Path, *flags: str) -> None:
    done = subprocess.run([built(source, folder, *flags)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [n for n in KINDS if n in spec_names()])
def test_a_file_passes_its_own_check(name, dtype, tmp_path):
    assert_right(exported(name, dtype), tmp_path, *SANE)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", spec_names())
def test_all_cells_pass_their_own_check(name, dtype, tmp_path):
    assert_right(exported(name, dtype), tmp_path, *SANE)


@pytest.mark.parametrize(
    "flags", [["-DWITHOUT_VECTORS"], ["-O3", "-march=native"], ["-O3", "-march=native", "-std=gnu11"]]
)
def test_other_ways_to_compile(flags, tmp_path):
    assert_right(exported("lstm", "float32"), tmp_path, *flags)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_many_units_go_two_vectors_at_a_time(dtype, tmp_path):
    """And the panel of h, of more than 32 KiB, from its other end in every second step."""
    source = c(rnnspec.Recurrent("lstm", 2, 64, dtype=dtype, seed=0), name="many")
    assert "ADD_WIDE" in source.source and "s->t & 1" in source.source
    for flags in ([*SANE], ["-O3", "-march=native"], ["-O2", "-DWITHOUT_VECTORS"]):
        assert_right(source, tmp_path, *flags)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="reads the text of this machine")
@pytest.mark.parametrize("level", ["-O2", "-O3"])
def test_products_and_functions_are_vectors_with_multiply_adds(level, tmp_path):
    """Without leave to be careless with exceptions, or to contract, and without AVX-512's masks."""
    c(rnnspec.Recurrent("lstm", 2, 16, seed=0), name="a_lstm").write(tmp_path)
    flags = ["-std=c99", level, "-march=haswell", "-S"]
    subprocess.run([COMPILER, *flags, "a_lstm.c", "-o", "a.s"], cwd=tmp_path, check=True)
    text = (tmp_path / "a.s").read_text()
    step = text[text.index("l0_step:") :].split(".cfi_endproc")[0]
    assert re.search(r"vfmadd\w+ps.*%ymm", step) and re.search(r"vdivps.*%ymm", step)
    assert not re.search(r"vmulss|vdivss|vfmadd\w+ss", step)


def test_fast_math_is_refused(tmp_path):
    exported("lstm", "float32").write(tmp_path)
    made = subprocess.run([COMPILER, "-ffast-math", "-c", "a_lstm.c"], cwd=tmp_path, capture_output=True, text=True)
    assert made.returncode and "compile without -ffast-math" in made.stderr


def test_the_header_is_one_for_c_plus_plus_too(tmp_path):
    if not (compiler := shutil.which("g++")):
        pytest.skip("there is no C++ compiler here")
    exported("gru", "float32").write(tmp_path)
    (tmp_path / "use.cpp").write_text(
        '#include "a_gru.h"\nint main() { a_gru s; return a_gru_init(&s, nullptr, 0); }\n'
    )
    subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "use.cpp"], cwd=tmp_path, check=True)


@pytest.mark.parametrize("wrong", ["weight", "equation", "not a number"])
def test_the_check_finds_what_is_wrong(wrong, tmp_path):
    right = exported("gru", "float32")
    number = re.search(r"panel_1 \*/[^{]*?(-?0\.\d{4,}f)", right.source)
    assert number
    changed = {
        "weight": right.source[: number.start(1)] + "9.5f" + right.source[number.end(1) :],
        "equation": right.source.replace("(1.0f - z) * n_ + z * h_prev", "(1.0f - z) * h_prev + z * n_"),
        "not a number": right.source.replace("= tanh_of(a_n)", "= tanh_of(a_n) * NAN"),
    }[wrong]
    assert changed != right.source
    program = built(right, tmp_path)
    (tmp_path / "a_gru.c").write_text(changed)
    subprocess.run([COMPILER, "a_gru.c", "a_gru_selftest.c", "-o", program, "-lm"], cwd=tmp_path, check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 1 and "largest error" in done.stdout


# --- layers, as a library


def test_layers_compute_what_infer_does_step_by_step(tmp_path):
    rng = np.random.default_rng(0)
    layer = rnnspec.Recurrent("lstm", 5, 13, num_layers=3, residual=True, learn_initial=True, seed=3, threads=1)
    for name, array in layer.params.items():
        if name.startswith("initial"):
            array[:] = rng.normal(size=array.shape)
    x = rng.normal(size=(9, 1, 5)).astype(np.float32)
    expected = layer.infer(x)[0][:, 0]
    program = Library(c(layer, name="net"), tmp_path)
    np.testing.assert_allclose(program.block(x[:4, 0], 13), expected[:4], rtol=0, atol=1e-6)
    np.testing.assert_allclose(program.block(x[4:, 0], 13), expected[4:], rtol=0, atol=1e-6)
    program.call("reset")
    np.testing.assert_allclose(program.block(x[:, 0], 13), expected, rtol=0, atol=1e-6)


def test_names_that_are_words_of_c(tmp_path):
    spec = loads(
        cell(
            "int[t] = tanh(float * x[t] + s[t-1])\nvoid[t] = int[t] * n\ns[t] = void[t]",
            inputs="{x: H}",
            parameters="{float: H, n: H}",
            states="{s: H}",
            outputs="[int, void]",
        )
    )
    params = {n: np.full(3, 0.5, np.float32) for n in ("float", "n")}
    assert_right(c(spec, params, sizes={"H": 3}, name="words"), tmp_path)


@pytest.mark.parametrize(
    "inputs, weight, state",
    [
        (("NULL", "NAN"), "INFINITY", "LANES"),
        (("s", "s_", "size_t"), "EOF", "unix"),
        (("h_out", "h_out_", "tape"), "W_out", "h"),
        (("d_h", "l0_step", "cell_step"), "gradients", "h"),
    ],
)
def test_names_that_mean_something_in_c(inputs, weight, state, tmp_path):
    spec = loads(
        cell(
            f"{state}[t] = tanh({weight} * {state}[t-1] + {' + '.join(f'{n}[t]' for n in inputs)})",
            inputs=f"{{{', '.join(f'{n}: H' for n in inputs)}}}",
            parameters=f"{{{weight}: H}}",
            states=f"{{{state}: H}}",
            outputs=f"[{state}]",
        )
    )
    params = {weight: np.full(3, 0.5, np.float32)}
    assert_right(c(spec, params, sizes={"H": 3}, name="words"), tmp_path)
    made = learner(spec, params, sizes={"H": 3}, name="learns")
    made.write(tmp_path, selftest=True)
    command = [COMPILER, *STRICT, *SANE, "learns.c", "learns_selftest.c", "-o", "learns", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "learns"], check=True)


def test_a_program_has_no_name_that_is_declared_already(tmp_path):
    """Nothing at the level of a file, nor of the headers that it reads, can be asked for."""
    layer = rnnspec.Recurrent("lstm", 2, 3)
    source, learning = c(layer, name="NAMED", apart=True), learner(layer, name="NAMED")
    for text in (source.source, source.header, source.selftest(), learning.source, learning.selftest()):
        made = re.findall(
            r"^(?:static|typedef|#define|extern)\b[^\n(=;{]*?\b(\w+)(?:\[[^\n]*)?(?: =|\(|;| \S+$|$)", text, re.M
        )
        for name in {n for n in made if not n.upper().startswith("NAMED")}:
            refused_as_name(layer, name)
    for name in ("tanh", "expf", "size_t", "l0", "cell", "model", "main", "real", "weights", "x_in", "NULL", "j0"):
        refused_as_name(layer, name)
    for name in ("size", "s", "count"):
        assert_right(c(layer, name=name), tmp_path, "-std=c99")


def refused_as_name(layer: rnnspec.Recurrent, name: str) -> None:
    with pytest.raises(ValueError, match=r"give another name|a letter first"):
        c(layer, name=name)


def test_states_that_change_places(tmp_path):
    spec = loads(
        cell("a[t] = b[t-1]\nb[t] = a[t-1]\ny[t] = a[t] + x[t]", inputs="{x: H}", states="{a: H, b: H}", outputs="[y]")
    )
    program = Library(c(spec, {}, sizes={"H": 1}, name="swap"), tmp_path)
    state = program.memory.view(np.float32)[:2]  # the struct begins with them
    state[:] = 3.0, 5.0
    assert program.block(np.zeros((3, 1), np.float32), 1).ravel().tolist() == [5.0, 3.0, 5.0]


# --- what is refused


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: c(rnnspec.Recurrent("gru", 2, 3, bidirectional=True)), UnsupportedError, "bidirectional=False"),
        (lambda: c(rnnspec.Recurrent("gru", 2, 3), sizes={"H": 3}), TypeError, "with a Spec only"),
        (lambda: c(load("gru")), TypeError, "give params and sizes"),
        (lambda: c(load("rnn"), {}, sizes={"D": 0, "H": 3}), ValueError, "Give at least 1"),
        (lambda: c(rnnspec.Recurrent("gru", 2, 3), name="while"), ValueError, "means something else in C"),
        (lambda: c(rnnspec.Recurrent("gru", 2, 3), name="a-b"), ValueError, "letters, digits and _"),
    ],
)
def test_what_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


# --- the command


def test_the_command_writes_and_says_how_to_compile(tmp_path, capsys):
    given = ["export", "gru", "--to", "c", "--inputs", "1", "--hidden", "8", "--layers", "2", "--selftest"]
    assert main([*given, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert {p.name for p in tmp_path.iterdir()} == {"gru.c", "gru.h", "gru_selftest.c"}
    assert "cc -O3 -march=native" in said and "gru_selftest" in said
    subprocess.run([COMPILER, "gru.c", "gru_selftest.c", "-o", "t", "-lm"], cwd=tmp_path, check=True)
    subprocess.run(["./t"], cwd=tmp_path, check=True, capture_output=True)


def test_the_command_refuses_and_leaves_nothing(tmp_path, capsys):
    assert main(["export", "gru", "--to", "c", "--out", str(tmp_path / "none")]) == 2
    assert "make it first" in capsys.readouterr().err
    assert main(["export", "gru", "--to", "c", "--out", str(tmp_path), "--name", "1a"]) == 2
    assert main(["export", "no_such_cell", "--to", "c", "--out", str(tmp_path)]) == 2
    assert not list(tmp_path.iterdir())


def test_a_trained_run_writes_text(tmp_path, capsys):
    (tmp_path / "text.txt").write_text('a "b" ü? ' * 400, encoding="utf-8")
    run = ["train", "gru", "--data", str(tmp_path / "text.txt"), "--steps", "3", "--hidden", "8", "--sample", "0"]
    assert main([*run, "--out", str(tmp_path / "run")]) == 0
    export = ["export", str(tmp_path / "run"), "--to", "c", "--out", str(tmp_path)]
    assert main([*export, "--name", "lm", "--selftest"]) == 0
    for part, flags in (("main", STRICT), ("selftest", [*STRICT, *SANE])):
        files = ["lm.c", f"lm_{part}.c", "-o", part, "-lm"]
        subprocess.run([COMPILER, *flags, *files], cwd=tmp_path, check=True)
    subprocess.run(["./selftest"], cwd=tmp_path, check=True, capture_output=True)
    first, second = (
        subprocess.run(["./main", "50", "0.8", "7"], cwd=tmp_path, capture_output=True).stdout for _ in "12"
    )
    assert first == second and len(first.decode()) == 51 and set(first.decode()) <= set('a "b" ü?\n')
    assert main([*export, "--name", "lm_apart", "--apart"]) == 0
    files = ["lm_apart.c", "lm_apart_main.c", "-o", "apart", "-lm"]
    subprocess.run([COMPILER, *STRICT, *files], cwd=tmp_path, check=True)
    given = ["./apart", "50", "0.8", "7"]
    assert subprocess.run(given, cwd=tmp_path, capture_output=True).stdout == first
    assert subprocess.run([*given, "lm.c"], cwd=tmp_path, capture_output=True).returncode == 2
    capsys.readouterr()
    assert main([*export, "--hidden", "4"]) == 2
    assert "leave out --hidden" in capsys.readouterr().err


def test_a_file_depends_on_nothing_but_what_it_is_made_of():
    first, second = exported("lstm", "float32"), exported("lstm", "float32")
    assert (first.source, first.header, first.selftest()) == (second.source, second.header, second.selftest())
    assert not re.search(r"malloc|calloc|alloca|\bgoto\b", first.source)


def test_errors_are_of_the_package():
    assert issubclass(UnsupportedError, RnnspecError)


def test_what_is_expected_of_noise_has_all_its_digits():
    """It was rounded to float32 in a file of float64, and the file's own check with it."""
    spec = load("zoneout_lstm")
    sizes = size_values(spec, (2, 3, 2))
    part = cell_part("l0", spec, initialise(spec, sizes, 1, np.dtype("float64")), sizes, "float64")
    means = {draw.mean for draw in spec.noise.values()}
    assert any(float(np.float32(mean)) != mean for mean in means)
    assert means <= {float(v) for array in part.weights.values() for v in array.ravel()}


@pytest.mark.parametrize("size", [1, 7, 8, 16, 29])
def test_reductions_of_any_length_and_with_nan(size, tmp_path):
    spec = loads(
        cell(
            "m[t] = max(x[t])\na[t] = sum(x[t])\ny[t] = x[t] * 0 + m[t]\nz[t] = x[t] * 0 + a[t]\ns[t] = z[t]",
            inputs="{x: H}",
            states="{s: H}",
            outputs="[y, z]",
        )
    )
    program = Library(c(spec, {}, sizes={"H": size}, name="reduce"), tmp_path)
    x = np.random.default_rng(0).normal(size=(3, size)).astype(np.float32)
    x[1, size // 2] = np.nan
    y, z = np.zeros((2, 3, size), np.float32)
    program.call("block", ctypes.c_size_t(3), x, y, z)
    np.testing.assert_array_equal(y[::2, 0], x[::2].max(axis=1))
    np.testing.assert_allclose(z[::2, 0], x[::2].sum(axis=1), rtol=1e-5, atol=1e-6)
    assert np.isnan(y[1]).all() and np.isnan(z[1]).all()
